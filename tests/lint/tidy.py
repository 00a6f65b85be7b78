#!/usr/bin/env python3
"""Checks the text of the tree: lengths, tabs, banned calls, leftovers, guards of headers.

tidy.py ROOT         checks the files under ROOT
tidy.py --self-test  checks that each kind of offence is found
"""
import os
import re
import sys

import source_tree

LINE_MAX = 100      # columns of a line of C
FILE_MAX = 800      # lines of a file of C or Python
FUNCTION_MAX = 70   # lines between the braces of a function

# Word -> what to use instead.
BANNED = {
    "strcpy": "memcpy with a length", "stpcpy": "memcpy with a length", "strcat": "snprintf", "strncat": "snprintf",
    "strncpy": "memcpy with a length", "sprintf": "snprintf", "vsprintf": "vsnprintf", "gets": "fgets",
    "strtok": "memchr", "atoi": "fli_parse_u64", "atol": "fli_parse_u64", "atoll": "fli_parse_u64",
    "rand": "fli_random", "srand": "fli_random", "random": "fli_random", "srandom": "fli_random",
    "drand48": "fli_random", "gettimeofday": "fli_clock_ms", "time": "fli_clock_ms", "ftime": "fli_clock_ms",
    "alloca": "a bounded array", "tmpnam": "mkdtemp", "mktemp": "mkdtemp",
}
BANNED_CALL = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
# Clocks are read in one file; tests may measure.
CLOCK_CALL = re.compile(r"(?<![\w.>])(clock_gettime|clock|times)\s*\(")
# An end of a directory by an error is taken for its end, where this is called by hand.
FOLDER_CALL = re.compile(r"(?<![\w.>])(opendir|readdir|fdopendir|scandir)\s*\(")
CLOCK_FILES = {"src/base/clock.c", "src/base/clock_cpu.c"}
# The loop's clock stands still while the machine is suspended. These files compare its times with each other only.
LOOP_CLOCK_CALL = re.compile(r"(?<![\w.>])(uv_now|uv_hrtime)\s*\(")
LOOP_CLOCK_FILES = {"src/net/server.c", "src/peer/stream.c", "src/metrics/listener.c"}
# The word in two pieces, so that this file passes its own check.
LEFTOVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
# Paths of one machine, and hosts that serve packages: they have no business in the tree.
LOCAL = re.compile(r"(?<![\w.$}/-])/(work|tmp|farm)/\w|deb\.debian" r"\.org|security\.debian" r"\.org|registry\.npmjs"
                   r"|proxy\.golang" r"\.org|repo1?\.maven|pypi\." r"org|index\.crates" r"\.io|archive\.ubuntu" r"\.com")
GUARD = re.compile(r"^#ifndef (\w+_H)\n#define \1\n", re.M)

# Decisions: docs/adr/NUMBER-words.md, each in the list of docs/adr/README.md, and no longer than a page that one reads at a stretch.
DECISION = re.compile(r"docs/adr/(\d{4})-[a-z0-9-]+\.md$")
DECISION_MAX = 5500
READER = re.compile(r"(README\.md|docs/.*\.md)$")
READER_MAX = 25600
STATUS = re.compile(r"^# (\d+)\. .+\n\n\*\*Status:\*\* (proposed|accepted|replaced by \[\d+\])")

TEXT = (".c", ".h", ".py", ".sh", ".md", ".build", ".txt", ".yml", ".yaml", ".conf", ".service", ".in")


def files(root):
    for path, data in source_tree.files(root):
        if path.endswith(TEXT) or data.startswith(b"#!"):
            yield path, data


def without_comments(text):
    """The same text with the insides of comments, strings and characters blanked, line by line the same."""
    out = []
    i = 0
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    for found in token.finditer(text):
        out.append(text[i:found.start()])
        out.append(re.sub(r"[^\n]", " ", found.group()))
        i = found.end()
    out.append(text[i:])
    return "".join(out)


