#!/usr/bin/python3
"""Handshakes that are cut off, under valgrind: between buffers, of clients and of nodes, and at a real node. Some of the
bytes; with --full each one, about six thousand handshakes, some minutes."""

import os
import re
import socket
import ssl
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from cli_library import needs_valgrind
from harness import PATIENCE_S, Cluster, free_ports, main
from harness.lab import build_dir
from tls import OWNER, TlsCase
from tls_lab import Handshaker

FULL = '--full' in sys.argv
if FULL:
    sys.argv.remove('--full')
STEP = 1 if FULL else 101
VALGRIND = ['valgrind', '-q', '--leak-check=full', '--show-leak-kinds=definite,indirect',
            '--errors-for-leak-kinds=definite,indirect', '--error-exitcode=99']


class Cut(TlsCase):
    TIMEOUT_S = 3000

    def setUp(self):
        needs_valgrind(self)
        super().setUp()

    def test_between_buffers(self):
        for program in ('test_tls_session', 'test_tls_ends'):
            path = os.path.join(build_dir(), 'tests', 'unit', 'tls', program)
            done = subprocess.run(VALGRIND + [path, 'cut_at_every_byte'], capture_output=True, text=True, timeout=2900,
                                  env=dict(os.environ, FENCELOCK_CUT_STEP=str(STEP)))
            said = done.stdout + done.stderr
            self.assertEqual(done.returncode, 0, said[-4000:])
            self.note('%s: %s handshakes cut off' % (program, re.search(r'cut off: (\d+)', said).group(1)))

    def carry(self, node, version, n):
        """A handshake of which the first n bytes are sent; how many there would have been, at least. None: it was whole."""
        client = Handshaker(self.certs.context('alice', version))
        host, port = node.tls.split(':')
        sent = 0
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as s:
            while True:
                words, over = client.step()
                s.sendall(words[:n - sent])
                sent += len(words)
                if sent >= n:
                    return sent
                if over:
                    return None
                heard = s.recv(65536)
                self.assertTrue(heard, 'the node hangs up after %d bytes' % sent)
                client.incoming.write(heard)

    def test_at_a_node(self):
        cluster = Cluster(self.lab, 1)
        node = cluster.nodes[0]
        node.tls = '127.0.0.1:%d' % free_ports(1)[0]
        node.extra = ['--tls-port', node.tls] + self.certs.daemon('server')
        plain = node.argv
        node.argv = lambda: VALGRIND + plain()
        cluster.start()
        cut = 0
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            n = 0
            while self.carry(node, version, n) is not None:
                n += STEP
                cut += 1
            self.assertGreater(n, 500)
        with self.tls(node) as c:
            self.assertGreater(c.call('ACQUIRE', 'a', 'TTL', 60000, 'OWNER', OWNER), 0)
        self.assertEqual(node.terminate(), 0) # 99, and words in its log, when valgrind found something
        self.note('%d handshakes cut off' % cut)


if __name__ == '__main__':
    main()
