"""Python libraries as peers: see redlock_peers.py for the lines that it reads and writes.

peer.py LIBRARY HOST:PORT,...

PEER_CA, a file: with TLS. PEER_USER and PEER_PASSWORD: who logs in."""

import os
import ssl
import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def clients(addresses):
    more = {'socket_timeout': 240, 'socket_connect_timeout': 240} # newer releases have 5 s, which a busy machine may take
    if os.environ.get('PEER_CA'):
        more.update(ssl=True, ssl_ca_certs=os.environ['PEER_CA'])
    if os.environ.get('PEER_USER'):
        more.update(username=os.environ['PEER_USER'], password=os.environ['PEER_PASSWORD'],
                    retry=Retry(NoBackoff(), 0))  # a wrong password would be tried for a minute
    return [redis.Redis(host=a.split(':')[0], port=int(a.split(':')[1]), **more) for a in addresses.split(',')]


def token_of(server, key, value):
    """The fencing token of a lock that fencelockd serves (docs/FRONTDOOR.md)."""
    token = server.execute_command('LOCKTOKEN', key, value)
    return 'none' if token is None else 'token %d' % token


class RedisPy:
    """The Lock that comes with redis-py: one server."""

    def __init__(self, servers):
        self.server, = servers

    def lock(self, key, ttl_ms):
        lock = self.server.lock(key, timeout=ttl_ms / 1000, blocking=False)
        if not lock.acquire():
            return 'refused'
        self.held = lock
        return 'held'

    def extend(self, ttl_ms):
        try:
            self.held.extend(ttl_ms / 1000, replace_ttl=True)
            return 'held'
        except redis.exceptions.LockError:
            return 'lost'

    def unlock(self):
        try:
            self.held.release()
            return 'freed'
        except redis.exceptions.LockError:
            return 'lost'

    def token(self):
        return token_of(self.server, self.held.name, self.held.local.token)


class ClusterMode:
    """redis-py, set up for a Redis Cluster."""

    def __init__(self, servers):
        self.address = servers[0].get_connection_kwargs()

    def lock(self, key, ttl_ms):
        one = redis.RedisCluster(host=self.address['host'], port=self.address['port'])
        return 'held' if one.set(key, 'value', nx=True, px=ttl_ms) else 'refused'


class DjangoRedis(RedisPy):
    """The lock of Django's cache in Redis, which is redis-py's with a prefix."""

    def __init__(self, servers):
        import django
        from django.conf import settings
        address = servers[0].get_connection_kwargs()
        scheme = 'rediss' if os.environ.get('PEER_CA') else 'redis'
        options = {key: address[key] for key in ('username', 'password', 'ssl_ca_certs', 'retry', 'socket_timeout') if key in address}
        settings.configure(CACHES={'default': {
            'BACKEND': 'django_redis.cache.RedisCache', 'LOCATION': '%s://%s:%d/0' % (scheme, address['host'], address['port']),
            'OPTIONS': {'CONNECTION_POOL_KWARGS': options}}})
        django.setup()
        from django.core.cache import cache
        self.server, self.cache = servers[0], cache

    def lock(self, key, ttl_ms):
        lock = self.cache.lock(key, timeout=ttl_ms / 1000, blocking=False)
        if not lock.acquire():
            return 'refused'
        self.held = lock
        return 'held'


class RedlockPy:
    def __init__(self, servers):
        from redlock import Redlock
        self.redlock = Redlock(servers, retry_count=1, retry_delay=0.001)

    def lock(self, key, ttl_ms):
        lock = self.redlock.lock(key, ttl_ms)
        if not lock:
            return 'refused'
        self.held = lock
        return 'held'

    def unlock(self):
        self.redlock.unlock(self.held)
        return 'done' # it does not tell

    def token(self):
        return token_of(self.redlock.servers[0], self.held.resource, self.held.key)


