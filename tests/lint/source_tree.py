"""What the checks of the source share: the files, a tree with planted text, and a main program."""
import os
import sys
import tempfile

SKIPPED_FOLDERS = {".git", "__pycache__", "corpus", "fencelock-data"}


def files(root):
    """(path, bytes) of each file of the source, in order."""
    for folder, names, found in os.walk(root):
        names[:] = sorted(n for n in names if n not in SKIPPED_FOLDERS and not n.startswith("build"))
        if os.path.relpath(folder, root) == "jepsen" and "store" in names:
            names.remove("store")  # what runs of the suite leave
        for name in sorted(found):
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as f:
                yield os.path.relpath(path, root), f.read()


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
