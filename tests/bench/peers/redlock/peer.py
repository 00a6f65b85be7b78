"""Redlock libraries on redis-py for tests/bench/redlock: CLIENTS threads in one process that take and give back a
lock each.

    python peer.py redlock-py|pottery SERVERS CLIENTS [LEADER]

With LEADER of a fencelock cluster each lock comes with a token. Reads "run MS", answers with a line of JSON."""

import json
import sys
import threading
import time

import redis

TTL_MS = 10000


def connect(address):
    host, _, port = address.rpartition(':')
    return redis.Redis(host=host, port=int(port))


def main():
    library, servers, clients = sys.argv[1], [connect(a) for a in sys.argv[2].split(',')], int(sys.argv[3])
    leader = connect(sys.argv[4]) if len(sys.argv) > 4 else None
    if library == 'redlock-py':
        from redlock import Redlock
        redlock = Redlock(servers)

        def once(name):
            lock = redlock.lock(name, TTL_MS)
            if leader is not None:
                leader.execute_command('TOKEN', name)
            redlock.unlock(lock)
    else:
        from pottery import Redlock

        def once(name):
            lock = Redlock(key=name, masters=servers, auto_release_time=TTL_MS / 1000)
            lock.acquire()
            if leader is not None:
                leader.execute_command('TOKEN', name)
            lock.release()

    def work(name, end, samples, errors):
        now = time.monotonic()
        while now < end:
            try:
                once(name)
            except Exception as e: # counted, and the first one shown
                errors.append(repr(e))
            then = time.monotonic()
            samples.append(then - now)
            now = then

    for line in sys.stdin:
        samples, errors = [], []
        began, cpu = time.monotonic(), time.process_time()
        end = began + int(line.split()[1]) / 1000
        threads = [threading.Thread(target=work, args=('python%d' % i, end, samples, errors)) for i in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        used = time.process_time() - cpu
        samples.sort()
        n = len(samples)
        if errors:
            print(errors[0], file=sys.stderr)
        print(json.dumps({'pairs': n, 'errors': len(errors), 'seconds': seconds, 'cpu_s': used,
                          'p50_us': round(samples[n // 2] * 1e6), 'p99_us': round(samples[n - 1 - n // 100] * 1e6),
                          'max_us': round(samples[-1] * 1e6)}), flush=True)


if __name__ == '__main__':
    main()
