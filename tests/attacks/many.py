#!/usr/bin/python3
"""Thousands of hostile connections of twenty kinds beside a hundred good clients, on a cluster of three.

    FENCELOCK_BUILD=build tests/attacks/many.py                                            200 for a few seconds: a part of `meson test`
    FENCELOCK_BUILD=build tests/attacks/many.py --hostile 15000 --good 100 --seconds 600  the whole: ten minutes

Each good client has a lock and renews it ten times a second (--every), from an address of its own. The good clients run in a process of
their own, so that the attackers do not delay what is measured. The attackers are one process, which does at most --rate acts a second,
so that a run is equally hard on a node whatever the machine. The test fails when a lock is lost, a good client is refused, there is an
election, or a node exceeds its ceiling of memory (client-memory, and its own needs). A run of less than a minute bears a machine that is
busy with other things: its nodes wait for half a minute before they elect another leader, so that none is starved is only checked by
longer ones. It prints p99 of RENEW, the heartbeats missed, the
largest RSS, and what happened to the hostile clients."""

import argparse
import multiprocessing
import os
import random
import resource
import selectors
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Deadline, main, seed
from harness.resp import Resp, encode

parser = argparse.ArgumentParser(add_help=False)
parser.add_argument('--hostile', type=int, default=200)
parser.add_argument('--good', type=int, default=10)
parser.add_argument('--seconds', type=float, default=4.0)
parser.add_argument('--every', type=float, default=0.1)
parser.add_argument('--rate', type=int, default=2000)
ARGS, sys.argv[1:] = parser.parse_known_args()
CLIENT_MEMORY = 128 << 20
RSS_BESIDE = 200 << 20 # the program, its state, log and queues
SANITIZED_RSS = 4
TTL_MS = 600000
CROWD, CHAIN = 500, 300


# -- the good ---------------------------------------------------------------------------------------
class _Good:
    """One client: acquires once, then renews on time, whatever the others do."""

    def __init__(self, address, number):
        self.name, self.owner = 'good-%d' % number, 'owner-of-good-%06d' % number
        self.c = Resp(address, timeout=PATIENCE_S, source='127.0.2.%d' % (1 + number % 200))
        self.token = self.c.call('ACQUIRE', self.name, 'TTL', TTL_MS, 'OWNER', self.owner)
        self.c.sock.setblocking(False)
        self.request = encode('RENEW', self.name, self.token, 'TTL', TTL_MS)
        self.sent, self.due, self.answer = None, 0.0, b''


def _be_good(addresses, n, every, pipe):
    """In a process of its own. Sends (milliseconds of each renewal, what went wrong) when it is told to stop."""
    took, wrong = [], []
    selector = selectors.DefaultSelector()
    clients = [_Good(addresses[i % len(addresses)], i) for i in range(n)]
    begin = time.monotonic()
    for i, g in enumerate(clients):
        g.due = begin + every * i / n
        selector.register(g.c.sock, selectors.EVENT_READ, g)
    pipe.send('ready')
    while not pipe.poll():
        now = time.monotonic()
        for g in clients:
            if g.sent is None and g.due <= now:
                g.c.sock.send(g.request)
                g.sent, g.due = now, max(g.due + every, now)
        waiting = [g.due for g in clients if g.sent is None]
        for key, _ in selector.select(max(0.0, min(waiting + [now + 0.05]) - time.monotonic())):
            g = key.data
            try:
                data = g.c.sock.recv(4096)
            except OSError as e:
                data, wrong = b'', wrong + ['%s: %s' % (g.name, e)]
            g.answer += data
            if not data:
                wrong.append('%s was cut off' % g.name)
                selector.unregister(g.c.sock)
                clients.remove(g)
            elif g.answer.endswith(b'\n'):
                took.append((time.monotonic() - g.sent) * 1000)
                if g.answer != b':1\r\n':
                    wrong.append('%s: %r' % (g.name, g.answer))
                g.sent, g.answer = None, b''
    pipe.send((took, wrong))


# -- the hostile ------------------------------------------------------------------------------------
def _pipeline(i):
    return b''.join(encode('ACQUIRE', 'p%d' % k, 'TTL', 60000, 'VALUE', 'x' * 200) + encode('BREAK', 'p%d' % k)
                    for k in range(i % 40, i % 40 + 40))


def _chain(i):
    return b''.join(encode('ACQUIRE', 'chain-%d' % k, 'SESSION', 'chain-%010d' % (CHAIN - 1), 'WAIT', 1) for k in range(i % 7, CHAIN, 20))


def _expiring(i):
    return b''.join(encode('ACQUIRE', 'x%d-%d' % (i, k), 'TTL', 500) for k in range(30))


def _sessions(i):
    owner = 'session-of-%010d' % i
    return (encode('SESSION', 'OPEN', owner, 'TTL', 60000)
            + b''.join(encode('ACQUIRE', 's%d-%d' % (i, k), 'SESSION', owner) for k in range(20)) + encode('SESSION', 'CLOSE', owner))


