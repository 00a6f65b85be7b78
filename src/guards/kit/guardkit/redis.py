"""Redis 7 and Valkey behind src/guards/redis, over a plain socket."""

import re
import socket
import urllib.parse

from .storage import Refused, Storage, Unknown

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


def library(path, secret):
    with open(path) as f:
        return f.read().replace('@SECRET@', secret)


class Redis(Storage):
    name = 'Redis'
    kinds = ['FCALL fence_set']

    def __init__(self, admin_url, writer_url, server=None):
        self.admin_url, self.writer_url, self.server, self.sessions = admin_url, writer_url, server, []
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

    def claim(self, session, lock, token):
        session.call('FCALL', 'fence_claim', 0, lock, token)

    def read(self, session, lock, key):
        found = session.call('FCALL', 'fence_peek', 0, lock, key)
        return self.first[key] if found is None else found

    def write(self, session, lock, token, key, value, how):
        session.call('FCALL', 'fence_set', 0, lock, token, key, value)

    def mark(self, session, lock):
        return int(session.call('FCALL', 'fence_mark', 0, lock))

    def bypasses(self):
        def call(*words):
            return lambda session, lock, key, value: session.call(*[w.format(lock=lock, key=key, value=value) for w in words])
        yield 'SET of the key', call('SET', '{key}', '{value}')
        yield 'DEL of the key', call('DEL', '{key}')
        yield 'FCALL with no token', call('FCALL', 'fence_set', '0', '{lock}', '', '{key}', '{value}')
        yield 'EVAL', call('EVAL', "return redis.call('SET', KEYS[1], ARGV[1])", '1', '{key}', '{value}')
        yield 'SCAN for the secret', call('SCAN', '0')
        yield 'library read', call('FUNCTION', 'LIST', 'WITHCODE')
        yield 'library replaced', call('FUNCTION', 'LOAD', 'REPLACE', '#!lua name=fencelock\n')
        yield 'MONITOR', call('MONITOR')
        yield 'own rights raised', call('ACL', 'SETUSER', WRITER, '~*', '+@all')
        yield 'FLUSHALL of marks', call('FLUSHALL')
        yield 'mark lowered by SET', call('SET', 'm:{lock}', '1')
        yield 'mark made to expire', call('EXPIRE', 'm:{lock}', '1')

    def close(self):
        for session in self.sessions:
            session.end()
