"""What the checks of the source share: a tree with planted text, and a main program."""
import os
import sys
import tempfile


def complaints_of(check, files):
    """What check(root) yields for a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
        return list(check(root))


def run(doc, check, self_test, summary=lambda root, found: None):
    """PROGRAM ROOT prints what check(root) yields, and the summary; PROGRAM --self-test runs that. Its exit code: 1 when
    something is wrong, 2 when it was called wrongly."""
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(doc, file=sys.stderr)
        return 2
    root = sys.argv[1]
    found = list(check(root))
    last = summary(root, found)
    print(*found, *([last] if last else []), sep="\n", end="\n" if found or last else "")
    return 1 if found else 0
