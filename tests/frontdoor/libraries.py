#!/usr/bin/python3
"""Lock libraries that were written for Redis, unmodified, at the front door of three nodes: taking, contending, prolonging,
expiring, giving back too late, fencing tokens, a leader that is killed, TLS and users, and sixteen clients at once on a counter
behind fencelock-store. Each library is installed by its own package manager, and skipped, with the reason, where that cannot be
done; wires.py has what those send then.

REDLOCK_PEERS_SOURCES=DIR tries libraries from checkouts too: redlock-rb (with redis-client, connection_pool), antirez-redlock-rb,
redlock-php, php-lock, redis-distlock, redlock-cpp. They need the packages ruby-redis, php-redis, libredis-perl and stunnel4."""

import os
import shutil
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from counter_load import CLIENTS, CounterLoad
from harness import LONG_ELECTION_TIMEOUT, PATIENCE_S, Case, Cluster, Store, main, try_again, wait_until
from harness.lab import free_ports
from redlock_peers_lab import COMMANDS, Ended, Peer, Unavailable
from tls_lab import Certs

TTL = 60000
SHORT = 1000  # python-redis-lock counts in whole seconds


class Secured:
    """An address with TLS, or of a tunnel to one."""

    def __init__(self, address):
        self.address = address


def as_the_test(node):
    def call(*args, timeout=PATIENCE_S):
        with node.client(timeout) as c:
            c.call('AUTH', 'test', 'of-the-test')
            return c.call(*args)
    return call


class Asking(Case):
    """What is asked of a library that talks to the nodes of `cluster`. calm: the term in which they were when this began."""

    def term(self):
        return self.cluster.leader().info()['term']

    def until(self, peer, wanted, *words):
        """Asks until the answer is as wanted. In the midst of an election a library may say anything else, and when it had to wait,
        since none gives up within a tenth of a second; but never that it has what is refused, or still has what is lost."""
        def said():
            began = time.monotonic()
            answer = peer(*words)
            if answer == wanted:
                return True
            was_slow = time.monotonic() - began > 0.1
            what = '%s says %s to %s' % (peer.library, answer, ' '.join(map(str, words)))
            self.assertTrue(answer != 'held' or wanted == 'held', what)
            self.assertTrue(was_slow or self.term() != self.calm, what)
            return False
        try_again(said, '%s says %s to %s' % (peer.library, wanted, ' '.join(map(str, words))))


