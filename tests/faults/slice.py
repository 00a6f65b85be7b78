#!/usr/bin/python3
"""The slice of the fault suite that runs with every change: a short run of each workload, which must lose nothing, and each
switch that breaks us on purpose, which must be caught. On proxies, since these work everywhere."""

import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'lib')]
sys.dont_write_bytecode = True
from harness import main, seed

LITTLE = 200 # so many operations a run of three seconds does beside a dozen other tests on two processors
SHORT = bool(os.environ.get('FENCELOCK_SHORT')) # with sanitizers, where everything is slow
not_short = unittest.skipIf(SHORT, 'the build without sanitizers does it')


class Slice(unittest.TestCase):
    def run_suite(self, *words):
        done = subprocess.run([sys.executable, os.path.join(HERE, 'run'), '--seed', str(seed()), '--network', 'proxy', *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=2400)
        text = done.stdout.decode(errors='replace')
        self.assertIn(done.returncode, (0, 1), text)
        self.notes = [line for line in text.splitlines() if ' operations in ' in line]
        return done.returncode, text

    def survives(self, *words):
        code, text = self.run_suite(*words)
        self.assertEqual(code, 0, text)

    def is_caught(self, judges, *words, times=2):
        """times: how many runs the harm may take that the faults do by chance, each with a seed of its own. Runs in which little was
        done, since all stood still by turns, do not count."""
        counted = 0
        for number in range(8):
            code, text = self.run_suite(*words, '--seed', str((seed() + number) % (1 << 32)))
            if code == 1 and re.search(r'(?m)^BROKEN (%s)' % judges, text):
                return
            counted += int(re.search(r'(?m)^(\d+) operations in ', text).group(1)) >= LITTLE
            if counted >= times:
                break
        self.fail('not caught: %s' % text)

    def test_counter_loses_nothing(self):
        self.survives('--workload', 'counter', '--nemesis', 'kill,pause,partition,clients,hold', '--seconds', '6' if SHORT else '10')

    @not_short
    def test_lock_keeps_its_promises(self):
        self.survives('--workload', 'lock', '--nemesis', 'kill,pause,partition,clients', '--seconds', '6')

    def keeps(self, *words):
        self.survives('--workload', *words, '--nemesis', 'kill,pause,partition,clients,hold,redis-kill', '--seconds', '5')

    @not_short
    def test_append_keeps_its_promises(self):
        self.keeps('append')

    @not_short
    def test_append_with_redlock_keeps_its_promises(self):
        self.keeps('append', '--mode', 'redlock')

    @not_short
    def test_bank_keeps_its_promises(self):
        self.keeps('bank')

    @not_short
    def test_register_keeps_its_promises(self):
        self.keeps('register')

    @not_short
    def test_semaphore_keeps_its_promises(self):
        self.keeps('semaphore')

    @not_short
    def test_session_keeps_its_promises(self):
        self.keeps('session')

    @not_short
    def test_watch_keeps_its_promises(self):
        self.keeps('watch')

    @not_short
    def test_what_libraries_for_redis_send(self):
        for workload in ('lock', 'counter'):
            with self.subTest(workload=workload):
                self.survives('--workload', workload, '--mode', 'frontdoor', '--nemesis', 'kill,pause,partition,clients,hold',
                              '--seconds', '5')

    @not_short
    def test_redlock_without_fencing_is_caught(self):
        self.is_caught('lost updates', '--mode', 'redlock', '--no-fencing', '--nemesis', 'hold,clients,redis-clock',
                       '--seconds', '3', '--until-late', '3')

    @not_short
    def test_power_cuts_lose_nothing(self):
        for engine, more in (('thread', ',disk-slow'), ('io_uring', '')):
            with self.subTest(engine=engine):
                self.survives('--workload', 'counter', '--nemesis', 'power,sync-error,disk-full,disk-short,clock' + more,
                              '--log-engine', engine, '--seconds', '8')

    @not_short
    def test_calls_that_fail_lose_nothing(self):
        self.survives('--workload', 'counter', '--nemesis', 'calls,kill', '--seconds', '12')

    @not_short
    def test_damaged_traffic_and_lost_snapshots_do_no_harm(self):
        self.survives('--workload', 'lock', '--nemesis', 'corrupt,snapshot-kill,kill,disk-loss', '--seconds', '8')

    @not_short
    def test_damaged_files_are_refused(self):
        self.survives('--workload', 'counter', '--nemesis', 'flip', '--seconds', '8')

    @not_short
    def test_members_that_change_backups_and_upgrades_lose_nothing(self):
        self.survives('--workload', 'counter', '--nemesis', 'members,kill,backup,upgrade', '--seconds', '10')

    def test_a_storage_without_fencing_is_caught(self):
        self.is_caught('lost updates', '--no-fencing', '--nemesis', 'hold,clients', '--seconds', '3', '--until-late', '3')

    @not_short
    def test_clients_that_do_not_claim_are_caught(self):
        self.is_caught('lost updates', '--check-writes-only', '--nemesis', 'hold', '--seconds', '3', '--until-late', '8')

    @not_short
    def test_nodes_that_answer_before_it_is_on_disk_are_caught(self):
        self.is_caught('tokens|leases|replicas|linearizable', '--unsafe-ack', '--workload', 'lock', '--nemesis', 'kill',
                       '--seconds', '6', times=4)

    @not_short
    def test_servers_that_do_not_sync_are_caught(self):
        # Which writes a power cut takes is chance: a log with one missing in its midst is noticed at the start ("recovers").
        self.is_caught('lost updates|tokens|recovers', '--no-sync', '--nemesis', 'power', '--seconds', '4', times=4)


if __name__ == '__main__':
    main()
