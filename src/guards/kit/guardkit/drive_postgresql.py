"""`fencelock guard` for postgres://..., through psql."""

import os
import re
import secrets
import subprocess
import urllib.parse

from .child import program
from .driver import DATA, Usage, count, pairs_of, tell, tell_found
from .postgresql import PostgreSQL, Psql, text
from .storage import Refused, Unknown
from .suite import Broken, Skip


class Driver:
    MIN, MAX = 13, 17

    def __init__(self, url):
        found = re.match(r'^(postgres(?:ql)?://[^:/@?]*):([^@/]*)@', url)
        if found: # not in the arguments of a process, which everybody can read
            os.environ['PGPASSWORD'] = urllib.parse.unquote(found.group(2))
            url = found.group(1) + '@' + url[found.end():]
        self.url, self.made = url, None
        self.admin = self.connect(url)
        # Schemas that others can write to may have functions and operators that fit better than those of the server. Only names of
        # tables are looked up there: see table().
        self.admin.sql('SET search_path = pg_catalog, pg_temp')
        self.version = int(self.admin.one('SHOW server_version_num')) // 10000
        if self.version < self.MIN:
            raise Usage('PostgreSQL %d is too old for the guard: it needs %d or newer' % (self.version, self.MIN))

    @staticmethod
    def connect(url):
        session = Psql(url)
        try:
            session.one('SELECT 1')
        except Unknown:
            session.process.wait(10)
            raise Unknown('cannot connect: %s' % ' '.join(session.__dict__.get('found', []))[:300]) from None
        return session

    def table(self, name):
        """The name of a table with its schema, as the user's own search_path finds it."""
        self.admin.sql('RESET search_path')
        try:
            oid = self.admin.one('SELECT %s::pg_catalog.regclass::pg_catalog.oid' % text(name))
        finally:
            self.admin.sql('SET search_path = pg_catalog, pg_temp')
        return self.admin.one('SELECT %s::regclass' % oid)

    def with_database(self, name):
        return re.sub(r'^(postgres(?:ql)?://[^/?]*)(/[^?]*)?', lambda m: m.group(1) + '/' + name, self.url)

    def installed(self, session=None):
        return (session or self.admin).one("SELECT count(*) FROM pg_namespace n JOIN pg_proc p ON p.pronamespace = n.oid "
                                           "WHERE n.nspname = 'fence' AND p.proname = 'version'") != '0'

    def run_scripts(self, url, *names):
        """In one transaction, and in front of all the one that refuses a guard of which another role owns a part."""
        def of(name):
            return ['-f', os.path.join(DATA, 'postgresql', name)]
        files = of('owners.sql') + (['-c', 'CREATE SCHEMA IF NOT EXISTS fence'] if names == ('guard.sql',) else [])
        files += [word for name in names for word in of(name)]
        done = subprocess.run([program('psql'), '-Xqw1', '-v', 'ON_ERROR_STOP=1', '-d', url, '-c', 'SET client_min_messages = warning', *files],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, LC_ALL='C.UTF-8'))
        if done.returncode != 0:
            said = done.stdout.decode(errors='replace').strip()
            raise Refused('ERROR', re.sub(r'^psql:\S+ (ERROR|FATAL): +|\nCONTEXT: .*(\n.*)*', '', said).replace('\nHINT:  ', '. '))

    def install_into(self, url):
        """Installs the guard as an extension if the server has its files, otherwise by the script. A second run updates the
        functions and leaves the marks alone."""
        self.run_scripts(url)
        session = self.connect(url)
        if session.one("SELECT count(*) FROM pg_extension WHERE extname = 'fencelock'") == '1':
            session.sql('ALTER EXTENSION fencelock UPDATE')
            return 'as an extension'
        if not self.installed(session) and session.one(
                "SELECT count(*) FROM pg_available_extensions WHERE name = 'fencelock'") == '1':
            session.sql('CREATE EXTENSION fencelock')
            return 'as an extension'
        self.run_scripts(url, 'guard.sql')
        return 'as a schema'

    def install(self, tables, as_json):
        pairs = pairs_of(tables)
        how = self.install_into(self.url)
        for table, lock in pairs:
            self.admin.sql('SELECT fence.protect(%s::regclass, %s)' % (text(self.table(table)), text(lock)))
        version = self.admin.one('SELECT fence.version()')
        tell(as_json, 'guard %s installed in PostgreSQL %d, %s%s' % (
            version, self.version, how, ''.join('\n%s: protected, rows belong to the lock in %s' % (t, lock) for t, lock in pairs)),
            installed=True, version=version, how=how, protected={t: lock for t, lock in pairs})
        return 0

    def check(self, tables, as_json, colours):
        if not self.installed():
            raise Refused('ERROR', 'there is no guard in this database. Install it: fencelock guard install URL TABLE=LOCK')
        try:
            self.run_scripts(self.url)
        except Refused as e:
            return tell_found([['bad', str(e), 'Ask nothing of this guard before that is settled.']], [], as_json, colours)
        rows = [r.split('\x1f') for r in self.admin.sql("SELECT concat_ws(E'\\x1f', grade, what, remedy) FROM fence.check()")]
        guarded = self.admin.sql('SELECT the_table FROM fence.protected')
        for table in tables:
            name = self.table(table)
            if name not in guarded:
                rows.append(['bad', '%s is not protected' % name, "fencelock guard install URL %s=LOCK" % name])
        return tell_found(rows, guarded, as_json, colours)

    def scratch(self):
        self.made = 'fencelock_attack_%s' % secrets.token_hex(4)
        self.admin.sql('CREATE DATABASE %s' % self.made)
        url = self.with_database(self.made)
        self.install_into(url)
        return PostgreSQL(url)

    def drop_scratch(self):
        if self.made:
            self.admin.sql('DROP DATABASE IF EXISTS %s WITH (FORCE)' % self.made)

    def attack_tables(self, report, tables):
        """Tries statements without a token on the user's tables and rolls each back."""
        for table in tables:
            name = self.table(table)
            column = self.admin.one('SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 '
                                    "AND NOT attisdropped AND attgenerated = '' LIMIT 1" % text(name))
            for what in ('UPDATE %s SET %s = %s' % (name, column, column), 'DELETE FROM %s' % name, 'TRUNCATE %s' % name):
                report.run(4, '%s %s' % (what.split()[0], table), self.rolled_back, name, what)

    def rolled_back(self, table, statement):
        self.admin.sql('BEGIN')
        try:
            if not statement.startswith('TRUNCATE') and not self.admin.one('SELECT 1 FROM %s LIMIT 1' % table):
                raise Skip('the table is empty')
            try:
                self.admin.sql(statement)
            except Refused as e:
                if e.word in ('NOTOKEN', 'REFUSED', 'NOLOCK'):
                    return e.word
                raise Skip(str(e)) from None
            raise Broken('was carried out without a token (and rolled back)')
        finally:
            self.admin.sql('ROLLBACK')

    def adopt(self, token, as_json):
        self.run_scripts(self.url)
        n = self.admin.one('SELECT fence.adopt(%d)' % token)
        tell(as_json, 'every token below %d is refused from here on; %s dropped' % (token, count(int(n), 'older marks')), adopted=True, token=token,
             dropped=int(n))
        return 0

    def uninstall(self, as_json):
        if not self.installed():
            raise Refused('ERROR', 'there is no guard in this database')
        self.run_scripts(self.url, 'uninstall.sql')
        tell(as_json, 'the guard and its marks are gone: nothing is fenced here any more', uninstalled=True)
        return 0
