#!/usr/bin/python3
"""One bit turned around in what a server has on disk: the server notices and refuses to serve, or that bit meant nothing and
everything is there. It never serves something else. One node alone, so that nobody can tell it what it has lost.

Of the files of the raft library the segments of the log are among them, but for the last batch of entries of an open one, whose
damage cannot be told from a torn write (src/consensus/segments.h); --raft tries that as well. Its record of term and vote has
no checksum; src/consensus/ballot.h has one.

Snapshots come early here (tests/torture/early_snapshots.c), so that there are some. Of three nodes one is lost to its damage,
and one that leads finds it when it sends its snapshot.

FENCELOCK_FLIPS: how many in each file (default: 6; four times as many in the storage's)."""

import os
import random
import shutil
import struct
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib')]
sys.dont_write_bytecode = True
from faultlab.bits import files_of, flip
from harness import Cluster, Lab, Store, main, seed, wait_until
from shim import Shim, library

FLIPS = int(os.environ.get('FENCELOCK_FLIPS') or 6)
GRANTS, KEYS = 300, 40
RAFT = '--raft' in sys.argv
if RAFT:
    sys.argv.remove('--raft')


def early_snapshots(server, lab, entries):
    """From now on the server takes a snapshot after so many entries."""
    plain = server.argv
    words = Shim(lab.path(server.name + '.shim'), server.data, more=[library('fencelock_early_snapshots')]).words() \
        + ['FENCELOCK_SNAPSHOT_ENTRIES=%d' % entries]
    server.argv = lambda: words + plain()


def newest_snapshot(server):
    """The path of the one that the raft library takes."""
    folder = os.path.join(server.data, 'raft')
    names = [n for n in os.listdir(folder) if n.startswith('snapshot-') and not n.endswith('.meta')]
    return os.path.join(folder, max(names, key=lambda n: [int(x) for x in n.split('-')[1:]]))


def grant(node, first, n):
    with node.client() as c:
        for i in range(first, first + n):
            c.call('ACQUIRE', 'lock-%d' % i, 'TTL', 86000000, 'OWNER', 'owner-of-this-lock-%d' % i)