class Library(Asking):
    """One library. The checks run one after the other on one cluster, since libraries take a while to begin. A machine on which all
    stands still at times has elections that no check asks for."""

    TIMEOUT_S = 1400 # installing is part of it
    name = None
    key_format = '%s'
    extends = True
    tells_token = True

    secures = True  # else why it is not tried with TLS and users
    logs_in = 'as a user'  # 'with a password' or 'not at all' where it can name none: then it is the user `default`
    through_tunnel = False  # where it has no TLS
    asks_for_ever = False  # when it may not log in
    keeps_token = True  # when it prolongs
    rights = ('+@acquire',)
    env = None

    def peer(self, node, name):
        try:
            peer = Peer(self.name, node if isinstance(node, list) else [node], self.lab.path(name + '.log'), env=self.env)
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
            wait_until(held, '%s gets %s' % (self.name, key))
        except AssertionError as e:
            raise AssertionError('%s: %s' % (e, answers[-1:])) from None

    def asked(self, *words):
        return wait_until(lambda: (self.cluster.running()[0].call(*words, timeout=30),), 'an answer to ' + words[0])[0]

    def value(self, key):
        return self.asked('GET', self.key_format % key)

    def token(self, peer, key):
        if self.tells_token:
            def told():
                answer = peer('token').split()
                return answer if answer[0] in ('none', 'token') else None
            answer = wait_until(told, 'the token of ' + key)
            return None if answer[0] == 'none' else int(answer[1])
        value = self.value(key)
        return value and self.asked('LOCKTOKEN', self.key_format % key, value)

    def give_back(self, peer, key):
        """It says so, and is free then. In the midst of an election it may fail, and says anything."""
        answer = peer('unlock')
        if answer in ('freed', 'done') and self.value(key) is None:
            return
        self.assertNotEqual(self.term(), self.calm, 'it says %s to unlock, and the lock has %s' % (answer, self.value(key)))
        wait_until(lambda: self.value(key) is None or peer('unlock') is None, 'that %s is given back' % key)

    def gone(self, key):
        wait_until(lambda: self.value(key) is None, 'the end of the lease of ' + key)

    def check_contention(self, a, b):
        self.calm = self.term()
        self.lock(a, 'one')
        self.until(b, 'refused', 'lock', 'one', TTL)
        first = self.token(a, 'one')
        self.assertGreater(first, 0)
        if self.extends:
            self.until(a, 'held', 'extend', TTL)
            (self.assertEqual if self.keeps_token else self.assertGreater)(self.token(a, 'one'), first)
            first = self.token(a, 'one')
        self.give_back(a, 'one')
        self.lock(b, 'one')
        self.assertGreater(self.token(b, 'one'), first)
        self.give_back(b, 'one')

    def check_lateness(self, a, b):
        self.calm = self.term()
        self.lock(a, 'late', SHORT)
        self.gone('late')
        self.lock(b, 'late')
        theirs, token = self.value('late'), self.token(b, 'late')
        if self.extends:
            self.until(a, 'lost', 'extend', TTL)
        a('unlock')  # says what it likes
        self.assertEqual(self.value('late'), theirs)
        self.assertEqual(self.token(b, 'late'), token)
        self.give_back(b, 'late')

    def check_dead_leader(self, a, b):
        """Both talk to nodes that stay; what was taken before stays taken, with its token."""
        self.lock(a, 'through')
        token = self.token(a, 'through')
        self.cluster.make_leader(self.leader)
        self.leader.kill()
        answer = b('lock', 'through', TTL)
        self.assertTrue(answer == 'refused' or answer.startswith('error'), answer)
        self.calm = self.term()
        self.assertEqual(self.token(a, 'through'), token)
        self.until(b, 'refused', 'lock', 'through', TTL)
        self.give_back(a, 'through')
        self.lock(b, 'through')
        self.assertGreater(self.token(b, 'through'), token)
        self.give_back(b, 'through')

    secured_nodes = 1

    def secured_cluster(self, certs):
        """Nodes with TLS, a user who may take two locks and no others, and one for this test."""
        ports = free_ports(self.secured_nodes)
        self.cluster = Cluster(self.lab, self.secured_nodes)
        for node, port in zip(self.cluster.nodes, ports):
            certs.make('node', str(node.id), '127.0.0.1')
            node.extra = ['--tls-port', '127.0.0.1:%d' % port, '--tls-auth-clients', 'no', *certs.daemon('node-%d' % node.id)]
        self.cluster.start()
        words = ['on', *('~' + self.key_format % name for name in ('one', 'late', 'through')), *self.rights]
        ask = self.cluster.nodes[0].call
        ask('ACL', 'SETUSER', 'test', 'on', '>of-the-test', '~*', '+@all', timeout=30)
        ask('ACL', 'SETUSER', 'library', '>the-password', *words, timeout=30)
        # The last that is said as the user who may do all.
        how = {'as a user': ['off'], 'with a password': ['>the-password', *words], 'not at all': ['nopass', *words]}
        ask('ACL', 'SETUSER', 'default', 'reset', *how[self.logs_in], timeout=30)
        for node in self.cluster.nodes:
            node.call = as_the_test(node)
        return [Secured('127.0.0.1:%d' % port) for port in ports]

    def secured_env(self, ca):
        self.env = {'PEER_CA': ca, 'SSL_CERT_FILE': ca}
        if self.logs_in != 'not at all':
            self.env['PEER_PASSWORD'] = 'the-password'
        if self.logs_in == 'as a user':
            self.env['PEER_USER'] = 'library'

    def tunnel(self, node, ca):
        """stunnel, as those use it whose library has no TLS."""
        if shutil.which('stunnel') is None:
            self.skipTest('there is no stunnel here (package stunnel4)')
        here = '127.0.0.1:%d' % free_ports(1)[0]
        path = self.lab.path('stunnel.conf')
        with open(path, 'w', encoding='utf-8') as f:
            f.write('foreground = yes\npid =\n[lock]\nclient = yes\naccept = %s\nconnect = %s\nCAfile = %s\nverifyChain = yes\n'
                    'checkIP = 127.0.0.1\n' % (here, node.address, ca))
        self.lab.start(['stunnel', path], 'stunnel')
        wait_until(lambda: socket.create_connection(here.split(':')).close() or True, 'the tunnel')
        return Secured(here)

    def secured_peers(self):
        certs = Certs(self.lab)
        nodes = self.secured_cluster(certs)
        self.secured_env(certs.crt('ca'))
        node = self.tunnel(nodes[0], certs.crt('ca')) if self.through_tunnel else nodes
        return node, [self.peer(node, name) for name in 'ab']

    def test_secured(self):
        """With TLS, as a user who may take these locks and no others."""
        if self.name is None:
            return  # what the others have in common
        if self.secures is not True:
            self.skipTest(self.secures)
        self.peer(Secured('127.0.0.1:1'), 'probe').close()  # whether it is here
        node, (a, b) = self.secured_peers()
        Library.check_contention(self, a, b)
        self.check_lateness(a, b)
        answer = a('lock', 'forbidden', TTL)
        self.assertTrue(answer == 'refused' or answer.startswith('error'), answer)
        self.assertIsNone(self.value('forbidden'))
        if self.logs_in == 'not at all' or self.asks_for_ever:
            return
        self.env = dict(self.env, PEER_PASSWORD='another')
        try:
            answer = self.peer(node, 'c')('lock', 'one', TTL)
        except Ended:
            answer = 'error'
        self.assertTrue(answer == 'refused' or answer.startswith('error'), answer)
        self.assertIsNone(self.value('one'))

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


