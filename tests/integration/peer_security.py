#!/usr/bin/python3
"""The port between nodes, on real processes: a cluster that goes by certificates and one that goes by a secret, who is
kept out, and files that are renewed while it works."""

import os
import itertools
import shutil
import socket
import ssl
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import ANSWER_S, LONG_ELECTION_TIMEOUT, PATIENCE_S, Case, Cluster, binary, main, wait_until
from harness.resp import info_fields
from tls_lab import Certs, assert_no_storm_costs_a_term, keeps_its_term

OWNER = 'owner-a-0123456789'
HIDDEN = 'the-name-of-a-lock-that-nobody-should-read'


class PeerCase(Case):
    def info(self, node):
        return info_fields(node.call('INFO', 'tls'))

    def by_certificates(self):
        self.certs = Certs(self.lab)
        cluster = Cluster(self.lab, 3)
        for node in cluster.nodes:
            self.certs.make('node', str(node.id), '127.0.0.1', 'localhost')
            node.extra = ['--tls-cluster', 'yes'] + self.certs.daemon('node-%d' % node.id)
        self.certs.make('client', 'alice')
        return cluster

    def secret(self, name, *lines):
        path = self.lab.path(name)
        with open(path + '.new', 'w', encoding='ascii') as f:
            f.write(''.join(line + '\n' for line in lines))
        os.rename(path + '.new', path)
        return path

    def by_secret(self):
        return Cluster(self.lab, 3, ['--cluster-secret-file', self.secret('secret', 'x' * 32)])

    def works(self, cluster, lock):
        """Through a follower, so that the relay is in it."""
        leader = cluster.leader()
        node = next(n for n in cluster.running() if n is not leader)
        token = node.call('ACQUIRE', lock, 'TTL', 600000, 'OWNER', OWNER)
        self.assertGreater(token, 0)
        self.assertEqual(node.call('RELEASE', lock, token), 1)
        self.assertEqual(len(set(cluster.wait_same_state())), 1)


