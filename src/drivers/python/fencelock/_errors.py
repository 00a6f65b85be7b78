"""What can go wrong, by what a program does about it."""

import re


class Error(Exception):
    """Everything below, except ValueError for arguments."""


class NotAcquired(Error):
    """Other clients held the lock for as long as acquire() was to wait."""


class LostError(Error):
    """The lease is over: another client may hold the lock from now on. Stop."""


class ReleasedError(LostError):
    """The lease was released, here."""


class StaleToken(Error):
    """A newer holder of the lock has been at the storage, so nothing was done there. Do not try it again under this token."""


class Uncertain(Error):
    """The outcome is unknown: the request may have been carried out. What acquire() may have got is given back in the background."""


class Unavailable(Error):
    """No node answered, or none leads, for as long as the request could wait. It was not carried out."""


class Closed(Error):
    """The client was closed, or belongs to another process or event loop: connect() again."""


class Refused(Error):
    """The service refuses it: surely not done, and sending it again will not help. `code` is the library's, such as EDENIED; `word` the
    first word of the service's answer, such as NOPERM."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code
        words = re.findall(r': ([A-Z]{3,}) ', message)
        self.word = words[-1] if words else code


_CLASSES = {-1001: ValueError, -1013: NotAcquired, -1101: Uncertain, -1102: Unavailable, -1004: Unavailable, -1005: Unavailable,
            -1014: Unavailable, -1006: StaleToken}
_NAMES = {-1002: 'ENOMEM', -1003: 'ELIMIT', -1007: 'EWRONGLOCK', -1008: 'ENOTOKEN', -1009: 'EDEADLOCK', -1010: 'ENOSESSION',
          -1011: 'ENOTFOUND', -1015: 'EDENIED', -1016: 'EMISMATCH', -1205: 'ESYSTEM'}


def of(status, text):
    """The exception for a result of the library."""
    if status in _CLASSES:
        return _CLASSES[status](text)
    return Refused(text, _NAMES.get(status, str(status)))
