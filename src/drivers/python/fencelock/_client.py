"""The blocking face: the library's own thread renews, so that a long computation or a blocked thread loses no lock."""

import atexit
import functools
import os
import threading
import time
import weakref
from ctypes import POINTER, byref

from . import _errors, _lease, _native, _watch
from ._native import lib

LOOK_S = 0.2 # how often a wait that can be stopped looks whether it is

_clients = weakref.WeakSet()


class Lost(threading.Event):
    """Set when the lease is lost or released. is_set() looks at the clock as well, so it is right also in the first moment after the
    process was stopped."""

    def __init__(self, lease):
        super().__init__()
        self._lease = weakref.ref(lease)

    def is_set(self):
        lease = self._lease()
        return super().is_set() or lease is None or lease.state == 'lost'


class Lease(_lease.LeaseBase):
    """`with` releases it. lost: an Event."""

    def __init__(self, client, name, number):
        self.lost = Lost(self)
        super().__init__(client, name, number)

    def _tell(self):
        self.lost.set()

    def release(self, timeout=_lease.RELEASE_S):
        """Gives the lock back. It waits for the answer no longer than `timeout` seconds, and a release without an answer goes on in the
        background. LostError says that the lease had ended before: no reason to do the work again."""
        answered = threading.Event()
        operation, held = self._start_release(answered.set)
        if not held and self._why is not _errors.ReleasedError:
            self.check()
        if operation is None:
            return
        if not answered.wait(timeout):
            raise _errors.Uncertain('the release of %r has no answer yet, and goes on' % self.name)
        if operation.status == -1013:
            raise _errors.LostError('the lock %r had ended before its release' % self.name)
        operation.result()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        try:
            self.release()
        except _errors.Error as e: # never over the body's own
            _lease.log.info('the release of %r: %s', self.name, e)


class Client:
    """One for each process: its locks of one TTL are one session at the service, and so one renewal. Any thread may use it."""

    def __init__(self, urls, tls=None):
        self._urls, self._guard, self._closed, self._pid = urls, threading.Lock(), False, os.getpid()
        self._open = set() # leases
        self._waits = set() # operations
        self._handle = _native.open_client(urls, tls, False, _lease.on_log)
        _clients.add(self)

    def acquire(self, name, ttl=10, wait=0, shared=False, permits=None, also=(), stop=None):
        """Takes the lock, for `ttl` seconds that are renewed, or queues for it for `wait` seconds; None: for ever. shared: together with
        other readers; permits: as one of so many holders; also: further names, all of them or none. stop: an Event that ends the wait.

        NotAcquired, Unavailable, Uncertain, Refused; ValueError. Whatever it raises, nothing stays held."""
        options = _lease.Options(name, ttl, wait, shared, permits, also)
        lease = Lease(self, name, _lease.next_number())
        answered = threading.Event()
        operation = _lease.Operation(self, answered.set)
        try:
            with self._guard:
                self._check()
                self._waits.add(operation)
                _lease.start_take(self._handle, options, lease, operation)
            self._await(answered, stop)
            with self._guard:
                self._check()
                _lease.adopt(operation, lease)
                self._open.add(lease)
            return lease
        except BaseException: # also of a KeyboardInterrupt
            if lease._lock is None:
                _lease._leases.pop(lease._number, None)
                operation.give_up()
            else:
                lease._start_release(int)
            raise
        finally:
            self._waits.discard(operation)

    @staticmethod
    def _await(answered, stop):
        while not answered.wait(None if stop is None else LOOK_S):
            if stop.is_set():
                raise _errors.Uncertain('the wait was stopped; what it may have got is given back')

    def elect(self, name, run, ttl=10, stop=None):
        """Runs run(lease) while this process leads, and returns its result. After a loss it stands again, once run() has returned, whatever
        that returned or raised; so run() must end soon after lease.lost is set. stop: an Event that ends it while it does not lead."""
        while True:
            try:
                lease = self.acquire(name, ttl=ttl, wait=None, stop=stop)
            except (_errors.NotAcquired, _errors.Unavailable, _errors.Uncertain):
                if stop is not None and stop.is_set():
                    return None
                time.sleep(LOOK_S)
                continue
            with lease:
                try:
                    result = run(lease)
                except Exception:
                    if not lease.lost.is_set():
                        raise
                else:
                    if not lease.lost.is_set():
                        return result
            if stop is not None and stop.is_set():
                return None

    def watch(self, pattern, stop=None):
        """Yields the events of all locks whose names the pattern matches (*, ?, [a-z]). The first is a resync, and one comes after each gap.
        stop: an Event that ends it."""
        with self._guard:
            self._check()
            watch = _watch.start(self._handle, pattern)
        try:
            said = POINTER(_native.Event)()
            while not self._closed and not (stop is not None and stop.is_set()):
                status = lib.fl_watch_next(watch, int(LOOK_S * 1000), byref(said))
                event = _watch.event_of(said) if status == 0 else None
                if event is not None:
                    yield event
                elif status not in (0, -1102):
                    with self._guard: # a handle that is closed says nothing more
                        if not self._closed:
                            raise _errors.of(status, _native.text_of(lib.fl_client_error(self._handle)))
        finally:
            lib.fl_watch_close(watch)

    def locked(self, name, **options):
        """A decorator: the function runs under the lock. When it has a parameter `lease`, it gets that."""
        def decorate(function):
            wants = 'lease' in function.__code__.co_varnames[:function.__code__.co_argcount + function.__code__.co_kwonlyargcount]

            @functools.wraps(function)
            def under(*args, **kwargs):
                with self.acquire(name.format(*args, **kwargs), **options) as lease:
                    return function(*args, lease=lease, **kwargs) if wants else function(*args, **kwargs)
            return under
        return decorate

    def _check(self):
        if self._closed:
            raise _errors.Closed('the client is closed: connect() again')

    def close(self):
        """Releases all locks, and ends the connections and the thread. Waits end with Closed."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            leases, waits = list(self._open), list(self._waits)
        for operation in waits: # first, so that what is released now is not granted to them
            operation.give_up()
        if self._pid == os.getpid():
            left = threading.Semaphore(0)
            started = [o for o, _ in (lease._start_release(left.release) for lease in leases) if o is not None]
            end = time.monotonic() + _lease.RELEASE_S
            for _ in started:
                left.acquire(timeout=max(0, end - time.monotonic()))
        for operation in waits:
            operation.wake()
        lib.fl_close(self._handle)
        _lease.drop(self, True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def _forked(self):
        """In a child: the library makes the handle the child's at the first call, and no lock is the child's."""
        self._guard, self._pid = threading.Lock(), os.getpid()
        self._open, self._waits = set(), set()


def _end_all():
    for client in list(_clients):
        client.close()


def _child():
    _lease._leases.clear()
    _lease._operations.clear()
    for client in list(_clients):
        client._forked()


atexit.register(_end_all) # before the interpreter ends: afterwards no callback could run
os.register_at_fork(after_in_child=_child)
