#!/usr/bin/python3
"""SUBSCRIBE and PSUBSCRIBE on real nodes: both protocols, stock clients, followers, slow subscribers, changes of
leader, snapshots."""

import os
import socket
import subprocess
import sys
import time

import redis

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, ClusterCase, Deadline, RespError, main, wait_until
from harness.resp import Push

OWNER_A, OWNER_B = 'owner-a-0123456789', 'owner-b-0123456789'
MIN_LIVE = b'fencelock:min_live_token'


def words(text):
    """A message as a dict."""
    return dict(word.split('=', 1) for word in text.decode().split(' '))


def short(text):
    m = words(text)
    return ' '.join([m['event']] + [m[key] for key in ('token', 'owner') if key in m])


class Events(ClusterCase):
    def setUp(self):
        super().setUp()
        self.cluster.steady() # events are counted one by one: no request may be uncertain, and so be made twice

    def subscribed(self, node, *args, proto=2):
        c = node.client()
        self.addCleanup(c.close)
        if proto == 3:
            c.call('HELLO', 3)
        c.send(*args)
        for name in args[1:]:
            frame = c.read()
            self.assertEqual(frame[:2], [args[0].lower().encode(), name.encode()])
            self.assertEqual(isinstance(frame, Push), proto == 3)
        return c

    def test_a_lock_life_on_every_node_in_both_protocols(self):
        listeners = []
        for node in self.cluster.nodes:
            for proto in (2, 3):
                listeners.append((self.subscribed(node, 'SUBSCRIBE', 'lock:x', proto=proto), proto, 'message'))
                listeners.append((self.subscribed(node, 'PSUBSCRIBE', 'lock:?', proto=proto), proto, 'pmessage'))
        node = self.cluster.nodes[0]
        first = node.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_A)
        node.call('ACQUIRE', 'unheard', 'TTL', 60000, 'OWNER', OWNER_A)
        with node.client() as waiting, node.client() as leaving:
            waiting.send('ACQUIRE', 'x', 'TTL', 100, 'OWNER', OWNER_B, 'WAIT', 60000)
            wait_until(lambda: self.queued(node) == 1, what='the first waiter')
            self.assertIsNone(leaving.call('ACQUIRE', 'x', 'TTL', 100, 'OWNER', 'owner-c-0123456789', 'WAIT', 10))
            self.assertEqual(node.call('RELEASE', 'x', first), 1)
            second = waiting.read()
        third = wait_until(lambda: node.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_A), what='expiry')
        self.assertEqual(node.call('BREAK', 'x'), third + 1)
        want = ['granted %d %s' % (first, OWNER_A), 'queued ' + OWNER_B, 'queued owner-c-0123456789',
                'left owner-c-0123456789', 'released %d %s' % (first, OWNER_A), 'granted %d %s' % (second, OWNER_B),
                'expired %d %s' % (second, OWNER_B), 'granted %d %s' % (third, OWNER_A),
                'broken %d %s' % (third, OWNER_A)]
        texts = []
        for c, proto, kind in listeners:
            frames = [c.read() for _ in want]
            self.assertEqual([short(f[-1]) for f in frames], want)
            for f in frames:
                self.assertEqual(isinstance(f, Push), proto == 3)
                self.assertEqual(f[0], kind.encode())
                self.assertEqual(f[-2], b'lock:x')
            texts.append([f[-1] for f in frames])
        self.assertTrue(all(t == texts[0] for t in texts)) # down to the clock

    @staticmethod
    def queued(node):
        return node.info()['waits']

    def test_what_may_be_said_while_subscribed(self):
        node = self.cluster.nodes[0]
        c = self.subscribed(node, 'SUBSCRIBE', 'lock:a', 'lock:b')
        self.assertEqual(c.call('PING'), [b'pong', b''])
        self.assertEqual(c.call('PING', 'hi'), [b'pong', b'hi'])
        self.assertIsInstance(c.call('LEADER')[0], int)
        for request in (('SHOW', 'a'), ('ACQUIRE', 'a'), ('HELLO', 3), ('ECHO', 'x'), ('NONSENSE',), ('PING', 'a', 'b')):
            with self.assertRaises(RespError):
                c.call(*request)
        with self.assertRaises(RespError) as e:
            c.call('SUBSCRIBE', 'nonsense')
        self.assertEqual(e.exception.word, 'ERR')
        self.assertEqual(c.call('UNSUBSCRIBE', 'lock:b'), [b'unsubscribe', b'lock:b', 1])
        self.assertEqual(c.call('UNSUBSCRIBE'), [b'unsubscribe', b'lock:a', 0])
        self.assertIsNone(c.call('SHOW', 'a'))
        self.assertEqual(c.call('PSUBSCRIBE', '*'), [b'psubscribe', b'*', 1])
        self.assertEqual(c.read()[2], MIN_LIVE)
        self.assertEqual(c.call('RESET'), 'RESET')
        self.assertEqual(c.call('PING'), 'PONG')
        self.assertEqual(node.info()['pubsub_clients'], 0)
        c = self.subscribed(node, 'SUBSCRIBE', 'lock:a')
        self.assertEqual(c.call('QUIT'), 'OK')
        self.assertEqual(c.read_until_closed(), [])
        wait_until(lambda: node.info()['pubsub_clients'] == 0, what='the end of the subscription')

    def test_version_3_does_everything_on_one_connection(self):
        node = self.cluster.followers()[0]
        c = self.subscribed(node, 'SUBSCRIBE', 'lock:x', proto=3)
        token = node.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_A)
        self.assertEqual(short(c.read()[2]), 'granted %d %s' % (token, OWNER_A))
        c.send('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_B, 'WAIT', 60000)
        c.send('PING') # answered behind the wait; the events do not wait for it
        self.assertEqual(short(c.read()[2]), 'queued ' + OWNER_B)
        self.assertEqual(node.call('RELEASE', 'x', token), 1)
        seen = [c.read() for _ in range(4)]
        pushes = [short(f[2]) for f in seen if isinstance(f, Push)]
        answers = [f for f in seen if not isinstance(f, Push)]
        self.assertEqual(answers[1], 'PONG')
        self.assertEqual(pushes, ['released %d %s' % (token, OWNER_A), 'granted %d %s' % (answers[0], OWNER_B)])
        self.assertEqual(c.call('HELLO', 2)[4:6], [b'proto', 2])
        with self.assertRaises(RespError):
            c.call('SHOW', 'x')

    def test_version_2_messages_wait_for_answers(self):
        node = self.cluster.nodes[1]
        token = node.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_A)
        self.cluster.wait_same_state() # or the grant would still be news to this node
        with node.client() as c:
            c.send('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_B, 'WAIT', 60000)
            c.send('SUBSCRIBE', 'lock:x')
            wait_until(lambda: self.queued(node) == 1 and node.info()['pubsub_clients'] == 1, what='both')
            self.assertEqual(node.call('RELEASE', 'x', token), 1)
            second = c.read()
            self.assertGreater(second, token)
            self.assertEqual(c.read(), [b'subscribe', b'lock:x', 1])
            texts = [short(c.read()[2])]
            while not texts[-1].startswith('granted'):
                texts.append(short(c.read()[2]))
            self.assertEqual(texts[-2:], ['released %d %s' % (token, OWNER_A), 'granted %d %s' % (second, OWNER_B)])

    def test_min_live_token(self):
        leader = self.cluster.leader()
        held = leader.call('ACQUIRE', 'old', 'TTL', 60000, 'OWNER', OWNER_A)
        for node in self.cluster.nodes:
            wait_until(lambda: node.info()['min_live_token'] == held, what='every node knows')
        listeners = [self.subscribed(node, 'SUBSCRIBE', MIN_LIVE.decode()) for node in self.cluster.nodes]
        for c in listeners:
            self.assertEqual(words(c.read()[2])['token'], str(held))
        for _ in range(5): # moves nothing
            leader.call('TOKEN', 'x')
        young = leader.call('ACQUIRE', 'young', 'TTL', 60000, 'OWNER', OWNER_A)
        leader.call('RELEASE', 'old', held)
        for c in listeners:
            m = words(c.read()[2])
            self.assertEqual((m['event'], m['token']), ('min_live_token', str(young)))
        self.assertEqual(leader.call('RELEASE', 'young', young), 1)
        for c in listeners: # nothing is held: not even the last token issued lives
            self.assertEqual(words(c.read()[2])['token'], str(young + 1))

    def test_redis_cli(self):
        for node, flag in zip(self.cluster.nodes, ('-2', '-3', '-2')):
            self.cluster.wait_same_state()
            cli = subprocess.Popen(['redis-cli', flag, '-p', str(node.port), 'PSUBSCRIBE', 'lock:cli-*'],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            try:
                wait_until(lambda: node.info()['pubsub_patterns'] == 1, what='the subscription')
                token = node.call('ACQUIRE', 'cli-1', 'TTL', 60000, 'OWNER', OWNER_A)
                node.call('RELEASE', 'cli-1', token)
                out = b''
                while b'event=released' not in out:
                    line = cli.stdout.readline()
                    self.assertTrue(line, out)
                    out += line
                self.assertIn(b'event=granted token=%d owner=%s' % (token, OWNER_A.encode()), out)
                self.assertIn(b'psubscribe', out)
            finally:
                cli.kill()
                cli.wait()
                cli.stdout.close()
            wait_until(lambda: node.info()['pubsub_patterns'] == 0, what='the end of the subscription')

    def test_the_redis_client_of_python(self):
        for node in self.cluster.nodes:
            self.cluster.wait_same_state()
            r = redis.Redis(port=node.port, socket_timeout=PATIENCE_S)
            p = r.pubsub()
            p.subscribe('lock:py')
            p.psubscribe('lock:p*')
            self.assertEqual([p.get_message(timeout=PATIENCE_S)['type'] for _ in range(2)], ['subscribe', 'psubscribe'])
            p.ping()
            self.assertEqual(p.get_message(timeout=PATIENCE_S)['type'], 'pong')
            token = r.execute_command('ACQUIRE', 'py', 'TTL', 60000, 'OWNER', OWNER_A)
            seen = [p.get_message(timeout=PATIENCE_S) for _ in range(2)]
            self.assertEqual([m['type'] for m in seen], ['message', 'pmessage'])
            for m in seen:
                self.assertEqual(m['channel'], b'lock:py')
                self.assertEqual(short(m['data']), 'granted %d %s' % (token, OWNER_A))
            self.assertEqual(r.execute_command('RELEASE', 'py', token), 1)
            p.unsubscribe()
            p.punsubscribe()
            while p.subscribed:
                p.get_message(timeout=PATIENCE_S)
            p.close()
            r.close()

    def test_events_go_on_after_fail_over(self):
        leader = self.cluster.leader()
        followers = self.cluster.followers()
        listeners = [self.subscribed(node, 'PSUBSCRIBE', 'lock:*', proto=3) for node in followers]
        held = leader.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_A)
        for c in listeners:
            self.assertEqual(short(c.read()[3]), 'granted %d %s' % (held, OWNER_A))
        leader.kill()
        next_leader = self.cluster.leader()
        token = next_leader.call('ACQUIRE', 'y', 'TTL', 60000, 'OWNER', OWNER_B, timeout=30)
        for c in listeners: # nothing in between, nothing twice
            self.assertEqual(short(c.read(30)[3]), 'granted %d %s' % (token, OWNER_B))
        late = self.subscribed(leader.start(), 'SUBSCRIBE', 'lock:z')
        self.cluster.wait_serving(leader)
        token = leader.call('ACQUIRE', 'z', 'TTL', 60000, 'OWNER', OWNER_A)
        self.assertEqual(short(late.read()[2]), 'granted %d %s' % (token, OWNER_A))

    def test_a_snapshot_in_place_of_the_log_is_told_as_a_gap(self):
        leader = self.cluster.leader()
        node = self.cluster.followers()[0]
        c = self.subscribed(node, 'SUBSCRIBE', 'lock:x', 'lock:y', proto=3)
        p = self.subscribed(node, 'PSUBSCRIBE', 'lock:x')
        held = leader.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_A)
        self.assertEqual(short(c.read()[2]), 'granted %d %s' % (held, OWNER_A))
        self.assertEqual(short(p.read()[3]), 'granted %d %s' % (held, OWNER_A))
        others = [n for n in self.cluster.nodes if n is not node]
        before = [n.info()['snapshots'] for n in others]
        installed = node.info()['snapshots_installed']
        node.pause()
        with leader.client(PATIENCE_S) as load:
            self.assertEqual(load.call('RELEASE', 'x', held), 1) # nobody will hear of this at the paused node
            # At both of the others: on a busy machine either may lead when the node is back.
            while any(n.info()['snapshots'] < b + 2 for n, b in zip(others, before)):
                load.pipeline([('ACQUIRE', 'load-%d' % i, 'TTL', 60000, 'OWNER', OWNER_A, 'VALUE', 'v' * 1024)
                               for i in range(512)])
        node.resume()
        self.cluster.wait_same_state()
        token = leader.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_B)

        def heard(client):
            """The channels of gaps. What had reached the node before it stopped comes first."""
            channels = []
            while True:
                frame = client.read(PATIENCE_S)
                if short(frame[-1]) == 'granted %d %s' % (token, OWNER_B):
                    return channels
                if short(frame[-1]) != 'released %d %s' % (held, OWNER_A) or channels:
                    self.assertEqual(words(frame[-1])['event'], 'resync')
                    channels.append(frame[-2])
        at_c, at_p = heard(c), heard(p)
        info = node.info()
        times = info['event_resyncs'] # once for each snapshot: another one may be due when the first is in place
        self.assertGreaterEqual(times, 1)
        self.assertEqual(times, info['snapshots_installed'] - installed)
        self.assertEqual(sorted(at_c), times * [b'lock:x'] + times * [b'lock:y'])
        self.assertEqual(at_p, times * [b'fencelock:resync'])

    def test_a_slow_subscriber_is_cut_off_and_nobody_else(self):
        node = self.cluster.leader()
        before = node.process.rss()
        quick = self.subscribed(node, 'SUBSCRIBE', 'lock:last')
        owner = '\xff' * 100
        hears_why, patience = False, Deadline(PATIENCE_S)
        while not hears_why: # it has 5 seconds to begin with that, which a slow machine may miss
            cut = node.info()['slow_subscribers_cut_off']
            slow = node.client(rcvbuf=4096, timeout=PATIENCE_S)
            self.addCleanup(slow.close)
            slow.send('PSUBSCRIBE', 'lock:*')
            with node.client() as c:
                for _ in range(400):
                    not_yet_cut = time.monotonic()
                    tokens = c.pipeline([('ACQUIRE', 'n-%d' % i, 'TTL', 60000, 'OWNER', owner) for i in range(100)])
                    c.pipeline([('RELEASE', 'n-%d' % i, t) for i, t in enumerate(tokens)])
                    if node.info()['slow_subscribers_cut_off'] > cut:
                        break
                self.assertEqual(node.info()['slow_subscribers_cut_off'], cut + 1)
                replies = slow.read_until_closed(PATIENCE_S) # it begins to read now, and hears why
                had_s = time.monotonic() - not_yet_cut
                token = c.call('ACQUIRE', 'last', 'TTL', 60000, 'OWNER', OWNER_A)
                self.assertEqual(short(quick.read()[2]), 'granted %d %s' % (token, OWNER_A))
                self.assertEqual(c.call('RELEASE', 'last', token), 1)
                self.assertEqual(short(quick.read()[2]), 'released %d %s' % (token, OWNER_A))
            self.assertEqual(node.info()['pubsub_clients'], 1)
            self.assertFalse(any(isinstance(r, RespError) for r in replies[:-1]))
            hears_why = replies and isinstance(replies[-1], RespError)
            self.assertTrue(hears_why or had_s > 5, 'a subscriber that read within %.1f s is not told why' % had_s)
            self.assertTrue(hears_why or not patience.passed(), 'no slow subscriber is told why')
        self.assertEqual(replies[-1].word, 'LIMIT')
        for _ in range(3): # those who never read are gone soon
            silent = node.client(rcvbuf=4096)
            silent.send('PSUBSCRIBE', 'lock:*')
            self.addCleanup(silent.close)
        cut = node.info()['slow_subscribers_cut_off']
        with node.client() as c:
            for _ in range(400):
                tokens = c.pipeline([('ACQUIRE', 'n-%d' % i, 'TTL', 60000, 'OWNER', owner) for i in range(100)])
                c.pipeline([('RELEASE', 'n-%d' % i, t) for i, t in enumerate(tokens)])
                if node.info()['slow_subscribers_cut_off'] == cut + 3:
                    break
        wait_until(lambda: node.info()['connected_clients'] == 2, 'the end of those who never read')
        self.note('RSS %.1f MiB before, %.1f after' % (before / 2**20, node.process.rss() / 2**20))

    def test_ceilings(self):
        node = self.cluster.nodes[0]
        with node.client() as c:
            for i in range(0, 256, 32):
                c.pipeline([('SUBSCRIBE', 'lock:%d' % j) for j in range(i, i + 32)])
            with self.assertRaises(RespError) as e:
                c.call('SUBSCRIBE', 'lock:one-more')
            self.assertEqual(e.exception.word, 'LIMIT')
            self.assertEqual(c.call('UNSUBSCRIBE', 'lock:0'), [b'unsubscribe', b'lock:0', 255])
            c.send('UNSUBSCRIBE')
            self.assertEqual(sorted(c.read()[2] for _ in range(255)), list(range(255)))
            self.assertEqual(c.call('PING'), 'PONG')
        with node.client() as c: # half-closed: gone like any other
            c.call('SUBSCRIBE', 'lock:x')
            c.sock.shutdown(socket.SHUT_WR)
            self.assertEqual(c.read_until_closed(), [])


if __name__ == '__main__':
    main()