def function_lengths(code):
    """(first line, lines between the braces) of each function. clang-format puts the braces of functions, and of
    nothing else, alone at the start of a line."""
    start = None
    for number, line in enumerate(code.split("\n"), 1):
        if line.rstrip() == "{" and start is None:
            start = number
        elif line.startswith("}") and start is not None:
            yield start, number - start - 1
            start = None


def check_c(path, text):
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_MAX:
            yield f"{path}:{number}: {len(line)} columns; {LINE_MAX} are the limit"
        if "\t" in line:
            yield f"{path}:{number}: a tab"
    code = without_comments(text)
    for number, line in enumerate(code.split("\n"), 1):
        for found in BANNED_CALL.finditer(line):
            if found.group(1) != "time" or path not in CLOCK_FILES:
                yield f"{path}:{number}: {found.group(1)}() is banned; use {BANNED[found.group(1)]}"
        for found in CLOCK_CALL.finditer(line):
            if path.startswith("src/") and path not in CLOCK_FILES:
                yield f"{path}:{number}: {found.group(1)}(): only src/base/clock.c reads a clock"
        for found in LOOP_CLOCK_CALL.finditer(line):
            if path.startswith("src/") and path not in LOOP_CLOCK_FILES:
                yield f"{path}:{number}: {found.group(1)}() stands still in a suspend; use fli_clock_ms()"
        for found in FOLDER_CALL.finditer(line):
            if path.startswith("src/") and path != "src/base/folder.c":
                yield f"{path}:{number}: {found.group(1)}(): use fli_folder_each()"
    for number, length in function_lengths(code):
        if length > FUNCTION_MAX:
            yield f"{path}:{number}: a function of {length} lines; {FUNCTION_MAX} are the limit"


def check_decision(path, data, listed):
    number = int(DECISION.match(path).group(1))
    text = data.decode("utf-8")
    head = STATUS.match(text)
    if head is None or int(head.group(1)) != number:
        yield f"{path}: must begin with '# {number}. Title', an empty line, and '**Status:** accepted.' (or proposed, or replaced by [N](...))"
    if len(data) > DECISION_MAX:
        yield f"{path}: {len(data)} bytes; {DECISION_MAX} are the limit of a decision"
    if f"({os.path.basename(path)})" not in listed:
        yield f"{path}: is not in the list of docs/adr/README.md"


def check(root):
    """Yields one line for each offence."""
    guards = {}
    decisions = os.path.join(root, "docs/adr/README.md")
    with open(decisions if os.path.exists(decisions) else os.devnull, encoding="utf-8") as f:
        listed = f.read()
    for path, data in files(root):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            yield f"{path}: not UTF-8"
            continue
        if READER.match(path) and len(data) > READER_MAX:
            yield f"{path}: {len(data)} bytes; {READER_MAX} are the limit of a page: divide it"
        if DECISION.match(path):
            yield from check_decision(path, data, listed)
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            if LEFTOVER.search(line):
                yield f"{path}:{number}: left for later: {LEFTOVER.search(line).group()}"
            if LOCAL.search(line):
                yield f"{path}:{number}: a path of one machine, or a package host: {LOCAL.search(line).group()}"
            if line != line.rstrip() and not path.endswith(".md"):
                yield f"{path}:{number}: blanks at the end of the line"
        if text and not text.endswith("\n"):
            yield f"{path}: no line end at the end of the file"
        if path.endswith((".c", ".h", ".py")) and len(lines) - 1 > FILE_MAX:
            yield f"{path}: {len(lines) - 1} lines; {FILE_MAX} are the limit"
        if path.endswith((".c", ".h")):
            yield from check_c(path, text)
        if path.endswith(".h"):
            found = GUARD.search(text)
            if not found:
                yield f"{path}: no guard (#ifndef NAME_H, #define NAME_H)"
            elif found.group(1) in guards:
                yield f"{path}: the guard {found.group(1)} is that of {guards[found.group(1)]} as well"
            else:
                guards[found.group(1)] = path


def function(lines):
    return "int f(void)\n{\n" + "    x();\n" * lines + "}\n"


