"""What `fencelock guard` does with each kind of URL."""

import json
import os
import re
import secrets
import subprocess
import sys
import urllib.parse

from .child import program
from . import redis
from .postgresql import PostgreSQL, Psql, text
from .storage import Refused, Unknown

DATA = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..'))


class Usage(Exception):
    pass


def of(url):
    scheme = url.split(':')[0]
    if scheme in ('postgres', 'postgresql'):
        return PostgreSQLDriver(url)
    if scheme in ('redis', 'rediss'):
        return RedisDriver(url)
    raise Usage("'%s' names no storage that a guard can be put into from here: give a URL that begins with postgres:// or redis://. "
                'docs/FENCING.md has the others' % url[:60])


def tell(as_json, sentence, **more):
    print(json.dumps(more) if as_json else sentence)


class RedisDriver:
    """The secret and the password are kept by the server: in the library's text, and in its list of users."""

    WANTED = {'appendonly': 'yes', 'appendfsync': 'always', 'maxmemory-policy': 'noeviction'}

    def __init__(self, url):
        self.url, self.admin = url, redis.Connection(url)

    def library(self):
        found = self.admin.call('FUNCTION', 'LIST', 'LIBRARYNAME', 'fencelock', 'WITHCODE')
        return found[0][found[0].index('library_code') + 1] if found else None

    @staticmethod
    def no_tables(tables):
        if tables:
            raise Usage("'%s': Redis has no tables; leave it out" % tables[0])

    def install(self, tables, as_json):
        self.no_tables(tables)
        code, users = self.library(), self.admin.call('ACL', 'USERS')
        secret = re.search("SECRET = '([^']*)'", code).group(1) if code else 'fence:' + secrets.token_hex(16)
        self.admin.call('FUNCTION', 'LOAD', 'REPLACE', redis.library(os.path.join(DATA, 'redis', 'fencelock.lua'), secret))
        password = None
        rights = list(redis.RIGHTS)
        if 'waitaof' not in (c.lower() for c in self.admin.call('COMMAND', 'LIST')):
            rights.remove('+waitaof')
        if redis.WRITER not in users:
            password = secrets.token_urlsafe(24)
            rights = ['on', '>' + password] + rights
        self.admin.call('ACL', 'SETUSER', redis.WRITER, *rights, '~' + secret + ':*')
        kept = True
        try:
            self.admin.call('ACL', 'SAVE')
        except Refused:
            try:
                self.admin.call('CONFIG', 'REWRITE')
            except Refused:
                kept = False
        tell(as_json, 'guard installed%s%s' % (
            '; writers log in as %s with the password %s' % (redis.WRITER, password) if password else '; marks and password are as before',
            '' if kept else '\nthe user is forgotten at the next start: give the server an aclfile or a configuration file'),
            installed=True, user=redis.WRITER, password=password, kept=kept)
        return 0

    def check(self, tables, as_json, colours):
        self.no_tables(tables)
        if self.library() is None:
            raise Refused('ERROR', 'there is no guard in this server. Install it: fencelock guard install URL')
        found = []
        for name, wanted in self.WANTED.items():
            value = self.admin.call('CONFIG', 'GET', name)[1]
            if value != wanted:
                found.append(['loss', '%s is %s' % (name, value), 'CONFIG SET %s %s, and in the configuration file' % (name, wanted)])
        if 'fence-writer' not in self.admin.call('ACL', 'USERS'):
            found.append(['bad', 'there is no user fence-writer', 'fencelock guard install URL'])
        if as_json:
            print(json.dumps({'ok': not found, 'found': [{'grade': g, 'what': w, 'remedy': r} for g, w, r in found]}))
        else:
            for grade, what, remedy in found:
                print('%-4s  %s\n      %s' % (grade, what, remedy))
            if not found:
                print('nothing found wrong')
        return 1 if found else 0

    def scratch(self):
        """There are no databases apart: names nobody uses, under the guard that is installed."""
        raise Usage('a Redis has no scratch database, and an attack would leave marks: attack a server of its own, as '
                    'tests/guards/redis.py does')

    def adopt(self, token, as_json):
        raise Usage('Redis cannot tell which marks it lost: after a fail-over claim each lock with a new token')

    def uninstall(self, as_json):
        if self.library() is None:
            raise Refused('ERROR', 'there is no guard in this server')
        self.admin.call('FUNCTION', 'DELETE', 'fencelock')
        self.admin.call('ACL', 'DELUSER', redis.WRITER)
        tell(as_json, 'the guard is gone; marks and values stay, under a name that is lost with it', uninstalled=True)
        return 0


