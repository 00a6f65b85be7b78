"""Locks of a fencelock cluster: with a lease that is renewed, word of its loss, and a fencing token that a storage checks.

    locks = fencelock.connect('fencelock://10.0.0.1:7401,10.0.0.2:7401,10.0.0.3:7401')
    with locks.acquire('account/42', wait=30) as lease:
        write(lease.token)
"""

from ._client import Client, Lease
from ._errors import (Closed, Error, LostError, NotAcquired, Refused, ReleasedError, StaleToken, Uncertain, Unavailable)
from ._lease import Tls
from ._watch import Event

__version__ = '0.1.0'
__all__ = ['connect', 'Client', 'Lease', 'Event', 'Tls', 'Error', 'NotAcquired', 'LostError', 'ReleasedError', 'StaleToken', 'Uncertain',
           'Unavailable', 'Closed', 'Refused']


def connect(urls, tls=None):
    """A client: fencelock://HOST:PORT,HOST:PORT, or fencelocks://USER:PASSWORD@HOST:PORT for TLS and a login. It asks nobody yet. One for
    each process is enough. tls: a Tls with files; None: the system's authorities."""
    return Client(urls, tls)
