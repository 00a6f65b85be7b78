#!/usr/bin/python3
"""Adds up what the test programs of one or more meson runs report, test by test.

    tally.py WHAT=testlog.json...     WHAT= alone: something else that failed, and has said why

A cmocka program and a program of our Python runner say how many tests they ran; any other counts as
one. A program that failed and blames none of its tests (it crashed, or took too long) adds one failure. Below a program that
failed stand the lines that say why: the sum may be all that is left of a run.
Ends with `N passed, N failed, N skipped`, and with 1 when something failed or nothing ran."""

import json
import re
import sys

PYTHON_COUNTS = re.compile(r'^(\d+) passed, (\d+) failed, (\d+) skipped$', re.M)
CMOCKA_RAN = re.compile(r'^\[=+\].*?(\d+) test\(s\) run\.$', re.M)
CMOCKA = {word: re.compile(r'^\[ *%s *\] (\d+) test\(s\)' % word, re.M) for word in ('PASSED', 'FAILED', 'SKIPPED')}
SKIP_LINES = re.compile(r'^(?:skip .*|\[  SKIPPED \] (?!\d+ test).*)$', re.M)


# The lines that say why; of a crash, of a time-out and of all other programs the last ones.
REASON = re.compile(r'^(?:FAIL |in |\[  FAILED|\[  ERROR|.*error: Failure!|.*never came|.*(?:Sanitizer|runtime error|[Aa]ssert)|\w*(?:Error|Late|Exception)\b)')
REASONS_MAX = 30
LAST_LINES = 12


def reasons(test):
    """At most REASONS_MAX lines of what a program that failed has said."""
    lines = [line for line in (test.get('stdout', '') + '\n' + test.get('stderr', '')).splitlines() if line.strip()]
    last = lines[-LAST_LINES:]
    picked = [line for line in lines[:-LAST_LINES] if REASON.match(line)] if test['result'] == 'FAIL' else []
    return picked[:REASONS_MAX - len(last)] + last


def counts(test):
    """passed, failed, skipped of one program."""
    text = test.get('stdout', '') + '\n' + test.get('stderr', '')
    python = PYTHON_COUNTS.findall(text)
    if python:
        found = [int(n) for n in python[-1]]
    elif CMOCKA_RAN.search(text):
        found = [sum(map(int, CMOCKA[word].findall(text))) for word in ('PASSED', 'FAILED', 'SKIPPED')]
    elif test['result'] == 'SKIP':
        found = [0, 0, 1]
    else:
        found = [1, 0, 0] if test['result'] in ('OK', 'EXPECTEDFAIL') else [0, 1, 0]
    if test['result'] not in ('OK', 'SKIP', 'EXPECTEDFAIL') and found[1] == 0:
        found[1] = 1
    return found


def main():
    total = [0, 0, 0]
    for argument in sys.argv[1:]:
        what, _, path = argument.rpartition('=')
        if not path:
            print('failed   %s' % what)
            total[1] += 1
            continue
        try:
            with open(path) as f:
                tests = [json.loads(line) for line in f if line.strip()]
        except FileNotFoundError:
            tests = []
        if not tests:
            print('%s: no test ran' % what)
            total[1] += 1
        for test in sorted(tests, key=lambda t: t['name']):
            found = counts(test)
            total = [a + b for a, b in zip(total, found)]
            name = test['name'].rpartition(' / ')[2]
            if found[1]:
                print('failed   %s: %s (%d passed, %d failed, %s)' % (what, name, found[0], found[1], test['result'].lower()))
                for line in reasons(test):
                    print('         | %.300s' % line)
            for line in SKIP_LINES.findall(test.get('stdout', '')):
                print('skipped  %s: %s: %s' % (what, name, ' '.join(line.split())))
            if test['result'] == 'SKIP' and found[2] and 'skip' not in test.get('stdout', '').lower():
                print('skipped  %s: %s' % (what, name))
        seconds = sum(test['duration'] for test in tests)
        print('%s: %d test programs, %.0f s of testing' % (what, len(tests), seconds))
    print('%d passed, %d failed, %d skipped' % tuple(total))
    sys.exit(1 if total[1] or not total[0] else 0)


if __name__ == '__main__':
    main()