class Members(PeerCase):
    def test_certificates(self):
        cluster = self.by_certificates().start().steady()
        self.works(cluster, 'a')
        for node in cluster.nodes:
            info = self.info(node)
            self.assertEqual(info['peer_security'], 'certificates')
            self.assertEqual(info['peer_cert_subject'], '/CN=node-%d' % node.id)
            self.assertIn(info['peer_cert_days_left'], (396, 397))
            self.assertEqual(info['peer_handshakes_failed'], 0)
        leader = cluster.leader()
        leader.kill()
        self.works(cluster, 'b')
        leader.start()
        cluster.wait_serving(leader)
        self.works(cluster, 'c')

    def test_secret(self):
        cluster = self.by_secret().start().steady()
        self.works(cluster, 'a')
        for node in cluster.nodes:
            self.assertEqual(self.info(node)['peer_security'], 'secret')
            self.assertNotIn('peer_cert_days_left', self.info(node))
        leader = cluster.leader()
        leader.kill()
        self.works(cluster, 'b')
        leader.start()
        cluster.wait_serving(leader)

    def test_nothing(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        self.assertEqual(self.info(node)['peer_security'], 'none')

    def test_a_node_without_its_own_name_does_not_start(self):
        cluster = self.by_certificates()
        node = cluster.nodes[0]
        node.extra = ['--tls-cluster', 'yes'] + self.certs.daemon('node-2')
        done = subprocess.run([str(word) for word in node.argv()], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn('does not bear the name fencelock-node-1', done.stderr)


class Strangers(PeerCase):
    def test_a_node_with_another_secret(self):
        """Two of three work; the third gets nowhere until it has the right one."""
        cluster = self.by_secret().start().steady()
        late = cluster.followers()[0]
        late.terminate()
        late.extra = ['--cluster-secret-file', self.secret('other', 'y' * 32)]
        late.start()
        others = [n for n in cluster.nodes if n is not late]
        wait_until(lambda: any(self.info(n)['peer_handshakes_failed'] > 0 for n in others), 'a refusal')
        self.assertEqual(others[0].call('CHECK', 'nothing', 1), 0)
        self.assertNotEqual(int(late.info()['leader_id']), late.id)
        late.terminate()
        late.extra = others[0].extra
        late.start()
        cluster.wait_serving(late)

    def test_a_client_of_the_ca_at_the_peer_port(self):
        """Whatever it says after the handshake, it hears not one byte."""
        cluster = self.by_certificates().start().steady()
        node = cluster.nodes[0]
        context = self.certs.context('alice')
        for words in (b'', b'PING\r\n', b'fencelok' + b'\0' * 768, os.urandom(2000)):
            with socket.create_connection(('127.0.0.1', node.peer_port), timeout=ANSWER_S) as raw:
                with context.wrap_socket(raw, server_hostname='localhost') as c:
                    try:
                        c.sendall(words)
                        self.assertEqual(c.recv(1000), b'')
                    except (ssl.SSLError, ConnectionError):
                        pass
        wait_until(lambda: 'bears no name of another member' in node.process.output(), 'a line in the log')
        self.works(cluster, 'a')

    def handshakes(self, node):
        info = self.info(node)
        return info['peer_handshakes'] + info['peer_handshakes_failed']

    def keeps_its_term(self, cluster):
        leader, asked = cluster.leader(), itertools.count()
        before, context = self.handshakes(leader), self.certs.context('alice')

        def shake():
            with socket.create_connection(('127.0.0.1', leader.peer_port), timeout=ANSWER_S) as raw:
                context.wrap_socket(raw, server_hostname='localhost').close()

        def ask():
            for n in itertools.islice(asked, 100):
                self.works(cluster, 'a%d' % n) if n % 50 == 0 else leader.call('CHECK', 'a', 1)
        return keeps_its_term(self, leader, shake, 8, ask, lambda: self.handshakes(leader) > before + 50)

    def test_a_storm_of_handshakes(self):
        """The leader keeps its term."""
        cluster = self.by_certificates()
        for node in cluster.nodes:
            node.extra += LONG_ELECTION_TIMEOUT
        cluster.start()
        assert_no_storm_costs_a_term(self, lambda: self.keeps_its_term(cluster))


class Files(PeerCase):
    def test_renewed_while_it_works(self):
        cluster = self.by_certificates().start().steady()
        node = cluster.nodes[0]
        crt = self.certs.crt('node-1')
        shutil.copy(crt, crt + '.old')
        shutil.copy(self.certs.crt('node-2'), crt + '.new')
        os.rename(crt + '.new', crt)  # of another node, and its key does not fit
        wait_until(lambda: self.info(node)['peer_reloads_refused'] > 0, 'a refused reload')
        self.assertEqual(self.info(node)['peer_cert_subject'], '/CN=node-1')
        self.certs.make('node', '1', '127.0.0.1', FORCE='1', DAYS='30')
        wait_until(lambda: self.info(node)['peer_reloads'] > 0, 'a reload')
        self.assertIn(self.info(node)['peer_cert_days_left'], (29, 30))
        self.works(cluster, 'a')
        for other in cluster.nodes[1:]:  # new connections, with the new certificate
            other.kill()
            other.start()
            cluster.wait_serving(other)
        self.works(cluster, 'b')

    def test_a_new_secret_without_a_stop(self):
        """First everybody takes it, then everybody uses it, then the old one goes."""
        cluster = Cluster(self.lab, 3)
        for node in cluster.nodes:
            node.extra = ['--cluster-secret-file', self.secret('s%d' % node.id, 'o' * 32)]
        cluster.start().steady()
        for step, lines in enumerate((('o' * 32, 'n' * 32), ('n' * 32, 'o' * 32), ('n' * 32,)), 1):
            for node in cluster.nodes:
                self.secret('s%d' % node.id, *lines)
            wait_until(lambda: all(self.info(n)['peer_reloads'] == step for n in cluster.nodes), 'reloads')
            self.works(cluster, 'step%d' % step)
        leader = cluster.leader()
        leader.kill()  # and all connect anew
        self.works(cluster, 'after')
        leader.start()
        cluster.wait_serving(leader)

    def test_bad_files(self):
        """Said at the start, with the remedy."""
        for words, says in ((['--cluster-secret-file', self.lab.path('none')], 'cannot read the cluster secret file'),
                            (['--cluster-secret-file', self.secret('short', 'abc')], 'openssl rand -hex 32')):
            done = subprocess.run([binary('fencelockd'), '--data', self.lab.path('d'), '--listen', '127.0.0.1:0', *words],
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 1)
            self.assertIn(says, done.stderr)


if __name__ == '__main__':
    main()
