#!/usr/bin/python3
"""TLS on real processes: which clients and servers are accepted, by which names; files that are renewed; and what can be read on the wire."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import (ANSWER_S, LONG_ELECTION_TIMEOUT, PATIENCE_S, Case, Cluster, Resp, RespError, Store, binary, free_ports, main,
                     wait_until)
from harness.resp import info_fields
from tls_lab import CERTS, Certs, Tap, TlsResp, assert_no_storm_costs_a_term, keeps_its_term

OWNER = 'owner-a-0123456789'
SECRET = 'the-name-of-a-lock-that-nobody-should-read'


class TlsCase(Case):
    def setUp(self):
        super().setUp()
        self.certs = Certs(self.lab)
        self.certs.make('server', 'server', 'localhost', '127.0.0.1')
        self.certs.make('client', 'alice')

    def cluster(self, n=1, name='server', options=(), **more):
        """Nodes with a plain port and one for TLS."""
        cluster = Cluster(self.lab, n)
        for node, port in zip(cluster.nodes, free_ports(n)):
            node.tls = '127.0.0.1:%d' % port
            node.extra = ['--tls-port', node.tls, *options] + self.certs.daemon(name, **more)
        return cluster.start()

    def store(self, *more, tls=True, **options):
        store = Store(self.lab)
        store.tls = '127.0.0.1:%d' % free_ports(1)[0]
        store.start(*(['--tls-port', store.tls] + self.certs.daemon(**options) if tls else []), *more)
        return store

    def tls(self, node, name='alice', certs=None, version=None):
        return TlsResp(node.tls, (certs or self.certs).context(name, version))

    def refused(self, node, word, **how):
        """Nothing is answered to a client like that; the alert says why."""
        with self.assertRaises((ssl.SSLError, ConnectionError)) as caught:
            with self.tls(node, **how) as c:
                c.call('ACQUIRE', 'a', 'TTL', 60000, 'OWNER', OWNER)
        if isinstance(caught.exception, ssl.SSLError):
            self.assertIn(word, str(caught.exception).upper().replace(' ', '_'))
        self.assertIsNone(node.call('SHOW', 'a'))

    def tool(self, *words, **env):
        done = subprocess.run([binary('fencelock'), *words], capture_output=True, text=True, timeout=PATIENCE_S,
                              env={**os.environ, 'FENCELOCK_TIMEOUT': '%ds' % ANSWER_S, **env})
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    def not_served(self, says, *words):
        """A call that tries until its time is over, and says this: on a slow machine it may need more time to find that out."""
        for seconds in (1, 10, 100):
            code, _, err = self.tool(*words, FENCELOCK_TIMEOUT='%ds' % seconds)
            self.assertEqual(code, 3, err)
            if says in err:
                return
        self.fail(err)


class ClientCertificates(TlsCase):
    def test_a_client_of_the_ca(self):
        node = self.cluster().nodes[0]
        for version in (None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            with self.tls(node, version=version) as c:
                self.assertGreater(c.call('ACQUIRE', 'x%s' % version, 'TTL', 60000, 'OWNER', OWNER), 0)

    def test_nobody_without_a_certificate_of_the_ca(self):
        node = self.cluster().nodes[0]
        other = Certs(self.lab, 'other')
        other.make('client', 'alice')
        shutil.copy(self.certs.crt('ca'), other.crt('ca')) # it trusts the server, and is not trusted
        self.certs.expired('client', 'late')
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            missing = 'HANDSHAKE_FAILURE' if version == ssl.TLSVersion.TLSv1_2 else 'CERTIFICATE_REQUIRED'
            self.refused(node, missing, name=None, version=version)
            self.refused(node, 'UNKNOWN_CA', certs=other, version=version)
            self.refused(node, 'CERTIFICATE_EXPIRED', name='late', version=version)
        info = info_fields(node.call('INFO', 'tls'))
        self.assertEqual(info['tls_handshakes_failed'], 6)
        self.assertEqual(info['tls_handshakes'], 0)

    def test_a_servers_certificate_is_no_clients(self):
        """One that is for servers only cannot be shown by a client."""
        node = self.cluster().nodes[0]
        ext = self.lab.path('ext')
        with open(ext, 'w', encoding='utf-8') as f:
            f.write('basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n')
        for argv in (['req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=web',
                      '-keyout', self.certs.key('web'), '-out', self.lab.path('csr')],
                     ['x509', '-req', '-in', self.lab.path('csr'), '-CA', self.certs.crt('ca'), '-CAkey',
                      self.certs.key('ca'), '-set_serial', '77', '-days', '9', '-extfile', ext, '-out',
                      self.certs.crt('web')]):
            subprocess.run(['openssl'] + argv, check=True, capture_output=True)
        self.refused(node, 'UNSUPPORTED_CERTIFICATE', name='web')

    def test_optional_and_no(self):
        other = Certs(self.lab, 'other')
        other.make('client', 'alice')
        shutil.copy(self.certs.crt('ca'), other.crt('ca'))
        optional = self.store(tls_auth_clients='optional')
        with self.tls(optional, name=None) as c:
            self.assertEqual(c.call('PING'), 'PONG')
        with self.tls(optional) as c:
            self.assertEqual(c.call('PING'), 'PONG')
        with self.assertRaises(ssl.SSLError): # what is shown is verified
            with self.tls(optional, certs=other) as c:
                c.call('PING')
        node = self.cluster(tls_auth_clients='no').nodes[0]
        for how in ({'name': None}, {'certs': other}): # it is not asked, so it shows nothing
            with self.tls(node, **how) as c:
                self.assertEqual(c.call('PING'), 'PONG')

    def test_protocols(self):
        node = self.cluster(tls_protocols='TLSv1.3').nodes[0]
        self.refused(node, 'PROTOCOL_VERSION', version=ssl.TLSVersion.TLSv1_2)
        with self.tls(node) as c:
            self.assertEqual(c.sock.version(), 'TLSv1.3')

    def test_plain_words_on_the_port_for_tls(self):
        node = self.cluster().nodes[0]
        with Resp(node.tls) as c:
            with self.assertRaises(RespError) as caught:
                c.call('ACQUIRE', 'a', 'TTL', 60000)
            self.assertEqual(caught.exception.word, 'DENIED')
            self.assertIn('--tls', caught.exception.text)
        code, _, err = self.tool('acquire', 'a', '--nodes', node.tls)
        self.assertEqual(code, 1, err)
        self.assertIn('takes TLS only', err)

    def test_tls_on_the_plain_port(self):
        node = self.cluster().nodes[0]
        self.not_served('TLS', 'acquire', 'a', '--nodes', node.address, *self.certs.tool('alice'))

    def test_clients_of_others(self):
        """redis-cli and redis-py."""
        import redis
        node = self.cluster().nodes[0]
        host, port = node.tls.split(':')
        out = subprocess.run(['redis-cli', '-p', port, *self.certs.tool('alice'), 'acquire', 'by-redis-cli'],
                             capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
        self.assertGreater(int(out), 0)
        client = redis.Redis(host=host, port=int(port), ssl=True, ssl_ca_certs=self.certs.crt('ca'),
                             ssl_certfile=self.certs.crt('alice'), ssl_keyfile=self.certs.key('alice'))
        self.assertGreater(client.execute_command('ACQUIRE', 'by-redis-py', 'TTL', 60000), int(out))
        client.close()


class ServerCertificates(TlsCase):
    def test_names(self):
        self.certs.make('server', 'elsewhere', 'db.example')
        node = self.cluster(name='elsewhere').nodes[0]
        self.not_served('IP address mismatch', 'acquire', 'a', '--nodes', node.tls, *self.certs.tool('alice'))
        self.assertIsNone(node.call('SHOW', 'a'))
        code, out, err = self.tool('acquire', 'a', '--nodes', node.tls, '--sni', 'db.example', *self.certs.tool('alice'))
        self.assertEqual(code, 0, err)
        self.assertGreater(int(out), 0)

    def test_a_ca_that_is_not_trusted(self):
        node = self.cluster().nodes[0]
        other = Certs(self.lab, 'other')
        self.not_served('its certificate is not accepted', 'acquire', 'a', '--nodes', node.tls, '--tls', '--cacert', other.crt('ca'),
                        '--cert', self.certs.crt('alice'), '--key', self.certs.key('alice'))

    def test_a_refusal_is_one_at_once(self):
        """With TLS 1.3 a client hears of it when the request is on its way already: it is no unknown outcome."""
        node = self.cluster().nodes[0]
        for words in (['acquire', 'a'], ['break', 'a'], ['run', 'a', '--wait', '1s', '--', 'true']):
            began = time.monotonic()
            at = words.index('--') if '--' in words else len(words)
            code, _, err = self.tool(*words[:at], '--nodes', node.tls, *self.certs.tool(), *words[at:])
            self.assertIn(code, (1, 124), err)
            self.assertIn('certificate required', err)
            self.assertLess(time.monotonic() - began, 60) # half of the time it has

    def test_files_that_are_no_use(self):
        node = self.cluster().nodes[0]
        for words, says in ((['--tls', '--cacert', '/no/such/file'], 'No such file'),
                            (['--tls', '--cert', self.certs.crt('alice')], 'belong together'),
                            (['--cacert', self.certs.crt('ca')], 'without --tls')):
            code, _, err = self.tool('acquire', 'a', '--nodes', node.tls, *words)
            self.assertEqual(code, 2, err)
            self.assertIn(says, err)

    def test_the_environment(self):
        node = self.cluster().nodes[0]
        env = {'FENCELOCK_NODES': node.tls, 'FENCELOCK_TLS': '1', 'FENCELOCK_CACERT': self.certs.crt('ca'),
               'FENCELOCK_CERT': self.certs.crt('alice'), 'FENCELOCK_KEY': self.certs.key('alice')}
        code, out, err = self.tool('acquire', 'a', **env)
        self.assertEqual(code, 0, err)
        code, _, err = self.tool('acquire', 'a', **dict(env, FENCELOCK_TLS='perhaps'))
        self.assertEqual(code, 2, err)


class ThreeNodes(TlsCase):
    def test_each_client_is_told_an_address_it_can_use(self):
        cluster = self.cluster(3).steady()
        leader = cluster.leader().id
        node = cluster.nodes[leader - 1]
        for asked in cluster.nodes:
            with self.tls(asked) as c:
                wait_until(lambda c=c: c.call('LEADER') == [leader, node.tls.encode()], 'its address')
            self.assertEqual(asked.call('LEADER'), [leader, node.address.encode()])
        with self.tls(node) as c: # the leader has heard of all
            self.wait_told(lambda: c.call('CLUSTER', 'MEMBERS'), {n.tls.encode() for n in cluster.nodes})
        self.wait_told(lambda: node.call('CLUSTER', 'MEMBERS'), {n.address.encode() for n in cluster.nodes})

    def test_a_hold_outlives_its_leader(self):
        cluster = self.cluster(3).steady()
        nodes = ','.join(n.tls for n in cluster.nodes)
        leader = cluster.leader().id
        flag = self.lab.path('go-on')
        run = self.lab.start([binary('fencelock'), 'run', 'held', '--ttl', '600s', '--nodes', nodes,
                              *self.certs.tool('alice'), '--', 'sh', '-c',
                              'echo started; while [ ! -e %s ]; do sleep 0.1; done' % flag], 'run')
        run.wait_output('started')
        cluster.nodes[leader - 1].kill()
        alive = [n for n in cluster.nodes if n.id != leader]
        wait_until(lambda: self.leads(alive[0], leader), 'a new leader')
        self.assertIsNotNone(alive[0].call('SHOW', 'held'))
        with open(flag, 'w', encoding='utf-8'):
            pass
        self.assertEqual(run.wait(), 0)
        wait_until(lambda: alive[0].call('SHOW', 'held') is None, 'the release')

    @staticmethod
    def wait_told(nodes, addresses):
        """It may hear of some a little later."""
        wait_until(lambda: {n[n.index(b'client_address') + 1] for n in nodes()} == addresses, 'all addresses')

    @staticmethod
    def leads(node, but):
        told = node.call('LEADER')
        return told is not None and told[0] != but


class Files(TlsCase):
    def info(self, node):
        return info_fields(node.call('INFO', 'tls'))

    def shown(self, node):
        """The serial number of the certificate that a new connection sees."""
        with self.tls(node) as c:
            return c.sock.getpeercert()['serialNumber']

    def test_renewed(self):
        node = self.cluster().nodes[0]
        self.assertIn(self.info(node)['tls_cert_days_left'], (396, 397))
        old = self.tls(node)
        first = self.shown(node)
        self.certs.make('server', 'server', 'localhost', '127.0.0.1', FORCE='1', DAYS='30')
        wait_until(lambda: self.info(node)['tls_reloads'] >= 1, 'that it sees the change')
        self.assertNotEqual(self.shown(node), first)
        self.assertIn(self.info(node)['tls_cert_days_left'], (29, 30))
        self.assertEqual(old.call('PING'), 'PONG') # what was begun goes on
        old.close()

    def test_hangup(self):
        node = self.cluster().nodes[0]
        before = self.info(node)['tls_reloads']
        node.process.signal(signal.SIGHUP)
        wait_until(lambda: self.info(node)['tls_reloads'] > before, 'a reload')
        self.assertEqual(self.info(node)['tls_reloads_refused'], 0)

    def test_bad_ones_change_nothing(self):
        node = self.cluster().nodes[0]
        first = self.shown(node)
        good = open(self.certs.crt('server'), 'rb').read()
        self.certs.expired('server', 'over', '127.0.0.1')
        for bad in (b'', b'rubbish', good[:300], open(self.certs.crt('alice'), 'rb').read(),
                    open(self.certs.crt('over'), 'rb').read()):
            refused = self.info(node)['tls_reloads_refused']
            with open(self.certs.crt('server') + '.new', 'wb') as f:
                f.write(bad)
            os.replace(self.certs.crt('server') + '.new', self.certs.crt('server'))
            wait_until(lambda n=refused: self.info(node)['tls_reloads_refused'] > n, 'a refusal')
            self.assertEqual(self.shown(node), first)
        self.assertIn('the old ones stay', node.process.output())

    def test_a_node_does_not_start_with_bad_ones(self):
        self.certs.expired('server', 'over', '127.0.0.1')
        for name, says in (('over', 'has expired'), ('nobody', 'No such file')):
            done = subprocess.run([binary('fencelockd'), '--data', self.lab.path('data'), '--listen', '127.0.0.1:0',
                                   '--peer', '127.0.0.1:%d' % free_ports(1)[0], '--tls-port', '127.0.0.1:0',
                                   *self.certs.daemon(name)], capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 1)
            self.assertIn(says, done.stderr)

    def test_a_client_that_lives_long_shows_the_new_one(self):
        """Its own certificate is renewed while it runs: connections that it makes later use that."""
        cluster = self.cluster()
        node = cluster.nodes[0]
        tap = Tap(node.tls)
        self.addCleanup(tap.close)
        flag = self.lab.path('end')
        run = self.lab.start([binary('fencelock'), 'run', 'long', '--ttl', '600s', '--nodes', node.tls,
                              *self.certs.tool('alice'), '--', 'sh', '-c',
                              'echo started; while [ ! -e %s ]; do sleep 0.1; done' % flag], 'run')
        run.wait_output('started')
        self.certs.make('client', 'alice', FORCE='1')
        open(flag, 'w', encoding='utf-8').close()
        self.assertEqual(run.wait(), 0)


class OnTheWire(TlsCase):
    def test_names_owners_and_values_are_not_seen(self):
        node = self.cluster().nodes[0]
        plain, tls = Tap(node.address), Tap(node.tls)
        self.addCleanup(plain.close)
        self.addCleanup(tls.close)
        words = ('ACQUIRE', SECRET, 'TTL', 60000, 'OWNER', OWNER, 'VALUE', 'a-value-to-hide')
        with Resp(plain.address) as c:
            c.call(*words)
        for secret in (SECRET, OWNER, 'a-value-to-hide', 'ACQUIRE'):
            self.assertIn(secret.encode(), plain.seen) # the tap does see
        with TlsResp(tls.address, self.certs.context('alice')) as c:
            c.call(*words)
            c.call('SHOW', SECRET)
            c.call('LOCKS')
        code, _, err = self.tool('acquire', SECRET + '-2', '--owner', OWNER, '--nodes', tls.address,
                                 *self.certs.tool('alice'))
        self.assertEqual(code, 0, err)
        self.assertGreater(len(tls.seen), 3000)
        for secret in (SECRET, OWNER, 'a-value-to-hide', 'ACQUIRE', 'SHOW'):
            self.assertNotIn(secret.encode(), tls.seen)

    def test_a_bit_that_is_changed_on_the_way_ends_the_connection(self):
        node = self.cluster().nodes[0]
        with self.tls(node) as c:
            c.call('PING')
            raw = socket.socket(fileno=os.dup(c.sock.fileno()))
            raw.sendall(b'\x17\x03\x03\x00\x20' + b'\x00' * 32) # a record that is not the client's
            raw.close()
            with self.assertRaises((ssl.SSLError, ConnectionError, EOFError, OSError)):
                c.call('ACQUIRE', 'a', 'TTL', 60000, 'OWNER', OWNER)
        self.assertIsNone(node.call('SHOW', 'a'))


class Handshakes(TlsCase):
    def hello(self, node):
        """The first words of a client, as bytes."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self.certs.context('alice').wrap_bio(incoming, outgoing, server_hostname='127.0.0.1')
        with self.assertRaises(ssl.SSLWantReadError):
            client.do_handshake()
        return outgoing.read()

    def connect(self, node):
        host, port = node.tls.split(':')
        return socket.create_connection((host, int(port)), timeout=ANSWER_S)

    def test_cut_off_at_every_byte(self):
        node = self.cluster().nodes[0]
        hello = self.hello(node)
        before = node.process.sockets()
        for n in range(len(hello) + 1):
            with self.connect(node) as s:
                s.sendall(hello[:n])
        with self.tls(node) as c:
            self.assertEqual(c.call('PING'), 'PONG')
        wait_until(lambda: node.process.sockets() <= before, 'that all are closed')
        self.note('%d handshakes cut off' % (len(hello) + 1))

    def test_silence_is_borne_for_ten_seconds(self):
        node = self.cluster().nodes[0]
        began = time.monotonic()
        with self.connect(node) as s:
            self.assertEqual(s.recv(10), b'')
            self.assertGreater(time.monotonic() - began, 9)

    def begun(self, node):
        info = info_fields(node.call('INFO', 'tls'))
        return info['tls_handshakes_failed'] + info['tls_handshakes_deferred']

    def keeps_its_term(self, cluster):
        leader = cluster.leader()
        before, hello, clients, served = self.begun(leader), self.hello(leader), [], []

        def begin():
            socks = [self.connect(leader) for _ in range(40)]
            for s in socks:
                s.sendall(hello)
            for s in socks:
                s.close()

        def ask():
            if not clients: # its own handshake is in the storm
                clients.append(self.tls(leader))
                self.addCleanup(clients[0].close)
            served.append(clients[0].call('TOKEN', 'x'))
            self.assertGreater(served[-1], 0)
        kept = keeps_its_term(self, leader, begin, 3, ask, lambda: self.begun(leader) > before)
        self.note('%d tokens while others began handshakes' % len(served))
        return kept

    def test_a_storm_costs_no_term(self):
        cluster = self.cluster(3, options=LONG_ELECTION_TIMEOUT)
        assert_no_storm_costs_a_term(self, lambda: self.keeps_its_term(cluster))


