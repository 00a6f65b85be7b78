#!/usr/bin/python3
"""`fencelock run` on real nodes: the command's environment, status, signals, terminal and place in the queue; and
above all its end when the lock is lost, with a network that falls silent, judged by a second client that
waits for the same lock on a way of its own."""

import os
import pty
import random
import select
import signal
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Deadline, Lateness, RespError, Retries, binary, env_without_options, main, seed, try_again, wait_until
from silent_proxy import SilentClusterCase

LOST, NOT_ACQUIRED, FAILED, CANNOT, NOT_FOUND = 123, 124, 125, 126, 127
OWNER = 'owner-a-0123456789'

# Ignores TERM, starts a child that does too, and both write the time down without end.
HEARTBEAT = '''
import os, signal, struct, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
me = 'child' if os.fork() == 0 else 'command'
fd = os.open(sys.argv[1] + '.' + me, os.O_CREAT | os.O_WRONLY, 0o600)
while True:
    os.pwrite(fd, struct.pack('d', time.monotonic()), 0)
    time.sleep(0.0005)
'''


class RunCase(SilentClusterCase):
    NODES = 3

    def setUp(self):
        super().setUp()
        self.env = env_without_options(FENCELOCK_NODES=self.nodes, FENCELOCK_TIMEOUT='120s')

    def start(self, *args, **options):
        """With a lease that no machine outlasts, if none is given."""
        options.setdefault('stdin', subprocess.DEVNULL)
        lease = () if '--ttl' in args else ('--ttl', '10m')
        child = subprocess.Popen([binary('fencelock'), 'run', *lease, *map(str, args)], env=self.env, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, **options)
        return self.kill_at_cleanup(child)

    def started(self, text, *args, ttls=(6, 30, 120), **options):
        """A command that has printed this, and what else it has printed. A busy machine may outlast its lease before that: then
        one with a longer lease is started."""
        for ttl in ttls:
            child = self.start('x', '--ttl', '%ds' % ttl, *args, **options)
            got = self.line(child, text, may_end=ttl != ttls[-1])
            if got is not None:
                return child, got
            self.assertIn(self.wait_child(child)[0], (LOST, FAILED))

    def run_to_end(self, *args, **options):
        """To give a lock back `run` has two seconds. When these are not enough, it says so, and is run once more."""
        deadline = Deadline(PATIENCE_S)
        while True:
            code, out, err = self.wait_child(self.start(*args, **options))
            if 'not given back' not in err:
                return code, out, err
            self.assertFalse(deadline.passed(), err)
            self.call('BREAK', args[0])

    def call(self, *args, timeout=PATIENCE_S):
        return self.cluster.leader().call(*args, timeout=timeout)

    def asked_until(self, *args):
        """The same, whoever leads by then: for what may be asked twice."""
        def asked():
            self.answer = self.call(*args)
            return True
        wait_until(asked, 'an answer to %s' % args[0])
        return self.answer

    def line(self, child, text, may_end=False):
        """Waits for a line of the command's output. may_end: None, when it has ended without."""
        deadline = Deadline(PATIENCE_S)
        got = b''
        while text.encode() not in got:
            self.assertTrue(select.select([child.stdout], [], [], deadline.left())[0], 'no %r in %r' % (text, got))
            chunk = os.read(child.stdout.fileno(), 4096)
            if not chunk and may_end:
                return None
            self.assertTrue(chunk, 'ended before it printed %r' % text)
            got += chunk
        return got.decode()


    def outlives_its_ttl(self, ttls, times, then):
        """A command holds its lock for so many times its TTL. Renewals come too late on a machine that stands still for most of a
        lease: then it is tried with a longer one, and the longest must do."""
        retries = Retries()
        for ttl in ttls:
            with Lateness() as late:
                held, err = self.outlives(ttl, times, then)
            if held:
                return
            lost = 'lost with %d s, and processes were woken %.0f ms late: %s' % (ttl, late.most_ms, err)
            self.assertTrue(ttl != ttls[-1] and retries.allowed(late, ttl * 100), lost)

    def outlives(self, ttl, times, then):
        """Whether it held it for so long, and then gave it back; what it said."""
        child = self.start('x', '--ttl', '%ds' % ttl, '--', 'sh', '-c', 'echo $FENCELOCK_TOKEN; read x; exit 6', stdin=subprocess.PIPE)
        got = self.line(child, '\n', may_end=True)
        held = got is not None
        if held:
            token = int(got)
            then()
            deadline = Deadline(ttl * times)
            while held and not deadline.passed():
                held = self.asked_until('CHECK', 'x', token) == 1
                time.sleep(0.05)
        child.stdin.close()
        child.stdin = None
        code, _, err = self.wait_child(child)
        if not held or code != 6:
            self.assertIn(code, (LOST, FAILED), err)
            return False, err
        if 'not given back' in err: # for which it has two seconds
            wait_until(lambda: self.call('CHECK', 'x', token) == 0, 'the end of its lease')
        self.assertEqual(self.asked_until('CHECK', 'x', token), 0)
        return True, err


