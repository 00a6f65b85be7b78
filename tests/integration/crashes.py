#!/usr/bin/python3
"""Real processes that are killed, paused and restarted under load. What may not happen is judged by the
oracle of harness/load.py; what is measured is printed."""

import os
import random
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import (ANSWER_S, PATIENCE_S, Case, Cluster, ClusterCase, Deadline, Lateness, Load, RespError, Retries, as_dict, binary, main,
                     seed, wait_until)

OWNER_A, OWNER_B = 'owner-a-0123456789', 'owner-b-0123456789'
FAILOVER_DEADLINE_S = 120.0 # of each; the values are printed
QUICK_FAILOVER_S = 5.0 # not the promise, and on a busy machine only some are so quick


class Crashes(ClusterCase):
    def setUp(self):
        super().setUp()
        self.random = random.Random(seed())

    def load(self, **options):
        options.setdefault('clients', 9)
        load = Load(self.cluster.addresses(), **options).start()
        self.addCleanup(load.aborting.set)
        return load

    def finish(self, load):
        grants = load.stop()
        load.check()
        hashes = self.cluster.wait_same_state()
        self.assertEqual(len(set(hashes)), 1)
        self.note('%d grants, answers %s, longest wait for one %.2f s'
                  % (len(grants), ' '.join('%s:%d' % a for a in sorted(load.answers().items())), load.longest_wait()))
        return grants

    def test_a_follower_is_killed_again_and_again(self):
        load = self.load()
        for _ in range(4):
            load.wait_more_grants()
            victim = self.random.choice(self.cluster.followers())
            victim.kill()
            load.wait_more_grants()
            victim.start()
        self.finish(load)

    def test_the_leader_is_killed_again_and_again(self):
        load = self.load()
        for _ in range(4):
            load.wait_more_grants()
            victim = self.cluster.leader()
            victim.kill()
            load.wait_more_grants()
            victim.start()
        self.finish(load)

    def test_all_are_killed_at_once(self):
        load = self.load()
        for _ in range(3):
            load.wait_more_grants(60)
            for node in self.cluster.nodes:
                node.process.asked_to_end = True
                node.process.signal(9)
            for node in self.cluster.nodes:
                node.process.wait()
            for node in self.cluster.nodes:
                node.launch()
            for node in self.cluster.nodes:
                node.wait_ready()
        load.wait_more_grants()
        self.finish(load)

    def test_sigterm_of_each_node_in_turn_loses_nothing(self):
        load = self.load()
        for node in [self.cluster.leader()] + self.cluster.nodes:
            load.wait_more_grants()
            self.assertEqual(node.terminate(), 0, 'exit code of %s' % node.name)
            load.wait_more_grants()
            node.start()
        self.finish(load)

    def test_paused_leaders_and_paused_followers(self):
        load = self.load(timeout=6.0, wait_ms=2000)
        for pick in (self.cluster.leader, lambda: self.random.choice(self.cluster.followers())) * 2:
            load.wait_more_grants()
            victim = pick()
            victim.pause()
            others = [n for n in self.cluster.nodes if n is not victim]
            wait_until(lambda: self.cluster.leader(among=others), 'a leader among the others')
            load.wait_more_grants()
            victim.resume()
        self.finish(load)

    def test_failover_time(self):
        """Time from SIGKILL of the leader to the next grant by a node that is left."""
        measured = []
        for round_number in range(5):
            leader = self.cluster.leader()
            others = [n for n in self.cluster.nodes if n is not leader]
            before = wait_until(lambda: others[0].call('TOKEN', 'x'), 'a token')
            leader.kill()
            killed = time.monotonic()
            wait = Deadline(FAILOVER_DEADLINE_S)
            token = None
            while token is None:
                try:
                    token = others[round_number % 2].call('ACQUIRE', 'round-%d' % round_number, 'TTL', 60000,
                                                          'OWNER', OWNER_A)
                except RespError as e:
                    self.assertIn(e.word, ('NOLEADER', 'UNCERTAIN'))
                    self.assertFalse(wait.passed(), 'no grant within %g s' % FAILOVER_DEADLINE_S)
            took = time.monotonic() - killed
            self.assertLess(took, FAILOVER_DEADLINE_S)
            self.assertGreater(token, before)
            measured.append(took)
            leader.start()
        self.assertLess(min(measured), QUICK_FAILOVER_S, measured)
        self.note('fail-over, SIGKILL to next grant: %s ms' % ' '.join('%.0f' % (t * 1000) for t in sorted(measured)))


