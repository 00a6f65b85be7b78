#!/usr/bin/python3
"""`fencelock demo redlock`: real faults on real servers lose updates without tokens, in every run, and none with
them. A few seeds here; all that is promised with

    tests/integration/redlock_demo.py --full [--parallel N]

which takes some ten minutes: ten seeds without tokens, a thousand with them."""

import glob
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'src', 'demo'))
from harness import PATIENCE_S, Case, binary, main, seed, wait_until
from plan import REDIS, WRITERS_MAX, Plan

DEMO_S = 560 # for a demonstration, which takes some ten seconds on a machine that is not busy
ALL_FAULTS = {'pause', 'restart', 'clock', 'delay'}


def argv(*args):
    return [binary('fencelock'), 'demo', 'redlock', *map(str, args)]


def with_directory(tmp):
    """Processes that were told to keep their files there: the demonstration and all that it has started."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/environ' % pid, 'rb') as f:
                if b'TMPDIR=%s' % tmp.encode() in f.read().split(b'\0'):
                    found.append(int(pid))
        except OSError: # it is gone
            pass
    return found


class Plans(Case):
    """What a seed makes happen."""

    SEEDS = 2000

    def check(self, plan, clock):
        self.assertIn(plan.writers, range(3, WRITERS_MAX + 1))
        self.assertIn(len(plan.rounds), range(2, 5 if clock else 4))
        faults = [r.fault for r in plan.rounds]
        self.assertEqual(len(set(faults)), len(faults)) # each one once
        self.assertLessEqual(set(faults), ALL_FAULTS if clock else ALL_FAULTS - {'clock'})
        for r in plan.rounds:
            self.assertTrue(r.first < plan.writers and r.next < plan.writers and r.first != r.next)
            self.assertLessEqual(r.adds, 1)
            # Three servers hold the lock as it is taken; one of them and these two make a free quorum.
            self.assertEqual(len({r.loses, *r.away}), 3)
            self.assertLessEqual({r.loses, *r.away}, set(range(REDIS)))
            if r.fault == 'clock':
                self.assertEqual(r.loses, 0) # the one that runs under libfaketime

    def test_every_plan_can_be_carried_out(self):
        seen = {(fault, late): 0 for fault in ALL_FAULTS for late in (False, True)}
        for number in range(self.SEEDS):
            for clock in (True, False):
                plan = Plan(number, clock)
                self.check(plan, clock)
                for r in plan.rounds if clock else ():
                    seen[r.fault, r.late_write_first] += 1
        self.assertGreater(min(seen.values()), self.SEEDS / 8)

    def test_a_seed_is_one_plan(self):
        one, again = ([vars(r) for r in Plan(20261121, True).rounds] for _ in range(2))
        self.assertEqual(one, again)

    def test_plans_are_those_of_the_tables_in_the_docs(self):
        """Seed 2, as it was when the figures of docs/REDLOCK.md were measured."""
        plan = Plan(2, True)
        self.assertEqual((plan.writers, [(r.fault, r.first, r.next, r.late_write_first) for r in plan.rounds]),
                         (4, [('clock', 1, 2, True), ('pause', 3, 2, True), ('delay', 1, 0, False), ('restart', 0, 1, True)]))


class Demo(Case):
    def setUp(self):
        super().setUp()
        self.env = dict(os.environ, TMPDIR=tempfile.gettempdir())

    def demo(self, *args, code=0):
        done = subprocess.run(argv('--json', *args), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=DEMO_S)
        self.assertEqual(done.returncode, code, (done.stdout, done.stderr))
        self.assertNotIn(b'Sanitizer', done.stderr)
        self.assertNotIn(b'runtime error', done.stderr)
        return json.loads(done.stdout)

    def test_updates_are_lost_without_tokens_and_not_with_them(self):
        first = seed() % 1000000 + 1
        svg = self.lab.path('demo.svg')
        got = self.demo('--seed', first, '--runs', 3, '--svg', svg)
        self.assertTrue(got['as_promised'])
        self.assertEqual([(r['seed'], r['tokens']) for r in got['runs']],
                         [(first + i, mode) for i in range(3) for mode in ('off', 'on')])
        for off, on in zip(got['runs'][::2], got['runs'][1::2]):
            self.assertEqual([r['fault'] for r in off['rounds']], [r['fault'] for r in on['rounds']])
            self.assertEqual(off['two_at_once'], len(off['rounds']))
            self.assertEqual([r['lost'] for r in off['rounds']], [1] * len(off['rounds']))
            self.assertEqual(off['acknowledged'] - off['counter'], off['lost'])
            self.assertEqual((off['lost'], off['refused']), (len(off['rounds']), 0))
            self.assertEqual(on['two_at_once'], len(on['rounds']))
            self.assertEqual((on['lost'], on['unknown'], on['refused']), (0, 0, len(on['rounds'])))
            self.assertEqual(on['acknowledged'], on['counter'])
            self.assertEqual(on['acknowledged'], off['acknowledged'])
        self.assertEqual(xml.etree.ElementTree.parse(svg).getroot().tag, '{http://www.w3.org/2000/svg}svg')

    def test_tokens_on_writes_alone_are_not_enough(self):
        """Without the claim an update is lost exactly when the late write comes before the next holder's."""
        got = self.demo('--seed', 2, '--runs', 2, '--tokens', 'writes')
        rounds = [r for run in got['runs'] for r in run['rounds']]
        self.assertEqual([r['lost'] for r in rounds], [int(r['late_write_first']) for r in rounds])
        self.assertEqual([r['late_write_refused'] for r in rounds], [not r['late_write_first'] for r in rounds])
        self.assertGreater(got['writes']['lost'], 0)
        self.assertGreater(got['writes']['refused'], 0)

    def test_a_signal_ends_everything(self):
        self.env['TMPDIR'] = tempfile.mkdtemp(prefix='fl-')
        self.addCleanup(shutil.rmtree, self.env['TMPDIR'], True)
        child = subprocess.Popen(argv('--runs', 1000), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE)
        self.addCleanup(child.kill)
        wait_until(lambda: len(with_directory(self.env['TMPDIR'])) >= 1 + 5 + 3 + 2 + 5, 'all servers and writers run')
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=PATIENCE_S)
        self.assertEqual(child.returncode, 3)
        self.assertIn(b'interrupted', err)
        wait_until(lambda: with_directory(self.env['TMPDIR']) == [], 'everything is gone')
        self.assertEqual(os.listdir(self.env['TMPDIR']), [])

    def test_without_libfaketime(self):
        """In a mount namespace where an empty directory hides it: the demonstration says so and goes on."""
        found = glob.glob('/usr/lib/*/faketime') + glob.glob('/usr/lib*/faketime') + glob.glob('/usr/local/lib/faketime')
        hide = ' && '.join(['true'] + ['mount -t tmpfs none %s' % shlex.quote(d) for d in found])
        if subprocess.run(['unshare', '-m', 'sh', '-c', hide], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest('no mount namespace may be made here')
        demo = ' '.join(map(shlex.quote, argv('--json', '--tokens', 'off', '--runs', '4')))
        done = subprocess.run(['unshare', '-m', 'sh', '-c', hide + ' && exec ' + demo], env=self.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEMO_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b'apt-get install faketime', done.stderr)
        got = json.loads(done.stdout)
        self.assertEqual((got['clock'], got['off']['runs_with_loss']), (False, 4))
        self.assertNotIn('clock', [r['fault'] for run in got['runs'] for r in run['rounds']])

    def test_what_is_wrong_or_missing_is_said(self):
        for words, said in ((('--tokens', 'maybe'), b'on, off or writes'), (('--runs', '0'), b'--runs is 1'),
                            (('--runs', '100001'), b'--runs is 1')):
            done = subprocess.run(argv(*words), env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
        os.symlink(sys.executable, self.lab.path('python3'))
        done = subprocess.run(argv(), env=dict(self.env, PATH=self.lab.dir), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b'apt-get install redis-server', done.stderr)
        done = subprocess.run(argv('--svg', '/nowhere/at/all.svg', '--tokens', 'off'), env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b'--svg', done.stderr)


def full(parallel):
    """What is promised: ten seeds without tokens lose updates each; a thousand with them lose none."""
    first = seed() % 1000000 + 1
    print('seeds from %d' % first, flush=True)
    def start(tokens, at, runs):
        output = tempfile.TemporaryFile()
        child = subprocess.Popen(argv('--json', '--tokens', tokens, '--seed', at, '--runs', runs),
                                 stdin=subprocess.DEVNULL, stdout=output)
        child.output = output
        return child
    def end(child):
        code = child.wait()
        child.output.seek(0)
        return code, json.loads(child.output.read())
    code, off = end(start('off', first, 10))
    print('tokens off: exit code %d, %s' % (code, off['off']), flush=True)
    began = time.monotonic()
    share = 1000 // parallel
    sizes = [share + (1 if i < 1000 % parallel else 0) for i in range(parallel)]
    results = [end(c) for c in [start('on', first + sum(sizes[:i]), n) for i, n in enumerate(sizes)]]
    total = {}
    for _, got in results:
        for key, value in got['on'].items():
            total[key] = total.get(key, 0) + value
    faults = {}
    for _, got in results:
        for r in (r for run in got['runs'] for r in run['rounds']):
            faults[r['fault']] = faults.get(r['fault'], 0) + 1
    retries = sum(run['retries'] for _, got in results for run in got['runs'])
    print('tokens on: exit codes %s, %s, faults %s, rounds begun again %d, %.0f s'
          % ([c for c, _ in results], total, faults, retries, time.monotonic() - began), flush=True)
    good = code == 0 and off['off']['runs_with_loss'] == 10 and all(c == 0 for c, _ in results) and \
        total['runs'] == 1000 and total['lost'] == 0 and total['unknown'] == 0 and set(faults) == ALL_FAULTS
    print('as promised' if good else 'NOT as promised')
    return 0 if good else 1


if __name__ == '__main__':
    if '--full' in sys.argv:
        at = sys.argv.index('--parallel') + 1 if '--parallel' in sys.argv else 0
        sys.exit(full(int(sys.argv[at]) if at else 2))
    main()