class Command(RunCase):
    NODES = 1

    def test_environment_and_status(self):
        before = time.clock_gettime(time.CLOCK_BOOTTIME) * 1000
        code, out, err = self.run_to_end('x', '--', 'sh', '-c', 'echo $FENCELOCK_TOKEN $FENCELOCK_LOCK $FENCELOCK_DEADLINE_MS;'
                                                            ' exit 7')
        token, lock, deadline = out.split()
        self.assertEqual((code, lock, err), (7, 'x', ''))
        now = time.clock_gettime(time.CLOCK_BOOTTIME) * 1000
        self.assertTrue(before + 400000 < int(deadline) < now + 600000)
        code, out, err = self.run_to_end('x', 'sh', '-c', 'echo $FENCELOCK_TOKEN')
        self.assertEqual(code, 0)
        self.assertGreater(int(out), int(token)) # given back at once, granted anew
        self.assertEqual(self.call('CHECK', 'x', int(out)), 0)

    def test_status_of_what_cannot_be_run(self):
        self.assertEqual(self.run_to_end('x', '--', 'sh', '-c', 'kill -9 $$')[0], 128 + 9)
        self.assertEqual(self.run_to_end('x', '--', './no-such-command')[0], NOT_FOUND)
        self.assertEqual(self.run_to_end('x', '--', '/')[0], CANNOT)
        self.assertEqual(self.run_to_end('x')[0], 2)
        self.assertEqual(self.run_to_end('x', '--ttl', '499ms', 'true')[0], 2)
        self.assertIn(self.run_to_end('x', '--ttl', '500ms', 'true')[0], (0, LOST, FAILED)) # a busy machine outlasts it
        self.assertEqual(self.run_to_end('x', '--max-hold', '0', 'true')[0], 2)
        self.assertEqual(self.run_to_end('x', '--on-lost', 'cry', 'true')[0], 2)
        self.assertEqual(self.run_to_end('x', '--json', 'true')[0], 2)
        self.assertEqual(self.run_to_end('x' * 256, 'true')[0], 2)

    def test_status_when_nothing_can_be_printed(self):
        with open('/dev/full', 'w', encoding='utf-8') as full:
            for status in (0, 7):
                child = subprocess.Popen([binary('fencelock'), 'run', 'x', '--ttl', '10m', '--', 'sh', '-c', 'exit %d' % status],
                                         env=self.env, stdin=subprocess.DEVNULL, stdout=full, stderr=full)
                self.kill_at_cleanup(child)
                self.assertEqual(child.wait(PATIENCE_S), status)

    def test_options_of_the_command_are_its_own(self):
        code, out, err = self.run_to_end('x', '--ttl', '500s', 'echo', '--ttl', '9s', '--', '--help')
        self.assertEqual((code, out, err), (0, '--ttl 9s -- --help\n', ''))

    def test_works_in_a_pipe(self):
        child = self.start('x', '--', 'tr', 'a-z', 'A-Z', stdin=subprocess.PIPE)
        out, err = child.communicate(b'hello\n' * 100000, timeout=PATIENCE_S)
        self.assertEqual((child.returncode, out), (0, b'HELLO\n' * 100000))
        self.assertRegex(err, rb'^(fencelock: x: not given back, .*\n)?$') # for which it has two seconds

    def test_lock_is_held_longer_than_its_ttl(self):
        self.outlives_its_ttl((8, 30, 120), 9 / 8, lambda: None)

    def test_not_acquired(self):
        token = self.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
        for wait in ('0', '200ms'):
            code, out, err = self.run_to_end('x', '--wait', wait, 'echo', 'never')
            self.assertEqual((code, out), (NOT_ACQUIRED, ''))
            self.assertIn('not acquired', err)
        self.env['FENCELOCK_NODES'] = '127.0.0.1:1'
        code, out, err = self.run_to_end('x', '--wait', '0', '--timeout', '300ms', 'echo', 'never')
        self.assertEqual((code, out), (FAILED, ''))
        self.env['FENCELOCK_NODES'] = 'what'
        self.assertEqual(self.run_to_end('x', 'true')[0], 2)
        self.assertTrue(token)

    def test_waits_its_turn_and_shows_its_place(self):
        token = self.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
        children = []
        for i in range(3):
            children.append(self.start('x', '--', 'sh', '-c', 'echo $FENCELOCK_TOKEN'))
            wait_until(lambda: len(self.queue('x')) == i + 1, what='waiter %d' % i)
        for i, child in enumerate(children):
            deadline = Deadline(PATIENCE_S)
            got = b''
            while b'place %d of' % (i + 1) not in got:
                self.assertTrue(select.select([child.stderr], [], [], deadline.left())[0])
                got += os.read(child.stderr.fileno(), 4096)
        self.call('RELEASE', 'x', token)
        tokens = []
        for child in children: # the next has its turn only when the last has given it back: the lease is longer than our patience
            code, out, err = self.wait_child(child)
            self.assertEqual(code, 0, err)
            tokens.append(int(out))
            if 'not given back' in err: # for which it has two seconds
                self.asked_until('RELEASE', 'x', tokens[-1])
        self.assertEqual(tokens, sorted(tokens))
        self.assertGreater(tokens[0], token)

    def queue(self, name):
        out = subprocess.run([binary('fencelock'), 'queue', name], env=self.env, stdout=subprocess.PIPE, check=True,
                             timeout=PATIENCE_S).stdout.decode()
        return out.splitlines()[1:]

    def test_queue_and_sessions(self):
        self.assertEqual(self.queue('x'), [])
        self.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
        self.start('x', '--owner', 'owner-b-0123456789', 'true')
        wait_until(lambda: len(self.queue('x')) == 1, what='the waiter')
        self.assertEqual(self.queue('x')[0].split(), ['1', 'owner-b-0123456789'])
        for i in range(3):
            self.call('SESSION', 'OPEN', 'session-%d-0123456789' % i, 'TTL', 600000, 'LABEL', 'night shift')
        done = subprocess.run([binary('fencelock'), 'sessions'], env=self.env, stdout=subprocess.PIPE, check=True)
        lines = done.stdout.decode().splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:]], ['session-%d-0123456789' % i for i in range(3)])
        self.assertTrue(all(line.rstrip().endswith('night shift') for line in lines[1:]))
        done = subprocess.run([binary('fencelock'), 'sessions', '--limit', '2'], env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=True)
        self.assertEqual(len(done.stdout.decode().splitlines()), 3)
        self.assertIn(b'more than 2', done.stderr)

    def test_a_signal_while_waiting_ends_it_and_leaves_the_queue(self):
        self.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.signal(number, signal.SIG_DFL)) # nohup has it ignored, and so would the waiter
            child = self.start('x', 'echo', 'never')
            wait_until(lambda: len(self.queue('x')) == 1, what='the waiter')
            child.send_signal(number)
            self.assertEqual(self.wait_child(child)[:2], (-number, ''))
            wait_until(lambda: len(self.queue('x')) == 0, what='the empty queue')

    def test_signals_are_passed_on(self):
        # What a shell starts in the background, or nohup, inherits that some are ignored, and then its children cannot trap them.
        for number in (signal.SIGQUIT, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.signal(number, signal.SIG_DFL))
        script = 'for s in HUP INT QUIT TERM USR1 USR2; do trap "echo got $s" $s; done; trap "exit 9" USR2; echo ready;' \
                 'while :; do sleep 0.01; done'
        child = self.start('x', '--', 'sh', '-c', script)
        self.line(child, 'ready')
        for name in ('HUP', 'INT', 'QUIT', 'TERM', 'USR1'):
            child.send_signal(getattr(signal, 'SIG' + name))
            self.line(child, 'got ' + name)
        child.send_signal(signal.SIGUSR2)
        self.assertEqual(self.wait_child(child)[0], 9)

    def test_the_command_ends_with_us(self):
        child, pid = self.started('\n', '--', 'sh', '-c', 'echo $$; exec sleep 1000')
        pid = int(pid)
        child.kill()
        wait_until(lambda: self.call('SHOW', 'x') is None, 'the end of the lease: nobody renews it any more')
        wait_until(lambda: not os.path.exists('/proc/%d' % pid), what='the end of the command')


