"""Python libraries as peers: see redlock_peers.py for the lines that it reads and writes.

peer.py LIBRARY HOST:PORT,..."""

import sys

import redis


def clients(addresses):
    return [redis.Redis(host=a.split(':')[0], port=int(a.split(':')[1])) for a in addresses.split(',')]


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


class Pottery:
    def __init__(self, servers):
        from pottery import Redlock
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


LIBRARIES = {'redis-py': RedisPy, 'redlock-py': RedlockPy, 'pottery': Pottery, 'python-redis-lock': PythonRedisLock}


def main():
    peer = LIBRARIES[sys.argv[1]](clients(sys.argv[2]))
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == 'lock':
                answer = peer.lock(words[1], int(words[2]))
            elif words[0] == 'extend':
                answer = peer.extend(int(words[1]))
            else:
                answer = peer.unlock()
        except Exception as e: # whatever a library throws is reported to the test, which judges it
            answer = 'error %s %s' % (type(e).__name__, ' '.join(str(e).split()))
        print(answer, flush=True)


if __name__ == '__main__':
    main()
