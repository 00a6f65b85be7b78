#!/usr/bin/python3
"""ACQUIRE ... ALSO on real nodes: all or none, one token, one place in every queue; across nodes, through a change of
leader and restarts; many clients that want the same locks in opposite orders while leaders are killed."""

import os
import random
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, ClusterCase, RespError, main, seed, wait_until


def owner(n):
    return 'owner-%s-0123456789' % n


def several(names):
    """The arguments of ACQUIRE that name these locks."""
    return [names[0], *(a for n in names[1:] for a in ('ALSO', n))]


class Multi(ClusterCase):
    STEADY = True

    def waiting(self, node, names, n):
        c = node.client()
        self.addCleanup(c.close)
        c.send('ACQUIRE', *several(names), 'TTL', 600000, 'OWNER', owner(n), 'WAIT', 600000)
        return c

    def test_one_grant_across_nodes_and_leaders(self):
        a, b, _ = self.cluster.nodes
        token = a.call('ACQUIRE', *several('xy'), 'TTL', 600000, 'OWNER', owner('a'))
        self.assertEqual(b.call('ACQUIRE', *several('yx'), 'TTL', 600000, 'OWNER', owner('a')), token)
        with self.assertRaises(RespError) as e:
            b.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', owner('a'))
        self.assertEqual(e.exception.word, 'MISMATCH')
        leader = self.cluster.leader()
        others = [n for n in self.cluster.nodes if n is not leader]
        first = self.waiting(others[0], 'yz', 'b')
        wait_until(lambda: leader.show('y')[b'waiters'] == 1, what='the first waiter')
        second = self.waiting(others[1], 'zy', 'c')
        wait_until(lambda: leader.show('y')[b'waiters'] == 2, what='the second waiter')
        single = self.waiting(others[0], 'z', 'd') # z is free, but others are before
        wait_until(lambda: leader.show('z')[b'waiters'] == 3, what='the third waiter')
        self.assertIsNone(leader.call('ACQUIRE', 'z', 'TTL', 600000, 'OWNER', owner('e')))
        shown = others[0].show('z')
        self.assertEqual((shown[b'state'], shown[b'holders']), (b'queued', 0))
        self.assertEqual([w[b'together'] for w in shown[b'queue']], [2, 2, 1])
        self.assertEqual(others[1].show('x')[b'together'], 2)
        # A node that has not yet heard that its client is in the queue could only answer UNCERTAIN.
        wait_until(lambda: [n.info()['blocked_clients'] for n in others] == [2, 1], 'three waiters known to their nodes')
        leader.kill() # grant and queues survive
        self.cluster.leader()
        self.assertEqual(others[0].call('CHECK', 'x', token), 1)
        self.assertEqual(others[1].call('RELEASE', 'y', token), 1) # both of them
        self.assertIsNone(others[1].show('x'))
        t = first.read()
        self.assertGreater(t, token)
        self.assertEqual([others[1].call('CHECK', n, t) for n in 'yz'], [1, 1])
        self.assertEqual(others[0].call('RELEASE', 'z', t), 1)
        u = second.read()
        self.assertGreater(u, t)
        burnt = others[1].call('BREAK', 'y') # takes z away as well
        v = single.read()
        self.assertTrue(u < burnt < v, (u, burnt, v))
        self.assertGreater(v, u + 1)
        self.assertEqual(others[0].call('CHECK', 'z', u), 0)
        self.assertEqual(others[0].call('RELEASE', 'z', v), 1)

    def test_all_is_there_after_a_restart(self):
        node = self.cluster.nodes[0]
        names = ['n%02d' % i for i in range(16)]
        token = node.call('ACQUIRE', *several(names), 'TTL', 6000000, 'OWNER', owner('a'))
        wait = self.waiting(node, list(reversed(names)), 'b')
        wait_until(lambda: node.show(names[7])[b'waiters'] == 1, what='the waiter')
        for n in self.cluster.nodes:
            n.kill()
        wait.close()
        for n in self.cluster.nodes:
            n.start()
        self.cluster.leader()
        again = self.waiting(self.cluster.nodes[1], names, 'b')
        self.assertEqual([node.call('CHECK', n, token) for n in names], [1] * 16)
        self.assertEqual(node.call('RELEASE', names[9], token), 1)
        t = again.read()
        self.assertGreater(t, token)
        self.assertEqual([node.call('CHECK', n, t) for n in names], [1] * 16)
        self.cluster.wait_same_state()

    def test_events_of_each_lock(self):
        a, b, _ = self.cluster.nodes
        sub = b.client()
        self.addCleanup(sub.close)
        sub.call('PSUBSCRIBE', 'lock:ev*')
        token = a.call('ACQUIRE', *several(['ev2', 'ev1']), 'TTL', 600000, 'OWNER', owner('a'))
        self.assertEqual(a.call('RELEASE', 'ev1', token), 1)
        seen = []
        for _ in range(4):
            _, _, channel, text = sub.read()
            words = dict(w.split(b'=', 1) for w in text.split())
            seen.append((channel, words[b'event'], int(words[b'token'])))
        self.assertEqual(seen, [(b'lock:ev2', b'granted', token), (b'lock:ev1', b'granted', token),
                                (b'lock:ev2', b'released', token), (b'lock:ev1', b'released', token)])


