#!/usr/bin/env python3
"""Checks docs/GUARANTEES.md, the tests that attack each promise (docs/guarantees-tests.csv), and the list of bugs (docs/bugs.csv).

guarantees.py ROOT          checks. With FENCELOCK_BUILD, a build of ROOT: also that each promise has a test that runs
                            without `tests/run --all`
guarantees.py --page ROOT   prints the page of the site that has each promise with its tests
guarantees.py --self-test   checks that each kind of offence is found

A test is tests/FOLDER/FILE::NAME. NAME is a C function, or Class.method in Python. On any page of docs, src and tests such a name in a code span
must be right. A promise is an item of GUARANTEES.md, "- **1a. ...**", and has a line in the list of tests.
"""
import ast
import csv
import json
import os
import re
import sys

import source_tree

PAGE = "GUARANTEES.md"
PAGES = ("docs/", "src/", "tests/")
PROMISES = ["1", "2", "3", "4", "5", "U"]  # U: the answer UNCERTAIN
NAMED = re.compile(r"`(tests/[\w./-]+)::([\w.]+)`")
PATH = re.compile(r"`(tests/[\w./-]+)`")
ITEM = re.compile(r"^- \*\*(([0-9A-Z])[a-z])\. (.+?)\*\*", re.M | re.S)
LIST = "docs/guarantees-tests.csv"
BUGS = "docs/bugs.csv"
WORDS_MAX = 25
COLUMNS = ["date", "area", "what", "found by", "test"]
IN_CELL = re.compile(r"(tests/[\w./-]+?)(?:::([\w.]+))?$")
OTHER_AREAS = {"build", "deploy", "docs", "jepsen", "tests"}


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
            yield f"{page}: `{path}::{name}`: {error}"
    for path in PATH.findall(text):
        if not os.path.exists(os.path.join(root, path)):
            yield f"{page}: `{path}`: there is no such file or folder"


def promises(root):
    """(number, its words) of each promise."""
    return [(m.group(1), " ".join(m.group(3).split())) for m in ITEM.finditer(read(root, "docs", PAGE))]


def attacks(root):
    """(line, promise, test) of the list."""
    with open(os.path.join(root, LIST), encoding="utf-8", newline="") as f:
        for number, row in enumerate(csv.reader(f), 1):
            if number > 1 and len(row) == 2:
                yield number, row[0], row[1]


def made_page(root):
    """Each promise with its tests, by file."""
    out = ["# Which test attacks which promise", "",
           f"For people who want to see how a promise of [{PAGE}]({PAGE}) is tested. The site makes this page from `{LIST}`.",
           "[tests/README.md](../tests/README.md#suites) says how to run one test. Files are in `tests`.", ""]
    tests = {}
    for _, promise, test in attacks(root):
        path, _, name = test.partition("::")
        tests.setdefault(promise, {}).setdefault(path, []).append(name)
    for number, words in promises(root):
        out += [f"## {number}. {words.rstrip('.')}", ""]
        for path, names in sorted(tests.get(number, {}).items()):
            shown = ", ".join(f"`{name}`" for name in sorted(set(names)) if name)
            out.append(f"- {path[6:]}" + (f": {shown}" if shown else ""))
        out.append("")
    return "\n".join(out).rstrip() + "\n"


def check_promises(root):
    known = promises(root)
    numbers = [number for number, _ in known]
    for promise in PROMISES:
        if not any(number[0] == promise for number in numbers):
            yield f"docs/{PAGE}: promise {promise} has no item (- **{promise}a. ...**)"
    for number in sorted({n for n in numbers if numbers.count(n) > 1}):
        yield f"docs/{PAGE}: there are two promises {number}"
    attacked = set()
    for line, promise, test in attacks(root):
        attacked.add(promise)
        path, _, name = test.partition("::")
        if promise not in numbers:
            yield f"{LIST}:{line}: there is no promise {promise}"
        elif not path.startswith("tests/") or not os.path.isfile(os.path.join(root, path)):
            yield f"{LIST}:{line}: {path}: there is no such file"
        elif name and test_error(root, path, name):
            yield f"{LIST}:{line}: {test}: {test_error(root, path, name)}"
    for number in numbers:
        if number not in attacked:
            yield f"docs/{PAGE}: promise {number} has no test in {LIST}"