def _events(i):
    return b''.join(encode('ACQUIRE', 'a' * 200 + str(k), 'TTL', 60000) + encode('BREAK', 'a' * 200 + str(k)) for k in range(i % 9, i % 9 + 10))


def _patterns(i):
    return encode('PSUBSCRIBE', *('*%s%s%s' % ('a' * 100, chr(98 + i % 20), 'a' * (100 + k)) for k in range(16)))


def _together(i):
    return encode('ACQUIRE', 't%d' % (i % 50), *(w for k in range(15) for w in ('ALSO', 't%d' % ((i + 1 + k) % 50 + 50 * (k % 2)))), 'TTL', 1000,
                  'WAIT', 500, 'OWNER', 'together-%010d' % i)


# Name: (what is sent each time, whether answers are read, whether it ends after that and begins anew).
KINDS = {
    'says nothing': (lambda i: b'', True, False),
    'a byte at a time': (None, True, False),
    'an endless pipeline': (_pipeline, True, False),
    'a pipeline, and no answer is read': (_pipeline, False, False),
    'INFO': (lambda i: encode('INFO'), True, False),
    'INFO, and no answer is read': (lambda i: encode('INFO') * 20, False, False),
    'lists with a dear pattern': (lambda i: encode('LOCKS', 'MATCH', '*aaaaaaaaab', 'COUNT', 1000), True, False),
    'SHOW of a crowd, not read': (lambda i: encode('SHOW', 'crowd') * 5, False, False),
    'holders of a crowd': (lambda i: encode('CHECK', 'crowd', 10 + i % CROWD) * 20 + encode('RENEW', 'crowd', 10 + i % CROWD) * 20, True, False),
    'searches down a chain': (_chain, True, False),
    'leases that end together': (_expiring, True, False),
    'sessions with many locks': (_sessions, True, False),
    'dear patterns': (_patterns, False, False),
    'events for them': (_events, True, False),
    'many locks at once': (_together, True, False),
    'waits that are left alone': (lambda i: encode('ACQUIRE', 'crowded', 'WAIT', 60000, 'OWNER', 'waits-%015d' % i) * 3, True, True),
    'rubbish': (lambda i: random.randbytes(200), True, True),
    'lengths that are never sent': (lambda i: b'*3\r\n$7\r\nACQUIRE\r\n$4000\r\n' + b'x' * 1000, True, False),
    'wrong passwords': (lambda i: encode('AUTH', 'nobody', 'wrong-%d' % i), True, True),
    'comes and is reset': (lambda i: encode('PING') * 3, True, True),
}
assert len(KINDS) == 20


class _Hostile:
    __slots__ = ('kind', 'number', 'address', 'sock', 'left')

    def __init__(self, kind, number, address):
        self.kind, self.number, self.address = kind, number, address
        self.sock, self.left = None, b''


