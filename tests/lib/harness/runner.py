"""A unittest runner that prints one line a test and ends with `N passed, N failed, N skipped`."""

import argparse
import faulthandler
import resource
import sys
import time
import unittest

from .cluster import Cluster
from .lab import Lab
from .resp import RespError
from .wait import PATIENCE_S, seed


class Case(unittest.TestCase):
    """A test with a Lab. TIMEOUT_S is a watchdog against hanging, not a bound that is being tested."""

    TIMEOUT_S = 900

    def setUp(self):
        faulthandler.dump_traceback_later(self.TIMEOUT_S, exit=True)
        self.lab = Lab('%s.%s' % (type(self).__name__, self._testMethodName))
        self.addCleanup(self._close_lab)

    def _close_lab(self):
        faulthandler.cancel_dump_traceback_later()
        self.lab.close(failed=self._has_failed())

    def _has_failed(self):
        outcome = self._outcome
        if hasattr(outcome, 'errors'): # before Python 3.11
            return any(error for _, error in outcome.errors)
        result = outcome.result
        return any(test is self for test, _ in result.failures + result.errors)

    def need_open_files(self, n):
        """Lets this test, and what it starts, have so many open files; skips it where that is not allowed."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < n:
            self.skipTest('the limit on open files is %d here, and this needs %d' % (hard, n))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))

    def kill_at_cleanup(self, child):
        """A Popen with pipes: killed, and waited for, if the test leaves it running."""
        def end():
            if child.poll() is None:
                child.kill()
            child.communicate()
        self.addCleanup(end)
        return child

    def wait_child(self, child, seconds=PATIENCE_S):
        """Waits for a Popen with pipes: its exit code, and what it wrote to standard output and error."""
        out, err = child.communicate(timeout=seconds)
        self.assertNoReport(err)
        return child.returncode, out.decode(), err.decode()

    def assertNoReport(self, err):
        """No sanitizer complains in what a program said. Fails the test at its end also if wait_until() swallows it here."""
        if b'Sanitizer' in err or b'runtime error' in err:
            self.addCleanup(self.fail, err.decode(errors='replace'))
            self.fail(err.decode(errors='replace'))

    def assertError(self, word, client, *request, text=''):
        """The request is answered with this error, and this in its text, which is returned."""
        with self.assertRaises(RespError) as caught:
            client.call(*request)
        self.assertEqual(caught.exception.word, word, caught.exception.line)
        self.assertIn(text, caught.exception.text)
        return caught.exception.text

    def note(self, text):
        """A measured value or other remark, printed with the test's line."""
        self.__dict__.setdefault('notes', []).append(text)


class ClusterCase(Case):
    """A test with a cluster that runs. STEADY: for one that pauses and cuts off no leader; see Cluster.steady()."""

    NODES = 3
    STEADY = False

    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, self.NODES).start()
        if self.STEADY:
            self.cluster.steady()


class _Result(unittest.TestResult):
    def __init__(self, stream, name_width):
        super().__init__()
        self.stream = stream
        self.name_width = name_width
        self.passed = 0
        self.failed_tests = set()

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def _line(self, word, test, more=''):
        name = '%s.%s' % (type(test).__name__, getattr(test, '_testMethodName', test))
        self.stream.write('%-5s %-*s %6.2f s%s\n' % (word, self.name_width, name, time.monotonic() - self.began, more))
        for text in getattr(test, 'notes', ()):
            self.stream.write('      %s\n' % text)
        self.stream.flush()

    def addSuccess(self, test):
        self.passed += 1
        self._line('ok', test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.began = getattr(self, 'began', time.monotonic())
        self._line('skip', test, '  skipped: %s' % reason)

    def _failed(self, test, error):
        self.failed_tests.add(str(test))
        self.began = getattr(self, 'began', time.monotonic())
        self._line('FAIL', test)
        self.stream.write(self._exc_info_to_string(error, test) + '\n')
        self.stream.flush()

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._failed(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self._failed(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.stream.write('in %s\n' % subtest.id())
            self._failed(test, err)


def _flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _flatten(item)
        else:
            yield item


def _part(text):
    number, _, of = text.partition('/')
    if not number.isdigit() or not of.isdigit() or not 1 <= int(number) <= int(of):
        raise argparse.ArgumentTypeError('not N/OF: %r' % text)
    return int(number), int(of)


def main(module='__main__'):
    parser = argparse.ArgumentParser(description='Runs the tests of this file.')
    parser.add_argument('-k', metavar='WORD', action='append', default=[], help='only tests with WORD in their name')
    parser.add_argument('--repeat', metavar='N', type=int, default=1, help='run them N times')
    parser.add_argument('--until-failure', action='store_true', help='stop at the first failure')
    parser.add_argument('--part', metavar='N/OF', type=_part, default=(1, 1), help='only every OF-th test, from the Nth on')
    options = parser.parse_args()
    tests = list(_flatten(unittest.defaultTestLoader.loadTestsFromModule(sys.modules[module])))
    tests = [t for t in tests if not options.k or any(word in t.id() for word in options.k)]
    if not tests:
        parser.error('no test has %s in its name' % ' or '.join(options.k))
    number, of = options.part
    if of > len(tests):
        parser.error('--part: there are %d tests' % len(tests))
    tests = tests[number - 1::of]
    width = max([len(type(t).__name__) + 1 + len(t._testMethodName) for t in tests] + [1])
    print('seed %d (give it back with FENCELOCK_SEED)' % seed(), flush=True)
    passed = failed = skipped = 0
    for _ in range(options.repeat):
        result = _Result(sys.stdout, width)
        result.failfast = options.until_failure
        for test in tests:
            unittest.TestSuite([type(test)(test._testMethodName)]).run(result)
            if result.failed_tests and options.until_failure:
                break
        passed += result.passed
        failed += len(result.failed_tests)
        skipped += len(result.skipped)
        if result.failed_tests and options.until_failure:
            break
    print('%d passed, %d failed, %d skipped' % (passed, failed, skipped), flush=True)
    sys.exit(1 if failed else 0)
