#!/usr/bin/python3
"""The guard of SQLite on real files, in processes of their own that are killed: every attack, with the guard and without."""

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, '..', '..')
sys.path = [os.path.join(HERE, '..', 'lib'), os.path.join(ROOT, 'src', 'guards', 'kit'), os.path.join(ROOT, 'src', 'guards', 'sqlite')] + sys.path
import fencelock_sqlite
from guardkit.storage import Refused, Storage, Unknown
from guardkit.suite import Suite, must
from harness import Case, main, seed
from harness.lab import build_dir

ERRORS = (sqlite3.Error, fencelock_sqlite.Refused)


def serve(pipe, path):
    """A client in a process of its own, since what is to be killed is a process with the file open."""
    fence = fencelock_sqlite.Fenced(path)
    while True:
        name, args = pipe.recv()
        try:
            if name == 'execute':
                pipe.send(('ok', fence.execute(*args).fetchall()))
            else:
                pipe.send(('ok', getattr(fence, name)(*args)))
        except fencelock_sqlite.Refused as e:
            pipe.send((e.word, str(e)))
        except (sqlite3.Error, OverflowError) as e:
            pipe.send(('BUSY' if 'locked' in str(e) else 'ERROR', str(e)))


class Client:
    def __init__(self, path):
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context('fork').Process(target=serve, args=(theirs, path), daemon=True)
        self.process.start()
        theirs.close()

    def call(self, name, *args):
        try:
            self.pipe.send((name, args))
            word, value = self.pipe.recv()
        except (EOFError, OSError, TypeError): # closed by restart() in another thread
            raise Unknown('the process has ended') from None
        if word != 'ok':
            raise Refused(word, value)
        return value

    def end(self):
        self.process.kill()
        self.process.join()
        self.pipe.close()