class _Hostiles:
    """All hostile connections. They act in turns: before one acts again, all others have acted."""

    def __init__(self, addresses, n, rate):
        self.rate, self.selector = rate, selectors.DefaultSelector()
        kinds = list(KINDS)
        self.all = [_Hostile(kinds[i % len(kinds)], i, addresses[(i // len(kinds)) % len(addresses)]) for i in range(n)]
        self.acts, self.opened, self.ended, self.at = 0, 0, {k: 0 for k in kinds}, 0
        self.began = time.monotonic()

    def open(self, h):
        h.sock = socket.socket(socket.AF_INET)
        if not KINDS[h.kind][1]:
            h.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        h.sock.bind(('127.0.1.%d' % (1 + h.number % 4), 0))
        h.sock.setblocking(False)
        host, _, port = h.address.rpartition(':')
        h.sock.connect_ex((host, int(port)))
        h.left = b''
        self.opened += 1
        if KINDS[h.kind][1]:
            self.selector.register(h.sock, selectors.EVENT_READ, h)

    def close(self, h, reset=False):
        if reset:
            h.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')
        if KINDS[h.kind][1]:
            self.selector.unregister(h.sock)
        h.sock.close()
        h.sock = None

    def lost(self, h):
        self.ended[h.kind] += 1
        self.close(h)

    def act(self, h):
        what, _, again = KINDS[h.kind]
        if h.sock is None:
            self.open(h)
            return
        if not h.left:
            h.left = encode('ACQUIRE', 'slow', 'TTL', 1000) if what is None else what(h.number)
        try:
            n = h.sock.send(h.left[:1] if what is None else h.left)
            h.left = h.left[n:]
            if again and not h.left:
                self.close(h, reset=h.kind == 'comes and is reset')
        except BlockingIOError:
            pass
        except OSError:
            self.lost(h)

    def step(self):
        """Reads what has come, and acts as often as the rate allows."""
        for key, _ in self.selector.select(0.005):
            h = key.data
            try:
                if not h.sock.recv(1 << 16):
                    self.lost(h)
            except BlockingIOError:
                pass
            except OSError:
                self.lost(h)
        due = int((time.monotonic() - self.began) * self.rate)
        for _ in range(min(due - self.acts, 200)):
            self.act(self.all[self.at])
            self.at = (self.at + 1) % len(self.all)
            self.acts += 1
        if due - self.acts > 10 * self.rate: # acts that were not done in time are left out
            self.acts = due

    def end(self):
        for h in self.all:
            if h.sock is not None:
                self.close(h)
        self.selector.close()


class TwentyKinds(Case):
    TIMEOUT_S = 3600

    def setUp(self):
        super().setUp()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        random.seed(seed())
        self.cluster = Cluster(self.lab, 3, extra=['--client-memory', CLIENT_MEMORY])
        if ARGS.seconds < 60: # what runs with every change may run on a machine that is busy with other things
            self.cluster.start().steady()
        else:
            self.cluster.start()

    def prepare(self):
        with self.cluster.leader().client(timeout=PATIENCE_S) as c:
            for i in range(CROWD):
                c.send('ACQUIRE', 'crowd', 'PERMITS', 1000, 'OWNER', 'owner-%010d' % i, 'TTL', 3600000, 'VALUE', 'v' * 100)
            for _ in range(CROWD):
                c.read()
            owners = ['chain-%010d' % i for i in range(CHAIN)]
            c.pipeline([('SESSION', 'OPEN', o, 'TTL', 3600000) for o in owners])
            c.pipeline([('ACQUIRE', 'chain-%d' % i, 'SESSION', o) for i, o in enumerate(owners)])
            c.pipeline([('ACQUIRE', 'crowded', 'TTL', 3600000)])
        waits = self.cluster.leader().client(timeout=PATIENCE_S) # whose waits last as long as it does
        self.addCleanup(waits.close)
        waits.send_raw(b''.join(encode('ACQUIRE', 'chain-%d' % (i + 1), 'SESSION', o, 'WAIT', 3600000) for i, o in enumerate(owners[:-1])))

    def facts(self):
        infos = [node.info() for node in self.cluster.nodes]
        return [(i['term'], i['leader_id'], i['leader_changes']) for i in infos], infos

    def test_beside_good_clients(self):
        self.prepare()
        addresses = self.cluster.addresses()
        here, there = multiprocessing.get_context('fork').Pipe()
        good = multiprocessing.get_context('fork').Process(target=_be_good, args=(addresses, ARGS.good, ARGS.every, there), daemon=True)
        good.start()
        there.close() # or the end of that process would not be heard
        self.assertEqual(here.recv(), 'ready')
        before, infos = self.facts()
        missed = [i['heartbeats_missed'] for i in infos]
        hostile = _Hostiles(addresses, ARGS.hostile, ARGS.rate)
        self.addCleanup(hostile.end)
        largest, most, looked = [0] * 3, 0, 0.0
        until, deadline, enough = time.monotonic() + ARGS.seconds, Deadline(ARGS.seconds + PATIENCE_S), ARGS.hostile * 3 // 4
        while time.monotonic() < until or hostile.acts < 2 * ARGS.hostile or most < enough and not deadline.passed():
            hostile.step()
            if time.monotonic() > looked + 0.5:
                looked = time.monotonic()
                largest = [max(l, n.process.rss()) for l, n in zip(largest, self.cluster.nodes)]
                most = max(most, sum(h.sock is not None for h in hostile.all))
        here.send('stop')
        took, wrong = here.recv()
        good.join(PATIENCE_S)
        hostile.end()
        after, infos = self.facts()
        self.assertEqual(wrong, [])
        self.assertGreater(len(took), 0)
        took.sort()
        self.note('%d hostile connections at once, %d opened, %d acts; ended by a node: %s'
                  % (most, hostile.opened, hostile.acts, ', '.join('%s %d' % (k, n) for k, n in hostile.ended.items() if n)))
        self.note('RENEW of %d good clients: %d, p50 %.1f ms, p99 %.1f ms, longest %.0f ms'
                  % (ARGS.good, len(took), took[len(took) // 2], took[len(took) * 99 // 100], took[-1]))
        self.note('heartbeats missed %s, longest silence %s ms; elections %d; rss at most %s MiB; clients at most %s MiB'
                  % ([i['heartbeats_missed'] - m for i, m in zip(infos, missed)], [i['leader_silence_ms_max'] for i in infos],
                     int(after[0][0]) - int(before[0][0]), [n >> 20 for n in largest],
                     [int(i['clients_memory_max_seen']) >> 20 for i in infos]))
        self.assertEqual(after, before) # no election, no other leader
        self.assertGreaterEqual(most, enough) # the others are about to come back
        sanitized = os.environ.get('ASAN_OPTIONS') is not None
        self.assertLess(max(largest), (CLIENT_MEMORY + RSS_BESIDE) * (SANITIZED_RSS if sanitized else 1))


if __name__ == '__main__':
    main()