class Place(RunCase):
    PROXIES = True

    def test_it_is_told_by_events_and_asks_once(self):
        """It was asked for each second, by each waiter, also with --quiet: then every change that is printed is one question more."""
        for proxy in self.proxies:
            proxy.heard = bytearray()
        leader = self.cluster.leader()
        leader.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
        quiet = self.start('x', '--quiet', 'true')
        wait_until(lambda: self.waiters(leader) == 1, what='the quiet waiter')
        child = self.start('x', 'true')
        self.told(child, 2, 2)
        others = []
        for i in range(8):
            others.append(leader.client())
            others[-1].send('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', 'other-%d-0123456789' % i, 'WAIT', 600000)
            self.told(child, 2, 3 + i)
        quiet.send_signal(signal.SIGTERM)
        self.told(child, 1, 9)
        heard = b''.join(bytes(proxy.heard) for proxy in self.proxies)
        self.assertLess(heard.count(b'$4\r\nSHOW\r\n'), 9, 'a question for each change')
        for other in others:
            other.close()

    def test_it_is_known_again_after_the_node_was_killed(self):
        leader = self.cluster.leader()
        leader.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
        child = self.start('x', 'true')
        self.told(child, 1, 1)
        for node in self.cluster.nodes: # one of them tells it
            node.kill()
            node.start()
        other = self.cluster.leader().client()
        self.addCleanup(other.close)
        other.send('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', 'other-owner-0123456789', 'WAIT', 600000)
        self.told(child, 1, 2)

    def waiters(self, node):
        return len(node.show('x')[b'queue'])

    def told(self, child, place, of):
        deadline = Deadline(PATIENCE_S)
        got = b''
        while b'waiting, place %d of %d\n' % (place, of) not in got:
            self.assertTrue(select.select([child.stderr], [], [], deadline.left())[0], 'not told place %d of %d: %r' % (place, of, got))
            got += os.read(child.stderr.fileno(), 4096)


