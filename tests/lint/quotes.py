#!/usr/bin/env python3
"""Compares what the documents quote of the source with the source: a block of code behind the line

    <!-- of src/store/service.c -->

is in that file, as whole lines and word for word; a line of `...` leaves out some.

quotes.py ROOT         checks the tree at ROOT
quotes.py --self-test  checks that each kind of offence is found
"""
import re
import sys

import source_tree

QUOTE = re.compile(r"^<!-- of (\S+) -->\n```\w*\n(.*?)^```$", re.M | re.S)

GOOD = {"src/a/a.c": "int a;\nint b;\nint c;\n",
        "docs/A.md": "Words.\n\n<!-- of src/a/a.c -->\n```\nint a;\n...\nint c;\n```\n"}
OFFENCES = [
    ("docs/A.md", "int c;", "int d;", "is not there"),
    ("docs/A.md", "int a;\n", "nt a;\n", "is not there"),
    ("docs/A.md", "int c;", "int a;", "is not there"),
    ("docs/A.md", "a.c", "b.c", "there is no such file"),
    ("src/a/a.c", "int c;", "long c;", "is not there"),
]


def is_in(quoted, text):
    """Whether the pieces between the lines of dots follow each other in the text."""
    at = 0
    for piece in re.split(r"^\s*\.\.\.\n", quoted, flags=re.M):
        at = ("\n" + text).find("\n" + piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def check(root):
    files = {path: data.decode("utf-8", "replace") for path, data in source_tree.files(root)}
    for path in sorted(p for p in files if p.endswith(".md")):
        for source, quoted in QUOTE.findall(files[path]):
            if source not in files:
                yield f"{path}: quotes {source}: there is no such file"
            elif not is_in(quoted, files[source]):
                yield f"{path}: what it quotes of {source} is not there: {quoted.splitlines()[0]}"


def self_test():
    wrong = 0
    if source_tree.complaints_of(check, GOOD):
        print("self-test: the good tree was refused:", *source_tree.complaints_of(check, GOOD), sep="\n  ")
        wrong += 1
    for path, old, new, words in OFFENCES:
        found = source_tree.complaints_of(check, {**GOOD, path: GOOD[path].replace(old, new, 1)})
        if len(found) != 1 or words not in found[0]:
            print(f"self-test: {new!r} in {path} gave {found}")
            wrong += 1
    print(f"self-test: {len(OFFENCES) + 1} trees, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(source_tree.run(__doc__, check, self_test, lambda root, found: f"quotes: {len(found)} wrong"))
