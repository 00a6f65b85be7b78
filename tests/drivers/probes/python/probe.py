"""The probe of the Python driver: see tests/drivers/suite. FACE: asyncio (the default) or threads."""

import asyncio
import json
import os
import signal
import sys
import threading
import time

import fencelock
import fencelock.aio
from fencelock import LostError, NotAcquired, Refused, ReleasedError, StaleToken, Uncertain, Unavailable

WORDS = ((NotAcquired, 'notacquired'), (Uncertain, 'uncertain'), (asyncio.CancelledError, 'uncertain'), (Unavailable, 'unavailable'),
         (ReleasedError, 'released'), (LostError, 'lost'), (fencelock.Closed, 'closed'), (ValueError, 'argument'))
leases, cancels = {}, {}
printing = threading.Lock()


def boot_ms():
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


def say(who, event, **more):
    with printing:
        print(json.dumps(dict(more, at=boot_ms(), id=who, event=event)), flush=True)


def word_of(error):
    if error is None:
        return None
    for kind, word in WORDS:
        if isinstance(error, kind):
            return word
    return error.word if isinstance(error, Refused) else repr(error)


def failed(who, e):
    say(who, 'failed', error=word_of(e), text=str(e))


def options(words):
    o = {}
    for w in words:
        key, _, value = w.partition('=')
        o[key] = (int(value) / 1000 if key in ('ttl', 'wait') else True if key == 'shared' else int(value) if key == 'permits'
                  else value.split(','))
    return o


def state(who):
    lease, error = leases[who], None
    try:
        lease.check()
    except LostError as e:
        error = e
    say(who, 'state', state=lease.state, remaining=lease.remaining * 1000, error=word_of(error))


def why_of(lease):
    try:
        lease.check()
    except LostError as e:
        return word_of(e)
    return None


class Believer:
    """Notes the last moment at which a lease was believed in, every few milliseconds, and tells of the loss."""

    def __init__(self, who, lease):
        self.who, self.lease, self.last = who, lease, 0 # it may have been stopped before its first look

    def still(self):
        at = boot_ms()
        if why_of(self.lease) is None:
            self.last = at
            return True
        return False

    def tell(self):
        say(self.who, 'ended', why=why_of(self.lease), believed=self.last, noticed=boot_ms())


def outcome(who, committing, error):
    if error is None:
        say(who, 'added')
    elif isinstance(error, StaleToken):
        say(who, 'stale')
    elif committing:
        say(who, 'perhaps', text=str(error))
    else:
        say(who, 'not added', text=str(error))


