#!/usr/bin/python3
"""Clients of a node that goes silent and closes nothing: it is stopped, or cut off from this client alone. One
attempt may last as long as the whole call here, so only a client that asks other nodes is served."""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
from cli_library import Driver as BlockingDriver
from cli_library import LibraryCase, leader_is
from harness import ClusterCase, RespError, main, wait_until
from held_locks import Driver, HoldCase
from scripted_server import CLOSE, HANG

ATTEMPT_MS = 200000
HOLD_S = 3 # so long a node holds a request while nobody leads (NODE_HOLD_MS)
LEFT_S = 9 # a node that was left for its silence is left alone for ten seconds (docs/adr/0021)
os.environ['DRIVER_ATTEMPT_MS'] = str(ATTEMPT_MS)
SHELLS = ('poll', 'uv') # shells on the engine; the blocking one has a driver of its own


class Scripted(LibraryCase):
    def test_the_request_goes_to_who_answers_a_probe(self):
        dead = self.server(HANG, probe=HANG)
        good = self.server(b':9\r\n')
        dead.leader = good.leader = leader_is(dead.address)
        d = self.driver(dead, good)
        while not dead.requests: # where it begins is chance
            began = time.monotonic()
            self.assertEqual(d('token', 'x'), ('OK', 9, ''))
        self.assertEqual(dead.words(), ['TOKEN'])
        self.assertGreaterEqual(good.probes, 1)
        for _ in range(5): # whoever says that the silent one leads
            self.assertEqual(d('token', 'x'), ('OK', 9, ''))
            if time.monotonic() - began > LEFT_S:
                break
            self.assertEqual(dead.words(), ['TOKEN'])

    def test_a_probe_that_is_not_answered_changes_nothing(self):
        for other in (HANG, CLOSE, b'-NOLEADER\r\n', b'-BUSY\r\n', b'-NOAUTH\r\n', b'+what\r\n'):
            def late(request):
                began = time.monotonic()
                wait_until(lambda: asked.probes, 'a probe')
                time.sleep(max(0.2, began + 1.5 - time.monotonic()))
                return b':9\r\n'
            slow = self.server(late)
            asked = self.server(b':8\r\n', probe=other)
            slow.leader = asked.leader = leader_is(slow.address)
            d = self.driver(slow, asked)
            answers = []
            while not slow.requests: # where it begins is chance
                answers.append(d('token', 'x')[:2])
            self.assertEqual(answers[-1], ('OK', 9))
            self.assertGreaterEqual(asked.probes, 1)
            self.assertEqual(len(asked.requests), len(answers) - 1)

    def test_what_must_not_be_repeated_stays(self):
        def late(request):
            time.sleep(1.0)
            return b':1\r\n'
        slow = self.server(late)
        good = self.server(b':0\r\n')
        slow.leader = good.leader = leader_is(slow.address)
        d = self.driver(slow, good)
        while 'BREAK' not in slow.words():
            d('break', 'x', ATTEMPT_MS)
        self.assertEqual(good.probes, 0)

    def test_a_release_that_may_have_been_done_is_not_called_refused(self):
        script = {b'ACQUIRE': b':7\r\n', b'RELEASE': HANG}
        dead = self.server(lambda request: script[request[0]], probe=HANG)
        good = self.server(lambda request: b':7\r\n' if request[0] == b'ACQUIRE' else b':0\r\n')
        dead.leader = good.leader = leader_is(dead.address)
        d = self.driver(dead, good)
        d('acquire', 'x', 600000, 0, ATTEMPT_MS)
        while 'RELEASE' not in dead.words():
            name = d('release', ATTEMPT_MS)[0]
        self.assertEqual(name, 'EUNCERTAIN')


