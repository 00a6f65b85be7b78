#!/usr/bin/python3
"""The harness itself: a helper that cannot see a fault would let every test pass."""

import os
import signal
import socket
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__))))
from harness import PATIENCE_S, Case, Lab, Lateness, Resp, RespError, Retries, free_ports, main, stays, try_again, wait_until  # noqa: E402
from harness.load import Grant, judge  # noqa: E402
from harness.resp import info_fields  # noqa: E402


class Processes(Case):
    def test_ready_line_signals_and_exit_code(self):
        p = self.lab.start(['sh', '-c', 'trap "exit 0" TERM; echo up; while :; do sleep 0.01; done'], 'p')
        self.assertGreaterEqual(p.wait_output('up'), 0)
        p.pause()
        self.assertEqual(p.state(), 'T')
        p.resume()
        self.assertGreater(p.rss(), 0)
        self.assertEqual(p.terminate(), 0)

    def test_no_ready_line_is_an_error_with_the_output(self):
        with self.assertRaisesRegex(AssertionError, 'ended with 3.*\n.*sorry'):
            p = self.lab.start(['sh', '-c', 'echo sorry; exit 3'], 'p')
            p.asked_to_end = True
            p.wait_output('never')
        with self.assertRaisesRegex(AssertionError, 'did not print'):
            self.lab.start(['sleep', '100'], 'q').wait_output('never', 0.1)

    def test_output_is_that_of_this_start(self):
        self.lab.start(['echo', 'first'], 'p').wait()
        p = self.lab.start(['echo', 'second'], 'p')
        p.wait()
        self.assertEqual(p.output(), 'second\n')

    def test_lab_finds_a_crash_and_a_sanitizer_report(self):
        for script, what in (('kill -SEGV $$', 'ended by itself'), ('exit 7', 'ended by itself with 7'),
                             ('echo "x.c:1:2: runtime error: shift"', 'runtime error'),
                             ('echo "fencelock: assertion failed: a"', 'assertion failed')):
            lab = Lab('harness')
            lab.start(['sh', '-c', script], 'p').wait()
            stderr, sys.stderr = sys.stderr, open(os.devnull, 'w')
            try:
                with self.assertRaisesRegex(AssertionError, what):
                    lab.close()
            finally:
                sys.stderr.close()
                sys.stderr = stderr
            self.assertTrue(os.path.exists(lab.dir))
            Lab.close(lab)
            self.assertFalse(os.path.exists(lab.dir))

    def test_children_die_with_us(self):
        code = ('import sys; sys.path.insert(0, %r); from harness import Lab; import time\n'
                'lab = Lab("orphan"); p = lab.start(["sleep", "1000"], "p")\n'
                'print(p.pid, lab.dir, flush=True); time.sleep(1000)' % os.path.dirname(os.path.abspath(__file__)))
        parent = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)
        pid, directory = parent.stdout.readline().decode().split()
        os.kill(int(pid), 0)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
        wait_until(lambda: not os.path.exists('/proc/%s/exe' % pid) or _is_zombie(pid), 'the end of the orphan')
        os.remove(os.path.join(directory, 'p.log'))
        os.rmdir(directory)

    def test_ports_are_not_given_twice(self):
        ports = [p for _ in range(20) for p in free_ports(5)]
        self.assertEqual(len(set(ports)), 100)


def _is_zombie(pid):
    try:
        with open('/proc/%s/stat' % pid) as f:
            return f.read().rpartition(')')[2].split()[0] == 'Z'
    except OSError:
        return True


class Waiting(unittest.TestCase):
    def test_what_does_not_last_is_found(self):
        looks = iter((True, True, False, True))
        with self.assertRaisesRegex(AssertionError, 'the light did not last'):
            stays(lambda: next(looks), 60, 'the light', every=0.001)
        self.assertTrue(next(looks)) # it looked no further
        stays(lambda: True, 0.01, 'the light', every=0.001)


