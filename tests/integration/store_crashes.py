#!/usr/bin/python3
"""fencelock-store killed in the middle of concurrent writes, again and again: nothing that was acknowledged
may be missing afterwards, and no mark may be lower than one that was acknowledged or shown."""

import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Deadline, RespError, Store, main, seed

ROUNDS = int(os.environ.get('FENCELOCK_STORE_KILLS', '200'))
WRITERS = 4


class Writer:
    """One holder: its own lock and key, values that count up, tokens that grow from time to time. What it
    sent and what was acknowledged outlives the rounds."""

    def __init__(self, number, rng):
        self.rng = rng
        self.lock = 'lock-%d' % number
        self.key = 'key-%d' % number
        self.sent = self.acked = 0
        self.token_sent = self.token_acked = 1
        self.present_acked = False # what the last acknowledged operation on the key left
        self.doubtful = False      # a SET or DEL is out whose answer never came

    def run(self, store, errors):
        try:
            with store.client(timeout=20.0) as c:
                while True:
                    self.one(c)
        except OSError:
            pass # the kill
        except BaseException as e: # pylint: disable=broad-except
            errors.append(e)

    def one(self, c):
        what = self.rng.random()
        if what < 0.2:
            self.token_sent += self.rng.randrange(1, 5)
            c.call('CLAIM', self.lock, self.token_sent)
        elif what < 0.3:
            self.token_sent += 1
            c.call('GET', self.key, 'FENCE', self.lock, self.token_sent)
        elif what < 0.4:
            self.doubtful = True
            c.call('DEL', self.key, 'FENCE', self.lock, self.token_sent)
            self.present_acked = self.doubtful = False
        else:
            self.sent += 1
            self.doubtful = True
            size = self.rng.choice((0, 10, 3000, 20000))
            c.call('SET', self.key, '%d %s' % (self.sent, 'x' * size), 'FENCE', self.lock, self.token_sent)
            self.acked = self.sent
            self.present_acked, self.doubtful = True, False
        self.token_acked = self.token_sent

    def check(self, c):
        mark = c.call('MARK', self.lock)
        assert self.token_acked <= mark <= self.token_sent or mark == self.token_acked == 1 or \
            (mark == 0 and self.token_acked == 1), (self.lock, self.token_acked, mark, self.token_sent)
        value = c.call('GET', self.key)
        if not self.doubtful:
            assert (value is not None) == self.present_acked, (self.key, value, self.present_acked)
        if value is not None:
            number = int(value.split()[0])
            assert self.acked <= number <= self.sent, (self.key, self.acked, number, self.sent)
        if mark > 1:
            try:
                c.call('SET', self.key, 'stale', 'FENCE', self.lock, mark - 1)
                raise AssertionError('a stale write was accepted')
            except RespError as e:
                assert e.word == 'STALE', e
        # What was shown is promised from now on.
        self.token_acked = max(mark, 1)
        self.token_sent = max(self.token_sent, self.token_acked)
        self.present_acked, self.doubtful = value is not None, False
        self.acked = int(value.split()[0]) if value is not None else self.acked


class StoreCrashes(Case):
    def rounds(self, count, longest_s):
        rng = random.Random(seed())
        writers = [Writer(i, random.Random(rng.random())) for i in range(WRITERS)]
        store = Store(self.lab)
        errors = []
        store.start()
        done, patience = 0, None
        while done < count or min(w.acked for w in writers) == 0: # where all is slow, no writer may have got that far
            if done >= count:
                patience = patience or Deadline(PATIENCE_S)
                self.assertFalse(patience.passed(), 'a writer without one acknowledged write in %d rounds' % done)
            longest_s *= 2 if done >= count else 1
            done += 1
            threads = [threading.Thread(target=w.run, args=(store, errors), daemon=True) for w in writers]
            for t in threads:
                t.start()
            time.sleep(rng.random() * longest_s) # when the kill falls, not a wait for something
            store.kill()
            for t in threads:
                t.join(PATIENCE_S)
                self.assertFalse(t.is_alive())
            self.assertEqual(errors, [])
            store.start()
            with store.client() as c:
                for w in writers:
                    w.check(c)
        self.note('%d kills, %d writes acknowledged' % (done, sum(w.acked for w in writers)))
        self.assertEqual(store.terminate(), 0)

    def test_quick_kills(self):
        self.rounds(ROUNDS, 0.04)

    def test_killed_under_load(self):
        self.rounds(max(2, ROUNDS // 40), 0.8)

    def test_killed_while_starting(self):
        """At any moment of the first start, and of a start that finds data."""
        rng = random.Random(seed() + 1)
        store = Store(self.lab)
        for _ in range(40):
            store.launch()
            time.sleep(rng.random() * 0.02)
            store.kill()
        store.start()
        store.call('SET', 'k', 'v', 'FENCE', 'x', 7)
        store.kill()
        for _ in range(40):
            store.launch()
            time.sleep(rng.random() * 0.02)
            store.kill()
        store.start()
        self.assertEqual(store.call('GET', 'k'), b'v')
        self.assertEqual(store.call('MARK', 'x'), 7)

    def test_terminated_under_load(self):
        """SIGTERM: everything that was taken is answered, and everything answered is there."""
        rng = random.Random(seed() + 2)
        writers = [Writer(i, random.Random(rng.random())) for i in range(WRITERS)]
        store = Store(self.lab)
        errors = []
        store.start()
        for _ in range(5):
            threads = [threading.Thread(target=w.run, args=(store, errors), daemon=True) for w in writers]
            for t in threads:
                t.start()
            deadline = Deadline(30)
            before = [w.acked for w in writers]
            while any(w.acked < b + 3 for w, b in zip(writers, before)) and not deadline.passed():
                time.sleep(0.005)
            self.assertEqual(store.terminate(), 0)
            for t in threads:
                t.join(PATIENCE_S)
            self.assertEqual(errors, [])
            store.start()
            with store.client() as c:
                for w in writers:
                    w.check(c)


if __name__ == '__main__':
    main()
