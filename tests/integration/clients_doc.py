#!/usr/bin/python3
"""The programs of docs/CLIENTS.md, as they stand there: several run at once and add one to a number; no update is lost.
A late one is refused. A language whose tools or Redis client cannot be had is skipped, and says so."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, ClusterCase, Store, main
from harness.lab import ROOT

PAGE = os.path.join(ROOT, 'docs', 'CLIENTS.md')
AT_ONCE = 4
INSTALL_S = 180


def program(language):
    """The one program in that language."""
    with open(PAGE, encoding='utf-8') as f:
        blocks = re.findall(r'^```%s\n(.*?)^```' % language, f.read(), re.M | re.S)
    if len(blocks) != 1:
        raise AssertionError('%d programs in %s' % (len(blocks), language))
    return blocks[0]


def patient(text):
    """A program of the page with times that no machine outlasts: of the lease, of the wait for it, and of its sockets."""
    for short, long, times in ((r'\b10000\b', '600000', {1}), (r'\b3000\b', '200000', {1}), (r'socket_timeout=5\b', 'socket_timeout=240', {0, 2}),
                               (r'\b5 \* time\.Second', '240 * time.Second', {0, 2}), (r'\b5000\b', '240000', {0, 1})):
        text, n = re.subn(short, long, text)
        if n not in times:
            raise AssertionError('%d times %s' % (n, short))
    return text


class Hanging:
    """A node that answers what drivers ask at first, ACQUIRE with a token, if it grants, and then nothing more."""

    def __init__(self, grants):
        self.grants, self.attempts = grants, []
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        self.open = [self.listener]
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in self.open:
            s.close()

    def _listen(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            self.open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client.makefile('rwb') as f:
            try:
                while (line := f.readline()).startswith(b'*'):
                    words = [f.read(int(f.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
                    self._answer(f, words)
                    f.flush()
            except (OSError, ValueError):
                pass

    def _answer(self, f, words):
        if words[0].upper() == b'ACQUIRE':
            self.attempts.append(words[words.index(b'ATTEMPT') + 1])
            f.write(b':%d\r\n' % self.grants if self.grants else b'')
        elif words[0].upper() == b'HELLO':
            f.write(b'%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n')
        elif words[0].upper() != b'RELEASE':
            f.write(b'-ERR unknown command\r\n' if words[0].upper() == b'CLIENT' else b'+OK\r\n')


class Programs(ClusterCase):
    NODES = 1

    def setUp(self):
        super().setUp()
        self.cluster.leader()
        self.node = self.cluster.nodes[0]
        self.store = Store(self.lab).start()

    def write(self, name, text, node=None):
        """The program in a file, with the ports of this test. For another node than ours it has its own times, and fewer attempts."""
        if node is None:
            text = patient(text)
        else:
            text, n = re.subn(r'range\(1, 11\)|<= 10\b', lambda m: 'range(1, 3)' if m.group()[0] == 'r' else '<= 2', text)
            self.assertEqual(n, 1)
        for port, real in (('7401', node or self.node.port), ('7411', self.store.port)):
            self.assertIn(port, text)
            text = text.replace(port, str(real))
        path = self.lab.path(name)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        return path

    def install(self, tool, *commands):
        """What its client needs, or a skipped test."""
        if shutil.which(tool) is None:
            self.skipTest('%s is not installed' % tool)
        for command in commands:
            try:
                done = subprocess.run(command, cwd=self.lab.dir, timeout=INSTALL_S, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                self.skipTest('%s takes too long here' % ' '.join(command))
            if done.returncode:
                self.skipTest('%s: %s' % (' '.join(command), done.stdout.decode(errors='replace').strip()[-200:]))

    def total(self):
        return int(self.store.call('GET', 'total') or 0)

    def run_them(self, *command):
        children = [subprocess.Popen(command, cwd=self.lab.dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT) for _ in range(AT_ONCE)]
        outs = [child.communicate(timeout=PATIENCE_S)[0].decode(errors='replace') for child in children]
        self.assertEqual([child.returncode for child in children], [0] * AT_ONCE, outs)
        self.assertEqual(self.total(), AT_ONCE)
        self.assertIsNone(self.node.call('SHOW', 'report')) # given back
        # Whoever comes too late is refused, and ends with an error.
        self.store.call('CLAIM', 'report', 1 << 40)
        done = subprocess.run(command, cwd=self.lab.dir, timeout=PATIENCE_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b'STALE', done.stdout.upper())
        self.assertEqual(self.total(), AT_ONCE)

    def beside_a_node_that_hangs(self, run):
        """A program ends in a while, and what is written counts. `run` gives its exit code; the port of its node."""
        total = self.total()
        with Hanging(grants=None) as node:
            self.assertNotEqual(run(node.port), 0)
            self.assertEqual(node.attempts, [str(i + 1).encode() for i in range(len(node.attempts))])
            self.assertGreater(len(node.attempts), 1)
        self.assertEqual(self.total(), total)
        with Hanging(grants=1 << 41) as node:
            self.assertEqual(run(node.port), 0)
        self.assertEqual(self.total(), total + 1)

    def exit_code(self, *command):
        return subprocess.run(command, cwd=self.lab.dir, timeout=PATIENCE_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT).returncode

    def test_python(self):
        self.install(sys.executable, [sys.executable, '-c', 'import redis'])
        self.run_them(sys.executable, self.write('add.py', program('python')))
        self.beside_a_node_that_hangs(lambda port: self.exit_code(sys.executable, self.write('hang.py', program('python'), port)))

    def test_go(self):
        self.install('go')
        self.write('main.go', program('go'))
        self.install('go', ['go', 'mod', 'init', 'add'], ['go', 'get', 'github.com/redis/go-redis/v9@v9.7.3'])
        subprocess.run(['go', 'build', '-o', 'add', '.'], cwd=self.lab.dir, check=True, timeout=INSTALL_S)
        self.run_them(self.lab.path('add'))
        def run(port):
            self.write('main.go', program('go'), port)
            subprocess.run(['go', 'build', '-o', 'hang', '.'], cwd=self.lab.dir, check=True, timeout=INSTALL_S)
            return self.exit_code(self.lab.path('hang'))
        self.beside_a_node_that_hangs(run)

    def test_node(self):
        self.install('node')
        self.install('npm', ['npm', 'install', '--no-fund', '--no-audit', 'redis@4'])
        self.run_them('node', self.write('add.js', program('js')))
        self.beside_a_node_that_hangs(lambda port: self.exit_code('node', self.write('hang.js', program('js'), port)))


if __name__ == '__main__':
    main()
