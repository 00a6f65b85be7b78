#!/usr/bin/python3
"""README's way to a secured cluster, command by command as it stands there, on ports that are free."""

import os
import re
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
from harness import PATIENCE_S, Case, free_ports, main, wait_until
from harness.lab import build_dir

ROOT = os.path.abspath(os.path.join(HERE, '..', '..'))
COMMANDS_MAX = 8


def block():
    """The commands of the block in README.md that is marked so."""
    with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as f:
        text = re.search(r'<!-- secure -->\n```sh\n(.*?)```', f.read(), re.S).group(1)
    return text.replace('\\\n', ' ').strip().split('\n')


class Secure(Case):
    def setUp(self):
        super().setUp()
        self.client_port, self.peer_port = free_ports(2)
        self.commands = [c.replace('7401', str(self.client_port)).replace('7501', str(self.peer_port)) for c in block()]
        self.env = dict(os.environ, PATH='%s:%s' % (os.path.join(build_dir(), 'src', 'cli'), os.environ['PATH']))
        self.dir = self.lab.path('readme')
        os.makedirs(self.dir)
        os.symlink(os.path.join(ROOT, 'deploy'), os.path.join(self.dir, 'deploy'))

    def shell(self, text):
        return subprocess.run(['bash', '-c', text], cwd=self.dir, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S)

    def test_its_commands(self):
        self.assertLessEqual(len(self.commands), COMMANDS_MAX)
        script = '\n'.join('%s || exit 9' % c if not c.endswith('done') or '&' not in c else c for c in self.commands[:-1])
        daemons = subprocess.Popen(['bash', '-c', script + '\nwait'], cwd=self.dir, env=self.env, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(daemons.stdout.close)
        self.addCleanup(daemons.wait)
        self.addCleanup(self.end, daemons)
        last = self.commands[-1]
        done = wait_until(lambda: (d := self.shell(last)).returncode == 0 and d, 'a lock')
        self.assertRegex(done.stdout, r'^[1-9][0-9]*\n$')
        stranger = self.shell(re.sub(r'--cert.*', '', last))
        self.assertNotEqual(stranger.returncode, 0)
        self.assertEqual(stranger.stdout, '')
        plain = self.shell(re.sub(r'--tls.*', '', last))
        self.assertNotEqual(plain.returncode, 0)
        self.assertEqual(plain.stdout, '')

    def end(self, daemons):
        os.killpg(daemons.pid, signal.SIGTERM)


if __name__ == '__main__':
    main()
