#!/usr/bin/env python3
"""Checks that each link of the pages leads somewhere: a relative link to a file or folder of the tree, an #anchor to a heading there.
And that each docs/NAME.md which a comment, a message or a page mentions is there.

links.py ROOT         checks the tree at ROOT
links.py --self-test  checks that each kind of broken link is found
"""
import os
import re
import sys

import source_tree

LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
MENTION = re.compile(r"(?<![\w/-])docs/[\w/-]+\.md\b")
OUTSIDE = re.compile(r"^[a-z]+:")
# A decision, and a line about a bug, tells how things were when it was made: its links must work, what it mentions may be gone. The checks plant names.
HISTORY = re.compile(r"^docs/adr/|^docs/bugs\.csv$|^tests/lint/")


def files(root):
    for path, data in source_tree.files(root):
        try:
            yield path, data.decode("utf-8")
        except UnicodeDecodeError:
            continue


def blank(m):
    return re.sub(r"[^\n]", " ", m.group())


def without_code(text):
    """Blocks and spans of code blanked, line by line the same: what looks like a link there is none."""
    text = re.sub(r"^(```+).*?^\1", blank, text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", blank, text)


def anchors(text):
    """Those that GitHub gives to the headings."""
    seen = {}
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", re.sub(r"^(```+).*?^\1", "", text, flags=re.M | re.S), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        yield slug if seen[slug] == 0 else "%s-%d" % (slug, seen[slug])
    yield from re.findall(r'<a (?:id|name)="([^"]+)"', text)


def check_page(root, path, text):
    for m in LINK.finditer(without_code(text)):
        target, _, anchor = m.group(1).partition("#")
        if OUTSIDE.match(m.group(1)):
            continue
        line = text.count("\n", 0, m.start()) + 1
        full = os.path.normpath(os.path.join(root, os.path.dirname(path), target)) if target else os.path.join(root, path)
        if not os.path.exists(full) or os.path.relpath(full, root).startswith(".."):
            yield f"{path}:{line}: {m.group(1)}: there is no such file"
        elif anchor and full.endswith(".md"):
            with open(full, encoding="utf-8") as f:
                if anchor not in anchors(f.read()):
                    yield f"{path}:{line}: {m.group(1)}: there is no such heading"


def check(root):
    for path, text in files(root):
        if path.endswith(".md"):
            yield from check_page(root, path, text)
        if HISTORY.match(path):
            continue
        for m in MENTION.finditer(LINK.sub(blank, text) if path.endswith(".md") else text):
            if not os.path.exists(os.path.join(root, m.group())):
                yield f"{path}:{text.count(chr(10), 0, m.start()) + 1}: {m.group()} is not there"


GOOD = {
    "README.md": "[a](docs/A.md) [b](docs/A.md#a-heading-of-2-words) [c](https://nowhere.example/x) [d](#top) ![e](docs/img/a.png) [f](docs)\n"
                 "# Top\n`[g](nowhere.md)`\n```\n[h](nowhere.md)\n# No heading\n```\n",
    "docs/A.md": "[up](../README.md#top)\n## A heading, of `2` words!\n## Twice\n## Twice\n[two](#twice-1) [code `x[1]`](A.md)\n",
    "docs/img/a.png": "x", "docs/adr/1.md": "docs/GONE.md was there.\n", "src/a.c": "/* see docs/A.md, and mydocs/B.md */\n", "build/b.md": "[x](y)\n",
}
OFFENCES = [
    ("README.md", "docs/A.md)", "docs/B.md)", "no such file"), ("README.md", "#a-heading-of-2-words", "#a-heading", "no such heading"),
    ("README.md", "#top", "#no-heading", "no such heading"), ("README.md", "a.png", "b.png", "no such file"),
    ("README.md", "(docs)", "(../other)", "no such file"), ("docs/A.md", "#twice-1", "#twice-2", "no such heading"),
    ("docs/adr/1.md", "docs/GONE.md", "[gone](docs/GONE.md)", "no such file"), ("src/a.c", "docs/A.md", "docs/operations/a-b.md", "is not there"),
]


def self_test():
    wrong = 0
    if source_tree.complaints_of(check, GOOD):
        print("self-test: the good tree was refused:", *source_tree.complaints_of(check, GOOD), sep="\n  ")
        wrong += 1
    for path, old, new, words in OFFENCES:
        text = GOOD[path].replace(old, new, 1)
        found = source_tree.complaints_of(check, {**GOOD, path: text})
        if text == GOOD[path] or len(found) != 1 or words not in found[0]:
            print(f"self-test: {new!r} in {path} gave {found}")
            wrong += 1
    print(f"self-test: {len(OFFENCES) + 1} trees, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(source_tree.run(__doc__, check, self_test, lambda root, found: f"links: {len(found)} wrong"))
