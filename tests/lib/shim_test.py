#!/usr/bin/python3
"""What tests/torture/shim.c does to a process, and that what was never synced can be taken back from its files."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
import unittest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.dont_write_bytecode = True
from harness import PATIENCE_S, Lab, main
from shim import KILLED_BEFORE, KILLED_AFTER, SHORT_WRITE, Shim, library

PROGRAM = '''
import os, sys, signal, time
os.chdir(sys.argv[1])
def write(name, data, at=0, flags=0, sync=False):
    fd = os.open(name, os.O_CREAT | os.O_RDWR | flags, 0o600)
    os.pwrite(fd, data, at)
    if sync:
        os.fsync(fd)
    os.close(fd)
def sync_dir():
    fd = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)
%s
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
'''


@unittest.skipUnless(library(), 'the shim is not built')
class ShimTest(unittest.TestCase):
    def setUp(self):
        self.lab = Lab('shim')
        self.addCleanup(self.lab.close)
        self.shim = Shim(self.lab.path('control'), self.lab.path('data'), journal=True)

    def run_script(self, text):
        done = subprocess.run(self.shim.env_command() + [sys.executable, '-c', PROGRAM % text, self.shim.data],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stdout.decode())
        return done.stdout.decode().split()

    def file(self, name):
        try:
            with open(os.path.join(self.shim.data, name), 'rb') as f:
                return f.read()
        except FileNotFoundError:
            return None

    def test_synced_writes_stay_and_others_go(self):
        self.run_script("write('a', b'old', sync=True); sync_dir(); write('a', b'new!'); write('b', b'x', sync=True)")
        self.assertEqual((self.file('a'), self.file('b')), (b'new!', b'x'))
        self.shim.lose_unsynced()
        self.assertEqual((self.file('a'), self.file('b')), (b'old', None))

    def test_writes_that_sync_themselves_stay(self):
        self.run_script("write('a', b'0123456789', sync=True); sync_dir(); write('a', b'abcdef', 2);"
                    "write('a', b'XY', 4, os.O_DSYNC); write('a', b'-', 12)")
        self.shim.lose_unsynced()
        self.assertEqual(self.file('a'), b'0123XY6789')

    def test_writes_with_a_flag_that_syncs_stay(self):
        self.run_script("write('a', b'0123456789', sync=True); sync_dir(); fd = os.open('a', os.O_WRONLY)\n"
                    "os.pwritev(fd, [b'abc'], 0, os.RWF_DSYNC); os.pwritev(fd, [b'xyz'], 5)")
        self.shim.lose_unsynced()
        self.assertEqual(self.file('a'), b'abc3456789')

    def test_what_a_child_writes_is_lost_as_well(self):
        self.run_script("write('a', b'old', sync=True); sync_dir()\n"
                    "if os.fork() == 0:\n    os.closerange(3, 100)\n    write('a', b'new'); time.sleep(0.2); os._exit(0)\n"
                    "os.wait()")
        self.assertEqual(self.file('a'), b'new')
        self.shim.lose_unsynced()
        self.assertEqual(self.file('a'), b'old')

    def test_a_longer_file_keeps_what_was_synced_of_it(self):
        self.run_script("write('a', b'', sync=True); sync_dir(); write('a', b'abcdefgh'); write('a', b'Z', 3, os.O_DSYNC)")
        self.shim.lose_unsynced()
        self.assertEqual(self.file('a'), b'\0\0\0Z')

    def test_a_truncated_file_is_whole_again(self):
        self.run_script("write('a', b'0123456789', sync=True); sync_dir()\n"
                    "os.close(os.open('a', os.O_WRONLY | os.O_TRUNC))\nwrite('a', b'new')")
        self.shim.lose_unsynced()
        self.assertEqual(self.file('a'), b'0123456789')

    def test_names(self):
        self.run_script("write('a', b'1', sync=True); write('b', b'2', sync=True); write('c', b'3', sync=True); sync_dir()\n"
                    "os.rename('a', 'b'); os.unlink('c')")
        self.assertEqual((self.file('a'), self.file('b'), self.file('c')), (None, b'1', None))
        self.shim.lose_unsynced()
        self.assertEqual((self.file('a'), self.file('b'), self.file('c')), (b'1', b'2', b'3'))

    def test_a_rename_over_another_file_happens_whole_or_not_at_all(self):
        program = "write('a', b'1', sync=True); write('b', b'2', sync=True); sync_dir(); os.rename('a', 'b')"
        seen = set()
        for i in range(24):
            self.run_script(program)
            self.shim.lose_unsynced(random.Random(i))
            seen.add((self.file('a'), self.file('b')))
        self.assertEqual(seen, {(None, b'1'), (b'1', b'2')})

    def test_killed_with_a_write_that_is_not_synced(self):
        self.shim.fail('write', 2, KILLED_AFTER)
        self.run_script("write('a', b'1', sync=True); write('b', b'2', flags=os.O_DSYNC); write('c', b'3')")
        self.assertEqual((self.file('a'), self.file('b'), self.file('c')), (b'1', b'2', None))
        self.shim.lose_unsynced()
        self.assertEqual(self.file('b') or b'', b'')

    def test_killed_before_a_sync(self):
        self.shim.fail('sync', 2, KILLED_BEFORE)
        self.run_script("write('a', b'1', sync=True); sync_dir(); write('b', b'2')")
        self.assertEqual((self.file('a'), self.file('b')), (b'1', None))

    def test_a_synced_rename_stays(self):
        self.run_script("write('a', b'1', sync=True); sync_dir(); os.rename('a', 'b'); sync_dir()")
        self.shim.lose_unsynced()
        self.assertEqual((self.file('a'), self.file('b')), (None, b'1'))

    def test_an_allocated_size_stays_when_the_directory_is_synced(self):
        self.run_script("write('a', b'1', sync=True); fd = os.open('a', os.O_RDWR); os.posix_fallocate(fd, 0, 4096); sync_dir()")
        self.shim.lose_unsynced()
        self.assertEqual(self.file('a'), b'1' + bytes(4095))

    def test_an_allocated_size_goes_otherwise(self):
        self.run_script("write('a', b'1', sync=True); sync_dir(); fd = os.open('a', os.O_RDWR); os.posix_fallocate(fd, 0, 4096)")
        self.shim.lose_unsynced()
        self.assertEqual(self.file('a'), b'1')

    def test_some_of_it_stays(self):
        program = "write('a', b'0' * 64, sync=True); sync_dir()\nfor i in range(64): write('a', b'1', i)"
        seen = set()
        for i in range(12):
            self.run_script(program)
            self.shim.lose_unsynced(random.Random(i))
            seen.add(self.file('a').count(b'1'))
        self.assertIn(0, seen)
        self.assertGreater(len(seen), 3)

    def test_a_torn_write(self):
        self.run_script("write('a', b'0' * 1600, sync=True); sync_dir(); write('a', b'1' * 1600)")
        self.shim.lose_unsynced(torn=random.Random(1))
        new = self.file('a').count(b'1')
        self.assertIn(new, (512, 1024, 1536))
        self.assertEqual(self.file('a'), b'1' * new + b'0' * (1600 - new))

    def test_a_lying_disk(self):
        self.shim.set('lie', 1)
        self.run_script("write('a', b'old', sync=True); sync_dir(); write('b', b'x', 0, os.O_DSYNC)")
        self.shim.lose_unsynced()
        self.assertEqual((self.file('a'), self.file('b')), (None, None))

    def test_errors(self):
        self.shim.set('sync_errno', errno.EIO)
        try_or_errno = "\ntry: %s\nexcept OSError as e: print(e.errno)"
        self.assertEqual(self.run_script(try_or_errno % "write('a', b'x', sync=True)"), [str(errno.EIO)])
        self.shim.set('sync_errno', 0)
        self.shim.set('write_errno', errno.ENOSPC)
        self.assertEqual(self.run_script(try_or_errno % "write('a', b'x')"), [str(errno.ENOSPC)])
        self.shim.set('write_errno', 0)
        self.shim.fail('write', 3, errno.EIO)
        self.assertEqual(self.run_script("for i in range(5):" + try_or_errno.replace('\n', '\n  ') % "write('a', b'x')"), [str(errno.EIO)])
        self.assertEqual(self.shim.failed('write'), 1)

    def test_what_reads_fails_too(self):
        calls = {'open': "os.close(os.open('a', os.O_RDONLY))", 'read': "os.read(os.open('a', os.O_RDONLY), 1)", 'stat': "os.stat('a')",
                 'list': "os.listdir('.')", 'name': "os.rename('a', 'a')", 'fork': "os.fork() or os._exit(0)"}
        self.run_script("write('a', b'x', sync=True)")
        for kind, call in calls.items():
            with self.subTest(kind=kind):
                self.shim.reset()
                self.shim.fail(kind, 2, errno.EIO)
                told = self.run_script("for i in range(3):\n try: %s\n except OSError as e: print(e.errno)" % call)
                self.assertEqual((told, self.shim.failed(kind)), ([str(errno.EIO)], 1))

    def test_part_of_a_write(self):
        self.shim.fail('write', 2, SHORT_WRITE)
        self.assertEqual(self.run_script("write('a', b'', sync=True)\nfd = os.open('a', os.O_WRONLY)\n"
                                     "for n in (8192, 100): print(os.pwrite(fd, b'x' * n, 0))"), ['4096', '100'])
        self.shim.reset()
        self.shim.set('short', 1)
        self.assertEqual(self.run_script("fd = os.open('a', os.O_WRONLY); print(os.pwritev(fd, [b'x' * 32768], 0))"), ['16384'])

    def test_reads_of_the_first_thread_and_others(self):
        self.run_script("write('a', b'x', sync=True)")
        self.shim.set('read_slow_us', 200000)
        took, = self.run_script("import threading\nfd = os.open('a', os.O_RDONLY); began = time.monotonic(); os.pread(fd, 1, 0)\n"
                                "print(time.monotonic() - began)\n"
                                "t = threading.Thread(target=lambda: os.pread(fd, 1, 0)); t.start(); t.join()")
        self.assertGreaterEqual(float(took), 0.2)
        self.assertEqual(self.shim.get('loop_reads'), 1)

    def test_a_full_disk_takes_what_makes_nothing_longer(self):
        self.run_script("write('a', b'0123', sync=True)")
        self.shim.set('full', 1)
        try_or_errno = "\ntry: %s\nexcept OSError as e: print(e.errno)"
        self.assertEqual(self.run_script(try_or_errno % "write('a', b'x'); write('a', b'x', 4)" + try_or_errno % "write('b', b'')"),
                         [str(errno.ENOSPC)] * 2)
        self.assertEqual(self.file('a'), b'x123')

    def test_clocks(self):
        self.shim.set('wall_ns', 3600 * 10**9)
        before = time.time()
        self.assertGreater(float(self.run_script('print(time.time())')[0]), before + 3590)
        self.shim.set_rate(1000000, time.clock_gettime_ns(time.CLOCK_MONOTONIC)) # twice as fast
        began, ended = map(float, self.run_script('began = time.monotonic(); time.sleep(0.2); print(began, time.monotonic())'))
        self.assertGreater(ended - began, 0.35)
        self.shim.set_rate(0, time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        self.assertGreater(float(self.run_script('print(time.monotonic())')[0]), ended) # it never goes back


if __name__ == '__main__':
    main()