class Face:
    """With threads: each command has one."""

    def __init__(self, url, tls):
        self.locks = fencelock.connect(url, tls=tls)

    def run(self):
        threading.excepthook = lambda e: say('', 'died', text=repr(e.exc_value))
        say('', 'ready')
        for line in sys.stdin:
            words = line.split()
            if words[0] == 'cancel':
                cancels[words[1]].set()
            elif not common(words):
                cancels[words[1]] = threading.Event()
                threading.Thread(target=getattr(self, words[0]), args=words[1:], daemon=True).start()

    def acquire(self, who, name, *more):
        try:
            lease = self.locks.acquire(name, stop=cancels[who], **options(more))
        except Exception as e: # noqa: BLE001
            failed(who, e)
            return
        leases[who] = lease
        say(who, 'acquired', token=lease.token)
        self.believe(who, lease)

    def believe(self, who, lease):
        believer = Believer(who, lease)
        while believer.still():
            lease.lost.wait(0.005)
        believer.tell()

    def release(self, who):
        began, error = boot_ms(), None
        try:
            leases[who].release()
        except (fencelock.Error, ValueError) as e:
            error = e
        say(who, 'released', error=word_of(error), took=boot_ms() - began)

    def elect(self, who, name, *more):
        def leads(lease):
            say(who, 'leads', token=lease.token)
            threading.Thread(target=self.believe, args=(who, lease), daemon=True).start()
            while not lease.lost.wait(0.05) and not cancels[who].is_set():
                pass
        self.locks.elect(name, leads, stop=cancels[who], **options(more))
        say(who, 'resigned', error=None)

    def watch(self, who, pattern):
        for e in self.locks.watch(pattern, stop=cancels[who]):
            say(who, 'event', kind=e.kind, lock=e.lock, token=e.token)
        say(who, 'unwatched')

    def many(self, who, prefix, n, *more):
        held, gate = [], threading.Semaphore(32)

        def one(i):
            with gate:
                held.append(self.locks.acquire('%s-%d' % (prefix, i), **options(more)))
        threads = [threading.Thread(target=one, args=(i,)) for i in range(int(n))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        say(who, 'many', acquired=len(held))
        while True:
            time.sleep(0.2)
            say(who, 'count', lost=sum(lease.lost.is_set() for lease in held))

    def work(self, who, name, url, n, *more):
        import psycopg
        from fencelock.psycopg import Fence
        with psycopg.connect(url, autocommit=True) as db:
            for _ in range(int(n)):
                committing, error = False, None
                try:
                    with self.locks.acquire(name, **options(more)) as lease:
                        fence = Fence.claim(db, lease)
                        balance = db.execute('SELECT balance FROM account WHERE lock = %s', (name,)).fetchone()[0]
                        committing = True
                        with fence.transaction() as cur:
                            cur.execute('UPDATE account SET balance = %s WHERE lock = %s', (balance + 1, name))
                except (fencelock.Error, psycopg.Error) as e:
                    error = e
                outcome(who, committing, error)
        say(who, 'worked')

    def close(self, who):
        self.locks.close()
        say(who, 'closed', error=None)


class Loop(Face):
    """On asyncio: each command has a task."""

    def __init__(self, url, tls):
        self.url, self.tls = url, tls

    def run(self):
        asyncio.run(self.main())

    async def main(self):
        self.locks = fencelock.aio.connect(self.url, tls=self.tls)
        reader = asyncio.StreamReader(limit=1 << 20)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        say('', 'ready')
        self.tasks, self.told = set(), set()
        while True:
            words = (await reader.readline()).decode().split()
            if not words:
                return
            if words[0] == 'cancel':
                self.told.add(cancels[words[1]])
                cancels[words[1]].cancel()
            elif not common(words):
                task = asyncio.ensure_future(getattr(self, words[0])(*words[1:]))
                self.tasks.add(task)
                task.add_done_callback(self.ended)
                if words[0] != 'release':
                    cancels[words[1]] = task

    def ended(self, task):
        """No task ends by an exception that nobody expects, or because something has cancelled it that was not told to."""
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None or task.cancelled() and task not in self.told:
            say('', 'died', text=repr(None if task.cancelled() else task.exception()))

    async def acquire(self, who, name, *more):
        try:
            lease = await self.locks.acquire(name, **options(more))
        except (Exception, asyncio.CancelledError) as e: # noqa: BLE001
            failed(who, e)
            return
        leases[who] = lease
        say(who, 'acquired', token=lease.token)
        await self.believe(who, lease)

    async def believe(self, who, lease):
        believer = Believer(who, lease)
        while believer.still():
            await asyncio.sleep(0.005)
        believer.tell()

    async def release(self, who):
        began, error = boot_ms(), None
        try:
            await leases[who].release()
        except (fencelock.Error, ValueError) as e:
            error = e
        say(who, 'released', error=word_of(error), took=boot_ms() - began)

    async def elect(self, who, name, *more):
        async def leads(lease):
            say(who, 'leads', token=lease.token)
            task = asyncio.ensure_future(self.believe(who, lease))
            self.tasks.add(task)
            await asyncio.Event().wait()
        try:
            await self.locks.elect(name, leads, **options(more))
        except asyncio.CancelledError:
            say(who, 'resigned', error=None)

    async def watch(self, who, pattern):
        try:
            async for e in self.locks.watch(pattern):
                say(who, 'event', kind=e.kind, lock=e.lock, token=e.token)
        finally:
            say(who, 'unwatched')

    async def many(self, who, prefix, n, *more):
        gate = asyncio.Semaphore(32)

        async def one(i):
            async with gate:
                return await self.locks.acquire('%s-%d' % (prefix, i), **options(more))
        held = await asyncio.gather(*(one(i) for i in range(int(n))))
        say(who, 'many', acquired=len(held))
        while True:
            await asyncio.sleep(0.2)
            say(who, 'count', lost=sum(lease.lost.is_set() for lease in held))

    async def work(self, who, name, url, n, *more):
        import psycopg
        from fencelock.psycopg import AsyncFence
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
            for _ in range(int(n)):
                committing, error = False, None
                try:
                    async with self.locks.acquire(name, **options(more)) as lease:
                        fence = await AsyncFence.claim(db, lease)
                        balance = (await (await db.execute('SELECT balance FROM account WHERE lock = %s', (name,))).fetchone())[0]
                        committing = True
                        async with fence.transaction() as cur:
                            await cur.execute('UPDATE account SET balance = %s WHERE lock = %s', (balance + 1, name))
                except (fencelock.Error, psycopg.Error) as e:
                    error = e
                outcome(who, committing, error)
        say(who, 'worked')

    async def close(self, who):
        await self.locks.close()
        say(who, 'closed', error=None)


def common(words):
    """What both faces do at once."""
    if words[0] == 'state':
        state(words[1])
    elif words[0] == 'threads':
        say(words[1], 'threads', n=len(os.listdir('/proc/self/task')) + (
            len(asyncio.all_tasks()) if os.environ.get('FACE') != 'threads' else 0))
    elif words[0] == 'die':
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        return False
    return True


if __name__ == '__main__':
    ca = os.environ.get('PROBE_CA')
    face = Face if os.environ.get('FACE') == 'threads' else Loop
    face(sys.argv[1], fencelock.Tls(ca_file=ca) if ca else None).run()
