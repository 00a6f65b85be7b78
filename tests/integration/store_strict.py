#!/usr/bin/python3
"""fencelock-store in strict mode: it asks the lock service about every token before it looks at the mark, does
nothing when the token is not held, and nothing when the lock service does not say so in time."""

import contextlib
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, RespError, Store, binary, free_ports, main, try_again, wait_until
from scripted_server import CLOSE, HANG, RESET, ScriptedServer

OWNER = 'owner-a-0123456789'
PATIENT = '60000' # the longest time for an answer of the lock service, for tests that want its answer
YES, NO = b':1\r\n', b':0\r\n'
WINDOW = 64 # questions under way at most


class StrictCase(Case):
    def store(self, nodes, timeout_ms=PATIENT):
        store = Store(self.lab)
        store.start('--strict', ','.join(nodes), '--strict-timeout', str(timeout_ms))
        return store

    def words(self, client, requests):
        """What each of a pipeline's requests was answered; the word alone of errors."""
        return [self.word(r) for r in client.pipeline(requests)]

    @staticmethod
    def word(answer):
        return answer.word if isinstance(answer, RespError) else answer

    def answer(self, client, *request):
        try:
            return client.call(*request)
        except RespError as e:
            return e.word

    def until_accepted(self, client, *request):
        """A short time for an answer may be over before a slow lock service gives it."""
        wait_until(lambda: self.answer(client, *request) == 'OK', 'acceptance')

    def numbers(self, store):
        info = store.info()
        return tuple(info['strict_' + name] for name in ('checks', 'refused', 'unreachable'))


