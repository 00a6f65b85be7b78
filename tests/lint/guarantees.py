#!/usr/bin/env python3
"""Checks that the tests which docs/GUARANTEES.md names exist and are run, and that every promise names one or says
that it has none. Checks docs/bugs.csv as well.

guarantees.py ROOT         checks the pages in ROOT/docs
                           With FENCELOCK_BUILD, a build of it: also that each promise has a test that runs without
                           `tests/run --all`
guarantees.py --self-test  checks that each kind of offence is found

A test is named in a code span, `tests/FOLDER/FILE::NAME`. NAME is a C function, or Class.method in Python. In any page
of docs such a name must be right. In GUARANTEES.md, every section with a number (### 1a. ...) must have at least one,
or a line that begins with "**No test".
"""
import ast
import csv
import json
import os
import re
import sys

import source_tree

PAGE = "GUARANTEES.md"
PROMISES = ["1", "2", "3", "4", "5", "U"]  # U: the answer UNCERTAIN
NAMED = re.compile(r"`(tests/[\w./-]+)::([\w.]+)`")
PATH = re.compile(r"`(tests/[\w./-]+)`")
SECTION = re.compile(r"^### (([0-9U])[a-z])\. .+$", re.M)
BUGS = "docs/bugs.csv"
COLUMNS = ["date", "area", "what", "found by", "test"]
IN_CELL = re.compile(r"(tests/[\w./-]+?)(?:::([\w.]+))?$")
OTHER_AREAS = {"build", "deploy", "docs", "jepsen", "tests"}
NO_TEST = re.compile(r"^\*\*No test", re.M)


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as f:
        return f.read()


def python_error(text, name):
    """Why a Python file has no such test; None when it has."""
    class_name, _, method = name.partition(".")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            if any(isinstance(n, ast.FunctionDef) and n.name == method for n in node.body):
                return None if method.startswith("test_") else f"{name} is not run: its name does not begin with test_"
            return f"class {class_name} has no method {method}"
    return f"there is no class {class_name}"


def c_error(text, folder, file, name):
    """Why a C file has no such function, or why it is never called; None when all is well."""
    in_list = re.search(r"^TEST(?:_WITH)?\(" + name + r"\b[^;{]*\)\n\{", text, re.M)  # see tests/lib/unit.h
    if not in_list and not re.search(r"^[\w *]*\b" + name + r"\([^;{]*\)\n\{", text, re.M):
        return f"there is no function {name}"
    if file.startswith("test_"):
        if not in_list and not re.search(r"\b(?:cmocka_unit_test\w*|TEST)\(\s*" + name + r"\b", text):
            return f"{name} is not in the list of its program"
        build = os.path.join(folder, "meson.build")
        if not os.path.exists(build) or f"'{file[5:-2]}'" not in read(build) and f"'{file}'" not in read(build):
            return f"{file} is not built"
    elif len(re.findall(r"\b" + name + r"\(", text)) < 2 and f" {name}(" not in read(folder, "sim.h"):
        return f"{name} is never called"
    return None


def test_error(root, path, name):
    full = os.path.join(root, path)
    if not os.path.isfile(full):
        return "there is no such file"
    if path.endswith(".c"):
        return c_error(read(full), os.path.dirname(full), os.path.basename(path), name)
    return python_error(read(full), name)


def check_names(root, page, text):
    for path, name in NAMED.findall(text):
        error = test_error(root, path, name)
        if error:
            yield f"docs/{page}: `{path}::{name}`: {error}"
    for path in PATH.findall(text):
        if not os.path.exists(os.path.join(root, path)):
            yield f"docs/{page}: `{path}`: there is no such file or folder"


def sections(text):
    for head in SECTION.finditer(text):
        end = re.compile(r"^#{1,3} ", re.M).search(text, head.end())
        yield head.group(1), text[head.end():end.start() if end else len(text)]


def check_sections(text):
    heads = list(SECTION.finditer(text))
    for promise in PROMISES:
        if not any(h.group(2) == promise for h in heads):
            yield f"docs/{PAGE}: promise {promise} has no section (### {promise}a. ...)"
    seen = set()
    for number, body in sections(text):
        if number in seen:
            yield f"docs/{PAGE}: there are two sections {number}"
        seen.add(number)
        if not NAMED.search(body) and not NO_TEST.search(body):
            yield f"docs/{PAGE}: section {number} names no test and does not say that it has none"


