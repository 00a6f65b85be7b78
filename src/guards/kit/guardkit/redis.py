"""The adapter for Redis 7 and Valkey with the guard of src/guards/redis, over a plain socket."""

import re
import socket
import urllib.parse

from .storage import Refused, Storage, Unknown
from .suite import must

WORDS = ('STALE', 'WRONGLOCK', 'REFUSED', 'NOPERM', 'NOAUTH')
WRITER = 'fence-writer'
RIGHTS = ['resetkeys', 'resetchannels', '-@all', '+fcall', '+fcall_ro', '+get', '+set', '+ping', '+hello', '+auth', '+waitaof']


class Connection:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == 'rediss':
            raise Unknown('TLS is not spoken here: use a tunnel, or redis-cli --tls with src/guards/redis')
        try:
            self.socket = socket.create_connection((parts.hostname or '127.0.0.1', parts.port or 6379), 10)
        except OSError as e:
            raise Unknown('cannot connect to %s:%s: %s' % (parts.hostname, parts.port or 6379, e.strerror or e)) from None
        self.file = self.socket.makefile('rb')
        if parts.password:
            self.call('AUTH', *([urllib.parse.unquote(parts.username)] if parts.username else []), urllib.parse.unquote(parts.password))

    def call(self, *words):
        try:
            words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
            self.socket.sendall(b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%s\r\n' % (len(w), w) for w in words))
            return self.reply()
        except OSError as e:
            raise Unknown('the connection has ended: %s' % e) from None

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b'\r\n'):
            raise Unknown('the connection has ended')
        kind, rest = line[:1], line[1:-2]
        if kind == b'-':
            text = rest.decode(errors='replace')
            word = text.split(' ')[0]
            raise Refused(word if word in WORDS else 'ERROR', text)
        if kind in b'+:':
            return rest.decode() if kind == b'+' else int(rest)
        if int(rest) < 0:
            return None
        if kind == b'*':
            return [self.reply() for _ in range(int(rest))]
        return self.file.read(int(rest) + 2)[:-2].decode(errors='replace')

    def end(self):
        self.file.close()
        self.socket.close()


# Things that a writer must not be allowed to do, each with a command that would do it.
FORBIDDEN = (('SET of any key', ('SET', 'some key', 'x')), ('DEL of any key', ('DEL', 'some key')), ('EVAL', ('EVAL', 'return 1', '0')),
             ('SCAN for the secret', ('SCAN', '0')), ('KEYS', ('KEYS', '*')), ('library read', ('FUNCTION', 'LIST', 'WITHCODE')),
             ('library dumped', ('FUNCTION', 'DUMP')), ('library replaced', ('FUNCTION', 'LOAD', 'REPLACE', '#!lua name=fencelock\n')),
             ('MONITOR', ('MONITOR',)), ('own rights raised', ('ACL', 'SETUSER', 'x')), ('configuration changed', ('CONFIG', 'SET', 'appendonly', 'no')),
             ('FLUSHALL of marks', ('FLUSHALL',)), ('RENAME', ('RENAME', 'a', 'b')), ('MIGRATE', ('MIGRATE', 'h', '1', 'k', '0', '1')),
             ('DEBUG', ('DEBUG', 'FLUSHALL')), ('REPLICAOF', ('REPLICAOF', 'h', '1')))


def library(path, secret, suffix=''):
    """The text of the library. suffix: added to its name and its functions, for a second library beside the installed one."""
    with open(path) as f:
        text = f.read().replace('@SECRET@', secret)
    return re.sub(r"(name=fencelock|'fence_[a-z]+)", lambda m: m.group(1) + suffix, text) if suffix else text


def as_user(url, user, password):
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc='%s:%s@%s:%d' % (user, password, parts.hostname or '127.0.0.1', parts.port or 6379)).geturl()


class Redis(Storage):
    name = 'Redis'
    kinds = ['FCALL fence_set']

    def __init__(self, admin_url, writer_url, server=None, suffix='', user=WRITER, dry=False):
        """dry: commands that would harm other users if the server allowed them are asked about with ACL DRYRUN instead of sent."""
        self.admin_url, self.writer_url, self.server, self.sessions = admin_url, writer_url, server, []
        self.suffix, self.user, self.dry = suffix, user, dry
        info = Connection(admin_url).call('INFO', 'server')
        valkey = re.search(r'valkey_version:(\S+)', info)
        self.name = 'Valkey ' + valkey.group(1) if valkey else 'Redis ' + re.search(r'redis_version:(\S+)', info).group(1)
        if server is not None:
            self.restart = lambda: (server.kill(), server.start())

    def open(self):
        session = Connection(self.writer_url)
        self.sessions.append(session)
        return session

    def create(self, key, lock, value):
        self.first = {**getattr(self, 'first', {}), key: value}   # a record begins with its first write

    def fcall(self, session, name, *args):
        return session.call('FCALL', name + self.suffix, 0, *args)

    def claim(self, session, lock, token):
        self.fcall(session, 'fence_claim', lock, token)

    def read(self, session, lock, key):
        found = self.fcall(session, 'fence_peek', lock, key)
        return self.first[key] if found is None else found

    def write(self, session, lock, token, key, value, how):
        self.fcall(session, 'fence_set', lock, token, key, value)

    def mark(self, session, lock):
        return int(self.fcall(session, 'fence_mark', lock))

    def bypasses(self):
        def call(*words):
            return lambda session, lock, key, value: session.call(*[w.format(lock=lock, key=key, value=value) for w in words])
        yield 'SET of the key', call('SET', '{key}', '{value}')
        yield 'DEL of the key', call('DEL', '{key}')
        yield 'FCALL with no token', call('FCALL', 'fence_set' + self.suffix, '0', '{lock}', '', '{key}', '{value}')
        for what, words in FORBIDDEN:
            yield what, self.dry_run(words) if self.dry else call(*words)
        yield 'mark lowered by SET', call('SET', 'm:{lock}', '1')
        yield 'mark made to expire', call('EXPIRE', 'm:{lock}', '1')

    def dry_run(self, words):
        def act(session, lock, key, value):
            must(Connection(self.admin_url).call('ACL', 'DRYRUN', self.user, *words) != 'OK', '%s is allowed', words[0])
        return act

    def close(self):
        for session in self.sessions:
            session.end()
