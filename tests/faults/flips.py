#!/usr/bin/python3
"""Flips one bit in a file of a server, or removes the end of the file. Either the server notices and refuses to serve, or the bit meant
nothing and everything is there. It must never serve something else. There is one node alone, so that no other node can restore what it has lost.

All records of the log, term and vote among them, and all snapshots have checksums. Snapshots come early here, so that there
are some. Of three nodes one is lost to its damage; one that leads meets it when it sends its snapshot, and goes on.

FENCELOCK_FLIPS: how many in each file (default: 6; four times as many in the storage's).
FENCELOCK_SWEEP: instead, every bit of the first so many bytes of each file, as many random ones, a cut at each of the first and of
the last so many, and as many random cuts."""

import os
import random
import shutil
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib')]
sys.dont_write_bytecode = True
from faultlab.bits import cut, files_of, flip, flip_at
from harness import LONG_ELECTION_TIMEOUT, PATIENCE_S, Cluster, Lab, Store, main, seed, wait_until

FLIPS = int(os.environ.get('FENCELOCK_FLIPS') or 6)
SWEEP = int(os.environ.get('FENCELOCK_SWEEP') or 0)
GRANTS, KEYS = 300, 40
KEPT_ENTRIES = 256 # of its log, that a leader has in memory: NODE_LOG_KEPT_ENTRIES of src/node/node_private.h
SNAPSHOT_OPTIONS = ('--snapshot-bytes', 65536) # or 129 entries; 256 entries of log stay behind a snapshot


def newest_snapshot(server):
    """The path of the one that a node begins with."""
    folder = os.path.join(server.data, 'log')
    names = [n for n in os.listdir(folder) if n.startswith('snapshot-') and not n.endswith('.part')]
    return os.path.join(folder, max(names))


def asked(c, *words):
    """The answer; an election may be in the way. Only what may be done twice."""
    return wait_until(lambda: (c.call(*words),), 'an answer to %s' % words[0])[0]


def grant(node, first, n):
    with node.client(240) as c:
        for i in range(first, first + n):
            asked(c, 'ACQUIRE', 'lock-%d' % i, 'TTL', 86000000, 'OWNER', 'owner-of-this-lock-%d' % i)


