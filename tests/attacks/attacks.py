#!/usr/bin/python3
"""Attacks by a hostile client on a cluster of three, beside a good client. Each test fails when the leader changes, a good client is
refused, or memory exceeds what the options say. It prints the latencies of the good client and the longest silence of a leader, and
checks none of them. A short run bears a machine that is busy with other things: its nodes wait for half a minute before they elect
another leader, so whether an attack starves one is only checked with --seconds.

    FENCELOCK_BUILD=build tests/attacks/attacks.py                       a few seconds each
    FENCELOCK_BUILD=build tests/attacks/attacks.py --seconds 120         long, with the usual election time-out
"""

import json
import os
import select
import selectors
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Deadline, Resp, RespError, main
from harness.process import guard, release_from_guard
from harness.lab import free_ports
from harness.resp import encode
from tls_lab import Certs, Handshaker

SECONDS = 2.0
LONG = '--seconds' in sys.argv
if LONG:
    at = sys.argv.index('--seconds')
    SECONDS = float(sys.argv[at + 1])
    del sys.argv[at:at + 2]
# What a node may take besides the memory of its clients: the program, its state, log and queues, and what a turn adds.
RSS_BESIDE = 200 << 20
SANITIZED_RSS = 4 # times as much, where ASan keeps what was freed


class Good:
    """Takes a lock, renews it, gives it back, all the time; every refusal is noted. It is a process of its own: beside the attacker
    in one interpreter it would wait for the interpreter's lock, and that would count as the server's time."""

    def __init__(self, address):
        self.acquire_ms, self.renew_ms, self.wrong = [], [], []
        self.child = subprocess.Popen([sys.executable, os.path.abspath(__file__), '--good', address], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE)
        guard(self.child)
        self.says = select.poll() # select() takes no descriptor above 1023
        self.says.register(self.child.stdout)
        self.deadline = Deadline(PATIENCE_S)

    def begins(self):
        """Whether it has still to renew for the first time. A process may take long to start beside others."""
        return not self.deadline.passed() and not self.says.poll(0)

    def end(self, seconds):
        """Returns when the request under way has its answer. An error in the client itself ends it with a traceback."""
        out, _ = self.child.communicate(timeout=seconds)
        release_from_guard(self.child)
        self.acquire_ms, self.renew_ms, self.wrong = json.loads(out.splitlines()[-1])

    def p99(self, values):
        return sorted(values)[len(values) * 99 // 100] if values else float('nan')


class GoodClient:
    """What that process does, until its input ends."""

    def __init__(self, address):
        self.address = address
        self.acquire_ms, self.renew_ms, self.wrong = [], [], []

    def timed(self, c, into, *args):
        began = time.monotonic()
        answer = c.call(*args)
        into.append((time.monotonic() - began) * 1000)
        return answer

    def take(self, c):
        token = self.timed(c, self.acquire_ms, 'ACQUIRE', 'good', 'TTL', 600000)
        if not token:
            self.wrong.append('ACQUIRE: %r' % token)
            return
        for _ in range(3):
            if self.timed(c, self.renew_ms, 'RENEW', 'good', token) != 1:
                self.wrong.append('RENEW refused')
            if len(self.renew_ms) == 1:
                print('renewed', flush=True)
        if c.call('RELEASE', 'good', token) != 1:
            self.wrong.append('RELEASE refused')

    def run(self):
        try:
            with Resp(self.address, timeout=PATIENCE_S) as c:
                while not self.wrong and not select.select([sys.stdin], [], [], 0.005)[0]:
                    self.take(c)
        except (OSError, RespError, ValueError) as e:
            self.wrong.append('%s: %s' % (type(e).__name__, e))
        print(json.dumps([self.acquire_ms, self.renew_ms, self.wrong]))


class Flood:
    """Connections that send the same bytes again and again, as fast as they are taken."""

    def __init__(self, address, n, data, reads=True, source=None):
        self.data, self.reads, self.cut_off = data, reads, 0
        self.selector = selectors.DefaultSelector()
        self.left = {}
        for _ in range(n):
            c = Resp(address, timeout=PATIENCE_S, source=source, rcvbuf=None if reads else 4096)
            c.sock.setblocking(False)
            self.left[c.sock] = memoryview(data)
            self.selector.register(c.sock, selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0))

    def drop(self, sock):
        self.cut_off += 1
        self.selector.unregister(sock)
        sock.close()
        del self.left[sock]

    def step(self):
        for key, events in self.selector.select(0.05):
            sock = key.fileobj
            try:
                if events & selectors.EVENT_READ and not sock.recv(1 << 18):
                    self.drop(sock)
                elif events & selectors.EVENT_WRITE:
                    left = self.left[sock]
                    self.left[sock] = left[sock.send(left[:65536]):] or memoryview(self.data)
            except BlockingIOError:
                pass
            except OSError:
                self.drop(sock)

    def close(self):
        for sock in list(self.left):
            sock.close()
        self.selector.close()