class Lost(RunCase):
    NODES = 1

    def test_one_that_has_ended_and_whose_parent_has_left_the_group(self):
        child, _ = self.started('on', '--', sys.executable, '-c', 'import os, time\n'
                                'if os.fork() == 0:\n'
                                '    if os.fork() == 0: time.sleep(60)\n'
                                '    os.setsid()\n'
                                '    print("on", flush=True)\n'
                                '    os.closerange(0, 3)\n'
                                '    time.sleep(20)\n'
                                '    os._exit(0)\n'
                                'time.sleep(60)\n', ttls=(9, 30, 120))
        self.call('BREAK', 'x')
        code, _, err = self.wait_child(child)
        self.assertEqual(code, LOST, err)
        self.assertNotIn('cannot be stopped', err)

    def test_broken_by_an_operator(self):
        retries = Retries()
        def stops():
            """Between TERM and KILL is a second, in which a busy machine may not get to the trap."""
            child, _ = self.started('on', '--', 'sh', '-c', 'trap "echo stopping; exit 0" TERM; echo on;'
                                                            'while :; do sleep 0.01; done', ttls=(9, 30, 120))
            with Lateness() as late:
                self.call('BREAK', 'x')
                code, out, err = self.wait_child(child)
            self.assertEqual(code, LOST)
            self.assertIn('the lock is lost', err)
            self.assertTrue(out or retries.allowed(late, 100), 'killed without TERM, and processes were woken %.0f ms late' % late.most_ms)
            return out
        self.assertEqual(try_again(stops, 'TERM before KILL'), 'stopping\n')

    def test_warn_only(self):
        child, _ = self.started('on', '--on-lost', 'warn', '--', 'sh', '-c', 'echo on; read x; exit 5', stdin=subprocess.PIPE)
        self.call('BREAK', 'x')
        deadline = Deadline(PATIENCE_S)
        got = b''
        while b'lost' not in got:
            self.assertTrue(select.select([child.stderr], [], [], deadline.left())[0])
            got += os.read(child.stderr.fileno(), 4096)
        child.stdin.close()
        child.stdin = None
        self.assertEqual(self.wait_child(child)[0], 5)

    def test_term_only(self):
        child, got = self.started('on', '--on-lost', 'term', '--', sys.executable, '-c',
                                  'import signal, sys\n'
                                  'signal.signal(signal.SIGTERM, lambda *a: print("term", flush=True))\n'
                                  'print("on", flush=True)\n'
                                  'sys.stdin.read()', stdin=subprocess.PIPE)
        self.call('BREAK', 'x')
        if 'term' not in got:
            self.line(child, 'term')
        wait_until(lambda: self.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER), what='the lock')
        self.assertIsNone(child.poll()) # not killed
        child.stdin.close()
        child.stdin = None
        self.assertEqual(self.wait_child(child)[0], LOST)

    def test_max_hold(self):
        deadline = Deadline(PATIENCE_S)
        while True:
            child = self.start('x', '--ttl', '8s', '--max-hold', '2s', '--', sys.executable, '-c', HEARTBEAT, self.lab.path('beat'))
            code, out, err = self.wait_child(child)
            self.assertEqual(code, LOST, err)
            # A busy machine takes two seconds to start it, or the half second in which it tries to give back.
            if 'before the command could be started' not in err and 'not given back' not in err:
                break
            self.assertFalse(deadline.passed(), err)
        self.assertIn('as long as was allowed', err)
        self.assertIsNone(self.call('SHOW', 'x')) # given back once the command was dead

    def test_stopped_past_the_lease(self):
        child, _ = self.started('on', '--', 'sh', '-c', 'trap "" TERM; echo on; while :; do sleep 0.01; done')
        child.send_signal(signal.SIGSTOP)
        self.call('ACQUIRE', 'x', 'TTL', 6000000, 'OWNER', OWNER, 'WAIT', 200000) # it is somebody else's now
        child.send_signal(signal.SIGCONT)
        code, out, err = self.wait_child(child)
        self.assertEqual((code, out), (LOST, ''))

    def test_a_stderr_that_nobody_reads_does_not_hold_up_the_end(self):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b'x' * 4096)
        except BlockingIOError:
            pass
        os.set_blocking(writer, True)
        for ttl in ('6s', '30s', '120s'): # a busy machine may outlast a lease before the command has begun
            child = subprocess.Popen([binary('fencelock'), 'run', 'x', '--ttl', ttl, '--', 'sh', '-c',
                                      'exec 2>/dev/null; trap "" TERM; echo on; while :; do sleep 0.01; done'],
                                     env=self.env, stdout=subprocess.PIPE, stderr=writer)
            self.addCleanup(child.stdout.close)
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
            if self.line(child, 'on', may_end=ttl != '120s') is not None:
                break
        self.cluster.nodes[0].pause()
        self.assertEqual(child.wait(PATIENCE_S), LOST)
        self.cluster.nodes[0].resume()
        os.close(reader)
        os.close(writer)