class Storage(TlsCase):
    def test_its_port(self):
        store = self.store()
        with self.tls(store) as c:
            c.call('SET', 'k', 'v', 'FENCE', 'lock', 7)
        code, out, err = self.tool('store', 'get', 'k', '--store', store.tls, *self.certs.tool('alice'))
        self.assertEqual((code, out), (0, 'v'), err)
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            with self.tls(store, name=None) as c:
                c.call('SET', 'k', 'stranger', 'FENCE', 'lock', 8)
        self.assertEqual(store.call('GET', 'k'), b'v')
        self.assertEqual(info_fields(store.call('INFO', 'tls'))['tls_handshakes_failed'], 1)

    def test_a_write_that_is_refused_is_not_unknown(self):
        store = self.store()
        code, _, err = self.tool('store', 'set', 'k', 'v', '--lock', 'l', '--token', '1', '--store', store.tls,
                                 *self.certs.tool())
        self.assertEqual(code, 1, err)
        self.assertIn('certificate required', err)

    def test_strict_asks_with_tls(self):
        node = self.cluster().nodes[0]
        tap = Tap(node.tls)
        self.addCleanup(tap.close)
        store = self.store('--strict', tap.address, '--strict-tls', '--strict-timeout', '60000')
        token = node.call('ACQUIRE', SECRET, 'TTL', 600000, 'OWNER', OWNER)
        with store.client() as c:
            self.assertEqual(c.call('SET', 'k', 'v', 'FENCE', SECRET, token), 'OK')
            with self.assertRaises(RespError) as caught:
                c.call('SET', 'k', 'w', 'FENCE', SECRET, token + 1)
            self.assertEqual(caught.exception.word, 'NOTHELD')
            answers = c.pipeline([('CLAIM', SECRET, token)] * 300) # one question of a connection at a time
            self.assertEqual(set(answers), {'OK'})
        self.assertNotIn(SECRET.encode(), tap.seen)

    def test_strict_believes_no_stranger(self):
        """A lock service whose certificate is of another CA is asked nothing, and nothing is written."""
        mine = self.certs
        self.certs = Certs(self.lab, 'others')
        self.certs.make('server', 'server', '127.0.0.1')
        node = self.cluster().nodes[0]
        self.certs = mine
        token = node.call('ACQUIRE', 'l', 'TTL', 600000, 'OWNER', OWNER)
        store = self.store('--strict', node.tls, '--strict-tls', '--strict-timeout', '500')
        with self.assertRaises(RespError) as caught:
            store.call('SET', 'k', 'v', 'FENCE', 'l', token)
        self.assertEqual(caught.exception.word, 'UNCHECKED')
        self.assertIsNone(store.call('GET', 'k'))


