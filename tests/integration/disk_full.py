#!/usr/bin/python3
"""The disk of one node is full: a small file system of its own, mounted for the test (which needs root)."""

import errno
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Case, Cluster, RespError, main, wait_until

OWNER = 'owner-a-0123456789'
SIZE = '40m' # room for a few segments of the log
NAMES = 100 # and for so many files


class DiskFull(Case):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 3)
        small = self.cluster.nodes[0].data
        os.makedirs(small, exist_ok=True)
        made = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=%s,nr_inodes=%d' % (SIZE, NAMES), 'tmpfs', small], capture_output=True, text=True)
        if made.returncode != 0:
            raise unittest.SkipTest('cannot mount a file system: ' + made.stderr.strip())
        self.addCleanup(subprocess.run, ['umount', '-l', small], check=True)
        self.addCleanup(lambda: self.cluster.nodes[0].kill())
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

    def cut_off_without_room(self, room_for_intention):
        """A leader that was cut off has entries which nobody else has, and has to cut them off again, but there is no
        room for the file in which it would keep what comes before. Then there is, and it starts again."""
        old, others = self.cluster.nodes[0], self.cluster.nodes[1:]
        self.lead(old)
        old.call('TOKEN', 'common')
        for node in others:
            node.pause()
        last = old.info()['last_index']
        lonely = old.client()
        self.addCleanup(lonely.close)
        for i in range(5):
            lonely.send('ACQUIRE', 'lonely-%d' % i, 'TTL', 60000, 'OWNER', OWNER)
        wait_until(lambda: old.info()['last_index'] > last, 30.0, 'entries that nobody else has')
        old.pause()
        for node in others: # what waits for them in their sockets must not arrive
            node.kill()
            node.start()
        self.cluster.leader(seconds=60.0, among=others)
        if room_for_intention:
            open(os.path.join(old.data, 'raft', 'cut.new'), 'xb').close()
        fillers = use_up_names(old.data)
        old.process.asked_to_end = True
        old.resume()
        def goes_on():
            if not old.running():
                return True
            for i in range(5):
                others[0].call('ACQUIRE', 'common-%d' % i, 'TTL', 60000, 'OWNER', OWNER)
            return old.info()['applied_index'] >= others[0].info()['applied_index'] - 5
        wait_until(goes_on, 60.0, 'the node whose disk is full to follow, or to end')
        for path in fillers:
            os.unlink(path)
        said = '' if old.running() else old.process.last_output()
        if old.running():
            old.kill()
        old.start()
        self.assertEqual(len(set(self.cluster.wait_same_state(60.0))), 1, 'the states differ')
        self.assertIn(os.path.join(old.data, 'raft'), said)
        self.assertIn('start this node again', said)
        return old.process.output()

    def test_what_cannot_be_cut_off_does_not_come_back(self):
        self.assertNotIn('not finished', self.cut_off_without_room(room_for_intention=False))

    def test_what_was_to_be_cut_off_does_not_come_back(self):
        self.assertIn('not finished', self.cut_off_without_room(room_for_intention=True))


def use_up_names(folder):
    """Makes files until a file system has no room for one more; returns their paths."""
    made = []
    while True:
        try:
            path = os.path.join(folder, 'filler-%d' % len(made))
            open(path, 'xb').close()
            made.append(path)
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise
            return made


if __name__ == '__main__':
    main()
