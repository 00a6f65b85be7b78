#!/usr/bin/env python3
"""Keeps the command section of docs/COMMANDS.md equal to the command table.

protocol.py --check FILE PROGRAM   fails, with the difference, when the section is not what PROGRAM prints
protocol.py --write FILE PROGRAM   puts it there
protocol.py --self-test PROGRAM    checks that a difference is found, mended, and nothing else touched
"""
import difflib
import os
import subprocess
import sys
import tempfile

BEGIN = "<!-- commands: generated from src/wire/commands.c by `ninja -C BUILDDIR protocol`; do not edit -->\n"
END = "<!-- end of commands -->\n"


def section(program):
    text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    if text.count("\n| `") < 40:
        raise SystemExit(f"protocol: {program} printed hardly any command")
    return "\n" + text + "\n"


def parts(path):
    """What stands before, between and behind the two marker lines."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise SystemExit(f"protocol: {path} needs these two lines once each, in this order:\n{BEGIN}{END}")
    before, rest = text.split(BEGIN)
    between, behind = rest.split(END)
    return before, between, behind


def check(path, program):
    between, wanted = parts(path)[1], section(program)
    if between == wanted:
        return 0
    sys.stdout.writelines(difflib.unified_diff(between.splitlines(True), wanted.splitlines(True), path, "the table"))
    print("protocol: out of date; run: ninja -C BUILDDIR protocol")
    return 1


def write(path, program):
    before, _, behind = parts(path)
    with open(path, "w", encoding="utf-8") as f:
        f.write(before + BEGIN + section(program) + END + behind)
    return 0


def self_test(program):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "PROTOCOL.md")
        for old in ["", "old\n", section(program) + "more\n", section(program).replace("`ACQUIRE", "`AQUIRE")]:
            with open(path, "w", encoding="utf-8") as f:
                f.write("head\n" + BEGIN + old + END + "tail\n")
            with open(os.devnull, "w", encoding="utf-8") as nothing:
                stdout, sys.stdout = sys.stdout, nothing
                found = check(path, program)
                sys.stdout = stdout
            write(path, program)
            with open(path, encoding="utf-8") as f:
                text = f.read()
            whole = text == "head\n" + BEGIN + section(program) + END + "tail\n"
            if found != 1 or check(path, program) != 0 or not whole:
                print(f"self-test: {old[:20]!r} was not found or not mended")
                failed += 1
        for text in ["", BEGIN, END, END + BEGIN, BEGIN + END + END]:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            try:
                check(path, program)
                print(f"self-test: markers {text!r} were accepted")
                failed += 1
            except SystemExit:
                pass
    print(f"self-test: 9 files, {failed} wrong")
    return 1 if failed else 0


def main():
    args = sys.argv[1:]
    if len(args) == 3 and args[0] == "--check":
        return check(args[1], args[2])
    if len(args) == 3 and args[0] == "--write":
        return write(args[1], args[2])
    if len(args) == 2 and args[0] == "--self-test":
        return self_test(args[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
