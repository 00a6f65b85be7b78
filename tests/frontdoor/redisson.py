#!/usr/bin/python3
"""Redisson's locks, unmodified, at the front door of three nodes: the newest release, the newest of the major before it, and
one from before releases of a lock were told apart. Taking, taking twice, contending, waiting threads, the watchdog, expiring,
giving back too late, forced releases, fencing tokens, a leader that is killed, Sentinel, TLS and a user, and sixteen owners at
once on a counter behind fencelock-store. Skipped, with the reason, where Maven cannot install it."""

import os
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from counter_load import CounterLoad
from harness import LONG_ELECTION_TIMEOUT, PATIENCE_S, Case, Cluster, Store, as_dict, main, wait_until
from harness.lab import free_ports
from redlock_peers_lab import Ended, Peer, Unavailable
from tls_lab import Certs

TTL = 60000
WATCHDOG = '9000' # renewed when a third of it has passed, so a client may stand still for two thirds
PASSWORD = 'the-password-of-redisson'


class At:
    """Addresses that are given to the library as one."""

    def __init__(self, *addresses):
        self.address = ','.join(addresses)


class Redisson(Case):
    """One release. What its classes have in common with others is tested once each."""

    TIMEOUT_S = 1400 # installing is part of it
    name = None
    fenced = True
    lease = TTL  # of several locks at once; -1: the watchdog's

    def peer(self, at, name, *more):
        try:
            peer = Peer(self.name, [at], self.lab.path(name + '.log'), *more)
        except Unavailable as e:
            self.skipTest(str(e))
        self.addCleanup(peer.close)
        return peer

    def cluster_of_three(self, extra=LONG_ELECTION_TIMEOUT):
        self.cluster = Cluster(self.lab, 3, extra).start()
        self.leader = self.cluster.leader()
        return self.cluster.followers()

    def node(self):
        return self.cluster.running()[0]

    def shown(self, key):
        answer = self.node().call('SHOW', key, timeout=30)
        return None if answer is None else as_dict(answer)

    def token(self, peer):
        answer = peer('token')
        return None if answer == 'none' else int(answer.split()[1])

    def check_taking_twice(self, a, b):
        self.assertEqual(a('lock', 'x', TTL), 'held')
        owner, token = a('owner'), self.token(a)
        shown = self.shown('x')
        self.assertEqual((shown['owner'], shown['token'], shown['value']), (owner, token, '1'))
        self.assertEqual(self.node().call('LOCKTOKEN', 'x', owner), token)
        self.assertEqual(b('lock', 'x', TTL), 'refused')
        self.assertEqual(a('as', 'another', 'lock', 'x', TTL), 'refused')  # a thread of the same process
        self.assertEqual(a('lock', 'x', TTL), 'held')
        self.assertEqual((a('count'), self.token(a)), ('2', token))
        self.assertEqual((a('mine'), b('locked', 'x')), ('true', 'true'))
        self.assertTrue(0 < int(b('left', 'x')) <= TTL)
        self.assertEqual((a('unlock'), a('count')), ('freed', '1'))
        self.assertEqual(b('lock', 'x', TTL), 'refused')
        self.assertEqual((a('unlock'), a('unlock')), ('freed', 'lost'))
        self.assertIsNone(self.shown('x'))
        self.assertEqual(b('lock', 'x', TTL), 'held')
        self.assertGreater(self.token(b), token)
        self.assertEqual(a('unlock'), 'lost')  # not his
        self.assertEqual(b('unlock'), 'freed')

    def check_waiting(self, a, b):
        """Whoever waits is woken by the one who gives it back, and not by the end of the lease; and by an operator."""
        for end in ('unlock', 'break'):
            self.assertEqual(a('lock', 'awaited', TTL), 'held')
            woken = []
            waiter = threading.Thread(target=lambda: woken.append(b('wait', 'awaited', TTL)))
            waiter.start()
            wait_until(lambda: any(int(n.info()['pubsub_channels']) > 0 for n in self.cluster.running()),
                       'the other one waits')
            if end == 'unlock':
                self.assertEqual(a('unlock'), 'freed')
            else:
                self.assertGreater(self.node().call('BREAK', 'awaited'), 0)
                self.assertEqual(a('unlock'), 'lost')
            waiter.join(PATIENCE_S)
            self.assertEqual(woken, ['held'], end)
            self.assertEqual(b('unlock'), 'freed')
            wait_until(lambda: all(int(n.info()['pubsub_channels']) == 0 for n in self.cluster.running()),
                       'nobody listens any more')

    def check_lateness(self, a, b):
        first = None
        while first is None: # its lease may be over by then
            self.assertEqual(a('lock', 'late', 1000), 'held')
            first = self.token(a)
        self.assertEqual(b('wait', 'late', TTL), 'held')
        self.assertGreater(self.token(b), first)
        self.assertIsNone(self.token(a))
        self.assertEqual(a('unlock'), 'lost')
        self.assertEqual((b('mine'), b('unlock')), ('true', 'freed'))

    def check_watchdog(self, a, b):
        self.assertEqual(a('lock', 'watched', -1), 'held')
        token = self.token(a)
        wait_until(lambda: self.shown('watched')['renewals'] >= 2, 'two renewals')
        self.assertEqual(b('lock', 'watched', TTL), 'refused')
        self.assertEqual((self.token(a), a('unlock')), (token, 'freed'))

    def check_other_kinds(self, a, b):
        for kind in ('spin', 'multi', 'redlock'):
            for peer in (a, b):
                peer('kind', kind)
            self.assertEqual(a('wait', kind, self.lease), 'held', kind)
            self.assertEqual(b('lock', kind, self.lease), 'refused', kind)
            self.assertEqual(a('unlock'), 'freed', kind)
            self.assertEqual(b('wait', kind, -1), 'held', kind)
            self.assertEqual(b('unlock'), 'freed', kind)
            wait_until(lambda: self.node().call('EXISTS', kind, kind + '.2', kind + '.3') == 0, 'none is left')
        for peer in (a, b):
            peer('kind', 'rlock')

    def check_fenced(self, a, b):
        for peer in (a, b):
            peer('kind', 'fenced')
        self.assertEqual(a('lock', 'f', TTL), 'held')
        token = a('fenced')
        self.assertEqual(token, 'token %d' % self.node().call('LOCKTOKEN', 'f', a('owner')))
        self.assertEqual((a('lock', 'f', TTL), a('fenced')), ('held', token))  # it does not grow
        self.assertEqual(b('lock', 'f', TTL), 'refused')
        self.assertIn('newest token', a('gettoken'))
        self.assertEqual((a('unlock'), a('unlock')), ('freed', 'freed'))
        self.assertEqual(b('lock', 'f', -1), 'held')
        self.assertGreater(int(b('fenced').split()[1]), int(token.split()[1]))
        self.assertEqual(b('unlock'), 'freed')
        for peer in (a, b):
            peer('kind', 'rlock')

    def check_force(self, a, b):
        self.assertEqual(b('force', 'forced'), 'false')
        self.assertEqual(a('lock', 'forced', TTL), 'held')
        self.assertEqual(b('force', 'forced'), 'true')
        self.assertEqual((a('unlock'), b('locked', 'forced')), ('lost', 'false'))

    def check_dead_leader(self, a, b):
        """Both talk to nodes that stay; what was taken before stays taken, with its token and its count."""
        self.assertEqual((a('lock', 'through', TTL), a('lock', 'through', TTL)), ('held', 'held'))
        token = self.token(a)
        self.cluster.make_leader(self.leader)
        self.leader.kill()
        self.cluster.leader()
        wait_until(lambda: b('lock', 'through', TTL) == 'refused', 'the other one is served')
        self.assertEqual((self.token(a), a('count')), (token, '2'))
        self.assertEqual((a('unlock'), a('unlock')), ('freed', 'freed'))
        self.assertEqual(b('lock', 'through', TTL), 'held')
        self.assertGreater(self.token(b), token)
        self.assertEqual(b('unlock'), 'freed')

    def test_it(self):
        near, far = self.cluster_of_three()
        a, b = self.peer(near, 'a', 'single', WATCHDOG), self.peer(far, 'b', 'single', WATCHDOG)
        self.check_taking_twice(a, b)
        self.check_waiting(a, b)
        self.check_lateness(a, b)
        self.check_watchdog(a, b)
        self.check_other_kinds(a, b)
        if self.fenced:
            self.check_fenced(a, b)
        self.check_force(a, b)
        self.check_dead_leader(a, b)

    def test_with_tls_and_a_user(self):
        certs = Certs(self.lab)
        store = self.lab.path('truststore.p12')
        subprocess.run(['keytool', '-importcert', '-noprompt', '-alias', 'ca', '-file', certs.crt('ca'), '-keystore', store,
                        '-storetype', 'PKCS12', '-storepass', 'truststore'], check=True, capture_output=True, timeout=PATIENCE_S)
        users = self.lab.path('users.acl')
        with open(users, 'w', encoding='utf-8') as f:
            f.write('user default off\nuser boss on >of-the-boss ~* +@all\nuser redisson on >%s ~a* +@see +@acquire\n' % PASSWORD)
        self.cluster = Cluster(self.lab, 1, ['--aclfile', users])
        node, port = self.cluster.nodes[0], free_ports(1)[0]
        certs.make('node', str(node.id), '127.0.0.1')
        node.extra = node.extra + certs.daemon('node-%d' % node.id, tls_port=str(port), tls_auth_clients='no')
        node.start()
        at = At('127.0.0.1:%d' % port)
        a, b = (self.peer(at, name, 'single', WATCHDOG, store, 'redisson', PASSWORD) for name in 'ab')
        self.assertEqual((a('lock', 'a1', -1), a('lock', 'a1', -1)), ('held', 'held'))
        self.assertEqual(b('lock', 'a1', TTL), 'refused')
        woken = []
        waiter = threading.Thread(target=lambda: woken.append(b('wait', 'a1', TTL)))
        waiter.start()
        self.assertEqual((a('unlock'), a('unlock')), ('freed', 'freed'))
        waiter.join(PATIENCE_S)
        self.assertEqual(woken, ['held'])
        self.assertIn('NOPERM', a('force', 'a1'))
        self.assertIn('NOPERM', a('lock', 'b1', TTL))
        self.assertEqual(b('unlock'), 'freed')


