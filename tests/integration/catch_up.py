#!/usr/bin/python3
"""Disks that are slow: under a leader whose follower was away and lacks more than is in memory, and in the midst of a write."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import ANSWER_S, Case, Cluster, RespError, ask_again, main, wait_until
from shim import Shim, library

READ_US = 200000
HANGS_US = 3600 * 1000000
REQUESTS, BATCHES = 500, 40 # 20 MB: 16 MiB stay in memory, and no snapshot is due


@unittest.skipUnless(library(), 'the shim is not built')
class SlowDisk(Case):
    def preload(self, node):
        node.shim = Shim(self.lab.path(node.name + '.shim'), node.data)
        plain = node.argv
        node.argv = lambda: node.shim.env_command() + plain()

    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 3)
        for node in self.cluster.nodes:
            self.preload(node)
        self.cluster.start().steady()

    def write_much(self, node):
        with node.client(timeout=ANSWER_S) as c:
            for i in range(BATCHES):
                names = ['lock-%06d' % (i * REQUESTS + k) for k in range(REQUESTS)]
                tokens = c.pipeline([('ACQUIRE', name, 'TTL', 86000000, 'OWNER', 'o' * 200, 'VALUE', b'v' * 900) for name in names])
                self.assertTrue(all(isinstance(token, int) for token in tokens), tokens[:3])

    def test_a_leader_waits_for_no_read(self):
        leader = self.cluster.leader()
        follower, _ = self.cluster.followers()
        follower.kill()
        self.write_much(leader)
        before = leader.info()
        self.assertEqual(before['snapshots'], 0)
        reads = leader.shim.calls('read')
        leader.shim.set('read_slow_us', READ_US)
        follower.start()
        wait_until(lambda: follower.info()['applied_index'] >= before['applied_index'], 'a follower that is up to date')
        self.assertGreater(leader.shim.calls('read'), reads) # it had to read
        self.assertEqual(leader.shim.get('loop_reads'), 0) # and its loop did not
        after = leader.info()
        self.assertEqual([after[k] for k in ('term', 'leader_id')], [before[k] for k in ('term', 'leader_id')])
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)
        self.note('%d reads' % (leader.shim.calls('read') - reads))

    def test_a_leader_that_cannot_read_for_a_follower_hands_over(self):
        old = self.cluster.leader()
        follower, _ = self.cluster.followers()
        follower.kill()
        self.write_much(old)
        last = old.info()['applied_index']
        old.shim.set('read_slow_us', HANGS_US)
        follower.start()
        wait_until(lambda: self.cluster.leader() is not old, 'another leader')
        wait_until(lambda: follower.info()['applied_index'] >= last, 'a follower that is up to date')
        self.assertTrue(old.running())

    def test_a_leader_that_cannot_apply_hands_over(self):
        """It has the whole log and reads nothing back, so it can be elected, and could serve nobody."""
        self.write_much(self.cluster.leader())
        self.cluster.unsteady()
        self.cluster.wait_same_state()
        hanging, others = self.cluster.nodes[0], self.cluster.nodes[1:]
        for node in self.cluster.nodes:
            node.kill()
        hanging.extra = ['--election-ms', '500', '--heartbeat-ms', '20']
        hanging.launch()
        wait_until(lambda: hanging.info()['last_index'] > 0, 'a node that has read its log')
        hanging.shim.set('read_slow_us', HANGS_US)
        for node in others: # they call no election before it has
            node.extra = ['--election-ms', '8000']
            node.launch()
        token = ask_again(others[0], 'TOKEN', 'a')
        self.assertTrue(hanging.running())
        leader = self.cluster.leader(among=others)
        self.assertLess(hanging.info()['applied_index'], leader.info()['applied_index'])
        with self.assertRaises(RespError):
            leader.call('CLUSTER', 'TRANSFER', hanging.id)
        self.assertGreater(ask_again(others[1], 'TOKEN', 'a'), token)
        hanging.shim.set('read_slow_us', 0)
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)

    def test_a_leader_ends_in_order_in_the_midst_of_it(self):
        leader = self.cluster.leader()
        follower, other = self.cluster.followers()
        follower.kill()
        self.write_much(leader)
        leader.shim.set('read_slow_us', 2 * READ_US)
        reads = leader.shim.calls('read')
        follower.start()
        wait_until(lambda: leader.shim.calls('read') > reads, 'a read')
        self.assertEqual(leader.terminate(), 0)
        self.cluster.wait_serving(other)
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)

    def stall(self, node, us):
        """Writes of the node take so long until one is done. Returns whether the node waited for one in its loop."""
        leader, before = self.cluster.leader(), node.info()
        node.shim.set('slow_us', us)
        self.assertGreater(ask_again(leader, 'ACQUIRE', 'stall-%d' % before['log_writes'], 'TTL', 600000), 0)
        wait_until(lambda: node.info()['log_writes'] > before['log_writes'], 'a slow write')
        node.shim.set('slow_us', 0)
        wait_until(lambda: node.info()['applied_index'] >= leader.info()['commit_index'], 'a node that is up to date')
        return node.info()['log_writes_on_loop'] > before['log_writes_on_loop']

    def test_a_follower_waits_for_its_disk_in_the_loop(self):
        """It stands still with it, and goes on with it. After a slow sync it does so again when a second has passed."""
        wait_until(lambda: self.stall(self.cluster.followers()[0], 2000000), 'a follower that waits for its disk', every=3.2) # what it wrote meanwhile ends in 2 s
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)

    def test_a_disk_that_stands_still_costs_no_election(self):
        """At the ordinary election time, which a busy machine may exceed; so not each attempt counts."""
        def costs_none(node, us):
            self.cluster.wait_serving(self.cluster.leader())
            before = self.cluster.leader().info()
            self.stall(node(), us)
            after = self.cluster.leader().info()
            return [after[k] for k in ('term', 'leader_id')] == [before[k] for k in ('term', 'leader_id')]
        self.cluster.unsteady()
        wait_until(lambda: costs_none(lambda: self.cluster.followers()[0], 2000000), 'a stall of a follower without an election', every=1.1)
        wait_until(lambda: costs_none(self.cluster.leader, 1500000), 'a stall of the leader without an election')


if __name__ == '__main__':
    main()
