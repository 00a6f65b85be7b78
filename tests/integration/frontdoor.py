#!/usr/bin/python3
"""fencelockd answering as Redis does (docs/FRONTDOOR.md), on real processes: every form of script, in every state of its
keys, against what a real Redis answers to the same text; commands; tokens; changes of leader; what is refused and why."""

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Resp, RespError, as_dict, binary, main, patient_env, try_again, wait_until
from redlock_lab import Redis
from wire_lab import form_texts

TTL = 600000
SECONDS = TTL // 1000


# What stands behind the keys: own value, a time, and what else the form takes.
ARGUMENTS = {
    'release': [('own',)], 'set-if-own-or-absent-yes': [('own', TTL, 'yes'), ('own', TTL, 'no')],
    'value-and-pttl': [()], 'pttl-if-own': [('own',)], 'extend': [('own', TTL)],
    'set-if-own-or-absent': [('own', TTL)], 'release-or-error': [('own',)], 'ttl-or-error': [('own',)],
    'release-with-signal': [('own', 1000)], 'extend-seconds': [('own', SECONDS)], 'release-by-variable': [('own',)],
    'extend-or-add': [('own', TTL, 0), ('own', TTL, 1)], 'extend-by-variable': [('own', TTL)],
    'release-or-minus-1': [('own',)], 'extend-or-set': [('own', TTL)], 'overwrite': [('own', TTL)],
    'replace': [('own', 'new', TTL), ('own', 'own', TTL)], 'extend-or-set-or-minus-1': [('own', TTL)],
    'extend-or-set-or-nil': [('own', TTL)], 'extend-or-nil': [('own', TTL)], 'release-or-nil': [('own',)],
    'set-all': [('own', TTL)], 'extend-all': [('own', TTL)], 'release-each': [('own',)],
    'extend-by-set': [('own', TTL)], 'obtain-all': [('own', 3, TTL)], 'release-all': [('own',)],
    'refresh-all': [('own', TTL)], 'pttl-all': [('own',)], 'pttl-or-minus-3': [('own',)],
}
TIMES = {'value-and-pttl', 'pttl-if-own', 'pttl-all', 'pttl-or-minus-3'}  # answers with a time that goes on
SIGNALS = {'release-with-signal', 'extend-seconds'}
SEVERAL = {'set-all', 'extend-all', 'release-each', 'release-all', 'refresh-all', 'pttl-all'}
LEFT_MS = 60000  # how long a release is known again; at most a minute
# Forms of locks that are taken several times: how many keys behind the lock's, and the arguments.
COUNTED = {
    'enter': (0, (TTL, 'own')), 'enter-with-token': (1, (TTL, 'own')), 'enter-and-count': (1, (TTL, 'own')),
    'enter-but-once': (0, (TTL, 'own', 'NO')), 'leave': (1, (0, TTL, 'own')), 'leave-silently': (0, (TTL, 'own')),
    'leave-once': (2, (0, TTL, 'own', 'publish', LEFT_MS)), 'leave-once-silently': (1, (TTL, 'own', LEFT_MS)),
    'renew': (0, (TTL, 'own')), 'break': (1, (0,)), 'break-silently': (0, ()), 'prolong-each': (0, (TTL,)),
    'prolong-each-always': (0, (TTL, '')),
}
# Redis would take the key from another value; here it is not given (FRONTDOOR.md).
DIFFERENT = {('overwrite', 'other'): None}


def answer(c, *args):
    try:
        return c.call(*args)
    except RespError:
        return 'error'


def rounded(value):
    """A time that is left, of a lease of ten minutes that began at any time of this test: milliseconds, or seconds."""
    if isinstance(value, list):
        return [rounded(v) for v in value]
    for unit, name in ((1, 'ms'), (1000, 's')):
        if isinstance(value, int) and TTL / 2 < value * unit <= TTL:
            return 'a time in ' + name
    return value


