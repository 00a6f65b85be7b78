#!/usr/bin/python3
"""What `fencelock` says to somebody who meets it for the first time: what to do about a refusal, and why it waits; and to
operators on a bad day."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import main
from cli_scripted import CLOSE, DONE, NO, UNKNOWN, USAGE, CliCase


class Remedies(CliCase):
    def test_status_when_no_node_could_be_asked(self):
        """A port that refuses says nothing about leaders."""
        for server in (self.server(b'-NOAUTH Authentication required.\r\n'), self.server(b'', listen=False)):
            code, out, err = self.ask(server, 'status')
            self.assertEqual(code, UNKNOWN)
            self.assertIn('could be asked', err)
            self.assertNotIn('none of these nodes leads', err)

    def test_help_is_a_command_too(self):
        for words in ([], ['acquire'], ['cluster', 'add']):
            code, out, err = self.run_cli('help', *words)
            self.assertEqual((code, err), (DONE, ''))
            self.assertEqual(out, self.run_cli(*words, '--help')[1])
        self.assertEqual(self.run_cli('help', 'nosuch')[0], USAGE)

    def test_what_to_do_about_a_refusal(self):
        code, _, err = self.ask(self.server(b'-NOAUTH Authentication required.\r\n'), 'acquire', 'x')
        self.assertEqual(code, NO)
        self.assertIn('Log in with --user', err)
        stale = self.server(b'-STALE token 1 is below the mark 2; acquire the lock again\r\n')
        code, _, err = self.ask_store(stale, 'set', 'k', 'v', '--lock', 'x', '--token', '1')
        self.assertEqual((code, err.count('acquire the lock again')), (NO, 1))

    def test_a_person_is_told_why_nothing_happens(self):
        dead = self.server(b'', listen=False)
        code, seen = self.on_terminal('show', 'x', '--nodes', dead.address)
        self.assertEqual(code, UNKNOWN)
        self.assertIn('fencelock: waiting: no node takes the request: %s: cannot connect' % dead.address, seen)

class Strange(CliCase):
    """Answers that no node of today gives, or only on a bad day."""

    def test_a_change_of_members_that_is_refused_after_an_unknown_try_is_not_done(self):
        for change in (('transfer', '2'), ('transfer',), ('forget', '2'), ('replace', '2')):
            with self.subTest(change=change):
                s = self.server(CLOSE, b'-ERR node 2 is not a member\r\n')
                code, out, err = self.ask(s, 'cluster', *change)
                self.assertEqual((code, out), (UNKNOWN, ''))
                self.assertIn('node 2 is not a member', err)
                self.assertEqual(s.requests[0], s.requests[1])


if __name__ == '__main__':
    main()