class Newest(Redisson):
    name = 'Redisson 4'

    def test_a_lock_that_is_not_taken_twice(self):
        near, far = self.cluster_of_three()
        a, b = self.peer(near, 'a'), self.peer(far, 'b')
        for peer in (a, b):
            peer('kind', 'once')
        self.assertEqual(a('lock', 'x', TTL), 'held')
        self.assertIn('non-reentrant', a('lock', 'x', TTL))
        self.assertEqual(b('lock', 'x', TTL), 'refused')
        self.assertEqual((a('unlock'), a('unlock')), ('freed', 'lost'))
        self.assertEqual((b('lock', 'x', TTL), b('unlock')), ('held', 'freed'))

    def test_through_sentinel(self):
        self.cluster_of_three()
        every = At(*self.cluster.addresses())
        a, b = self.peer(every, 'a', 'sentinel'), self.peer(every, 'b', 'sentinel')
        self.assertEqual((a('lock', 'x', TTL), a('lock', 'x', TTL)), ('held', 'held'))
        token = self.token(a)
        self.leader.kill()
        self.cluster.leader()

        def finds():
            nonlocal b
            try:
                return b('lock', 'x', TTL) == 'refused'
            except Ended:  # it began while the master was still said to be the one that had been killed
                b = self.peer(every, 'b', 'sentinel')
                return False
        wait_until(finds, 'the other one finds the new master')
        wait_until(lambda: a('token') == 'token %d' % token, 'the token as it was')
        self.assertEqual((a('unlock'), a('count'), a('unlock')), ('freed', '1', 'freed'))
        self.assertEqual(b('wait', 'x', -1), 'held')
        self.assertGreater(self.token(b), token)
        self.assertEqual(b('unlock'), 'freed')

    def test_sixteen_owners_and_a_counter(self):
        """Read, add one, write, with the token that each got with its lock; leaders are killed meanwhile. What was
        acknowledged is there in the end. Redisson sends a request again that was not answered: a lock that was taken so
        counts two, one unlock leaves it held, and its owner goes on under one token, as with Redis. No other has it."""
        self.cluster_of_three(())
        load = CounterLoad(self.cluster, Store(self.lab).start())
        peers = [self.peer(self.cluster.nodes[i % 3], 'client%d' % i) for i in range(4)]
        turns = [threading.Lock() for _ in peers]  # a peer does one line at a time

        def once(number, c):
            name = 'thread%d' % number
            with turns[number % 4]:
                def ask(*words):
                    return peers[number % 4]('as', name, *words)
                ask('kind', 'fenced')
                if ask('lock', 'counter', 3000) == 'held':
                    load.add(c, int(ask('fenced').split()[1]), name)
                    ask('unlock')

        load.run(once, goals=(30,))
        load.check(self)


class MajorBefore(Redisson):
    name = 'Redisson 3'


class WithoutLatches(Redisson):
    name = 'Redisson 3.16'
    fenced = False
    lease = -1  # with a lease it sends a bare PEXPIRE (--front-door-del)


del Redisson  # what the releases have in common

if __name__ == '__main__':
    main()
