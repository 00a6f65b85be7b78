#!/usr/bin/python3
"""The disk of one node is full: a small file system of its own, mounted for the test (which needs root)."""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Case, Cluster, RespError, main, wait_until

OWNER = 'owner-a-0123456789'
SIZE = '40m' # room for a few segments of the log


class DiskFull(Case):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 3)
        small = self.cluster.nodes[0].data
        os.makedirs(small, exist_ok=True)
        made = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=' + SIZE, 'tmpfs', small], capture_output=True, text=True)
        if made.returncode != 0:
            raise unittest.SkipTest('cannot mount a file system: ' + made.stderr.strip())
        self.addCleanup(subprocess.run, ['umount', '-l', small], check=True)
        self.cluster.start()

    def fill(self, node):
        """A thousand log entries of a kilobyte. Answers may be uncertain, but each comes."""
        value = b'v' * 1024
        with node.client(timeout=30.0) as c:
            return len(c.pipeline([('ACQUIRE', 'full', 'TTL', 60000, 'OWNER', OWNER, 'VALUE', value)] * 1000))

    def lead(self, node):
        def leads():
            leader = self.cluster.leader()
            if leader is node:
                return True
            try:
                leader.call('CLUSTER', 'TRANSFER', node.id)
            except RespError:
                pass # in an election
            return False
        wait_until(leads, 30.0, 'node %d to lead' % node.id)

    def test_a_leader_hands_over_and_the_others_go_on(self):
        small = self.cluster.nodes[0]
        self.lead(small)
        token = small.call('TOKEN', 'before')
        def handed_over():
            self.fill(self.cluster.nodes[1])
            return self.cluster.leader() is not small
        wait_until(handed_over, 90.0, 'another leader than the node whose disk is full')
        for _ in range(3):
            self.fill(self.cluster.nodes[1])
        self.assertGreater(self.cluster.nodes[2].call('TOKEN', 'after'), token)
        self.assertTrue(small.running())


if __name__ == '__main__':
    main()
