#!/usr/bin/python3
"""One node: what the first minute with fencelock looks like."""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Case, Cluster, Resp, RespError, binary, main, wait_until
from harness.lab import directory_size, port_is_free

OWNER_A, OWNER_B = 'owner-a-0123456789', 'owner-b-0123456789'
LOCK_WAIT_S = 4 # how long a node waits for a lock is a second more (src/members/data_dir.c)
PORT_WAIT_S = 0.9 # and for a port a tenth more (src/base/listen.h)


class NoOptions(Case):
    def own_network(self):
        """A network of our own, where the default ports are free, until the test ends. Without the right to one nothing changes."""
        libc, new_network = ctypes.CDLL(None), 0x40000000 # CLONE_NEWNET
        before = os.open('/proc/thread-self/ns/net', os.O_RDONLY | os.O_CLOEXEC)
        self.addCleanup(os.close, before)
        if libc.unshare(new_network) == 0:
            self.addCleanup(lambda: self.assertEqual(libc.setns(before, new_network), 0))
            subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)

    def test_one_word_starts_a_node(self):
        self.own_network()
        if not (port_is_free(7401) and port_is_free(7501)):
            self.skipTest('a default port, 7401 or 7501, is in use on this machine')
        node = self.lab.start([binary('fencelockd')], 'node', cwd=self.lab.dir)
        node.wait_output('ready: node 1 listening on 127.0.0.1:7401')
        with Resp('127.0.0.1:7401') as c:
            token = c.call('ACQUIRE', 'first', 'TTL', 5000)
            answered = time.monotonic() - node.started
        self.note('start to first grant: %.0f ms' % (answered * 1000))
        self.assertGreater(token, 0)
        self.assertTrue(os.path.isdir(self.lab.path('fencelock-data')))
        self.assertEqual(node.terminate(), 0)


