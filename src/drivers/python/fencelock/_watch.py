"""The events of locks, as both faces give them."""

from collections import namedtuple
from ctypes import byref, c_void_p, string_at

from . import _errors, _native
from ._native import lib

Event = namedtuple('Event', 'kind lock token owner wait clock')
Event.__doc__ = """Something that happened to a lock. kind: granted, queued, released, expired, broken, left; resync: events may be missing, so look
again, at the lock, or at all of the pattern when there is none. wait: the number of a wait; clock: the cluster's, in milliseconds."""

_MISSED, _LISTENS, _INTERRUPTED = 7, 8, 9


def _text(b):
    raw = string_at(b.data, b.len) if b.len else b''
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw # the name of a lock is bytes


def start(handle, pattern):
    """A watch of the library."""
    if not pattern:
        raise ValueError('the pattern is empty: write * for all locks')
    watch = c_void_p()
    status = lib.fl_watch_open(handle, pattern.encode(), byref(_native.WatchOptions()), byref(watch))
    if status != 0:
        raise _errors.of(status, _native.text_of(lib.fl_client_error(handle)) or _native.text_of(lib.fl_strerror(status)))
    return watch


def event_of(said):
    """None: it tells a user nothing."""
    e = said.contents
    if e.kind == _INTERRUPTED:
        return None
    kind = 'resync' if e.kind in (_MISSED, _LISTENS) else _native.text_of(e.word)
    return Event(kind, _text(e.name), e.token, _text(e.owner), e.wait, e.clock_ms)