class Parts(Case):
    """Of a program that runs in parts, every test is in one of them."""

    def ran(self, *words):
        program = self.lab.path('program.py')
        with open(program, 'w', encoding='utf-8') as f:
            f.write('import sys, unittest\nsys.path.insert(0, %r)\nfrom harness import main\nclass T(unittest.TestCase):\n'
                    % os.path.dirname(os.path.abspath(__file__)))
            f.writelines('    def test_%d(self): pass\n' % i for i in range(7))
            f.write('main()\n')
        done = subprocess.run([sys.executable, program, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return done.returncode, [line.split()[1] for line in done.stdout.splitlines() if line.startswith('ok ')]

    def test_each_test_is_in_one(self):
        code, whole = self.ran()
        self.assertEqual((code, len(whole)), (0, 7))
        parts = [self.ran('--part', '%d/3' % n) for n in (1, 2, 3)]
        self.assertEqual([code for code, _ in parts], [0] * 3)
        self.assertEqual(sorted(t for _, tests in parts for t in tests), sorted(whole))

    def test_a_part_that_cannot_be_is_an_error(self):
        for part in ('0/3', '4/3', '8/8', '1', 'x/y', '1/0'):
            self.assertEqual(self.ran('--part', part), (2, []), part)


class SecondTries(Case):
    def test_what_has_no_reason_is_excused_once(self):
        late, punctual = Lateness(), Lateness()
        late.most_ms = 200
        retries = Retries()
        self.assertEqual([retries.allowed(how, 100) for how in (late, punctual, late, punctual)], [True, True, True, False])

    def test_lateness_is_seen(self):
        with Lateness() as late:
            helper = subprocess.Popen(['sh', '-c', 'sleep 0.1; kill -STOP %d; sleep 0.5; kill -CONT %d' % (os.getpid(), os.getpid())])
            helper.wait()
        self.assertGreater(late.most_ms, 300)

    def test_assertions_of_an_attempt_hold(self):
        with self.assertRaisesRegex(AssertionError, 'wrong'):
            try_again(lambda: self.fail('wrong'), 'it')
        answers = [None, 0, 'found']
        self.assertEqual(try_again(lambda: answers.pop(0), 'it'), 'found')


class Client(Case):
    def serve(self, data):
        listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listener.close)

        def run():
            conn, _ = listener.accept()
            with conn:
                for i in range(len(data)):
                    conn.sendall(data[i:i + 1])
        threading.Thread(target=run, daemon=True).start()
        return Resp(('127.0.0.1', listener.getsockname()[1]), timeout=PATIENCE_S)

    def test_every_type_byte_by_byte(self):
        with self.serve(b'+OK\r\n-STALE 1 2\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*2\r\n:1\r\n*1\r\n$0\r\n\r\n'
                        b'_\r\n#t\r\n#f\r\n,1.5\r\n%1\r\n+k\r\n:2\r\n~1\r\n:3\r\n=6\r\ntxt:ab\r\n>1\r\n+p\r\n') as c:
            self.assertEqual(c.read(), 'OK')
            error = c.read()
            self.assertIsInstance(error, RespError)
            self.assertEqual((error.word, error.text), ('STALE', '1 2'))
            self.assertEqual([c.read() for _ in range(5)], [-7, b'a\r\n', None, None, [1, [b'']]])
            self.assertEqual([c.read() for _ in range(4)], [None, True, False, 1.5])
            self.assertEqual([c.read() for _ in range(4)], [{'k': 2}, [3], b'ab', ['p']])
            with self.assertRaises(ConnectionError):
                c.read()

    def test_silence_is_a_timeout(self):
        listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listener.close)
        with self.assertRaises(socket.timeout):
            with Resp(('127.0.0.1', listener.getsockname()[1]), timeout=0.05) as c:
                c.call('PING')

    def test_info(self):
        self.assertEqual(info_fields(b'# Server\r\na:1\r\nb:x:y\r\n'), {'a': 1, 'b': 'x:y'})


class Oracle(unittest.TestCase):
    def grant(self, token, sent, answered, lock='L', owner=None, ttl=10, released=None):
        g = Grant(lock, owner or 'o%d' % token, token, sent, answered, ttl)
        g.release_sent = released
        return g

    def test_accepts_a_correct_history(self):
        self.assertEqual(judge([self.grant(1, 0, 1, released=2), self.grant(2, 0, 3, released=5),
                                self.grant(3, 2, 2.5, lock='M'), self.grant(4, 4, 16)]), [])

    def test_accepts_concurrent_grants_in_any_order(self):
        self.assertEqual(judge([self.grant(2, 0, 1, lock='M'), self.grant(1, 0.5, 2)]), [])

    def test_finds_a_repeated_token(self):
        self.assertRegex(judge([self.grant(1, 0, 1, released=1), self.grant(1, 0, 2, owner='x')])[0], 'rule 1')

    def test_finds_a_smaller_token(self):
        self.assertRegex(judge([self.grant(5, 0, 1, lock='M'), self.grant(4, 2, 3)])[0], 'rule 2')

    def test_finds_two_holders(self):
        self.assertRegex(judge([self.grant(1, 0, 1), self.grant(2, 2, 3)])[0], 'rule 3')
        self.assertRegex(judge([self.grant(1, 0, 1, released=4), self.grant(2, 2, 3)])[0], 'rule 3')

    def test_accepts_a_successor_after_the_lease(self):
        self.assertEqual(judge([self.grant(1, 0, 1), self.grant(2, 2, 10.5)]), [])


if __name__ == '__main__':
    main()