class Redlock(TlsCase):
    def redis(self, name='server', certs=None):
        certs = certs or self.certs
        port = free_ports(1)[0]
        server = self.lab.start(['redis-server', '--port', '0', '--tls-port', port, '--bind', '127.0.0.1', '--save', '',
                                 '--dir', self.lab.dir, *certs.daemon(name)], 'redis%d' % port)
        server.address = '127.0.0.1:%d' % port
        server.wait_output('Ready to accept connections')
        return server

    def acquire(self, servers, name, *more):
        return self.tool('redlock', 'acquire', name, '--restarts-are-safe', '--budget', '60s', '--ttl', '1200s', '--max-ttl', '1200s',
                         '--redis', ','.join(s.address for s in servers), *more)

    def files(self, name='alice'):
        return ['--redis-tls'] + self.certs.tool(name)[1:]

    def test_three_servers(self):
        servers = [self.redis() for _ in range(3)]
        code, out, err = self.acquire(servers, 'rl', *self.files())
        self.assertEqual(code, 0, err)
        owner = out.split()[0]
        code, _, err = self.tool('redlock', 'release', 'rl', owner, '--restarts-are-safe', '--budget', '60s', '--max-ttl', '1200s', '--redis',
                                 ','.join(s.address for s in servers), *self.files())
        self.assertEqual(code, 0, err)

    def test_refusals(self):
        servers = [self.redis() for _ in range(3)]
        code, _, err = self.acquire(servers, 'rl', *self.files(None))
        self.assertEqual(code, 3, err)
        self.assertIn('TLS', err)
        other = Certs(self.lab, 'other')
        code, _, err = self.acquire(servers, 'rl', '--redis-tls', '--cacert', other.crt('ca'))
        self.assertNotEqual(code, 0)
        self.assertIn('its certificate is not accepted', err)

    def test_a_minority_of_strangers_does_no_harm(self):
        other = Certs(self.lab, 'other')
        other.make('server', 'server', '127.0.0.1')
        servers = [self.redis(), self.redis(), self.redis(certs=other)]
        code, _, err = self.acquire(servers, 'rl', *self.files())
        self.assertEqual(code, 0, err)
        servers[1].kill()
        code, _, err = self.acquire(servers, 'rl2', *self.files())
        self.assertNotEqual(code, 0)

    def test_a_token_of_the_cluster_too(self):
        node = self.cluster().nodes[0]
        servers = [self.redis() for _ in range(3)]
        code, out, err = self.acquire(servers, 'rl', '--redis-tls', '--nodes', node.tls, *self.certs.tool('alice'))
        self.assertEqual(code, 0, err)
        self.assertEqual(len(out.split()), 3)


class MakingCertificates(TlsCase):
    def test_what_is_there_is_kept(self):
        before = open(self.certs.key('alice'), 'rb').read()
        ca = open(self.certs.key('ca'), 'rb').read()
        self.certs.make('client', 'alice')
        self.certs.make('ca', FORCE='1')
        self.assertEqual(open(self.certs.key('alice'), 'rb').read(), before)
        self.assertEqual(open(self.certs.key('ca'), 'rb').read(), ca)
        self.assertEqual(os.stat(self.certs.key('alice')).st_mode & 0o777, 0o600)

    def test_what_it_does_not_take(self):
        for words in (['server', '../evil', 'localhost'], ['client', 'a b'], ['server', 'x', 'DNS:y,IP:1.2.3.4'], ['server', 'x'],
                      ['what']):
            done = subprocess.run([CERTS, self.certs.dir, *words], capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertNotEqual(done.returncode, 0, words)


if __name__ == '__main__':
    main()
