#!/usr/bin/python3
"""The guard of MariaDB on a real server: every attack, with the guard and without."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', '..', 'src', 'guards', 'kit')]
from guardkit.mysql import MySQL
from guardkit.suite import Suite
from harness import Case, main, seed, wait_until
from servers import ROOT, make_directory, unprivileged


class MariaDB:
    def __init__(self, lab):
        self.lab, self.data = lab, lab.path('mariadb')
        self.words, self.user = unprivileged('mysql')
        self.socket = os.path.join(tempfile.gettempdir(), 'fencelock-maria-%d.sock' % os.getpid())
        make_directory(self.data, self.user)
        done = subprocess.run(self.words + ['mariadb-install-db', '--no-defaults', '--datadir=' + self.data, '--skip-test-db',
                                            '--auth-root-authentication-method=normal'], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, cwd='/')
        assert done.returncode == 0, done.stdout.decode()
        self.root = ['--no-defaults', '-uroot', '-S', self.socket]
        self.writer = ['--no-defaults', '-uapp', '-S', self.socket]

    def start(self):
        self.process = self.lab.start(self.words + [
            '/usr/sbin/mariadbd', '--no-defaults', '--datadir=' + self.data, '--socket=' + self.socket, '--skip-networking',
            '--pid-file=' + self.data + '/pid', '--innodb-buffer-pool-size=32M', '--innodb-lock-wait-timeout=20',
            '--max-connections=300', '--skip-log-bin'], 'mariadb')
        wait_until(lambda: subprocess.run(['mariadb'] + self.root + ['-e', 'SELECT 1'], stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL).returncode == 0, 60, 'an answer of MariaDB')
        return self

    def run(self, sql):
        done = subprocess.run(['mariadb'] + self.root, input=sql.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout.decode()

    def kill(self):
        self.process.kill()


class MySQLOff(MySQL):
    def protect(self, on):
        pass


@unittest.skipUnless(os.path.exists('/usr/sbin/mariadbd') and shutil.which('mariadb'), 'mariadb-server is not installed')
class MariaDBGuard(Case):
    TIMEOUT_S = 500

    def setUp(self):
        super().setUp()
        self.server = MariaDB(self.lab).start()
        with open(os.path.join(ROOT, 'src', 'guards', 'mysql', 'guard.sql')) as f:
            script = f.read()
        for _ in range(2): # again does no harm
            self.server.run(script)
        self.server.run("CREATE DATABASE shop; CREATE USER app@localhost; GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO app@localhost;"
                        "GRANT EXECUTE ON PROCEDURE fence.claim TO app@localhost; GRANT EXECUTE ON PROCEDURE fence.`use` TO app@localhost;"
                        "GRANT EXECUTE ON PROCEDURE fence.admit TO app@localhost;")

    def attack(self, kind, *only):
        storage = kind(self.server.root, self.server.writer, self.server)
        self.addCleanup(storage.close)
        return Suite(storage, seed(), rounds=40, crashes=2).run(only or None)

    def test_every_attack(self):
        report = self.attack(MySQL)
        for row in report.rows:
            if row[2] != 'holds':
                self.note('%s %s: %s' % (row[2], row[1], row[3]))
        self.assertTrue(report.ok())
        self.note('%s: %d attacks withstood' % (report.storage, report.count('holds')))

    def test_with_the_guard_off_updates_are_lost(self):
        found = {row[1]: row[2:4] for row in self.attack(MySQLOff, 'random', 'stale UPDATE').rows}
        self.assertEqual(found['many writers at random'][0], 'BROKEN')
        self.assertIn('lost', found['many writers at random'][1])
        self.assertEqual(found['stale UPDATE'][0], 'BROKEN')


if __name__ == '__main__':
    main()