class Silence(RunCase):
    PROXIES = True
    AT_ONCE, ROUNDS = 8, 3

    def last_beat(self, path):
        with open(path, 'rb') as f:
            return struct.unpack('d', f.read(8))[0]

    def one_round(self, number, chooser):
        """Commands that ignore TERM, and whose network falls silent; then the next holders come. The last sign of
        life of each command, and of its child, must be older than the answer that says who is next."""
        names = ['lock-%d-%d' % (number, i) for i in range(self.AT_ONCE)]
        children = [self.start(name, '--ttl', '6s', '--', sys.executable, '-c', HEARTBEAT, self.lab.path(name))
                    for name in names]
        def has_begun(path, child):
            """Or has ended: a busy machine may outlast the lease before its command has begun."""
            return child.poll() is not None or os.path.getsize(path) == 8
        for name, child in zip(names, children):
            for who in ('.command', '.child'):
                wait_until(lambda: has_begun(self.lab.path(name) + who, child), what='the start of ' + name + who)
        waiting = {}
        request = lambda name: ('ACQUIRE', name, 'TTL', 600000, 'OWNER', 'next-' + OWNER, 'WAIT', 200000)
        for name in names:
            client = self.cluster.nodes[chooser.randrange(3)].client(PATIENCE_S)
            self.addCleanup(client.close)
            client.send(*request(name))
            waiting[client.sock] = (client, name)
        time.sleep(chooser.random() * 2.0) # at any phase of the renewals
        for proxy in self.proxies:
            proxy.silent.set()
        granted = {}
        deadline = Deadline(PATIENCE_S)
        while waiting:
            for sock in select.select(list(waiting), [], [], deadline.left())[0]:
                now = time.monotonic()
                client, name = waiting[sock]
                answer = client.read()
                if isinstance(answer, RespError): # an election: it asks again, and cannot be granted it twice
                    self.assertIn(answer.word, ('NOLEADER', 'UNCERTAIN'))
                    client.send(*request(name))
                    continue
                self.assertIsInstance(answer, int)
                del waiting[sock]
                granted[name] = now
            self.assertFalse(deadline.passed())
        for name, child in zip(names, children):
            code, out, err = self.wait_child(child)
            beats = [who for who in ('.command', '.child') if os.path.exists(self.lab.path(name) + who)
                     and os.path.getsize(self.lab.path(name) + who) == 8]
            self.assertIn(code, (LOST,) if beats else (LOST, FAILED), err)
            self.judged += len(beats) == 2
            for who in beats:
                left = granted[name] - self.last_beat(self.lab.path(name) + who)
                self.assertGreater(left, 0, '%s%s was alive when the lock had been granted to the next' % (name, who))
                self.closest = min(self.closest, left)
        for proxy in self.proxies:
            proxy.silent.clear()

    def test_the_command_is_dead_before_the_lock_is_anothers(self):
        chooser = random.Random(seed())
        self.closest, self.judged = 1e9, 0
        rounds = int(os.environ.get('FENCELOCK_ROUNDS', self.ROUNDS))
        for number in range(rounds):
            self.one_round(number, chooser)
        self.assertGreater(self.judged, 0)
        self.note('%d runs; the closest was %.0f ms before the next grant' % (self.judged, self.closest * 1000))


