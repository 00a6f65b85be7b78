"""What the fences for PostgreSQL have in common: the guard's words (src/guards/postgresql)."""

from . import _errors

STALE = '44L01' # the guard's SQLSTATE for a token below the mark
CLAIM = 'CALL fence.claim({}, {})'
USE = 'SELECT fence.use({}, {})'


def arguments(lease):
    return (lease.name.decode() if isinstance(lease.name, bytes) else lease.name, lease.token)


def state_of(error):
    """Of psycopg 3, psycopg 2 and asyncpg, also below SQLAlchemy."""
    error = getattr(error, 'orig', None) or error
    while error is not None:
        state = getattr(error, 'sqlstate', None) or getattr(error, 'pgcode', None)
        if state:
            return state
        error = error.__cause__
    return None


class Translated:
    """Makes StaleToken of the guard's STALE. It is no error of the database's driver, so nobody takes it for a passing one."""

    def __init__(self, kind):
        self._kind = kind

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        if isinstance(error, self._kind) and state_of(error) == STALE:
            raise _errors.StaleToken(str(error)) from error