class DjangoRedis(Library):
    name = 'django-redis'
    key_format = ':1:%s'  # the cache's prefix and version


class RedisPy5(Library):
    name = "redis-py's Lock 5"


class RedisPyDebian(Library):
    name = "redis-py's Lock (Debian)"


class PythonRedisLock(Library):
    name = 'python-redis-lock'
    key_format = 'lock:%s'
    rights = ('+@acquire', '+@see')  # it asks whose the lock is before it takes it

    def check_contention(self, a, b):
        super().check_contention(a, b)
        # Who waits, through BLPOP, is woken by the one who gives the lock back, and not by the end of the lease.
        self.lock(a, 'awaited')
        woken = []
        waiter = threading.Thread(target=lambda: woken.append(b('wait', 'awaited', TTL)))
        waiter.start()
        wait_until(lambda: any(int(n.info()['blocked_clients']) > 0 for n in self.cluster.nodes), 'the other one waits')
        answer = a('unlock')
        if answer != 'freed':
            self.assertNotEqual(self.term(), self.calm, answer)
            wait_until(lambda: woken or a('unlock') == 'freed', 'that it is given back')
        waiter.join(PATIENCE_S)
        if woken != ['held']:
            self.assertNotEqual(self.term(), self.calm, woken)
            self.lock(b, 'awaited')
        self.give_back(b, 'awaited')


class Aioredlock(Library):
    name = 'aioredlock'
    logs_in = 'with a password'  # its driver of 2019 knows no names


class Node4(Library):
    name = 'node-redlock 4'


class Node5(Library):
    name = 'node-redlock 5'


class RedisSemaphore(Library):
    name = 'redis-semaphore'
    key_format = 'mutex:%s'


class SpringIntegration(Library):
    """RedisLockRegistry, whose locks wait by asking again and again, as they do by default."""

    name = 'Spring Integration'
    key_format = 'spring:%s'
    tells_token = False


class Redsync(Library):
    name = 'redsync'


class Redislock(Library):
    name = 'bsm/redislock'


class Rslock(Library):
    name = 'rslock'
    secures = "its driver's TLS wants a provider of cryptography chosen by the program, which our peer does not do"
    tells_token = False


class RedlockRb(Library):
    name = 'redlock-rb'
    tells_token = False


class Antirez(Library):
    name = 'antirez/redlock-rb'
    extends = False
    tells_token = False


class RedlockPhp(Library):
    name = 'redlock-php'
    logs_in = 'not at all'
    extends = False
    tells_token = False


class PhpLock(Library):
    name = 'php-lock'
    key_format = 'php-malkusch-lock:%s'
    extends = False
    tells_token = False


class DistLock(Library):
    name = 'Redis::DistLock'
    tells_token = False


class RedlockCpp(Library):
    name = 'redlock-cpp'
    logs_in = 'not at all'
    through_tunnel = True
    extends = False
    tells_token = False


class RedlockCppContinued(RedlockCpp):
    """Its way to prolong is to give back and take with a new value."""

    name = 'redlock-cpp, continued'
    extends = True
    keeps_token = False


class Node5Sentinel(Library):
    """ioredis looks for the master among all nodes, and finds the new one when that dies."""

    name = 'node-redlock 5, sentinel'
    secured_nodes = 3
    asks_for_ever = True

    def peer(self, node, name):
        if not isinstance(node, list):
            node = self.cluster.nodes if hasattr(self, 'cluster') else [node]
        return super().peer(node, name)

    def check_dead_leader(self, a, b):
        self.lock(a, 'through')
        token = self.token(a, 'through')
        self.cluster.make_leader(self.leader)
        self.calm = self.term() # it has to find the one that leads next
        self.leader.kill()
        self.until(b, 'refused', 'lock', 'through', TTL)
        wait_until(lambda: a('token') == 'token %d' % token, 'the token as it was')
        self.calm = self.term()
        self.give_back(a, 'through')


class RedsyncSentinel(Node5Sentinel):
    """go-redis does so too."""

    name = 'redsync, sentinel'
    asks_for_ever = False


