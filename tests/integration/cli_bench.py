#!/usr/bin/python3
"""`fencelock bench` on real nodes: that it measures what it says, leaves nothing behind, and says why when it cannot."""

import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Cluster, ClusterCase, binary, env_without_options, free_ports, main, wait_until
from tls_lab import Certs


class Bench(ClusterCase):
    def setUp(self):
        super().setUp()
        self.leader = self.cluster.leader()
        self.env = env_without_options(FENCELOCK_NODES=','.join(node.address for node in self.cluster.nodes))

    def bench(self, *args, seconds=60):
        if '--ttl' not in args:
            args += ('--ttl', '10m') # what is left behind stays
        return subprocess.run([binary('fencelock'), 'bench', *args], env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=seconds)

    def grants(self):
        return self.cluster.leader().info()['grants']

    def nothing_held(self):
        wait_until(lambda: self.cluster.leader().info()['locks_held'] == 0, 'an end of all held locks')

    def test_pairs(self):
        before = self.grants()
        done = self.bench('--clients', '7', '--in-flight', '3', '--duration', '1s', '--json')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        said = json.loads(done.stdout)
        self.assertEqual(said['nodes'], [self.leader.address])
        self.assertEqual((said['clients'], said['in_flight']), (7, 3))
        self.assertEqual((said['errors'], said['refused']), (0, 0))
        self.assertEqual(said['release_ns']['count'], said['pairs'])
        self.assertGreater(said['pairs'], 0)
        self.assertGreaterEqual(self.grants() - before, said['pairs'])
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
            self.assertNotEqual(done.returncode, 0)
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
        before = self.grants()
        child = subprocess.Popen([binary('fencelock'), 'bench', '--duration', '1h', '--ttl', '10m', '--json'], env=self.env,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(child.kill)
        wait_until(lambda: self.grants() > before, 'the first grants')
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=240)
        self.assertEqual((child.returncode, err), (0, ''))
        self.assertEqual(json.loads(out)['errors'], 0)
        self.nothing_held()

    def test_wrong_numbers(self):
        for args in (['--clients', '0'], ['--clients', '10001'], ['--in-flight', '0'],
                     ['--clients', '10000', '--in-flight', '11'], ['--duration', '0'], ['--duration', '25h']):
            done = self.bench(*args)
            self.assertEqual(done.returncode, 2, (args, done.stderr))
            self.assertIn('at most', done.stderr)

    def test_what_the_server_refuses(self):
        self.cluster.leader().call('ACL', 'SETUSER', 'reader', 'on', '>a-good-password', 'allkeys', '+@see')
        self.env['FENCELOCK_PASSWORD'] = 'a-good-password'
        done = self.bench('--user', 'reader', '--clients', '1', '--duration', '200ms')
        self.assertEqual(done.returncode, 3)
        self.assertIn('answered by an error', done.stderr)

    def test_nobody_there(self):
        for node in self.cluster.nodes:
            node.kill()
        done = self.bench('--duration', '200ms', '--timeout', '1s')
        self.assertEqual(done.returncode, 3)
        self.assertIn('none of these nodes leads', done.stderr)
        done = self.bench('--spread', '--duration', '200ms')
        self.assertEqual(done.returncode, 3)
        self.assertIn('cannot connect', done.stderr)


if __name__ == '__main__':
    main()
