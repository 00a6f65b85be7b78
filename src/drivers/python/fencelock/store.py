"""The client of fencelock-store, the sample storage that checks tokens. Blocking; any thread may use it."""

import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p

from . import _errors, _native
from ._native import lib

_free = ctypes.CDLL(None).free
_free.argtypes = [c_void_p]


class Store:
    """address: HOST:PORT. Claim with a lease before the first read; then only its own and newer tokens are admitted."""

    def __init__(self, address, timeout=5, tls=None, user=None, password=None):
        files = _native.tls_options(tls)
        options = _native.ClientOptions(timeout_ms=_native.milliseconds(timeout, 'timeout'), tls=None if files is None else ctypes.pointer(files),
                                       user=user and user.encode(), password=password and password.encode())
        self._handle = c_void_p()
        status = lib.fl_store_open(address.encode(), byref(options), byref(self._handle))
        if status != 0:
            raise _errors.of(status, _native.text_of(lib.fl_store_error(None)))

    def close(self):
        """Nobody may be inside another call."""
        lib.fl_store_close(self._handle)
        self._handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def _judge(self, status):
        if status != 0:
            raise _errors.of(status, _native.text_of(lib.fl_store_error(self._handle)))

    @staticmethod
    def _fencing(lease):
        if lease is None:
            return _native.Fencing()
        lease.check()
        return _native.Fencing(_native.bytes_of(lease.name, 'a name'), lease.token)

    def claim(self, lease):
        """Refuses every older token from then on. StaleToken: a newer holder has been here."""
        fencing = self._fencing(lease)
        self._judge(lib.fl_store_claim(self._handle, fencing.lock, fencing.token, 0, None))

    def get(self, key, lease=None):
        """The value as bytes; None: there is none."""
        found, length, mark = c_void_p(), c_size_t(), c_uint64()
        status = lib.fl_store_get(self._handle, _native.bytes_of(key, 'a key'), self._fencing(lease), 0, byref(mark), byref(found), byref(length))
        if status == -1011:
            return None
        self._judge(status)
        try:
            return ctypes.string_at(found, length.value)
        finally:
            _free(found)

    def set(self, key, value, lease=None):
        """After Uncertain take a new token before you write that key again."""
        self._judge(lib.fl_store_set(self._handle, _native.bytes_of(key, 'a key'), _native.bytes_of(value, 'a value'), self._fencing(lease), 0, None))

    def delete(self, key, lease=None):
        """False: there was none."""
        status = lib.fl_store_del(self._handle, _native.bytes_of(key, 'a key'), self._fencing(lease), 0, None)
        if status == -1011:
            return False
        self._judge(status)
        return True
