"""Deadlines instead of sleeps, and the one seed."""

import os
import random
import time


class Deadline:
    """A point in time that everything inside one operation shares."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def passed(self):
        return time.monotonic() >= self.end


def wait_until(condition, seconds=30.0, what='the condition', every=0.02):
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


_seed = None


def seed():
    """The run's seed: FENCELOCK_SEED, or a random one. Runners print it."""
    global _seed
    if _seed is None:
        given = os.environ.get('FENCELOCK_SEED', '')
        _seed = int(given, 0) if given else random.SystemRandom().randrange(1, 1 << 32)
    return _seed
