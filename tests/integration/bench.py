#!/usr/bin/python3
"""tests/bench/bench on real nodes: that it measures what it says, leaves nothing behind, and says why when it cannot."""

import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Cluster, ClusterCase, Deadline, as_dict, env_without_options, free_ports, main, wait_until
from harness.lab import build_dir
from tls_lab import Certs


DRAIN_S = 2.0 # LOADGEN_DRAIN_MS of tests/bench/loadgen.h
BENCH = os.path.join(build_dir(), 'tests', 'bench', 'bench')


class Bench(ClusterCase):
    def setUp(self):
        super().setUp()
        self.cluster.leader()
        self.env = env_without_options(FENCELOCK_NODES=','.join(node.address for node in self.cluster.nodes))

    def calmly(self, run):
        """What run(n) returns in the nth try, the first in which no machine stood still for so long that another node was elected,
        that no node was found, that nothing could be measured, or that two seconds were too short to give all locks back. Until
        self.measures_until it only measures."""
        deadline = Deadline(PATIENCE_S)
        n = 0
        while True:
            term = self.cluster.leader().info()['term']
            done = run(n)
            drained_s = time.monotonic() - self.measures_until
            leader = self.cluster.leader()
            info = leader.info()
            if info['term'] == term and info['locks_held'] > 0 and 'no answer' not in done.stderr:
                self.assertGreaterEqual(drained_s, DRAIN_S, 'locks are left behind')
            if deadline.passed() or (info['term'] == term and info['locks_held'] == 0 and self.has_measured(done)):
                return done
            for lock in leader.call('LOCKS', 'COUNT', 1000)[1]:
                leader.call('BREAK', as_dict(lock)['name'])
            n += 1

    def has_measured(self, done):
        if done.returncode != 0 or not done.stdout.startswith('{'):
            return 'no answer' not in done.stderr
        said = json.loads(done.stdout)
        return said['pairs'] > 0 and said.get('handoff_ns', {'count': 1})['count'] > 0

    def bench(self, *args):
        """For as long as is given, and in each further try for some seconds more."""
        args += ('--ttl', '10m') # what is left behind stays
        def run(n):
            words = list(args)
            if n > 0:
                words[words.index('--duration') + 1] = '%ds' % (5 * n)
            duration = words[words.index('--duration') + 1]
            self.measures_until = time.monotonic() + (float(duration[:-2]) / 1000 if duration.endswith('ms') else float(duration[:-1]))
            return self.bench_once(*words)
        return self.calmly(run)

    def bench_once(self, *args):
        return subprocess.run([BENCH, *args], env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE_S)

    def grants(self):
        return self.cluster.leader().info()['grants']

    def nothing_held(self):
        self.assertEqual(self.cluster.leader().info()['locks_held'], 0)

    def test_pairs(self):
        before = {node: node.info()['grants'] for node in self.cluster.nodes}
        done = self.bench('--clients', '7', '--in-flight', '3', '--duration', '1s', '--json')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        said = json.loads(done.stdout)
        self.assertEqual(said['nodes'], [self.cluster.leader().address])
        self.assertEqual((said['clients'], said['in_flight']), (7, 3))
        self.assertEqual((said['errors'], said['refused']), (0, 0))
        self.assertEqual(said['release_ns']['count'], said['pairs'])
        self.assertGreater(said['pairs'], 0)
        self.assertGreaterEqual(self.grants() - before[self.cluster.leader()], said['pairs'])
        p = said['acquire_ns']
        self.assertTrue(0 < p['p50'] <= p['p90'] <= p['p99'] <= p['p999'] <= p['max'], p)
        self.nothing_held()

    def test_spread_over_nodes(self):
        done = self.bench('--spread', '--clients', '6', '--duration', '500ms', '--json')
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said['nodes'], [node.address for node in self.cluster.nodes])
        self.assertGreater(said['pairs'], 0)
        self.nothing_held()

    def test_with_tls(self):
        certs = Certs(self.lab)
        certs.make('server', 'server', '127.0.0.1')
        certs.make('client', 'alice')
        node = Cluster(self.lab, 1).nodes[0]
        node.name, node.data = 'tls', self.lab.path('tls')
        tls = '127.0.0.1:%d' % free_ports(1)[0]
        node.extra = ['--tls-port', tls] + certs.daemon()
        node.start()
        node.cluster.wait_serving(node)
        how = ['--nodes', tls, '--clients', '9', '--in-flight', '3', '--duration', '500ms', '--json']
        done = self.bench(*how, *certs.tool('alice'))
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        said = json.loads(done.stdout)
        self.assertEqual((said['tls'], said['errors']), (True, 0))
        self.assertGreaterEqual(node.info()['grants'], said['pairs'])
        self.assertGreaterEqual(node.info()['tls_handshakes'], 9)
        done = self.bench(*how, *certs.tool()) # without a certificate
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('certificate required', done.stderr)

    def test_with_a_user(self):
        node = Cluster(self.lab, 1).nodes[0]
        node.name, node.data = 'users', self.lab.path('users')
        with open(self.lab.path('users.acl'), 'w', encoding='utf-8') as f:
            f.write('user default on nopass allkeys +@all\nuser measuring on >a-good-password allkeys +@all\n')
        node.extra = ['--aclfile', self.lab.path('users.acl')]
        node.start()
        node.cluster.wait_serving(node)
        node.call('ACL', 'SETUSER', 'default', 'off')
        how = ['--nodes', node.address, '--clients', '9', '--duration', '500ms', '--json']
        for spread in ([], ['--spread']):
            self.env['FENCELOCK_PASSWORD'] = 'a-good-password'
            done = self.bench(*how, *spread, '--user', 'measuring')
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            self.assertGreater(json.loads(done.stdout)['pairs'], 0)
            self.env['FENCELOCK_PASSWORD'] = 'another'
            done = self.bench(*how, *spread, '--user', 'measuring')
            self.assertEqual(done.returncode, 3)
            self.assertIn('WRONGPASS', done.stderr)

    def test_one_lock_for_all(self):
        done = self.bench('--one-lock', '--clients', '5', '--duration', '1s', '--json')
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said['errors'], 0)
        self.assertGreater(said['handoff_ns']['count'], 0)
        self.nothing_held()

    def test_text(self):
        done = self.bench('--duration', '500ms')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertRegex(done.stdout, r'pairs/s.*64 clients')
        self.assertRegex(done.stdout, r'(?m)^acquire +\d+ ')

    def test_interrupted_it_says_what_it_has(self):
        def interrupted(_):
            before = self.grants()
            child = self.kill_at_cleanup(subprocess.Popen(
                [BENCH, '--duration', '1h', '--ttl', '10m', '--json'], env=self.env,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            # Or an election, or an end for that reason: then it is tried once more.
            wait_until(lambda: child.poll() is not None or self.grants() != before, 'the first grants')
            self.measures_until = time.monotonic()
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=PATIENCE_S)
            return subprocess.CompletedProcess(child.args, child.returncode, out, err)
        # Interrupted in its first half second, it has counted nothing.
        self.has_measured = lambda done: done.returncode == 0 or 'no answer' not in done.stderr
        done = self.calmly(interrupted)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertEqual(json.loads(done.stdout)['errors'], 0)
        self.nothing_held()

    def test_wrong_numbers(self):
        for args in (['--clients', '0'], ['--clients', '10001'], ['--in-flight', '0'],
                     ['--clients', '10000', '--in-flight', '11'], ['--duration', '0'], ['--duration', '25h']):
            done = self.bench_once(*args)
            self.assertEqual(done.returncode, 2, (args, done.stderr))
            self.assertIn(args[0], done.stderr)

    def test_nobody_there(self):
        for node in self.cluster.nodes:
            node.kill()
        done = self.bench_once('--duration', '200ms')
        self.assertEqual(done.returncode, 3)
        self.assertIn('none of these nodes leads', done.stderr)
        done = self.bench_once('--spread', '--duration', '200ms')
        self.assertEqual(done.returncode, 3)
        self.assertIn('cannot connect', done.stderr)


if __name__ == '__main__':
    main()
