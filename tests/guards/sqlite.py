#!/usr/bin/python3
"""The guard of SQLite on real files, in processes of their own that are killed: every attack, with the guard and without.
LD_LIBRARY_PATH=FOLDER of another libsqlite3.so.0 is the same with that version."""

import json
import os
import sqlite3
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, '..', '..')
sys.path = [os.path.join(HERE, '..', 'lib'), os.path.join(ROOT, 'src', 'guards', 'kit'), os.path.join(ROOT, 'src', 'guards', 'sqlite')] + sys.path + [HERE]
import fencelock_sqlite
from guardkit.sqlite import SQLite
from guardkit.suite import Suite
from harness import Cluster, main, seed
from harness.lab import build_dir
from servers import ROUNDS, GuardCase


class SQLiteOff(SQLite):
    def protect(self):
        pass


class SQLiteGuard(GuardCase):
    def test_install_check_attack_adopt_uninstall(self):
        path = self.lab.path('shop.db')
        url = 'sqlite:' + path
        code, _, err = self.guard('check', url)
        self.assertEqual(code, 1) # and made no file
        self.assertIn('there is no file', err)
        db = sqlite3.connect(path, isolation_level=None)
        db.execute('CREATE TABLE account (id TEXT PRIMARY KEY, n INT)')
        db.execute("INSERT INTO account VALUES ('a', 1)")
        self.assertEqual(self.guard('check', url)[0], 1)
        for _ in range(2): # again does no harm
            code, out, err = self.guard('install', url, "account='account/' || {row}.id")
            self.assertEqual((code, err), (0, ''))
        self.assertEqual(self.guard('check', url, 'account'), (0, '1 table protected; nothing found wrong\n', ''))
        for wrong in ('nosuch', "'account/' || {row}.nosuch"): # and what was installed before stays
            code, _, err = self.guard('install', url, 'account=' + wrong)
            self.assertEqual(code, 1)
            self.assertIn('nosuch', err)
        self.assertIn("'account/'", db.execute("SELECT sql FROM sqlite_master WHERE name = 'fence_update_account'").fetchone()[0])
        code, out, err = self.guard('attack', url, 'account', '--json', '--seed', '5')
        report = json.loads(out)
        self.assertEqual((code, report['ok'], err), (0, True, ''), [a for a in report['attacks'] if a['outcome'] == 'BROKEN'])
        self.assertIn('UPDATE account', [a['attack'] for a in report['attacks']])
        self.assertEqual(db.execute('SELECT * FROM account').fetchall(), [('a', 1)])
        fence = fencelock_sqlite.Fenced(path)
        fence.claim('account/a', 3)
        fence.execute('UPDATE account SET n = 2')
        cluster = Cluster(self.lab, 1).start()
        for _ in range(9):
            cluster.nodes[0].call('TOKEN', 'x')
        code, out, err = self.guard('adopt', url, '--nodes', cluster.nodes[0].address)
        self.assertEqual((code, err), (0, ''))
        for lock in ('account/a', 'new'):
            with self.assertRaises(fencelock_sqlite.Refused) as e:
                fence.claim(lock, 9)
            self.assertEqual(e.exception.word, 'STALE')
        with self.assertRaises(fencelock_sqlite.Refused):
            fence.execute('UPDATE account SET n = 666')
        with self.assertRaises(sqlite3.Error):
            fence.db.execute('UPDATE fence_origin SET floor = 1')
        fence.claim('account/a', 20)
        db.execute('DROP TRIGGER fence_update_account')
        code, out, _ = self.guard('check', url)
        self.assertEqual(code, 1)
        self.assertIn('UPDATE of account is not guarded', out)
        self.assertEqual(self.guard('attack', url, 'account')[0], 1)
        fence.close()
        self.assertEqual(self.guard('uninstall', url)[0], 0)
        db = sqlite3.connect(path, isolation_level=None) # one that has not read the triggers
        db.execute('DELETE FROM account')
        self.assertEqual(db.execute("SELECT name FROM sqlite_master WHERE name LIKE '%fence%'").fetchall(), [])

    def test_check_names_triggers_of_an_older_guard(self):
        """Which called fence_admit() without a RAISE beside it."""
        path = self.lab.path('old.db')
        url = 'sqlite:' + path
        db = sqlite3.connect(path, isolation_level=None)
        db.execute('CREATE TABLE account (id TEXT PRIMARY KEY, lock TEXT)')
        self.assertEqual(self.guard('install', url, 'account=lock')[0], 0)
        db.execute('DROP TRIGGER fence_delete_account')
        db.execute('CREATE TRIGGER fence_delete_account AFTER DELETE ON account BEGIN\n'
                   '    SELECT fence_admit((OLD.lock), (SELECT mark FROM fence_mark WHERE lock = (OLD.lock)));\nEND')
        code, out, err = self.guard('check', url)
        self.assertEqual((code, err), (1, ''), out)
        self.assertIn('the triggers of account are those of an older guard', out)
        self.assertEqual(self.guard('install', url, 'account=lock')[0], 0)
        self.assertEqual(self.guard('check', url), (0, '1 table protected; nothing found wrong\n', ''))

    def test_what_somebody_else_made_first(self):
        path = self.lab.path('squat.db')
        url = 'sqlite:' + path
        db = sqlite3.connect(path, isolation_level=None)
        db.execute('CREATE TABLE account (id TEXT PRIMARY KEY, lock TEXT)')
        db.execute('CREATE TABLE fence_mark (lock TEXT COLLATE NOCASE PRIMARY KEY NOT NULL, mark INTEGER NOT NULL) WITHOUT ROWID')
        code, _, err = self.guard('install', url, 'account=lock')
        self.assertEqual(code, 1)
        self.assertIn('fence_mark is not as the guard makes it', err)
        db.execute('DROP TABLE fence_mark')
        self.assertEqual(self.guard('install', url, 'account=lock')[0], 0)
        # A trigger under a name of the guard that does nothing, and one of another name that undoes a claim.
        db.execute('DROP TRIGGER fence_mark_rises')
        db.execute('CREATE TRIGGER fence_mark_rises BEFORE UPDATE ON fence_mark BEGIN SELECT 1; END')
        db.execute('CREATE TRIGGER other AFTER INSERT ON fence_mark BEGIN UPDATE fence_mark SET mark = 1 WHERE lock = NEW.lock; END')
        code, out, _ = self.guard('check', url)
        self.assertEqual(code, 1)
        self.assertIn('fence_mark_rises is not as', out)
        self.assertIn('other is not as', out)
        db.execute('DROP TRIGGER other')
        self.assertEqual(self.guard('install', url)[0], 0) # makes the other one anew
        self.assertEqual(self.guard('check', url)[0], 0)

    def test_the_floor_holds_for_programs_that_claim_by_insert(self):
        path = self.lab.path('floor.db')
        fence = fencelock_sqlite.Fenced(path)
        fence.install()
        fence.claim('old', 3)
        fence.adopt(100)
        db = sqlite3.connect(path, isolation_level=None)
        for lock, token in (('old', 99), ('new', 99), ('new', 1)):
            for statement in ('INSERT INTO fence_mark VALUES (?, ?)', 'INSERT OR REPLACE INTO fence_mark VALUES (?, ?)',
                              'INSERT INTO fence_mark VALUES (?, ?) ON CONFLICT (lock) DO UPDATE SET mark = excluded.mark'):
                with self.assertRaises(sqlite3.Error):
                    db.execute(statement, (lock, token))
        self.assertEqual(db.execute('SELECT * FROM fence_mark').fetchall(), [('old', 100)])
        db.execute('INSERT INTO fence_mark VALUES (?, ?)', ('new', 100))

    def suite(self, kind):
        storage = kind(self.lab.path('shop.db'))
        self.addCleanup(storage.close)
        return Suite(storage, seed(), rounds=ROUNDS, crashes=2)

    def test_every_attack(self):
        report = self.suite(SQLite).run()
        self.note_attacks(report)
        self.assertTrue(report.ok())

    def test_with_the_guard_off_updates_are_lost(self):
        found = self.until_lost(self.suite(SQLiteOff), 'random', 'UPDATE')
        self.assertEqual(found['stale UPDATE'][0], 'BROKEN')

    @unittest.skipUnless(os.path.exists('/usr/include/sqlite3.h'), 'libsqlite3-dev is not installed')
    def test_the_snippet_in_c(self):
        path, program = self.lab.path('c.db'), self.lab.path('program')
        fence = fencelock_sqlite.Fenced(path)
        fence.install()
        fence.db.execute('CREATE TABLE account (id TEXT PRIMARY KEY, lock TEXT, balance INT)')
        fence.db.execute("INSERT INTO account VALUES ('a', 'acct', 100)")
        fence.protect('account', 'lock')
        fence.claim('acct', 7)
        source = self.lab.path('main.c')
        with open(source, 'w') as f:
            f.write('#include "fencelock_sqlite.c"\n#include <stdio.h>\n#include <stdlib.h>\n'
                    'int main(int argc, char **argv) { sqlite3 *db; char *e = NULL; struct fence_held h = {argv[2], strtoull(argv[3], 0, 10)};\n'
                    'if (sqlite3_open(argv[1], &db) || fencelock_sqlite_open(db, &h)) return 9;\n'
                    'int rc = sqlite3_exec(db, "UPDATE account SET balance = balance + 1", 0, 0, &e); puts(e ? e : "OK"); return rc != 0; }\n')
        subprocess.run(['cc', source, '-I', os.path.join(ROOT, 'src/guards/sqlite'), '-I', os.path.join(ROOT, 'include'), '-o', program,
                        os.path.join(build_dir(), 'src/fence/libfencelock-fence.a'), '-lsqlite3', '-lpthread'], check=True)
        run = lambda *words: subprocess.run([program, path, *words], stdout=subprocess.PIPE).stdout.decode().split()[0]
        self.assertEqual([run('acct', '7'), run('acct', '6'), run('acct', '8'), run('other', '7')], ['OK', 'STALE', 'NOTCLAIMED', 'NOTOKEN'])
        fence.claim('acct\0x', 8) # a name may have a NUL, and is another lock then
        fence.execute("UPDATE account SET lock = 'acct' || char(0) || 'x'")
        self.assertEqual(run('acct', '8'), 'NOTOKEN')


if __name__ == '__main__':
    main()
