"""The token of a lease in a header, for a service of your own that checks it."""

import threading

from ._errors import StaleToken

LOCK, TOKEN = 'Fencing-Lock', 'Fencing-Token'


def headers(lease):
    """The headers of a request that is sent under a lock."""
    lease.check()
    return {LOCK: lease.name, TOKEN: str(lease.token)}


class Marks:
    """The receiver's side, for a service whose data dies with its process: the highest token of each lock. A service with durable data
    keeps its marks there, in the transaction that changes the data (docs/FENCING.md)."""

    def __init__(self):
        self._mutex, self._marks = threading.Lock(), {}

    def admit(self, headers):
        """Raises the mark to the request's token; StaleToken when a newer one has been here. The operation must be done before another
        one of the same lock is admitted. headers: a mapping."""
        lock, token = headers.get(LOCK), headers.get(TOKEN, '')
        if not lock or not (token.isascii() and token.isdigit()) or not 0 < int(token) < 1 << 53:
            raise ValueError('the request has no %s and %s' % (LOCK, TOKEN))
        with self._mutex:
            mark = self._marks.get(lock, 0)
            if int(token) < mark:
                raise StaleToken('token %s is below the mark %d of %r' % (token, mark, lock))
            self._marks[lock] = int(token)
