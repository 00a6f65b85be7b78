#!/usr/bin/env python3
"""Compares the list of shared ceilings, src/base/ceilings.h, with the code: each constant that may be one is in the list, or in that of bounds of one
thing; whatever is listed is there; and what gives a share is in the file that the list names.

ceilings.py ROOT         checks the tree at ROOT
ceilings.py --self-test  checks that each kind of offence is found
"""
import os
import re
import sys

import source_tree

LIST = "src/base/ceilings.h"
FOLDERS = ("auth", "consensus", "machine", "metrics", "net", "peer", "server", "snapshot", "store")
CEILING = re.compile(r"^#define ([A-Z0-9_]+_(?:MAX|WINDOW|SLOTS|ROOM|RING|MEMORY)|WINDOW)\b", re.M)
FILE = re.compile(r"^ \*   ([a-z_]+/[a-z_0-9]+\.[ch])$")
SHARED = re.compile(r"^ \*     (\w+) +(?:none: .+|\w+: (\w+) in ([a-z_]+/[a-z_0-9]+\.[ch]))$")
OF_ONE = re.compile(r"^ \*   ([a-z_]+/[a-z_0-9]+\.[ch]): ([\w ]+)$")
MORE = re.compile(r"^ \*       ([A-Z][\w ]+)$")


def parse(text):
    """The shared ceilings as {(file, name): (symbol, file) or None}, the others as a set of (file, name), and lines that are neither."""
    shared, of_one, wrong, file = {}, set(), [], None
    lines = iter(text.split("\n *\n", 2)[-1].splitlines()) if text.count("\n *\n") >= 2 else iter(())
    for line in lines:
        if m := FILE.match(line):
            file = m[1]
        elif m := OF_ONE.match(line):
            file = m[1]
            of_one |= {(file, name) for name in m[2].split()}
        elif file and (m := MORE.match(line)):
            of_one |= {(file, name) for name in m[1].split()}
        elif file and (m := SHARED.match(line)):
            shared[file, m[1]] = (m[2], m[3]) if m[2] else None
        elif line.startswith(" *   "):
            wrong.append(line)
    return shared, of_one, wrong


def check(root):
    files = {path[len("src/"):].replace(os.sep, "/"): data.decode("utf-8", "replace")
             for path, data in source_tree.files(root) if re.match(r"src/[a-z]+/\w+\.[ch]$", path)}
    shared, of_one, wrong = parse(files.get("base/ceilings.h", ""))
    for line in wrong:
        yield f"{LIST}: neither a file, nor a ceiling with its share, nor names: {line.strip()}"
    for file, name in sorted(shared.keys() & of_one):
        yield f"{LIST}: {name} of {file} is in both lists"
    for file, name in sorted(shared.keys() | of_one):
        if not re.search(rf"\b{name}\b", files.get(file, "")):
            yield f"{LIST}: {file} has no {name}"
    for (_, name), share in sorted(shared.items()):
        if share and not re.search(rf"\b{share[0]}\b", files.get(share[1], "")):
            yield f"{LIST}: {name} is shared by {share[0]} in {share[1]}, which has no such thing"
    for file, text in sorted(files.items()):
        for name in CEILING.findall(text) if file.split("/")[0] in FOLDERS else ():
            if (file, name) not in shared and (file, name) not in of_one:
                yield f"src/{file}: {name} is not in {LIST}: do several clients share it, and what is the share of each?"


def self_test():
    head = "/* ceilings.h\n *\n * two lists\n *\n"
    rows = " *   net/a.h\n *     A_MAX   addresses: give_up in net/a.c\n *     B_ROOM  none: a reason\n *\n * others\n *\n *   net/b.h: C_MAX\n *       D_RING\n */\n"
    good = {LIST: head + rows, "src/net/a.h": "#define A_MAX 1\n#define B_ROOM 2\n", "src/net/a.c": "give_up();\n", "src/net/b.h": "#define C_MAX 1\n#define D_RING 2\n"}
    cases = [("nothing", {}, 0), ("not listed", {"src/net/c.h": "#define E_MAX 1\n"}, 1), ("gone", {"src/net/b.h": "#define C_MAX 1\n"}, 1),
             ("no share", {"src/net/a.c": "\n"}, 1), ("in both", {LIST: head + rows.replace("D_RING\n", "D_RING\n *   net/a.h: A_MAX\n")}, 1),
             ("no line of the list", {LIST: head + rows.replace("none: a reason", "?")}, 2), ("no list", {LIST: "\n"}, 4),
             ("another folder", {"src/wire/c.h": "#define E_MAX 1\n"}, 0)]
    wrong = 0
    for name, change, count in cases:
        found = source_tree.complaints_of(check, {**good, **change})
        if len(found) != count:
            print(f"self-test: {name}: {found}")
            wrong += 1
    print(f"self-test: {len(cases)} trees, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(source_tree.run(__doc__, check, self_test, lambda root, found: f"ceilings: {len(found)} wrong"))
