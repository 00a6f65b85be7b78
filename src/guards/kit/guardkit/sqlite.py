"""The adapter for SQLite with the guard of src/guards/sqlite, on a real file; each client is a process, which can be killed."""

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from multiprocessing import reduction

from .storage import Refused, Storage, Unknown
from .suite import must, must_refuse

sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..', 'sqlite')))
import fencelock_sqlite

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'sqlite_clients.py')


class Starter:
    """The process that starts the clients and ends them (sqlite_clients.py)."""

    def __init__(self):
        self.orders, theirs = multiprocessing.Pipe()
        self.one = threading.Lock()
        with theirs:
            self.process = subprocess.Popen([sys.executable, PROGRAM, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                                            start_new_session=True) # a SIGINT is for us

    def start(self, path, pipe):
        """The process of a client at the other end of this pipe."""
        with self.one:
            try:
                self.orders.send(('start', path))
                reduction.send_handle(self.orders, pipe.fileno(), self.process.pid)
                return self.orders.recv()
            except (EOFError, OSError):
                raise Unknown('the process that starts clients has ended') from None

    def end(self, pid):
        with self.one:
            self.orders.send(('end', pid))
            self.orders.recv()

    def close(self):
        self.orders.close()
        self.process.wait()


class Client:
    def __init__(self, starter, path):
        self.starter, self.busy = starter, threading.Lock()
        self.pipe, theirs = multiprocessing.Pipe()
        with theirs:
            self.pid = starter.start(path, theirs)

    def call(self, name, *args):
        with self.busy:
            try:
                self.pipe.send((name, args))
                word, value = self.pipe.recv()
            except (EOFError, OSError):
                raise Unknown('the process has ended') from None
        if word != 'ok':
            raise Refused(word, value)
        return value

    def end(self):
        """Called by restart(), while another thread may be in call(). The pipe is closed only when that call is over: its descriptor's number
        may be given to the next client at once."""
        self.starter.end(self.pid)
        with self.busy:
            self.pipe.close()


class SQLite(Storage):
    name = 'SQLite ' + sqlite3.sqlite_version
    kinds = ['UPDATE', 'REPLACE', 'upsert', 'DELETE and INSERT']
    workers = 4

    def __init__(self, path):
        self.path, self.clients = path, []
        self.starter = Starter()
        self.admin = Client(self.starter, path)
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
        client = Client(self.starter, self.path)
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
        for what, statement in self.refused_statements():
            yield 1, 'refused %s, then COMMIT' % what, lambda suite, statement=statement: self.refused_then_committed(suite, statement)
        yield 6, "REPLACE of another lock's row", self.replace_other
        yield 7, 'transaction older than a newer claim', self.older_transaction
        yield 3, 'claim inside a transaction', self.claim_inside

    @staticmethod
    def refused_statements():
        """(name, statement): :key is the row of a newer holder's lock, and :mine one that may be changed."""
        yield 'INSERT', "INSERT INTO account VALUES (:key || '.new', :lock, '666')"
        yield 'UPDATE', "UPDATE account SET balance = '666' WHERE id = :key"
        yield 'UPDATE of many rows', "UPDATE account SET balance = '666' WHERE id IN (:mine, :key)"
        yield 'UPDATE OR FAIL of many rows', "UPDATE OR FAIL account SET balance = '666' WHERE id IN (:mine, :key)"
        yield 'REPLACE', "REPLACE INTO account VALUES (:key, :lock, '666')"
        yield 'upsert', "INSERT INTO account VALUES (:key, :lock, '666') ON CONFLICT (id) DO UPDATE SET balance = excluded.balance"
        yield 'DELETE', 'DELETE FROM account WHERE id = :key'
        yield 'DELETE of many rows', 'DELETE FROM account WHERE id IN (:mine, :key)'

    def refused_then_committed(self, suite, statement):
        """The application catches the refusal, and commits what else it did: nothing of the refused statement may be in that. SQLite undoes a
        statement that failed inside a transaction only if it was prepared to."""
        (mine, my_lock), (key, lock) = suite.fresh('100'), suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(a, lock, old)
        self.claim(b, lock, new)
        self.claim(a, my_lock, new)
        a.call('execute', 'BEGIN IMMEDIATE')
        a.call('execute', "UPDATE account SET balance = '101' WHERE id = ?", (mine,))
        must_refuse('STALE', 'the statement', a.call, 'execute', statement, {'key': key, 'lock': lock, 'mine': mine})
        a.call('execute', 'COMMIT')
        found = dict(self.admin.call('execute', 'SELECT id, balance FROM account WHERE id IN (?, ?, ?)', (mine, key, key + '.new')))
        must(found == {mine: '101', key: '100'}, 'it was refused, and yet the rows are %s', found)

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

    def end_sessions(self):
        self.restart()

    def close(self):
        self.restart()
        self.admin.end()
        self.starter.close()


def must_find(rows):
    if not rows:
        raise Refused('NOROW', 'no row was changed')
