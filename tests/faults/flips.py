#!/usr/bin/python3
"""One bit turned around in what a server has on disk: the server notices and refuses to serve, or that bit meant nothing and
everything is there. It never serves something else. One node alone, so that nobody can tell it what it has lost.

Of the files of the raft library the segments of the log are among them, but for the last batch of entries of an open one, whose
damage cannot be told from a torn write (src/consensus/segments.h). Its record of term and vote is left out, since it has no
checksum. --raft tries these two as well.

FENCELOCK_FLIPS: how many in each file (default: 6; four times as many in the storage's)."""

import os
import random
import shutil
import struct
import sys
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib')]
sys.dont_write_bytecode = True
from harness import Cluster, Lab, Store, main, seed, wait_until

FLIPS = int(os.environ.get('FENCELOCK_FLIPS') or 6)
GRANTS, KEYS = 300, 40
RAFT = '--raft' in sys.argv
if RAFT:
    sys.argv.remove('--raft')


def is_written(path):
    with open(path, 'rb') as f:
        return any(f.read())


def files_of(top):
    found = []
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and name not in ('lock', 'lock.mdb') and (RAFT or not name.startswith('metadata')) \
                    and is_written(path):
                found.append(os.path.relpath(path, top))
    return sorted(found)


def end_of(path, data):
    """Up to where a bit is turned around: all of it, or in an open segment what comes before the last batch."""
    if RAFT or not os.path.basename(path).startswith('open-'):
        return len(data)
    at, last = 8, 8
    while at + 16 <= len(data):
        n, = struct.unpack_from('<Q', data, at + 8)
        if not n:
            break
        last = at
        at += 16 + sum(16 + struct.unpack_from('<I', data, at + 16 + 16 * i + 12)[0] for i in range(n))
    return last


def flip(path, rng):
    """Turns a bit around in a byte that is not zero, since most of a file may never have been written. Says which."""
    with open(path, 'r+b') as f:
        data = f.read()
        end = len(data[:end_of(path, data)].rstrip(b'\0'))
        at = rng.randrange(end)
        while not data[at]:
            at = rng.randrange(end)
        bit = rng.randrange(8)
        f.seek(at)
        f.write(bytes([data[at] ^ 1 << bit]))
    return 'bit %d of byte %d' % (bit, at)


class Flips(unittest.TestCase):
    def setUp(self):
        self.lab = Lab('flips')
        self.addCleanup(self.lab.quiet_close, keep=False)
        self.random = random.Random(seed())

    def each_flip(self, server):
        """For every file some flips: the directory is as it was, but for one bit."""
        good = server.data + '.good'
        os.rename(server.data, good)
        for file in files_of(good):
            for _ in range(FLIPS * (4 if file == 'data.mdb' else 1)):
                shutil.rmtree(server.data, ignore_errors=True)
                shutil.copytree(good, server.data)
                what = '%s: %s' % (file, flip(os.path.join(server.data, file), self.random))
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
        """A segment of the log is refused by its name, before the raft library saw it."""
        self.assertIn('the log is damaged: ', server.process.output(), what)
        self.assertIn(os.path.basename(what.split(':')[0]), server.process.output(), what)

    def test_node(self):
        cluster = Cluster(self.lab, 1).start()
        node = cluster.nodes[0]
        with node.client() as c:
            for i in range(GRANTS):
                c.call('ACQUIRE', 'lock-%d' % i, 'TTL', 86000000, 'OWNER', 'owner-of-this-lock-%d' % i)
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
            return True
        self.flip_all(node, whole)

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
