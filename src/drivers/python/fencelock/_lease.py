"""What both faces have in common: one lock that is held, and one request under way."""

import itertools
import logging
import os
import threading
import time
from ctypes import POINTER, byref, c_uint64, cast

from . import _errors, _native
from ._native import lib

log = logging.getLogger('fencelock')
RELEASE_S = 5
BEYOND_MS = 10000 # how long a request may look for a node that serves, beyond its wait

NOBODY = _native.done_type()
_numbers = itertools.count(1)
_leases = {} # number of a lease -> lease, while it is held
_operations = {} # number of an operation -> operation, while it is under way


class Tls:
    """Files in PEM for a fencelocks:// URL. Without them the system's authorities are trusted."""

    def __init__(self, ca_file=None, cert_file=None, key_file=None, server_name=None):
        self.ca_file, self.cert_file, self.key_file, self.server_name = ca_file, cert_file, key_file, server_name


class Options:
    """The arguments of an acquire, checked, as the library wants them."""

    def __init__(self, name, ttl, wait, shared, permits, also):
        self.name = name
        raw = [_native.bytes_of(n, 'a name') for n in (name, *also)]
        self.also = (_native.Bytes * len(raw[1:]))(*raw[1:])
        if permits is not None and permits < 1:
            raise ValueError('permits is the number of holders at a time, 1 to 1000000, not %r' % permits)
        self.take = _native.Take(
            ttl_ms=_native.milliseconds(ttl, 'ttl'), wait_ms=_native.WAIT_MAX_MS if wait is None else _native.milliseconds(wait, 'wait'),
            timeout_ms=BEYOND_MS, name=raw[0], mode=_native.MODE_SHARED if shared else 0, permits=permits or 0,
            also=cast(self.also, POINTER(_native.Bytes)), also_len=len(also), shares=True)
        if self.take.ttl_ms == 0:
            raise ValueError('ttl is at least 0.01 seconds')
        self.keep = raw


class Operation:
    """A request that is under way. The callback of the library ends it, or who waits for it gives it up: the first of them has it."""

    def __init__(self, client, wake):
        self.number, self.client, self.wake = next(_numbers), client, wake
        self.first, self.given_up = threading.Lock(), threading.Lock()
        self.call = c_uint64()
        self.over = False
        self.status, self.error, self.lock, self.token = None, '', None, 0
        _operations[self.number] = self

    def ended(self, result):
        if not self.first.acquire(blocking=False): # it is being given up
            if result.lock:
                lib.fl_lock_release_start(result.lock, 0, NOBODY, None)
            return
        self.status, self.error, self.lock, self.token = result.status, _native.text_of(result.error), result.lock, result.token
        self.finish()

    def finish(self):
        self.over = True
        _operations.pop(self.number, None)
        self.wake()

    def give_up(self):
        """From then on it holds nothing and waits for nothing, once the library has settled it."""
        if not self.given_up.acquire(blocking=False):
            return
        if self.first.acquire(blocking=False):
            _operations.pop(self.number, None)
            if self.call:
                lib.fl_call_cancel(self.client._handle, self.call)
            return
        while not self.over: # its callback is on its way through ended()
            time.sleep(0.001)
        if self.lock: # it had just been granted
            lib.fl_lock_release_start(self.lock, 0, NOBODY, None)

    def result(self):
        if self.status == 0:
            return
        raise _errors.of(self.status, self.error)


@_native.done_type
def on_done(number, result):
    operation = _operations.get(number)
    if operation is not None:
        operation.ended(result.contents)
    elif result.contents.lock:
        lib.fl_lock_release_start(result.contents.lock, 0, NOBODY, None)


@_native.on_change_type
def on_change(number, _lock, state):
    lease = _leases.get(number)
    if lease is not None and _native.STATES[state] == 'lost':
        lease._ended(_errors.LostError)


@_native.on_log_type
def on_log(_arg, text):
    log.warning('%s', _native.text_of(text))


class LeaseBase:
    """A lock that is held, and renewed until it is released or lost. The owner is the lease: any thread may use it."""

    def __init__(self, client, name, number):
        self.name, self.token = name, 0
        self._client, self._number, self._pid = client, number, os.getpid()
        self._guard = threading.Lock() # of the pointer: a release frees it
        self._lock, self._why = None, None

    def __repr__(self):
        return '<fencelock lease of %r, token %d, %s>' % (self.name, self.token, self.state)

    def _begin(self, lock, token):
        self._lock, self.token = lock, token

    def _ended(self, why):
        if self._why is None:
            self._why = why
            _leases.pop(self._number, None)
            self._tell()

    def _look(self, function, otherwise):
        if self._pid != os.getpid():
            return otherwise
        with self._guard:
            return otherwise if self._lock is None or self._why is not None else function(self._lock)

    @property
    def state(self):
        """'safe'; 'jeopardy' (no renewal has succeeded for half of the TTL: begin nothing long); 'lost'."""
        state = _native.STATES[self._look(lib.fl_lock_state, 2)]
        if state == 'lost':
            self._ended(_errors.LostError)
        return state

    @property
    def remaining(self):
        """Seconds for which the lease may be believed in if no further renewal succeeds; 0: it is over. It looks at a clock that goes on
        while the machine or the process is suspended."""
        return self._look(lib.fl_lock_remaining_ms, 0) / 1000

    def check(self):
        """Raises LostError (ReleasedError after a release) unless the lock is held at this moment."""
        if self.state == 'lost':
            why = self._why or _errors.LostError
            if self._pid != os.getpid():
                raise why('the lock %r is held by the process that forked this one: acquire it here' % self.name)
            raise why('the lock %r is %s' % (self.name, 'released' if why is _errors.ReleasedError
                                             else 'lost: another client may hold it from now on'))

    def _start_release(self, wake):
        """None: there is nothing to release."""
        held = self.state != 'lost'
        if self._pid != os.getpid(): # it is the parent's
            return None, held
        with self._guard:
            lock, self._lock = self._lock, None
        self._client._open.discard(self)
        self._ended(_errors.ReleasedError)
        if lock is None:
            return None, held
        operation = Operation(self._client, wake)
        status = lib.fl_lock_release_start(lock, RELEASE_S * 1000, on_done, operation.number)
        if status != 0:
            operation.status, operation.error = status, _native.text_of(lib.fl_strerror(status))
            operation.finish()
        return operation, held


def start_take(handle, options, lease, operation):
    """Begins to take the lock; the operation has ended already when that is refused."""
    _leases[lease._number] = lease
    options.take.on_change, options.take.arg = on_change, lease._number
    status = lib.fl_lock_take_start(handle, None, byref(options.take), on_done, operation.number, byref(operation.call))
    if status != 0:
        operation.status = status
        operation.error = _native.text_of(lib.fl_client_error(handle)) or _native.text_of(lib.fl_strerror(status))
        operation.finish()


def adopt(operation, lease):
    """What a finished take has brought: a lease, or the exception."""
    if operation.status != 0:
        _leases.pop(lease._number, None)
        operation.result()
    lock, operation.lock = operation.lock, None
    lease._begin(lock, operation.token)
    return lease


def drop(client, wake):
    """After fl_close(), which no callback follows: of what was under way nothing more is heard."""
    for operation in [o for o in list(_operations.values()) if o.client is client]:
        operation.given_up.acquire(blocking=False)
        _operations.pop(operation.number, None)
        operation.status, operation.error, operation.over = -1101, 'the client was closed before the answer', True
        if wake:
            operation.wake()


def next_number():
    return next(_numbers)