def self_test():
    guard = "#ifndef {0}_H\n#define {0}_H\n#endif\n"
    good = {
        "src/base/clock.c": "int f(void)\n{\n    return time(NULL) + clock_gettime(0, 0);\n}\n",
        "src/base/a.h": guard.format("A"),
        "src/base/a.c": "/* sprintf( and a time( of comments */\nconst char *s = \"atoi(\";\nint r = my_rand(1) + t.time(2);\n",
        "src/base/long.c": "/" + "/" + "x" * 98 + "\n" + function(70),
        "src/base/full.c": "x();\n" * 800,
        "tests/measure.c": "int t = clock_gettime(0, 0);\nDIR *d = opendir(path);\n",
        "src/base/folder.c": "e = readdir(dir);\n",
        "docs/a.md": "two blanks  \nat " + "x" * 200 + "\n",
        "docs/adr/README.md": "[1](0001-a.md) [2](0002-b.md)\n",
        "docs/adr/0001-a.md": "# 1. A\n\n**Status:** accepted.\n" + "x" * 5469 + "\n",
        "docs/full.md": "x" * 25599 + "\n",
        "tests/x.py": "path = folder + '/tmp'\n",
        "build/bad.c": "\t",
        "tests/fuzz/corpus/x.c": "\t",
    }
    bad = {
        "101 columns": ("src/base/bad.c", "/" + "/" + "x" * 99 + "\n"),
        "tab": ("src/base/bad.c", "\tx();\n"),
        "801 lines": ("src/base/bad.c", "x();\n" * 801),
        "801 lines of Python": ("tests/bad.py", "x()\n" * 801),
        "71 lines": ("src/base/bad.c", function(71)),
        "leftover": ("docs/bad.md", "TO" + "DO: more\n"),
        "leftover in code": ("src/base/bad.c", "/" + "/ FIX" + "ME\n"),
        "decision without a status": ("docs/adr/0002-b.md", "# 2. B\n\nDecided.\n"),
        "decision with another number": ("docs/adr/0002-b.md", "# 3. B\n\n**Status:** accepted.\n"),
        "decision that is not listed": ("docs/adr/0003-c.md", "# 3. C\n\n**Status:** replaced by [2](0002-b.md).\n"),
        "long decision": ("docs/adr/0002-b.md", "# 2. B\n\n**Status:** accepted.\n" + "x" * 5470 + "\n"),
        "long page": ("docs/testing/bad.md", "x" * 25600 + "\n"),
        "path": ("docs/bad.md", "see /wo" + "rk/x\n"),
        "path in code": ("src/base/bad.c", "const char *p = \"/tm" + "p/x\";\n"),
        "host": ("deploy/bad.sh", "https://deb.debian" + ".org\n"),
        "script without a suffix": ("deploy/bad", "#!/bin/sh\nls /tm" + "p/x\n"),
        "end of line": ("src/base/bad.c", "x(); \n"),
        "end of file": ("src/base/bad.c", "x();"),
        "no guard": ("src/base/bad.h", "int x;\n"),
        "wrong guard": ("src/base/bad.h", "#ifndef B_H\n#define C_H\n#endif\n"),
        "same guard": ("src/base/bad.h", guard.format("A")),
        "clock in src": ("src/net/bad.c", "int t = clock_gettime(0, 0);\n"),
        "clock of the loop in src": ("src/net/bad.c", "uint64_t t = uv_now(loop);\n"),
        "directory in src": ("src/log/bad.c", "e = readdir(dir);\n"),
    }
    for word in BANNED:
        bad[f"call of {word}"] = ("tests/bad.c", f"int i = {word} (x);\n")

    def offences(extra):
        return source_tree.complaints_of(check, {**good, **dict(extra)})

    failed = 0
    if offences([]):
        print("self-test: a good tree is blamed:", offences([]))
        failed += 1
    for what, (path, text) in bad.items():
        found = offences([(path, text)])
        if len(found) != 1 or not found[0].startswith(path):
            print(f"self-test: {what}: found {found}")
            failed += 1
    print(f"self-test: {len(bad) + 1} trees, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(source_tree.run(__doc__, check, self_test))