class Pottery:
    def __init__(self, servers):
        from pottery import Redlock
        self.servers = servers
        self.make = lambda key, ttl_ms: Redlock(key=key, masters=servers, auto_release_time=ttl_ms / 1000)

    def lock(self, key, ttl_ms):
        lock = self.make(key, ttl_ms)
        if not lock.acquire(blocking=False):
            return 'refused'
        self.held = lock
        return 'held'

    def extend(self, ttl_ms):
        from pottery.exceptions import ExtendUnlockedLock
        self.held.auto_release_time = ttl_ms / 1000
        try:
            self.held.extend()
            return 'held'
        except ExtendUnlockedLock:
            return 'lost'

    def unlock(self):
        from pottery.exceptions import ReleaseUnlockedLock
        try:
            self.held.release()
            return 'freed'
        except ReleaseUnlockedLock:
            return 'lost'

    def token(self):
        return token_of(self.servers[0], self.held.key, self.held._uuid)


class PythonRedisLock:
    """python-redis-lock: one server, whole seconds."""

    def __init__(self, servers):
        import redis_lock
        self.module, (self.server,) = redis_lock, servers

    def lock(self, key, ttl_ms):
        lock = self.module.Lock(self.server, key, expire=ttl_ms // 1000)
        if not lock.acquire(blocking=False):
            return 'refused'
        self.held = lock
        return 'held'

    def extend(self, ttl_ms):
        try:
            self.held.extend(expire=ttl_ms // 1000)
            return 'held'
        except self.module.NotAcquired:
            return 'lost'

    def unlock(self):
        try:
            self.held.release()
            return 'freed'
        except self.module.NotAcquired:
            return 'lost'


    def wait(self, key, ttl_ms):
        lock = self.module.Lock(self.server, key, expire=ttl_ms // 1000)
        if not lock.acquire(blocking=True):
            return 'refused'
        self.held = lock
        return 'held'

    def token(self):
        return token_of(self.server, self.held._name, self.held.id)


class Aioredlock:
    """Of asyncio; here with a loop of its own."""

    def __init__(self, addresses):
        import asyncio
        import aioredlock
        self.module, self.loop = aioredlock, asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)

        more = {}
        if os.environ.get('PEER_CA'):
            more['ssl'] = ssl.create_default_context(cafile=os.environ['PEER_CA'])
        if os.environ.get('PEER_PASSWORD'):
            more['password'] = os.environ['PEER_PASSWORD']  # its driver names no user, which is `default`

        async def make():
            return aioredlock.Aioredlock([{'host': a.split(':')[0], 'port': int(a.split(':')[1]), **more} for a in addresses],
                                         retry_count=1, retry_delay_min=0.001, retry_delay_max=0.002)
        self.manager = self.loop.run_until_complete(make())

    def run(self, call):
        return self.loop.run_until_complete(call)

    def lock(self, key, ttl_ms):
        try:
            self.held = self.run(self.manager.lock(key, lock_timeout=ttl_ms / 1000))
            return 'held'
        except self.module.LockAcquiringError:
            return 'refused'

    def extend(self, ttl_ms):
        try:
            self.run(self.manager.extend(self.held, ttl_ms / 1000))
            return 'held'
        except self.module.LockError:
            return 'lost'

    def unlock(self):
        try:
            self.run(self.manager.unlock(self.held))
            return 'freed'
        except self.module.LockError:
            return 'lost'

    def token(self):
        async def ask():
            with await self.manager.redis.instances[0].connect() as connection:
                return await connection.execute('LOCKTOKEN', self.held.resource, self.held.id)
        token = self.run(ask())
        return 'none' if token is None else 'token %d' % token


LIBRARIES = {'redis-py': RedisPy, 'redlock-py': RedlockPy, 'pottery': Pottery, 'python-redis-lock': PythonRedisLock,
             'django-redis': DjangoRedis, 'cluster': ClusterMode}


def main():
    if sys.argv[1] == 'aioredlock':
        peer = Aioredlock(sys.argv[2].split(','))
    else:
        peer = LIBRARIES[sys.argv[1]](clients(sys.argv[2]))
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == 'lock':
                answer = peer.lock(words[1], int(words[2]))
            elif words[0] == 'wait':
                answer = peer.wait(words[1], int(words[2]))
            elif words[0] == 'extend':
                answer = peer.extend(int(words[1]))
            elif words[0] == 'token':
                answer = peer.token()
            else:
                answer = peer.unlock()
        except Exception as e: # whatever a library throws is reported to the test, which judges it
            answer = 'error %s %s' % (type(e).__name__, ' '.join(str(e).split()))
        print(answer, flush=True)


if __name__ == '__main__':
    main()
