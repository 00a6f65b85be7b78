#!/usr/bin/python3
"""Lock libraries that were written for Redis, unmodified, at the front door of three nodes: taking, contending, prolonging,
expiring, giving back too late, fencing tokens, a leader that is killed, and sixteen clients at once on a counter behind
fencelock-store. Each library is installed by its own package manager, and skipped, with the reason, where that cannot be
done."""

import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Case, Cluster, RespError, Store, main, wait_until
from redlock_peers_lab import Peer, Unavailable

TTL = 60000
SHORT = 1000  # python-redis-lock counts in whole seconds


class Library(Case):
    """One library. The checks run one after the other on one cluster, since libraries take a while to begin."""

    name = None
    key_format = '%s'
    extends = True
    tells_token = True

    def peer(self, node, name):
        try:
            peer = Peer(self.name, [node], self.lab.path(name + '.log'))
        except Unavailable as e:
            self.skipTest(str(e))
        self.addCleanup(peer.close)
        return peer

    def lock(self, peer, key, ttl_ms=TTL):
        """A lock that is free. A library may give up in the middle of an election."""
        answers = []

        def held():
            answers.append(peer('lock', key, ttl_ms))
            return answers[-1] == 'held'
        try:
            wait_until(held, 60, '%s gets %s' % (self.name, key))
        except AssertionError as e:
            raise AssertionError('%s: %s' % (e, answers[-1:])) from None

    def value(self, key):
        return self.cluster.running()[0].call('GET', self.key_format % key, timeout=30)

    def token(self, peer, key):
        if self.tells_token:
            answer = peer('token')
            return None if answer == 'none' else int(answer.split()[1])
        value = self.value(key)
        return value and self.cluster.running()[0].call('LOCKTOKEN', self.key_format % key, value, timeout=30)

    def gone(self, key):
        wait_until(lambda: self.value(key) is None, 60, 'the end of the lease of ' + key)

    def check_contention(self, a, b):
        self.lock(a, 'one')
        self.assertEqual(b('lock', 'one', TTL), 'refused')
        first = self.token(a, 'one')
        self.assertGreater(first, 0)
        if self.extends:
            self.assertEqual(a('extend', TTL), 'held')
            self.assertEqual(self.token(a, 'one'), first)
        self.assertIn(a('unlock'), ('freed', 'done'))
        self.assertIsNone(self.value('one'))
        self.lock(b, 'one')
        self.assertGreater(self.token(b, 'one'), first)
        self.assertIn(b('unlock'), ('freed', 'done'))

    def check_lateness(self, a, b):
        self.lock(a, 'late', SHORT)
        self.gone('late')
        self.lock(b, 'late')
        theirs, token = self.value('late'), self.token(b, 'late')
        if self.extends:
            self.assertEqual(a('extend', TTL), 'lost')
        a('unlock')  # says what it likes
        self.assertEqual(self.value('late'), theirs)
        self.assertEqual(self.token(b, 'late'), token)
        self.assertIn(b('unlock'), ('freed', 'done'))
        self.assertIsNone(self.value('late'))

    def check_dead_leader(self, a, b):
        """Both talk to nodes that stay; what was taken before stays taken, with its token."""
        self.lock(a, 'through')
        token = self.token(a, 'through')
        self.leader.kill()
        answer = b('lock', 'through', TTL)
        self.assertTrue(answer == 'refused' or answer.startswith('error'), answer)
        self.cluster.leader()
        self.assertEqual(self.token(a, 'through'), token)
        self.assertEqual(b('lock', 'through', TTL), 'refused')
        self.assertIn(a('unlock'), ('freed', 'done'))
        self.lock(b, 'through')
        self.assertGreater(self.token(b, 'through'), token)
        self.assertIn(b('unlock'), ('freed', 'done'))

    def test_it(self):
        if self.name is None:
            return  # what the others have in common
        self.cluster = Cluster(self.lab, 3).start()
        self.leader = self.cluster.leader()
        near, far = self.cluster.followers()
        a, b = self.peer(near, 'a'), self.peer(far, 'b')
        self.check_contention(a, b)
        self.check_lateness(a, b)
        self.check_dead_leader(a, b)


class RedlockPy(Library):
    name = 'redlock-py'
    extends = False


