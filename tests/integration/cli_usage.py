#!/usr/bin/python3
"""What `fencelock` says to a wrong command line, its help, and the limits of its options."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import main
from cli_scripted import DONE, OWNER, USAGE, CliCase


class Usage(CliCase):
    def test_wrong_usage_says_what_to_write(self):
        for args, needle in (
                ((), 'fencelock --help'), (('acquir', 'x'), "did you mean 'acquire'?"), (('frobnicate',), '--help'),
                (('acquire',), 'write fencelock acquire NAME'), (('acquire', 'x', 'y'), "'y' is one argument too many"),
                (('acquire', 'x', '--tll', '5'), 'did you mean --ttl?'), (('show', 'x', '--jsno'), 'did you mean --json?'), (('acquire', 'x', '--ttl'), '--ttl TIME'),
                (('acquire', 'x', '--ttl', 'soon'), '500ms, 5s, 2m, 1h'), (('acquire', 'x', '--ttl', '5ms'), "--ttl: '5ms' is not a time from 10ms to 24h"),
                (('acquire', 'x', '--ttl', '0'), 'from 10ms to 24h'), (('acquire', 'x', '--ttl', '25h'), 'from 10ms to 24h'),
                (('acquire', 'x', '--wait', '25h'), "--wait: '25h' is not a time from 0ms to 24h"), (('acquire', 'x', '--owner', 'me'), '--owner has 16 to 255'),
                (('acquire', ''), '1 to 255 bytes'), (('acquire', 'n' * 256), '1 to 255 bytes'),
                (('acquire', 'x', '--value', 'v' * 1025), '--value has at most 1024'), (('acquire', 'x', '--timeout', '25h'), '24h'),
                (('acquire', 'x', '--json=yes'), 'takes no value'), (('acquire', 'x', '--json', '--json'), 'given twice'),
                (('release', 'x', '0'), 'not a token'), (('release', 'x', '9007199254740992'), 'not a token'),
                (('check', 'x', '-1'), 'no option -1'), (('release', 'x', '7', '--owner', OWNER), 'release takes no --owner'),
                (('store',), 'get, set, del, claim, mark'), (('store', 'gett', 'x'), "did you mean 'store get'?"),
                (('store', 'claim'), '--lock NAME and --token N'), (('store', 'mark'), '--lock NAME'),
                (('store', 'get', 'k', '--lock', 'l'), '--lock needs --token'),
                (('store', 'get', 'k', '--store', 'nowhere'), 'has no port'),
                (('run', '', 'true'), '1 to 255 bytes'), (('run', 'n' * 256, 'true'), '1 to 255 bytes'),
                (('run', 'x', '--owner', '', 'true'), '--owner has 16 to 255'), (('run', 'x', '--owner', 'me', 'true'), '--owner'),
                (('run', 'x', '--value', 'v' * 1025, 'true'), '--value has at most 1024'),
                (('run', 'x', '--wait', '25h', 'true'), 'from 0ms to 24h'),
                (('run', 'x', '--json', 'true'), 'run takes no --json'),
                (('run', 'x', '--nodes', 'a:0', 'true'), '1 to 65535'),
                (('acquire', 'x', '--timeout', '0'), "--timeout: '0' is not a time from 1ms to 24h"),
                (('renew', 'x', '7', '--ttl', '0'), 'from 10ms to 24h'),
                (('locks', '--limit', '9' * 30), 'not a whole number from 0 to'), (('health', '--wait', '18446744073709551615'), 'from 0ms to 24h'),
                (('status', 'x'), 'write fencelock status\n'), (('backup', ''), '1 to 3000 bytes'),
                (('token', 'x', '--user', 'me', '--password-file', '/nowhere/at/all'), 'No such file'),
                (('redlock', 'acquire', '', '--redis', 'a:1'), '1 to 255 bytes, not 0'),
                (('redlock', 'release', 'n' * 256, 'o' * 40, '--redis', 'a:1'), '1 to 255 bytes, not 256'),
                (('redlock', 'acquire', 'x', '--redis', 'a:1', '--max-ttl', '0'), "--max-ttl: '0' is not a time from 10ms to 24h"),
                (('redlock', 'run', 'x', '--redis', 'a:1', '--max-hold', '25h', 'true'), '--max-hold of redlock is at most 24h'),
                (('redlock', 'run', 'x', '--redis', 'a:1', '--json', 'true'), 'run takes no --json'),
                (('demo', 'redlock', '--svg', '/nowhere/at/all.svg'), '--svg: cannot write'),
                (('show', 'x', '--nodes', 'a:1,,b:2'), 'is empty'), (('show', 'x', '--nodes', 'a:0'), '1 to 65535')):
            with self.subTest(args):
                code, out, err = self.run_cli(*args)
                self.assertEqual((code, out), (USAGE, ''))
                self.assertIn(needle, err)
                self.assertEqual(err.count('\n'), 1) # a sentence, not a page

    def test_limits_are_reachable(self):
        s = self.server(b':33\r\n')
        for args in (('n' * 255,), ('x', '--owner', 'o' * 255), ('x', '--owner', 'o' * 16), ('x', '--value', 'v' * 1024),
                     ('x', '--ttl', '24h'), ('x', '--wait', '24h'), ('x', '--timeout', '24h')):
            code, out, _ = self.run_cli('acquire', *args, '--nodes', s.address)
            self.assertEqual((code, out), (DONE, '33\n'))

    def test_help(self):
        code, out, _ = self.run_cli('--help')
        self.assertEqual(code, DONE)
        self.assertTrue(all(len(line) <= 100 for line in out.splitlines()))
        for command in ('acquire', 'renew', 'release', 'check', 'token', 'show', 'locks', 'break', 'status'):
            self.assertIn('\n  %s ' % command, out)
            code, help_text, _ = self.run_cli(command, '--help')
            self.assertEqual(code, DONE)
            self.assertTrue(help_text.startswith('fencelock %s ' % command), help_text)
            self.assertTrue(all(len(line) <= 100 for line in help_text.splitlines()))
        for command in (['run'], ['redlock', 'run']): # what their command prints is not theirs
            self.assertNotIn('--json', self.run_cli(*command, '--help')[1])
        for sub in ('get', 'set', 'del', 'claim', 'mark'):
            self.assertEqual(self.run_cli('store', sub, '-h')[0], DONE)
        self.assertEqual(self.run_cli('store', '--help')[0], DONE)
        self.assertEqual(self.run_cli('--version')[1], 'fencelock 0.1.0\n')

    def test_options_anywhere(self):
        s = self.server(b':1\r\n')
        nodes = '--nodes=' + s.address
        for args in ((nodes, 'release', 'x', '7'), ('release', nodes, 'x', '7'), ('release', 'x', '7', nodes)):
            self.assertEqual(self.run_cli(*args)[0], DONE)


if __name__ == '__main__':
    main()
