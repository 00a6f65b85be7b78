#!/usr/bin/python3
"""The unit that takes a backup of a cluster on a schedule: what systemd says of it, and the command of its service as
it stands. `tests/boot` has a systemd run them."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, binary, main

DEPLOY = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'deploy')
UNITS = os.path.join(DEPLOY, 'systemd')


class BackupUnit(Case):
    def unit(self, name):
        """The service as it is installed, with the programs of this build."""
        with open(os.path.join(UNITS, name + '.service.in'), encoding='utf-8') as f:
            return f.read().replace('@bindir@', os.path.dirname(binary('fencelock')))

    def values(self, name, key):
        return [line.partition('=')[2] for line in self.unit(name).splitlines() if line.startswith(key + '=')]

    def variables(self, name):
        """What the service says, and the names that the file of variables explains."""
        env = dict(pair.split('=', 1) for value in self.values(name, 'Environment') for pair in shlex.split(value))
        path, = self.values(name, 'EnvironmentFile')
        with open(os.path.join(DEPLOY, 'config', os.path.basename(path)), encoding='utf-8') as f:
            self.assertLessEqual(set(env), {line[1:].partition('=')[0] for line in f if '=' in line})
        return env

    @unittest.skipUnless(shutil.which('systemd-analyze'), 'there is no systemd-analyze here')
    def check_by_systemd(self, name):
        folder = self.lab.path('units')
        os.mkdir(folder)
        with open(os.path.join(folder, name + '.service'), 'w', encoding='utf-8') as f:
            f.write(self.unit(name))
        shutil.copy(os.path.join(UNITS, name + '.timer'), folder)
        paths = [os.path.join(folder, name + '.' + kind) for kind in ('service', 'timer')]
        done = subprocess.run(['systemd-analyze', 'verify', '--man=no'] + paths, capture_output=True, text=True, timeout=PATIENCE_S)
        said = [line for line in (done.stdout + done.stderr).splitlines() if 'fencelock' in line]
        self.assertEqual((done.returncode, said), (0, []), done.stderr)

    def test_systemd_takes_the_units(self):
        self.check_by_systemd('fencelock-backup')

    def run_service(self, name, **where):
        """Its command, with the folder of this test in place of the one that systemd makes. Returns the file that it has added."""
        folder = self.lab.path('backups')
        os.makedirs(folder, exist_ok=True)
        command, = self.values(name, 'ExecStart')
        self.assertIn('/var/lib/' + self.values(name, 'StateDirectory')[0], command)
        env = self.variables(name)
        self.assertLessEqual(set(where), set(env))
        words = [word.replace('${KEEP}', env['KEEP']) for word in shlex.split(command)]
        words[-1] = folder
        before = set(os.listdir(folder))
        done = subprocess.run(words, env=dict(env, PATH=os.environ['PATH'], FENCELOCK_TIMEOUT='200s', **where), capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        added, = set(os.listdir(folder)) - before
        path = os.path.join(folder, added)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        return path

    def inside(self, path):
        done = subprocess.run([binary('fencelock'), 'backup', '--verify', '--json', path], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_its_command(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        for token in (1, 2):
            node.call('TOKEN', 'x')
            path = self.run_service('fencelock-backup', FENCELOCK_NODES=node.address)
            self.assertEqual(self.inside(path)['last_token'], token)


if __name__ == '__main__':
    main()
