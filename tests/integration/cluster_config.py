#!/usr/bin/python3
"""CLUSTER CONFIG: limits, times and the level of the log that change while the cluster runs, on all nodes."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Load, RespError, as_dict, ask_again, binary, main, patient_env, wait_until

OWNER = 'owner-a-0123456789'


class ClusterConfig(Case):
    def limits(self, node):
        return as_dict(ask_again(node, 'CLUSTER', 'CONFIG', 'GET'))

    def refused(self, node, *args):
        with self.assertRaises(RespError) as caught:
            ask_again(node, 'CLUSTER', 'CONFIG', *args)
        return caught.exception.word, str(caught.exception)

    def test_limits(self):
        cluster = Cluster(self.lab, 3, extra=['--locks-max', '3']).start()
        follower = cluster.followers()[0]
        for i in range(3):
            self.assertGreater(ask_again(follower, 'ACQUIRE', 'lock-%d' % i, 'TTL', 600000, 'OWNER', OWNER), 0)
        with self.assertRaises(RespError) as caught:
            ask_again(follower, 'ACQUIRE', 'lock-3', 'TTL', 600000, 'OWNER', OWNER)
        self.assertEqual(caught.exception.word, 'LIMIT')
        self.assertIn(ask_again(follower, 'CLUSTER', 'CONFIG', 'SET', 'locks-max', 4), ('OK', b'OK'))
        self.assertGreater(ask_again(follower, 'ACQUIRE', 'lock-3', 'TTL', 600000, 'OWNER', OWNER), 0)
        self.assertEqual(len(set(cluster.wait_same_state())), 1)
        for node in cluster.nodes:
            self.assertEqual(self.limits(node)['locks-max'], 4)
        word, text = self.refused(follower, 'SET', 'locks-max', 3)
        self.assertEqual(word, 'LIMIT')
        self.assertIn('4 are in use', text)
        cluster.terminate()
        cluster.start()
        self.assertEqual(self.limits(cluster.nodes[0])['locks-max'], 4) # not what the options say

    def test_who_may_and_what_is_wrong(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        for args in (('SET', 'locks-max'), ('SET', 'locks', 5), ('SET', 'locks-max', 0), ('SET', 'locks-max', 2**32),
                     ('LIST',), ('GET', 'locks-max')):
            self.assertEqual(self.refused(node, *args)[0], 'ERR', args)
        node.call('ACL', 'SETUSER', 'reader', 'on', '>geheim', '~*', '+@see')
        with node.client() as c:
            c.call('AUTH', 'reader', 'geheim')
            for args in (('GET',), ('SET', 'locks-max', 5)):
                with self.assertRaises(RespError) as caught:
                    c.call('CLUSTER', 'CONFIG', *args)
                self.assertEqual(caught.exception.word, 'NOPERM')


class Settings(Case):
    """Times and the level of the log."""
    OPTIONS = ('--election-ms', '800', '--heartbeat-ms', '40', '--snapshot-bytes', '65536')

    def set(self, node, name, value):
        self.assertEqual(ask_again(node, 'CLUSTER', 'CONFIG', 'SET', name, value), 'OK')

    def seen(self, node):
        said, info = as_dict(node.call('CLUSTER', 'CONFIG', 'GET')), node.info()
        return ((said['election-ms'], said['heartbeat-ms'], said['hold-ms'], said['log-level']),
                tuple(int(info[name]) for name in ('election_ms', 'heartbeat_ms', 'hold_ms')))

    def wait_seen(self, cluster, said, counts):
        def all_have_it():
            for node in cluster.running():
                self.assertEqual(self.seen(node), (said, counts), node.name)
            return True
        wait_until(all_have_it, '%r, and in force %r' % (said, counts), every=0.05)

    def refused(self, node, name, value):
        with self.assertRaises(RespError) as caught:
            ask_again(node, 'CLUSTER', 'CONFIG', 'SET', name, value)
        return str(caught.exception)

    def test_on_all_nodes_and_after_a_restart_a_change_of_leader_and_a_snapshot(self):
        cluster = Cluster(self.lab, 3, extra=self.OPTIONS).start()
        load = Load(cluster.addresses(), clients=4).start()
        self.addCleanup(load.aborting.set)
        none, own = ('default',) * 4, (800, 40, 3000)
        self.wait_seen(cluster, none, own)
        for name, value in (('election-ms', 1500), ('heartbeat-ms', 100), ('hold-ms', 5000), ('LOG-LEVEL', 'Debug')):
            self.set(cluster.followers()[0], name, value)
        said, counts = (1500, 100, 5000, 'debug'), (1500, 100, 5000)
        self.wait_seen(cluster, said, counts)
        for node in cluster.nodes:
            node.process.wait_output('level=debug')
        leader = cluster.leader()
        leader.kill()
        self.wait_seen(cluster, said, counts)
        cluster.leader(among=[n for n in cluster.nodes if n is not leader])
        cluster.wipe(leader) # all that it has comes from a snapshot then
        old = [int(n.info()['snapshots']) for n in cluster.running()]
        wait_until(lambda: all(int(n.info()['snapshots']) > before for n, before in zip(cluster.running(), old)), 'snapshots')
        cluster.replace(leader)
        leader.start()
        self.wait_seen(cluster, said, counts)
        load.stop()
        load.check()
        self.assertEqual(len(set(cluster.wait_same_state())), 1)
        cluster.terminate()
        cluster.start()
        self.wait_seen(cluster, said, counts)
        for name in ('election-ms', 'heartbeat-ms', 'hold-ms', 'log-level'):
            self.set(cluster.nodes[0], name, 'default')
        self.wait_seen(cluster, none, own)
        for node in cluster.nodes:
            node.process.wait_output('level=info')

    def test_one_of_two_times(self):
        """Whatever the options say, three heartbeats fit into an election time."""
        cluster = Cluster(self.lab, 3, extra=self.OPTIONS).start()
        self.set(cluster.nodes[0], 'election-ms', 60)
        self.wait_seen(cluster, (60, 'default', 'default', 'default'), (60, 20, 3000))
        self.set(cluster.nodes[0], 'election-ms', 'default')
        self.set(cluster.nodes[0], 'heartbeat-ms', 400)
        self.wait_seen(cluster, ('default', 400, 'default', 'default'), (1200, 400, 3000))
        self.assertIn('heartbeat-ms is 400', self.refused(cluster.nodes[0], 'election-ms', 1199))
        self.set(cluster.nodes[0], 'election-ms', 1200)
        self.assertIn('election-ms is 1200', self.refused(cluster.nodes[0], 'heartbeat-ms', 401))
        leader = cluster.leader()
        leader.kill()
        cluster.leader(among=[n for n in cluster.nodes if n is not leader])

    def test_an_election_time_with_which_nobody_is_elected(self):
        """It could not be set anew, since that needs a leader."""
        cluster = Cluster(self.lab, 3, extra=('--election-ms', '200', '--heartbeat-ms', '20')).start()
        one, others = cluster.nodes[0], cluster.nodes[1:]
        self.set(one, 'election-ms', 150)
        said = (150, 'default', 'default', 'default')
        self.wait_seen(cluster, said, (150, 20, 3000))
        for node in others:
            node.kill()
        one.process.wait_output('goes by its own, 200')
        self.wait_seen(cluster, said, (200, 20, 3000))
        for node in others:
            node.start()
        cluster.make_leader(others[0]) # with which the setting works: it was only alone
        self.wait_seen(cluster, said, (150, 20, 3000))
        self.set(one, 'election-ms', 300)
        self.wait_seen(cluster, (300, 'default', 'default', 'default'), (300, 20, 3000))

    def test_what_is_refused(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        for name, values, says in (('election-ms', (19, 60001, 'soon', -1, '1.5', 0), '20 to 60000'),
                                   ('heartbeat-ms', (4, 30001), '5 to 30000'), ('hold-ms', (0, 600001), '1 to 600000'),
                                   ('log-level', ('loud', 0, 3), 'error, warning, info or debug'),
                                   ('drain-ms', (100,), 'there are locks-max'), ('locks-max', ('default', 'x', 0), '1 to 4294967295')):
            for value in values:
                text = self.refused(node, name, value)
                self.assertTrue(text.startswith('ERR'), text)
                self.assertIn(says, text)
        self.assertEqual(self.seen(node), (('default',) * 4, (400, 40, 3000)))

    def tool(self, node, *words, code=0):
        done = subprocess.run([binary('fencelock'), 'cluster', 'config', *map(str, words), '--nodes', node.address],
                              capture_output=True, text=True, timeout=PATIENCE_S, env=patient_env())
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if code != 0:
            return done.stderr
        said = [line for line in done.stderr.splitlines() if not line.startswith('fencelock: waiting')]
        self.assertEqual(said, [])
        return done.stdout

    def test_by_the_tool(self):
        cluster = Cluster(self.lab, 3).start()
        follower = cluster.followers()[0]
        wait_until(lambda: self.tool(follower, 'get', 'locks-max') == '2000000\n', 'what the first leader has proposed')
        self.assertEqual(self.tool(follower, 'set', 'locks-max', 3000000), 'done\n')
        self.assertEqual(self.tool(follower, 'set', 'log-level', 'debug', '--json'),
                         '{"change":"config","name":"log-level","value":"debug","done":true}\n')
        wait_until(lambda: self.tool(follower, 'get', 'log-level') == 'debug\n', 'the follower has it')
        wait_until(lambda: json.loads(self.tool(follower, 'get', '--json'))['locks_max'] == 3000000, 'the follower has that')
        self.assertIn('election-ms', self.tool(follower))
        self.assertIn('there are locks-max', self.tool(follower, 'set', 'nothing', 1, code=1))
        self.assertIn('no such name', self.tool(follower, 'get', 'nothing', code=2))
        self.assertIn('set NAME VALUE', self.tool(follower, 'set', 'locks-max', code=2))
        self.assertIn('set NAME VALUE', self.tool(follower, 'put', 'locks-max', 1, code=2))


if __name__ == '__main__':
    main()
