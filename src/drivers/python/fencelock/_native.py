"""The C library: its functions and structs, as include/fencelock/client.h and store_client.h have them.

ctypes, since it is there wherever Python is: one wheel serves every Python of a platform. tests/test_abi.py compares each struct with the
header. CDLL lets go of the GIL around each call, and takes it for each callback."""

import ctypes
import ctypes.util
import os
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char_p, c_int, c_size_t, c_uint64, c_void_p

from . import _errors


class Bytes(Structure):
    _fields_ = [('data', c_char_p), ('len', c_size_t)]


class TlsOptions(Structure):
    _fields_ = [('ca_file', c_char_p), ('cert_file', c_char_p), ('key_file', c_char_p), ('server_name', c_char_p)]


on_log_type = CFUNCTYPE(None, c_void_p, c_char_p)
on_change_type = CFUNCTYPE(None, c_void_p, c_void_p, c_int)


class ClientOptions(Structure):
    _fields_ = [('timeout_ms', c_uint64), ('attempt_ms', c_uint64), ('owner', Bytes), ('tls', POINTER(TlsOptions)), ('user', c_char_p),
                ('password', c_char_p), ('own_loop', c_bool), ('on_log', on_log_type), ('log_arg', c_void_p), ('reserved', c_uint64 * 8)]


class Take(Structure):
    _fields_ = [('ttl_ms', c_uint64), ('wait_ms', c_uint64), ('timeout_ms', c_uint64), ('name', Bytes), ('owner', Bytes), ('value', Bytes),
                ('session', c_void_p), ('mode', c_int), ('permits', c_uint64), ('also', POINTER(Bytes)), ('also_len', c_size_t),
                ('alone', c_bool), ('unrenewed', c_bool), ('shares', c_bool), ('max_hold_ms', c_uint64), ('reserve_ms', c_uint64),
                ('on_change', on_change_type), ('arg', c_void_p), ('min_validity_ms', c_uint64), ('lockdelay_ms', c_uint64),
                ('reserved', c_uint64 * 6)]


class Result(Structure):
    _fields_ = [('status', c_int), ('error', c_char_p), ('lock', c_void_p), ('token', c_uint64), ('deadline_ms', c_uint64),
                ('locks', c_void_p), ('sessions', c_void_p), ('report', c_void_p)]


class Fencing(Structure):
    _fields_ = [('lock', Bytes), ('token', c_uint64)]


class RawBytes(Structure):
    """Bytes that the library owns; they may have zeros."""
    _fields_ = [('data', c_void_p), ('len', c_size_t)]


class Event(Structure):
    _fields_ = [('kind', c_int), ('status', c_int), ('word', c_char_p), ('text', c_char_p), ('node', c_char_p), ('reason', c_char_p),
                ('name', RawBytes), ('owner', RawBytes), ('token', c_uint64), ('wait', c_uint64), ('clock_ms', c_uint64)]


class WatchOptions(Structure):
    _fields_ = [('names', POINTER(Bytes)), ('names_len', c_size_t), ('patterns', POINTER(Bytes)), ('patterns_len', c_size_t),
                ('quiet_ms', c_uint64), ('reserved', c_uint64 * 8)]


done_type = CFUNCTYPE(None, c_void_p, POINTER(Result))

MODE_SHARED = 1
STATES = ('safe', 'jeopardy', 'lost')
WAIT_MAX_MS = 86400000

