"""The driver with one real node. What is attacked with several stands in tests/drivers/suite."""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest

import fencelock
import fencelock.aio
from fencelock import http, testing

LONG = 3600 # seconds: a lock that is free sooner was given back
PATIENCE = float(os.environ.get('DRIVER_PATIENCE_S') or 240)

_stack = contextlib.ExitStack()


def setUpModule():
    global URL
    URL = _stack.enter_context(testing.node())


def tearDownModule():
    _stack.close()


def run_apart(program, *arguments, **kwargs):
    return subprocess.run([sys.executable, '-B', '-c', textwrap.dedent(program), URL, *arguments], capture_output=True, text=True, timeout=PATIENCE, **kwargs)


def nothing_is_left():
    """Of a client that was closed the driver knows no lease and no request."""
    assert (fencelock._lease._leases, fencelock._lease._operations) == ({}, {}), (fencelock._lease._leases, fencelock._lease._operations)


class Blocking(unittest.TestCase):
    def setUp(self):
        self.addCleanup(nothing_is_left)
        self.locks = fencelock.connect(URL)
        self.addCleanup(self.locks.close)

    def free(self, name):
        """It can be taken, at last; TTLs are far too long for that to come by itself."""
        self.locks.acquire(name, ttl=LONG, wait=PATIENCE).release()

    def test_with(self):
        with self.assertRaisesRegex(KeyError, 'mine'):
            with self.locks.acquire('with', ttl=LONG) as lease:
                self.assertGreater(lease.token, 0)
                self.assertGreater(lease.remaining, 0)
                self.assertFalse(lease.lost.is_set())
                with self.assertRaises(fencelock.NotAcquired):
                    self.locks.acquire('with')
                raise KeyError('mine')
        self.assertTrue(lease.lost.is_set())
        self.assertEqual((lease.state, lease.remaining), ('lost', 0))
        with self.assertRaises(fencelock.ReleasedError):
            lease.check()
        lease.release() # again does nothing
        self.free('with')

    def test_wrong_arguments(self):
        for options in ({'name': ''}, {'name': 'n' * 256}, {'ttl': 0}, {'ttl': 0.009}, {'ttl': -1}, {'ttl': 86401}, {'wait': 86401},
                        {'permits': 0}, {'permits': 1000001}, {'permits': 2, 'shared': True}, {'also': ['x'] * 16}, {'also': ['']}):
            with self.assertRaises(ValueError, msg=options):
                self.locks.acquire(**dict({'name': 'n'}, **options))
        for options in ({'name': 5}, {'also': [None]}):
            with self.assertRaises(TypeError):
                self.locks.acquire(**dict({'name': 'n'}, **options))
        for url in ('', 'redis://h:1', 'h:1', 'fencelock://', 'fencelock://h', 'fencelock://h:0', 'fencelock://u@h:1'):
            with self.assertRaises(ValueError, msg=url):
                fencelock.connect(url)
        with self.assertRaisesRegex(ValueError, 'TLS: '):
            fencelock.connect('fencelocks://h:1', tls=fencelock.Tls(ca_file='/nowhere'))
        for most in ({'name': 'n' * 255}, {'name': 'm', 'also': ['x%d' % i for i in range(15)]}, {'name': b'\0\xff', 'ttl': 86400, 'permits': 1000000}):
            self.locks.acquire(**most).release()

    def test_stop_ends_a_wait(self):
        stop = threading.Event()
        with self.locks.acquire('stop', ttl=LONG):
            threading.Timer(0.2, stop.set).start()
            with self.assertRaises(fencelock.Uncertain):
                self.locks.acquire('stop', ttl=LONG, wait=LONG, stop=stop)
        self.free('stop')

    def test_interrupt_leaves_no_lock(self):
        """Ctrl-C, in a wait."""
        program = '''
            import signal, sys, threading, os, fencelock
            locks = fencelock.connect(sys.argv[1])
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                locks.acquire('interrupt', ttl=3600, wait=3600)
            except KeyboardInterrupt:
                print('interrupted')
                sys.stdout.flush()
            sys.stdin.read()
        '''
        with self.locks.acquire('interrupt', ttl=LONG):
            child = subprocess.Popen([sys.executable, '-B', '-c', textwrap.dedent(program), URL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.assertEqual(child.stdout.readline(), 'interrupted\n')
        self.free('interrupt')
        child.communicate()

    def test_exit_with_locks(self):
        """The end of the interpreter releases, whatever threads and callbacks are under way."""
        done = run_apart('''
            import sys, threading, fencelock
            locks = fencelock.connect(sys.argv[1])
            held = [locks.acquire('exit-%d' % i, ttl=3600) for i in range(20)]
            threading.Thread(target=lambda: locks.acquire('exit-0', ttl=3600, wait=3600), daemon=True).start()
        ''')
        self.assertEqual((done.returncode, done.stdout), (0, ''), done.stderr)
        for i in range(20):
            self.free('exit-%d' % i)

    def test_closed(self):
        locks = fencelock.connect(URL)
        lease = locks.acquire('closed', ttl=LONG)
        waited = []

        def wait():
            try:
                locks.acquire('closed', ttl=LONG, wait=LONG)
            except fencelock.Error as e:
                waited.append(type(e))
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)
        locks.close()
        thread.join()
        self.assertEqual(waited, [fencelock.Closed])
        self.assertTrue(lease.lost.is_set())
        with self.assertRaises(fencelock.Closed):
            locks.acquire('closed')
        locks.close()
        self.free('closed')

    def test_elect(self):
        stop, terms = threading.Event(), []

        def leads(lease):
            terms.append(lease.token)
            if len(terms) == 1:
                lease._ended(fencelock.LostError) # as if it were lost
                lease._lock, lock = None, lease._lock
                fencelock._native.lib.fl_lock_release_start(lock, 0, fencelock._lease.NOBODY, None)
                return None
            return 'done'
        self.assertEqual(self.locks.elect('boss', leads), 'done')
        self.assertGreater(terms[1], terms[0])
        with self.locks.acquire('boss', wait=PATIENCE):
            threading.Timer(0.2, stop.set).start()
            self.assertIsNone(self.locks.elect('boss', leads, stop=stop))
        with self.assertRaises(ZeroDivisionError):
            self.locks.elect('boss', lambda lease: 1 // 0)
        self.free('boss')

    def test_decorator(self):
        @self.locks.locked('job/{0}', wait=PATIENCE)
        def job(n, lease):
            return n, lease.name, lease.state
        self.assertEqual(job(7), (7, 'job/7', 'safe'))

    def test_headers(self):
        marks, sent = http.Marks(), []
        for _ in range(2):
            with self.locks.acquire('headers', wait=PATIENCE) as lease:
                sent.append(http.headers(lease))
        for headers in (sent[0], sent[1], sent[1]):
            marks.admit(headers)
        with self.assertRaises(fencelock.StaleToken):
            marks.admit(sent[0])
        for wrong in ({}, {'Fencing-Lock': 'x', 'Fencing-Token': '0'}, {'Fencing-Lock': 'x', 'Fencing-Token': str(1 << 53)}):
            with self.assertRaises(ValueError):
                marks.admit(wrong)


    def test_many_threads_and_a_close(self):
        """Takes, waits that are stopped, releases by another thread, and a close in the midst: each thread gets to its end, and nothing is left."""
        locks, enough, watching, taken, unexpected = fencelock.connect(URL), threading.Event(), threading.Event(), [], []

        def guarded(run):
            def body():
                try:
                    run()
                except fencelock.Closed:
                    pass
                except BaseException as e: # noqa: BLE001
                    unexpected.append(e)
            return threading.Thread(target=body)

        def take(i):
            stop = threading.Event()
            if i % 3 == 0:
                threading.Timer(0.01, stop.set).start()
            try:
                lease = locks.acquire('many-%d' % (i % 7), ttl=(5, 60)[i % 2], wait=(0, None)[i % 5 > 0], stop=stop)
                threads.append(guarded(lambda: self.give_back(lease)))
                threads[-1].start()
                taken.append(lease.remaining)
            except (fencelock.NotAcquired, fencelock.Uncertain, fencelock.LostError):
                pass
            if len(taken) > 300:
                enough.set()

        def worker(n):
            for i in range(n, 1 << 30, 16):
                take(i)

        def watch():
            for _ in locks.watch('many-*'):
                watching.set()
        threads = [guarded(lambda n=n: worker(n)) for n in range(16)] + [guarded(watch)]
        for thread in list(threads):
            thread.start()
        self.assertTrue(watching.wait(PATIENCE) and enough.wait(PATIENCE))
        locks.close()
        for thread in list(threads):
            thread.join(PATIENCE)
        self.assertEqual(([t for t in threads if t.is_alive()], unexpected), ([], []))

    @staticmethod
    def give_back(lease):
        with contextlib.suppress(fencelock.LostError, fencelock.Uncertain):
            lease.release()


class Forked(unittest.TestCase):
    def test_preforking_server(self):
        """The parent connects and holds a lock; its children use the same client, each for itself."""
        done = run_apart('''
            import os, sys, fencelock
            locks = fencelock.connect(sys.argv[1])
            mine = locks.acquire('of-the-parent', ttl=3600)
            children = []
            for i in range(4):
                pid = os.fork()
                if pid == 0:
                    try:
                        mine.check()
                        os._exit(1)
                    except fencelock.LostError:
                        pass
                    try:
                        mine.release()
                        os._exit(3)
                    except fencelock.LostError:
                        pass
                    for _ in range(5):
                        with locks.acquire('of-the-children', wait=200) as lease:
                            lease.check()
                    try:
                        locks.acquire('of-the-parent')
                        os._exit(2)
                    except fencelock.NotAcquired:
                        os._exit(0)
                children.append(pid)
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
            mine.check()
            mine.release()
            locks.acquire('of-the-parent').release()
            print(codes)
        ''')
        self.assertEqual((done.returncode, done.stdout), (0, '[0, 0, 0, 0]\n'), done.stderr)

    def test_asyncio(self):
        done = run_apart('''
            import asyncio, os, sys, fencelock, fencelock.aio
            async def child(locks, lease):
                for attempt in (lease.check, lambda: locks._check()):
                    try:
                        attempt()
                        os._exit(1)
                    except fencelock.Error:
                        pass
                async with fencelock.aio.connect(sys.argv[1]) as own:
                    await (await own.acquire('async-child')).release()
            async def main():
                locks = fencelock.aio.connect(sys.argv[1])
                lease = await locks.acquire('async-parent', ttl=3600)
                pid = os.fork()
                if pid == 0:
                    asyncio.events._set_running_loop(None)
                    asyncio.run(child(locks, lease))
                    os._exit(0)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                lease.check()
                await lease.release()
                await locks.close()
                print(code)
            asyncio.run(main())
        ''')
        self.assertEqual((done.returncode, done.stdout), (0, '0\n'), done.stderr)


class Interpreters(unittest.TestCase):
    def test_subinterpreters_are_refused(self):
        done = run_apart('''
            import fencelock
            try:
                import _interpreters as interpreters
            except ImportError:
                import _xxsubinterpreters as interpreters
            other = interpreters.create()
            try:
                said = interpreters.run_string(other, "import fencelock")
            except Exception as e:
                said = e
            print('main interpreter only' in str(said) or 'ImportError' in repr(said))
        ''')
        self.assertEqual(done.stdout, 'True\n', done.stderr)


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.locks = fencelock.aio.connect(URL)

    async def asyncTearDown(self):
        await self.locks.close()
        nothing_is_left()

    async def free(self, name):
        await (await self.locks.acquire(name, ttl=LONG, wait=PATIENCE)).release()

    @staticmethod
    def lose(lease):
        """As the library tells it, in the midst of a step of the task."""
        fencelock._lease.on_change(lease._number, None, 2)

    async def test_loss_cancels_the_body(self):
        steps = []
        with self.assertRaises(fencelock.LostError) as caught:
            async with self.locks.acquire('loss', ttl=LONG) as lease:
                asyncio.get_running_loop().call_soon(fencelock._lease.on_change, lease._number, None, 2)
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    steps.append('cancelled')
        self.assertEqual(steps, ['cancelled'])
        self.assertIsInstance(caught.exception.__cause__, asyncio.CancelledError)
        await asyncio.sleep(0) # the task itself is not cancelled
        await self.free('loss')

    @staticmethod
    def outlast(lease):
        """The loop is blocked for longer than the lease lasts, as that of a process which stands still."""
        while lease.remaining:
            time.sleep(0.01)

    async def test_loss_that_the_body_notices(self):
        """check() tells of the loss while the body runs: what comes after the block is not cancelled."""
        for look in (lambda lease: lease.check(), lambda lease: 1 // (lease.state != 'lost')):
            with self.assertRaises((fencelock.LostError, ZeroDivisionError)):
                async with self.locks.acquire('noticed', ttl=0.5, wait=PATIENCE) as lease:
                    self.outlast(lease)
                    look(lease)
            await asyncio.sleep(0)

    async def test_loss_before_the_block(self):
        lease = await self.locks.acquire('before', ttl=LONG)
        self.lose(lease)
        with self.assertRaises(fencelock.LostError):
            async with lease:
                self.fail('the block has begun')
        await asyncio.sleep(0)
        await self.free('before')

    async def test_loss_and_cancellation_from_outside(self):
        """The caller's cancellation is the caller's, also when the loss is noticed before it is delivered."""
        reached = []

        async def body():
            with contextlib.suppress(fencelock.LostError):
                async with self.locks.acquire('both', ttl=LONG) as lease:
                    asyncio.current_task().cancel()
                    self.lose(lease)
                    lease.check()
            reached.append('the end of the block')
            await asyncio.sleep(0)
            reached.append('more')
        with self.assertRaises(asyncio.CancelledError):
            await asyncio.ensure_future(body())
        self.assertEqual(reached, ['the end of the block'])

    async def test_cancellation_from_outside(self):
        entered = asyncio.Event()

        async def body():
            async with self.locks.acquire('outside', ttl=LONG):
                entered.set()
                await asyncio.sleep(PATIENCE)
        task = asyncio.ensure_future(body())
        await entered.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.free('outside')

    async def test_cancelled_wait(self):
        async with self.locks.acquire('wait', ttl=LONG):
            task = asyncio.ensure_future(self.locks._acquire(self.locks.acquire('wait', ttl=LONG, wait=LONG)._options))
            await asyncio.sleep(0.1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        await self.free('wait')

    async def test_error_of_the_body_wins(self):
        with self.assertRaises(ZeroDivisionError):
            async with self.locks.acquire('error', ttl=LONG):
                1 // 0
        await self.free('error')

    async def test_elect(self):
        terms = []

        async def leads(lease):
            terms.append(lease.token)
            if len(terms) == 1:
                asyncio.get_running_loop().call_soon(fencelock._lease.on_change, lease._number, None, 2)
                await asyncio.sleep(PATIENCE)
            return 'done'
        self.assertEqual(await self.locks.elect('async-boss', leads), 'done')
        self.assertEqual(len(terms), 2)

    async def test_elect_after_a_loss_that_the_leader_notices(self):
        terms = []

        async def leads(lease):
            terms.append(lease.token)
            if len(terms) == 1:
                self.lose(lease)
                lease.check()
            return 'done'
        self.assertEqual(await self.locks.elect('noticed-boss', leads, ttl=LONG), 'done')
        self.assertEqual(len(terms), 2)

    async def test_other_loop(self):
        def elsewhere():
            async def use():
                await self.locks.acquire('loop')
            asyncio.run(use())
        with self.assertRaisesRegex(fencelock.Closed, 'another event loop'):
            await asyncio.get_running_loop().run_in_executor(None, elsewhere)

    async def test_idle(self):
        """A thousand locks that are held cost next to nothing."""
        held = await asyncio.gather(*(self.locks.acquire('idle-%d' % i, ttl=LONG) for i in range(1000)))
        before = time.process_time()
        await asyncio.sleep(1)
        self.assertLess(time.process_time() - before, 0.1)
        self.assertTrue(all(lease.state == 'safe' for lease in held))


class ClosedLoop(unittest.TestCase):
    def test_loop_ends_first(self):
        async def use():
            locks = fencelock.aio.connect(URL)
            await locks.acquire('ends-first')
        asyncio.run(use())
        gc.collect()

    def test_lease_ends_with_its_time(self):
        """Nobody renews it any more, and whoever still has it is told."""
        async def use():
            return await fencelock.aio.connect(URL).acquire('outlives', ttl=0.5)
        lease = asyncio.run(use())
        Asyncio.outlast(lease)
        with self.assertRaises(fencelock.LostError):
            lease.check()
        self.assertTrue(lease.lost.is_set())


if __name__ == '__main__':
    unittest.main()
