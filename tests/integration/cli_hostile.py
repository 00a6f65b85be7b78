#!/usr/bin/python3
"""`fencelock` against servers whose answers are well-formed, make no sense, and do not end."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cli_scripted import UNKNOWN, CliCase
from harness import PATIENCE_S, binary, env_without_options, main
from scripted_server import bulk


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

    def test_the_time_of_a_backup_without_timeout(self):
        """The next piece may be late."""
        node = self.server(b':5\r\n', b'$-1\r\n', b'$1000\r\n' + b'x' * 1000 + b'\r\n', b'$-1\r\n', b'$-1\r\n', b'$0\r\n\r\n')
        done = self.fencelock('store', 'backup', self.lab.path('backup'), '--store', node.address)
        self.assertIn(b'is damaged at byte', done.stderr) # it has taken all of it
        self.assertEqual(len(node.requests), 6)


if __name__ == '__main__':
    main()