class OneNode(StrictCase):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 1).start()
        self.node = self.cluster.nodes[0]

    def acquire(self, name, ttl=600000):
        return self.node.call('ACQUIRE', name, 'TTL', ttl, 'OWNER', OWNER)

    def test_a_held_token_does_everything(self):
        store = self.store([self.node.address])
        token = self.acquire('x')
        with store.client() as c:
            self.assertEqual(c.call('CLAIM', 'x', token), 'OK')
            self.assertEqual(c.call('SET', 'k', 'v', 'FENCE', 'x', token), 'OK')
            self.assertEqual(c.call('GET', 'k', 'FENCE', 'x', token), b'v')
            self.assertEqual(c.call('DEL', 'k', 'FENCE', 'x', token), 1)
            self.assertEqual(self.numbers(store), (4, 0, 0))
            # Without a token there is nothing to ask.
            self.assertIsNone(c.call('GET', 'k'))
            self.assertEqual(c.call('MARK', 'x'), token)
            self.assertError('NOTOKEN', c, 'SET', 'k', 'w')
        self.assertEqual(self.numbers(store), (4, 0, 0))
        self.assertEqual(store.info()['strict'], 'on')
        plain = Store(self.lab, 'plain').start()
        self.assertEqual(plain.info()['strict'], 'off')

    def test_any_name_and_the_largest_token(self):
        name = bytes(range(255))
        store = self.store([self.node.address])
        token = self.acquire(name)
        with store.client() as c:
            self.assertEqual(c.call('CLAIM', name, token), 'OK')
            self.assertError('NOTHELD', c, 'CLAIM', name, 2 ** 53 - 1)
            self.assertError('ERR', c, 'CLAIM', name, 2 ** 53)
            self.assertEqual(c.call('MARK', name), token)

    def test_what_is_not_held_is_refused(self):
        """Never granted, issued for Redlock, released, broken, expired: nothing is done, no mark is raised."""
        store = self.store([self.node.address])
        good = self.acquire('guard')
        tokens = {}
        with store.client() as c:
            self.assertEqual(c.call('SET', 'k', 'v', 'FENCE', 'guard', good), 'OK')
            tokens['invented'] = 1000000
            tokens['redlock'] = self.node.call('TOKEN', 'redlock')
            for name in ('released', 'broken', 'expired'):
                tokens[name] = self.acquire(name, 300 if name == 'expired' else 600000)
            for name in ('released', 'broken'):
                self.assertEqual(c.call('CLAIM', name, tokens[name]), 'OK')
            self.assertEqual(self.node.call('RELEASE', 'released', tokens['released']), 1)
            self.assertGreater(self.node.call('BREAK', 'broken'), tokens['broken'])
            wait_until(lambda: self.node.call('CHECK', 'expired', tokens['expired']) == 0, 'expiry')
            for name, token in tokens.items():
                mark = c.call('MARK', name)
                for request in (('CLAIM', name, token), ('SET', 'n', 'v', 'FENCE', name, token),
                                ('GET', 'k', 'FENCE', name, token), ('DEL', 'k', 'FENCE', name, token)):
                    text = self.assertError('NOTHELD', c, *request)
                    self.assertEqual(text.split(';')[0], "token %d no longer holds lock '%s'" % (token, name))
                self.assertEqual(c.call('MARK', name), mark)
            self.assertIsNone(c.call('GET', 'n'))
            self.assertEqual(c.call('GET', 'k'), b'v')
        checks, refused, unreachable = self.numbers(store)
        self.assertEqual((checks, refused, unreachable), (23, 20, 0))

    def test_the_mark_still_rules(self):
        """A token that is held and below the mark is stale: the lock service may have lost its past."""
        token = self.acquire('x')
        store = Store(self.lab).start()
        store.call('CLAIM', 'x', token + 5)
        self.assertEqual(store.terminate(), 0)
        store.start('--strict', self.node.address, '--strict-timeout', PATIENT)
        with store.client() as c:
            self.assertError('STALE', c, 'SET', 'k', 'v', 'FENCE', 'x', token)
            self.assertEqual(c.call('MARK', 'x'), token + 5)

    def test_the_service_goes_and_comes_back(self):
        store = self.store([self.node.address], 400)
        token = self.acquire('x')
        with store.client() as c:
            self.until_accepted(c, 'SET', 'k', 'v', 'FENCE', 'x', token)
            for _ in range(2):
                self.node.kill()
                for _ in range(3):
                    text = self.assertError('UNCHECKED', c, 'SET', 'k', 'w', 'FENCE', 'x', token)
                    self.assertIn('400 ms', text)
                self.assertError('UNCHECKED', c, 'CLAIM', 'x', token + 1)
                self.assertEqual(c.call('GET', 'k'), b'v')
                self.assertEqual(c.call('MARK', 'x'), token)
                self.node.start()
                self.until_accepted(c, 'SET', 'k', 'v', 'FENCE', 'x', token)
        store.process.wait_output('does not answer')
        store.process.wait_output('answers again')

    def test_started_before_the_service(self):
        port = free_ports(1)[0]
        store = self.store(['127.0.0.1:%d' % port], 200)
        with store.client() as c:
            self.assertError('UNCHECKED', c, 'CLAIM', 'x', 1)
            self.assertError('UNCHECKED', c, 'CLAIM', 'x', 1)
        self.assertEqual(store.call('MARK', 'x'), 0)

    def test_pipelines_are_answered_in_order(self):
        store = self.store([self.node.address])
        a, b = self.acquire('a'), self.acquire('b')
        requests, want = [], []
        for i in range(3000): # more than one connection's window
            requests += [('SET', 'k%d' % (i % 7), 'v%d' % i, 'FENCE', 'a', a), ('GET', 'k%d' % (i % 7)),
                         ('SET', 'k%d' % (i % 7), 'late', 'FENCE', 'a', b), ('MARK', 'a'),
                         ('GET', 'k%d' % (i % 7), 'FENCE', 'a', a)]
            want += ['OK', b'v%d' % i, 'NOTHELD', a, b'v%d' % i]
        with store.client(timeout=PATIENCE_S) as c:
            self.assertEqual(self.words(c, requests), want)
        results = [None] * 4

        def one(i):
            with store.client(timeout=PATIENCE_S) as c:
                mine = [('SET', 'c%d' % i, n, 'FENCE', 'b', b) if n % 2 else ('GET', 'c%d' % i) for n in range(1, 2001)]
                results[i] = self.words(c, mine)
        threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(PATIENCE_S)
        want = ['OK' if n % 2 else b'%d' % (n - 1) for n in range(1, 2001)]
        self.assertEqual(results, [want] * 4)
        self.assertEqual(self.numbers(store)[2], 0)


