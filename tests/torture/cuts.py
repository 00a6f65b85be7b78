#!/usr/bin/python3
"""Cuts the power at each write, sync, making or renaming of a file, in turn: while a node makes its directory and forms a cluster, or starts
again; while the storage opens, and while it commits. An undisturbed run counts the calls. Then the process is killed at the first call,
the second, and so on; what it had not synced is taken back, of a write before a sync a part, and it must start again with all that it had acknowledged. A storage that was killed without a power cut, opened and read must keep what was read.

    tests/torture/cuts.py -k node_again --only 12   the twelfth call of each kind, to repeat a failure"""

import os
import random
import sys
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib')]
sys.dont_write_bytecode = True
from harness import PATIENCE_S, Case, Cluster, RespError, Store, main, seed, wait_until
from shim import KILLED_BEFORE, KILLED_AFTER, Shim, library

ONLY = 0
if '--only' in sys.argv:
    ONLY = int(sys.argv.pop(sys.argv.index('--only') + 1))
    sys.argv.remove('--only')
KINDS = ('write', 'sync', 'name')


@unittest.skipUnless(library(), 'the shim is not built')
@unittest.skipIf(os.environ.get('FENCELOCK_SHORT'), 'the build without sanitizers does it')
class Cuts(Case):
    TIMEOUT_S = 1200

    def setUp(self):
        super().setUp()
        self.random, self.number, self.points, self.tried = random.Random(seed()), 0, 0, 0

    # -- servers ----------------------------------------------------------------------------------------
    def node(self, witness=False):
        self.number += 1
        cluster = Cluster(self.lab, 1)
        node = cluster.nodes[0]
        node.extra = ['--witness', self.lab.path('witness-%d' % self.number)] if witness else []
        node.data = self.lab.path('node-%d' % self.number)
        node.name = 'node-%d' % self.number
        node.shim = Shim(self.lab.path('shim-%d' % self.number), node.data, journal=True)
        node.serves = lambda: self.wait_for_token(node)
        return node

    @staticmethod
    def wait_for_token(node):
        """Until it serves, or is dead."""
        def serves():
            try:
                return not node.running() or node.call('TOKEN', 'any', timeout=2.0) > 0
            except (OSError, RespError):
                return False
        wait_until(serves, '%s to serve' % node.name)

    def store(self):
        self.number += 1
        store = Store(self.lab, 'store-%d' % self.number)
        store.shim = Shim(self.lab.path('shim-%d' % self.number), store.data, journal=True)
        store.serves = lambda: None
        return store

    def begin(self, server, kind=None, number=0):
        """One more life, which ends at that call, if it comes to it."""
        server.shim.reset()
        if number:
            server.shim.fail(kind, number, KILLED_BEFORE)
        server.process = self.lab.start(server.argv(), server.name, env=server.shim.env())
        server.process.asked_to_end = True # it may die at any moment

    def died(self, server, kind):
        if kind is None or not server.shim.failed(kind):
            return False
        wait_until(lambda: not server.running(), 'the end of %s' % server.name)
        return True

    def use(self, server, kind, number, what, told):
        """Runs `what` in such a life. Whether it ended there."""
        self.begin(server, kind, number)
        try:
            server.wait_ready()
            server.serves()
            what(server, told)
        except (AssertionError, OSError, RespError):
            if not self.died(server, kind):
                raise
        return self.died(server, kind)

    def lose_power(self, server, some=False, torn=False):
        if server.running():
            server.kill()
        server.shim.lose_unsynced(self.random if some else None, self.random if torn else None)

    def comes_again(self, server, has, told, words):
        self.begin(server)
        try:
            server.wait_ready()
            server.serves()
        except AssertionError as e:
            self.fail('%s, and then it does not start: %s' % (words, e))
        has(server, told, words)
        server.kill()

    # -- all points -------------------------------------------------------------------------------------
    def at_each(self, make, first, what, has):
        """make: a server; first(server, told): what it had done before, or None; what: what it does until the power goes."""
        calls = {}
        plain, told = make(), {}
        if first:
            self.use(plain, None, 0, first, told)
            plain.kill()
        self.assertFalse(self.use(plain, KINDS[0], 0, what, told))
        for kind in KINDS:
            calls[kind] = plain.shim.calls(kind)
        plain.kill()
        for kind in KINDS:
            self.points += calls[kind]
            for number in [ONLY] if ONLY else range(1, calls[kind] + 1):
                server, told = make(), {}
                if first:
                    self.use(server, None, 0, first, told)
                    server.kill()
                    server.shim.forget_journal()
                if not self.use(server, kind, number, what, told):
                    server.kill()
                    continue # a few calls more or less are made each time
                self.lose_power(server, some=number % 2 == 0, torn=kind == 'sync')
                self.comes_again(server, has, told, 'the power goes at %s number %d' % (kind, number))
                self.tried += 1
        self.assertGreater(self.tried, 0 if ONLY else len(KINDS), 'no power went')
        self.note('%d points, the power went at %d' % (self.points, self.tried))

    # -- what they do -----------------------------------------------------------------------------------
    @staticmethod
    def take_locks(node, told):
        with node.client(timeout=PATIENCE_S) as c:
            for i in range(3):
                name = 'lock-%d-%d' % (i, len(told))
                told[name] = c.call('ACQUIRE', name, 'TTL', 600000, 'OWNER', 'owner-number-%09d' % len(told))

    def node_has(self, node, told, words):
        for name, token in told.items():
            self.assertEqual(node.call('CHECK', name, token), 1, '%s: %s was acknowledged' % (words, name))
        self.assertGreater(node.call('TOKEN', 'after'), max(told.values(), default=0), words)

    @staticmethod
    def write(store, told):
        with store.client(timeout=PATIENCE_S) as c:
            for i in range(3):
                token = max(told.values(), default=0) + 1
                c.call('SET', 'key-%d' % i, 'value-%d' % token, 'FENCE', 'lock-%d' % i, token)
                told['lock-%d' % i] = token

    def store_has(self, store, told, words):
        for lock, token in told.items():
            self.assertGreaterEqual(store.call('MARK', lock), token, '%s: a write for %s was acknowledged' % (words, lock))

    # -- tests ------------------------------------------------------------------------------------------
    def test_node_forming(self):
        self.at_each(self.node, None, self.take_locks, self.node_has)

    def test_node_with_a_witness(self):
        """What the witness has of a start is in the directory: the power takes nothing from the witness's disk."""
        self.at_each(lambda: self.node(witness=True), self.take_locks, self.take_locks, self.node_has)

    def test_node_again(self):
        self.at_each(self.node, self.take_locks, self.take_locks, self.node_has)

    def test_store_new(self):
        self.at_each(self.store, None, self.write, self.store_has)

    def test_store_again(self):
        self.at_each(self.store, self.write, self.write, self.store_has)

    def test_store_keeps_what_was_read(self):
        """Killed in the midst of a commit, opened again and read, and only then the power goes."""
        told, calls, seen_late = {}, {}, 0
        plain = self.store()
        self.use(plain, None, 0, self.write, told)
        before = {kind: plain.shim.calls(kind) for kind in ('write', 'sync')}
        self.write(plain, told)
        for kind, n in before.items():
            calls[kind] = plain.shim.calls(kind) - n
        plain.kill()
        for kind, error, n in (('write', KILLED_BEFORE, calls['write']), ('write', KILLED_AFTER, calls['write']), ('sync', KILLED_BEFORE, calls['sync'])):
            for number in range(1, n + 1):
                store, told = self.store(), {}
                self.use(store, None, 0, self.write, told)
                store.shim.fail(kind, number, error)
                try:
                    self.write(store, told)
                except (OSError, RespError):
                    pass
                if not self.died(store, kind):
                    store.kill()
                    continue
                self.begin(store)
                store.wait_ready()
                read = {'lock-%d' % i: store.call('MARK', 'lock-%d' % i) for i in range(3)}
                values = {'key-%d' % i: store.call('GET', 'key-%d' % i) for i in range(3)}
                seen_late += any(read[lock] > token for lock, token in told.items())
                self.lose_power(store)
                words = 'killed at %s number %d of a commit, read, and then the power goes' % (kind, number)
                self.comes_again(store, self.store_has, {lock: mark for lock, mark in read.items() if mark}, words)
                self.begin(store)
                store.wait_ready()
                self.assertEqual(values, {key: store.call('GET', key) for key in values}, words)
                store.kill()
                self.tried += 1
        self.assertGreater(self.tried, 3)
        self.assertGreater(seen_late, 0, 'no commit was seen that was not acknowledged')
        self.note('%d commits were cut, of which %d were read' % (self.tried, seen_late))


if __name__ == '__main__':
    main()
