#!/usr/bin/env python3
"""A file that names its interpreter in its first line may be executed, and no other file may: so what the pages say can be typed.

programs.py ROOT         checks the files under ROOT
programs.py --self-test  checks that it finds both kinds of offence, and no other
"""
import os
import sys
import tempfile

import source_tree


def check(root):
    for path, text in source_tree.files(root):
        is_program = text.startswith((b"#!/", b"#! /"))
        if is_program != bool(os.stat(os.path.join(root, path)).st_mode & 0o111):
            yield f"{path}: {'names an interpreter and may not be executed: chmod +x' if is_program else 'may be executed and names no interpreter'}"


def self_test():
    wrong = 0
    for text, mode, offends in (("#!/bin/sh\n", 0o755, False), ("#!/bin/sh\n", 0o644, True), ("#!lua name=x\n", 0o644, False),
                                ("x\n", 0o644, False), ("x\n", 0o755, True)):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "a"), "w", encoding="utf-8") as f:
                f.write(text)
            os.chmod(os.path.join(root, "a"), mode)
            if bool(list(check(root))) != offends:
                print(f"self-test: {text!r} with the mode {mode:o}: wrong")
                wrong += 1
    print(f"self-test: 5 files, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(source_tree.run(__doc__, check, self_test, lambda root, found: f"programs: {len(found)} wrong"))
