"""Deadlines instead of sleeps, and the one seed."""

import os
import random
import threading
import time


def boottime_ms():
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


class Deadline:
    """A point in time that everything inside one operation shares."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def passed(self):
        return time.monotonic() >= self.end


# How long a test waits for what must come. No test that passes waits so long: it is for the slowest machine, and a bound of nothing.
PATIENCE_S = 240.0
# How long a client waits for one answer that must come. Longer than a node of a steady cluster (cluster.py) holds a request.
ANSWER_S = 120.0


def wait_until(condition, what='the condition', every=0.02, seconds=PATIENCE_S):
    """Calls condition until it returns something true, and returns that. Exceptions of a condition
    that is not ready yet (a refused connection, an error reply) count as false."""
    deadline = Deadline(seconds)
    last = None
    while True:
        try:
            value = condition()
            if value:
                return value
            last = value
        except (OSError, AssertionError, RuntimeError) as e:
            last = e
        if deadline.passed():
            raise AssertionError('%s did not come about within %g s (last seen: %r)' % (what, seconds, last))
        time.sleep(every)


def stays(condition, seconds, what='the condition', every=0.05):
    """Fails when the condition does not hold at some time within so many seconds. Between two looks the machine is left to
    those who are tested: a test that asks all the time takes their processor."""
    deadline = Deadline(seconds)
    while True:
        value = condition()
        if not value:
            raise AssertionError('%s did not last (last seen: %r)' % (what, value))
        if deadline.passed():
            return
        time.sleep(min(every, deadline.left()))


def try_again(attempt, what):
    """Calls it until it returns something true: for a case that needs luck. Unlike in wait_until(), what it asserts must hold each time."""
    patience = Deadline(PATIENCE_S)
    while True:
        found = attempt()
        if found:
            return found
        if patience.passed():
            raise AssertionError('%s did not come about' % what)


class Lateness(threading.Thread):
    """How late this machine wakes who sleeps: a process that does not run cannot be told anything."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ended, self.most_ms = threading.Event(), 0.0

    def run(self):
        at, ended = boottime_ms(), False
        while not ended:
            ended = self.ended.wait(0.005) # the last wait counts as well: it may be the one that was late
            now = boottime_ms()
            self.most_ms, at = max(self.most_ms, now - at - 5), now

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.ended.set()
        self.join(PATIENCE_S)


class Retries:
    """Whether a case that a slow machine spoils may be tried again: whenever this process was woken late meanwhile, and otherwise
    once, since it does not see that only others stood still. A product that fails each second time must not pass."""

    def __init__(self):
        self.unexplained = 0

    def allowed(self, late, bearable_ms):
        self.unexplained += late.most_ms <= bearable_ms
        return self.unexplained <= 1


_seed = None


def seed():
    """The run's seed: FENCELOCK_SEED, or a random one. Runners print it."""
    global _seed
    if _seed is None:
        given = os.environ.get('FENCELOCK_SEED', '')
        _seed = int(given, 0) if given else random.SystemRandom().randrange(1, 1 << 32)
    return _seed
