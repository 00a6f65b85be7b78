"""celery-once and celery-redbeat as peers: see redlock_peers.py for the lines that it reads and writes.

celery_peer.py LIBRARY HOST:PORT"""

import sys

from celery import Celery
from celery.schedules import schedule
from celery_once import AlreadyQueued
from celery_once.backends import Redis as OnceRedis
from redbeat import RedBeatSchedulerEntry


class Once:
    """What keeps a task from being queued twice. Its key has no owner."""

    def __init__(self, url):
        self.backend = OnceRedis({'url': url, 'default_timeout': 60})

    def lock(self, key, ttl_ms):
        try:
            self.backend.raise_or_lock(key, ttl_ms // 1000)
        except AlreadyQueued:
            return 'refused'
        self.key = key
        return 'held'

    def unlock(self):
        self.backend.clear_lock(self.key)
        return 'done'


class Redbeat:
    """The scheduler of periodic tasks: an entry of its schedule."""

    def __init__(self, url):
        self.app = Celery('peer', broker=url)
        self.app.conf.redbeat_redis_url = url

    def lock(self, key, ttl_ms):
        RedBeatSchedulerEntry(key, 'task', schedule(ttl_ms / 1000), app=self.app).save()
        return 'held'


def main():
    peer = {'celery-once': Once, 'celery-redbeat': Redbeat}[sys.argv[1]]('redis://%s/0' % sys.argv[2])
    for line in sys.stdin:
        words = line.split()
        try:
            answer = peer.lock(words[1], int(words[2])) if words[0] == 'lock' else peer.unlock()
        except Exception as e: # whatever a library throws is reported to the test, which judges it
            answer = 'error %s %s' % (type(e).__name__, ' '.join(str(e).split()))
        print(answer, flush=True)


if __name__ == '__main__':
    main()
