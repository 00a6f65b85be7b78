"""The fence for SQLAlchemy: a PostgreSQL with fencelock's guard, through whatever driver the engine has."""

from contextlib import asynccontextmanager, contextmanager

from sqlalchemy import exc, text

from ._guard import CLAIM, USE, Translated, arguments

_CLAIM, _USE = text(CLAIM.format(':lock', ':token')), text(USE.format(':lock', ':token'))


def _named(lease):
    return dict(zip(('lock', 'token'), arguments(lease)))


class Fence:
    """Transactions that carry the token of a lease. `at`: an Engine, or a sessionmaker."""

    def __init__(self, at, lease):
        self._at, self.lease = at, lease

    @classmethod
    def claim(cls, at, lease):
        """As fencelock.psycopg.Fence.claim."""
        lease.check()
        with Translated(exc.DBAPIError), at.begin() as connection:
            connection.execute(_CLAIM, _named(lease))
        return cls(at, lease)

    @contextmanager
    def transaction(self):
        """A connection, or an ORM session, in a transaction that is committed at the end unless the lease is lost by then."""
        self.lease.check()
        with Translated(exc.DBAPIError), self._at.begin() as connection:
            connection.execute(_USE, _named(self.lease))
            yield connection
            if hasattr(connection, 'flush'):
                connection.flush()
            self.lease.check()


class AsyncFence:
    """The same for an AsyncEngine, or an async_sessionmaker."""

    def __init__(self, at, lease):
        self._at, self.lease = at, lease

    @classmethod
    async def claim(cls, at, lease):
        """As Fence.claim."""
        lease.check()
        with Translated(exc.DBAPIError):
            async with at.begin() as connection:
                await connection.execute(_CLAIM, _named(lease))
        return cls(at, lease)

    @asynccontextmanager
    async def transaction(self):
        """As Fence.transaction."""
        self.lease.check()
        with Translated(exc.DBAPIError):
            async with self._at.begin() as connection:
                await connection.execute(_USE, _named(self.lease))
                yield connection
                if hasattr(connection, 'flush'):
                    await connection.flush()
                self.lease.check()