class Flips(unittest.TestCase):
    def setUp(self):
        self.lab = Lab('flips')
        self.addCleanup(self.lab.quiet_close, keep=False)
        self.random = random.Random(seed())

    def each_flip(self, server):
        """For every file some flips: the directory is as it was, but for one bit."""
        good = server.data + '.good'
        os.rename(server.data, good)
        for file in files_of(good, True):
            for _ in range(FLIPS * (4 if file == 'data.mdb' else 1)):
                shutil.rmtree(server.data, ignore_errors=True)
                shutil.copytree(good, server.data)
                what = '%s: %s' % (file, flip(os.path.join(server.data, file), self.random, RAFT))
                yield file, what

    def starts(self, server):
        """Whether it serves. What it said when it does not is in server.process.output()."""
        server.launch()
        process = server.process
        process.asked_to_end = True
        wait_until(lambda: 'ready: ' in process.output() or not process.running(), 60, 'a start or a refusal')
        return process.running()

    def refused(self, server, what):
        """It ended by itself, in order and with a reason."""
        code = server.process.wait(60)
        self.assertGreater(code, 0, '%s: ended by signal %d: %s' % (what, -code, server.process.last_output()))
        self.assertTrue(server.process.output().strip(), what)

    def tally(self, seen):
        self.notes = ['%s: %d refused, %d harmless' % (f, r, h) for f, (r, h) in sorted(seen.items())]

    def flip_all(self, server, judge):
        seen = {}
        for file, what in self.each_flip(server):
            refused, harmless = seen.get(file, (0, 0))
            if self.starts(server) and judge(server, what):
                harmless += 1
                server.kill()
            else:
                self.refused(server, what)
                if not RAFT and os.path.dirname(file) == 'raft':
                    self.tells_of_damage(server, what)
                refused += 1
            seen[file] = refused, harmless
        self.tally(seen)
        self.assertGreater(sum(r for r, _ in seen.values()), 0, 'nothing was ever noticed: %r' % seen)

    def tells_of_damage(self, server, what):
        """A segment of the log or a snapshot is refused by its name, before the raft library saw it."""
        name = os.path.basename(what.split(':')[0])
        self.assertIn('a snapshot is damaged: ' if name.startswith('snapshot-') else 'the log is damaged: ',
                      server.process.output(), what)
        self.assertIn(name + ('' if name.endswith('.meta') else ':') if name.startswith('snapshot-') else name,
                      server.process.output(), what)

    def test_node(self):
        cluster = Cluster(self.lab, 1)
        node = cluster.nodes[0]
        early_snapshots(node, self.lab, GRANTS // 3)
        cluster.start()
        grant(node, 0, GRANTS)
        wait_until(lambda: node.info()['snapshots'] >= 2, 60, 'two snapshots')
        before = node.info()
        node.kill()

        def whole(node, what):
            def answers():
                if not node.process.running():
                    return True
                try:
                    return node.info()['node_role'] == 'leader' and node.call('CHECK', 'x', 1) == 0
                except Exception: # it may end at any moment
                    return False
            wait_until(answers, 60, '%s: a leader or an end' % what)
            if not node.process.running():
                return False
            info = node.info()
            for field in ('last_token', 'locks'):
                self.assertEqual(info[field], before[field], '%s: %s is served' % (what, field))
            self.assertEqual(node.call('CHECK', 'lock-%d' % (GRANTS - 1), GRANTS), 1, what)
            self.assertEqual(info['term'], before['term'], '%s: the term' % what)
            return True
        self.flip_all(node, whole)

    def three_nodes(self):
        cluster = Cluster(self.lab, 3)
        for node in cluster.nodes:
            early_snapshots(node, self.lab, 200)
        cluster.start()
        grant(cluster.leader(), 0, 450)
        return cluster

    def is_replaced(self, cluster, node):
        """As an operator does it: the disk is gone, the others forget the node, it comes back with nothing."""
        cluster.wipe(node)
        wait_until(lambda: cluster.leader().call('CLUSTER', 'FORGET', node.id) == 'OK', 60, 'the others to forget it')
        node.start()
        cluster.wait_serving(node)
        self.assertEqual(len(set(cluster.wait_same_state(60))), 1)

    def test_term_and_vote_are_not_taken_back(self):
        """What the raft library has on disk says that this node never heard of the present term."""
        cluster = Cluster(self.lab, 3)
        cluster.start()
        node = cluster.followers()[0]
        term = node.info()['term']
        node.kill()
        for name in ('metadata1', 'metadata2'):
            path = os.path.join(node.data, 'raft', name)
            with open(path, 'r+b') as f:
                _, version, _, _ = struct.unpack('<4Q', f.read())
                f.seek(0)
                f.write(struct.pack('<4Q', 1, version, 0, 0))
        node.start()
        self.assertIn('corrected from ', node.process.output())
        cluster.wait_serving(node)
        self.assertGreaterEqual(node.info()['term'], term)
        with open(os.path.join(node.data, 'raft', 'metadata1'), 'rb') as f:
            self.assertGreaterEqual(struct.unpack('<4Q', f.read())[2], term)

    def test_the_newest_snapshot_came_from_the_leader(self):
        """Its log begins behind the newest snapshot, and the raft library would take an older one, if it still has one, and
        number the entries as if they came behind that."""
        cluster = self.three_nodes()
        node = cluster.followers()[0]
        wait_until(lambda: node.info()['snapshots'] > 0, 60, 'a snapshot of its own')
        node.kill()
        grant(cluster.leader(), 450, 600)
        older = newest_snapshot(node)
        node.start()
        cluster.wait_serving(node)
        grant(cluster.leader(), 1050, 30)
        cluster.wait_same_state(60)
        node.kill()
        newest = newest_snapshot(node)
        self.assertNotEqual(older, newest)
        what = '%s: %s' % (newest + '.meta', flip(newest + '.meta', self.random))
        self.assertFalse(self.starts(node), what)
        self.refused(node, what)
        self.tells_of_damage(node, what)
        self.is_replaced(cluster, node)

    def test_a_leader_does_not_send_a_damaged_snapshot(self):
        """A follower could not be helped by it, and would not know whose disk it was."""
        cluster = self.three_nodes()
        follower = cluster.followers()[0]
        follower.kill()
        leader = cluster.leader()
        grant(leader, 450, 600)
        what = '%s: %s' % (newest_snapshot(leader), flip(newest_snapshot(leader), self.random))
        leader.process.asked_to_end = True
        follower.start()
        self.assertGreater(leader.process.wait(60), 0, what)
        self.assertIn('a snapshot is damaged: ', leader.process.output(), what)
        self.assertIn(os.path.basename(newest_snapshot(leader)).rpartition('-')[0], leader.process.output())
        self.assertTrue(follower.running())
        self.is_replaced(cluster, leader)

    def test_store(self):
        store = Store(self.lab).start()
        with store.client() as c:
            for i in range(KEYS):
                c.call('SET', 'key-%d' % i, 'value %d' % i, 'FENCE', 'lock-%d' % i, i + 1)
        store.kill()

        def whole(store, what):
            try:
                with store.client() as c:
                    for i in range(KEYS):
                        self.assertEqual(c.call('GET', 'key-%d' % i), b'value %d' % i, what)
                        self.assertEqual(c.call('MARK', 'lock-%d' % i), i + 1, what)
            except ConnectionError:
                return False
            return True
        self.flip_all(store, whole)


if __name__ == '__main__':
    main()
