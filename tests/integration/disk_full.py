#!/usr/bin/python3
"""The disk of one node is full: a small file system of its own, mounted for the test (which needs root)."""

import errno
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import ASK_AGAIN, PATIENCE_S, Case, Cluster, ask_again, binary, main, patient_env, try_again, wait_until

OWNER = 'owner-a-0123456789'
SIZE = '60m' # room for a few segments of the log
NAMES = 100 # and for so many files


class DiskFull(Case):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 3, extra=('--snapshot-bytes', 65536))
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
        with node.client(timeout=PATIENCE_S) as c:
            return len(c.pipeline([('ACQUIRE', 'full', 'TTL', 60000, 'OWNER', OWNER, 'VALUE', value)] * 1000))

    def test_a_leader_hands_over_and_the_others_go_on(self):
        small = self.cluster.nodes[0]
        self.cluster.make_leader(small)
        token = ask_again(small, 'TOKEN', 'before')
        use_up_bytes(small.data) # by entries alone it may never be full: snapshots let the log be cut as fast
        def handed_over():
            self.fill(self.cluster.nodes[1])
            return self.cluster.leader() is not small
        wait_until(handed_over, 'another leader than the node whose disk is full', seconds=400.0)
        for _ in range(3):
            self.fill(self.cluster.nodes[1])
        self.assertGreater(ask_again(self.cluster.nodes[2], 'TOKEN', 'after'), token)
        self.assertTrue(small.running())

    def test_what_is_cut_off_needs_no_room(self):
        """A leader that was cut off has entries which nobody else has. It has to cut them off again while the file system has
        room for no file and no byte more: a truncation is one more record in a segment that is there already."""
        old, others = self.cluster.nodes[0], self.cluster.nodes[1:]
        def cut_off():
            """It leads for an election time without the others: on a busy machine that may be over before it is asked."""
            self.cluster.make_leader(old)
            ask_again(old, 'TOKEN', 'common')
            for node in others:
                node.pause()
            last = old.info()['last_index']
            lonely = old.client()
            self.addCleanup(lonely.close)
            for i in range(5):
                lonely.send('ACQUIRE', 'lonely-%d' % i, 'TTL', 600000, 'OWNER', OWNER)

            def decided():
                info = old.info()
                return info if info['last_index'] > last or info['node_role'] != 'leader' else None
            has_more = wait_until(decided, 'entries that nobody else has, or the end of its lead')['last_index'] > last
            if not has_more:
                for node in others:
                    node.resume()
            return has_more
        try_again(cut_off, 'a leader with entries that nobody else has')
        old.pause()
        for node in others: # what waits for them in their sockets must not arrive
            node.kill()
            node.start()
        self.cluster.leader(among=others)
        fillers = [use_up_bytes(old.data)] + use_up_names(old.data)
        for i in range(5):
            ask_again(others[0], 'ACQUIRE', 'common-%d' % i, 'TTL', 600000, 'OWNER', OWNER)
        old.resume()
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1, 'the states differ')
        old.kill()
        for path in fillers:
            os.unlink(path)
        old.start()
        self.cluster.wait_serving(old)
        # What it had not proposed yet may have gone to the new leader, so a lonely lock may be held: then on every node.
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1, 'the states differ')

    def test_a_snapshot_for_which_there_is_no_room_is_taken_later(self):
        """The node says so, counts it and goes on: its log only grows."""
        small = self.cluster.nodes[0]
        self.fill(self.cluster.nodes[1])
        wait_until(lambda: small.info()['log_segments'] >= 3, 'segments that are ready')
        state = [('ACQUIRE', 'lock-%d' % i, 'TTL', 86000000, 'OWNER', 'owner-of-lock-%09d' % i, 'VALUE', b'v' * 1024) for i in range(3000)]
        filler = use_up_bytes(small.data, but=1 << 20)
        with self.cluster.nodes[1].client(timeout=PATIENCE_S) as c:
            def taken_by_all():
                """The same owner may ask again."""
                answers = c.pipeline(state)
                self.assertEqual([a for a in answers if not isinstance(a, int) and a.word not in ASK_AGAIN], [])
                state[:] = [request for request, a in zip(state, answers) if not isinstance(a, int)]
                return not state
            try_again(taken_by_all, 'all locks')
            for _ in range(150):
                ask_again(c, 'TOKEN', 'more')
        wait_until(lambda: small.info()['snapshot_failures'] > 0, 'a failure that is counted')
        taken = small.info()['snapshots']
        small.process.wait_output('No space left on device')
        small.process.wait_output('no snapshot was taken')
        self.assertGreater(ask_again(small, 'TOKEN', 'goes-on'), 0)
        # Attempts go on, with pauses between them.
        wait_until(lambda: not [n for n in os.listdir(os.path.join(small.data, 'log')) if n.startswith('snapshot') and n.endswith('.part')], 'the end of an attempt that leaves nothing')
        os.unlink(filler)
        wait_until(lambda: small.info()['snapshots'] > taken, 'a snapshot')
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1, 'the states differ')
        small.kill()
        small.start()
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1, 'the states differ')

    def said(self, small):
        """What the tool says of a node that waits, and its exit code. All nodes have to answer within two seconds."""
        nodes = ','.join(n.address for n in self.cluster.nodes)
        def asked():
            done = subprocess.run([binary('fencelock'), 'status', '--nodes', nodes], capture_output=True, text=True, env=patient_env())
            return 'no answer' not in done.stderr and done
        done = wait_until(asked, 'an answer of each node')
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(small.address + ' waits for its disk, which is full or slow', done.stderr)

    def test_a_change_of_members_needs_no_room(self):
        """Members are in the log, which has room, and in no other file. A node whose disk is full takes part in the change, and is started
        again with it: of the two that are left both are needed."""
        small, other, gone = self.cluster.nodes
        wait_until(lambda: small.info()['log_segments'] >= 3, 'segments that are ready')
        filler = use_up_bytes(small.data)
        gone.kill()
        wait_until(lambda: self.cluster.leader(among=[small, other]).call('CLUSTER', 'REMOVE', gone.id), 'the removal')
        token = ask_again(other, 'TOKEN', 'x')
        small.kill()
        small.start()
        self.assertGreater(ask_again(other, 'TOKEN', 'x'), token)
        os.unlink(filler)
        self.assertTrue(small.running())

    def tool(self, *args, nodes):
        argv = [binary('fencelock'), *args, '--nodes', ','.join(n.address for n in nodes)]
        return subprocess.run(argv, capture_output=True, text=True, env=patient_env())

    def test_health_names_the_full_disk(self):
        """Of two that are up both are needed, and one waits for its disk: to make either of them leader."""
        small, leader, gone = self.cluster.nodes
        self.cluster.make_leader(leader)
        self.cluster.steady()
        use_up_bytes(small.data)
        def waits():
            self.fill(leader)
            return small.info()['log_waits_for_segment']
        wait_until(waits, 'a node that waits for room')
        gone.kill()
        leader.kill()
        leader.launch()
        def said():
            done = self.tool('health', nodes=[small, leader])
            names = small.address + ' waits for its disk, which is full or slow' in done.stdout
            return names and 'unreachable' not in done.stdout and done
        done = wait_until(said, 'health to name the disk')
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)

    def test_a_node_whose_disk_is_full_waits_and_goes_on(self):
        """It follows for as long as there is room in its segments, then waits, also over a SIGKILL; nothing of it is lost."""
        small, other = self.cluster.nodes[:2]
        filler = use_up_bytes(small.data)
        def waits():
            self.fill(other)
            return small.info()['log_waits_for_segment']
        wait_until(waits, 'a node that waits for room')
        self.said(small)
        small.kill()
        small.start()
        token = ask_again(other, 'TOKEN', 'x')
        os.unlink(filler)
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1, 'the states differ')
        self.assertGreater(ask_again(small, 'TOKEN', 'y'), token)


def use_up_bytes(folder, but=0):
    """Makes a file that takes all there is but so much; returns its path."""
    path = os.path.join(folder, 'filler')
    with open(path, 'wb', buffering=0) as f:
        try:
            while True:
                f.write(b'x' * 65536)
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise
        f.truncate(max(0, f.tell() - but))
    return path


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