_FUNCTIONS = {
    'fl_open': (c_int, [c_char_p, POINTER(ClientOptions), POINTER(c_void_p)]),
    'fl_close': (None, [c_void_p]),
    'fl_client_error': (c_char_p, [c_void_p]),
    'fl_err_name': (c_char_p, [c_int]),
    'fl_strerror': (c_char_p, [c_int]),
    'fl_version': (c_char_p, []),
    'fl_fd': (c_int, [c_void_p]),
    'fl_process': (None, [c_void_p]),
    'fl_lock_take_start': (c_int, [c_void_p, c_char_p, POINTER(Take), done_type, c_void_p, POINTER(c_uint64)]),
    'fl_lock_release_start': (c_int, [c_void_p, c_uint64, done_type, c_void_p]),
    'fl_call_cancel': (None, [c_void_p, c_uint64]),
    'fl_lock_free': (None, [c_void_p]),
    'fl_lock_state': (c_int, [c_void_p]),
    'fl_lock_remaining_ms': (c_uint64, [c_void_p]),
    'fl_watch_open': (c_int, [c_void_p, c_char_p, POINTER(WatchOptions), POINTER(c_void_p)]),
    'fl_watch_next': (c_int, [c_void_p, c_uint64, POINTER(POINTER(Event))]),
    'fl_watch_poll': (POINTER(Event), [c_void_p]),
    'fl_watch_close': (None, [c_void_p]),
    'fl_store_open': (c_int, [c_char_p, POINTER(ClientOptions), POINTER(c_void_p)]),
    'fl_store_close': (None, [c_void_p]),
    'fl_store_error': (c_char_p, [c_void_p]),
    'fl_store_claim': (c_int, [c_void_p, Bytes, c_uint64, c_uint64, POINTER(c_uint64)]),
    'fl_store_get': (c_int, [c_void_p, Bytes, Fencing, c_uint64, POINTER(c_uint64), POINTER(c_void_p), POINTER(c_size_t)]),
    'fl_store_set': (c_int, [c_void_p, Bytes, Bytes, Fencing, c_uint64, POINTER(c_uint64)]),
    'fl_store_del': (c_int, [c_void_p, Bytes, Fencing, c_uint64, POINTER(c_uint64)]),
}


def _refuse_subinterpreters():
    """A callback of the library's thread always runs in the main interpreter."""
    for name in ('_interpreters', '_xxsubinterpreters'):
        try:
            interpreters = __import__(name)
            current, main = interpreters.get_current(), interpreters.get_main()
        except (ImportError, AttributeError):
            continue
        if current != main:
            raise ImportError('fencelock works in the main interpreter only, and this is a subinterpreter: import it there')
        return


def _load():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'libfencelock.so')
    tried = [os.environ.get('FENCELOCK_LIBRARY'), beside if os.path.exists(beside) else None, ctypes.util.find_library('fencelock')]
    for path in tried:
        if path:
            library = ctypes.CDLL(path)
            break
    else:
        raise ImportError('libfencelock.so is not installed: install the wheel of fencelock, which has it, or the C library')
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


if sys.platform != 'linux':
    raise ImportError('fencelock stands on libfencelock, which needs Linux; on this platform use fencelockd with a Redis client')
_refuse_subinterpreters()
lib = _load()


def text_of(raw):
    return (raw or b'').decode('utf-8', 'replace')


def bytes_of(what, name):
    """A name as bytes: str is encoded as UTF-8, and stays alive as long as the struct."""
    raw = what.encode() if isinstance(what, str) else what
    if not isinstance(raw, bytes):
        raise TypeError('%s is str or bytes, not %s' % (name, type(what).__name__))
    return Bytes(raw, len(raw))


def milliseconds(seconds, name, most=WAIT_MAX_MS):
    """At least 1 for anything above 0."""
    if not 0 <= seconds <= most / 1000: # also of a NaN
        raise ValueError('%s is 0 to %d seconds, not %r' % (name, most // 1000, seconds))
    return max(1, round(seconds * 1000)) if seconds else 0


def tls_options(tls):
    return None if tls is None else TlsOptions(*(None if path is None else os.fsencode(path)
                                                 for path in (tls.ca_file, tls.cert_file, tls.key_file, tls.server_name)))


def open_client(urls, tls, own_loop, on_log):
    """A handle. ValueError says what is wrong with the addresses or the files."""
    options = ClientOptions(own_loop=own_loop, on_log=on_log)
    files = tls_options(tls)
    if files is not None:
        options.tls = ctypes.pointer(files)
    if not urls.startswith(('fencelock://', 'fencelocks://')):
        raise ValueError('%r is no URL of a cluster: write fencelock://HOST:PORT,HOST:PORT (or fencelocks:// with TLS)' % urls)
    handle = c_void_p()
    status = lib.fl_open(urls.encode(), byref(options), byref(handle))
    if status != 0:
        raise _errors.of(status, text_of(lib.fl_client_error(None)))
    return handle
