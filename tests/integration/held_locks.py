#!/usr/bin/python3
"""Locks held by libfencelock's three shells (keep-alive thread, fd and process(), libuv) on real nodes: renewed, taken
away, cut off from the network, stopped past the lease. Whatever happens, `lost` is told before the lock can be
another's, and before anything else can be done with it."""

import os
import queue
import random
import select
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Deadline, Store, as_dict, main, seed, stays, wait_until
from harness.lab import build_dir
from silent_proxy import SilentClusterCase

SHELLS = ('keepalive', 'async', 'uv')
NOT, DEADLINE, TAKEN, MAX_HOLD, RELEASED = range(5) # enum fl_lost_reason
OTHER = 'other-owner-0123456789'


def now_ms():
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


class Driver:
    def __init__(self, shell, nodes, *store, wrapper=()):
        path = os.path.join(build_dir(), 'tests', 'unit', 'client', 'hold_driver')
        self.child = subprocess.Popen([*wrapper, path, shell, nodes, *store], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.put(line.split())
        self.lines.put(None)

    def say(self, *words):
        self.child.stdin.write(' '.join(str(w) for w in words) + '\n')
        self.child.stdin.flush()

    def next(self, seconds=30):
        """The next line."""
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError('the driver says nothing') from None
        if line is None:
            raise AssertionError('the driver has ended: ' + self.child.stderr.read())
        return line

    def __call__(self, *words):
        self.say(*words)
        return self.next()

    def ask(self, *words):
        """As a call, also when a renewal was late meanwhile, as it may be on a busy machine."""
        line = self(*words)
        while line[0] == 'change' and line[2] in ('jeopardy', 'safe'):
            line = self.next()
        return line

    def no_line(self, seconds):
        try:
            raise AssertionError('unexpected: %r' % self.lines.get(timeout=seconds))
        except queue.Empty:
            pass

    def take(self, name, ttl=2000, wait=0, reserve=0, max_hold=0):
        return self.ask('take', name, ttl, wait, reserve, max_hold)

    def hold(self, name, **options):
        """A lock that must be granted; its token."""
        word, taken, result, token = self.take(name, **options)
        assert (word, taken, result) == ('taken', name, 'OK'), result
        return int(token)

    def end(self):
        if self.child.stdin and not self.child.stdin.closed:
            self.child.stdin.close()
        code = self.child.wait(240)
        self.reader.join(240)
        err = self.child.stderr.read()
        self.child.stderr.close()
        self.child.stdout.close()
        return code, err


class Lateness(threading.Thread):
    """How late this machine wakes who sleeps: a process that does not run cannot be told anything."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ended, self.most_ms = threading.Event(), 0.0

    def run(self):
        at = now_ms()
        while not self.ended.wait(0.005):
            self.most_ms, at = max(self.most_ms, now_ms() - at - 5), now_ms()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.ended.set()
        self.join(240)


class HoldCase(SilentClusterCase):
    def lasting(self, d):
        """The next line; on a slow machine a renewal may be late, and come."""
        line = d.next()
        while line[0] == 'change' and line[2] in ('jeopardy', 'safe'):
            line = d.next()
        return line

    def driver(self, shell, *store):
        driver = Driver(shell, self.nodes, *store)
        def end():
            self.assertEqual(driver.end(), (0, ''), shell)
        self.addCleanup(end)
        return driver

    def call(self, *args, timeout=60):
        return self.cluster.leader().call(*args, timeout=timeout)

    def silence(self, on):
        for proxy in self.proxies:
            (proxy.silent.set if on else proxy.silent.clear)()

    def each_shell(self):
        for shell in SHELLS:
            with self.subTest(shell=shell):
                yield self.driver(shell), shell

    def all_shells(self):
        """A driver of each, side by side, where what is tested takes the time of a lease or more."""
        return [(self.driver(shell), shell) for shell in SHELLS]

    def stay_held(self, tokens, seconds, node=None):
        def held():
            leader = node or self.cluster.leader()
            with leader.client(60) as c:
                return c.pipeline([('CHECK', name, token) for name, token in tokens.items()]) == [1] * len(tokens)
        stays(held, seconds, 'the holding of %s' % ', '.join(tokens))


class Life(HoldCase):
    def test_renewed_and_given_back(self):
        shells, tokens = self.all_shells(), {}
        for d, name in shells:
            tokens[name] = d.hold(name, ttl=3000)
            word = d.ask('look', name)
            self.assertEqual(word[2:4] + word[5:], ['safe', str(NOT), 'OK', str(tokens[name])])
            self.assertTrue(0 < int(word[4]) <= 3000)
        self.stay_held(tokens, 7) # more than two leases
        for d, name in shells:
            token = tokens[name]
            self.assertEqual(d.ask('release', name), ['released', name, 'OK'])
            self.assertEqual(d('look', name), ['look', name, 'lost', str(RELEASED), '0', 'ENOTHELD', '0'])
            self.assertEqual(self.call('CHECK', name, token), 0)
            d.say('free', name)

    def test_contention_and_waiting(self):
        for d, name in self.each_shell():
            token = self.call('ACQUIRE', name, 'TTL', 60000, 'OWNER', OTHER)
            self.assertEqual(d.take(name), ['taken', name, 'ENOTHELD', '0'])
            d.say('take', name, 2000, 30000, 0, 0)
            wait_until(lambda: b'queue' in self.call('SHOW', name) and self.waiters(name) == 1, what='the waiter')
            self.call('RELEASE', name, token)
            word, taken, result, mine = d.next()
            self.assertEqual((word, taken, result), ('taken', name, 'OK'))
            self.assertGreater(int(mine), token)

    def waiters(self, name):
        fields = self.call('SHOW', name)
        return as_dict(fields)['waiters']

    def test_wrong_arguments(self):
        for d, name in self.each_shell():
            self.assertEqual(d.take(name, ttl=9)[2], 'EINVAL')
            self.assertEqual(d.take(name, ttl=1000, reserve=501)[2], 'EINVAL')
            self.assertEqual(d.take(name + '2', ttl=1000, reserve=500)[2], 'OK')

    def test_taken_away(self):
        for d, name in self.each_shell():
            d.hold(name, ttl=3000)
            self.call('BREAK', name)
            self.assertEqual(d.next()[:4], ['change', name, 'lost', str(TAKEN)])
            self.assertEqual(d('look', name)[2:], ['lost', str(TAKEN), '0', 'ENOTHELD', '0'])

    def test_max_hold_and_reserve(self):
        for d, name in self.each_shell():
            began = now_ms()
            d.hold(name, ttl=30000, reserve=200, max_hold=1200)
            line = d.next()
            self.assertEqual(line[:4], ['change', name, 'lost', str(MAX_HOLD)])
            self.assertGreaterEqual(int(line[4]), began + 1199)

    def test_many_at_once(self):
        shells, tokens = self.all_shells(), {}
        for d, name in shells:
            names = ['%s-%d' % (name, i) for i in range(10)]
            for n in names:
                d.say('take', n, 3000, 0, 0, 0)
            for _ in names:
                _, n, result, token = self.lasting(d)
                self.assertEqual(result, 'OK')
                tokens[n] = int(token)
        self.stay_held(tokens, 4) # more than one lease
        for d, name in shells:
            for n in ['%s-%d' % (name, i) for i in range(10)]:
                self.assertEqual(d.ask('release', n), ['released', n, 'OK'])

    def test_locks_come_and_go_while_others_are_renewed(self):
        """Between two of them the shell has been at work, which is when a thread of its own would be in the way."""
        shells, held = self.all_shells(), {}
        for i in range(5):
            for d, name in shells:
                held['%s-%d' % (name, i)] = d.hold('%s-%d' % (name, i), ttl=3000)
            self.stay_held(held, 1.2) # a renewal comes within it
            if i >= 2: # each has three
                for d, name in shells:
                    d.say('free', '%s-%d' % (name, i - 2))
                    del held['%s-%d' % (name, i - 2)]

    def test_ending_gives_up_what_is_held(self):
        for d, name in self.each_shell():
            token = d.hold(name, ttl=500)
            d.say('take', name + '-2', 500, 0, 0, 0)
            d.say('stop')
            self.assertEqual(d.child.wait(240), 0)
            wait_until(lambda: self.call('CHECK', name, token) == 0, what='the end of the lease')

    def test_sessions(self):
        shells, tokens = self.all_shells(), {}
        for d, shell in shells:
            session = 'session-0123456789-' + shell
            self.assertEqual(d('open', session, 5000), ['taken', session, 'OK', '0'])
            for name in ('a-' + shell, 'b-' + shell, 'c-' + shell):
                word, taken, result, token = d.ask('under', session, name, 0)
                self.assertEqual((taken, result), (name, 'OK'))
                tokens[name] = int(token)
            name = 'c-' + shell
            self.assertEqual(d.ask('give', session, name, tokens[name]), ['released', name, 'OK'])
            self.assertEqual(d.ask('give', session, name, tokens.pop(name)), ['released', name, 'ENOTHELD'])
        self.stay_held(tokens, 7) # longer than a lease
        for d, shell in shells:
            session, mine = 'session-0123456789-' + shell, [(n + shell, tokens[n + shell]) for n in ('a-', 'b-')]
            wait_until(lambda: d.ask('look', session)[2:4] == ['safe', str(NOT)], 'a renewal that is answered')
            self.assertEqual(d.ask('release', session), ['released', session, 'OK'])
            self.assertEqual([self.call('CHECK', n, t) for n, t in mine], [0, 0])
            self.assertEqual(d.ask('under', session, 'c', 0)[2], 'ENOSESSION')
            # Closed by somebody else.
            other = 'session-other-0123456789-' + shell
            self.assertEqual(d.ask('open', other, 5000)[2], 'OK')
            self.call('SESSION', 'CLOSE', other)
            self.assertEqual(self.lasting(d)[:4], ['change', other, 'lost', str(TAKEN)])

    def test_waits_of_a_session_end_with_it(self):
        """Whatever ends it, a wait under it is answered, and never with a token."""
        for d, shell in self.each_shell():
            if shell == 'keepalive': # its waits block the driver
                continue
            token = self.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OTHER)
            for number, end in enumerate(('close', 'free', 'release')):
                session = 'session-%d-0123456789' % number
                self.assertEqual(d('open', session, 3000)[2], 'OK')
                d.say('under', session, 'x', 50000)
                wait_until(lambda: self.waiters('x') == 1, what='the waiter')
                if end == 'close':
                    self.call('SESSION', 'CLOSE', session)
                    seen = sorted(d.next()[:3] for _ in range(2)) # the renewal finds it out as well
                    self.assertEqual(seen, [['change', session, 'lost'], ['taken', 'x', 'ENOSESSION']])
                    continue
                if end == 'release':
                    seen = sorted((d('release', session), d.next()))
                    self.assertEqual(seen, [['released', session, 'OK'], ['taken', 'x', 'ENOSESSION', '0']])
                    continue
                d.say('free', session) # it lives on at the server until its TTL is over, and may be granted the lock
                self.assertEqual(self.call('RELEASE', 'x', token), 1)
                self.assertEqual(d.next(), ['taken', 'x', 'ENOSESSION', '0'])
                token = self.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OTHER, 'WAIT', 50000)
            self.call('RELEASE', 'x', token)

    def test_threads_that_ask_all_the_time(self):
        d = self.driver('keepalive')
        for name in ('a', 'b'):
            d.hold(name, ttl=3000)
            d.say('hammer', name)
        time.sleep(2.5) # a few renewals under the hammer
        d.say('release', 'a') # what hammers it says that it is over, before or after
        lines = sorted([self.lasting(d), self.lasting(d)])
        self.assertEqual([line[0] for line in lines], ['hammered', 'released'])
        self.assertEqual(lines[1][2], 'OK')
        self.call('BREAK', 'b')
        # Told before anybody learned of it in another way.
        self.assertEqual([self.lasting(d)[0], self.lasting(d)[0]], ['change', 'hammered'])


class Storage(HoldCase):
    def setUp(self):
        super().setUp()
        self.store = Store(self.lab).start()
        self.d = self.driver('keepalive', self.store.address)

    def test_claimed_on_acquire_and_written_while_held(self):
        word, name, result, token = self.d('claimed', 'x', 15000)
        self.assertEqual(result, 'OK')
        self.assertEqual(self.store.call('MARK', 'x'), int(token))
        self.assertEqual(self.d.ask('write', 'x', 'key', 'one'), ['wrote', 'x', 'OK'])
        self.assertEqual(self.store.call('GET', 'key'), b'one')
        self.store.call('CLAIM', 'x', int(token) + 1) # somebody newer has been there
        self.assertEqual(self.d.ask('write', 'x', 'key', 'two'), ['wrote', 'x', 'ESTALE'])
        self.call('BREAK', 'x')
        self.assertEqual(self.lasting(self.d)[2], 'lost')
        self.assertEqual(self.d('write', 'x', 'key', 'three'), ['wrote', 'x', 'ENOTHELD'])
        self.assertEqual(self.store.call('GET', 'key'), b'one')

    def test_each_of_several_locks_is_claimed(self):
        word, name, result, token = self.d('claimed', 'x', 60000, 'y')
        self.assertEqual(result, 'OK')
        self.assertEqual([self.store.call('MARK', n) for n in ('x', 'y')], [int(token)] * 2)
        self.assertEqual([self.call('CHECK', n, token) for n in ('x', 'y')], [1, 1])
        self.assertEqual(self.d('release', 'x')[2], 'OK')
        self.store.call('CLAIM', 'y', 1 << 40)
        self.assertEqual(self.d('claimed', 'z', 60000, 'y')[2], 'ESTALE')
        self.assertEqual([self.call('SHOW', n) for n in ('x', 'y', 'z')], [None] * 3)

    def test_a_claim_that_fails_gives_the_lock_back(self):
        self.store.call('CLAIM', 'x', 1 << 40)
        self.assertEqual(self.d('claimed', 'x', 60000), ['taken', 'x', 'ESTALE', '0'])
        self.assertIsNone(self.call('SHOW', 'x'))
        self.store.terminate()
        self.assertEqual(self.d('claimed', 'x', 60000)[2], 'ENOCONN')
        self.assertIsNone(self.call('SHOW', 'x'))
        self.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OTHER)
        self.assertEqual(self.d('claimed', 'x', 60000)[2], 'ENOTHELD')


class Stopped(HoldCase):
    def test_lost_is_told_before_anything_else_can_be_done(self):
        for d, name in self.each_shell():
            mine = d.hold(name, ttl=500)
            d.child.send_signal(signal.SIGSTOP)
            next_one = self.call('ACQUIRE', name, 'TTL', 60000, 'OWNER', OTHER, 'WAIT', 50000)
            self.assertGreater(next_one, mine)
            d.say('look', name) # waits in the pipe
            d.child.send_signal(signal.SIGCONT)
            self.assertEqual(d.next()[:4], ['change', name, 'lost', str(DEADLINE)])
            self.assertEqual(d.next(), ['look', name, 'lost', str(DEADLINE), '0', 'ENOTHELD', '0'])
            d.no_line(0.3) # told once
            self.assertEqual(self.call('CHECK', name, next_one), 1) # and not taken away by anything that was late
            self.assertEqual(d('release', name)[2], 'ENOTHELD')
            self.assertEqual(self.call('CHECK', name, next_one), 1)


class Silence(HoldCase):
    NODES = 3
    PROXIES = True
    ROUNDS = 2

    def test_jeopardy_and_safe_again(self):
        for d, name in self.each_shell():
            token = d.hold(name, ttl=3000)
            self.silence(True)
            self.assertEqual(d.next()[:4], ['change', name, 'jeopardy', str(NOT)])
            self.assertEqual(d('look', name)[2:4], ['jeopardy', str(NOT)])
            self.silence(False)
            self.assertEqual(d.next()[:4], ['change', name, 'safe', str(NOT)])
            self.assertEqual(self.call('CHECK', name, token), 1)

    def told(self, field):
        return sum(node.info()[field] for node in self.cluster.nodes)

    def lost_once(self, d, name):
        """Takes a lock, and takes it away."""
        d.hold(name, ttl=3000)
        self.call('BREAK', name)
        line = d.next()
        while line[2] != 'lost':
            line = d.next()

    def test_jeopardy_and_losses_are_told_with_a_later_renewal(self):
        for d, name in self.each_shell():
            jeopardies, lost = self.told('leases_in_jeopardy_told'), self.told('leases_lost_told')
            d.hold(name, ttl=3000)
            self.silence(True)
            self.assertEqual(d.next()[:3], ['change', name, 'jeopardy'])
            self.silence(False)
            self.assertEqual(d.next()[:3], ['change', name, 'safe'])
            wait_until(lambda: self.told('leases_in_jeopardy_told') > jeopardies, 'the jeopardy told')
            self.assertEqual(d('release', name), ['released', name, 'OK'])
            self.lost_once(d, name + '-broken')
            d.hold(name + '-next', ttl=3000)
            wait_until(lambda: self.told('leases_lost_told') > lost, 'the loss told')

    def test_nodes_that_do_not_know_these_words_renew_as_ever(self):
        for proxy in self.proxies: # as a node of an older version, which refuses the word
            proxy.replace = (b'$8\r\nJEOPARDY\r\n', b'$8\r\nJEOPARDX\r\n')
        shells = [(d, name, d.hold(name, ttl=3000)) for d, name in self.all_shells()]
        self.silence(True)
        for d, name, _ in shells:
            self.assertEqual(d.next()[:3], ['change', name, 'jeopardy'])
        self.silence(False)
        for d, name, _ in shells:
            self.assertEqual(d.next()[:3], ['change', name, 'safe'])
        for d, name, token in shells:
            before = self.renewals(name)
            wait_until(lambda: self.renewals(name) >= before + 3, 'three more renewals')
            self.assertEqual(self.call('CHECK', name, token), 1)
        self.assertEqual(self.told('leases_in_jeopardy_told'), 0)

    def renewals(self, name):
        return as_dict(self.call('SHOW', name))['renewals']

    def told_lost(self, d, names):
        """When it was told of each that it is lost."""
        told = {}
        while len(told) < len(names):
            word, name, state, reason, at = d.next()
            self.assertEqual(word, 'change')
            if state == 'lost':
                self.assertEqual(int(reason), DEADLINE)
                told[name] = int(at)
        return told

    def one_round(self, drivers, chooser, late):
        """drivers: of each shell one, with the names of its locks."""
        waiting = {}
        for d, names in drivers:
            for name in names:
                d.hold(name, ttl=3000)
                client = self.cluster.nodes[chooser.randrange(3)].client(60)
                self.addCleanup(client.close)
                client.send('ACQUIRE', name, 'TTL', 60000, 'OWNER', OTHER, 'WAIT', 50000)
                waiting[client.sock] = (client, name)
        time.sleep(chooser.random() * 1.2) # at any phase of the renewals
        self.silence(True)
        granted = {}
        deadline = Deadline(60)
        while waiting:
            ready, at = select.select(list(waiting), [], [], deadline.left())[0], now_ms()
            for sock in ready:
                client, name = waiting.pop(sock)
                self.assertIsInstance(client.read(), int)
                granted[name] = at
            self.assertFalse(deadline.passed())
        for d, names in drivers:
            for name, at in self.told_lost(d, names).items():
                left = granted[name] - at
                self.assertGreater(left + 2 * late.most_ms, 0, '%s was told lost when another had it, and processes were woken '
                                   '%.0f ms late' % (name, late.most_ms))
                self.closest = min(self.closest, left)
            for name in names:
                self.assertEqual(d('look', name)[5], 'ENOTHELD')
                d.say('free', name)
        self.silence(False)

    def test_lost_is_told_before_another_has_it(self):
        chooser = random.Random(seed())
        self.closest = 1e9
        rounds = int(os.environ.get('FENCELOCK_ROUNDS', self.ROUNDS))
        for number in range(rounds): # drivers for each round: one has few names
            drivers = [(Driver(shell, self.nodes), ['%s-%d-%d' % (shell, number, i) for i in range(4)]) for shell in SHELLS]
            with Lateness() as late:
                self.one_round(drivers, chooser, late)
            for d, _ in drivers:
                self.assertEqual(d.end(), (0, ''))
        self.note('%d locks; the closest was told %.0f ms before the next grant'
                  % (rounds * len(SHELLS) * 4, self.closest))

    def test_a_leader_that_hangs_or_dies_is_left_in_time(self):
        shells = self.all_shells()
        for dies in (True, False):
            tokens = {}
            for d, shell in shells:
                name = '%s-%s' % (shell, dies)
                tokens[name] = d.hold(name, ttl=5000)
            old = self.cluster.leader()
            (old.kill if dies else old.pause)()
            new = self.cluster.leader(among=[n for n in self.cluster.nodes if n is not old])
            self.stay_held(tokens, 7, new)
            (old.start if dies else old.resume)()
            for (d, _), (name, token) in zip(shells, tokens.items()):
                lines = [d('look', name)]
                while lines[-1][0] != 'look': # jeopardy and safe may have come and gone
                    lines.append(d.next())
                self.assertEqual(lines[-1][5:], ['OK', str(token)])
                self.assertNotIn('lost', [line[2] for line in lines])
                self.assertEqual(d.ask('release', name), ['released', name, 'OK'])
            self.cluster.wait_same_state()


if __name__ == '__main__':
    main()