class Subscribers:
    """Connections that have subscribed to a channel, and to patterns, and read what comes."""
    reads = True

    def __init__(self, address, n, channel, patterns=(), sources=(None,)):
        self.cut_off, self.heard, self.socks = 0, 0, []
        self.selector = selectors.DefaultSelector()
        for i in range(n):
            sock = Resp(address, timeout=PATIENCE_S, source=sources[i % len(sources)]).sock
            sock.sendall(encode('SUBSCRIBE', channel) + (encode('PSUBSCRIBE', *patterns) if patterns else b''))
            self.socks.append(sock)
        for sock in self.socks:
            self.confirmed(sock, 1 + len(patterns))
            sock.setblocking(False)
            self.selector.register(sock, selectors.EVENT_READ)

    def confirmed(self, sock, n):
        answers = b''
        while answers.count(b'subscribe\r\n') < n:
            data = sock.recv(1 << 16)
            assert data and b'-LIMIT' not in data, 'refused as a subscriber'
            answers += data

    def step(self):
        for key, _ in self.selector.select(0.01):
            try:
                data = key.fileobj.recv(1 << 16)
            except ConnectionResetError:
                data = b''
            self.heard += len(data)
            if not data:
                self.cut_off += 1
                self.selector.unregister(key.fileobj)

    def close(self):
        for sock in self.socks:
            sock.close()
        self.selector.close()


class Leaving:
    """Processes that open many connections and exit: all of them end in one moment."""
    reads = True
    TEXT = """
import socket, sys
host, port = sys.argv[1].rsplit(':', 1)
socks = [socket.create_connection((host, int(port))) for _ in range(int(sys.argv[2]))]
"""

    def __init__(self, address, n):
        self.address, self.n, self.cut_off, self.left, self.child = address, n, 0, 0, None

    def step(self):
        if self.child is None:
            self.child = subprocess.Popen([sys.executable, '-c', self.TEXT, self.address, str(self.n)])
            guard(self.child)
        try:
            code = self.child.wait(0.05)
        except subprocess.TimeoutExpired:
            return
        release_from_guard(self.child)
        assert code == 0, 'it could not open its connections'
        self.child, self.left = None, self.left + 1

    def close(self):
        while self.child is not None:
            self.step()


class Computing:
    """Processes that send nothing and compute all the time: as many others want a core."""
    reads = False

    def __init__(self, n):
        self.cut_off = 0
        self.children = [subprocess.Popen([sys.executable, '-c', 'while True: pass']) for _ in range(n)]
        for child in self.children:
            guard(child)

    def step(self):
        time.sleep(0.05)

    def close(self):
        for child in self.children:
            child.kill()
            child.wait()
            release_from_guard(child)


class Taker:
    """Takes a lock and gives it back, again and again, each time when the answer is there."""
    reads = True

    def __init__(self, address, name):
        self.name, self.token, self.taken, self.cut_off = name, None, 0, 0
        self.c = Resp(address, timeout=PATIENCE_S)
        self.answered = select.poll() # select() takes no descriptor above 1023
        self.answered.register(self.c.sock, select.POLLIN)
        self.take()

    def take(self):
        self.c.send('ACQUIRE', self.name, 'TTL', 60000)

    def step(self):
        if not self.answered.poll(0):
            return
        answer = self.c.read()
        if self.token is None:
            self.token = answer
            self.taken += 1
            self.c.send('RELEASE', self.name, answer)
        else:
            self.token = None
            self.take()

    def close(self):
        self.c.close()


