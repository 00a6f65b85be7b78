"""`fencelock guard` for redis://...: Redis 7 and Valkey. The server keeps the secret in the library's text, and the password in its list
of users."""

import os
import re
import secrets

from . import redis
from .driver import DATA, Usage, tell, tell_found
from .storage import Refused
from .suite import Broken, Skip

NO_REPLICA = '0' * 40
# Raises the floor, and records for which fail-over. Compares numbers as text, by length first: large ones may be equal as doubles.
RAISE_FLOOR = """local now = redis.call('GET', KEYS[1])
if not now or #now < #ARGV[1] or (#now == #ARGV[1] and now < ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
return redis.call('SET', KEYS[2], ARGV[2])"""


class Driver:
    WANTED = {'appendonly': 'yes', 'appendfsync': 'always', 'maxmemory-policy': 'noeviction'}

    def __init__(self, url):
        self.url, self.admin, self.made = url, redis.Connection(url), None

    def library(self, name='fencelock'):
        found = self.admin.call('FUNCTION', 'LIST', 'LIBRARYNAME', name, 'WITHCODE')
        return found[0][found[0].index('library_code') + 1] if found else None

    def secret(self):
        code = self.library()
        if code is None:
            raise Refused('ERROR', 'there is no guard in this server. Install it: fencelock guard install URL')
        return re.search("SECRET = '([^']*)'", code).group(1)

    @staticmethod
    def no_tables(tables):
        if tables:
            raise Usage("'%s': Redis has no tables; leave it out" % tables[0])

    def load(self, secret, suffix=''):
        self.admin.call('FUNCTION', 'LOAD', 'REPLACE', redis.library(os.path.join(DATA, 'redis', 'fencelock.lua'), secret, suffix))

    def make_user(self, name, secret):
        """Gives the user its rights. Makes it if it does not exist, and then returns its password; otherwise None."""
        rights, password = list(redis.RIGHTS), None
        if 'waitaof' not in (c.lower() for c in self.admin.call('COMMAND', 'LIST')):
            rights.remove('+waitaof')
        if name not in self.admin.call('ACL', 'USERS'):
            password = secrets.token_urlsafe(24)
            rights = ['on', '>' + password] + rights
        self.admin.call('ACL', 'SETUSER', name, *rights, '~' + secret + ':*')
        return password

    def install(self, tables, as_json):
        self.no_tables(tables)
        secret = self.secret() if self.library() is not None else 'fence:' + secrets.token_hex(16)
        self.load(secret)
        password, kept = self.make_user(redis.WRITER, secret), True
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

    def info(self, section, name):
        found = re.search(r'^%s:(\S*)' % name, self.admin.call('INFO', section), re.M)
        return found.group(1) if found else ''

    def check(self, tables, as_json, colours):
        self.no_tables(tables)
        secret, found = self.secret(), []
        for name, wanted in self.WANTED.items():
            value = self.admin.call('CONFIG', 'GET', name)[1]
            if value != wanted:
                found.append(['loss', '%s is %s' % (name, value), 'CONFIG SET %s %s, and in the configuration file' % (name, wanted)])
        if redis.WRITER not in self.admin.call('ACL', 'USERS'):
            found.append(['bad', 'there is no user %s' % redis.WRITER, 'fencelock guard install URL'])
        else:
            for what, words in redis.FORBIDDEN:
                if self.allowed(redis.WRITER, words):
                    found.append(['bad', '%s may: %s' % (redis.WRITER, what), 'fencelock guard install URL, which sets its rights'])
        if self.info('replication', 'role') != 'master':
            found.append(['note', 'this is a replica: its marks are those of its master, or older', 'Check the master.'])
        before = self.info('replication', 'master_replid2')
        if before not in ('', NO_REPLICA, self.admin.call('GET', secret + ':adopted')):
            found.append(['loss', 'this server was a replica and was promoted: its marks may be old', 'fencelock guard adopt URL'])
        if self.info('replication', 'connected_slaves') not in ('', '0'):
            found.append(['note', 'there are replicas: promoted, one may lack what was acknowledged', 'WAITAOF 1 N 0 (7.2 or newer) or WAIT N '
                          'after each claim and write; fencelock guard adopt URL after each promotion'])
        return tell_found(found, None, as_json, colours)

    def allowed(self, user, words):
        return self.admin.call('ACL', 'DRYRUN', user, *words) == 'OK'

    def scratch(self):
        """Redis has no separate databases for this, so the attack gets its own library, user and secret."""
        self.made = 'attack_' + secrets.token_hex(4)
        secret = 'fence:' + secrets.token_hex(16)
        self.made_secret = secret
        self.load(secret, self.made)
        password = self.make_user(self.made, secret)
        return redis.Redis(self.url, redis.as_user(self.url, self.made, password), suffix=self.made, user=self.made, dry=True)

    def drop_scratch(self):
        if not self.made:
            return
        self.admin.call('ACL', 'DELUSER', self.made)
        self.admin.call('FUNCTION', 'DELETE', 'fencelock' + self.made)
        cursor = '0'
        while True:
            cursor, keys = self.admin.call('SCAN', cursor, 'MATCH', self.made_secret + ':*', 'COUNT', 1000)
            if keys:
                self.admin.call('DEL', *keys)
            if cursor == '0':
                return

    def attack_tables(self, report, tables):
        """Attacks the installed guard: asks the server what the guard's user may do, and does none of it."""
        self.no_tables(tables)
        there = self.library() is not None and redis.WRITER in self.admin.call('ACL', 'USERS')
        for what, words in redis.FORBIDDEN:
            report.run(4, '%s by %s' % (what, redis.WRITER), self.ask, there, words)

    def ask(self, there, words):
        if not there:
            raise Skip('no guard is installed here')
        if self.allowed(redis.WRITER, words):
            raise Broken('it is allowed')

    def adopt(self, token, as_json):
        secret = self.secret()
        self.admin.call('EVAL', RAISE_FLOOR, 2, secret + ':floor', secret + ':adopted', token, self.info('replication', 'master_replid2'))
        tell(as_json, 'every token below %d is refused from here on' % token, adopted=True, token=token)
        return 0

    def uninstall(self, as_json):
        self.secret()
        self.admin.call('FUNCTION', 'DELETE', 'fencelock')
        self.admin.call('ACL', 'DELUSER', redis.WRITER)
        tell(as_json, 'the guard is gone; marks and values stay, under a name that is lost with it', uninstalled=True)
        return 0