class ThreeNodes(StrictCase):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 3).start()

    def acquire(self, name):
        """Asks again where an election is in the way."""
        return wait_until(lambda: self.cluster.nodes[0].call('ACQUIRE', name, 'TTL', 600000, 'OWNER', OWNER), 'the lock ' + name)

    def test_any_node_may_be_asked_and_one_is_enough(self):
        token = self.acquire('x')
        dead = '127.0.0.1:%d' % free_ports(1)[0]
        for node in self.cluster.nodes:
            store = Store(self.lab, 'store%d' % node.id)
            store.start('--strict', '%s,%s' % (dead, node.address), '--strict-timeout', PATIENT)
            self.assertEqual(store.call('SET', 'k', 'v', 'FENCE', 'x', token), 'OK')

    def test_the_leader_is_killed_and_paused(self):
        """In the middle of load: what is held comes to be accepted again, what is not held never is."""
        store = self.store(self.cluster.addresses(), 1000)
        token, old = self.acquire('x'), self.acquire('gone')
        wait_until(lambda: self.cluster.nodes[0].call('RELEASE', 'gone', old) in (0, 1), 'the release') # 0: an earlier request did it
        stop = threading.Event()
        good, bad = [], []

        def load():
            n = 0
            with store.client(timeout=PATIENCE_S) as c:
                while not stop.is_set():
                    n += 1
                    good.append(self.answer(c, 'SET', 'k', n, 'FENCE', 'x', token))
                    bad.append(self.answer(c, 'SET', 'g', n, 'FENCE', 'gone', old))
        thread = threading.Thread(target=load, daemon=True)
        thread.start()
        try:
            def more():
                begin = len(good)
                wait_until(lambda: good[begin + 1:].count('OK') > 20, 'accepted writes')
            more()
            leader = self.cluster.leader()
            leader.kill()
            more()
            leader.start()
            leader = self.cluster.leader()
            leader.pause()
            more()
            leader.resume()
            more()
        finally:
            stop.set()
            thread.join(PATIENCE_S)
        self.note('%d accepted, %d unchecked' % (good.count('OK'), good.count('UNCHECKED')))
        self.assertLessEqual(set(good), {'OK', 'UNCHECKED'})
        self.assertLessEqual(set(bad), {'NOTHELD', 'UNCHECKED'})
        self.assertIsNone(store.call('GET', 'g'))

    def test_no_majority(self):
        store = self.store(self.cluster.addresses(), 600)
        token = self.acquire('x')
        with store.client(timeout=PATIENCE_S) as c:
            self.until_accepted(c, 'SET', 'k', 'v', 'FENCE', 'x', token)
            for node in self.cluster.nodes[:2]:
                node.kill()
            for _ in range(4):
                self.assertError('UNCHECKED', c, 'SET', 'k', 'w', 'FENCE', 'x', token)
            self.cluster.nodes[0].start()
            self.until_accepted(c, 'SET', 'k', 'w', 'FENCE', 'x', token)


