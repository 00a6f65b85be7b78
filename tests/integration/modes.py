#!/usr/bin/python3
"""MODE SHARED and PERMITS on real nodes: order across nodes and through a change of leader, restarts, random readers and
writers judged by an oracle."""

import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, ClusterCase, RespError, main, seed, wait_until


def owner(n):
    return 'owner-%s-0123456789' % n


TTL = 600000


class Modes(ClusterCase):
    def setUp(self):
        super().setUp()
        self.cluster.steady() # one that is killed is replaced all the same

    def waiting(self, node, name, n, *args):
        c = node.client()
        self.addCleanup(c.close)
        c.send('ACQUIRE', name, 'TTL', TTL, 'OWNER', owner(n), 'WAIT', TTL, *args)
        return c

    def test_readers_and_writers_across_nodes_and_leaders(self):
        a, b, c = self.cluster.nodes
        first = a.call('ACQUIRE', 'x', 'TTL', TTL, 'OWNER', owner('r1'), 'MODE', 'SHARED')
        second = b.call('ACQUIRE', 'x', 'TTL', TTL, 'OWNER', owner('r2'), 'mode', 'shared')
        self.assertGreater(second, first)
        self.assertIsNone(c.call('ACQUIRE', 'x', 'TTL', TTL, 'OWNER', owner('w0')))
        leader = self.cluster.leader()
        others = [n for n in self.cluster.nodes if n is not leader]
        writer = self.waiting(others[0], 'x', 'w1')
        wait_until(lambda: leader.show('x')[b'waiters'] == 1, what='the writer in the queue')
        self.assertIsNone(a.call('ACQUIRE', 'x', 'TTL', TTL, 'OWNER', owner('r3'), 'MODE', 'SHARED'))
        readers = []
        for i, n in enumerate(('r3', 'r4')):
            readers.append(self.waiting(others[i], 'x', n, 'MODE', 'SHARED'))
            wait_until(lambda: leader.show('x')[b'waiters'] == 2 + i, what='the reader in the queue')
        shown = others[1].show('x')
        self.assertEqual((shown[b'mode'], shown[b'holders'], shown[b'permits']), (b'shared', 2, 1))
        self.assertEqual([h[b'token'] for h in shown[b'held_by']], [first, second])
        leader.kill() # holders and queue survive
        self.cluster.leader()
        self.assertEqual(others[0].call('RELEASE', 'x', first, timeout=30), 1)
        self.assertEqual(others[1].call('CHECK', 'x', second), 1)
        self.assertEqual(others[1].call('RELEASE', 'x', second), 1)
        third = writer.read(30)
        self.assertGreater(third, second)
        self.assertEqual(others[1].call('RELEASE', 'x', third), 1)
        tokens = [r.read(30) for r in readers]
        self.assertEqual(sorted(tokens), [third + 1, third + 2])
        self.assertEqual(others[0].show('x')[b'holders'], 2)
        leader.start()
        wait_until(lambda: leader.show('x')[b'holders'] == 2, what='the restarted node knows')

    def test_permits(self):
        nodes = self.cluster.nodes
        tokens = [nodes[i].call('ACQUIRE', 's', 'TTL', TTL, 'OWNER', owner(i), 'PERMITS', 3) for i in range(3)]
        self.assertEqual(tokens, sorted(set(tokens)))
        self.assertIsNone(nodes[0].call('ACQUIRE', 's', 'TTL', TTL, 'OWNER', owner(3), 'PERMITS', 3))
        for more in ((), ('PERMITS', 2), ('MODE', 'SHARED')):
            with self.assertRaises(RespError) as e:
                nodes[1].call('ACQUIRE', 's', 'TTL', TTL, 'OWNER', owner(4), *more)
            self.assertEqual(e.exception.word, 'MISMATCH')
        waiter = self.waiting(nodes[2], 's', 'w', 'PERMITS', 3)
        wait_until(lambda: nodes[0].show('s')[b'waiters'] == 1, what='the waiter in the queue')
        self.assertEqual(nodes[1].call('RELEASE', 's', tokens[1]), 1)
        self.assertGreater(waiter.read(), tokens[2])
        page = nodes[0].call('LOCKS', 'MATCH', 's')
        self.assertEqual(len(page[1]), 3)
        self.assertGreater(nodes[0].call('BREAK', 's'), max(tokens))
        self.assertIsNone(nodes[0].call('SHOW', 's'))

    def test_random_readers_and_writers(self):
        """Each client notes when it surely held; no writer's time may touch anybody else's, and more than n never
        hold a semaphore."""
        rng = random.Random(seed())
        held, failures, stop = [], [], threading.Event()

        def client(number, rng):
            try:
                with self.cluster.nodes[number % 3].client(PATIENCE_S) as c:
                    while not stop.is_set():
                        kind = rng.choice(('read', 'read', 'write', 'permit'))
                        name = 'sem' if kind == 'permit' else 'rw'
                        mode = {'read': ('MODE', 'SHARED'), 'write': (), 'permit': ('PERMITS', 3)}[kind]
                        token = c.call('ACQUIRE', name, 'TTL', TTL, 'OWNER', owner(number), 'WAIT', TTL, *mode)
                        got = time.monotonic()
                        time.sleep(rng.random() * 0.003)
                        gave = time.monotonic()
                        if c.call('RELEASE', name, token) != 1:
                            raise AssertionError('lost %s' % name)
                        held.append((kind, got, gave, token))
            except BaseException as e:
                failures.append(e)

        def judged():
            """How many readers, and holders of a permit, there were at a time."""
            most = {'read': 0, 'permit': 0}
            for kinds, limit in ((('read', 'write'), None), (('permit',), 3)):
                ends = []
                for kind, got, gave, token in sorted((h for h in list(held) if h[0] in kinds), key=lambda h: h[1]):
                    ends = [(k, until) for k, until in ends if until > got] + [(kind, gave)]
                    self.assertTrue(len(ends) == 1 or not any(k == 'write' for k, _ in ends), ends)
                    self.assertTrue(limit is None or len(ends) <= limit, ends)
                    if kind in most:
                        most[kind] = max(most[kind], len(ends))
            return most

        threads = [threading.Thread(target=client, args=(i, random.Random(rng.random()))) for i in range(12)]
        for t in threads:
            t.start()
        end = time.monotonic() + 8
        try: # for some time, and on a slow machine until several held at a time
            wait_until(lambda: failures or time.monotonic() > end and min(judged().values()) > 1, 'several at a time', every=0.5)
        finally:
            stop.set()
            for t in threads:
                t.join(PATIENCE_S)
        self.assertEqual(failures, [])
        self.assertEqual(len({h[3] for h in held}), len(held))
        most = judged()
        self.assertGreater(most['read'], 1)
        self.assertGreater(most['permit'], 1)
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)
        self.note('%d grants, up to %d readers and %d of 3 permits at a time' % (len(held), most['read'], most['permit']))


if __name__ == '__main__':
    main()