class Several(Asking):
    """Libraries that are given the three nodes as if they were three servers."""

    TIMEOUT_S = 1400 # installing is part of it
    LIBRARIES = ('redlock-py', 'pottery', 'node-redlock 4', 'node-redlock 5', 'redsync', 'rslock')

    def each(self, cluster, use):
        told = []
        for number, name in enumerate(self.LIBRARIES):
            try:
                a, b = (Peer(name, cluster.nodes, self.lab.path('%s-%d.log' % (who, number))) for who in 'ab')
            except Unavailable as e:
                told.append('%s: not here: %s' % (name, e))
                continue
            self.addCleanup(a.close)
            self.addCleanup(b.close)
            told.append('%s: %s' % (name, use(a, b, 'key-%d' % number, ('redlock:%s' if name == 'pottery' else '%s') % ('key-%d' % number))))
        for text in told:
            self.note(text)
        if all('not here' in text for text in told):
            self.skipTest('none of them is here')

    def test_by_default_they_fail_at_once(self):
        cluster = Cluster(self.lab, 3, LONG_ELECTION_TIMEOUT).start()

        def use(a, _b, key, lock):
            answer = a('lock', key, TTL)
            self.assertTrue(answer == 'refused' or answer.startswith('error'), answer)
            # Nothing of it stays behind.
            wait_until(lambda: cluster.nodes[0].call('GET', lock) is None, 'the end of what one node gave')
            return answer[:150]
        self.each(cluster, use)

    def test_shared_they_work(self):
        self.cluster = cluster = Cluster(self.lab, 3, ['--front-door-shared', 'yes', *LONG_ELECTION_TIMEOUT]).start()

        def use(a, b, key, lock):
            answers = []
            self.calm = self.term()

            def held():
                answers.append(a('lock', key, TTL))
                return answers[-1] == 'held'
            wait_until(held, 'the lock')
            value = cluster.nodes[0].call('GET', lock)
            token = cluster.nodes[1].call('LOCKTOKEN', lock, value)
            self.until(b, 'refused', 'lock', key, TTL)
            if a.library != 'redlock-py':
                self.until(a, 'held', 'extend', TTL)
            self.assertEqual(cluster.nodes[2].call('LOCKTOKEN', lock, value), token)
            self.assertIn(a('unlock'), ('freed', 'done'))
            wait_until(lambda: cluster.nodes[0].call('GET', lock) is None, 'that it was given back')
            wait_until(lambda: b('lock', key, TTL) == 'held', 'the lock for the other one')
            self.assertGreater(cluster.nodes[0].call('LOCKTOKEN', lock, cluster.nodes[0].call('GET', lock)), token)
            self.assertIn(b('unlock'), ('freed', 'done'))
            return 'taken at the %d. try, refused, prolonged, given back' % len(answers)
        self.each(cluster, use)


class Counter(Case):
    TIMEOUT_S = 1400 # installing is part of it

    def test_sixteen_clients_and_a_counter(self):
        self.check([('redlock-py', 'counter')])

    def test_sixteen_clients_of_several_libraries(self):
        """At once on one lock, each with the name that its library makes that one of."""
        libraries = []
        for name in ('redlock-py', 'pottery', "redis-py's Lock", 'aioredlock', 'node-redlock 4', 'node-redlock 5', 'redsync',
                     'bsm/redislock'):
            try:
                COMMANDS[name]('127.0.0.1:1')  # installs it
                libraries.append((name, 'counter' if name == 'pottery' else 'redlock:counter'))
            except Unavailable as e:
                self.note('%s is not here: %s' % (name, e))
        if len(libraries) < 2:
            self.skipTest('fewer than two libraries are here')
        self.check(libraries)

    def check(self, libraries):
        """Read, add one, write, with the token that each got through its library; leaders are killed meanwhile. What
        was acknowledged is there in the end."""
        cluster = Cluster(self.lab, 3).start()
        load = CounterLoad(cluster, Store(self.lab).start())
        peers = []
        for i in range(CLIENTS):
            name, key = libraries[i % len(libraries)]
            try:
                peers.append((Peer(name, [cluster.nodes[i % 3]], self.lab.path('client%d.log' % i)), key))
            except Unavailable as e:
                self.skipTest(str(e))
            self.addCleanup(peers[-1][0].close)

        def once(number, c):
            peer, key = peers[number]
            if peer('lock', key, 2000) != 'held':  # that of a client whose node dies must end
                return
            answer = peer('token')
            if answer.startswith('token'):
                load.add(c, int(answer.split()[1]), number)
            peer('unlock')

        load.run(once, goals=(30, 60))
        load.check(self)
        tokens = [token for token, _ in load.added]
        self.assertEqual(len(set(tokens)), len(tokens))
        self.note('added by ' + ', '.join(sorted({peers[number][0].library for _, number in load.added})))


if __name__ == '__main__':
    main()
