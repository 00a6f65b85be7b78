"""fencelock's guard for SQLite: rows that only the newest holder of a lock can change. Python 3.8, standard library.

    fence = Fenced('shop.db')                        a connection; once: fence.install(); fence.protect('account', 'lock')
    fence.claim('acct', 37)                          before the first read
    fence.db.execute('SELECT ...')
    fence.db.execute('UPDATE account SET ...')       Stale when a newer token has claimed, NoToken without a claim

Transactions are the caller's: the connection is in autocommit (isolation_level None), BEGIN IMMEDIATE is yours to send.
A claim is refused inside a transaction, whose snapshot may be older. Errors of the guard come as sqlite3 errors; the
connection's last refusal is in fence.refusal. One thread at a time."""

import os
import re
import sqlite3

TOKEN_MAX = (1 << 53) - 1
HERE = os.path.dirname(os.path.abspath(__file__))


class Refused(Exception):
    """word: STALE, NOTOKEN, NOTCLAIMED, NOLOCK or REFUSED."""

    def __init__(self, word, text):
        super().__init__(word + ' ' + text)
        self.word = word


def _check(lock, token):
    if not isinstance(lock, str) or not 1 <= len(lock.encode()) <= 255:
        raise Refused('REFUSED', 'the name of a lock is text of 1 to 255 bytes')
    if isinstance(token, bool) or not isinstance(token, int) or not 1 <= token <= TOKEN_MAX:
        raise Refused('REFUSED', 'a token is a number from 1 to %d, not %r' % (TOKEN_MAX, token))


class Fenced:
    def __init__(self, path, timeout_s=10.0):
        self.db = sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
        self.held, self.refusal = {}, None
        self.db.create_function('fence_admit', 2, self._admit)
        self.db.execute('PRAGMA synchronous = FULL')           # in WAL mode lower settings do not survive a loss of power
        self.db.execute('PRAGMA recursive_triggers = ON')      # otherwise REPLACE deletes rows without a call of the guard

    def _admit(self, lock, mark):
        token = self.held.get(lock)
        if lock is None:
            self.refusal = Refused('NOLOCK', 'this row belongs to no lock')
        elif token is None:
            self.refusal = Refused('NOTOKEN', 'this connection has no token for lock %r' % lock)
        elif mark is None or token > mark:
            self.refusal = Refused('NOTCLAIMED', 'token %d is above the mark %s of lock %r: claim, and read again' % (token, mark, lock))
        elif token < mark:
            self.refusal = Refused('STALE', 'token %d is below the mark %d of lock %r' % (token, mark, lock))
        else:
            return 1
        raise self.refusal

    def execute(self, sql, parameters=()):
        """As db.execute(), but raises a refusal of the guard as Refused."""
        self.refusal = None
        try:
            return self.db.execute(sql, parameters)
        except sqlite3.Error:
            if self.refusal is not None:
                raise self.refusal from None
            raise

    def claim(self, lock, token):
        _check(lock, token)
        if self.db.in_transaction:
            raise Refused('REFUSED', 'claim before BEGIN: the transaction may read older than the claim')
        self.db.execute('BEGIN IMMEDIATE')
        try:
            mark = (self.db.execute('SELECT mark FROM fence_mark WHERE lock = ?', (lock,)).fetchone() or (0,))[0]
            floor = self.db.execute('SELECT floor FROM fence_origin').fetchone()[0]
            if token < floor:
                raise Refused('STALE', 'token %d is below the floor %d of this file' % (token, floor))
            if token < mark:
                raise Refused('STALE', 'token %d is below the mark %d of lock %r' % (token, mark, lock))
            if token > mark:
                self.db.execute('INSERT INTO fence_mark VALUES (?, ?) ON CONFLICT (lock) DO UPDATE SET mark = excluded.mark', (lock, token))
            self.db.execute('COMMIT')
        except BaseException:
            if self.db.in_transaction:
                self.db.execute('ROLLBACK')
            raise
        self.held[lock] = token

    def use(self, lock, token):
        """Sets the token of the writes that follow. It does not claim."""
        _check(lock, token)
        self.held[lock] = token

    def mark(self, lock):
        return (self.db.execute('SELECT mark FROM fence_mark WHERE lock = ?', (lock,)).fetchone() or (0,))[0]

    def adopt(self, token):
        """For use after a restore: from now on every lower token is refused, in claims and in writes."""
        _check('-', token)
        self.db.execute('BEGIN IMMEDIATE')
        self.db.execute('UPDATE fence_origin SET floor = max(floor, ?)', (token,))
        self.db.execute('UPDATE fence_mark SET mark = max(mark, ?)', (token,))
        self.db.execute('COMMIT')

    def install(self):
        try:
            with open(os.path.join(HERE, 'guard.sql')) as f:
                self.db.executescript(f.read())
        except sqlite3.Error:
            if self.db.in_transaction:
                self.db.execute('ROLLBACK')
            raise
        if self.differing():
            raise Refused('REFUSED', '%s is not as the guard makes it: look at what is there, and drop it' % ', '.join(self.differing()))

    def differing(self):
        """The tables and triggers of guard.sql that this file has in another form, or does not have; and triggers at its tables that are not its."""
        def of(db):
            return dict(db.execute("SELECT name, type || ' ' || sql FROM sqlite_master WHERE tbl_name IN ('fence_mark', 'fence_origin') AND sql <> ''"))
        fresh = sqlite3.connect(':memory:')
        with open(os.path.join(HERE, 'guard.sql')) as f:
            fresh.executescript(f.read())
        right, here = of(fresh), of(self.db)
        fresh.close()
        return sorted(name for name in right.keys() | here.keys() if right.get(name) != here.get(name))

    def protect(self, table, lock_is):
        """lock_is: a column, or an expression over columns written as {row}.column: "'account/' || {row}.id"."""
        if re.fullmatch(r'\w+', lock_is):
            lock_is = '{row}."%s"' % lock_is
        with open(os.path.join(HERE, 'protect.sql')) as f:
            text = f.read()
        for word, by in (('@NAME@', table.replace('"', '""')), ('@TABLE@', '"%s"' % table.replace('"', '""')),
                         ('@NEW@', '(%s)' % lock_is.replace('{row}', 'NEW')), ('@OLD@', '(%s)' % lock_is.replace('{row}', 'OLD'))):
            text = text.replace(word, by)
        try:
            self.db.executescript('BEGIN IMMEDIATE;' + text)
            # A trigger is compiled when it is first used: a column that does not exist must be refused now
            for statement in ('INSERT INTO %s DEFAULT VALUES', 'DELETE FROM %s'):
                self.db.execute('EXPLAIN ' + statement % ('"%s"' % table.replace('"', '""'))).fetchall()
            self.db.execute('COMMIT')
        except sqlite3.Error:
            if self.db.in_transaction:
                self.db.execute('ROLLBACK')
            raise

    def unprotect(self, table):
        for what in ('insert', 'update', 'delete'):
            self.db.execute('DROP TRIGGER IF EXISTS "fence_%s_%s"' % (what, table.replace('"', '""')))

    def close(self):
        self.db.close()
