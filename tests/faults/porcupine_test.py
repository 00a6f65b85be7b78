#!/usr/bin/python3
"""Gives histories of real runs to Porcupine, a linearizability checker of other authors, with models that were written independently of our
judges. It must find an order for a good history, and none for a broken one: broken by hand, in each way, and by a storage that
ignores tokens. Needs Go and its proxy; skipped with the reason elsewhere.

    tests/faults/porcupine_test.py DIR...     the histories in the output directories of runs"""

import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib')]
sys.dont_write_bytecode = True
import redlock_peers_lab as registries
from harness import Case, Deadline, main, seed

registries.SOURCES = HERE
# What is left of the time that this program has in CI.
BUDGET = Deadline(2200)


def checker():
    """The path of the program."""
    def how(directory):
        registries.fetch(directory, 'go', 'mod', 'download')
        registries.build(directory, 'go', 'build', '-o', 'check', '.')
    registries.need('go')
    return os.path.join(registries.installed('porcupine', how, 'porcupine'), 'check')


def judge(paths):
    """(exit code, what was said)."""
    done = subprocess.run([checker(), '-seconds', '240', *paths], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=max(1.0, BUDGET.left()))
    return done.returncode, done.stdout.decode(errors='replace')


class Porcupine(Case):
    TIMEOUT_S = 2300

    def setUp(self):
        super().setUp()
        try:
            checker()
        except registries.Unavailable as e:
            self.skipTest(str(e))

    def history_of(self, enough, seconds, *words):
        """The history of a run, whatever its own judges said; of longer ones until enough(path) of it. Where all is slow, little is done
        in a few seconds."""
        while True:
            out = self.lab.path('run-%d' % seconds)
            done = subprocess.run([sys.executable, os.path.join(HERE, 'run'), '--seed', str(seed()), '--network', 'proxy', '--out', out,
                                   '--seconds', str(seconds), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=max(1.0, BUDGET.left()))
            self.assertIn(done.returncode, (0, 1), done.stdout.decode(errors='replace'))
            path = os.path.join(out, 'history.porcupine')
            if enough(path):
                return path
            seconds *= 2
            self.assertLess(seconds, 100, 'still too few operations')

    def grants(self, path):
        return sum(row['f'] == 'acquire' and row['known'] and row['object'] == 'lock lock-0' and 'token' in row for row in self.rows_of(path))

    def rows_of_lock(self, path):
        return sum(row['object'] == 'lock lock-0' and row['known'] for row in self.rows_of(path))

    def writes(self, path):
        return sum(row['f'] == 'write' and row['known'] for row in self.rows_of(path))

    def rows_of(self, path):
        with open(path, encoding='utf-8') as f:
            return [json.loads(line) for line in f]

    def judged(self, rows):
        path = self.lab.path('edited')
        with open(path, 'w', encoding='utf-8') as f:
            f.writelines(json.dumps(row) + '\n' for row in rows)
        return judge([path])

    def broken_by(self, rows, what, edit):
        """One edit of a history that has an order must leave it without one."""
        code, said = self.judged(edit([dict(row) for row in rows]))
        self.assertEqual(code, 1, '%s: %s' % (what, said))

    def test_locks(self):
        path = self.history_of(lambda path: self.grants(path) > 5 and self.rows_of_lock(path) >= 10, 5, '--workload', 'lock',
                               '--nemesis', 'kill,pause,clients')
        code, said = judge([path])
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r'(?m)^Ok lock lock-0: \d\d')
        rows = self.rows_of(path)
        self.note('%d operations on %d objects' % (len(rows), len(said.splitlines())))
        locks = [row for row in rows if row['object'] == 'lock lock-0' and row['known']]
        grants = [i for i, row in enumerate(rows) if row['object'] == 'lock lock-0' and row['known'] and row['f'] == 'acquire' and 'token' in row]
        self.assertGreater(len(grants), 5)

        def twice(copy):
            other = dict(copy[grants[3]], client=99)
            return copy + [other]

        def backwards(copy):
            copy[grants[1]]['token'], copy[grants[4]]['token'] = copy[grants[4]]['token'], copy[grants[1]]['token']
            return copy

        def vanished(copy): # nobody was granted what somebody found to be his
            used = next(row for row in locks if row['f'] in ('check', 'renew', 'release') and row.get('found'))
            return [row for row in copy if not (row['object'] == used['object'] and row['f'] == 'acquire' and row.get('token') == used['token'])]

        def for_nothing(copy): # told that it is held, before anybody ever had it
            return copy + [{'object': 'lock lock-0', 'client': 99, 'f': 'acquire', 'call': 0.0, 'return': 0.001, 'known': True}]

        for what, edit in (('granted twice', twice), ('tokens exchanged', backwards), ('a grant left out', vanished), ('busy for nothing', for_nothing)):
            self.broken_by(rows, what, edit)

    def test_registers(self):
        path = self.history_of(lambda path: self.writes(path) > 20, 3, '--workload', 'register', '--nemesis', 'kill,store-pause')
        code, said = judge([path])
        self.assertEqual(code, 0, said)
        rows = self.rows_of(path)
        writes = [i for i, row in enumerate(rows) if row['f'] == 'write' and row['known']]
        self.assertGreater(len(writes), 20)

        def forgotten(copy): # a value that was read and that nobody wrote
            got = next(row for row in copy if row['f'] == 'get' and row['known'] and row.get('value'))
            got['value'] = 'nobody'
            return copy

        def let_in(copy): # a write after all others whose token is below one that was answered
            highest = max((copy[i] for i in writes), key=lambda row: row['token'])
            end = max(row['return'] for row in copy if row['known'])
            return copy + [dict(highest, client=99, token=highest['token'] - 1, value='late', call=end + 1, **{'return': end + 2})]

        for what, edit in (('a value of nobody', forgotten), ('a stale write let in', let_in)):
            self.broken_by(rows, what, edit)

    def test_a_storage_that_ignores_tokens_has_no_order(self):
        path = self.history_of(lambda path: judge([path])[0] != 0, 3, '--workload', 'register', '--nemesis', 'none', '--no-fencing')
        code, said = judge([path])
        self.assertEqual(code, 1, said)
        self.assertTrue(re.search(r'(?m)^Illegal key ', said), said)


if __name__ == '__main__':
    directories = [a for a in sys.argv[1:] if os.path.isdir(a)]
    if directories:
        paths = [os.path.join(d, 'history.porcupine') for d in directories]
        code, said = judge(paths)
        print(said, end='')
        sys.exit(code)
    else:
        main()