class PostgreSQLDriver:
    MIN, MAX = 13, 17

    def __init__(self, url):
        found = re.match(r'^(postgres(?:ql)?://[^:/@?]*):([^@/]*)@', url)
        if found: # not in the arguments of a process, which everybody can read
            os.environ['PGPASSWORD'] = urllib.parse.unquote(found.group(2))
            url = found.group(1) + '@' + url[found.end():]
        self.url, self.made = url, None
        self.admin = self.connect(url)
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

    def with_database(self, name):
        return re.sub(r'^(postgres(?:ql)?://[^/?]*)(/[^?]*)?', lambda m: m.group(1) + '/' + name, self.url)

    def installed(self, session=None):
        return (session or self.admin).one("SELECT count(*) FROM pg_namespace n JOIN pg_proc p ON p.pronamespace = n.oid "
                                           "WHERE n.nspname = 'fence' AND p.proname = 'version'") != '0'

    def run_script(self, url, name):
        path = os.path.join(DATA, 'postgresql', name)
        done = subprocess.run([program('psql'), '-Xqw1', '-v', 'ON_ERROR_STOP=1', '-d', url, '-c', 'SET client_min_messages = warning',
                               '-c', 'CREATE SCHEMA IF NOT EXISTS fence', '-f', path], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise Refused('ERROR', done.stdout.decode(errors='replace').strip().split('\n')[-1])

    def install_into(self, url):
        """As an extension where its files are on the server, otherwise by the script itself; again, it brings functions up
        to date and leaves marks alone."""
        session = self.connect(url)
        if session.one("SELECT count(*) FROM pg_extension WHERE extname = 'fencelock'") == '1':
            session.sql('ALTER EXTENSION fencelock UPDATE')
            return 'as an extension'
        if not self.installed(session) and session.one(
                "SELECT count(*) FROM pg_available_extensions WHERE name = 'fencelock'") == '1':
            session.sql('CREATE EXTENSION fencelock')
            return 'as an extension'
        self.run_script(url, 'guard.sql')
        return 'as a schema'

    def install(self, tables, as_json):
        pairs = [t.partition('=') for t in tables]
        for table, equals, lock in pairs:
            if not table or not equals or not lock:
                raise Usage("'%s' does not say which lock its rows belong to: write TABLE=COLUMN, or TABLE=EXPRESSION" % (table + equals))
        how = self.install_into(self.url)
        for table, _, lock in pairs:
            self.admin.sql('SELECT fence.protect(%s::regclass, %s)' % (text(table), text(lock)))
        version = self.admin.one('SELECT fence.version()')
        tell(as_json, 'guard %s installed in PostgreSQL %d, %s%s' % (
            version, self.version, how, ''.join('\n%s: protected, rows belong to the lock in %s' % (t, lock) for t, _, lock in pairs)),
            installed=True, version=version, how=how, protected={t: lock for t, _, lock in pairs})
        return 0

    def check(self, tables, as_json, colours):
        if not self.installed():
            raise Refused('ERROR', 'there is no guard in this database. Install it: fencelock guard install URL TABLE=LOCK')
        rows = [r.split('\x1f') for r in self.admin.sql("SELECT concat_ws(E'\\x1f', grade, what, remedy) FROM fence.check()")]
        guarded = self.admin.sql('SELECT the_table FROM fence.protected')
        for table in tables:
            name = self.admin.one('SELECT %s::regclass' % text(table))
            if name not in guarded:
                rows.append(['bad', '%s is not protected' % name, "fencelock guard install URL %s=LOCK" % name])
        if as_json:
            print(json.dumps({'ok': not any(r[0] == 'bad' for r in rows), 'protected': guarded, 'found': [
                {'grade': g, 'what': w, 'remedy': m} for g, w, m in rows]}))
        else:
            paint = {'bad': '1;31', 'loss': '33', 'note': '36'}
            for grade, what, remedy in rows:
                word = '%-4s' % grade
                print('%s  %s\n      %s' % ('\x1b[%sm%s\x1b[0m' % (paint[grade], word) if colours else word, what, remedy))
            print('%d tables protected%s' % (len(guarded), '' if rows else '; nothing found wrong'))
        return 1 if any(r[0] in ('bad', 'loss') for r in rows) else 0

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
        """Tables of the user: statements without a token, each rolled back whatever comes of it."""
        for table in tables:
            name = self.admin.one('SELECT %s::regclass' % text(table))
            column = self.admin.one('SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 '
                                    "AND NOT attisdropped AND attgenerated = '' LIMIT 1" % text(table))
            for what in ('UPDATE %s SET %s = %s' % (name, column, column), 'DELETE FROM %s' % name, 'TRUNCATE %s' % name):
                report.run(4, '%s %s' % (what.split()[0], name), self.rolled_back, name, what)

    def rolled_back(self, table, statement):
        from .suite import Broken, Skip
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
        n = self.admin.one('SELECT fence.adopt(%d)' % token)
        tell(as_json, 'every token below %d is refused from here on; %s older marks dropped' % (token, n), adopted=True, token=token,
             dropped=int(n))
        return 0

    def uninstall(self, as_json):
        if not self.installed():
            raise Refused('ERROR', 'there is no guard in this database')
        self.run_script(self.url, 'uninstall.sql')
        tell(as_json, 'the guard and its marks are gone: nothing is fenced here any more', uninstalled=True)
        return 0