def bug_errors(root, row):
    """What is wrong with one line of the list of bugs."""
    if len(row) != len(COLUMNS) or not all(cell.strip() for cell in row):
        yield f"must have {len(COLUMNS)} cells with something in each: {', '.join(COLUMNS)}"
        return
    if not re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", row[0]):
        yield f"{row[0]!r} is no date like 2026-11-28"
    if row[1] not in OTHER_AREAS and not os.path.isdir(os.path.join(root, "src", row[1])):
        yield f"area {row[1]!r} is neither a folder of src nor one of {', '.join(sorted(OTHER_AREAS))}"
    if len(row[2].split()) > WORDS_MAX:
        yield f"{len(row[2].split())} words for the bug; {WORDS_MAX} are the limit: the commit has room for the rest"
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
    always = {promise for _, promise, test in attacks(root) if runs(*test.partition("::")[::2])}
    for number, _ in promises(root):
        if number not in always:
            yield f"docs/{PAGE}: promise {number} has only tests that `tests/run` leaves out without --all"


def check(root):
    docs = os.path.join(root, "docs")
    if not os.path.exists(os.path.join(docs, PAGE)):
        yield f"docs/{PAGE} is missing"
        return
    for path, data in source_tree.files(root):
        if path.endswith(".md") and path.startswith(PAGES) and not path.startswith("docs/adr/"):
            yield from check_names(root, path, data.decode("utf-8"))
    yield from check_bugs(root)
    yield from check_promises(root)
    if os.environ.get("FENCELOCK_BUILD"):
        yield from check_always(root, os.environ["FENCELOCK_BUILD"])


# What a good tree looks like, and offences: file -> (text to replace, replacement, words of the complaint).
GOOD = {
    "docs/GUARANTEES.md": "".join(f"- **{p}a. Something of {p}.** More.\n" for p in PROMISES) + "- **1b. A promise\n  of two lines.** More.\n",
    "docs/guarantees-tests.csv": "promise,test\n" + "".join(f"{p}a,tests/unit/x/test_x.c::test_one\n" for p in PROMISES)
                                 + "1b,tests/integration/x.py::X.test_two\n1b,tests/sim/oracle.c::issue\n1b,tests/integration/x.py\n",
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
    ("docs/guarantees-tests.csv", "test_x.c::test_one", "test_x.c::test_three", "no function test_three"),
    ("docs/guarantees-tests.csv", "test_x.c::test_one", "test_y.c::test_one", "no such file"),
    ("docs/guarantees-tests.csv", "X.test_two", "X.test_three", "no method test_three"),
    ("docs/guarantees-tests.csv", "X.test_two", "Y.test_two", "no class Y"),
    ("docs/guarantees-tests.csv", "X.test_two", "X.helper", "does not begin with test_"),
    ("docs/guarantees-tests.csv", "2a,", "3a,", "promise 2a has no test"),
    ("docs/guarantees-tests.csv", "2a,", "2b,", "no promise 2b"),
    ("docs/GUARANTEES.md", "**Ua.", "**5b.", "promise U has no item"),
    ("docs/GUARANTEES.md", "**1b.", "**1a.", "two promises 1a"),
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
    ("docs/bugs.csv", "it broke", "it " * 25 + "broke", "26 words"),
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
            "docs/GUARANTEES.md": "- **1a. x.**\n", LIST: "promise,test\n1a,tests/integration/x.py::X.test_two\n",
            "meson-info/intro-tests.json": tests.replace("/root/", "")})
        if len(found) != complaints:
            print(f"self-test: {test} gave {found}")
            wrong += 1
    print(f"self-test: {len(OFFENCES) + 2 + len(ALWAYS)} trees, {wrong} wrong")
    return 1 if wrong else 0


def summary(root, found):
    if found:
        return f"guarantees: {len(found)} wrong"
    return f"guarantees: {len(promises(root))} promises, {len(list(attacks(root)))} attacks on them, all there"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--page"] and len(sys.argv) == 3:
        print(made_page(sys.argv[2]), end="")
        sys.exit(0)
    sys.exit(source_tree.run(__doc__, check, self_test, summary))