class TinyRecords:
    """TLS clients, each of which announces an argument that is too large, and then sends records of one byte. All that they have to
    send is encrypted first and sent at once, so that the node finds it in all sockets in one turn."""
    reads = True
    RECORDS = 2000

    def __init__(self, address, n, context):
        self.cut_off, self.turns = 0, 0
        self.clients = [self.connect(address, context) for _ in range(n)]
        self.left = {}

    def connect(self, address, context):
        sock = Resp(address, timeout=PATIENCE_S).sock
        shaker = Handshaker(context)
        said, over = shaker.step()
        while not over:
            sock.sendall(said)
            shaker.incoming.write(sock.recv(65536))
            said, over = shaker.step()
        shaker.tls.write(b'*1\r\n$500000000\r\n')
        sock.sendall(said + shaker.outgoing.read())
        sock.setblocking(False)
        return sock, shaker.tls, shaker.outgoing

    def encrypt(self):
        for sock, tls, from_us in self.clients:
            for _ in range(self.RECORDS):
                tls.write(b'x')
            self.left[sock] = memoryview(from_us.read())
        self.turns += 1

    def step(self):
        if not self.left:
            self.encrypt()
        for sock in select.select([], list(self.left), [], 0.05)[1]:
            try:
                self.left[sock] = self.left[sock][sock.send(self.left[sock]):]
            except OSError:
                self.cut_off += 1
                self.clients = [c for c in self.clients if c[0] is not sock]
                self.left[sock] = b''
            if not self.left[sock]:
                del self.left[sock]

    def close(self):
        for sock, _, _ in self.clients:
            sock.close()


class Attacked(Case):
    CLIENT_MEMORY = 16 << 20

    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 3, extra=['--client-memory', self.CLIENT_MEMORY])
        self.prepare()
        if LONG:
            self.cluster.start()
        else: # what runs with every change may run on a machine that is busy with other things
            self.cluster.start().steady()
        self.node = self.cluster.leader()

    def prepare(self):
        """Before the nodes are started."""

    def facts(self):
        infos = [node.info() for node in self.cluster.nodes]
        return [(i['term'], i['leader_id'], i['leader_changes']) for i in infos], infos

    def attack(self, *floods, on=None, may_end=False, until=lambda: True):
        """Runs the attackers for a while, and until they have done what they were to do, beside a good client of the same node. may_end: an
        attacker that reads its answers may be cut off as well, for what it sends or for what the answers take until it reads them."""
        before, infos = self.facts()
        slow_before = [int(i['loop_turns_slow_working']) for i in infos]
        good = Good((on or self.node).address)
        largest, end = 0, time.monotonic() + SECONDS
        while good.begins() or time.monotonic() < end or not (until() or good.deadline.passed()):
            for flood in floods:
                flood.step()
            largest = max([largest] + [node.process.rss() for node in self.cluster.nodes])
        for flood in floods:
            flood.close()
        good.end(240)
        after, infos = self.facts()
        slow = [int(i['loop_turns_slow_working']) - b for i, b in zip(infos, slow_before)]
        self.note('ACQUIRE p99 %.1f ms, RENEW p99 %.1f ms of %d; slow turns %s; rss %d MiB; elections %d; longest silence %s ms; cut off %d'
                  % (good.p99(good.acquire_ms), good.p99(good.renew_ms), len(good.renew_ms), slow, largest >> 20,
                     int(after[0][0]) - int(before[0][0]), max(int(i['leader_silence_ms_max']) for i in infos), sum(f.cut_off for f in floods)))
        self.assertEqual(good.wrong, [])
        if not may_end:
            self.assertEqual([f.cut_off for f in floods if f.reads], [0] * len([f for f in floods if f.reads]))
        self.assertGreater(len(good.renew_ms), 0)
        self.assertEqual(after, before) # no election, no other leader
        sanitized = os.environ.get('ASAN_OPTIONS') is not None
        self.assertLess(largest, (self.CLIENT_MEMORY + RSS_BESIDE) * (SANITIZED_RSS if sanitized else 1))
        return infos


class Reference(Attacked):
    """No attack: what the machine alone makes of the good client's times."""

    def test_nobody_else(self):
        self.attack(Computing(0))

    def test_beside_three_that_compute(self):
        self.attack(Computing(3))