class Pottery(Library):
    name = 'pottery'
    key_format = 'redlock:%s'


class RedisPy(Library):
    name = "redis-py's Lock"


class RedisPy5(Library):
    name = "redis-py's Lock 5"


class RedisPyDebian(Library):
    name = "redis-py's Lock (Debian)"


class PythonRedisLock(Library):
    name = 'python-redis-lock'
    key_format = 'lock:%s'

    def check_contention(self, a, b):
        super().check_contention(a, b)
        # Who waits, through BLPOP, is woken by the one who gives the lock back, and not by the end of the lease.
        self.lock(a, 'awaited')
        woken = []
        waiter = threading.Thread(target=lambda: woken.append(b('wait', 'awaited', TTL)))
        waiter.start()
        wait_until(lambda: any(int(n.info()['blocked_clients']) > 0 for n in self.cluster.nodes), 30, 'the other one waits')
        self.assertEqual(a('unlock'), 'freed')
        waiter.join(30)
        self.assertEqual(woken, ['held'])
        self.assertEqual(b('unlock'), 'freed')


class Aioredlock(Library):
    name = 'aioredlock'


class Node4(Library):
    name = 'node-redlock 4'


class Node5(Library):
    name = 'node-redlock 5'


class Redsync(Library):
    name = 'redsync'


class Redislock(Library):
    name = 'bsm/redislock'


class Rslock(Library):
    name = 'rslock'
    tells_token = False


class RedlockRb(Library):
    name = 'redlock-rb'
    tells_token = False


class RedlockPhp(Library):
    name = 'redlock-php'
    extends = False
    tells_token = False


class Node5Sentinel(Library):
    """ioredis looks for the master among all nodes, and finds the new one when that dies."""

    name = 'node-redlock 5, sentinel'

    def peer(self, node, name):
        class All:
            address = ','.join(self.cluster.addresses())
        return super().peer(All, name)

    def check_dead_leader(self, a, b):
        self.lock(a, 'through')
        token = self.token(a, 'through')
        self.leader.kill()
        self.cluster.leader()
        wait_until(lambda: b('lock', 'through', TTL) == 'refused', 60, 'the other one is served')
        wait_until(lambda: a('token') == 'token %d' % token, 60, 'the token as it was')
        self.assertIn(a('unlock'), ('freed', 'done'))


class Counter(Case):
    def test_sixteen_clients_and_a_counter(self):
        """Read, add one, write, with the token that each got through its library; leaders are killed meanwhile. What
        was acknowledged is there in the end."""
        cluster = Cluster(self.lab, 3).start()
        store = Store(self.lab).start()
        added, refused, failures, stop = [], [], [], threading.Event()
        peers = []
        for i in range(16):
            try:
                peers.append(Peer('redlock-py', [cluster.nodes[i % 3]], self.lab.path('client%d.log' % i)))
            except Unavailable as e:
                self.skipTest(str(e))
            self.addCleanup(peers[-1].close)

        def once(peer, c):
            if peer('lock', 'counter', 2000) != 'held':  # that of a client whose node dies must end
                return
            answer = peer('token')
            if answer.startswith('token'):
                token = int(answer.split()[1])
                try:
                    value = int(c.call('GET', 'n', 'FENCE', 'counter', token) or 0)
                    c.call('SET', 'n', value + 1, 'FENCE', 'counter', token)
                    added.append(token)
                except RespError as e:
                    if e.word != 'STALE':
                        raise
                    refused.append(token)
            peer('unlock')

        def client(peer):
            try:
                with store.client(30) as c:
                    while not stop.is_set():
                        once(peer, c)
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=client, args=(peer,)) for peer in peers]
        for t in threads:
            t.start()
        for goal in (30, 60):
            wait_until(lambda: len(added) >= goal or failures, 60, '%d additions' % goal)
            leader = cluster.leader()
            leader.kill()
            wait_until(lambda: len(added) >= goal + 10 or failures, 60, 'additions without a node')
            leader.start()
        stop.set()
        for t in threads:
            t.join(90)
        self.assertEqual(failures, [])
        self.assertEqual(len(set(added)), len(added))
        self.assertEqual(int(store.call('GET', 'n')), len(added))
        self.note('%d additions, %d refused' % (len(added), len(refused)))


if __name__ == '__main__':
    main()