class Crowd:
    """Clients that each take some locks, in an order of their own, again and again. Judged from outside: nobody else holds
    one of them meanwhile, and no token comes twice."""

    def __init__(self, cluster, clients, rounds):
        self.cluster, self.rounds = cluster, rounds
        self.lock = threading.Lock()
        self.holders, self.tokens, self.wrong, self.done = {}, set(), [], 0
        self.threads = [threading.Thread(target=self.guarded, args=(i,), daemon=True) for i in range(clients)]

    def ask(self, random_, state, *args):
        """One answer to the very same request, whatever it takes."""
        while True:
            try:
                if state.get('c') is None:
                    state['c'] = random_.choice(self.cluster.nodes).client(timeout=90)
                return state['c'].call(*args)
            except RespError as e:
                if e.word not in ('UNCERTAIN', 'NOLEADER', 'BUSY'):
                    raise
            except OSError:
                if state.get('c') is not None:
                    state['c'].close()
                state['c'] = None
                threading.Event().wait(0.05)

    def guarded(self, number):
        try:
            self.run(number)
        except Exception as e: # shown by the test
            self.wrong.append('client %d: %r' % (number, e))

    def run(self, number):
        random_, state = random.Random(seed() * 1000 + number), {}
        for i in range(self.rounds):
            names = random_.sample('ABCD', random_.choice((1, 2, 2, 2, 3)))
            token = self.ask(random_, state, 'ACQUIRE', *several(names), 'TTL', 300000,
                             'OWNER', owner('%d-%d' % (number, i)), 'WAIT', 6000000)
            with self.lock:
                if token is None or token in self.tokens or any(self.holders.get(n) for n in names):
                    self.wrong.append('%r for %r, held by %r' % (token, names, self.holders))
                self.tokens.add(token)
                self.holders.update((n, number + 1) for n in names)
            if random_.random() < 0.2:
                n = random_.choice(names)
                if self.ask(random_, state, 'CHECK', n, token) != 1:
                    self.wrong.append('%s is not held under %d' % (n, token))
            with self.lock:
                self.holders.update((n, None) for n in names)
                self.done += 1
            self.ask(random_, state, 'RELEASE', random_.choice(names), token)
        if state.get('c') is not None:
            state['c'].close()


class OppositeOrders(Case):
    def test_nobody_waits_for_ever_while_leaders_are_killed(self):
        cluster = Cluster(self.lab, 3).start()
        crowd = Crowd(cluster, clients=24, rounds=25)
        for t in crowd.threads:
            t.start()
        for part in (0.25, 0.6):
            wait_until(lambda: crowd.wrong or crowd.done >= part * 24 * 25, 'a part of the rounds')
            leader = cluster.leader()
            leader.kill()
            leader.start()
        for t in crowd.threads:
            t.join(PATIENCE_S)
        self.assertEqual(crowd.wrong, [])
        self.assertEqual((crowd.done, len(crowd.tokens)), (24 * 25, 24 * 25))
        self.assertFalse([t for t in crowd.threads if t.is_alive()])
        node = cluster.nodes[0]
        wait_until(lambda: all(node.call('SHOW', n) is None for n in 'ABCD'), 'nothing held or awaited')
        cluster.wait_same_state()


if __name__ == '__main__':
    main()
