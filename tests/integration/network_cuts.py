#!/usr/bin/python3
"""How soon nodes and clients work again after a cut of the network has ended: every node, and the client, in a
network namespace, so that it is the kernel's TCP that meets the partition. A node serves again when it answers a write.

With --table, ten cuts of 1 to 30 s of each kind, and their table (FENCELOCK_ROUNDS=N for another number, -k KIND for
one kind). Times are printed, and compared only with a bound that a busy machine keeps too, if not at each attempt. With TCP's own
retries alone, whose distance doubles (0.2 s, ... 6.4 s, 12.8 s after the last answer), a cut of 7 s would exceed it each time: of
these two must keep it, and without a reason only one may not. The shorter cuts show that nodes and clients work again at all."""

import os
import random
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
sys.path.insert(0, os.path.join(HERE, '..', 'faults'))
from cli_library import Driver
from faultlab.namespaces import NamespaceCluster, Namespaces
from harness import PATIENCE_S, Case, Deadline, Lateness, Resp, RespError, Retries, main, seed

CLIENT = 4 # its namespace; the nodes have 1 to 3
NODES = (1, 2, 3)
TABLE = '--table' in sys.argv
if TABLE:
    sys.argv.remove('--table')
ROUNDS = int(os.environ.get('FENCELOCK_ROUNDS') or 10)
LENGTHS = (1, 2, 3, 5, 7, 9, 12, 30) # seconds
BOUND_S = 5.0
TELLING_CUT_S = 7
ATTEMPTS = 6
NEVER = -1


class Asker(threading.Thread):
    """Writes through one node, from a place that is never cut off from it, until it is answered."""

    def __init__(self, node, name):
        super().__init__(daemon=True)
        self.node, self.name = node, name
        self.words = []
        self.answered_at = NEVER
        self.start()

    def run(self):
        deadline = Deadline(PATIENCE_S)
        while self.answered_at == NEVER and not deadline.passed():
            try:
                with Resp(self.node.address, timeout=10) as c:
                    c.call('TOKEN', self.name)
                self.answered_at = time.monotonic()
            except RespError as e:
                self.words.append(e.word)
            except (OSError, socket.timeout) as e:
                self.words.append(str(e))

    def took(self, since):
        self.join(PATIENCE_S)
        if self.answered_at == NEVER:
            raise AssertionError('%s did not serve: %r' % (self.node.name, self.words))
        return self.answered_at - since


class Heals(Case):
    TIMEOUT_S = 20000

    def setUp(self):
        super().setUp()
        why_not = Namespaces.why_not()
        if why_not:
            self.skipTest(why_not)
        self.namespaces = Namespaces(4).start()
        self.addCleanup(self.namespaces.close)
        self.cluster = NamespaceCluster(self.lab, self.namespaces, 3).start()
        self.addCleanup(self.stop) # before the namespaces are removed
        self.chooser = random.Random(seed())
        self.count = 0
        os.environ['DRIVER_ATTEMPT_MS'] = '1000' # the library's default
        inside = ('ip', 'netns', 'exec', self.namespaces.namespace(CLIENT))
        self.client = Driver(','.join(self.cluster.addresses()), wrapper=inside)
        self.addCleanup(self.client.close)

    def stop(self):
        self.namespaces.set(blocked=set())
        for node in self.cluster.nodes:
            if node.running():
                node.kill()

    # -- what is cut: pairs (from, to) -----------------------------------------------------------------
    def both(self, a, others):
        return {pair for b in others if b != a for pair in ((a, b), (b, a))}

    def follower(self):
        return self.chooser.choice(self.cluster.followers()).id

    def cut_follower(self):
        return self.both(self.follower(), NODES)

    def cut_leader(self):
        return self.both(self.cluster.leader().id, NODES)

    def cut_all(self):
        return {(a, b) for a in NODES for b in NODES if a != b}

    def cut_in(self):
        """One node hears nobody, and is heard."""
        node = self.chooser.choice(NODES)
        return {(b, node) for b in NODES if b != node}

    def cut_out(self):
        """One node hears the others, and is not heard."""
        node = self.chooser.choice(NODES)
        return {(node, b) for b in NODES if b != node}

    def cut_client(self):
        """The client from all nodes, in the middle of a call of the library."""
        return self.both(CLIENT, NODES)

    # -- one cut ---------------------------------------------------------------------------------------
    def one_cut_of_client(self, seconds):
        lock = 'lock-%d' % self.count
        self.client.send('acquire', lock, 1000, 0, 240000)
        self.assertEqual(self.client.read()[0], 'OK')
        self.namespaces.set(blocked=self.cut_client())
        self.client.send('acquire', lock + '-cut', 1000, 0, 240000)
        time.sleep(seconds + self.chooser.random() / 2)
        self.namespaces.set(blocked=set())
        since = time.monotonic()
        word, number, text = self.client.read()
        self.assertEqual(word, 'OK', text)
        return time.monotonic() - since

    def one_cut_of_nodes(self, kind, seconds):
        for node in self.cluster.nodes:
            self.cluster.wait_serving(node)
        self.namespaces.set(blocked=getattr(self, 'cut_' + kind)())
        time.sleep(seconds + self.chooser.random() / 2)
        self.namespaces.set(blocked=set())
        since = time.monotonic()
        return max(a.took(since) for a in [Asker(n, 'after-%d' % self.count) for n in self.cluster.nodes])

    def one_cut(self, kind, seconds):
        self.count += 1
        return self.one_cut_of_client(seconds) if kind == 'client' else self.one_cut_of_nodes(kind, seconds)

    def within_bound(self, kind, seconds):
        times, quick, retries = [], [], Retries()
        while len(quick) < (2 if seconds >= TELLING_CUT_S else 1):
            with Lateness() as late:
                times.append(self.one_cut(kind, seconds))
            if times[-1] < BOUND_S:
                quick.append(times[-1])
            else:
                self.assertTrue(len(times) < ATTEMPTS and retries.allowed(late, BOUND_S * 100),
                                '%s, cut off for %g s: %r; processes were woken %.0f ms late' % (kind, seconds, times, late.most_ms))
        return max(quick)

    def row(self, kind, lengths, rounds):
        for seconds in lengths:
            cut = self.one_cut if TABLE else self.within_bound
            times = sorted(cut(kind, seconds) * 1000 for _ in range(rounds))
            self.note('%-8s cut for %4.1f s: median %5.0f ms, worst %5.0f ms, of %d'
                      % (kind, seconds, times[len(times) // 2], times[-1], len(times)))

    def go_through(self, kind, *lengths):
        self.row(kind, LENGTHS if TABLE else lengths, ROUNDS if TABLE else 1)

    def test_follower(self):
        self.go_through('follower', 3)

    def test_leader(self):
        self.go_through('leader', 1, 3)

    def test_all(self):
        self.go_through('all', 7)

    def test_one_way_in(self):
        self.go_through('in', 1)

    def test_one_way_out(self):
        self.go_through('out', 1)

    def test_client(self):
        self.go_through('client', 7)


if __name__ == '__main__':
    main()