class SQLite(Storage):
    name = 'SQLite ' + sqlite3.sqlite_version
    kinds = ['UPDATE', 'REPLACE', 'upsert', 'DELETE and INSERT']
    workers = 4

    def __init__(self, path):
        self.path, self.clients = path, []
        self.admin = Client(path)
        self.admin.call('install')
        self.admin.call('execute', 'CREATE TABLE account (id TEXT PRIMARY KEY, lock TEXT, balance TEXT)')
        self.protect()

    def protect(self):
        self.admin.call('protect', 'account', 'lock')

    def restart(self):
        for client in self.clients:
            client.end()
        self.clients = []

    def open(self):
        client = Client(self.path)
        self.clients.append(client)
        return client

    def create(self, key, lock, value):
        self.admin.call('unprotect', 'account') # as a migration would
        self.admin.call('execute', 'INSERT INTO account VALUES (?, ?, ?)', (key, lock, value))
        self.protect()

    def claim(self, session, lock, token):
        session.call('claim', lock, token)

    def read(self, session, lock, key):
        return session.call('execute', 'SELECT balance FROM account WHERE id = ?', (key,))[0][0]

    def write(self, session, lock, token, key, value, how):
        session.call('use', lock, token)
        if how == 'UPDATE':
            must_find(session.call('execute', 'UPDATE account SET balance = ? WHERE id = ? RETURNING id', (value, key)))
        elif how == 'REPLACE':
            session.call('execute', 'REPLACE INTO account VALUES (?, ?, ?)', (key, lock, value))
        elif how == 'upsert':
            session.call('execute', 'INSERT INTO account VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET balance = excluded.balance',
                         (key, lock, value))
        else:
            session.call('execute', 'BEGIN IMMEDIATE')
            try:
                must_find(session.call('execute', 'DELETE FROM account WHERE id = ? RETURNING id', (key,)))
                session.call('execute', 'INSERT INTO account VALUES (?, ?, ?)', (key, lock, value))
                session.call('execute', 'COMMIT')
            except Refused:
                session.call('execute', 'ROLLBACK')
                raise

    def mark(self, session, lock):
        return session.call('mark', lock)

    def bypasses(self):
        def bare(statement):
            def act(session, lock, key, value):
                db = sqlite3.connect(self.path, timeout=10, isolation_level=None)
                try:
                    db.execute(statement, {'lock': lock, 'key': key, 'value': value})
                except sqlite3.Error as e:
                    raise Refused('ERROR', str(e)) from None
                finally:
                    db.close()
            return act

        def shell(session, lock, key, value):
            done = subprocess.run(['sqlite3', self.path, "UPDATE account SET balance = '666' WHERE id = '%s'" % key], stderr=subprocess.PIPE)
            if done.returncode:
                raise Refused('ERROR', done.stderr.decode())
        yield 'UPDATE without a token', bare('UPDATE account SET balance = :value WHERE id = :key')
        yield 'INSERT OR REPLACE without a token', bare('INSERT OR REPLACE INTO account VALUES (:key, :lock, :value)')
        yield 'DELETE without a token', bare('DELETE FROM account WHERE id = :key')
        yield 'DELETE of all (no row by row)', bare('DELETE FROM account')
        yield 'row moved to another lock', bare("UPDATE account SET lock = 'x', balance = :value WHERE id = :key")
        if shutil.which('sqlite3'):
            yield 'sqlite3 shell', shell
        yield 'mark lowered', bare('UPDATE fence_mark SET mark = 1')
        yield 'mark deleted', bare('DELETE FROM fence_mark')
        yield 'mark replaced', bare('REPLACE INTO fence_mark VALUES (:lock, 1)')
        yield 'mark renamed', bare("UPDATE fence_mark SET lock = lock || 'x'")

    def own(self):
        yield 6, "REPLACE of another lock's row", self.replace_other
        yield 7, 'transaction older than a newer claim', self.older_transaction
        yield 3, 'claim inside a transaction', self.claim_inside

    def replace_other(self, suite):
        key, lock = suite.fresh('100')
        _, other = suite.fresh()
        a, token = self.open(), suite.token()
        self.claim(a, other, token)
        try:
            a.call('execute', 'REPLACE INTO account VALUES (?, ?, ?)', (key, other, '666'))
        except Refused:
            pass
        must(self.read(a, lock, key) == '100', 'the value is %s', self.read(a, lock, key))

    def older_transaction(self, suite):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(a, lock, old)
        a.call('execute', 'BEGIN')
        self.read(a, lock, key)
        self.claim(b, lock, new)
        try:
            a.call('execute', "UPDATE account SET balance = '666' WHERE id = ?", (key,))
            a.call('execute', 'COMMIT')
        except Refused:
            a.call('execute', 'ROLLBACK')
        must(self.read(b, lock, key) == '100', 'the value is %s', self.read(b, lock, key))

    def claim_inside(self, suite):
        key, lock = suite.fresh('100')
        a = self.open()
        a.call('execute', 'BEGIN')
        try:
            self.claim(a, lock, suite.token())
        except Refused:
            return 'refused'
        must(False, 'it was accepted')

    def close(self):
        self.restart()
        self.admin.end()


def must_find(rows):
    if not rows:
        raise Refused('NOROW', 'no row was changed')


class SQLiteOff(SQLite):
    def protect(self):
        pass


class SQLiteGuard(Case):
    def attack(self, kind, *only):
        storage = kind(self.lab.path('shop.db'))
        self.addCleanup(storage.close)
        return Suite(storage, seed(), rounds=60, crashes=2).run(only or None)

    def test_every_attack(self):
        report = self.attack(SQLite)
        for row in report.rows:
            if row[2] != 'holds':
                self.note('%s %s: %s' % (row[2], row[1], row[3]))
        self.assertTrue(report.ok())
        self.note('%s: %d attacks withstood' % (report.storage, report.count('holds')))

    def test_with_the_guard_off_updates_are_lost(self):
        report = self.attack(SQLiteOff, 'random', 'UPDATE')
        found = {row[1]: row[2:4] for row in report.rows}
        self.assertEqual(found['many writers at random'][0], 'BROKEN')
        self.assertIn('lost', found['many writers at random'][1])
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
                        os.path.join(build_dir(), 'src/fence/libfencelock-fence.a'), '-llmdb', '-lsqlite3', '-lpthread'], check=True)
        run = lambda *words: subprocess.run([program, path, *words], stdout=subprocess.PIPE).stdout.decode().split()[0]
        self.assertEqual([run('acct', '7'), run('acct', '6'), run('acct', '8'), run('other', '7')], ['OK', 'STALE', 'NOTCLAIMED', 'NOTOKEN'])


if __name__ == '__main__':
    main()
