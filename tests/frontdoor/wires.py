#!/usr/bin/python3
"""Some libraries have packages in no registry that CI may use. Here their recorded requests are sent again, to a real Redis and to the front door,
and the answers are compared. tests/frontdoor/record has recorded most of them from the libraries; those of two in C# (`recorded` is false)
were written down from their sources. There are three nodes, whose leader is killed in the middle; all scripts go by the libraries' own SHA-1;
and once with TLS, as a user who may take those locks and no others."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Resp, main, wait_until
from harness.lab import free_ports
from redlock_lab import Redis
from tls_lab import Certs, TlsResp
from wire_lab import answer, form_texts, wires, words_for

TTL = 60000


def rounded(value, elapsed_ms):
    """A time that is left of a minute, of which so much may have passed."""
    if isinstance(value, list):
        return [rounded(v, elapsed_ms) for v in value]
    return 'about a minute' if isinstance(value, int) and TTL - elapsed_ms - 1000 <= value < TTL + 10000 else value


def kind(value):
    return 'error' if isinstance(value, str) and value.startswith('error ') else 'answer'


HANDSHAKE = ('HELLO', 'CLIENT', 'INFO', 'AUTH', 'SELECT', 'PING')


class Wires(Case):
    def setUp(self):
        super().setUp()
        self.texts = form_texts()
        self.redis = Redis(self.lab, 'redis')
        for text in self.texts.values():
            self.redis.call('SCRIPT', 'LOAD', text)

    def each(self, node, connect=None, by_sha1=False, between=None):
        """connect(): a new connection to the front door of this node."""
        connect = connect or (lambda: node.client(240))
        told = []
        for wire in wires():
            ours, theirs, compared = {}, {}, 0
            self.began = time.monotonic()
            for at, line in enumerate(wire['steps']):
                if between is not None and at == len(wire['steps']) // 2:
                    between()
                compared += self.step(node, wire, line, ours, theirs, connect, by_sha1)
            for c in (*ours.values(), *theirs.values()):
                c.close()
            self.redis.call('FLUSHDB')
            told.append('%s (%s): %d answers' % (wire['library'], wire['commit'], compared))
        self.assertEqual(len(told), 9)
        for text in told:
            self.note(text)

    def step(self, node, wire, line, ours, theirs, connect, by_sha1):
        """Whether two answers were compared."""
        name, may_fail = line[0].rstrip('?'), line[0].endswith('?')
        if name == '':
            key = line[2].encode('latin-1')
            for ask in (self.redis.call, node.call):
                wait_until(lambda: ask('EXISTS', key) == 0, 'the end of the lease')
            return 0
        if name not in ours:
            ours[name], theirs[name] = connect(), Resp(self.redis.address, timeout=PATIENCE_S)
        named = by_sha1 or line[1].upper() == 'EVALSHA'
        def asked():
            got = answer(ours[name], words_for(line, self.texts, named))
            return None if got == 'error NOLEADER' else (got,) # which says that nothing was done
        got = wait_until(asked, 'an answer of the front door')[0]
        want = answer(theirs[name], words_for(line, self.texts, False))
        what = (wire['library'], line)
        if may_fail:
            return 0  # the library minds no error, and the answers are about a Redis
        if line[1].upper() in HANDSHAKE:
            self.assertEqual((kind(got), type(got)), ('answer', type(want)), what)
            return 1
        elapsed_ms = (time.monotonic() - self.began) * 1000
        self.assertEqual(rounded(got, elapsed_ms), rounded(want, elapsed_ms), what)
        return 1

    def test_with_a_leader_that_is_killed(self):
        cluster = Cluster(self.lab, 3).start()
        near, leader = cluster.followers()

        def kill():
            cluster.make_leader(leader) # another than the one that is asked
            leader.kill()
            cluster.leader(among=cluster.running())
            leader.start()
            cluster.wait_serving(leader)
            cluster.wait_serving(near)
        self.each(near, between=kill)
        self.assertEqual(wait_until(lambda: near.call('LOCKS'), 'the locks'), [b'', []])  # all was given back

    def test_by_their_own_names(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        known = {part['sha1'] for wire in wires() for line in wire['steps'] for part in line if isinstance(part, dict)}
        self.assertEqual(node.call('SCRIPT', 'EXISTS', *known), [1] * len(known))
        self.each(node, by_sha1=True)

    def test_with_tls_as_a_user(self):
        certs = Certs(self.lab)
        certs.make('node', '1', '127.0.0.1')
        address = '127.0.0.1:%d' % free_ports(1)[0]
        node = Cluster(self.lab, 1, ('--tls-port', address, '--tls-auth-clients', 'no', *certs.daemon('node-1'))).start().nodes[0]
        node.call('ACL', 'SETUSER', 'library', 'on', '>the-password', '~*one', '~*late', '+@acquire')
        context = certs.context()

        def connect():
            c = TlsResp(address, context, 240)
            self.assertEqual(c.call('AUTH', 'library', 'the-password'), 'OK')
            self.assertEqual(answer(c, ['SET', 'another', 'value-of-the-library', 'NX', 'PX', TTL]), 'error NOPERM')
            return c
        self.each(node, connect)


if __name__ == '__main__':
    main()
