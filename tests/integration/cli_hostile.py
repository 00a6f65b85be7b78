#!/usr/bin/python3
"""`fencelock` against servers whose answers are well-formed, make no sense, and do not end."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cli_scripted import NO, UNKNOWN, USAGE, CliCase
from harness import PATIENCE_S, Case, Cluster, binary, env_without_options, main, wait_until
from scripted_server import ScriptedServer, bulk


class Hostile(CliCase):
    def fencelock(self, *args):
        return subprocess.run([binary('fencelock'), *args], env=env_without_options(), timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
                              capture_output=True)

    def test_a_node_that_does_not_lead_and_names_itself(self):
        node = self.server(b'-NOLEADER there is none\r\n')
        node.leader = b'*2\r\n:1\r\n' + bulk(node.address.encode())
        done = self.fencelock('cluster', 'transfer', '2', '--nodes', node.address, '--timeout', '3s')
        self.assertEqual(done.returncode, UNKNOWN)
        self.assertIn(b'NOLEADER', done.stderr)
        self.assertIn(len(node.requests), range(1, 50)) # it is asked five times a second

    def test_an_answer_that_the_question_does_not_have(self):
        """No list, no token, no setting's name: it is an error, and the end."""
        for words in (('locks',), ('sessions',), ('locks', '--by', 'wait'), ('token', 'x'), ('check', 'x', '1', '--json')):
            done = self.fencelock(*words, '--nodes', self.server(b'-NOTFOUND there is none\r\n').address)
            self.assertEqual(done.returncode, NO, done)
            self.assertIn(b'NOTFOUND there is none', done.stderr)
            self.assertEqual(b'"error"' in done.stdout, '--json' in words, done.stdout)
        for words in (('locks',), ('sessions',), ('locks', '--by', 'wait')):
            self.assertEqual(self.fencelock(*words, '--nodes', self.server(b'$-1\r\n').address).returncode, NO)
        for answer in (b'*2\r\n:1\r\n:2\r\n', b'*2\r\n*-1\r\n*-1\r\n'):
            done = self.fencelock('cluster', 'config', 'get', 'log-level', '--nodes', self.server(answer).address)
            self.assertEqual(done.returncode, USAGE, done)
            self.assertIn(b'there is no such name', done.stderr)

    def test_the_time_of_a_backup_without_timeout(self):
        """The next piece may be late."""
        node = self.server(b':5\r\n', b'$-1\r\n', b'$1000\r\n' + b'x' * 1000 + b'\r\n', b'$-1\r\n', b'$-1\r\n', b'$0\r\n\r\n')
        done = self.fencelock('backup', self.lab.path('backup'), '--nodes', node.address)
        self.assertIn(b'it is no backup of fencelock', done.stderr) # it has taken all of it
        self.assertEqual(len(node.requests), 6)


# They turn the text behind them, break a line, and begin a sequence for the terminal.
MARKS = ['\u202e', '\u2066', '\u200f', '\u061c', '\u2028', '\u009b', '\x1b', '\x7f']
MARKED = 'a' + ''.join(m + 'b' for m in MARKS)


class Marks(Case):
    """Names, owners, labels and values of others, in everything that prints them: none of these characters comes through."""

    def setUp(self):
        super().setUp()
        self.node = Cluster(self.lab, 1).start().nodes[0]

    def prints(self, *args, code=0):
        done = subprocess.run([binary('fencelock'), *args], timeout=PATIENCE_S, stdin=subprocess.DEVNULL, capture_output=True,
                              env=env_without_options(FENCELOCK_NODES=self.node.address, FENCELOCK_TIMEOUT='120s'))
        self.assertEqual(done.returncode, code, done.stderr)
        for text in (done.stdout.decode(), done.stderr.decode()):
            for mark in MARKS:
                self.assertNotIn(mark, text, args)
        return done.stdout.decode() + done.stderr.decode()

    def test_the_tool(self):
        session = MARKED + '-session-0123456789'
        self.node.call('SESSION', 'OPEN', session, 'TTL', 600000, 'LABEL', MARKED)
        self.node.call('ACQUIRE', MARKED, 'SESSION', session, 'VALUE', MARKED)
        waiter = self.node.client()
        self.addCleanup(waiter.close)
        waiter.send('ACQUIRE', MARKED, 'TTL', 600000, 'OWNER', MARKED + '-waiter-0123456789', 'WAIT', 600000)
        wait_until(lambda: len(self.node.show(MARKED)[b'queue']) == 1, 'the waiter')
        escaped = 'a\\xe2\\x80\\xaeb'
        for words in (['locks'], ['show', MARKED], ['queue', MARKED], ['sessions']):
            self.assertIn(escaped, self.prints(*words))
            self.assertIn(repr(MARKED)[1:-1], repr(json.loads(self.prints(*words, '--json')))) # whole for programs
        self.assertIn(escaped, self.prints('acquire', MARKED, code=1))
        self.assertIn(escaped, self.prints('run', MARKED, '--wait', '0', 'true', code=124))
        self.assertIn(escaped, self.prints('locks', '--by', 'wait'))
        self.node.call('ACL', 'SETUSER', 'reader', 'on', '>a-good-password', '~a\u202eb', '+@see')
        self.assertIn(escaped, self.prints('user', 'list'))
        self.assertIn('a\\u202eb', self.prints('user', 'list', '--json')) # it was escaped twice

    def test_watch(self):
        for words in ([], ['--json']):
            watch = self.kill_at_cleanup(subprocess.Popen([binary('fencelock'), 'watch', '--limit', '1', '--nodes', self.node.address, *words],
                                                          stdout=subprocess.PIPE, env=env_without_options()))
            wait_until(lambda: self.node.info()['pubsub_clients'] == 1, 'the subscription')
            self.node.call('ACQUIRE', MARKED, 'TTL', 600000, 'OWNER', MARKED + '-owner-0123456789')
            out = watch.communicate(timeout=PATIENCE_S)[0].decode()
            for mark in MARKS:
                self.assertNotIn(mark, out)
            self.node.call('BREAK', MARKED)

    def test_an_error_of_a_server(self):
        node = ScriptedServer([('-ERR ' + MARKED + '\r\n').encode()])
        self.addCleanup(node.close)
        done = subprocess.run([binary('fencelock'), 'token', 'x', '--nodes', node.address], env=env_without_options(), timeout=PATIENCE_S,
                              stdin=subprocess.DEVNULL, capture_output=True)
        self.assertIn('a\\xe2\\x80\\xaeb', done.stderr.decode())
        for mark in MARKS:
            self.assertNotIn(mark, done.stderr.decode())


if __name__ == '__main__':
    main()
