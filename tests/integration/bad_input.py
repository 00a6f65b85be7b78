#!/usr/bin/python3
"""Bad input at each door of a running node: a clear error, bounded memory, and a server that lives."""

import os
import random
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, ClusterCase, RespError, as_dict, limit_asan_quarantine, main, seed, wait_until
from harness.resp import encode, info_fields

OWNER = 'owner-a-0123456789'
MIB = 1 << 20


class Doors(ClusterCase):
    NODES = 1

    def setUp(self):
        super().setUp()
        self.node = self.cluster.nodes[0]
        self.random = random.Random(seed())
        self.rss_before = self.node.process.rss()

    def alive(self, growth=64 * MIB):
        """Serves, and has not grown by more than `growth`."""
        self.assertGreater(self.node.call('TOKEN', 'alive'), 0)
        grown = self.node.process.rss() - self.rss_before
        self.assertLess(grown, growth, 'resident memory grew by %d MiB' % (grown // MIB))
        return grown

    def error(self, *args):
        with self.node.client() as c:
            with self.assertRaises(RespError) as e:
                c.call(*args)
            self.assertEqual(c.call('PING'), 'PONG') # framing was kept
            self.assertTrue(e.exception.word.isupper(), e.exception.line)
            self.assertGreater(len(e.exception.text), 5)
            return e.exception

    def test_wrong_arguments(self):
        for args in ((), ('name', 'TTL'), ('name', 'TTL', 'x'), ('name', 'TTL', '-1'), ('name', 'TTL', '9'),
                     ('name', 'TTL', 86400001), ('name', 'TTL', 1 << 64), ('name', 'TTL', 100, 'TTL', 100), ('', 'TTL', 100),
                     ('n' * 256, 'TTL', 100), ('name', 'OWNER', ''), ('name', 'OWNER', 'short'),
                     ('name', 'OWNER', 'o' * 256), ('name', 'VALUE', 'v' * 1025), ('name', 'WAIT', 86400001),
                     ('name', 'NONSENSE', 1), ('name', 'ALSO'), ('name', 'ALSO', ''), ('name', 'ALSO', 'n' * 256),
                     ('name', 'ALSO', 'name'), ('name', 'ALSO', 'b', 'MODE', 'SHARED'), ('name', 'ALSO', 'b', 'PERMITS', 2),
                     ('name', *(a for i in range(16) for a in ('ALSO', i))),
                     ('name', 'MODE', 'BOTH'), ('name', 'PERMITS', 0),
                     ('name', 'PERMITS', 1000001), ('name', 'PERMITS', 2, 'MODE', 'SHARED')):
            self.error('ACQUIRE', *args)
        for args in (('RENEW',), ('RENEW', 'n'), ('RENEW', 'n', 'x'), ('RENEW', 'n', 0), ('RENEW', 'n', 1 << 53),
                     ('RELEASE', 'n', -1), ('CHECK', 'n', '1.5'), ('CHECK', 'n', ''), ('TOKEN',), ('BREAK', 'a', 'b'),
                     ('SESSION',), ('SESSION', 'NONSENSE', 'x'), ('SESSION', 'OPEN', OWNER), ('LOCKS', 'COUNT', 'x'),
                     ('HELLO', 'x'), ('NONSENSE',), ('',), ('A' * 1000,), ('SET', 'a'), ('\0\r\n',)):
            self.error(*args)
        self.alive()

    def test_limits_at_the_ceiling_are_accepted(self):
        with self.node.client() as c:
            token = c.call('ACQUIRE', 'n' * 255, 'TTL', 86400000, 'OWNER', 'o' * 255, 'VALUE', 'v' * 1024)
            self.assertEqual(c.call('RELEASE', 'n' * 255, token), 1)
            token = c.call('ACQUIRE', 'n', 'TTL', 10, 'OWNER', 'o' * 16)
            self.assertGreater(token, 0)

    def test_binary_names(self):
        names = [bytes([b]) for b in range(256)] + [b'\r\n', b'\0' * 255, b'$3\r\nabc\r\n', b'*1\r\n', b'\xff\xfe']
        with self.node.client() as c:
            tokens = c.pipeline([('ACQUIRE', n, 'TTL', 600000, 'OWNER', OWNER) for n in names])
            self.assertEqual(len(set(tokens)), len(names))
            self.assertEqual(c.pipeline([('CHECK', n, t) for n, t in zip(names, tokens)]), [1] * len(names))
            self.assertEqual(c.pipeline([('RELEASE', n, t) for n, t in zip(names, tokens)]), [1] * len(names))

    def test_oversized_requests(self):
        with self.node.client() as c: # a long argument whose end can be found: error, and the connection lives
            c.send('ACQUIRE', 'x' * (8 * MIB), 'TTL', 100)
            self.assertIsInstance(c.read(), RespError)
            self.assertEqual(c.call('PING'), 'PONG')
        with self.node.client() as c:
            c.send(*['PING'] * 1000)
            self.assertIsInstance(c.read(), RespError)
        for head in (b'*99999999999\r\n', b'*1\r\n$99999999999\r\n', b'*1\r\n$-5\r\n', b'*1\r\n:1\r\n', b'*x\r\n',
                     b'*' + b'1' * 100 + b'\r\n', b'*1\r\n$3\r\nabcde\r\n', b'a' * 100000 + b'\r\n', b'*1' + b'\0' * 100):
            with self.node.client() as c:
                c.send_raw(head)
                replies = c.read_until_closed(PATIENCE_S)
                self.assertTrue(replies and isinstance(replies[-1], RespError), head[:40])
        self.alive()

    def test_endless_lines_and_endless_arguments(self):
        for piece in (b'a' * 65536, b'*1\r\n$536870912\r\n' + b'b' * 65536, b'*1048576\r\n$1\r\nx\r\n', b'\r\n' * 32768,
                      b'*0\r\n' * 16384):
            with self.node.client(5) as c:
                sent = 0
                try:
                    while sent < 48 * MIB:
                        c.send_raw(piece)
                        sent += len(piece)
                        if not piece.startswith((b'\r', b'*0')):
                            piece = piece[piece.rfind(b'\n') + 1:] or b'$1\r\nx\r\n' * 8192
                except (ConnectionError, socket.timeout):
                    pass # cut off, or no longer read: both are bounds
        self.alive()

    def test_truncated_requests(self):
        whole = encode('ACQUIRE', 'truncated', 'TTL', 60000, 'OWNER', OWNER)
        for cut in range(len(whole)):
            with self.node.client() as c:
                c.send_raw(whole[:cut])
        self.assertIsNone(self.node.call('SHOW', 'truncated'))
        with self.node.client() as c: # byte by byte is fine
            for i in range(len(whole)):
                c.send_raw(whole[i:i + 1])
            self.assertGreater(c.read(), 0)
        self.alive()

    def test_random_bytes(self):
        for _ in range(200):
            with self.node.client(5) as c:
                try:
                    c.send_raw(self.random.randbytes(self.random.randrange(1, 5000)))
                    c.sock.shutdown(socket.SHUT_WR)
                    while c.sock.recv(65536):
                        pass
                except (ConnectionError, socket.timeout):
                    pass
        self.alive()

    def test_mutated_requests(self):
        whole = encode('ACQUIRE', 'mutated', 'TTL', 100, 'OWNER', OWNER) + encode('CHECK', 'mutated', 1) + encode('PING')
        for _ in range(300):
            data = bytearray(whole)
            for _ in range(self.random.randrange(1, 4)):
                data[self.random.randrange(len(data))] = self.random.randrange(256)
            with self.node.client(5) as c:
                try:
                    c.send_raw(bytes(data))
                    c.sock.shutdown(socket.SHUT_WR)
                    while c.sock.recv(65536):
                        pass
                except (ConnectionError, socket.timeout):
                    pass
        self.alive()

    def test_a_long_pipeline_is_answered_in_order(self):
        with self.node.client(PATIENCE_S) as c:
            answers = c.pipeline([('ECHO', str(i)) for i in range(50000)])
            self.assertEqual(answers, [str(i).encode() for i in range(50000)])
        self.alive()

    def test_a_client_that_never_reads(self):
        """Requests without end, answers never read: the server stops reading, or cuts off."""
        with self.node.client(3, rcvbuf=4096) as c:
            sent = 0
            piece = encode('COMMAND', 'DOCS') * 100
            try:
                while sent < 256 * MIB:
                    c.send_raw(piece)
                    sent += len(piece)
            except (ConnectionError, socket.timeout):
                pass
            self.assertLess(sent, 128 * MIB)
            self.alive()

    def test_slow_readers_get_everything(self):
        with self.node.client(PATIENCE_S, rcvbuf=4096) as c:
            c.send_raw(encode('COMMAND', 'DOCS') * 50)
            first = None
            for _ in range(50):
                reply = c.read()
                first = first or reply
                self.assertEqual(reply, first)
        self.alive()

    def test_half_closed_sockets_are_answered_and_closed(self):
        for _ in range(20):
            with self.node.client() as c:
                c.send_raw(encode('PING') * 100)
                c.sock.shutdown(socket.SHUT_WR)
                self.assertEqual(c.read_until_closed(), ['PONG'] * 100)
        wait_until(lambda: self.node.process.fds() < 60, what='closed descriptors')

    def test_reset_connections_leave_nothing(self):
        before = self.node.process.fds()
        for i in range(300):
            c = self.node.client()
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            c.send_raw(encode('ACQUIRE', 'held', 'TTL', 60000, 'OWNER', OWNER if i == 0 else 'waiter-%010d' % i, 'WAIT', 60000))
            c.close()
        # A few are segments of the log that the waits themselves have filled.
        wait_until(lambda: self.node.process.fds() <= before + 8, what='closed descriptors')
        wait_until(lambda: self.waiters() == 0, what='the end of the waits of the dead')
        self.alive()

    def waiters(self):
        page = self.node.call('LOCKS')[1]
        return sum(as_dict(lock)['waiters'] for lock in page)

    def test_ten_thousand_idle_connections(self):
        wanted = 10000
        self.need_open_files(wanted + 200)
        self.node.terminate()
        self.node.start()
        before = self.node.process.rss()
        sockets = []
        try:
            for _ in range(wanted):
                s = socket.socket()
                sockets.append(s)
                s.settimeout(PATIENCE_S)
                s.connect(('127.0.0.1', self.node.port))
            for s in sockets[::100]:
                s.sendall(b'PING\r\n')
                self.assertEqual(s.recv(100), b'+PONG\r\n')
            grown = self.node.process.rss() - before
            self.note('10000 idle connections: %.1f KiB each' % (grown / wanted / 1024))
            self.assertLess(grown, 200 * MIB)
            self.assertGreater(self.node.call('TOKEN', 'x'), 0)
        finally:
            for s in sockets:
                s.close()
        wait_until(lambda: self.node.process.fds() < 100, 'closed descriptors')
        self.rss_before = before
        self.alive(200 * MIB)

    def test_too_many_connections_do_not_stop_those_that_are_there(self):
        self.node.terminate()
        self.node.process = self.lab.start(['sh', '-c', 'ulimit -n 100; exec "$@"', 'sh'] + self.node.argv(), 'few-files')
        self.node.wait_ready()
        sockets = []
        try:
            with self.node.client() as c:
                self.assertEqual(c.call('PING'), 'PONG')
                for _ in range(200):
                    s = socket.socket()
                    sockets.append(s)
                    s.settimeout(PATIENCE_S)
                    s.connect(('127.0.0.1', self.node.port))
                self.assertEqual(c.call('PING'), 'PONG')
                self.assertGreater(c.call('TOKEN', 'x'), 0)
        finally:
            for s in sockets:
                s.close()
        wait_until(lambda: self.node.call('PING') == 'PONG', 'service after the crowd has left')
        with open('/proc/%d/stat' % self.node.process.pid) as f:
            fields = f.read().rpartition(')')[2].split()
        ticks = int(fields[11]) + int(fields[12])
        self.assertLess(ticks / os.sysconf('SC_CLK_TCK'), 10, 'it spun')


class OneAddress(Case):
    """What the clients of one address may have, at the ceiling and beyond it, with others beside them."""
    HERE, THERE = '127.0.0.1', '127.0.0.2'

    def start(self, *options, kind='node'):
        node = Cluster(self.lab, 1, extra=options, kind=kind).start().nodes[0]
        return node, info_fields(self.ask(node, 'INFO', 'memory'))

    def ask(self, node, *args):
        with node.client(source=self.HERE) as c:
            return c.call(*args)

    def refused(self, node):
        with node.client(source=self.THERE) as c:
            e = c.read()
            self.assertEqual(e.word, 'LIMIT')
            self.assertIn('address-connections', e.text)

    def test_connections(self):
        node, _ = self.start('--address-connections', 20)
        there = [node.client(source=self.THERE) for _ in range(20)]
        for c in there:
            self.assertEqual(c.call('PING'), 'PONG')
        self.refused(node)
        self.assertGreater(self.ask(node, 'ACQUIRE', 'of-another', 'TTL', 60000), 0)
        facts = info_fields(self.ask(node, 'INFO', 'memory'))
        self.assertEqual((facts['clients_address_connections_limit'], facts['clients_address_connections_max_seen'],
                          facts['clients_refused_for_address']), (20, 20, 1))
        there.pop().close()
        self.assertTrue(wait_until(lambda: self.serves(node), 'room for one more'))
        for c in there:
            self.assertGreater(c.call('TOKEN', 'those-of-before'), 0)
            c.close()

    def serves(self, node):
        with node.client(source=self.THERE) as c:
            c.send('PING')
            return c.read() == 'PONG'

    def test_a_share_by_default_and_all_of_it_when_asked(self):
        _, facts = self.start('--connections-max', 100, '--client-memory', 64 * MIB)
        self.assertEqual(int(facts['clients_address_connections_limit']), 75)
        self.assertEqual(int(facts['clients_address_memory_limit']), 48 * MIB)
        _, facts = self.start('--connections-max', 100, '--address-connections', 100, kind='wide')
        self.assertEqual(int(facts['clients_address_connections_limit']), 100)

    def test_memory(self):
        """Who reads no answers goes when its address has what one may; a client of another address is served, and what the
        address kept is never above its ceiling by more than a turn of the loop adds."""
        limit = 4 * MIB
        node, _ = self.start('--address-memory', limit)
        greedy = [node.client(source=self.THERE, rcvbuf=4096) for _ in range(20)]
        want = encode('INFO') * 400
        for c in greedy:
            c.sock.setblocking(False)
        def cut_off():
            for c in greedy:
                try:
                    c.sock.send(want)
                except OSError:
                    pass
            self.assertGreater(self.ask(node, 'TOKEN', 'good'), 0)
            facts = info_fields(self.ask(node, 'INFO', 'memory'))
            self.assertEqual(int(facts['clients_cut_off_for_memory']), 0)
            return int(facts['clients_cut_off_for_address_memory']) > 0 and facts
        facts = wait_until(cut_off, 'somebody to be cut off')
        self.assertLess(int(facts['clients_address_memory_max_seen']), limit + 2 * MIB)
        self.note('one address kept %d KiB at most, of %d' % (int(facts['clients_address_memory_max_seen']) >> 10, limit >> 10))
        for c in greedy:
            c.close()


class PeerPort(ClusterCase):
    """The same, at the port where nodes talk to each other."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(seed())

    def test_garbage(self):
        leader = self.cluster.leader()
        token = leader.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
        before = {n.id: n.process.rss() for n in self.cluster.nodes}
        for node in self.cluster.nodes:
            for data in ([b'', b'GET / HTTP/1.0\r\n\r\n', encode('PING'), b'\0' * 100000, b'\xff' * 100000,
                          struct.pack('<QQ', 1, 1 << 60), b'a' * 8 * MIB]
                         + [self.random.randbytes(self.random.randrange(1, 3000)) for _ in range(50)]):
                with socket.create_connection(('127.0.0.1', node.peer_port), timeout=10) as s:
                    try:
                        s.sendall(data)
                        s.shutdown(socket.SHUT_WR)
                        while s.recv(65536):
                            pass
                    except OSError:
                        pass
        for node in self.cluster.nodes:
            self.assertTrue(node.running())
            self.assertLess(node.process.rss() - before[node.id], 64 * MIB)
        wait_until(lambda: leader.call('CHECK', 'x', token) == 1, 'the lock, after any election')

    def test_silent_connections(self):
        """Streams that are opened and say nothing neither pile up for ever nor keep nodes apart."""
        sockets = []
        try:
            for node in self.cluster.nodes:
                for _ in range(100):
                    s = socket.create_connection(('127.0.0.1', node.peer_port), timeout=PATIENCE_S)
                    sockets.append(s)
            follower = self.cluster.followers()[0]
            follower.kill()
            follower.start()
            self.cluster.wait_serving(follower)
        finally:
            for s in sockets:
                s.close()
        for node in self.cluster.nodes:
            wait_until(lambda: node.process.fds() < 60, 'closed descriptors')

    def test_a_recorded_peer_stream_cut_and_mutated(self):
        """What a real node says when it connects, replayed with bytes changed."""
        victim = self.cluster.followers()[0]
        victim.kill()
        recorded = b''
        with socket.create_server(('127.0.0.1', victim.peer_port)) as listener:
            listener.settimeout(PATIENCE_S)
            conn, _ = listener.accept()
            with conn:
                conn.settimeout(PATIENCE_S) # and as soon as it has begun, what comes without a pause
                try:
                    while len(recorded) < 4096:
                        piece = conn.recv(4096)
                        if not piece:
                            break
                        recorded += piece
                        conn.settimeout(0.5)
                except socket.timeout:
                    pass
        self.assertGreater(len(recorded), 0)
        victim.start()
        target = self.cluster.followers()[0]
        for i in range(200):
            data = bytearray(recorded)
            for _ in range(self.random.randrange(0, 5)):
                data[self.random.randrange(len(data))] = self.random.randrange(256)
            with socket.create_connection(('127.0.0.1', target.peer_port), timeout=10) as s:
                try:
                    s.sendall(bytes(data[:self.random.randrange(1, len(data) + 1)] if i % 2 else data))
                except OSError:
                    pass
        for node in self.cluster.nodes:
            self.assertTrue(node.running())
            wait_until(lambda: node.call('TOKEN', 'x'), 'service')


if __name__ == '__main__':
    limit_asan_quarantine()
    main()