class Attack(Attacked):
    """One row of the table each."""

    def test_searches_for_deadlocks(self):
        """Sessions that wait for each other in a long chain; requests that make the search follow it."""
        with self.node.client(timeout=PATIENCE_S) as c:
            owners = ['chain-%010d' % i for i in range(1000)]
            c.pipeline([('SESSION', 'OPEN', o, 'TTL', 600000) for o in owners])
            c.pipeline([('ACQUIRE', 'l%d' % i, 'SESSION', o) for i, o in enumerate(owners)])
            # A wait has no answer for long, so nothing is read here.
            c.send_raw(b''.join(encode('ACQUIRE', 'l%d' % (i + 1), 'SESSION', o, 'WAIT', 600000)
                                for i, o in enumerate(owners[:-1])))
            again = b''.join(encode('ACQUIRE', 'l%d' % i, 'SESSION', owners[-1], 'WAIT', 1) for i in range(500))
            self.attack(Flood(self.node.address, 4, again))

    def test_a_million_leases_that_end_at_once(self):
        """Scaled down to what a few seconds make: leases of one length, which end together."""
        with self.node.client(timeout=PATIENCE_S) as c:
            for k in range(10):
                c.pipeline([('ACQUIRE', 'e%d-%d' % (k, i), 'TTL', 3000) for i in range(1000)])
        self.attack(Flood(self.node.address, 4,
                          b''.join(encode('ACQUIRE', 'x%d' % i, 'TTL', 500) for i in range(500))))

    def test_info_in_a_loop(self):
        self.attack(Flood(self.node.address, 8, encode('INFO') * 200))

    def test_dear_patterns(self):
        """As many patterns as a node takes, each of which costs as much to match as can be."""
        name = 'a' * 200
        subscribers = []
        for k in range(8):
            c = self.node.client(timeout=PATIENCE_S)
            patterns = [b'*' + b'[@-\xbf]' * 48 + bytes([98 + k, 97 + i]) for i in range(16)] # sets of half of all bytes
            c.send_raw(encode('PSUBSCRIBE', *patterns))
            c.read()
            subscribers.append(c)
        events = b''.join(encode('ACQUIRE', name + str(i), 'OWNER', 'owner-%010d' % i) for i in range(200))
        events += b''.join(encode('BREAK', name + str(i)) for i in range(200))
        infos = self.attack(Flood(self.node.address, 2, events))
        self.assertGreater(int(infos[self.node.id - 1]['pubsub_patterns']), 0)
        for c in subscribers:
            c.close()

    def test_answers_that_nobody_reads(self):
        before = self.node.info()
        self.attack(Flood(self.node.address, 100, encode('INFO') * 300, reads=False))
        info = self.node.info()
        self.note('clients took %d MiB at most, of %d' % (int(info['clients_memory_max_seen']) >> 20,
                                                          int(info['clients_memory_limit']) >> 20))
        # One turn may go above it, by what is read and answered in a turn.
        self.assertLess(int(info['clients_memory_max_seen']), self.CLIENT_MEMORY + (8 << 20))
        self.assertEqual(int(before['clients_cut_off_for_memory']), 0)

    def test_lists_in_a_loop(self):
        with self.node.client(timeout=PATIENCE_S) as c:
            c.pipeline([('ACQUIRE', 's%d' % i, 'TTL', 600000, 'VALUE', 'v' * 500) for i in range(2000)])
            for i in range(500):
                c.send('ACQUIRE', 'crowd', 'PERMITS', 1000, 'OWNER', 'owner-%010d' % i, 'TTL', 600000, 'VALUE', 'v' * 100)
            for _ in range(500):
                c.read()
            shows = encode('SHOW', 'crowd') * 100
            lists = encode('LOCKS', 'MATCH', '*aaaaaaaab', 'COUNT', 1000) * 100
            # An answer takes up to a MiB, and all that this address may have is twelve.
            self.attack(Flood(self.node.address, 4, shows), Flood(self.node.address, 4, lists), may_end=True)

    def test_holders_of_a_crowded_lock(self):
        with self.node.client(timeout=PATIENCE_S) as c:
            tokens = c.pipeline([('ACQUIRE', 'crowd', 'PERMITS', 2000, 'OWNER', 'owner-%010d' % i, 'TTL', 600000)
                                 for i in range(2000)])
            self.attack(Flood(self.node.address, 4, b''.join(encode('CHECK', 'crowd', t) + encode('RENEW', 'crowd', t)
                                                             for t in tokens[1000:])))

    def test_one_endless_pipeline(self):
        takes = b''.join(encode('ACQUIRE', 'p%d' % i, 'TTL', 60000) + encode('BREAK', 'p%d' % i) for i in range(1000))
        self.attack(Flood(self.node.address, 1, takes))

    def test_the_same_through_a_follower(self):
        takes = b''.join(encode('ACQUIRE', 'p%d' % i, 'TTL', 60000) + encode('BREAK', 'p%d' % i) for i in range(1000))
        follower = self.cluster.followers()[0]
        self.attack(Flood(follower.address, 8, takes), on=follower)

    def test_rubbish(self):
        self.attack(Flood(self.node.address, 20, b'*64\r\n' + b'$4096\r\n' + b'x' * 100000),
                    Flood(self.node.address, 20, b'*1\r\n$1\r\n'), may_end=True)

    def test_a_large_argument_is_thrown_away(self):
        """What is announced too large is read and thrown away, and no request comes of it."""
        flood = Flood(self.node.address, 100, b'x' * (1 << 20))
        for sock in flood.left:
            sock.setblocking(True)
            sock.sendall(b'*1\r\n$500000000\r\n')
            sock.setblocking(False)
        self.attack(flood)


