"""The fences, on a PostgreSQL with the guard (POSTGRES_URL: account('job', 0) is protected) and a cluster (FENCELOCK_URL); the sample
storage with a node of its own. Run by tests/drivers/suite python -k test_fences."""

import asyncio
import os
import socket
import subprocess
import tempfile
import time
import unittest

import boto3
import psycopg
import psycopg2
import psycopg_pool
import sqlalchemy
from botocore.config import Config
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import sessionmaker

import fencelock
import fencelock.aio
import fencelock.psycopg
import fencelock.s3
import fencelock.sqlalchemy
from fencelock import store

URL, POSTGRES = os.environ['FENCELOCK_URL'], os.environ['POSTGRES_URL']
ADD = "UPDATE account SET balance = balance + 1 WHERE lock = 'job'"


def engine(driver='psycopg'):
    return sqlalchemy.create_engine('postgresql+%s://' % driver, creator=lambda: {'psycopg': psycopg, 'psycopg2': psycopg2}[driver].connect(POSTGRES))


class Base(unittest.TestCase):
    def setUp(self):
        self.locks = fencelock.connect(URL)
        self.addCleanup(self.locks.close)
        self.db = psycopg.connect(POSTGRES)
        self.addCleanup(self.db.close)

    def balance(self):
        with self.db.transaction():
            return self.db.execute('SELECT balance FROM account').fetchone()[0]

    def older_and_newer(self):
        """Two leases of one lock; the first one does not know that it is over, as a process that stood still."""
        older = self.locks.acquire('job', wait=200)
        stale = type('Lease', (), {'name': 'job', 'token': older.token, 'check': lambda self: None})()
        older.release()
        newer = self.locks.acquire('job', wait=200)
        self.addCleanup(newer.release)
        return stale, newer


@unittest.skipIf('S3_URL' not in os.environ, 'there is no server of S3')
class S3(Base):
    @staticmethod
    def client():
        s3 = boto3.client('s3', endpoint_url=os.environ['S3_URL'], region_name='us-east-1', aws_access_key_id='any', aws_secret_access_key='any',
                          config=Config(retries={'total_max_attempts': 1}, s3={'addressing_style': 'path'}))
        s3.create_bucket(Bucket='python')
        return s3

    def test_stale(self):
        s3, key = self.client(), 'python'
        stale, newer = self.older_and_newer()
        late = fencelock.s3.Fence.claim(s3, 'python', stale, key)
        self.assertIsNone(late.read(key))
        late.write(key, b'100')
        good = fencelock.s3.Fence.claim(s3, 'python', newer, key)
        for attempt in (lambda: late.write(key, b'late'), lambda: late.delete(key), lambda: fencelock.s3.Fence.claim(s3, 'python', stale, key)):
            with self.assertRaises(fencelock.StaleToken):
                attempt()
        good.write(key, good.read(key) + b'0')
        self.assertEqual(good.read(key), b'1000')
        good.delete(key)
        self.assertIsNone(good.read(key))
        with self.assertRaisesRegex(fencelock.s3.Refused, 'NOTCLAIMED'):
            good.write('another', b'')

    def test_outcome_is_unknown(self):
        """The answer to a write is lost."""
        fence = fencelock.s3.Fence(self.client(), 'python', self.older_and_newer()[1])

        def lost(*_, **__):
            raise fencelock.s3.Unknown('the answer was lost')
        fence._objects._put = lost
        with self.assertRaises(fencelock.Uncertain):
            fence._call(fence._objects.claim, ['of-a-lost-answer'])


class ExhaustedPool(Base):
    """No connection is free: a claim waits as long as the pool does, the lease is renewed meanwhile, and it goes on with the next free one."""

    def test_blocking(self):
        with psycopg_pool.ConnectionPool(POSTGRES, min_size=1, max_size=1, timeout=200) as pool, self.locks.acquire('job', wait=200) as lease:
            with pool.connection():
                pool.timeout, patient = 0.1, pool.timeout
                with self.assertRaises(psycopg_pool.PoolTimeout):
                    fencelock.psycopg.Fence.claim(pool, lease)
            pool.timeout = patient
            lease.check()
            with fencelock.psycopg.Fence.claim(pool, lease).transaction() as cursor:
                cursor.execute(ADD)

    def test_asyncio(self):
        async def use():
            async with psycopg_pool.AsyncConnectionPool(POSTGRES, min_size=1, max_size=1, timeout=200, open=False) as pool, \
                    fencelock.aio.connect(URL) as locks, locks.acquire('job', wait=200) as lease:
                async with pool.connection():
                    claim = asyncio.ensure_future(fencelock.psycopg.AsyncFence.claim(pool, lease))
                    while not pool.get_stats().get('requests_waiting'):
                        await asyncio.sleep(0.01)
                    lease.check()
                async with (await claim).transaction() as cursor:
                    await cursor.execute(ADD)
        asyncio.run(use())