class Forms(Case):
    extra = ()

    def setUp(self):
        super().setUp()
        self.node = Cluster(self.lab, 1, self.extra).start().nodes[0]
        self.redis = Redis(self.lab, 'redis')
        self.ours = self.node.client()
        self.theirs = Resp(self.redis.address)
        self.addCleanup(self.ours.close)
        self.addCleanup(self.theirs.close)

    def put(self, key, state):
        if state != 'absent':
            for c in (self.ours, self.theirs):
                self.assertEqual(c.call('SET', key, state, 'NX', 'PX', TTL), 'OK')

    def granted_again(self, state, option, answer_of_redis, granted):
        """What is to be answered to one who takes what he has, which Redis refuses."""
        return answer_of_redis

    def compare(self, name, script, keys, states, arguments):
        for key, state in zip(keys, states):
            self.put(key, state)
        if name in SIGNALS:
            keys = keys + [keys[0] + '-signal']
        got = rounded(answer(self.ours, 'EVAL', script, len(keys), *keys, *arguments))
        want = rounded(answer(self.theirs, 'EVAL', script, len(keys), *keys, *arguments))
        if name not in TIMES and want == 'a time in ms':
            want = got
        what = (name, states, arguments)
        if name == 'set-all' and set(states) == {'own'}:
            want = self.granted_again('own', 'NX', want, len(states))
        if (name, states[0]) in DIFFERENT:
            self.assertEqual(got, DIFFERENT[name, states[0]], what)
            return
        self.assertEqual(got, want, what)
        for key in keys[:len(states)]:
            self.assertEqual(self.ours.call('GET', key), self.theirs.call('GET', key), (what, key))
            left = [c.call('PTTL', key) for c in (self.ours, self.theirs)]
            self.assertLess(abs(left[0] - left[1]), TTL / 2, (what, key, left))

    def test_each_form_answers_as_redis_does(self):
        texts = form_texts()
        self.assertEqual(set(texts), set(ARGUMENTS) | set(COUNTED) | {'renew-each', 'token'})
        n = 0
        for name in ARGUMENTS:
            script = texts[name]
            counts = (1, 2, 3) if name in SEVERAL else (1,)
            for count in counts:
                for states in itertools.product(('absent', 'own', 'other'), repeat=count):
                    for arguments in ARGUMENTS[name]:
                        n += 1
                        keys = ['%s-%d-%d' % (name, n, i) for i in range(count)]
                        self.compare(name, script, keys, states, arguments)
        self.note('%d comparisons with a real Redis' % n)

    def both(self, *command):
        """The answers of both, with times made round."""
        return [rounded(answer(c, *command)) for c in (self.ours, self.theirs)]

    def enter(self, key, state):
        """A lock as Redisson takes it: absent, or so often by `own`, or once by another."""
        for owner in {'absent': (), 'once': ('own',), 'twice': ('own', 'own'), 'other': ('other',)}[state]:
            self.assertEqual(self.both('EVAL', form_texts()['enter'], 1, key, TTL, owner), [None, None])

    def same_lock(self, what, *keys):
        for key in keys:
            for question in (('EXISTS', key), ('HEXISTS', key, 'own'), ('HEXISTS', key, 'other'), ('HGET', key, 'own'),
                             ('HGET', key, 'other'), ('PTTL', key)):
                got, want = self.both(*question)
                self.assertEqual(got, want, (what, question))

    def test_each_form_that_counts_answers_as_redis_does(self):
        texts = form_texts()
        for name, (more, arguments) in COUNTED.items():
            for state in ('absent', 'once', 'twice', 'other'):
                key = '%s-%s' % (name, state)
                self.enter(key, state)
                keys = [key, *('%s:%d' % (key, i) for i in range(more))]
                for again in range(4):  # a release that is known again answers the same each time
                    if name.startswith('leave-once') and again == 2:
                        keys[-1] += ':next'
                    got, want = self.both('EVAL', texts[name], len(keys), *keys, *arguments)
                    if name == 'enter-with-token' and want[0] == -1:
                        self.assertGreater(got[1], 0)  # the token of the hold, which does not grow
                        want[1] = got[1]
                    self.assertEqual(got, want, (name, state, again))
                    self.same_lock((name, state, again), key)

    def test_many_renewals_at_once(self):
        texts = form_texts()
        states = ('absent', 'once', 'twice', 'other')
        for n in (1, 4, 120):
            keys = ['each-%d-%d' % (n, i) for i in range(n)]
            for i, key in enumerate(keys):
                self.enter(key, states[i % 4])
            got, want = self.both('EVAL', texts['renew-each'], n, *keys, TTL, *['own'] * n)
            self.assertEqual(got, want)
            self.assertEqual(len(got), n)
            self.same_lock(n, *keys)
        for i in range(10):  # what comes behind one waits for its answer
            self.ours.send('EVAL', texts['renew-each'], 120, *keys, TTL, *['own'] * 120)
            self.ours.send('ECHO', i)
        for i in range(10):
            self.assertEqual((self.ours.read(), self.ours.read()), (got, b'%d' % i))
        with self.assertRaises(RespError) as e:
            self.ours.call('EVAL', texts['renew-each'], 121, *['k%d' % i for i in range(121)], TTL, *['own'] * 121)
        self.assertIn('takes 1 to 120 keys, not 121', e.exception.line)
        for _ in range(20):  # nobody is left to be told; the first locks are prolonged all the same
            with self.node.client() as c:
                c.send('EVAL', texts['renew-each'], 120, *keys, 2 * TTL, *['own'] * 120)
        wait_until(lambda: self.ours.call('PTTL', keys[1]) > TTL, what='a longer lease')
        self.assertEqual(self.ours.call('PING'), 'PONG')

    def test_commands_answer_as_redis_does(self):
        for i, (state, options) in enumerate(itertools.product(('absent', 'own', 'other'), (
                ('NX', 'PX', TTL), ('px', TTL, 'nx'), ('EX', SECONDS, 'NX'), ('XX', 'PX', TTL), ('PX', TTL), ('NX', 'PX', 0),
                ('NX', 'XX'), ('PX',), ('PX', 'soon'), ('EX', -1), ('NX', 'EX', 1, 'PX', 1)))):
            if state == 'other' and 'nx' not in [str(o).lower() for o in options]:
                continue  # Redis would overwrite it
            key = 'set-%d' % i
            self.put(key, state)
            want = self.granted_again(state, str(options).upper(), answer(self.theirs, 'SET', key, 'own', *options), 'OK')
            self.assertEqual(answer(self.ours, 'SET', key, 'own', *options), want, (state, options))
            for command in ('GET', 'EXISTS', 'TTL'):
                got, want = self.both(command, key)
                self.assertEqual(got, want, (command, state, options))
        for command in (('EXISTS', 'no', 'set-0'), ('GET', 'no'), ('TTL', 'no'), ('PTTL', 'no'), ('ECHO', 'x'), ('SELECT', 0)):
            self.assertEqual(self.ours.call(*command), self.theirs.call(*command), command)

    def test_set_with_get_answers_as_redis_does(self):
        for i, (state, options) in enumerate(itertools.product(('absent', 'own', 'other'), (
                ('NX',), ('XX',), (), ('NX', 'PX', TTL), ('XX', 'PX', TTL), ('PX', TTL), ('EX', SECONDS, 'NX'), ('XX', 'KEEPTTL'),
                ('NX', 'XX'), ('PX', 0)))):
            key = 'get-%d' % i
            self.put(key, state)
            words = [*options[:1], 'GET', *options[1:]] if i % 2 else ['get', *options]
            if options[:1] in (('PX',), ('EX',)):
                words = ['GET', *options]
            ours = answer(self.ours, 'SET', key, 'own', *words)
            if state == 'other' and options not in (('NX', 'XX'), ('PX', 0)) and 'NX' not in options:
                self.assertEqual(ours, 'error', options)  # Redis would overwrite it
                self.assertEqual(self.ours.call('GET', key), b'other')
                continue
            want = self.granted_again(state, str(options).upper(), answer(self.theirs, 'SET', key, 'own', *words), None)
            self.assertEqual(ours, want, (state, words))
            self.assertEqual(self.ours.call('GET', key), self.theirs.call('GET', key), (state, words))

    def test_del_and_pexpire_answer_as_redis_does(self):
        node = Cluster(self.lab, 1, ('--front-door-del', 'yes'), kind='del').start().nodes[0]
        with node.client() as self.ours:
            for i, (states, command) in enumerate(itertools.product(itertools.product(('absent', 'own', 'other'), repeat=2),
                                                                    ('DEL', 'UNLINK', 'PEXPIRE'))):
                keys = ['del-%d-%d' % (i, k) for k in range(2)]
                for key, state in zip(keys, states):
                    self.put(key, state)
                for words in ([keys[0], 2 * TTL], [keys[0], 3 * TTL, 'XX'], [keys[0], -1]) if command == 'PEXPIRE' else (keys, keys):
                    self.assertEqual(self.ours.call(command, *words), self.theirs.call(command, *words), (command, states, words))
                    for key in keys:
                        self.assertEqual(self.ours.call('GET', key), self.theirs.call('GET', key), (command, states, words))
                        left = [c.call('PTTL', key) for c in (self.ours, self.theirs)]
                        self.assertLess(abs(left[0] - left[1]), TTL / 2, (command, states, left))
            # What is not held as a key is not ended so, and is not said to be absent.
            self.ours.call('SESSION', 'OPEN', 'owner-0123456789', 'TTL', TTL)
            self.assertGreater(self.ours.call('ACQUIRE', 'native', 'SESSION', 'owner-0123456789'), 0)
            with self.assertRaises(RespError) as e:
                self.ours.call('DEL', 'native')
            self.assertIn('not as a key', e.exception.line)
            self.assertEqual(self.ours.call('EXISTS', 'native'), 1)

    def test_loading_and_names(self):
        script = form_texts()['release'] + ' -- with a remark'
        sha1 = hashlib.sha1(script.encode()).hexdigest()
        for c in (self.ours, self.theirs):
            with self.assertRaises(RespError) as e:
                c.call('EVALSHA', sha1, 1, 'k', 'v')
            self.assertEqual(e.exception.line, 'NOSCRIPT No matching script. Please use EVAL.')
            self.assertEqual(c.call('SCRIPT', 'LOAD', script), sha1.encode())
            self.assertEqual(c.call('SCRIPT', 'EXISTS', sha1, '0' * 40), [1, 0])
            self.assertEqual(c.call('EVALSHA', sha1.upper(), 1, 'k', 'v'), 0)
            self.assertEqual(c.call('SCRIPT', 'FLUSH'), 'OK')
            self.assertEqual(c.call('SCRIPT', 'EXISTS', sha1), [0])
        with self.assertRaises(RespError) as e:
            self.ours.call('EVAL', 'return 1', 1, 'k')
        self.assertIn('script %s is none' % hashlib.sha1(b'return 1').hexdigest(), e.exception.line)
        self.assertIn('--front-door-aliases', e.exception.line)

    def test_values_are_bytes(self):
        value = bytes(range(256))[1:]
        self.assertEqual(self.ours.call('SET', b'\0\r\n', value, 'NX', 'PX', TTL), 'OK')
        self.assertEqual(self.ours.call('GET', b'\0\r\n'), value)
        self.assertEqual(self.ours.call('DELIFEQ', b'\0\r\n', value[1:]), 0)
        self.assertEqual(self.ours.call('DELIFEQ', b'\0\r\n', value), 1)


