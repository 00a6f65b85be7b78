#!/usr/bin/python3
"""For a moment the machine has no file descriptor left (ENFILE): no node ends for that, whatever it wanted to open."""

import errno
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import ANSWER_S, Case, Cluster, ask_again, main, wait_until
from shim import Shim, library

REQUESTS, BATCHES = 500, 40 # 20 MB: more than a leader keeps in memory


@unittest.skipUnless(library(), 'the shim is not built')
class NoDescriptors(Case):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 3)
        for node in self.cluster.nodes:
            node.shim = Shim(self.lab.path(node.name + '.shim'), node.data)
            node.argv = lambda node=node, plain=node.argv: node.shim.env_command() + plain()
        self.cluster.start().steady()

    def none_left(self, node, kind='open'):
        """The next file that it opens cannot be opened; kind 'name': the next that it makes cannot be made."""
        node.shim.fail(kind, 1, errno.ENFILE)

    def test_a_member_that_starts_again(self):
        """The others record its start before they let it in."""
        others = self.cluster.followers()
        back = others.pop()
        others.append(self.cluster.leader())
        back.kill()
        for node in others:
            self.none_left(node)
        back.start()
        self.cluster.wait_serving(back)
        self.assertTrue(all(node.running() for node in others))

    def test_a_member_that_is_removed(self):
        leader = self.cluster.leader()
        gone, other = self.cluster.followers()
        self.none_left(other, 'name')
        gone.kill()
        ask_again(leader, 'CLUSTER', 'REMOVE', gone.id)
        wait_until(lambda: other.info()['cluster_nodes'] == 2, 'a cluster without the member') # which needs no file
        self.assertTrue(other.running())
        self.assertGreater(ask_again(other, 'TOKEN', 'x'), 0)

    def test_a_follower_that_lacks_what_is_on_the_disk_only(self):
        leader = self.cluster.leader()
        back, _ = self.cluster.followers()
        back.kill()
        with leader.client(timeout=ANSWER_S) as c:
            for i in range(BATCHES):
                c.pipeline([('ACQUIRE', 'lock-%06d' % (i * REQUESTS + k), 'TTL', 86000000, 'OWNER', 'o' * 200, 'VALUE', b'v' * 900)
                            for k in range(REQUESTS)])
        last = leader.info()['applied_index']
        self.none_left(leader)
        back.start()
        wait_until(lambda: back.info()['applied_index'] >= last, 'a follower that is up to date')
        self.assertEqual(leader.shim.failed('open'), 1)
        self.assertTrue(leader.running())
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)


if __name__ == '__main__':
    main()