class Leader(RunCase):
    def test_a_new_leader_is_found_in_time(self):
        stopped = []
        def stop_the_leader():
            while stopped: # it is the next try
                stopped.pop().resume()
            stopped.append(self.cluster.leader())
            stopped[0].pause()
        self.outlives_its_ttl((4, 20, 60), 9 / 4, stop_the_leader)
        stopped.pop().resume()


class Terminal(RunCase):
    NODES = 1

    def spawn(self, *args):
        pid, fd = pty.fork()
        if pid == 0:
            lease = [] if '--ttl' in args else ['--ttl', '10m']
            os.execve(binary('fencelock'), ['fencelock', 'run', *lease, *args], self.env)
        self.addCleanup(os.close, fd)
        def end():
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        self.addCleanup(end)
        return pid, fd

    def expect(self, fd, text):
        deadline = Deadline(PATIENCE_S)
        got = b''
        while text not in got:
            self.assertTrue(select.select([fd], [], [], deadline.left())[0], 'no %r in %r' % (text, got))
            try:
                got += os.read(fd, 4096)
            except OSError: # all have closed it
                self.fail('no %r in %r' % (text, got))
        return got

    def is_ready(self, fd):
        """Or has ended. It may say before that it waits: the last try's lease is not over."""
        got = b''
        deadline = Deadline(PATIENCE_S)
        while b'ready' not in got:
            self.assertTrue(select.select([fd], [], [], deadline.left())[0], 'neither, but %r' % got)
            try:
                got += os.read(fd, 4096)
            except OSError: # all have closed it
                return False
        return True

    def status(self, pid, options=0):
        deadline = Deadline(PATIENCE_S)
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG | options)
            if ended == pid:
                return status
            self.assertFalse(deadline.passed())
            time.sleep(0.01)

    def test_the_command_has_the_terminal(self):
        pid, fd = self.spawn('x', '--', 'sh', '-c', 'echo ready; read a; echo "got $a"; exit 3')
        self.expect(fd, b'ready')
        os.write(fd, b'words\n')
        self.expect(fd, b'got words')
        self.assertEqual(os.waitstatus_to_exitcode(self.status(pid)), 3)

    def test_ctrl_c_reaches_the_command(self):
        pid, fd = self.spawn('x', '--', 'sh', '-c', 'trap "echo caught; exit 4" INT; echo ready; while :; do sleep 0.01; done')
        self.expect(fd, b'ready')
        os.write(fd, termios.tcgetattr(fd)[6][termios.VINTR])
        self.expect(fd, b'caught')
        self.assertEqual(os.waitstatus_to_exitcode(self.status(pid)), 4)

    def test_ctrl_z_stops_both_and_both_go_on(self):
        pid, fd = self.spawn('x', '--', 'sh', '-c', 'echo ready; read a; echo "got $a"')
        self.expect(fd, b'ready')
        os.write(fd, termios.tcgetattr(fd)[6][termios.VSUSP])
        self.assertTrue(os.WIFSTOPPED(self.status(pid, os.WUNTRACED)))
        os.kill(pid, signal.SIGCONT)
        os.write(fd, b'more\n')
        self.expect(fd, b'got more')
        self.assertEqual(os.waitstatus_to_exitcode(self.status(pid)), 0)

    def test_stopped_too_long_is_lost_before_it_goes_on(self):
        for ttl in ('1s', '10s', '60s'): # a busy machine may outlast a lease before its command is stopped
            pid, fd = self.spawn('x', '--ttl', ttl, '--', 'sh', '-c', 'echo ready; read a; echo "got $a"; read b')
            if self.is_ready(fd):
                os.write(fd, termios.tcgetattr(fd)[6][termios.VSUSP])
            status = self.status(pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                break
        self.assertTrue(os.WIFSTOPPED(status))
        self.call('ACQUIRE', 'x', 'TTL', 6000000, 'OWNER', OWNER, 'WAIT', 200000)
        os.kill(pid, signal.SIGCONT)
        self.expect(fd, b'the lock is lost')
        self.assertEqual(os.waitstatus_to_exitcode(self.status(pid)), LOST)


if __name__ == '__main__':
    main()