class OneNode(Case):
    def setUp(self):
        super().setUp()
        self.node = Cluster(self.lab, 1).start().nodes[0]

    def test_acquire_twice_expiry_and_a_larger_token(self):
        with self.node.client() as c:
            first = c.call('ACQUIRE', 'name', 'TTL', 60000, 'OWNER', OWNER_A)
            self.assertEqual(c.call('ACQUIRE', 'name', 'TTL', 60000, 'OWNER', OWNER_A), first)
            self.assertIsNone(c.call('ACQUIRE', 'name', 'TTL', 60000, 'OWNER', OWNER_B))
            self.assertEqual(c.call('RELEASE', 'name', first), 1)
            first = c.call('ACQUIRE', 'name', 'TTL', 300, 'OWNER', OWNER_A)
            second = wait_until(lambda: c.call('ACQUIRE', 'name', 'TTL', 60000, 'OWNER', OWNER_B), 'expiry')
            self.assertGreater(second, first)
            self.assertEqual(c.call('CHECK', 'name', first), 0)
            self.assertEqual(c.call('CHECK', 'name', second), 1)
            self.assertEqual(c.call('RELEASE', 'name', first), 0)
            self.assertEqual(c.call('RELEASE', 'name', second), 1)

    def test_release_renew_check_show_token_break(self):
        with self.node.client() as c:
            token = c.call('ACQUIRE', 'a', 'TTL', 60000, 'OWNER', OWNER_A, 'VALUE', 'why')
            self.assertEqual(c.call('RENEW', 'a', token), 1)
            self.assertEqual(c.call('RENEW', 'a', token + 1), 0)
            show = c.call('SHOW', 'a')
            self.assertIn(token, show)
            self.assertIn(OWNER_A.encode(), show)
            self.assertEqual(c.call('BREAK', 'a'), token + 1) # the one burnt
            self.assertEqual(c.call('BREAK', 'a'), 0)
            self.assertEqual(c.call('CHECK', 'a', token), 0)
            burnt = c.call('TOKEN', 'a')
            self.assertGreater(burnt, token + 1) # breaking uses up one token
            self.assertIsNone(c.call('SHOW', 'a'))
            self.assertGreater(c.call('ACQUIRE', 'a', 'TTL', 1000, 'OWNER', OWNER_B), burnt)

    def test_restart_keeps_locks_and_tokens(self):
        with self.node.client() as c:
            held = c.call('ACQUIRE', 'held', 'TTL', 600000, 'OWNER', OWNER_A)
            freed = c.call('ACQUIRE', 'freed', 'TTL', 600000, 'OWNER', OWNER_A)
            self.assertEqual(c.call('RELEASE', 'freed', freed), 1)
        for end in (self.node.kill, self.node.terminate, self.node.kill):
            end()
            self.node.start()
            with self.node.client() as c:
                self.assertEqual(c.call('CHECK', 'held', held), 1)
                self.assertEqual(c.call('CHECK', 'freed', freed), 0)
                token = c.call('ACQUIRE', 'freed', 'TTL', 600000, 'OWNER', OWNER_B)
                self.assertGreater(token, freed)
                self.assertEqual(c.call('RELEASE', 'freed', token), 1)
                freed = token

    def test_sigterm_exits_with_0_also_with_a_waiter(self):
        with self.node.client() as a, self.node.client() as b:
            a.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_A)
            b.send('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_B, 'WAIT', 600000)
            wait_until(lambda: self.waiters(a, 'x') == 1, what='the waiter in the queue')
            self.assertEqual(self.node.terminate(), 0)
            with self.assertRaises((ConnectionError, RespError)): # told or cut off, but not left hanging
                answer = b.read()
                if isinstance(answer, RespError):
                    raise answer

    @staticmethod
    def waiters(connection, name):
        show = connection.call('SHOW', name)
        return len(show[show.index(b'queue') + 1]) if b'queue' in show else show[show.index(b'waiters') + 1]

    def test_a_hundred_thousand_sequential_tokens_grow(self):
        with self.node.client() as c:
            last = 0
            for _ in range(100):
                for token in c.pipeline([('TOKEN', 'x')] * 1000):
                    self.assertGreater(token, last)
                    last = token
        self.note('data directory: %d KiB' % (directory_size(self.node.data) // 1024))

    def test_two_hundred_clients_get_a_token_each(self):
        clients = [self.node.client() for _ in range(200)]
        try:
            for i, c in enumerate(clients):
                c.send('ACQUIRE', 'lock-%d' % i, 'TTL', 30000, 'OWNER', OWNER_A)
            tokens = [c.read() for c in clients]
            self.assertEqual(len(set(tokens)), 200)
        finally:
            for c in clients:
                c.close()

    def test_sigint_ends_it_like_sigterm_and_sigpipe_does_not(self):
        self.node.process.signal(signal.SIGPIPE)
        self.assertEqual(self.node.call('PING'), 'PONG')
        self.node.process.asked_to_end = True
        self.node.process.signal(signal.SIGINT)
        self.assertEqual(self.node.process.wait(), 0)


class Killed(Case):
    CHILD = """if True:
        import fcntl, socket, sys, time
        lock = open(sys.argv[1] + '/lock')
        fcntl.flock(lock, fcntl.LOCK_EX)
        ports = [socket.create_server(('127.0.0.1', int(port))) for port in sys.argv[2:]]
        print('ready', flush=True)
        sys.stdin.read()
        start = time.monotonic()
        lock.close()
        time.sleep(0.1)
        for port in ports:
            port.close()
        print(time.monotonic() - start, flush=True)"""

    def test_its_child_still_has_its_lock_and_its_ports(self):
        """A node is killed while it forks the child that writes a snapshot. Here another process plays the child, for longer, and
        ends the lock before the ports, as the kernel may; on a slow machine it stays for longer than a node waits, and then again."""
        node = Cluster(self.lab, 1).start().nodes[0]
        self.assertTrue(any(self.waits_for_child(node) for _ in range(5)), 'it did not wait')
        self.assertGreater(node.call('TOKEN', 'any'), 0)

    def waits_for_child(self, node):
        """Whether it does, and starts then. False: the child was there for so long that it could not know."""
        node.kill()
        child = subprocess.Popen([sys.executable, '-c', self.CHILD, node.data, str(node.port), str(node.peer_port)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), b'ready\n')
        process = node.launch()

        def waits():
            if not process.running():
                return True
            links = '/proc/%d/fd' % process.pid
            return any(os.path.realpath(os.path.join(links, fd)) == os.path.realpath(node.data + '/lock') for fd in os.listdir(links))
        wait_until(waits, 'the node to look at the lock')
        child.stdin.close()
        wait_until(lambda: not process.running() or 'ready: ' in process.output(), 'its start or its end')
        if process.running():
            return True
        process.asked_to_end = True
        waited = time.monotonic() - process.started > LOCK_WAIT_S or float(child.stdout.readline()) > PORT_WAIT_S
        self.assertTrue(waited, 'it did not wait: ' + process.last_output())
        return False

    def test_its_segments_are_locked_until_its_last_write_has_ended(self):
        """A write that is under way in the kernel when the node is killed keeps the lock of its segment. Here this process has the lock."""
        node = Cluster(self.lab, 1).start().nodes[0]
        log = os.path.join(node.data, 'log')

        def segments():
            return sorted(os.path.join(log, name) for name in os.listdir(log) if name[:8] == 'segment-' and name[8:].isdigit())

        def locked(path):
            with open(path, 'rb') as f:
                try:
                    fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
            return False
        self.assertTrue(locked(segments()[0]))
        for _ in range(16): # enough for the next segment to be made, and not enough to fill the first
            node.call('TOKEN', 'any')
        wait_until(lambda: len(segments()) > 1, 'the next segment')
        self.assertEqual([path for path in segments() if not locked(path)], [])
        token = node.call('TOKEN', 'any')
        node.kill()
        wait_until(lambda: not any(map(locked, segments())), 'the end of what the node had begun')
        with open(segments()[0], 'r+b') as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            process = node.launch()
            wait_until(lambda: 'is still being written' in process.output(), 'the node to wait')
            self.assertNotIn('ready: ', process.output())
        node.wait_ready()
        self.assertGreater(node.call('TOKEN', 'any'), token)


class Waiting(Case):
    def test_waiting_is_no_slow_turn(self):
        """A node without work waits for tens of milliseconds again and again; those are not turns that took long."""
        node = Cluster(self.lab, 1).start().nodes[0]
        before = node.info()

        def turned():
            now = node.info()
            return now if now['loop_turns'] >= before['loop_turns'] + 40 else time.sleep(0.2)
        now = wait_until(turned, 'forty turns')
        self.assertLess(2 * (now['loop_turns_slow'] - before['loop_turns_slow']), now['loop_turns'] - before['loop_turns'])


if __name__ == '__main__':
    main()