class Crowd(Attacked):
    """With memory for full pipelines of many: commands for dozens of batches are in line at any time. A renewal comes into
    the next one all the same."""
    CLIENT_MEMORY = 256 << 20

    def takes(self):
        return b''.join(encode('ACQUIRE', 'p%d' % i, 'TTL', 60000, 'VALUE', 'x' * 200) + encode('BREAK', 'p%d' % i)
                        for i in range(1000))

    def test_a_hundred_endless_pipelines(self):
        self.attack(Flood(self.node.address, 100, self.takes()))

    def test_a_hundred_through_a_follower(self):
        follower = self.cluster.followers()[0]
        self.attack(Flood(follower.address, 100, self.takes()), on=follower)

    def test_thousands_of_another_address(self):
        """Each asks for little, and all of them for far more than a node does."""
        n = 2000
        self.need_open_files(n + 200)
        takes = b''.join(encode('ACQUIRE', 'p%d' % i, 'TTL', 60000) + encode('BREAK', 'p%d' % i) for i in range(20))
        self.attack(Flood(self.node.address, n, takes, source='127.0.1.1'), may_end=True)

    def test_connections_that_end_together(self):
        n = 3000
        self.need_open_files(n + 200)
        leaving = Leaving(self.node.address, n)
        self.attack(leaving, until=lambda: leaving.left > 1)
        self.assertGreater(leaving.left, 1)

    def test_events_for_many_subscribers(self):
        """Each event is written to all of them."""
        n = 2000
        self.need_open_files(n + 200)
        subscribers = Subscribers(self.node.address, n, 'lock:x')
        events = Flood(self.node.address, 1, (encode('ACQUIRE', 'x', 'TTL', 60000) + encode('BREAK', 'x')) * 20)
        # Who reads too slowly is cut off, as the events are.
        self.attack(subscribers, events, may_end=True, until=lambda: subscribers.heard > n)
        self.assertGreater(subscribers.heard, n)

    def one_off(self, channel, first):
        """Sixteen patterns that this channel matches, each with a `?` for one of its bytes."""
        return [channel[:i] + '?' + channel[i + 1:] for i in range(first, first + 16)]

    def test_as_many_subscriptions_as_there_may_be(self):
        """One event is for half of them, and one move of the smallest live token for the others. Each is more than a turn sends."""
        n, lock, moves = 950, 'lock:' + 'x' * 20, 'fencelock:min_live_token'
        self.need_open_files(2 * n + 200)
        # From several addresses: one has no more than its share.
        watchers = Subscribers(self.node.address, n, lock, self.one_off(lock, 5), ['127.0.1.%d' % i for i in (1, 2, 3, 4)])
        storages = Subscribers(self.node.address, n, moves, self.one_off(moves, 8), ['127.0.1.%d' % i for i in (5, 6, 7, 8)])
        taker = Taker(self.node.address, 'x' * 20)
        several = 17 * n * 100 # bytes of one message to each
        self.attack(watchers, storages, taker, may_end=True, until=lambda: min(watchers.heard, storages.heard) > several)
        self.assertGreater(watchers.heard, several)
        self.assertGreater(storages.heard, several)
        self.note('taken %d times, heard %d and %d KiB' % (taker.taken, watchers.heard >> 10, storages.heard >> 10))


class OverTls(Attacked):
    def prepare(self):
        self.certs = Certs(self.lab)
        self.certs.make('server', 'server', 'localhost', '127.0.0.1')
        self.certs.make('client', 'mallory')
        for node in self.cluster.nodes:
            node.tls = '127.0.0.1:%d' % free_ports(1)[0]
            node.extra += ['--tls-port', node.tls, *self.certs.daemon('server')]

    def test_records_of_one_byte(self):
        """Decrypting costs by the record, not by the byte."""
        records = TinyRecords(self.node.tls, 60, self.certs.context('mallory'))
        self.attack(records)
        self.assertGreater(records.turns, 0)


if __name__ == '__main__':
    if sys.argv[1:2] == ['--good']:
        GoodClient(sys.argv[2]).run()
    else:
        main()
