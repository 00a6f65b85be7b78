"""The fence for psycopg 3: a PostgreSQL with fencelock's guard. `at` is a connection, or a pool of psycopg_pool."""

from contextlib import asynccontextmanager, contextmanager, nullcontext

import psycopg

from ._guard import CLAIM, USE, Translated, arguments


@contextmanager
def _translated():
    with Translated(psycopg.Error):
        yield


class Fence:
    """Transactions that carry the token of a lease."""

    def __init__(self, at, lease):
        self._at, self.lease = at, lease

    @classmethod
    def claim(cls, at, lease):
        """Tells the database of the lease: from then on it refuses every older token. Claim before the first read. StaleToken: a newer
        holder has claimed, so the lease is over."""
        fence = cls(at, lease)
        lease.check()
        with _translated(), fence._connection() as connection, connection.transaction():
            connection.execute(CLAIM.format('%s', '%s'), arguments(lease))
        return fence

    def _connection(self):
        return self._at.connection() if hasattr(self._at, 'getconn') else nullcontext(self._at)

    @contextmanager
    def transaction(self):
        """A cursor in a transaction, which is committed at the end unless the lease is lost by then. StaleToken: the guard refused it, and
        nothing was written."""
        self.lease.check()
        with _translated(), self._connection() as connection, connection.transaction(), connection.cursor() as cursor:
            cursor.execute(USE.format('%s', '%s'), arguments(self.lease))
            yield cursor
            self.lease.check()


class AsyncFence:
    """The same for asyncio."""

    def __init__(self, at, lease):
        self._at, self.lease = at, lease

    @classmethod
    async def claim(cls, at, lease):
        """As Fence.claim."""
        fence = cls(at, lease)
        lease.check()
        with _translated():
            async with fence._connection() as connection, connection.transaction():
                await connection.execute(CLAIM.format('%s', '%s'), arguments(lease))
        return fence

    @asynccontextmanager
    async def _connection(self):
        if hasattr(self._at, 'getconn'):
            async with self._at.connection() as connection:
                yield connection
        else:
            yield self._at

    @asynccontextmanager
    async def transaction(self):
        """As Fence.transaction."""
        self.lease.check()
        with _translated():
            async with self._connection() as connection, connection.transaction(), connection.cursor() as cursor:
                await cursor.execute(USE.format('%s', '%s'), arguments(self.lease))
                yield cursor
                self.lease.check()
