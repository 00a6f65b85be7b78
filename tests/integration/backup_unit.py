#!/usr/bin/python3
"""The units that take a backup on a schedule: what systemd says of them, and the command of the service as it stands."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Case, Cluster, binary, main

UNITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'deploy', 'systemd')


class BackupUnit(Case):
    def unit(self):
        """The service as it is installed, with the programs of this build."""
        with open(os.path.join(UNITS, 'fencelock-backup.service.in'), encoding='utf-8') as f:
            return f.read().replace('@bindir@', os.path.dirname(binary('fencelock')))

    def values(self, key):
        return [line.partition('=')[2] for line in self.unit().splitlines() if line.startswith(key + '=')]

    @unittest.skipUnless(shutil.which('systemd-analyze'), 'there is no systemd-analyze here')
    def test_systemd_takes_the_units(self):
        folder = self.lab.path('units')
        os.mkdir(folder)
        with open(os.path.join(folder, 'fencelock-backup.service'), 'w', encoding='utf-8') as f:
            f.write(self.unit())
        shutil.copy(os.path.join(UNITS, 'fencelock-backup.timer'), folder)
        paths = [os.path.join(folder, name) for name in ('fencelock-backup.service', 'fencelock-backup.timer')]
        done = subprocess.run(['systemd-analyze', 'verify', '--man=no'] + paths, capture_output=True, text=True, timeout=60)
        said = [line for line in (done.stdout + done.stderr).splitlines() if 'fencelock' in line]
        self.assertEqual((done.returncode, said), (0, []), done.stderr)

    def test_its_command(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        folder = self.lab.path('backups')
        os.mkdir(folder)
        env = {'PATH': os.environ['PATH']}
        for value in self.values('Environment'):
            env.update(pair.split('=', 1) for pair in shlex.split(value))
        env['FENCELOCK_NODES'] = node.address # as backup.env says
        command, = self.values('ExecStart')
        self.assertIn('/var/lib/' + self.values('StateDirectory')[0], command)
        words = [word.replace('${KEEP}', env['KEEP']) for word in shlex.split(command)]
        words[-1] = folder
        for _ in range(2):
            node.call('TOKEN', 'x')
            done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
        names = sorted(os.listdir(folder))
        self.assertEqual(len(names), 2)
        self.assertEqual({os.stat(os.path.join(folder, name)).st_mode & 0o777 for name in names}, {0o600})
        check = subprocess.run([binary('fencelock'), 'backup', '--verify', '--json', os.path.join(folder, names[1])],
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(json.loads(check.stdout)['last_token'], 2)


if __name__ == '__main__':
    main()