def bug_errors(root, row):
    """What is wrong with one line of the list of bugs."""
    if len(row) != len(COLUMNS) or not all(cell.strip() for cell in row):
        yield f"must have {len(COLUMNS)} cells with something in each: {', '.join(COLUMNS)}"
        return
    if not re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", row[0]):
        yield f"{row[0]!r} is no date like 2026-11-28"
    if row[1] not in OTHER_AREAS and not os.path.isdir(os.path.join(root, "src", row[1])):
        yield f"area {row[1]!r} is neither a folder of src nor one of {', '.join(sorted(OTHER_AREAS))}"
    for cell in row[4].split("; "):
        named = IN_CELL.match(cell)
        if named is None:
            continue
        if named.group(2):
            error = test_error(root, named.group(1), named.group(2))
        else:
            error = None if os.path.exists(os.path.join(root, named.group(1))) else "there is no such file or folder"
        if error:
            yield f"{cell}: {error}"


def check_bugs(root):
    """One bug a line, so that lines of two branches can be joined without looking (.gitattributes)."""
    path = os.path.join(root, BUGS)
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    if not lines or next(csv.reader(lines[:1])) != COLUMNS:
        yield f"{BUGS}:1: the first line must be {','.join(COLUMNS)}"
    for number, line in enumerate(lines[1:], 2):
        try:
            row = next(csv.reader([line], strict=True))
        except (csv.Error, StopIteration) as error:
            yield f"{BUGS}:{number}: not one bug a line: {error}"
            continue
        yield from (f"{BUGS}:{number}: {error}" for error in bug_errors(root, row))


def run_always(root, build):
    """Whether `tests/run` runs a test without --all, as a function of file and name."""
    words = {}  # of a Python program: what its names must have one of; None: no word
    for test in json.loads(read(build, "meson-info", "intro-tests.json")):
        if any(suite.endswith(":all") or suite == "all" for suite in test["suite"]):
            continue
        command = [part for part in test["cmd"] if isinstance(part, str)]
        wanted = [command[at + 1] for at, part in enumerate(command) if part == "-k"] or None
        for part in command:
            path = os.path.relpath(part, root) if os.path.isabs(part) else part
            if path.startswith("tests/"):
                before = words.setdefault(path, wanted)
                words[path] = before + wanted if before and wanted else None

    def runs(path, name):
        if path.endswith(".c"):
            return True  # unit tests and the simulation, of which some seeds always run
        return path in words and (words[path] is None or any(word in "__main__." + name for word in words[path]))
    return runs


def check_always(root, build):
    runs = run_always(root, build)
    text = read(root, "docs", PAGE)
    for number, body in sections(text):
        named = NAMED.findall(body)
        if named and not any(runs(path, name) for path, name in named):
            yield f"docs/{PAGE}: section {number} names only tests that `tests/run` leaves out without --all"


def check(root):
    docs = os.path.join(root, "docs")
    if not os.path.exists(os.path.join(docs, PAGE)):
        yield f"docs/{PAGE} is missing"
        return
    for folder in ("", "operations"):
        for page in sorted(os.listdir(os.path.join(docs, folder))) if os.path.isdir(os.path.join(docs, folder)) else []:
            if page.endswith(".md"):
                yield from check_names(root, os.path.join(folder, page), read(docs, folder, page))
    yield from check_bugs(root)
    yield from check_sections(read(docs, PAGE))
    if os.environ.get("FENCELOCK_BUILD"):
        yield from check_always(root, os.environ["FENCELOCK_BUILD"])


