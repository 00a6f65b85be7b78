"""`fencelock guard` for sqlite:PATH."""

import os
import shutil
import sqlite3
import tempfile

from .driver import Usage, pairs_of, tell, tell_found
from .sqlite import SQLite, fencelock_sqlite
from .storage import Refused, Unknown
from .suite import Broken, Skip

OPERATIONS = ('INSERT', 'UPDATE', 'DELETE')


class Driver:
    def __init__(self, url):
        self.path, self.made = url.partition(':')[2], None
        if self.path.startswith('//'):
            self.path = self.path[2:]
        if not self.path:
            raise Usage("'%s' names no file: write sqlite:PATH" % url)

    def open(self):
        if not os.path.exists(self.path): # connect() would make one
            raise Refused('ERROR', 'there is no file %s' % self.path)
        try:
            return fencelock_sqlite.Fenced(self.path)
        except sqlite3.Error as e:
            raise Unknown('%s: %s' % (self.path, e)) from None

    def installed(self, db):
        try:
            found = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'fence_mark'").fetchone()[0]
        except sqlite3.Error as e:
            raise Unknown('%s: %s' % (self.path, e)) from None
        if not found:
            raise Refused('ERROR', 'there is no guard in this file. Install it: fencelock guard install URL TABLE=LOCK')

    @staticmethod
    def guarded(db):
        """A dict: table to a dict of the operations for which it has a trigger of the guard, and the trigger's text."""
        found = {}
        for name, table, sql in db.execute("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'fence\\_%' ESCAPE '\\'"):
            operation = name.split('_')[1].upper()
            if operation in OPERATIONS and 'fence_admit(' in sql:
                found.setdefault(table, {})[operation] = sql
        return found

    def install(self, tables, as_json):
        pairs, fence = pairs_of(tables), self.open()
        try:
            fence.install()
            for table, lock in pairs:
                fence.protect(table, lock)
        except fencelock_sqlite.Refused as e:
            raise Refused(e.word, str(e)) from None
        except sqlite3.Error as e:
            raise Refused('ERROR', str(e)) from None
        tell(as_json, 'guard installed in %s%s' % (self.path, ''.join('\n%s: protected, rows belong to the lock in %s' % p for p in pairs)),
             installed=True, protected=dict(pairs))
        return 0

    def check(self, tables, as_json, colours):
        fence = self.open()
        db = fence.db
        self.installed(db)
        rows = [['bad', '%s is not as this version of the guard makes it' % name, 'Look at it; fencelock guard install URL makes triggers anew'] for name in fence.differing()]
        guarded = self.guarded(db)
        for table in tables:
            if table not in guarded:
                rows.append(['bad', '%s is not protected' % table, 'fencelock guard install URL %s=LOCK' % table])
        for table, there in guarded.items():
            rows += [['bad', '%s of %s is not guarded' % (o, table), 'fencelock guard install URL %s=LOCK' % table] for o in OPERATIONS if o not in there]
            if not all('RAISE(ABORT' in sql for sql in there.values()): # see protect.sql
                rows.append(['bad', 'the triggers of %s are those of an older guard: before SQLite 3.39.3 a refused statement stays in its transaction' % table,
                             'fencelock guard install URL %s=LOCK' % table])
        if db.execute('PRAGMA journal_mode').fetchone()[0] != 'wal':
            rows.append(['loss', 'the journal is not a WAL', 'fencelock guard install URL, or PRAGMA journal_mode = WAL'])
        if not guarded:
            rows.append(['note', 'no table is protected', 'fencelock guard install URL TABLE=LOCK'])
        return tell_found(rows, sorted(guarded), as_json, colours)

    def scratch(self):
        self.made = tempfile.mkdtemp(prefix='fencelock-attack-')
        return SQLite(os.path.join(self.made, 'scratch.db'))

    def drop_scratch(self):
        if self.made:
            shutil.rmtree(self.made)

    def attack_tables(self, report, tables):
        """Tries statements without a token on the user's tables and rolls each back."""
        for table in tables:
            name = '"%s"' % table.replace('"', '""')
            for what in ('UPDATE %s SET rowid = rowid' % name, 'DELETE FROM %s' % name):
                report.run(4, '%s %s' % (what.split()[0], table), self.rolled_back, name, what)

    def rolled_back(self, table, statement):
        fence = self.open()
        try:
            fence.db.execute('BEGIN IMMEDIATE')
            columns = fence.db.execute('SELECT * FROM %s LIMIT 1' % table)
            if columns.fetchone() is None:
                raise Skip('the table is empty')
            column = '"%s"' % columns.description[0][0].replace('"', '""')
            try:
                fence.execute(statement.replace('rowid = rowid', '%s = %s' % (column, column)))
            except fencelock_sqlite.Refused as e:
                return e.word
            raise Broken('was carried out without a token (and rolled back)')
        except sqlite3.Error as e:
            raise Skip(str(e)) from None
        finally:
            if fence.db.in_transaction:
                fence.db.execute('ROLLBACK')
            fence.close()

    def adopt(self, token, as_json):
        fence = self.open()
        self.installed(fence.db)
        fence.adopt(token)
        tell(as_json, 'every token below %d is refused from here on' % token, adopted=True, token=token)
        return 0

    def uninstall(self, as_json):
        fence = self.open()
        self.installed(fence.db)
        for table in self.guarded(fence.db):
            fence.unprotect(table)
        fence.db.executescript('DROP TABLE fence_mark; DROP TABLE IF EXISTS fence_origin;')
        tell(as_json, 'the guard and its marks are gone: nothing is fenced here any more', uninstalled=True)
        return 0