class Flips(unittest.TestCase):
    def setUp(self):
        self.lab = Lab('flips')
        self.addCleanup(self.lab.quiet_close, keep=False)
        self.random = random.Random(seed())

    def flips_of(self, file, path):
        """What to do to a fresh copy of the file, one after the other."""
        for _ in range(SWEEP or FLIPS * (4 if file.startswith('fencelock.db') else 1)):
            yield lambda p: flip(p, self.random)
        for at in range(min(SWEEP, os.path.getsize(path))):
            for bit in range(8):
                yield lambda p, at=at, bit=bit: flip_at(p, at, bit)

    def cuts_of(self, file, path):
        size = os.path.getsize(path)
        ends = set(range(min(SWEEP, size))) | set(range(max(0, size - SWEEP), size)) # each of those, in a sweep
        for at in sorted({0, 1, size - 1} | ends | {self.random.randrange(size) for _ in range(SWEEP or FLIPS)}):
            yield lambda p, at=at: cut(p, at)

    def each_damage(self, server, damages_of):
        """The directory as it was, but for one damage to one file."""
        good = server.data + '.good'
        if not os.path.exists(good):
            os.rename(server.data, good)
        for file in files_of(good):
            for damage in damages_of(file, os.path.join(good, file)):
                shutil.rmtree(server.data, ignore_errors=True)
                shutil.copytree(good, server.data)
                what = damage(os.path.join(server.data, file))
                if what is not None:
                    yield file, '%s: %s' % (file, what)

    def starts(self, server):
        """Whether it serves. What it said when it does not is in server.process.output()."""
        server.launch()
        process = server.process
        process.asked_to_end = True
        wait_until(lambda: 'ready: ' in process.output() or not process.running(), 'a start or a refusal')
        return process.running()

    def refused(self, server, what):
        """It ended by itself, in order and with a reason."""
        code = server.process.wait(PATIENCE_S)
        self.assertGreater(code, 0, '%s: ended by signal %d: %s' % (what, -code, server.process.last_output()))
        self.assertTrue(server.process.output().strip(), what)

    def damage_all(self, server, judge):
        self.notes = []
        self.try_all(server, judge, self.flips_of, 'bits')
        self.try_all(server, judge, self.cuts_of, 'cuts')

    def try_all(self, server, judge, damages_of, kind):
        seen = {}
        for file, what in self.each_damage(server, damages_of):
            refused, harmless = seen.get(file, (0, 0))
            if self.starts(server) and judge(server, what):
                harmless += 1
                server.kill()
            else:
                self.refused(server, what)
                if os.path.dirname(file) == 'log':
                    self.assert_names_damage(server, what)
                refused += 1
            seen[file] = refused, harmless
        self.notes += ['%s of %s: %d refused, %d harmless' % (kind, f, r, h) for f, (r, h) in sorted(seen.items())]
        self.assertGreater(sum(r for r, _ in seen.values()), 0, 'nothing was ever noticed: %r' % seen)

    def assert_names_damage(self, server, what):
        """It names the file and the place in it."""
        name = os.path.basename(what.split(':')[0])
        self.assertIn(name, server.process.output(), what)
        self.assertRegex(server.process.output(), 'at byte [0-9]+', what)

    def test_node(self):
        cluster = Cluster(self.lab, 1, extra=SNAPSHOT_OPTIONS)
        node = cluster.nodes[0]
        cluster.start()
        grant(node, 0, GRANTS)
        wait_until(lambda: node.info()['snapshots'] >= 2, 'two snapshots')
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
            wait_until(answers, '%s: a leader or an end' % what)
            if not node.process.running():
                return False
            info = node.info()
            for field in ('last_token', 'locks'):
                self.assertEqual(info[field], before[field], '%s: %s is served' % (what, field))
            self.assertEqual(node.call('CHECK', 'lock-%d' % (GRANTS - 1), GRANTS), 1, what)
            # The only voter begins a term of its own with each start.
            self.assertEqual(info['term'], before['term'] + 1, '%s: the term' % what)
            return True
        self.damage_all(node, whole)

    def three_nodes(self, more=()):
        cluster = Cluster(self.lab, 3, extra=[*SNAPSHOT_OPTIONS, *more])
        cluster.start()
        grant(cluster.leader(), 0, 450)
        return cluster

    def is_replaced(self, cluster, node):
        """As an operator does it: the disk is gone, the others replace the node, it comes back with nothing."""
        cluster.wipe(node)
        cluster.replace(node)
        node.start()
        cluster.wait_serving(node)
        self.assertEqual(len(set(cluster.wait_same_state())), 1)

    def test_the_newest_snapshot_came_from_the_leader(self):
        """Its log begins behind the newest snapshot, so an older one would be of no use."""
        cluster = self.three_nodes()
        node = cluster.followers()[0]
        wait_until(lambda: node.info()['snapshots'] > 0, 'a snapshot of its own')
        node.kill()
        grant(cluster.leader(), 450, 1000)
        older = newest_snapshot(node)
        node.start()
        cluster.wait_serving(node)
        cluster.wait_same_state()
        self.assertIn('is installed', node.process.output())
        node.kill()
        newest = newest_snapshot(node)
        self.assertNotEqual(older, newest)
        what = '%s: %s' % (newest, flip(newest, self.random))
        self.assertFalse(self.starts(node), what)
        self.refused(node, what)
        self.assert_names_damage(node, what)
        self.is_replaced(cluster, node)

    def test_a_leader_does_not_send_a_damaged_snapshot(self):
        """It goes on, says so, counts it, takes another one, though nothing is new, and sends that."""
        cluster = self.three_nodes(LONG_ELECTION_TIMEOUT) # it is this leader that has to send
        leader, follower = cluster.leader(), cluster.followers()[0]
        follower.kill()
        grant(leader, 450, 1000)
        flipped = {}

        def told(): # the leader may be about to have a newer one, which must be damaged as well
            if any(os.path.basename(path) in leader.process.output() for path in flipped):
                return True
            path = newest_snapshot(leader)
            if path not in flipped:
                flipped[path] = flip(path, self.random)
            return False
        cluster.make_leader(leader)
        told()
        follower.start()
        wait_until(told, 'a word about a damaged snapshot')
        wait_until(lambda: leader.info()['snapshot_failures'] > 0, 'a failure that is counted')
        wait_until(lambda: follower.info()['applied_index'] >= leader.info()['applied_index'], 'a follower that is up to date')
        self.assertEqual(len(set(cluster.wait_same_state())), 1)
        self.assertTrue(leader.running())
        self.assertTrue(follower.running())

    def test_a_leader_meets_damage_in_its_log(self):
        """A follower lacks entries that the leader has to read back from disk, and that have changed there. It sends nothing of
        the kind: it ends and names the place, and the others go on with what they have."""
        cluster = Cluster(self.lab, 3, extra=LONG_ELECTION_TIMEOUT).start() # it is this leader that has to read
        leader = cluster.leader()
        follower, other = cluster.followers()
        with leader.client() as c:
            token = asked(c, 'ACQUIRE', 'kept', 'TTL', 86000000, 'OWNER', 'owner-of-this-lock')
        cluster.wait_same_state()
        follower.kill()
        path = os.path.join(leader.data, 'log', 'segment-0000000002')
        with leader.client(timeout=PATIENCE_S) as c:
            for _ in range(24): # 26 MB: 16 MiB of the log stay in memory, and at 32 MiB a snapshot is due
                c.pipeline([('ACQUIRE', 'large', 'TTL', 86000000, 'OWNER', 'owner-of-this-lock', 'VALUE', b'v' * 1024)] * 1000)
                asked(c, 'RELEASE', 'large', asked(c, 'ACQUIRE', 'large', 'TTL', 86000000, 'OWNER', 'owner-of-this-lock'))
            # A busy leader puts a thousand commands into one entry; so it is these that fill what it keeps in memory.
            for _ in range(KEPT_ENTRIES // 2 + 1):
                asked(c, 'RELEASE', 'large', asked(c, 'ACQUIRE', 'large', 'TTL', 86000000, 'OWNER', 'owner-of-this-lock'))
        for _ in range(40):
            what = '%s: %s' % (path, flip(path, self.random))
        leader.process.asked_to_end = True
        follower.start()

        def ended(): # also before: what the follower lacks is read while it is down, too
            if leader.running():
                cluster.request_leadership(leader)
            return not leader.running()
        wait_until(ended, 'the end of the leader: %s' % what)
        self.assertGreater(leader.process.wait(PATIENCE_S), 0, what)
        self.assertIn(os.path.basename(path), leader.process.output())
        cluster.wait_serving(other)
        cluster.wait_same_state()
        with follower.client() as c:
            self.assertEqual(asked(c, 'CHECK', 'kept', token), 1)
        self.is_replaced(cluster, leader)

    def test_store(self):
        store = Store(self.lab).start()
        with store.client() as c:
            for i in range(KEYS):
                c.call('SET', 'key-%d' % i, 'value %d' % i, 'FENCE', 'lock-%d' % i, i + 1)
        store.kill()

        def whole(store, what):
            try:
                with store.client(240) as c:
                    for i in range(KEYS):
                        self.assertEqual(c.call('GET', 'key-%d' % i), b'value %d' % i, what)
                        self.assertEqual(c.call('MARK', 'lock-%d' % i), i + 1, what)
            except ConnectionError:
                return False
            return True
        self.damage_all(store, whole)


if __name__ == '__main__':
    main()
