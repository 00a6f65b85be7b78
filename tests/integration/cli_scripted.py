#!/usr/bin/python3
"""`fencelock` against servers that lose, cut, spoil and withhold answers: what it prints, what it sends
again and what it does not, and its exit codes."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from itertools import chain, repeat

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Deadline, binary, env_without_options, main, try_again, wait_until
from scripted_server import CLOSE, HANG, RESET, STALL, ScriptedServer, bulk

OWNER = '0123456789abcdef'
DONE, NO, USAGE, UNKNOWN, MISSING = 0, 1, 2, 3, 4
PATIENT = '120s' # a --timeout where an answer must come

SHOW_HELD = (b'*24\r\n+name\r\n$6\r\nreport\r\n+state\r\n+held\r\n+owner\r\n$16\r\n0123456789abcdef\r\n'
             b'+token\r\n:33\r\n+age_ms\r\n:1500\r\n+ttl_left_ms\r\n:65000\r\n+value\r\n$7\r\nbackup1\r\n'
             b'+user\r\n$5\r\nalice\r\n+address\r\n$12\r\n10.0.0.9:123\r\n+renewals\r\n:7\r\n'
             b'+waiters\r\n:3\r\n+queue\r\n*2\r\n*2\r\n+owner\r\n$2\r\nw1\r\n*4\r\n+owner\r\n$2\r\nw2\r\n'
             b'+label\r\n$4\r\nhost\r\n')
SHOW_BINARY = (b'*6\r\n+name\r\n$4\r\na\xff\x1b\n\r\n+state\r\n+held\r\n+token\r\n:1\r\n')
INFO_LEADER = (b'# Server\r\nversion:0.1.0\r\nrole:master\r\nnode_role:leader\r\nnode_id:1\r\nterm:4\r\ncommit_index:120\r\n'
               b'leader_id:1\r\napplied_index:120\r\nlast_token:33\r\nlocks_held:2\r\nconnected_clients:5\r\nuptime_ms:3725000\r\n')


class CliCase(Case):
    def setUp(self):
        super().setUp()
        self.servers = []

    def server(self, *script, **options):
        server = ScriptedServer(script, **options)
        self.addCleanup(server.close)
        self.servers.append(server)
        return server

    def in_time(self, run):
        """What `run` returns when the servers have answered in time: a client that waits for a second asks again, and rightly
        so. When one was late, it runs once more, and the scripts begin again where they were."""
        deadline = Deadline(PATIENCE_S)
        while True:
            before = [s.state() for s in self.servers]
            got = run()
            for s in self.servers:
                s.settle()
            if not any(s.late for s in self.servers):
                return got
            self.assertFalse(deadline.passed(), 'a server was late each time')
            for s, state in zip(self.servers, before):
                s.go_back(state)

    def run_cli(self, *args, env=None, seconds=240):
        """Exit code, stdout, stderr."""
        done = self.in_time(lambda: subprocess.run(
            [binary('fencelock'), *args], env=env_without_options(**{'FENCELOCK_TIMEOUT': PATIENT, **(env or {})}), timeout=seconds,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        self.assertNoReport(done.stderr)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def ask(self, servers, *args, timeout=PATIENT, **options):
        servers = servers if isinstance(servers, (list, tuple)) else [servers]
        nodes = ','.join(s.address for s in servers)
        if args[0] == 'acquire' and '--ttl' not in args: # after half of it the client would renew
            args = (*args, '--ttl', '10m')
        return self.run_cli(*args, '--nodes', nodes, '--timeout', timeout, **options)

    def ask_store(self, server, *args, timeout=PATIENT, **options):
        return self.run_cli('store', *args, '--store', server.address, '--timeout', timeout, **options)

    def ask_for_an_unknown_outcome(self, script, *args, ask=None, first='300'):
        """The server, and what is said with the first --timeout in which the request is sent: on a busy machine there may be no time
        for that in a short one."""
        for timeout in (first, '3000', '30000'):
            s = self.server(*script)
            got = (ask or self.ask)(s, *args, timeout=timeout)
            if s.requests:
                break
        return s, got

    def status(self, servers, *args):
        """`fencelock status` of servers that answer, if they listen: it gives each two seconds at most."""
        def asked():
            got = self.ask(servers, 'status', *args)
            return got if 'no answer' not in got[1] + got[2] else None
        return try_again(asked, 'answers in time')

    def on_terminal(self, *args, env=None, waits=False):
        """Exit code and what a person sees. After two seconds without an answer that is said, so on a busy machine it is tried
        again unless it `waits`."""
        def quiet():
            code, seen = self.in_time(lambda: self.on_terminal_once(*args, env=env))
            return (code, seen) if waits or 'fencelock: waiting' not in seen else None
        return try_again(quiet, 'an answer in time')

    def on_terminal_once(self, *args, env=None):
        ours, theirs = pty.openpty()
        child = subprocess.Popen([binary('fencelock'), *args], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                                 env={'FENCELOCK_TIMEOUT': PATIENT, **os.environ, **(env or {})})
        os.close(theirs)
        seen = b''
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:
                break
            if not data:
                break
            seen += data
        os.close(ours)
        return child.wait(PATIENCE_S), seen.decode().replace('\r\n', '\n')


class Silence(CliCase):
    """Who waits long is told on stderr when it is not the lock that is waited for."""

    def begin(self, server, *args):
        child = subprocess.Popen([binary('fencelock'), 'acquire', 'report', '--wait', '1h', '--ttl', '10m', '--owner', OWNER,
                                  '--nodes', server.address, *args], env=env_without_options(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stderr.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.seen = b''
        return child

    def lines(self, child):
        """What it has said so far."""
        while select.select([child.stderr], [], [], 0)[0]:
            data = os.read(child.stderr.fileno(), 65536)
            if not data:
                break
            self.seen += data
        return self.without_lateness(self.seen.decode())

    def without_lateness(self, text):
        """Its lines but for those on a machine so busy that our server was late: that it was, that it answers again, and
        what is said anew because of these."""
        kept, late = [], False
        for line in text.splitlines():
            if 'no answer' in line:
                late = True
            elif not late or (line not in kept[-1:] and 'a node answers again' not in line):
                kept.append(line)
                late = False
        return kept

    def await_lines(self, child, n):
        wait_until(lambda: len(self.lines(child)) >= n, '%d lines on stderr' % n)
        self.assertEqual(len(self.lines(child)), n)
        return self.lines(child)[-1]

    def end(self, child, said):
        out, rest = child.communicate(timeout=PATIENCE_S)
        self.assertEqual(child.returncode, DONE)
        self.assertEqual(len(self.without_lateness((self.seen + rest).decode())), said)
        return out.decode()

    def test_what_it_waits_for_is_said_and_said_again_when_it_changes(self):
        server = self.server(b'-NOLEADER nobody leads\r\n', listen=False)
        child = self.begin(server)
        self.assertEqual(self.await_lines(child, 1),
                         'fencelock: report: waiting, but no node takes the request: %s: cannot connect: Connection refused'
                         % server.address)
        server.listen()
        self.assertIn('no node takes the request: %s: NOLEADER nobody leads' % server.address, self.await_lines(child, 2))
        server.script = [b':7\r\n']
        self.assertEqual(self.end(child, 2), '7\n')

    def test_the_same_is_said_once(self):
        server = self.server(b'-NOLEADER nobody leads\r\n')
        child = self.begin(server, '--json')
        self.await_lines(child, 1)
        asked, since = len(server.requests), time.monotonic()
        # Long enough for the next one to be due, and with enough troubles to say it about.
        wait_until(lambda: len(server.requests) > asked + 3 and time.monotonic() > since + 6, 'more requests')
        server.script = [b':7\r\n']
        answer = json.loads(self.end(child, 1))
        self.assertEqual((answer['acquired'], answer['token']), (True, 7))

    def test_it_is_said_when_only_the_lock_is_waited_for_again(self):
        server = self.server(HANG, listen=False)
        child = self.begin(server)
        self.await_lines(child, 1)
        server.leader = b'*2\r\n:1\r\n' + bulk(server.address.encode())
        server.listen()
        again = 'fencelock: report: waiting for the lock: a node answers again'
        wait_until(lambda: again in self.lines(child), 'that line')

    def test_a_queue_alone_is_no_trouble(self):
        server = self.server(HANG)
        server.leader = b'*2\r\n:1\r\n' + bulk(server.address.encode())
        child = self.begin(server)
        wait_until(lambda: server.leader_requests >= 3, 'two probes')
        self.assertEqual(self.lines(child), [])


class Outcomes(CliCase):
    def test_acquire_prints_the_token_alone(self):
        s = self.server(b':33\r\n')
        self.assertEqual(self.ask(s, 'acquire', 'report', '--ttl', '500s', '--owner', OWNER), (DONE, '33\n', ''))
        self.assertEqual(s.requests, [[b'ACQUIRE', b'report', b'TTL', b'500000', b'OWNER', OWNER.encode()]])

    def test_acquire_makes_up_an_owner_of_128_bits(self):
        s = self.server(b':33\r\n')
        for _ in range(2):
            self.ask(s, 'acquire', 'report')
        owners = [r[r.index(b'OWNER') + 1].decode() for r in s.requests]
        self.assertEqual([len(o) for o in owners], [32, 32])
        self.assertNotEqual(owners[0], owners[1])
        self.assertEqual(len(bytes.fromhex(owners[0])), 16)

    def test_how_it_is_taken(self):
        for options, words in ((('--shared',), [b'MODE', b'SHARED']), (('--permits', '3'), [b'PERMITS', b'3']),
                               (('--permits', '1000000'), [b'PERMITS', b'1000000']),
                               (('--also', 'b', '--also=c d'), [b'ALSO', b'b', b'ALSO', b'c d']),
                               (['--also=%d' % i for i in range(15)], [w for i in range(15) for w in (b'ALSO', b'%d' % i)])):
            s = self.server(b':33\r\n')
            self.assertEqual(self.ask(s, 'acquire', 'x', *options)[0], DONE)
            self.assertEqual(s.requests[0][-len(words):], words)
        s = self.server(b':33\r\n')
        for options in (('--shared', '--permits', '2'), ('--permits', '0'), ('--permits', '1000001'), ('--also', 'b', '--shared'),
                        ('--also', 'b', '--permits', '2'), ('--also', ''), ('--also', 'n' * 256),
                        ['--also=%d' % i for i in range(16)]):
            self.assertEqual(self.ask(s, 'acquire', 'x', *options)[0], USAGE)
            self.assertEqual(self.run_cli('run', 'x', *options, 'true')[0], USAGE)
        self.assertEqual(s.requests, [])

    def test_acquire_held_by_another(self):
        s = self.server(b'$-1\r\n')
        self.assertEqual(self.ask(s, 'acquire', 'report'),
                         (NO, '', 'fencelock: report: not acquired: another owner holds the lock\n'))

    def test_yes_and_no_of_each_command(self):
        for args, word, yes, no in (
                (('renew', 'x', '7'), 'renewed', 'x: renewed\n', 'the lock is not held under this token'),
                (('release', 'x', '7'), 'released', 'x: released\n', 'the lock is not held under this token'),
                (('check', 'x', '7'), 'held', 'x: held\n', 'the lock is not held under this token')):
            with self.subTest(args[0]):
                self.assertEqual(self.ask(self.server(b':1\r\n'), *args), (DONE, yes, ''))
                self.assertEqual(self.ask(self.server(b':0\r\n'), *args), (NO, '', 'fencelock: x: %s\n' % no))
                code, out, _ = self.ask(self.server(b':1\r\n'), *args, '--json')
                self.assertEqual((code, json.loads(out)[word], json.loads(out)['name']), (DONE, True, 'x'))
                code, out, _ = self.ask(self.server(b':0\r\n'), *args, '--json')
                self.assertEqual((code, json.loads(out)[word], json.loads(out)['name']), (NO, False, 'x'))

    def test_break_tells_the_burnt_token(self):
        self.assertEqual(self.ask(self.server(b':8\r\n'), 'break', 'x'), (
            DONE, 'x: broken; its old holders can write until the storage is claimed with token 8 or a later one\n', ''))
        self.assertEqual(self.ask(self.server(b':8\r\n'), 'break', 'x', '--json'),
                         (DONE, '{"broken":true,"name":"x","token":8}\n', ''))
        self.assertEqual(self.ask(self.server(b':0\r\n'), 'break', 'x'), (NO, '', 'fencelock: x: nobody holds the lock\n'))
        self.assertEqual(self.ask(self.server(b':0\r\n'), 'break', 'x', '--json')[1], '{"broken":false,"name":"x"}\n')
        code, out, _ = self.ask(self.server(b':1\r\n'), 'break', 'x') # a node that does not tell it
        self.assertEqual(code, DONE)
        self.assertIn('older version', out)

    def test_break_and_claim(self):
        for answer, mark in ((b'+OK\r\n', 8), (b'-STALE token 8 is below the mark 9 of lock x\r\n', 9)):
            node, store = self.server(b':8\r\n'), self.server(answer)
            self.assertEqual(self.ask(node, 'break', 'x', '--claim', store.address), (
                DONE, 'x: broken; the storage refuses its old holders from here on (mark %d)\n' % mark, ''))
            self.assertEqual(store.requests, [[b'CLAIM', b'x', b'8']])
        node, store = self.server(b':8\r\n'), self.server(b'', listen=False)
        code, out, err = self.ask(node, 'break', 'x', '--claim', store.address, '--json', timeout='300')
        self.assertEqual((code, out), (UNKNOWN, '{"broken":true,"name":"x","token":8}\n'))
        self.assertIn('not shut out', err)
        node, store = self.server(b':1\r\n'), self.server(b'+OK\r\n')
        self.assertEqual(self.ask(node, 'break', 'x', '--claim', store.address)[0], UNKNOWN)
        self.assertEqual(store.requests, []) # 1 is not a burnt token
        node, store = self.server(b':0\r\n'), self.server(b'+OK\r\n')
        self.assertEqual(self.ask(node, 'break', 'x', '--claim', store.address)[0], NO)
        self.assertEqual(store.requests, [])
        node = self.server(b':8\r\n')
        for address in ('nonsense:', 'fencelock://ann:secret@127.0.0.1:1'): # everybody could read that
            self.assertEqual(self.ask(node, 'break', 'x', '--claim', address)[0], USAGE)
        self.assertEqual(node.requests, []) # nothing was broken

    def test_a_backup_of_which_no_more_comes(self):
        """The node says that the next piece is not there yet, as long as it is asked."""
        for timeout in ('300', '3000', '30000'): # a busy machine has no time left to ask again
            node = self.server(b':5\r\n', b'$-1\r\n', b'$-1\r\n', b'$1000\r\n' + b'x' * 1000 + b'\r\n', b'$-1\r\n')
            code, _, err = self.ask(node, 'backup', self.lab.path('backup'), timeout=timeout)
            if len(node.requests) > 5 and 'no more of the backup in time' in err:
                break
        self.assertEqual(code, UNKNOWN)
        self.assertIn('no more of the backup in time', err)
        self.assertGreater(len(node.requests), 5) # it was asked again

    def test_refusals(self):
        for line, error, code in ((b'LIMIT too many locks', 'ELIMIT', NO), (b'DEADLOCK a cycle', 'EDEADLOCK', NO),
                                  (b'MISMATCH other permits', 'EMISMATCH', NO),
                                  (b'ERR syntax', 'EINVAL', USAGE), (b'NOAUTH log in', 'EDENIED', NO),
                                  (b'WHATEVER new', 'EPROTO', UNKNOWN),
                                  (b'WHATEVER cannot make ' + b'a/long/path/' * 20 + b': the reason', 'EPROTO', UNKNOWN)):
            with self.subTest(error):
                s = self.server(b'-' + line + b'\r\n')
                got, out, err = self.ask(s, 'acquire', 'x', '--json')
                self.assertEqual((got, json.loads(out)['error']), (code, error))
                self.assertIn(line.decode(), err)
                self.assertEqual(len(s.requests), 1)

    def test_nobody_there(self):
        s = self.server(b'', listen=False)
        code, out, err = self.ask(s, 'acquire', 'x', timeout='300')
        self.assertEqual((code, out), (UNKNOWN, ''))
        self.assertIn('Connection refused', err)
        self.assertIn('Start fencelockd', err)
        code, out, err = self.ask_store(s, 'get', 'k', timeout='300')
        self.assertEqual((code, out), (UNKNOWN, ''))
        self.assertIn('Start fencelock-store', err)

    def test_no_leader(self):
        timeouts = chain(('400', '4000'), repeat('20000'))
        def no_leader():
            """One that was asked when the time was over makes the outcome unknown, and rightly so; and on a busy machine there may
            be no time for all."""
            servers = [self.server(b'-NOLEADER no majority\r\n') for _ in range(3)]
            code, out, err = self.ask(servers, 'acquire', 'x', '--json', timeout=next(timeouts))
            self.assertEqual(code, UNKNOWN, err)
            said = json.loads(out)
            if said['error'] == 'EUNCERTAIN' or not all(s.requests for s in servers):
                return None
            self.assertEqual((said['error'], said['class']), ('ENOLEADER', 'refused'))
            return err
        self.assertIn('fencelock status', try_again(no_leader, 'the answers of all three in time'))

    def test_nobody_answers(self):
        _, (code, out, _) = self.ask_for_an_unknown_outcome([HANG], 'check', 'x', '7', '--json')
        self.assertEqual((code, json.loads(out)['error']), (UNKNOWN, 'ETIMEOUT'))
        _, (code, out, _) = self.ask_for_an_unknown_outcome([HANG], 'release', 'x', '7', '--json')
        self.assertEqual((code, json.loads(out)['error'], json.loads(out)['class']),
                         (UNKNOWN, 'EUNCERTAIN', 'unknown'))

    def test_timeout_holds(self):
        for step in (HANG, CLOSE, b'-NOLEADER x\r\n', b'-BUSY x\r\n', STALL, b'junk\r\n'):
            # That it ends at all, and not when FENCELOCK_TIMEOUT says.
            code, _, _ = self.ask(self.server(step), 'acquire', 'x', timeout='300', env={'FENCELOCK_TIMEOUT': '1h'}, seconds=60)
            self.assertEqual(code, UNKNOWN)

    def test_result_that_cannot_be_written(self):
        s = self.server(b':33\r\n')
        with open('/dev/full', 'w') as full:
            done = subprocess.run([binary('fencelock'), 'acquire', 'x', '--nodes', s.address], stdout=full,
                                  stderr=subprocess.PIPE, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, UNKNOWN)
        self.assertIn(b'cannot write', done.stderr)


class Strangers(CliCase):
    """Servers of other kinds that were named by mistake."""

    UNKNOWN_COMMAND = b"-ERR unknown command 'IT', with args beginning with: 'x'\r\n"

    def test_a_server_that_knows_no_locks(self):
        s = self.server(self.UNKNOWN_COMMAND)
        for words in (('acquire', 'x'), ('token', 'x'), ('queue', 'x'), ('sessions',), ('run', 'x', 'true')):
            code, out, err = self.ask(s, *words[:1], *words[1:]) if words[0] != 'run' else \
                self.run_cli('run', '--nodes', s.address, 'x', 'true')
            self.assertEqual((code, out), (USAGE, ''), err)
            self.assertIn('--nodes or FENCELOCK_NODES', err)
        code, _, err = self.ask_store(s, 'get', 'k')
        self.assertEqual(code, USAGE)
        self.assertIn('--store or FENCELOCK_STORE', err)

    def test_status_does_not_take_a_redis_for_a_node(self):
        s = self.server(bulk(b'# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:9\r\n'))
        code, out, err = self.status(s, '--json')
        self.assertEqual(code, UNKNOWN)
        node = json.loads(out)['nodes'][0]
        self.assertEqual((node['reachable'], node['error']), (False, 'EPROTO'))
        self.assertIn('not a fencelockd', node['message'])

    def test_run_does_not_wait_in_silence(self):
        refused = self.server(b'', listen=False)
        redis = self.server(b'', listen=False)
        http = self.server(b'HTTP/1.0 400 Bad Request\r\n\r\n')
        for words in (('run', 'x', '--nodes', refused.address, 'true'), ('run', 'x', '--nodes', http.address, 'true'),
                      ('redlock', 'run', 'x', '--redis', redis.address, 'true')):
            child = subprocess.Popen([binary('fencelock'), *words], env=env_without_options(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            self.addCleanup(child.stderr.close)
            self.addCleanup(child.kill)
            self.assertTrue(select.select([child.stderr], [], [], PATIENCE_S)[0], 'it says nothing')
            line = child.stderr.readline().decode()
            self.assertIn('x: waiting, but ', line)
            self.assertIn((http if http.address in words else refused if refused.address in words else redis).address, line)
            child.terminate()
            self.assertEqual(child.wait(PATIENCE_S), -signal.SIGTERM)

    def test_run_whose_hosts_have_no_address(self):
        code, out, err = self.run_cli('run', '--nodes', 'no-such-host.invalid:1', 'x', 'true')
        self.assertEqual((code, out), (125, ''))
        self.assertIn('--nodes or FENCELOCK_NODES', err)
        code, out, err = self.run_cli('redlock', 'run', '--redis', 'no-such-host.invalid:1', 'x', 'true')
        self.assertEqual((code, out), (125, ''))


class Repeating(CliCase):
    TROUBLES = {'lost': CLOSE, 'reset': RESET, 'half': (b':3', CLOSE), 'half array': (b'*2\r\n$1\r\nx', CLOSE),
                'uncertain': b'-UNCERTAIN leadership was lost\r\n', 'garbage': b'HTTP/1.1 400 no\r\n\r\n',
                'wrong type': b'*0\r\n', 'zero token': b':0\r\n', 'huge token': b':9007199254740992\r\n',
                'huge array': b'*2147483647\r\n', 'huge bulk': (b'$999999999999999999999\r\n', CLOSE),
                'deep': b'*1\r\n' * 12 + b':1\r\n', 'no leader': b'-NOLEADER x\r\n', 'busy': b'-BUSY x\r\n',
                'hang': HANG}

    def test_acquire_is_repeated_with_the_same_owner(self):
        for name, trouble in self.TROUBLES.items():
            with self.subTest(name):
                s = self.server(trouble, b':33\r\n')
                self.assertEqual(self.ask(s, 'acquire', 'x'), (DONE, '33\n', ''))
                self.assertEqual(len(s.requests), 2)
                self.assertEqual(s.requests[0] + [b'ATTEMPT', b'2'], s.requests[1])

    def test_acquire_moves_to_another_node(self):
        for name, trouble in self.TROUBLES.items():
            with self.subTest(name):
                bad, good = self.server(trouble), self.server(b':33\r\n')
                self.assertEqual(self.ask([bad, good], 'acquire', 'x'), (DONE, '33\n', ''))
                if bad.requests: # the copy that the first one has must not act any more
                    sendings = len(bad.requests) + 1
                    self.assertEqual(bad.requests[0] + [b'ATTEMPT', b'%d' % sendings], good.requests[0])

    def test_a_node_that_refuses_connections_is_passed_over(self):
        dead, good = self.server(b'', listen=False), self.server(b':33\r\n')
        for _ in range(4): # it starts with either
            self.assertEqual(self.ask([dead, good], 'acquire', 'x')[:2], (DONE, '33\n'))

    def test_break_is_sent_once_after_an_unknown_outcome(self):
        for name in ('lost', 'reset', 'half', 'uncertain', 'garbage', 'wrong type', 'hang'):
            with self.subTest(name):
                s, (code, out, err) = self.ask_for_an_unknown_outcome([self.TROUBLES[name], b':1\r\n'], 'break', 'x', '--json',
                                                                      first='500' if name == 'hang' else PATIENT)
                self.assertEqual((code, json.loads(out)['error']), (UNKNOWN, 'EUNCERTAIN'))
                self.assertIn('fencelock show', err)
                self.assertEqual(s.words(), ['BREAK'])

    def test_break_is_repeated_when_it_was_surely_not_done(self):
        for name in ('no leader', 'busy'):
            s = self.server(self.TROUBLES[name], b':1\r\n')
            self.assertEqual(self.ask(s, 'break', 'x')[0], DONE)
            self.assertEqual(s.words(), ['BREAK', 'BREAK'])

    def test_release_that_finds_nothing_after_a_lost_answer_is_unknown(self):
        s = self.server(CLOSE, b':0\r\n')
        code, out, _ = self.ask(s, 'release', 'x', '7', '--json')
        self.assertEqual((code, json.loads(out)['error']), (UNKNOWN, 'EUNCERTAIN'))
        s = self.server(CLOSE, b':1\r\n')
        self.assertEqual(self.ask(s, 'release', 'x', '7')[0], DONE)
        s = self.server(b'-NOLEADER x\r\n', b':0\r\n')
        self.assertEqual(self.ask(s, 'release', 'x', '7')[0], NO)

    def test_renew_and_check_and_token_are_repeated(self):
        for args, answer in ((('renew', 'x', '7'), b':1\r\n'), (('check', 'x', '7'), b':1\r\n'),
                             (('token', 'x'), b':9\r\n')):
            s = self.server(CLOSE, b'-UNCERTAIN x\r\n', answer)
            self.assertEqual(self.ask(s, *args)[0], DONE)
            self.assertEqual(len(s.requests), 3)

    def test_unknown_acquire_names_its_owner(self):
        s, (code, out, err) = self.ask_for_an_unknown_outcome([b'-UNCERTAIN x\r\n'], 'acquire', 'x', '--json')
        owner = s.requests[0][s.requests[0].index(b'OWNER') + 1].decode()
        self.assertEqual((code, json.loads(out)['error'], json.loads(out)['owner']), (UNKNOWN, 'EUNCERTAIN', owner))
        self.assertIn('--owner ' + owner, err)

    def test_refusal_after_an_unknown_try_stays_unknown(self):
        s = self.server(CLOSE, b'-LIMIT too many\r\n')
        self.assertEqual(self.ask(s, 'acquire', 'x')[0], UNKNOWN)

        for words in (('user', 'remove', 'ann'), ('cluster', 'config', 'set', 'permits', '1')):
            self.assertEqual(self.ask(self.server(b'-UNCERTAIN x\r\n', b'-NOPERM no more\r\n'), *words)[0], UNKNOWN)
        for trouble, code in ((CLOSE, DONE), (b'-UNCERTAIN x\r\n', DONE), (b'-NOLEADER x\r\n', NO)): # it may have removed the user
            self.assertEqual(self.ask(self.server(trouble, b':0\r\n'), 'user', 'remove', 'ann')[0], code)

    def test_store_writes_are_sent_once(self):
        for args in (('set', 'k', 'v'), ('del', 'k')):
            for name in ('lost', 'reset', 'half', 'uncertain', 'garbage', 'hang'):
                with self.subTest((args[0], name)):
                    s, (code, out, err) = self.ask_for_an_unknown_outcome(
                        [self.TROUBLES[name], b':1\r\n'], *args, '--lock', 'l', '--token', '7', '--json', ask=self.ask_store,
                        first='500' if name == 'hang' else PATIENT)
                    self.assertEqual((code, json.loads(out)['error']), (UNKNOWN, 'EUNCERTAIN'))
                    self.assertIn('acquire the lock anew', err)
                    self.assertEqual(len(s.requests), 1)

    def test_store_claims_and_reads_are_repeated(self):
        for args, answer in ((('claim',), b'+OK\r\n'), (('get', 'k'), bulk(b'v'))):
            s = self.server(CLOSE, (answer[:2], RESET), answer)
            self.assertEqual(self.ask_store(s, *args, '--lock', 'l', '--token', '7')[0], DONE)
            self.assertEqual(len(s.requests), 3)


class Waiting(CliCase):
    def late_grant(self, script, ttls=(500, 5000, 60000)):
        """A grant that is answered when most of its lease is over, so that it is renewed. A busy machine outlasts what is left
        then, and tries again with a lease that is longer."""
        for ttl_ms in ttls:
            def later(_):
                nonlocal over
                over = Deadline(ttl_ms / 1000)
                time.sleep(ttl_ms * 0.8 / 1000)
                return b':33\r\n'
            over = Deadline(0)
            s = self.server(later, *script)
            got = self.ask(s, 'acquire', 'x', '--wait', '1h', '--ttl', str(ttl_ms))
            if not over.passed() or (got[0] == DONE and len(s.requests) == len(script) + 1):
                break
        return s, got, ttl_ms

    def test_wait_is_sent_and_the_grant_out_of_the_queue_is_renewed(self):
        s, got, ttl_ms = self.late_grant([b':1\r\n'])
        self.assertEqual(got, (DONE, '33\n', ''))
        self.assertEqual(s.words(), ['ACQUIRE', 'RENEW'])
        wait = int(s.requests[0][s.requests[0].index(b'WAIT') + 1])
        self.assertTrue(3000000 < wait <= 3600000, wait)
        self.assertEqual(s.requests[1], [b'RENEW', b'x', b'33', b'TTL', b'%d' % ttl_ms])

    def test_a_grant_that_is_lost_before_it_is_confirmed_is_asked_for_again(self):
        s, got, _ = self.late_grant([b':0\r\n', b':35\r\n'])
        self.assertEqual(got, (DONE, '35\n', ''))
        self.assertEqual(s.words(), ['ACQUIRE', 'RENEW', 'ACQUIRE'])

    def test_an_immediate_grant_is_not_renewed(self):
        s = self.server(b':33\r\n')
        self.ask(s, 'acquire', 'x', '--wait', '30s')
        self.assertEqual(s.words(), ['ACQUIRE'])

    def test_a_lost_wait_goes_on_with_the_rest(self):
        def lose(_):
            time.sleep(0.3)
            return CLOSE
        s = self.server(lose, b'$-1\r\n')
        code, _, err = self.ask(s, 'acquire', 'x', '--wait', '10m')
        self.assertEqual(code, NO)
        self.assertIn('as long as we waited', err)
        waits = [int(r[r.index(b'WAIT') + 1]) for r in s.requests]
        self.assertLessEqual(waits[1], waits[0] - 300)

    def test_a_wait_outlives_the_timeout_and_is_probed(self):
        def later(_):
            """Asked for the leader once with the request, the second time by a probe, after two seconds."""
            wait_until(lambda: s.leader_requests >= 2, 'a probe')
            return b':33\r\n'
        s = self.server(later)
        self.assertEqual(self.ask(s, 'acquire', 'x', '--wait', '10m', timeout='500'), (DONE, '33\n', ''))
        self.assertEqual(len(s.requests), 1)

    def test_a_wait_at_a_node_that_knows_no_leader_for_long_moves_to_another(self):
        def hang_once(_):
            return HANG if sum(len(s.requests) for s in servers) == 1 else b':33\r\n'
        servers = [self.server(hang_once), self.server(hang_once)]
        # It may say on stderr whom it waited for.
        self.assertEqual(self.ask(servers, 'acquire', 'x', '--wait', '10m')[:2], (DONE, '33\n'))
        self.assertEqual(sorted(len(s.requests) for s in servers), [1, 1])
        first, second = (s.requests[0] for s in servers)
        owner = lambda r: r[r.index(b'OWNER') + 1]
        self.assertEqual(owner(first), owner(second))

    def test_a_wait_at_a_node_that_hangs_moves_to_another(self):
        hung, good = self.server(STALL), self.server(b':33\r\n')
        for _ in range(20): # until it has started with the one that hangs
            self.assertEqual(self.ask([hung, good], 'acquire', 'x', '--wait', '10m')[:2], (DONE, '33\n'))
            if hung.requests:
                break
        self.assertTrue(hung.requests)
        owner = lambda r: r[r.index(b'OWNER') + 1]
        self.assertEqual(owner(hung.requests[0]), owner(good.requests[-1]))


class Output(CliCase):
    maxDiff = None

    def test_acquire_json(self):
        # The TTL that it has without --ttl: it renews a lease that a busy machine has outlasted by half.
        s = self.server(lambda request: b':1\r\n' if request[0] == b'RENEW' else b':33\r\n')
        code, out, err = self.run_cli('acquire', 'report', '--owner', OWNER, '--json', '--nodes', s.address)
        value = json.loads(out)
        self.assertTrue(0 < value.pop('valid_ms') < 10000)
        self.assertEqual((code, err, value), (DONE, '', {'acquired': True, 'name': 'report', 'token': 33,
                                                         'owner': OWNER, 'ttl_ms': 10000}))
        code, out, _ = self.ask(self.server(b'$-1\r\n'), 'acquire', 'report', '--json')
        self.assertEqual((code, json.loads(out)), (NO, {'acquired': False, 'name': 'report'}))

    def test_token(self):
        self.assertEqual(self.ask(self.server(b':9\r\n'), 'token', 'x'), (DONE, '9\n', ''))
        self.assertEqual(self.ask(self.server(b':9\r\n'), 'token', 'x', '--json'),
                         (DONE, '{"name":"x","token":9}\n', ''))

    def test_show(self):
        s = self.server(SHOW_HELD)
        code, out, err = self.ask(s, 'show', 'report')
        self.assertEqual((code, re.sub(r'[0-9]{4}-.*Z', 'AT', out), err), (DONE, '''\
lock      report
state     held
token     33
owner     0123456789abcdef
value     backup1
user      alice
address   10.0.0.9:123
since     AT, 1.5 s ago
renewed   7 times
ttl left  1 m 5 s
waiters   3
       1. w1
       2. w2  host
          and 1 more
''', ''))
        code, out, _ = self.ask(s, 'show', 'report', '--json')
        self.assertEqual((code, json.loads(out)), (DONE, {
            'name': 'report', 'state': 'held', 'token': 33, 'owner': OWNER, 'session': False, 'label': '',
            'value': 'backup1', 'age_ms': 1500, 'user': 'alice', 'address': '10.0.0.9:123', 'renewals': 7, 'mode': 'exclusive', 'ttl_left_ms': 65000, 'waiters': 3,
            'permits': 0, 'holders': 0, 'together': 0, 'held_by': [],
            'queue': [{'owner': 'w1', 'session': False, 'label': ''},
                      {'owner': 'w2', 'session': False, 'label': 'host'}]}))

    def test_show_free(self):
        self.assertEqual(self.ask(self.server(b'*-1\r\n'), 'show', 'x'), (NO, 'x: free\n', ''))
        self.assertEqual(self.ask(self.server(b'$-1\r\n'), 'show', 'x', '--json'),
                         (NO, '{"name":"x","state":"free"}\n', ''))

    def test_show_of_a_binary_name(self):
        s = self.server(SHOW_BINARY)
        code, out, _ = self.ask(s, 'show', 'x')
        self.assertEqual((code, out.splitlines()[0]), (DONE, 'lock      a\\xff\\x1b\\x0a'))
        code, out, _ = self.ask(s, 'show', 'x', '--json')
        value = json.loads(out)
        self.assertEqual((value['name'], value['name_base64']), ('a\ufffd\x1b\n', 'Yf8bCg=='))

    def test_show_that_is_no_description(self):
        code, out, _ = self.ask(self.server(b'*1\r\n+name\r\n'), 'show', 'x', '--json')
        self.assertEqual((code, json.loads(out)['error']), (UNKNOWN, 'EPROTO'))

    @staticmethod
    def page(cursor, *names):
        locks = b''.join(b'*10\r\n+name\r\n' + bulk(n) + b'+state\r\n+held\r\n+token\r\n:%d\r\n' % (i + 1)
                         + b'+owner\r\n$2\r\nme\r\n+ttl_left_ms\r\n:2500\r\n' for i, n in enumerate(names))
        return b'*2\r\n' + bulk(cursor) + b'*%d\r\n' % len(names) + locks

    def test_locks(self):
        s = self.server(self.page(b'h2', b'a', b'long name'), self.page(b'', 'Z\u00fcrich'.encode()))
        self.assertEqual(self.ask(s, 'locks', '--match', '*'), (DONE, '''\
NAME       STATE  TOKEN   AGE  TTL LEFT  WAITERS  HOLDER
a          held       1  0 ms     2.5 s        0  me
long name  held       2  0 ms     2.5 s        0  me
Z\u00fcrich     held       1  0 ms     2.5 s        0  me
''', ''))
        self.assertEqual(s.requests, [[b'LOCKS', b'MATCH', b'*', b'COUNT', b'1000'],
                                      [b'LOCKS', b'MATCH', b'*', b'CURSOR', b'h2', b'COUNT', b'998']])

    def test_locks_limit(self):
        s = self.server(self.page(b'h2', b'a', b'b'))
        code, out, err = self.ask(s, 'locks', '--limit', '2')
        self.assertEqual((code, len(out.splitlines())), (DONE, 3))
        self.assertIn('more than 2 locks', err)
        code, out, err = self.ask(s, 'locks', '--limit', '1', '--json')
        value = json.loads(out)
        self.assertEqual((code, err, [l['name'] for l in value['locks']], value['more']), (DONE, '', ['a'], True))
        self.assertEqual(self.ask(s, 'locks', '--limit', '0', '--json')[1], '{"locks":[],"more":true}\n')
        s = self.server(self.page(b''))
        self.assertEqual(self.ask(s, 'locks', '--limit', '0', '--json')[1], '{"locks":[],"more":false}\n')

    def test_no_locks(self):
        s = self.server(self.page(b''))
        self.assertEqual(self.ask(s, 'locks'), (DONE, '', ''))
        self.assertEqual(self.ask(s, 'locks', '--json'), (DONE, '{"locks":[],"more":false}\n', ''))

    def test_locks_failing_in_the_middle_print_one_json_value(self):
        s = self.server(self.page(b'h2', b'a'), b'-ERR gone\r\n')
        code, out, _ = self.ask(s, 'locks', '--json')
        self.assertEqual((code, json.loads(out)['error']), (USAGE, 'EINVAL'))

    def test_status(self):
        leader = self.server(bulk(INFO_LEADER))
        behind = self.server(bulk(INFO_LEADER.replace(b'node_role:leader', b'node_role:follower').replace(b'node_id:1', b'node_id:2')
                                  .replace(b'applied_index:120', b'applied_index:110')))
        dead = self.server(b'', listen=False)
        code, out, err = self.status([leader, behind, dead])
        w = max(len(s.address) for s in (leader, behind, dead))
        self.assertEqual((code, out), (NO, '\n'.join([
            '%-*s  ID  ROLE         TERM  COMMIT  APPLIED  LAG  LAST TOKEN  CLIENTS   UPTIME  VERSION' % (w, 'NODE'),
            '%-*s   1  leader          4     120      120    0          33        5  1 h 2 m  0.1.0' % (w, leader.address),
            '%-*s   2  follower        4     120      110   10          33        5  1 h 2 m  0.1.0' % (w, behind.address),
            '%-*s   -  unreachable     -       -        -    -           -        -        -  -' % (w, dead.address),
            ''])))
        self.assertEqual(err, 'fencelock: %s: cannot connect: Connection refused\n' % dead.address)
        code, out, _ = self.status([leader, behind, dead], '--json')
        value = json.loads(out)
        self.assertEqual((code, value['leader'], value['healthy']), (NO, leader.address, False))
        self.assertEqual(value['problems'], [dead.address + ': cannot connect: Connection refused'])
        self.assertEqual(value['nodes'][1], {
            'address': behind.address, 'reachable': True, 'id': 2, 'role': 'follower', 'term': 4, 'commit_index': 120,
            'applied_index': 110, 'lag': 10, 'last_token': 33, 'locks_held': 2, 'clients': 5, 'log_bytes': 0, 'log_write_avg_us': 0, 'log_waits': False, 'uptime_ms': 3725000,
            'version': '0.1.0'})
        self.assertEqual((value['nodes'][2]['reachable'], value['nodes'][2]['error']), (False, 'ENOCONN'))

    def test_status_without_a_leader(self):
        follower = self.server(bulk(INFO_LEADER.replace(b'node_role:leader', b'node_role:follower')))
        code, out, err = self.status(follower, '--json')
        self.assertEqual((code, json.loads(out)['leader']), (UNKNOWN, None))
        self.assertIn('none of these nodes leads', err)

    def test_status_of_a_deposed_leader_and_a_new_one(self):
        old = self.server(bulk(INFO_LEADER))
        new = self.server(bulk(INFO_LEADER.replace(b'term:4', b'term:5')))
        for servers in ([old, new], [new, old]):
            self.assertEqual(json.loads(self.status(servers, '--json')[1])['leader'], new.address)

    def test_errors_from_the_wire_cannot_drive_a_terminal(self):
        s = self.server(b'-LIMIT \x1b[2J\x07 boo\r\n')
        _, out, err = self.ask(s, 'acquire', 'x', '--json')
        self.assertIn('\\x1b[2J\\x07 boo', err)
        self.assertIn('\x1b[2J', json.loads(out)['message'])

    def test_terminal(self):
        s = self.server(b':33\r\n')
        nodes = {'FENCELOCK_NODES': s.address}
        acquire = ('acquire', 'report', '--owner', OWNER, '--ttl', '10h') # less a hundredth, for clocks that differ
        code, seen = self.on_terminal(*acquire, env=nodes)
        self.assertEqual(code, DONE)
        self.assertRegex(seen, r'^report: \x1b\[32macquired\x1b\[0m, token \x1b\[1m33\x1b\[0m, valid for 9 h 5\d m, '
                               r'owner 0123456789abcdef\n$')
        plain = r'^report: acquired, token 33, valid for 9 h 5\d m, owner 0123456789abcdef\n$'
        self.assertRegex(self.on_terminal(*acquire, env=dict(nodes, NO_COLOR='1'))[1], plain)
        self.assertRegex(self.on_terminal(*acquire, '--no-color', env=nodes)[1], plain)
        s = self.server(self.page(b''))
        self.assertEqual(self.on_terminal('locks', '--nodes', s.address), (DONE, 'no locks\n'))


class Store(CliCase):
    def test_done(self):
        fence = ('--lock', 'l', '--token', '7')
        s = self.server(b'+OK\r\n')
        self.assertEqual(self.ask_store(s, 'set', 'k', 'v', *fence), (DONE, 'k: written under token 7\n', ''))
        self.assertEqual(self.ask_store(s, 'set', 'k', 'v', *fence, '--json'),
                         (DONE, '{"written":true,"key":"k","token":7}\n', ''))
        self.assertEqual(self.ask_store(s, 'set', 'k', '-v'), (USAGE, '', 'fencelock: there is no option -v; see '
                                                                         'fencelock --help\n'))
        self.assertEqual(self.run_cli('store', 'set', '--store', s.address, '--', 'k', '-v'), (DONE, 'k: written\n', ''))
        self.assertEqual(s.requests[-1], [b'SET', b'k', b'-v'])
        self.assertEqual(self.ask_store(s, 'claim', *fence), (DONE, 'l: claimed under token 7\n', ''))
        self.assertEqual(self.ask_store(s, 'claim', *fence, '--json'),
                         (DONE, '{"claimed":true,"lock":"l","token":7}\n', ''))
        s = self.server(b':1\r\n')
        self.assertEqual(self.ask_store(s, 'del', 'k', *fence), (DONE, 'k: deleted under token 7\n', ''))
        self.assertEqual(s.requests, [[b'DEL', b'k', b'FENCE', b'l', b'7']])
        s = self.server(b':34\r\n')
        self.assertEqual(self.ask_store(s, 'mark', '--lock', 'l'), (DONE, '34\n', ''))
        self.assertEqual(self.ask_store(s, 'mark', '--lock', 'l', '--json'), (DONE, '{"lock":"l","mark":34}\n', ''))

    def test_get(self):
        s = self.server(bulk(b'a\nb'))
        self.assertEqual(self.ask_store(s, 'get', 'k'), (DONE, 'a\nb', '')) # exactly the bytes
        self.assertEqual(self.ask_store(s, 'get', 'k', '--json'), (DONE, '{"found":true,"key":"k","value":"a\\u000ab"}\n', ''))
        self.assertEqual(self.on_terminal('store', 'get', 'k', '--store', s.address), (DONE, 'a\\x0ab\n'))
        self.assertEqual(self.ask_store(self.server(bulk(b'\xff\x00')), 'get', 'k', '--json')[1],
                         '{"found":true,"key":"k","value":"\\ufffd\\u0000","value_base64":"/wA="}\n')
        # A storage has marks, too; what is none is told apart by that.
        s = self.server(lambda request: b':0\r\n' if request[0] == b'MARK' else b'$-1\r\n')
        self.assertEqual(self.ask_store(s, 'get', 'k'), (MISSING, '', "fencelock: there is no key 'k'; --default TEXT prints TEXT instead\n"))
        self.assertEqual(self.ask_store(s, 'get', 'k', '--json'), (MISSING, '{"found":false,"key":"k"}\n', ''))

    def test_refusals(self):
        stale = b'-STALE token 33 is below the mark 34 of lock mark 9: a newer holder has been here\r\n'
        code, out, err = self.ask_store(self.server(stale), 'set', 'k', 'v', '--lock', 'l', '--token', '33', '--json')
        value = json.loads(out)
        self.assertEqual((code, value['error'], value['class'], value['token'], value['mark']),
                         (NO, 'ESTALE', 'refused', 33, 34))
        self.assertIn('token 33 is below the mark 34', err)
        self.assertIn('acquire the lock again', err)
        code, out, _ = self.ask_store(self.server(b'-WRONGLOCK x\r\n'), 'set', 'k', 'v', '--lock', 'l', '--token', '3',
                                      '--json')
        self.assertEqual((code, json.loads(out)['error']), (NO, 'EWRONGLOCK'))
        code, out, err = self.ask_store(self.server(b'-NOTOKEN x\r\n'), 'set', 'k', 'v', '--json')
        self.assertEqual((code, json.loads(out)['error']), (NO, 'ENOTOKEN'))
        self.assertIn('--lock', err)

    def test_environment(self):
        s = self.server(b'+OK\r\n')
        env = {'FENCELOCK_STORE': s.address, 'FENCELOCK_LOCK': 'l', 'FENCELOCK_TOKEN': '7'}
        self.assertEqual(self.run_cli('store', 'set', 'k', 'v', env=env)[0], DONE)
        self.assertEqual(self.run_cli('store', 'set', 'k', 'v', '--token', '8', env=env)[0], DONE)
        self.assertEqual(self.run_cli('store', 'claim', env=env)[0], DONE)
        self.assertEqual(s.requests, [[b'SET', b'k', b'v', b'FENCE', b'l', b'7'],
                                      [b'SET', b'k', b'v', b'FENCE', b'l', b'8'], [b'CLAIM', b'l', b'7']])


if __name__ == '__main__':
    main()