# What a good tree looks like, and offences: file -> (text to replace, replacement, words of the complaint).
GOOD = {
    "docs/GUARANTEES.md": "".join(f"### {p}a. Something.\n\n`tests/unit/x/test_x.c::test_one`\n" for p in PROMISES)
                          + "### 1b. More.\n\n`tests/integration/x.py::X.test_two` and `tests/sim/oracle.c::issue`\n"
                          + "### 1c. Nothing.\n\n**No test** attacks it.\n\n## End\n",
    "docs/OTHER.md": "See `tests/integration/x.py::X.test_two` and `tests/sim`, `tests/unit/x/test_x.c::test_old`.\n",
    "docs/operations/job.md": "`tests/integration/x.py::X.test_two`\n",
    "tests/unit/x/test_x.c": "TEST(test_one)\n{\n}\nstatic void test_old(void **state)\n{\n}\ncmocka_unit_test(test_old),\n",
    "tests/unit/x/meson.build": "foreach name : ['x']\n",
    "tests/integration/x.py": "class X:\n    def test_two(self):\n        pass\n    def helper(self):\n        pass\n",
    "tests/sim/oracle.c": "static int issue(int a,\n                 int b)\n{\n}\nint x = issue(1);\n",
    "tests/sim/sim.h": "",
    "src/wire/x.c": "",
    "docs/bugs.csv": "date,area,what,found by,test\n2026-11-28,wire,it broke,reading,tests/integration/x.py::X.test_two; seed 3\n",
}
OFFENCES = [
    ("docs/GUARANTEES.md", "test_x.c::test_one", "test_x.c::test_three", "no function test_three"),
    ("docs/GUARANTEES.md", "test_x.c::test_one", "test_y.c::test_one", "no such file"),
    ("docs/GUARANTEES.md", "X.test_two", "X.test_three", "no method test_three"),
    ("docs/GUARANTEES.md", "X.test_two", "Y.test_two", "no class Y"),
    ("docs/GUARANTEES.md", "X.test_two", "X.helper", "does not begin with test_"),
    ("docs/GUARANTEES.md", "**No test**", "Some test", "section 1c names no test"),
    ("docs/GUARANTEES.md", "### 2a. Something.\n\n`tests/unit/x/test_x.c::test_one`", "### 2a. Something.\n\nTested.",
     "section 2a names no test"),
    ("docs/GUARANTEES.md", "### Ua.", "### 5b.", "promise U has no section"),
    ("docs/GUARANTEES.md", "### 1b.", "### 1a.", "two sections 1a"),
    ("docs/OTHER.md", "X.test_two", "X.test_three", "docs/OTHER.md"),
    ("docs/operations/job.md", "X.test_two", "X.test_three", "docs/operations/job.md"),
    ("docs/OTHER.md", "`tests/sim`", "`tests/sym`", "no such file or folder"),
    ("tests/unit/x/test_x.c", "TEST(test_one)", "static void test_one(void **state)", "not in the list"),
    ("tests/unit/x/test_x.c", "cmocka_unit_test(test_old),", "", "not in the list"),
    ("tests/unit/x/meson.build", "'x'", "'y'", "not built"),
    ("docs/bugs.csv", "date,area", "area,date", "the first line must be"),
    ("docs/bugs.csv", "reading,", "", "must have 5 cells"),
    ("docs/bugs.csv", "reading", " ", "must have 5 cells"),
    ("docs/bugs.csv", "it broke", "\"it\nbroke\"", "not one bug a line"),
    ("docs/bugs.csv", "2026-11-28", "yesterday", "is no date"),
    ("docs/bugs.csv", ",wire,", ",wired,", "is neither a folder"),
    ("docs/bugs.csv", "X.test_two", "X.test_three", "no method test_three"),
    ("docs/bugs.csv", "tests/integration/x.py::X.test_two", "tests/integration/y.py", "no such file or folder"),
    ("tests/sim/oracle.c", "int x = issue(1);", "", "never called"),
]


# A program with its words and suites, and how many complaints it makes about a promise that names X.test_two of it.
ALWAYS = [
    (("tests/integration/x.py", [], ["fencelock:integration"]), 0),
    (("tests/integration/x.py", ["-k", "X.test_two"], ["fencelock:integration", "fencelock:once"]), 0),
    (("tests/integration/x.py", ["-k", "test_three"], ["fencelock:integration"]), 1),
    (("tests/integration/x.py", [], ["fencelock:integration", "fencelock:all"]), 1),
    (("tests/integration/y.py", [], ["fencelock:integration"]), 1),
]


def self_test():
    os.environ.pop("FENCELOCK_BUILD", None)
    wrong = 0
    if source_tree.complaints_of(check, GOOD):
        print("self-test: the good tree was refused:", *source_tree.complaints_of(check, GOOD), sep="\n  ")
        wrong += 1
    for path, old, new, words in OFFENCES:
        text = GOOD[path].replace(old, new, 1)
        found = source_tree.complaints_of(check, {**GOOD, path: text})
        if text == GOOD[path] or len(found) == 0 or not any(words in line for line in found):
            print(f"self-test: {new!r} in {path} gave {found}")
            wrong += 1
    without = {path: text for path, text in GOOD.items() if path != "docs/GUARANTEES.md"}
    if not any("is missing" in line for line in source_tree.complaints_of(check, without)):
        print("self-test: a missing page was not noticed")
        wrong += 1
    for test, complaints in ALWAYS:
        tests = json.dumps([{"cmd": ["python3", "/root/" + test[0], *test[1]], "suite": test[2]}])
        found = source_tree.complaints_of(lambda root: check_always(root, root), {
            "docs/GUARANTEES.md": "### 1a. x\n\n`tests/integration/x.py::X.test_two`\n",
            "meson-info/intro-tests.json": tests.replace("/root/", "")})
        if len(found) != complaints:
            print(f"self-test: {test} gave {found}")
            wrong += 1
    print(f"self-test: {len(OFFENCES) + 2 + len(ALWAYS)} trees, {wrong} wrong")
    return 1 if wrong else 0


def summary(root, found):
    if found:
        return f"guarantees: {len(found)} wrong"
    return f"guarantees: {len(NAMED.findall(read(root, 'docs', PAGE)))} tests named, all there"


if __name__ == "__main__":
    sys.exit(source_tree.run(__doc__, check, self_test, summary))
