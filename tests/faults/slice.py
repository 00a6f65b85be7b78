#!/usr/bin/python3
"""The slice of the fault suite that runs with every change: a short run of each workload, which must lose nothing, and each
switch that breaks us on purpose, which must be caught. On proxies, since these work everywhere."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'lib')]
sys.dont_write_bytecode = True
from harness import main, seed


class Slice(unittest.TestCase):
    def run_suite(self, *words):
        done = subprocess.run([sys.executable, os.path.join(HERE, 'run'), '--seed', str(seed()), '--network', 'proxy', *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
        text = done.stdout.decode(errors='replace')
        self.assertIn(done.returncode, (0, 1), text)
        self.notes = [line for line in text.splitlines() if ' operations in ' in line]
        return done.returncode, text

    def survives(self, *words):
        code, text = self.run_suite(*words)
        self.assertEqual(code, 0, text)

    def is_caught(self, *words):
        code, text = self.run_suite('--until-late', '3', *words)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r'(?m)^BROKEN lost updates', text)

    def test_counter_loses_nothing(self):
        self.survives('--workload', 'counter', '--nemesis', 'kill,pause,partition,clients,hold', '--seconds', '10')

    def test_lock_keeps_its_promises(self):
        self.survives('--workload', 'lock', '--nemesis', 'kill,pause,partition,clients', '--seconds', '6')

    def test_a_storage_without_fencing_is_caught(self):
        self.is_caught('--no-fencing', '--nemesis', 'hold,clients', '--seconds', '3')

    def test_clients_that_do_not_claim_are_caught(self):
        self.is_caught('--check-writes-only', '--nemesis', 'hold', '--seconds', '3')


if __name__ == '__main__':
    main()
