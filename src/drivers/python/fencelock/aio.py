"""The face for asyncio: no thread. The loop watches the library's descriptor, so a loop that is blocked for longer than the TTL loses its
locks, and lease.check() says so."""

import asyncio
import atexit
import os
import sys
import weakref

from . import _errors, _lease, _native, _watch
from ._native import lib

_clients = weakref.WeakSet()


class Lease(_lease.LeaseBase):
    """`async with` releases it, and cancels its body when the lock is lost: then it raises LostError, as asyncio.timeout raises
    TimeoutError. lost: an asyncio.Event."""

    def __init__(self, client, name, number):
        super().__init__(client, name, number)
        self.lost = asyncio.Event()
        self._task, self._cancelled = None, False

    def _tell(self):
        self.lost.set()
        if self._task is not None and self._why is _errors.LostError and not self._client._loop.is_closed():
            self._client._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self):
        """By the loop, while the body awaits something. A task that is cancelled while it runs, as by its own check(), gets to know at its
        next await, which may be far behind the block."""
        if self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    async def release(self, timeout=_lease.RELEASE_S):
        """Gives the lock back. It waits for the answer no longer than `timeout` seconds, and the release goes on without who waits for it,
        also when the task is cancelled. LostError says that the lease had ended before: no reason to do the work again."""
        answered = asyncio.Event()
        operation, held = self._start_release(answered.set)
        if not held and self._why is not _errors.ReleasedError:
            self.check()
        if operation is None:
            return
        try:
            await asyncio.wait_for(answered.wait(), timeout)
        except asyncio.TimeoutError:
            raise _errors.Uncertain('the release of %r has no answer yet, and goes on' % self.name) from None
        if operation.status == -1013:
            raise _errors.LostError('the lock %r had ended before its release' % self.name)
        operation.result()

    async def __aenter__(self):
        try:
            self.check() # first: __aexit__ does not come after it
        except _errors.LostError:
            self._start_release(int)
            raise
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if sys.version_info >= (3, 11) else 0
        return self

    async def __aexit__(self, kind, error, trace):
        self._task, task = None, self._task
        ours = self._cancelled and (sys.version_info < (3, 11) or task.uncancel() <= self._before)
        try:
            await self.release()
        except _errors.Error as e: # never over the body's own
            _lease.log.info('the release of %r: %s', self.name, e)
        if ours and kind is asyncio.CancelledError:
            raise _errors.LostError('the lock %r was lost: another client may hold it from now on' % self.name) from error


class Acquiring:
    """An acquire that has not begun: `await` it for a lease, or use it with `async with`."""

    def __init__(self, client, options):
        self._client, self._options = client, options

    def __await__(self):
        return self._client._acquire(self._options).__await__()

    async def __aenter__(self):
        self._lease = await self
        return await self._lease.__aenter__()

    async def __aexit__(self, *exc):
        return await self._lease.__aexit__(*exc)


class Client:
    """One for each event loop: its locks of one TTL are one session at the service, and so one renewal."""

    def __init__(self, urls, tls=None):
        self._loop, self._pid, self._closed = asyncio.get_running_loop(), os.getpid(), False
        self._open, self._waits, self._watches = set(), set(), set()
        self._handle = _native.open_client(urls, tls, True, _lease.on_log)
        self._loop.add_reader(lib.fl_fd(self._handle), self._process)
        _clients.add(self)

    def acquire(self, name, ttl=10, wait=0, shared=False, permits=None, also=()):
        """As fencelock.Client.acquire. A wait is given up by cancelling its task, and nothing stays held."""
        return Acquiring(self, _lease.Options(name, ttl, wait, shared, permits, also))

    async def _acquire(self, options):
        self._check()
        lease = Lease(self, options.name, _lease.next_number())
        answered = asyncio.Event()
        operation = _lease.Operation(self, answered.set)
        self._waits.add(operation)
        try:
            _lease.start_take(self._handle, options, lease, operation)
            await answered.wait()
            self._check()
            _lease.adopt(operation, lease)
            self._open.add(lease)
            return lease
        except BaseException:
            operation.give_up()
            _lease._leases.pop(lease._number, None)
            raise
        finally:
            self._waits.discard(operation)

    async def elect(self, name, run, ttl=10):
        """Awaits run(lease) while this process leads, and returns its result. After a loss, which cancels run(), it stands again."""
        while True:
            try:
                async with self.acquire(name, ttl=ttl, wait=None) as lease:
                    result = await run(lease)
                    if not lease.lost.is_set():
                        return result
            except (_errors.LostError, _errors.NotAcquired, _errors.Unavailable, _errors.Uncertain):
                await asyncio.sleep(0.2)

    async def watch(self, pattern):
        """Yields the events of all locks whose names the pattern matches (*, ?, [a-z]). The first is a resync, and one comes after each gap."""
        self._check()
        turned = asyncio.Event()
        watch = _watch.start(self._handle, pattern)
        self._watches.add(turned)
        try:
            while not self._closed:
                turned.clear()
                said = lib.fl_watch_poll(watch)
                event = _watch.event_of(said) if said else None
                if event is not None:
                    yield event
                elif not said:
                    await turned.wait()
        finally:
            self._watches.discard(turned)
            lib.fl_watch_close(watch)

    def _process(self):
        lib.fl_process(self._handle)
        for turned in self._watches:
            turned.set()

    def _check(self):
        if self._closed:
            raise _errors.Closed('the client is closed: connect() again')
        if self._pid != os.getpid():
            raise _errors.Closed('the client belongs to the process that forked this one: connect() in this one')
        if asyncio.get_running_loop() is not self._loop:
            raise _errors.Closed('the client belongs to another event loop: connect() in this one')

    async def close(self):
        """Releases all locks, and ends the connections. Waits end with Closed."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        for operation in list(self._waits): # first, so that what is released now is not granted to them
            operation.give_up()
        await asyncio.gather(*(lease.release() for lease in list(self._open)), return_exceptions=True)
        self._end()

    def _end(self):
        self._closed = True
        is_open = not self._loop.is_closed()
        if is_open:
            self._loop.remove_reader(lib.fl_fd(self._handle))
        lib.fl_close(self._handle)
        _lease.drop(self, is_open)
        for wake in [*(turned.set for turned in self._watches), *(o.wake for o in self._waits)] if is_open else ():
            wake()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        await self.close()


def connect(urls, tls=None):
    """A client of the running loop. It asks nobody yet; names of hosts are resolved here, once."""
    return Client(urls, tls)


def _end_all():
    for client in list(_clients):
        if not client._closed and client._pid == os.getpid():
            client._end()


atexit.register(_end_all)
