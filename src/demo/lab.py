"""Real servers for the demonstration, and the faults done to them: five Redis, three nodes, two storages (one
checks tokens; the other is a Redis, and knows none), and before each storage a proxy for each writer, which can hold its write back."""

import glob
import json
import os
import select
import signal
import subprocess
import sys

from harness import Cluster, Lab, Store, wait_until
from harness.process import guard, release_from_guard
from plan import REDIS, WRITERS_MAX
from redlock_lab import Proxy, Redis

STEP_S = 60.0 # of each step; beyond it something is broken
FAKETIME = ('/usr/lib/*/faketime/libfaketime.so.1', '/usr/lib*/faketime/libfaketime.so.1',
            '/usr/local/lib/faketime/libfaketime.so.1')


class Trouble(Exception):
    """The demonstration cannot go on; says why."""


class Writer:
    """A writer's process (writer.py)."""

    def __init__(self, number, redis, nodes):
        self.name = 'writer %d' % (number + 1)
        argv = [sys.executable, sys.argv[0], '--writer', redis, nodes]
        self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.pid = self.child.pid
        guard(self)

    def tell(self, order):
        try:
            self.child.stdin.write(json.dumps(order).encode() + b'\n')
            self.child.stdin.flush()
        except OSError:
            raise Trouble('%s has ended' % self.name) from None

    def hear(self):
        if not select.select([self.child.stdout], [], [], STEP_S)[0]:
            raise Trouble('%s did not answer' % self.name)
        line = self.child.stdout.readline()
        if not line:
            raise Trouble('%s has ended' % self.name)
        return json.loads(line)

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)

    def end(self):
        os.killpg(self.pid, signal.SIGKILL) # and the tool that it may wait for
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()
        release_from_guard(self)


class DemoLab:
    def __init__(self):
        self.lab = Lab('fencelock-demo')
        self.writers, self.proxies = [], {}
        self.jumped_s = 0
        found = [path for pattern in FAKETIME for path in glob.glob(pattern)]
        self.faketime = found[0] if found else None

    def start(self):
        self.set_clock()
        self.redis = [self.start_redis(i) for i in range(REDIS)]
        cluster = Cluster(self.lab, 3).start()
        fenced = Store(self.lab, 'store-on').start()
        self.stores = {'off': Redis(self.lab, 'store-off'), 'on': fenced, 'writes': fenced}
        for store in (self.stores['off'], fenced):
            self.proxies[store] = [Proxy(store) for _ in range(WRITERS_MAX)]
        addresses = ','.join(r.address for r in self.redis)
        nodes = ','.join(cluster.addresses())
        self.writers = [Writer(i, addresses, nodes) for i in range(WRITERS_MAX)]

    def close(self):
        for writer in self.writers:
            writer.end()
        for proxies in self.proxies.values():
            for proxy in proxies:
                proxy.close()
        self.lab.quiet_close(keep=False)

    def proxy(self, mode, writer):
        return self.proxies[self.stores[mode]][writer]

    # ---- Redis --------------------------------------------------------------------------------

    def start_redis(self, i):
        if i > 0 or self.faketime is None:
            return Redis(self.lab, 'redis%d' % (i + 1))
        # Where Redis allocates with jemalloc, that asks for the time before libfaketime is ready, and libfaketime
        # for memory before jemalloc is: both would wait for ever. The allocator of the C library needs neither.
        env = {'LD_PRELOAD': 'libc_malloc_debug.so.0:' + self.faketime, 'FAKETIME_TIMESTAMP_FILE': self.lab.path('clock'),
               'FAKETIME_NO_CACHE': '1', 'FAKETIME_DONT_FAKE_MONOTONIC': '1'}
        try:
            return Redis(self.lab, 'redis1', env=env)
        except AssertionError: # it does not run under it here: its clock cannot jump, the rest goes on
            self.faketime = None
            self.lab.processes.pop().kill()
            return Redis(self.lab, 'redis1')

    def set_clock(self):
        """In one step: a file that is half written would be no time at all."""
        with open(self.lab.path('clock.next'), 'w', encoding='ascii') as f:
            f.write('+%d\n' % self.jumped_s)
        os.rename(self.lab.path('clock.next'), self.lab.path('clock'))

    def jump(self, seconds):
        self.jumped_s += seconds
        self.set_clock()

    def hold_back(self, mode, writer, send):
        """Holds back what `send` makes this writer send."""
        proxy = self.proxy(mode, writer)
        proxy.hold()
        proxy.seen = b''
        send()
        wait_until(lambda: proxy.seen, 'the write that is held back', every=0.002, seconds=STEP_S)