class Stopped(ClusterCase):
    def stopped(self, work):
        """Does the work while the leader is stopped, and leaves a healthy cluster."""
        leader = self.cluster.leader()
        leader.pause()
        try:
            return work()
        finally:
            leader.resume()
            self.cluster.wait_same_state()

    def test_the_blocking_shell(self):
        d = BlockingDriver(','.join(self.cluster.addresses()))
        self.addCleanup(lambda: self.assertEqual(d.close(), 0))
        last = 0
        for i in range(3):
            self.cluster.leader()
            for k in range(2): # the second one goes to the leader
                name, token, text = d('acquire', 'before-%d-%d' % (i, k), 600000, 0, ATTEMPT_MS)
                self.assertEqual(name, 'OK', text)
            name, after, text = self.stopped(lambda: d('acquire', 'x-%d' % i, 600000, 0, ATTEMPT_MS))
            self.assertEqual(name, 'OK', text)
            self.assertGreater(after, max(token, last))
            last = after
            self.assertEqual(d('check', ATTEMPT_MS)[0], 'OK')

    def test_shells_on_a_loop(self):
        for shell in SHELLS:
            with self.subTest(shell=shell):
                d = Driver(shell, ','.join(self.cluster.addresses()))
                self.addCleanup(d.end)
                for i in range(2):
                    self.cluster.leader()
                    for k in range(2):
                        token = d.hold('%s-before-%d-%d' % (shell, i, k), ttl=600000)
                    after = self.stopped(lambda: d.hold('%s-%d' % (shell, i), ttl=600000))
                    self.assertGreater(after, token)

    def test_who_asked_a_follower_is_answered_when_another_leads(self):
        """A plain client: its node had passed the request on to the leader that was stopped."""
        leader = self.cluster.leader()
        asked = self.cluster.followers()
        clients = [node.client() for node in asked]
        for c in clients:
            wait_until(lambda: c.call('CHECK', 'x', 1) == 0, 'service')
        leader.pause()
        try:
            sent = []
            for i, c in enumerate(clients):
                sent.append(time.monotonic())
                c.send('ACQUIRE', 'follower-%d' % i, 'TTL', 60000, 'OWNER', 'owner-0123456789-%d' % i)
            for i, c in enumerate(clients):
                token = c.read()
                if isinstance(token, RespError):
                    waited = time.monotonic() - sent[i]
                    self.assertIn(token.word, ('UNCERTAIN', 'NOLEADER') if waited > HOLD_S - 0.1 else ('UNCERTAIN',), waited)
                    token = wait_until(lambda: c.call('ACQUIRE', 'follower-%d' % i, 'TTL', 60000, 'OWNER',
                                                      'owner-0123456789-%d' % i), 'the grant')
                self.assertGreater(token, 0)
        finally:
            leader.resume()
            for c in clients:
                c.close()
        self.cluster.wait_same_state()


class CutOff(HoldCase):
    """From this client alone: the others hear the leader, and say so."""

    NODES = 3
    PROXIES = True
    def test_calls_go_through_the_others(self):
        blocking = BlockingDriver(self.nodes)
        self.addCleanup(lambda: self.assertEqual(blocking.close(), 0))
        drivers = [self.driver(shell) for shell in SHELLS]
        at = self.cluster.nodes.index(self.cluster.leader())

        def all_of_them(what):
            tokens = []
            for k in range(2):
                name, token, text = blocking('acquire', '%s-%d' % (what, k), 600000, 0, ATTEMPT_MS)
                self.assertEqual(name, 'OK', text)
                tokens.append(token)
                tokens += [d.hold('%s-%s-%d' % (what, shell, k), ttl=600000) for d, shell in zip(drivers, SHELLS)]
            self.assertEqual(tokens, sorted(tokens))

        all_of_them('before')
        self.proxies[at].silent.set()
        try:
            all_of_them('during')
        finally:
            self.proxies[at].silent.clear()
        all_of_them('after')
        self.assertEqual(self.cluster.leader(), self.cluster.nodes[at])


if __name__ == '__main__':
    main()