class SharedForms(Forms):
    """With --front-door-shared a client asks every node: who takes what he has is told that he took it, and the second release
    says what the first one said. All else answers as it does without."""
    extra = ('--front-door-shared', 'yes')

    def granted_again(self, state, option, answer_of_redis, granted):
        again = state == 'own' and 'NX' in option and answer_of_redis in (None, 0, b'own')
        return granted if again else answer_of_redis

    def test_each_release_is_known_again(self):
        texts = form_texts()
        for name in ARGUMENTS:
            if not name.startswith('release'):
                continue
            keys = ['again-' + name] + (['again-%s-signal' % name] if name in SIGNALS else [])
            for arguments in ARGUMENTS[name]:
                with self.subTest(name):
                    self.put(keys[0], 'own')
                    command = ('EVAL', texts[name], len(keys), *keys, *arguments)
                    first, second = self.ours.pipeline([command, command])
                    self.assertEqual(first, rounded(answer(self.theirs, *command)))
                    self.assertEqual(second, first)


class Nodes(Case):
    def three(self, *extra):
        """A cluster whose leader is replaced when it is killed, and not because the machine is busy."""
        cluster = Cluster(self.lab, 3, extra).start()
        cluster.steady()
        return cluster


class Locks(Nodes):
    def test_tokens_and_what_others_see(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        listener = node.client()
        self.addCleanup(listener.close)
        listener.call('SUBSCRIBE', 'lock:job')
        self.assertEqual(node.call('SET', 'job', 'me', 'NX', 'PX', TTL), 'OK')
        token = node.call('LOCKTOKEN', 'job', 'me')
        self.assertGreater(token, 0)
        self.assertIsNone(node.call('LOCKTOKEN', 'job', 'you'))
        self.assertIsNone(node.call('LOCKTOKEN', 'free', 'me'))
        self.assertEqual(node.call('CHECK', 'job', token), 1)
        self.assertIn(b'granted', listener.read()[2])
        self.assertIsNone(node.call('ACQUIRE', 'job', 'TTL', TTL))
        shown = as_dict(node.call('SHOW', 'job'))
        self.assertEqual((shown['owner'], shown['token']), ('me', token))
        self.assertEqual(node.call('SET', 'job', 'me', 'XX', 'PX', TTL), 'OK')
        self.assertEqual(node.call('LOCKTOKEN', 'job', 'me'), token)
        self.assertEqual(node.call('DELEX', 'job', 'IFEQ', 'me'), 1)
        self.assertIsNone(node.call('LOCKTOKEN', 'job', 'me'))
        self.assertEqual(node.call('SET', 'job', 'me', 'NX', 'PX', TTL), 'OK')
        self.assertGreater(node.call('LOCKTOKEN', 'job', 'me'), token)
        self.assertGreater(node.call('BREAK', 'job'), token + 1)
        self.assertIsNone(node.call('GET', 'job'))
        # Who waits through ACQUIRE is woken by a release from here.
        self.assertEqual(node.call('SET', 'job', 'me', 'NX', 'PX', TTL), 'OK')
        with node.client() as waiter:
            waiter.send('ACQUIRE', 'job', 'TTL', TTL, 'OWNER', 'owner-0123456789', 'WAIT', TTL)
            wait_until(lambda: as_dict(node.call('SHOW', 'job'))['waiters'] == 1, what='the waiter')
            self.assertEqual(node.call('DELIFEQ', 'job', 'me'), 1)
            self.assertGreater(waiter.read(), token)
        self.assertIsNone(node.call('SET', 'job', 'me', 'NX', 'PX', TTL))

    def test_taken_and_nobodys(self):
        """A lock that is awaited together with another one has no holder, and is not free."""
        node = Cluster(self.lab, 1).start().nodes[0]
        self.assertEqual(node.call('SET', 'other', 'me', 'NX', 'PX', TTL), 'OK')
        with node.client() as waiter:
            waiter.send('ACQUIRE', 'job', 'ALSO', 'other', 'TTL', TTL, 'OWNER', 'owner-0123456789', 'WAIT', TTL)
            wait_until(lambda: node.call('SHOW', 'job') is not None, what='the waiter')
            self.assertEqual(node.call('EXISTS', 'job'), 1)
            self.assertEqual(node.call('GET', 'job'), b'(taken)')
            self.assertEqual(node.call('EVAL', form_texts()['value-and-pttl'], 1, 'job'), [b'(taken)', 0])
            self.assertIsNone(node.call('SET', 'job', 'me', 'NX', 'PX', TTL))
            self.assertEqual(node.call('SET', 'job', 'me', 'NX', 'GET', 'PX', TTL), b'(taken)')
            self.assertIsNone(node.call('LOCKTOKEN', 'job', '(taken)'))
            self.assertEqual(node.call('DELIFEQ', 'job', '(taken)'), 0)
            self.assertEqual(node.call('DELIFEQ', 'other', 'me'), 1)
            self.assertGreater(waiter.read(), 0)
        self.assertEqual(node.call('GET', 'job'), b'owner-0123456789')

    def test_leases_end(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        self.assertEqual(node.call('SET', 'short', 'me', 'NX', 'PX', 100), 'OK')
        wait_until(lambda: node.call('EXISTS', 'short') == 0, what='the end of the lease')
        self.assertEqual(node.call('DELIFEQ', 'short', 'me'), 0)
        self.assertEqual(node.call('SET', 'long', 'me', 'NX'), 'OK')
        day = 86400000
        self.assertTrue(day - 60000 < node.call('PTTL', 'long') <= day)

    def waiting(self, node, seconds=600):
        """A connection that waits for the end of lock:x."""
        before = int(node.info()['blocked_clients'])
        c = node.client()
        self.addCleanup(c.close)
        c.send('BLPOP', 'lock-signal:x', seconds)
        wait_until(lambda: int(node.info()['blocked_clients']) > before, what='it waits')
        return c

    def test_waiting_for_a_signal(self):
        cluster = self.three()
        leader, (a, b) = cluster.leader(), cluster.followers()
        signal_of_x = [b'lock-signal:x', b'1']
        self.assertEqual(a.call('BLPOP', 'lock-signal:x', 0), signal_of_x)  # it is free
        self.assertEqual(a.call('SET', 'lock:x', 'me', 'NX', 'PX', TTL), 'OK')
        self.assertIsNone(a.call('BLPOP', 'lock-signal:x', 0.1))
        self.assertIsNone(leader.call('BLPOP', 'lock-signal:x', '0.05'))
        several = [self.waiting(node) for node in (leader, a, b, b)]
        other = self.waiting(a)
        other.close()  # nobody is to be told
        wait_until(lambda: int(a.info()['blocked_clients']) == 1, what='who has gone waits no more')
        self.assertEqual(b.call('DELIFEQ', 'lock:x', 'me'), 1)
        for c in several:
            self.assertEqual(c.read(), signal_of_x)
        self.assertEqual(a.call('PING'), 'PONG')
        for end in ('expiry', 'break'):
            self.assertEqual(a.call('SET', 'lock:x', 'me', 'NX', 'PX', 300 if end == 'expiry' else TTL), 'OK')
            c = b.client()
            self.addCleanup(c.close)
            c.send('BLPOP', 'lock-signal:x', 600)
            if end == 'break':
                self.assertGreater(a.call('BREAK', 'lock:x'), 0)
            self.assertEqual(c.read(PATIENCE_S), signal_of_x, end)
        # Whoever waits hears of it through a change of leader, and of a node that stops.
        self.assertEqual(a.call('SET', 'lock:x', 'me', 'NX', 'PX', TTL), 'OK')
        c, d = self.waiting(a), self.waiting(b)
        leader.kill()
        self.assertEqual(b.call('DELIFEQ', 'lock:x', 'me', timeout=PATIENCE_S), 1)
        self.assertEqual((c.read(PATIENCE_S), d.read(PATIENCE_S)), (signal_of_x, signal_of_x))
        self.assertEqual(a.call('SET', 'lock:x', 'me', 'NX', 'PX', TTL, timeout=PATIENCE_S), 'OK')
        c = self.waiting(a)
        a.terminate()
        self.assertEqual(c.read(PATIENCE_S), signal_of_x)

    def test_a_connection_has_64_places_to_wait(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        self.assertEqual(node.call('SET', 'lock:x', 'me', 'NX', 'PX', TTL), 'OK')
        with node.client() as c:
            for _ in range(65):
                c.send('BLPOP', 'lock-signal:x', 600)
            wait_until(lambda: node.info()['blocked_clients'] == 64 and node.info()['answered_busy'] == 1, '64 that wait')
            self.waiting(node)  # others still have places
            self.assertEqual(node.call('DELIFEQ', 'lock:x', 'me'), 1)
            for _ in range(64):
                self.assertEqual(c.read(PATIENCE_S), [b'lock-signal:x', b'1'])
            self.assertEqual(c.read(PATIENCE_S).word, 'BUSY')

    def test_what_is_no_signal(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        for command in (('BLPOP', 'queue', 1), ('BLPOP', 'lock-signal:a', 'lock-signal:b', 1), ('BLPOP', 'lock-signal:', 1),
                        ('BLPOP', 'lock-signal:' + 'x' * 251, 1)):
            self.refused(node, *command, text='one key that begins with lock-signal:')
        for seconds in ('-1', 'soon', '1.x', ''):
            self.refused(node, 'BLPOP', 'lock-signal:a', seconds, text='timeout')
        self.assertEqual(node.call('BLPOP', 'lock-signal:' + 'x' * 250, 1), [b'lock-signal:' + b'x' * 250, b'1'])

    def test_every_node_and_a_leader_that_dies(self):
        cluster = self.three()
        leader = cluster.leader()
        a, b = cluster.followers()
        self.assertEqual(a.call('SET', 'x', 'me', 'NX', 'PX', TTL), 'OK')
        self.assertIsNone(b.call('SET', 'x', 'you', 'NX', 'PX', TTL))
        token = leader.call('LOCKTOKEN', 'x', 'me')
        leader.kill()
        # Held while nobody leads, then answered: no library sees an error.
        self.assertIsNone(b.call('SET', 'x', 'you', 'NX', 'PX', TTL, timeout=PATIENCE_S))
        self.assertEqual(a.call('LOCKTOKEN', 'x', 'me', timeout=PATIENCE_S), token)
        self.assertEqual(b.call('DELIFEQ', 'x', 'me', timeout=PATIENCE_S), 1)
        self.assertEqual(b.call('SET', 'x', 'you', 'NX', 'PX', TTL, timeout=PATIENCE_S), 'OK')
        self.assertGreater(a.call('LOCKTOKEN', 'x', 'you'), token)
        leader.start()
        cluster.wait_same_state()

    def refused(self, c, *command, text, word='ERR'):
        with self.assertRaises(RespError) as e:
            c.call(*command)
        self.assertEqual(e.exception.word, word)
        self.assertIn(text, e.exception.line)

    def test_what_is_refused(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        node.call('SET', 'x', 'other', 'NX', 'PX', TTL)
        for command, text in ((('DEL', 'x'), 'does not say whose'), (('UNLINK', 'x'), 'does not say whose'),
                              (('PEXPIRE', 'x', 5), 'does not say whose'), (('DELEX', 'x'), 'does not say whose'),
                              (('SET', 'x', 'me'), 'another value has the key'),
                              (('SET', 'x', 'me', 'IFEQ', 'other', 'GET'), 'not with IFEQ'),
                              (('SET', 'x', 'v' * 256, 'NX'), '1 to 255 bytes'),
                              (('SET', 'k' * 256, 'v', 'NX'), '1 to 255 bytes')):
            self.refused(node, *command, text=text)
        self.assertEqual(node.call('GET', 'x'), b'other')

    def test_rights(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        clients = {}
        for name, words in (('acq', ('~a*', '+@acquire')), ('see', ('~a*', '+@see')), ('two', ('~*', '+@acquire'))):
            node.call('ACL', 'SETUSER', name, 'on', '>password-of-' + name, *words)
            clients[name] = node.client()
            self.addCleanup(clients[name].close)
            clients[name].call('AUTH', name, 'password-of-' + name)
        acq, see, two = clients['acq'], clients['see'], clients['two']
        self.assertEqual(acq.call('SET', 'a', 'me', 'NX', 'PX', TTL), 'OK')
        self.assertEqual(acq.call('GET', 'a'), b'me')  # its own
        self.assertGreater(acq.call('LOCKTOKEN', 'a', 'me'), 0)
        self.refused(acq, 'SET', 'b', 'me', 'NX', text='@acquire', word='NOPERM')
        self.refused(acq, 'GET', 'b', text='@see', word='NOPERM')
        self.refused(see, 'SET', 'a', 'x', 'NX', text='@acquire', word='NOPERM')
        self.refused(see, 'DELIFEQ', 'a', 'x', text='@acquire', word='NOPERM')
        self.assertEqual(see.call('GET', 'a'), b'me')
        self.assertIsNone(two.call('SET', 'a', 'you', 'NX', 'PX', TTL))
        self.refused(two, 'DELIFEQ', 'a', 'me', text='another user', word='NOPERM')
        self.refused(two, 'GET', 'a', text='@see', word='NOPERM')
        for form, command in (('token', ('LOCKTOKEN', 'a', 'me')), ('holds', ('HEXISTS', 'a', 'me')), ('count', ('HGET', 'a', 'me')),
                              ('ttl', ('EVAL', form_texts()['pttl-if-own'], 1, 'a', 'me'))):
            with self.subTest(form):
                self.refused(two, *command, text='@see', word='NOPERM')
        self.assertIsNone(two.call('LOCKTOKEN', 'a', 'you'))
        self.assertEqual(acq.call('DELIFEQ', 'a', 'me'), 1)

    def test_rights_to_end_anybodys(self):
        node = Cluster(self.lab, 1, ('--front-door-del', 'yes')).start().nodes[0]
        for name, words in (('one', '+@acquire'), ('two', '+@acquire'), ('all', '+@break')):
            node.call('ACL', 'SETUSER', name, 'on', '>password-of-' + name, '~*', words)
        one, two, all_ = (node.client() for _ in range(3))
        for c, name in ((one, 'one'), (two, 'two'), (all_, 'all')):
            self.addCleanup(c.close)
            c.call('AUTH', name, 'password-of-' + name)
        self.assertEqual(one.call('SET', 'a', 'me', 'NX', 'PX', TTL), 'OK')
        self.refused(two, 'DEL', 'a', text='@break', word='NOPERM')
        self.refused(two, 'PEXPIRE', 'a', TTL, text='@break', word='NOPERM')
        self.assertEqual(two.call('DEL', 'b'), 0)
        self.assertEqual(one.call('PEXPIRE', 'a', TTL), 1)
        self.assertEqual(one.call('DEL', 'a'), 1)
        self.assertEqual(one.call('SET', 'a', 'me', 'NX', 'PX', TTL), 'OK')
        self.assertEqual(all_.call('DEL', 'a', 'b'), 1)

    def test_set_with_get_and_rights(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        node.call('SET', 'a', 'me', 'NX', 'PX', TTL)
        node.call('ACL', 'SETUSER', 'blind', 'on', '>password-of-blind', '~*', '+@acquire')
        with node.client() as c:
            c.call('AUTH', 'blind', 'password-of-blind')
            self.refused(c, 'SET', 'a', 'you', 'NX', 'GET', 'PX', TTL, text='@see', word='NOPERM')
            self.assertIsNone(c.call('SET', 'b', 'you', 'NX', 'GET', 'PX', TTL))
            self.assertEqual(c.call('SET', 'b', 'you', 'NX', 'GET', 'PX', TTL), b'you')  # its own

    def test_which_keys_and_what_else_is_a_form(self):
        path = self.lab.path('aliases')
        script = "local mine = redis.call('get', KEYS[1]) return mine == ARGV[1] and redis.call('del', KEYS[1]) or 0"
        with open(path, 'w', encoding='utf-8') as f:
            f.write('# ours\n%s = release\n' % hashlib.sha1(script.encode()).hexdigest())
        node = Cluster(self.lab, 1, ('--front-door', 'job:*', '--front-door-aliases', path)).start().nodes[0]
        self.assertEqual(node.call('SET', 'job:1', 'me', 'NX', 'PX', TTL), 'OK')
        self.refused(node, 'SET', 'x', 'me', 'NX', text='--front-door')
        self.assertEqual(node.call('EVAL', script, 1, 'job:1', 'me'), 1)
        self.assertEqual(node.call('SCRIPT', 'EXISTS', hashlib.sha1(script.encode()).hexdigest()), [1])

    def test_a_wrong_file_of_aliases_is_named(self):
        path = self.lab.path('aliases')
        with open(path, 'w', encoding='utf-8') as f:
            f.write('\n%s = relase\n' % ('a' * 40))
        for argv in ((), ('--check',)):
            p = subprocess.run([binary('fencelockd'), '--data', self.lab.path('data'), '--listen', '127.0.0.1:0',
                                '--front-door-aliases', path, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               timeout=PATIENCE_S, check=False)
            self.assertNotEqual(p.returncode, 0)
            self.assertIn(b'line 2: there is no such form; there are: release,', p.stdout)

    def test_clients_that_look_for_a_master_through_sentinels(self):
        import redis
        from redis.sentinel import Sentinel
        cluster = self.three()
        leader = cluster.leader()
        others = cluster.followers()
        finder = Sentinel([tuple(a.split(':')) for a in cluster.addresses()], socket_timeout=PATIENCE_S)
        at = lambda node: ('127.0.0.1', int(node.address.split(':')[1]))

        def found():
            try:
                return finder.discover_master('mymaster') == at(cluster.leader())
            except redis.exceptions.ConnectionError:
                return False  # no node knows one
        wait_until(found, what='the master')
        self.assertEqual(finder.discover_slaves('mymaster'), [])
        master = finder.master_for('mymaster', socket_timeout=PATIENCE_S)
        self.assertTrue(master.set('x', 'me', nx=True, px=TTL))
        host, port = at(leader)
        for node in cluster.nodes:
            # Where clients find a node it tells the others once a second.
            wait_until(lambda: node.call('SENTINEL', 'get-master-addr-by-name', 'any') == [host.encode(), b'%d' % port], what='the address')
            wait_until(lambda: len(node.call('SENTINEL', 'SENTINELS', 'any')) == 2, what='the others')
            with node.client() as c:
                c.call('HELLO', 3)
                self.assertEqual(c.call('SENTINEL', 'MASTER', 'any')[b'flags'], b'master')
                self.assertEqual(c.call('SENTINEL', 'MASTERS')[0][b'num-other-sentinels'], b'2')
        leader.kill()
        wait_until(found, what='the new master')

        def still_held():
            try:
                return master.get('x') == b'me'
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
                return False  # the first use of the old connection
        wait_until(still_held, what='the lock at the new master')
        self.refused(others[0], 'SENTINEL', 'FAILOVER', 'any', text='there are: GET-MASTER-ADDR-BY-NAME')

    def test_switched_off(self):
        node = Cluster(self.lab, 1, ('--front-door', 'no')).start().nodes[0]
        for command in (('SET', 'x', 'me', 'NX'), ('GET', 'x'), ('EVAL', 'return 1', 1, 'x'), ('SCRIPT', 'EXISTS', 'x'),
                        ('SENTINEL', 'MASTERS')):
            self.refused(node, *command, text='--front-door no')


VALUE = 'a-value-of-a-library'
KNOWN_S = 4  # a release is known for 5 s; what takes longer is tried again


class Several(Nodes):
    """The nodes, given to a library as if they were several servers."""

    def test_a_set_that_is_sent_again_is_answered_alike_at_each_node(self):
        """As Redis does: nil, since another client may have the same value. Who asks for the value or the token hears that it holds."""
        nodes = self.three().nodes
        self.assertEqual(nodes[0].call('SET', 'x', VALUE, 'NX', 'PX', TTL), 'OK')
        token = nodes[0].call('LOCKTOKEN', 'x', VALUE)
        for node in nodes[1:] + nodes:
            self.assertIsNone(node.call('SET', 'x', VALUE, 'NX', 'PX', TTL))
            self.assertEqual(node.call('GET', 'x'), VALUE.encode())
            self.assertEqual(node.call('LOCKTOKEN', 'x', VALUE), token)
        self.assertEqual(nodes[0].call('DELIFEQ', 'x', VALUE), 1)
        self.assertEqual(nodes[1].call('DELIFEQ', 'x', VALUE), 0)

    def test_many_renewals_are_told_alike_by_each_node(self):
        """A follower tells what its leader says of each of them."""
        nodes, text = self.three().nodes, form_texts()['renew-each']
        keys = ['each-%d' % i for i in range(120)]
        for key in keys:
            self.assertEqual(nodes[0].call('SET', key, VALUE, 'NX', 'PX', TTL), 'OK')
        for node in nodes:
            owners = [VALUE if i % 7 else VALUE + '-of-another' for i in range(len(keys))]
            self.assertEqual(node.call('EVAL', text, len(keys), *keys, TTL, *owners), [1 if i % 7 else 0 for i in range(len(keys))])

    def test_shared_equal_values_are_one(self):
        a, b, c = self.three('--front-door-shared', 'yes').nodes
        release = form_texts()['release']
        for node in (a, b, c):
            self.assertEqual(node.call('SET', 'x', VALUE, 'NX', 'PX', TTL), 'OK')
            self.assertIsNone(node.call('SET', 'x', VALUE + '-of-another', 'NX', 'PX', TTL))
        token = a.call('LOCKTOKEN', 'x', VALUE)
        self.assertEqual([n.call('LOCKTOKEN', 'x', VALUE) for n in (b, c)], [token, token])

        def released():
            """Another takes it meanwhile: the first one's late release says 1 and does nothing."""
            a.call('EVAL', release, 1, 'x', VALUE + '-of-another')
            self.assertEqual(a.call('SET', 'x', VALUE, 'NX', 'PX', TTL), 'OK')
            began = time.monotonic()
            answers = [node.call('EVAL', release, 1, 'x', VALUE) for node in (b, c, a)]
            answers += [a.call('EVAL', release, 1, 'x', VALUE + '-of-another'), b.call('SET', 'x', VALUE + '-of-another', 'NX', 'PX', TTL),
                        c.call('EVAL', release, 1, 'x', VALUE)]
            return answers if time.monotonic() - began < KNOWN_S else None
        self.assertEqual(try_again(released, what='all in time'), [1, 1, 1, 0, 'OK', 1])
        self.assertEqual(a.call('GET', 'x'), (VALUE + '-of-another').encode())
        self.assertGreater(a.call('LOCKTOKEN', 'x', VALUE + '-of-another'), token)
        # Several keys, and a leader that is exchanged between two of the answers.
        texts = form_texts()
        cluster_keys = ('k1', 'k2')

        def released_each():
            for node in (a, b, c):
                self.assertEqual(node.call('EVAL', texts['set-all'], 2, *cluster_keys, VALUE, TTL), 2)
            began = time.monotonic()
            answers = [node.call('EVAL', texts['release-each'], 2, *cluster_keys, VALUE) for node in (a, b, c)]
            return answers if time.monotonic() - began < KNOWN_S else None
        self.assertEqual(try_again(released_each, what='each in time'), [2, 2, 2])

    def test_shared_through_a_change_of_leader(self):
        cluster = self.three('--front-door-shared', 'yes')

        def released():
            """The new leader has seen the release in its own log, and the clock of leases stood still without one."""
            leader, (a, b) = cluster.leader(), cluster.followers()
            self.assertEqual(a.call('SET', 'x', VALUE, 'NX', 'PX', TTL), 'OK')
            began = time.monotonic()
            self.assertEqual(a.call('DELIFEQ', 'x', VALUE), 1)
            leader.kill()
            answer = b.call('DELIFEQ', 'x', VALUE, timeout=PATIENCE_S)
            if time.monotonic() - began < KNOWN_S:
                return [answer]
            leader.start()
            cluster.wait_serving(leader)
            return None
        self.assertEqual(try_again(released, what='a release that is known in time'), [1])


class Check(Case):
    """fencelock frontdoor check, at a Redis that locks are taken on."""

    def run_check(self, redis, *more):
        return subprocess.Popen([binary('fencelock'), 'frontdoor', 'check', '--redis', redis.address, *more],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=patient_env())

    def watched(self, redis):
        """Whether somebody watches."""
        return b'cmd=monitor' in redis.call('CLIENT', 'LIST')

    def test_what_is_seen_is_judged(self):
        redis = Redis(self.lab, 'redis')
        texts = form_texts()
        p = self.run_check(redis, '--duration', '10m', '--json', '--match', 'lock:*')
        wait_until(lambda: self.watched(redis), what='MONITOR')
        with Resp(redis.address) as c:
            for i in range(3):
                c.call('SET', 'lock:%d' % i, 'me\r\n\xff', 'NX', 'PX', TTL)
            c.call('EVAL', texts['release'], 1, 'lock:0', 'me')
            answer(c, 'EVALSHA', 'b' * 40, 1, 'lock:0', 'me')
            c.call('EVAL', 'return 1', 1, 'lock:1')
            c.call('DEL', 'lock:1')
            c.call('HSET', 'lock:h', 'f', 'v')
            c.call('SET', 'other', 'not looked at')
        p.send_signal(signal.SIGINT)  # what was on its way is still read
        out, err = p.communicate(timeout=PATIENCE_S)
        self.assertEqual((p.returncode, err), (1, ''))
        said = json.loads(out)
        self.assertEqual((said['seen'], said['served'], said['broken']), (8, 4, 0))
        found = {c['command']: c for c in said['commands']}
        self.assertEqual((found['SET']['times'], found['SET']['served']), (3, True))
        self.assertTrue(found['script release']['served'])
        self.assertEqual([found[name]['holds'] for name in ('SET', 'script release')], [True, True])
        self.assertIn("another holder's: stays as it is (:0); its own: given back (:1)", found['script release']['saw'])
        self.assertIn('its text was not seen', found['script ' + 'b' * 40]['why'])
        self.assertIn('is none of those', found['script ' + hashlib.sha1(b'return 1').hexdigest()]['why'])
        self.assertIn('does not say whose', found['DEL']['why'])
        self.assertIn('unknown command', found['HSET']['why'])

    def test_an_alias_that_holds_no_promise_is_found(self):
        """The operator has named a script that prolongs a lease as one that gives the lock back."""
        redis = Redis(self.lab, 'redis')
        path = self.lab.path('aliases')
        for change, code in (("'pexpire', KEYS[1], 60000", 1), ("'del', KEYS[1]", 0)):
            script = "local own = redis.call('get', KEYS[1]) == ARGV[1] if own then redis.call(%s) end return own and 1 or 0" % change
            with open(path, 'w') as f:
                f.write('%s = release\n' % hashlib.sha1(script.encode()).hexdigest())
            wait_until(lambda: not self.watched(redis), what='the end of the former MONITOR')
            p = self.run_check(redis, '--duration', '10m', '--json', '--front-door-aliases', path)
            wait_until(lambda: self.watched(redis), what='MONITOR')
            redis.call('EVAL', script, 1, 'lock:1', 'nobody')
            redis.call('PING')  # what came before it is on its way to who watches
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=PATIENCE_S)
            self.assertEqual((p.returncode, err), (code, ''), out)
            said = json.loads(out)
            (found,) = (c for c in said['commands'] if c['command'] != 'PING')
            self.assertEqual((said['broken'], found['served'], found['holds']), (code, True, code == 0))
            self.assertEqual(found['why'], 'its own: it is given back, though nothing in the request does that' if code else '')
        p = self.run_check(redis, '--front-door-aliases', self.lab.path('none'))
        self.assertIn('--front-door-aliases: cannot read', p.communicate(timeout=PATIENCE_S)[1])
        self.assertEqual(p.returncode, 2)

    def test_what_has_no_key_is_counted_beside_a_match(self):
        """A transaction will be refused, and begins with a command of no key."""
        redis = Redis(self.lab, 'redis')
        p = self.run_check(redis, '--duration', '10m', '--json', '--match', 'lock:*')
        wait_until(lambda: self.watched(redis), what='MONITOR')
        with Resp(redis.address) as c:
            c.call('MULTI')
            c.call('SET', 'lock:0', 'me', 'NX', 'PX', TTL)
            c.call('EXEC')
            c.call('SET', 'other', 'not looked at')
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=PATIENCE_S)
        said = json.loads(out)
        found = {c['command']: c for c in said['commands']}
        self.assertEqual((found['MULTI']['served'], found['EXEC']['served'], found['SET']['times']), (False, False, 1))
        self.assertEqual((p.returncode, said['keyless']), (1, said['seen'] - 1))
        self.assertIn('no key', err)

    def test_all_served_and_nothing_seen(self):
        redis = Redis(self.lab, 'redis')
        p = self.run_check(redis, '--duration', '10m')
        wait_until(lambda: self.watched(redis), what='MONITOR')
        for _ in range(2):  # at the second one, the first one is on its way to who watches
            redis.call('PING')
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=PATIENCE_S)
        self.assertEqual(p.returncode, 0, out)
        self.assertIn('PING', out)
        self.assertNotIn('\x1b', out)
        p = self.run_check(redis, '--duration', '100ms', '--match', 'none')
        self.assertIn('nothing was sent', p.communicate(timeout=PATIENCE_S)[0])
        self.assertEqual(p.returncode, 1)

    def test_it_cannot_be_watched(self):
        redis = Redis(self.lab, 'redis', '--requirepass', 'secret')
        p = self.run_check(redis, '--duration', '1s')
        self.assertIn('NOAUTH', p.communicate(timeout=PATIENCE_S)[1])
        self.assertEqual(p.returncode, 3)
        p = subprocess.run([binary('fencelock'), 'frontdoor', 'check', '--redis', redis.address, '--duration', '100ms'],
                           env=patient_env(FENCELOCK_REDIS_PASSWORD='secret'), stdout=subprocess.PIPE, timeout=PATIENCE_S,
                           check=False)
        self.assertIn(b'nothing was sent', p.stdout)
        p = subprocess.run([binary('fencelock'), 'frontdoor', 'check', '--redis', 'a:1,b:2'], stderr=subprocess.PIPE,
                           timeout=PATIENCE_S, check=False)
        self.assertEqual(p.returncode, 2)


if __name__ == '__main__':
    main()