class Misbehaving(StrictCase):
    @staticmethod
    def reset(client):
        """A plain close would look like a client that still reads."""
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        client.close()

    def until_asked(self, server, client, *request):
        """All answers to the client up to the first of which the server was asked: the time of one may be over before it is asked about."""
        answers = set()
        wait_until(lambda: answers.add(self.answer(client, *request)) or server.requests, 'a question')
        return answers

    def test_only_a_one_is_a_yes(self):
        for step in (b'+OK\r\n', b'$1\r\n1\r\n', b':2\r\n', b':-1\r\n', b':11\r\n', b':1 \r\n', b'*1\r\n:1\r\n', b'_\r\n',
                     b'-NOLEADER nobody leads\r\n', b'-ERR unknown command\r\n', b'\r\n', b':\r\n', b'#t\r\n',
                     b'x' * 10000, (b':1', HANG), (b':1', CLOSE), CLOSE, RESET, HANG):
            with ScriptedServer([step]) as server:
                store = self.store([server.address], 120)
                with store.client() as c:
                    self.assertEqual(self.until_asked(server, c, 'SET', 'k', 'v', 'FENCE', 'x', 5), {'UNCHECKED'})
                    self.assertEqual(c.call('MARK', 'x'), 0)
                self.assertEqual(server.requests[0], [b'CHECK', b'x', b'5'])
                store.kill()

    def test_the_next_node_is_asked(self):
        for step in (b'-NOLEADER nobody leads\r\n', b'rubbish\r\n', (b':', CLOSE), CLOSE, RESET):
            self.assertEqual(self.of_two(step, PATIENT)[1:], (['OK'] * 100, 100, (100, 0, 0)))

        def second_answers():
            """Half of the time is for each of two nodes, and a slow one may need more than its half."""
            _, words, asked, numbers = self.of_two(HANG, 1000)
            unchecked = words.count('UNCHECKED')
            self.assertEqual(words.count('OK') + unchecked, 100, words)
            self.assertEqual(numbers, (100, 0, unchecked))
            self.assertGreaterEqual(asked, words.count('OK'))
            if unchecked:
                return False
            self.assertEqual(asked, 100)
            return True
        try_again(second_answers, 'answers of the second node within half a second')

    def of_two(self, step, timeout_ms):
        """Whether the first was asked, what clients were answered, what the second was asked, and how the storage counts it."""
        with ScriptedServer([step]) as first, ScriptedServer([YES]) as second:
            store = self.store([first.address, second.address], timeout_ms)
            with store.client() as c:
                words = self.words(c, [('SET', 'k', i, 'FENCE', 'x', 5) for i in range(100)])
            found = len(first.requests) > 0, words, len(second.requests), self.numbers(store)
            store.kill()
            return found

    def test_answers_that_were_not_asked_for(self):
        """One answer too many must not count for a later question."""
        with ScriptedServer([YES + YES, NO]) as server: # in one piece: a second that came later might be in time for the next question
            store = self.store([server.address])
            with store.client() as c:
                self.assertEqual(c.call('CLAIM', 'x', 5), 'OK')
                self.assertIn(self.answer(c, 'CLAIM', 'x', 6), ('NOTHELD', 'UNCHECKED'))
                self.assertEqual(c.call('MARK', 'x'), 5)

    def test_a_late_yes_is_not_taken_for_the_next_answer(self):
        release = threading.Event()

        def late(request):
            return NO if request[2] != b'5' or not release.wait(PATIENCE_S) else YES
        with ScriptedServer([late]) as server:
            store = self.store([server.address], 150)
            with store.client() as c:
                self.assertEqual(self.until_asked(server, c, 'CLAIM', 'x', 5), {'UNCHECKED'})
                c.send('CLAIM', 'x', 6)
                release.set()
                self.assertIn(c.read().word, ('NOTHELD', 'UNCHECKED'))
                self.assertEqual(c.call('MARK', 'x'), 0)

    def test_a_late_yes_of_a_node_that_answers_others(self):
        """It has just answered one question, so it is not given up for silence when the next one's time is up."""
        first, second = threading.Event(), threading.Event()
        yes_after = {b'5': first, b'6': second}

        def step(request):
            event = yes_after.get(request[2])
            return YES if event and event.wait(PATIENCE_S) else NO
        with ScriptedServer([step]) as server:
            store = self.store([server.address], 1000)
            with store.client() as c:
                c.send('CLAIM', 'x', 5)
                c.send('CLAIM', 'x', 6)
                time.sleep(0.7) # most of the time allowed, so that the node's own time begins again late
                first.set()
                self.assertIn(self.word(c.read()), ('OK', 'UNCHECKED'))
                self.assertEqual(self.word(c.read()), 'UNCHECKED')
                c.send('CLAIM', 'x', 7)
                wait_until(lambda: self.numbers(store)[0] == 3, 'the third question')
                second.set()
                self.assertIn(self.word(c.read()), ('NOTHELD', 'UNCHECKED'))
                self.assertLess(c.call('MARK', 'x'), 6)

    def test_no_more_questions_than_the_window(self):
        """Each client has one question open; more than the window of them wait."""
        with ScriptedServer([HANG]) as server, contextlib.ExitStack() as stack:
            store = self.store([server.address])
            clients = [stack.enter_context(store.client(240)) for _ in range(WINDOW + 16)]
            for i, c in enumerate(clients):
                c.send('CLAIM', 'lock-%d' % i, i + 1)

            def asked():
                return sum(r[0] == b'CHECK' for r in server.requests)
            wait_until(lambda: self.numbers(store)[0] == WINDOW + 16, 'the questions')
            wait_until(lambda: asked() == WINDOW, 'a full window')
            for _ in range(20): # turns of the store's loop in which they could leave
                store.info()
            self.assertEqual(asked(), WINDOW)
            server.script[0] = YES # for the next connection
            server.open[0].shutdown(socket.SHUT_RDWR)
            for c in clients:
                self.assertEqual(self.word(c.read()), 'OK')
            self.assertEqual(store.call('MARK', 'lock-0'), 1)

    def test_a_yes_that_waited_while_the_store_was_paused(self):
        """The lease may have ended since: an answer is good for the time allowed and no longer."""
        asked, paused = queue.Queue(), threading.Event()

        def meanwhile(request):
            asked.put(request[2])
            paused.wait(PATIENCE_S)
            return YES

        def is_asked(token):
            try:
                return asked.get(timeout=2.5) == b'%d' % token or is_asked(token)
            except queue.Empty:
                return False
        with ScriptedServer([meanwhile]) as server:
            store = self.store([server.address], 2000)
            with store.client() as c:
                token = 5
                c.send('CLAIM', 'x', token)
                while not is_asked(token): # its time was over before the store came to ask
                    self.assertEqual(self.word(c.read()), 'UNCHECKED')
                    token += 1
                    self.assertLess(token, 100)
                    c.send('CLAIM', 'x', token)
                store.pause()
                wait_until(lambda: store.process.state() == 'T', 'the pause')
                paused.set()
                time.sleep(2.5) # the pause itself: longer than the time allowed
                store.resume()
                self.assertEqual(self.word(c.read()), 'UNCHECKED')
                self.assertEqual(c.call('MARK', 'x'), 0)
                self.until_accepted(c, 'CLAIM', 'x', token)

    def test_silence_stalls_nobody_else(self):
        with ScriptedServer([HANG]) as server:
            store = self.store([server.address], 3000)
            with store.client() as slow, store.client() as c:
                began = time.monotonic()
                slow.send('CLAIM', 'x', 5)
                slow.send('MARK', 'x')
                slow.send('PING')
                wait_until(lambda: self.numbers(store)[0] == 1, 'the question')
                for _ in range(50):
                    self.assertIsNone(c.call('GET', 'k'))
                    self.assertEqual(c.call('MARK', 'x'), 0)
                    self.assertEqual(self.answer(c, 'SET', 'k', 'v'), 'NOTOKEN')
                undecided = self.numbers(store)[2] == 0
                self.assertTrue(undecided or time.monotonic() - began > 2.9, 'it waited less than it was allowed to')
                self.assertEqual(slow.read().word, 'UNCHECKED')
                self.assertEqual(slow.read(), 0)
                self.assertEqual(slow.read(), 'PONG')

    def test_clients_that_leave_and_a_stop(self):
        """What was asked for clients that have gone is decided all the same; SIGTERM does not wait for ever."""
        go = threading.Event()

        def wait(_):
            go.wait(PATIENCE_S)
            return YES
        with ScriptedServer([wait, YES]) as server:
            store = self.store([server.address])
            for i in range(20):
                with store.client() as c:
                    c.send('SET', 'k', i, 'FENCE', 'x', 5)
                    c.send('GET', 'k')
                    wait_until(lambda: self.numbers(store)[0] == i + 1, 'the question') # pylint: disable=W0640
                    self.reset(c)
            self.assertEqual(store.info()['held_ops'], 20)
            go.set()
            wait_until(lambda: store.call('GET', 'k') == b'19', 'what they had asked for')
        with ScriptedServer([HANG]) as server:
            store = Store(self.lab, 'other')
            store.start('--strict', server.address, '--strict-timeout', '60000')
            with store.client() as c, store.client() as gone:
                c.send('CLAIM', 'x', 5)
                c.send('SET', 'k', 'v', 'FENCE', 'x', 5)
                gone.send('CLAIM', 'x', 5)
                wait_until(lambda: self.numbers(store)[0] == 2, 'the questions')
                self.reset(gone)
                self.assertEqual(store.terminate(), 0)
            store.start()
            self.assertEqual(store.call('MARK', 'x'), 0)


