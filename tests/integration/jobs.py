#!/usr/bin/python3
"""Runs every block of docs/JOBS.md as it stands there, in a network namespace of its own, and checks afterwards that the job is done."""

import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Case, binary, main
from harness.lab import build_dir

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
# What the issue of operators named; each has to have a page, and each page a test below.
JOBS = {'start', 'grow', 'add', 'remove', 'replace', 'move', 'lost disk', 'lost majority', 'backup', 'schedule', 'restore', 'store backup',
        'store schedule', 'store restore', 'upgrade', 'limits', 'check', 'older copy', 'witness'}
STATUS = '\necho; echo ==STATUS==; fencelock cluster status --json\n'


def page():
    with open(os.path.join(ROOT, 'docs', 'JOBS.md'), encoding='utf-8') as f:
        return f.read()


def block(job):
    return re.search(r'^<!-- job: %s -->\n```sh\n(.*?)^```' % job, page(), re.M | re.S).group(1)


def members_of(out):
    """What STATUS has printed, among lines of the nodes' logs."""
    status = out.split('==STATUS==')[1]
    return {m['id']: m for m in json.JSONDecoder().raw_decode(status[status.index('{"version"'):])[0]['members']}


class Jobs(Case):
    def setUp(self):
        super().setUp()
        self.dir = self.lab.path('jobs')
        os.makedirs(os.path.join(self.dir, 'new'))
        os.symlink(binary('fencelockd-next'), os.path.join(self.dir, 'new', 'fencelockd'))

    def run_jobs(self, *jobs, end=''):
        """One script, in a network namespace of its own; whatever it leaves running ends with it."""
        script = 'ip link set lo up\n' + ''.join(block(job) if job in JOBS else job for job in jobs) + end
        words = ['unshare', '--net', '--pid', '--fork', '--mount-proc', '--kill-child', 'bash', '-euc', script]
        env = dict(os.environ, PATH=os.path.join(build_dir(), 'src', 'cli') + ':' + os.environ['PATH'])
        done = subprocess.run(words, cwd=self.dir, env=env, timeout=300, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        out = done.stdout.decode(errors='replace')
        self.assertEqual(done.returncode, 0, out)
        return out

    def members(self, *jobs):
        """Their states by id, after the jobs; none may be about to change, or away."""
        out = self.run_jobs(*jobs, end=STATUS)
        return members_of(out)

    def test_every_job_has_a_page_and_every_page_a_test(self):
        marks = re.findall(r'^<!-- job: (.*) -->$', page(), re.M)
        self.assertEqual(len(marks), len(set(marks)))
        self.assertEqual(set(marks), JOBS)
        self.assertEqual(len(re.findall(r'^```sh$', page(), re.M)), len(marks), 'a block without a mark')
        with open(os.path.abspath(__file__), encoding='utf-8') as f:
            tests = f.read().split('\nclass Jobs(')[1]
        for job in JOBS:
            self.assertIn(repr(job), tests, 'no test runs it')
        with open(os.path.join(ROOT, 'docs', 'OPERATIONS.md'), encoding='utf-8') as f:
            self.assertIn('JOBS.md', f.read())

    def test_grow_from_one_to_three_to_five(self):
        members = self.members('grow')
        self.assertEqual({i: m['state'] for i, m in members.items()}, {i: 'voter' for i in range(1, 6)})

    def test_add_and_remove(self):
        members = self.members('start', 'add', 'remove')
        self.assertEqual({i: m['state'] for i, m in members.items()}, {i: 'voter' for i in (1, 2, 4)})

    def test_replace(self):
        members = self.members('start', 'replace')
        self.assertEqual({m['state'] for m in members.values()}, {'voter'})
        self.assertIn('127.0.0.1:17505', str(members[3]))

    def test_move(self):
        members = self.members('start', 'move')
        self.assertEqual({m['state'] for m in members.values()}, {'voter'})
        self.assertIn('127.0.0.1:17506', str(members[3]))

    def test_a_lost_disk(self):
        members = self.members('start', 'lost disk')
        self.assertEqual({i: m['state'] for i, m in members.items()}, {i: 'voter' for i in (1, 2, 3)})

    def test_a_lost_majority(self):
        out = self.run_jobs('start', 'fencelock token kept\n', 'lost majority', 'fencelock token kept --nodes 127.0.0.1:17401\n')
        self.assertGreater(int(out.strip().split('\n')[-1]), 1000000000)

    def test_backup_schedule_and_restore(self):
        out = self.run_jobs('start', 'fencelock acquire held --ttl 10m\n', 'backup', 'schedule', 'restore')
        self.assertGreater(int(out.strip().split('\n')[-1]), 1000000000 + 123456)
        self.assertEqual(len(os.listdir(os.path.join(self.dir, 'backups'))), 1)

    def test_a_storage(self):
        out = self.run_jobs('start', 'store backup', 'store schedule', 'old=$(fencelock token report)\n', 'store restore',
                            'fencelock store set balance 0 --lock report --token $old && exit 1\necho refused\n')
        self.assertRegex(out, r'\n100')
        self.assertIn('STALE', out)
        self.assertTrue(out.endswith('refused\n'), out)
        self.assertEqual(len(os.listdir(os.path.join(self.dir, 'store-backups'))), 1)

    def test_upgrade(self):
        out = self.run_jobs('start', 'fencelock acquire kept --ttl 10m >kept\n', 'upgrade',
                            'for i in $(seq 100); do fencelock cluster status | grep "at version 2" && break; sleep 0.2; done\n'
                            'fencelock cluster status | grep "at version 2"; fencelock check kept "$(cat kept)"\n')
        self.assertIn('at version 2', out)

    def test_limits_and_a_check(self):
        out = self.run_jobs('start', 'limits', 'check')
        self.assertRegex(out, r'locks-max +3000000')
        self.assertRegex(out, r'election-ms +600')
        self.assertRegex(out, r'log-level +default')
        self.assertRegex(out, r'election-ms.*300.*fencelock\.conf')

    def test_an_older_copy_and_a_witness(self):
        out = self.run_jobs('start', 'older copy', 'witness', end=STATUS)
        self.assertIn('is an older copy', out)
        self.assertEqual({i: m['state'] for i, m in members_of(out).items()}, {i: 'voter' for i in (1, 2, 3)})
        self.assertTrue(os.path.exists(os.path.join(self.dir, 'other-disk', 'n1.witness')))


if __name__ == '__main__':
    main()