class Psycopg(Base):
    def test_stale(self):
        stale, newer = self.older_and_newer()
        late = fencelock.psycopg.Fence.claim(self.db, stale)
        before = self.balance()
        with late.transaction() as cursor:
            cursor.execute(ADD)
        good = fencelock.psycopg.Fence.claim(self.db, newer)
        with self.assertRaises(fencelock.StaleToken) as caught, late.transaction() as cursor:
            cursor.execute(ADD)
        self.assertNotIsInstance(caught.exception, psycopg.Error)
        self.assertIsInstance(caught.exception.__cause__, psycopg.ProgrammingError)
        with self.assertRaises(fencelock.StaleToken):
            fencelock.psycopg.Fence.claim(self.db, stale)
        with good.transaction() as cursor:
            cursor.execute(ADD)
        self.assertEqual(self.balance(), before + 2)

    def test_error_of_the_body_rolls_back(self):
        _, newer = self.older_and_newer()
        fence, before = fencelock.psycopg.Fence.claim(self.db, newer), self.balance()
        with self.assertRaises(KeyError), fence.transaction() as cursor:
            cursor.execute(ADD)
            raise KeyError
        with self.assertRaises(fencelock.LostError), fence.transaction() as cursor:
            cursor.execute(ADD)
            newer.release() # before the commit
        self.assertEqual(self.balance(), before)

    def test_classes(self):
        """No driver takes STALE for a passing error, and BUSY may be one."""
        for driver in (psycopg, psycopg2):
            with driver.connect(POSTGRES) as db:
                for word, kind in (('STALE', driver.ProgrammingError), ('NOTOKEN', driver.ProgrammingError), ('BUSY', driver.OperationalError)):
                    with self.assertRaises(kind) as caught:
                        db.cursor().execute("SELECT fence.refuse('%s', 'text', 'remedy')" % word)
                    self.assertEqual(isinstance(caught.exception, driver.OperationalError), word == 'BUSY')
                    db.rollback()

    def test_asyncio(self):
        stale, newer = self.older_and_newer()

        async def use():
            async with await psycopg.AsyncConnection.connect(POSTGRES) as db:
                late = await fencelock.psycopg.AsyncFence.claim(db, stale)
                good = await fencelock.psycopg.AsyncFence.claim(db, newer)
                with self.assertRaises(fencelock.StaleToken):
                    async with late.transaction() as cursor:
                        await cursor.execute(ADD)
                async with good.transaction() as cursor:
                    await cursor.execute(ADD)
        before = self.balance()
        asyncio.run(use())
        self.assertEqual(self.balance(), before + 1)


class SQLAlchemy(Base):
    def use(self, at, late_at):
        stale, newer = self.older_and_newer()
        late = fencelock.sqlalchemy.Fence.claim(late_at, stale)
        good, before = fencelock.sqlalchemy.Fence.claim(at, newer), self.balance()
        with self.assertRaises(fencelock.StaleToken) as caught, late.transaction() as connection:
            connection.execute(sqlalchemy.text(ADD))
        self.assertNotIsInstance(caught.exception.__cause__, sqlalchemy.exc.OperationalError)
        with good.transaction() as connection:
            connection.execute(sqlalchemy.text(ADD))
        self.assertEqual(self.balance(), before + 1)
        newer.release()

    def test_engines(self):
        for driver in ('psycopg', 'psycopg2'):
            self.use(engine(driver), engine(driver))

    def test_orm(self):
        self.use(sessionmaker(engine()), sessionmaker(engine()))

    def test_asyncio(self):
        stale, newer = self.older_and_newer()

        async def use():
            at = create_async_engine('postgresql+psycopg://', async_creator=lambda: psycopg.AsyncConnection.connect(POSTGRES))
            late = await fencelock.sqlalchemy.AsyncFence.claim(at, stale)
            good = await fencelock.sqlalchemy.AsyncFence.claim(at, newer)
            with self.assertRaises(fencelock.StaleToken):
                async with late.transaction() as connection:
                    await connection.execute(sqlalchemy.text(ADD))
            async with good.transaction() as connection:
                await connection.execute(sqlalchemy.text(ADD))
            await at.dispose()
        before = self.balance()
        asyncio.run(use())
        self.assertEqual(self.balance(), before + 1)


class Storage(Base):
    def start(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            address = '127.0.0.1:%d' % s.getsockname()[1]
        child = subprocess.Popen([os.environ['FENCELOCK_STORE'], '--data', os.path.join(scratch.name, 'store'), '--listen', address],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        at = store.Store(address)
        self.addCleanup(at.close)
        end = time.monotonic() + 240
        while True:
            try:
                at.get('nothing')
                return at
            except fencelock.Error:
                self.assertLess(time.monotonic(), end)

    def test_sample_storage(self):
        at = self.start()
        stale, newer = self.older_and_newer()
        at.claim(stale)
        at.set('key', b'old\0', stale)
        at.claim(newer)
        for late in (lambda: at.claim(stale), lambda: at.get('key', stale), lambda: at.set('key', 'late', stale), lambda: at.delete('key', stale)):
            with self.assertRaises(fencelock.StaleToken):
                late()
        self.assertEqual(at.get('key', newer), b'old\0')
        at.set('key', 'new', newer)
        self.assertEqual((at.get('key'), at.get('nothing')), (b'new', None))
        self.assertEqual((at.delete('key', newer), at.delete('key', newer)), (True, False))
        with self.assertRaisesRegex(ValueError, 'write HOST:PORT'):
            store.Store('nonsense')
        with self.assertRaisesRegex(ValueError, 'TLS: '):
            store.Store('127.0.0.1:1', tls=fencelock.Tls(ca_file='/no/such/file'))


if __name__ == '__main__':
    unittest.main()