class Restarts(Case):
    def last_write(self, path):
        """Where the last write in a segment begins, and its length (src/log/format.c)."""
        with open(path, 'rb') as f:
            data = f.read()
        at, found = 0, None
        while data[at:at + 6] == b'FLKLOG':
            block, length = (int.from_bytes(data[at + i:at + i + 4], 'little') for i in (12, 52))
            found = at, length
            at += -(-length // block) * block
        return found

    def is_let_in(self, node):
        """Starts it. Once a second a node tells the others what is on its disk; of what they had heard it may lose nothing, and so
        they refuse it."""
        node.launch()

        def decided():
            try:
                return not node.process.running() or node.call('CHECK', 'nothing', 1) == 0
            except (OSError, RespError):
                return False
        wait_until(decided, 'service or the end of %s' % node.name)
        if node.process.running():
            return True
        node.process.asked_to_end = True
        self.assertIn('is an older copy', node.process.output())
        return False

    def replace(self, node, others):
        shutil.rmtree(node.data)
        done = subprocess.run([binary('fencelock'), 'cluster', 'replace', str(node.id), '--wait', '0s', '--timeout', '%ds' % ANSWER_S, '--nodes',
                               ','.join(n.address for n in others)], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        node.start()

    def tear(self, cluster, node, keep):
        """Whether the node was let in again whose last write lacks all but so many sectors."""
        leader = cluster.leader()
        other = next(n for n in cluster.nodes if n not in (node, leader))
        path = os.path.join(node.data, 'log', 'segment-0000000001')
        with leader.client() as c:
            token = max(c.pipeline([('ACQUIRE', 'large-%d' % i, 'TTL', 86000000, 'OWNER', OWNER_A, 'VALUE', b'v' * 1024)
                                    for i in range(20)]))
            cluster.wait_same_state()
            node.kill()
        at, length = self.last_write(path)
        with open(path, 'r+b') as f:
            f.seek(at + 512 * keep)
            f.write(bytes(max(0, length - 512 * keep)))
        cluster.make_leader(other)
        if not self.is_let_in(node):
            self.replace(node, (leader, other))
            cluster.wait_same_state()
            return False
        if keep and length > 512 * keep:
            self.assertIn('of a write that a crash interrupted', node.process.output())
            self.assertIn(path, node.process.output())
        self.assertEqual(len(set(cluster.wait_same_state())), 1)
        self.assertEqual(node.call('CHECK', 'large-19', token), 1)
        return True

    def test_a_write_that_a_crash_tore_is_cut_off(self):
        """What is left of it is told from damage, said, and made zeros. Nobody had been told that it was done; here a leader had
        been, so there is another one."""
        cluster = Cluster(self.lab, 3).start().steady()
        node = cluster.followers()[0]
        for keep in (0, 1, 2): # sectors; of the header alone, of a part
            wait_until(lambda: cluster.leader() is not node, 'another leader')
            self.assertTrue(any(self.tear(cluster, node, keep) for _ in range(20)), 'the others had heard of it each time')

    def test_killed_while_it_starts(self):
        """At whatever moment of its first start: it has promised nothing yet, and begins anew."""
        rng = random.Random(seed())
        node = Cluster(self.lab, 1).nodes[0]
        for _ in range(25):
            node.launch()
            time.sleep(rng.uniform(0.0, 0.04)) # the moment is what is tested
            node.kill()
        node.start()
        token = node.call('TOKEN', 'x')
        for _ in range(10):
            node.kill()
            node.launch()
            time.sleep(rng.uniform(0.0, 0.04))
        node.kill()
        node.start()
        self.assertGreater(node.call('TOKEN', 'x'), token)

    def test_a_process_that_writes_a_snapshot_is_killed(self):
        """The node goes on, counts it, and tries again."""
        cluster = Cluster(self.lab, 1, extra=('--snapshot-bytes', 65536)).start()
        node = cluster.nodes[0]
        with node.client() as c:
            self.assertTrue(all(isinstance(token, int) for token in c.pipeline(
                [('ACQUIRE', 'lock-%d' % i, 'TTL', 86000000, 'OWNER', OWNER_A, 'VALUE', b'v' * 1024) for i in range(10000)])))

        def kill_child():
            node.call('TOKEN', 'more')
            with open('/proc/%d/task/%d/children' % (node.process.pid, node.process.pid)) as f:
                for child in f.read().split():
                    os.kill(int(child), 9)
            return node.info()['snapshot_failures'] > 0
        wait_until(kill_child, 'a snapshot that failed', every=0.001)
        self.assertIn('the process that writes it was killed', node.process.output())
        taken = node.info()['snapshots']
        wait_until(lambda: node.call('TOKEN', 'more') and node.info()['snapshots'] > taken, 'a snapshot')
        last = node.call('TOKEN', 'last')
        node.kill()
        node.start()
        self.assertGreater(node.call('TOKEN', 'x'), last)


class PausedLeader(ClusterCase):
    STEADY = True # until the leader is paused, and again when there is another one

    def setUp(self):
        super().setUp()
        self.old = self.cluster.leader()
        self.others = [n for n in self.cluster.nodes if n is not self.old]

    def test_a_paused_leader_grants_nothing_stale_and_expires_nobody(self):
        with self.old.client() as at_old, self.others[0].client() as at_other:
            kept = at_other.call('ACQUIRE', 'kept', 'TTL', 600000, 'OWNER', OWNER_A)
            at_old.call('ACQUIRE', 'brief', 'TTL', 200, 'OWNER', OWNER_A)
            self.cluster.unsteady()
            self.old.pause()
            at_old.send('ACQUIRE', 'contested', 'TTL', 60000, 'OWNER', OWNER_A) # waits in its socket
            at_old.send('CHECK', 'contested', 1)
            new = self.cluster.leader(among=self.others)
            self.assertIsNot(new, self.old)
            self.cluster.steady(among=self.others)
            granted = wait_until(lambda: at_other.call('ACQUIRE', 'contested', 'TTL', 60000, 'OWNER', OWNER_B),
                                 'a grant by the new leader')
            self.assertGreater(granted, kept)
            self.assertEqual(at_other.call('RENEW', 'kept', kept), 1)
            self.old.resume()
            stale = at_old.read()
            self.assertTrue(stale is None or isinstance(stale, RespError), 'the paused leader granted %r' % stale)
            found = at_old.read()
            self.assertTrue(found == 0 or isinstance(found, RespError), 'the paused leader found %r' % found)
            self.assertEqual(at_other.call('CHECK', 'kept', kept), 1)
            self.assertEqual(at_other.call('CHECK', 'contested', granted), 1)

    def test_a_whole_cluster_that_was_paused_expires_nobody_who_renews(self):
        """All three stop for longer than the lease. Nobody could have granted anything meanwhile, so the
        time does not count: the holder, whose renewal waits in a socket, keeps its lock. A slow machine may be late by a whole
        lease before the pause or after it: then again, with a longer one."""
        self.cluster.unsteady()
        retries, ttls = Retries(), (5, 20, 60)
        for ttl_s in ttls:
            with Lateness() as late:
                renewed = self.renewed_after_pause(ttl_s)
            if renewed:
                return
            self.assertTrue(ttl_s != ttls[-1] and retries.allowed(late, ttl_s * 100),
                            'the time of the pause counts; processes were woken %.0f ms late' % late.most_ms)

    def renewed_after_pause(self, ttl_s):
        name = 'kept-%d' % ttl_s
        with self.others[0].client(PATIENCE_S) as c:
            token = wait_until(lambda: c.call('ACQUIRE', name, 'TTL', ttl_s * 1000, 'OWNER', OWNER_A), 'the lock')
            for node in self.cluster.nodes:
                node.pause()
            c.send('RENEW', name, token, 'TTL', 600000)
            time.sleep(ttl_s + 3) # the pause itself: longer than the lease
            for node in self.cluster.nodes:
                node.resume()
            answer = c.read()
            if isinstance(answer, RespError): # the outcome may be unknown; then the next must tell
                answer, = wait_until(lambda: [c.call('RENEW', name, token, 'TTL', 600000)], 'an answer to the renewal')
            self.assertEqual(wait_until(lambda: [c.call('CHECK', name, token)], 'an answer to the check'), [answer])
            return answer == 1


class Waiters(ClusterCase):
    STEADY = True

    def waits(self, node, name='x'):
        page = node.call('LOCKS', 'MATCH', name)
        return as_dict(page[1][0])['waiters'] if page[1] else 0

    def test_waiters_keep_their_place_over_failover(self):
        leader = self.cluster.leader()
        stay, other = [n for n in self.cluster.nodes if n is not leader]
        token = stay.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_A)
        clients = []
        try:
            for i in range(6):
                c = (stay, other)[i % 2].client()
                clients.append(c)
                c.send('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', 'waiter-%d-0123456789' % i, 'WAIT', 600000)
                wait_until(lambda: self.waits(stay) == i + 1, what='waiter %d in the queue' % i)
            # A node that has not yet heard that its client is in the queue could only answer UNCERTAIN.
            wait_until(lambda: stay.info()['blocked_clients'] + other.info()['blocked_clients'] == 6,
                       what='six waiters known to their nodes')
            leader.kill()
            self.cluster.leader(among=[stay, other])
            self.assertEqual(self.waits(stay), 6)
            for c in clients:
                self.assertEqual(stay.call('RELEASE', 'x', token), 1)
                granted = c.read()
                self.assertNotIsInstance(granted, RespError)
                self.assertGreater(granted, token)
                token = granted
        finally:
            for c in clients:
                c.close()

    def test_a_waiter_whose_node_dies_asks_elsewhere_and_keeps_its_place(self):
        a, b = self.cluster.followers()
        token = a.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_A)
        first = b.client()
        first.send('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', 'waiter-1-0123456789', 'WAIT', 600000)
        wait_until(lambda: self.waits(a) == 1, what='the first waiter')
        second = a.client()
        second.send('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', 'waiter-2-0123456789', 'WAIT', 600000)
        wait_until(lambda: self.waits(a) == 2, what='the second waiter')
        b.kill()
        first.close()
        again = a.client()
        again.send('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', 'waiter-1-0123456789', 'WAIT', 600000)
        wait_until(lambda: a.info()['blocked_clients'] == 2, what='both waiters at the node that is left')
        self.assertEqual(self.waits(a), 2)
        self.assertEqual(a.call('RELEASE', 'x', token), 1)
        granted = again.read()
        self.assertGreater(granted, token)
        self.assertEqual(a.call('RELEASE', 'x', granted), 1)
        self.assertGreater(second.read(), granted)
        again.close()
        second.close()

    def test_one_release_wakes_one_of_many(self):
        node = self.cluster.nodes[0]
        token = node.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_A)
        got = []
        lock = threading.Lock()

        def wait_in_line(i):
            with self.cluster.nodes[i % 3].client(PATIENCE_S) as c:
                mine = c.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', 'waiter-%d-0123456789' % i, 'WAIT', 600000)
                with lock:
                    got.append(mine)
                c.call('RELEASE', 'x', mine)
        threads = [threading.Thread(target=wait_in_line, args=(i,), daemon=True) for i in range(50)]
        for t in threads:
            t.start()
        wait_until(lambda: self.waits(node) == 50, what='fifty waiters')
        self.assertEqual(got, [])
        self.assertEqual(node.call('RELEASE', 'x', token), 1)
        for t in threads:
            t.join(PATIENCE_S)
        self.assertEqual(len(set(got)), 50)
        self.assertIsNone(node.call('SHOW', 'x'))


if __name__ == '__main__':
    main()