class Options(StrictCase):
    def run_store(self, *args, **env):
        return subprocess.run([binary('fencelock-store'), *args], capture_output=True, text=True, timeout=PATIENCE_S,
                              cwd=self.lab.dir, env=dict(os.environ, **env), check=False)

    def test_usage_errors(self):
        good = '127.0.0.1:7401'
        many = ','.join('127.0.0.1:%d' % (7401 + i) for i in range(17))
        for args, env, word in ((['--strict', ''], {}, '--strict'), (['--strict', 'nonsense'], {}, '--strict'),
                                (['--strict', good + ','], {}, '--strict'), (['--strict', good + ',,' + good], {}, '--strict'),
                                (['--strict', '127.0.0.1:0'], {}, '--strict'), (['--strict', many], {}, '16'),
                                (['--strict', 'h' * 5000 + ':1'], {}, '--strict'),
                                (['--strict', good, '--strict-timeout', '9'], {}, '--strict-timeout'),
                                (['--strict', good, '--strict-timeout', '60001'], {}, '--strict-timeout'),
                                (['--strict', good, '--strict-timeout', '1s'], {}, '--strict-timeout'),
                                ([], {'FENCELOCK_STORE_STRICT': 'x'}, 'FENCELOCK_STORE_STRICT'),
                                ([], {'FENCELOCK_STORE_STRICT_TIMEOUT': '0'}, 'FENCELOCK_STORE_STRICT_TIMEOUT')):
            done = self.run_store(*args, **env)
            self.assertEqual(done.returncode, 2, (args, env, done.stderr))
            self.assertIn(word, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_help_and_environment(self):
        text = self.run_store('--help').stdout
        for word in ('--strict HOST:PORT', '--strict-timeout', 'Redlock', '_STRICT'):
            self.assertIn(word, text)
        with ScriptedServer([NO]) as server:
            process = self.lab.start([binary('fencelock-store')], 'env', cwd=self.lab.dir, env={
                'FENCELOCK_STORE_LISTEN': '127.0.0.1:0', 'FENCELOCK_STORE_DATA': 'there',
                'FENCELOCK_STORE_STRICT': server.address, 'FENCELOCK_STORE_STRICT_TIMEOUT': '60000'})
            process.wait_output('ready: listening on 127.0.0.1:')
            port = int(process.output().split('ready: listening on 127.0.0.1:')[1].split()[0])
            store = Store(self.lab, 'there', port=port)
            with store.client() as c:
                self.assertError('NOTHELD', c, 'CLAIM', 'x', 5)


if __name__ == '__main__':
    main()
