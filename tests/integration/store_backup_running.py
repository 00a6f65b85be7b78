#!/usr/bin/python3
"""Backups of a storage that runs, and what others may do with its file meanwhile. Each backup has all of one commit, while writers go
on. A kill leaves no file with the name of a backup."""

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, RespError, Store, binary, main, seed, wait_until

WRITERS = 4


def rows(path, query):
    """As any program reads it."""
    with sqlite3.connect('file:%s?mode=ro' % path, uri=True, timeout=PATIENCE_S) as db:
        return db.execute(query).fetchall()


class Writer(threading.Thread):
    """Writes key after key under one lock, each with the next token."""

    def __init__(self, store, number):
        super().__init__(daemon=True)
        self.store, self.lock, self.acked, self.error, self.over = store, 'w%d' % number, 0, None, False

    def run(self):
        try:
            with self.store.client() as c:
                while not self.over:
                    n = self.acked + 1
                    c.call('SET', '%s-%06d' % (self.lock, n), 'x' * (n % 700), 'FENCE', self.lock, n)
                    self.acked = n
        except (OSError, RespError) as e:
            self.error = e


class RunningStore(Case):
    def setUp(self):
        super().setUp()
        self.store = Store(self.lab).start()
        self.writers = [Writer(self.store, i) for i in range(WRITERS)]
        for w in self.writers:
            w.start()
        wait_until(lambda: all(w.acked > 20 for w in self.writers), 'some writes')

    def stop_writers(self):
        for w in self.writers:
            w.over = True
            w.join(PATIENCE_S)
            self.assertIsNone(w.error)

    def backup(self, path, kill_after=None):
        p = subprocess.Popen([binary('fencelock-store'), '--backup', path, '--data', self.store.data],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if kill_after is not None:
            time.sleep(kill_after) # at any moment: which one does not matter
            p.kill()
        out, err = p.communicate(timeout=PATIENCE_S)
        return p.returncode, out, err

    def check_one_commit(self, path, least):
        """Each writer's keys are there without a gap, as many as its mark says."""
        marks = dict(rows(path, 'SELECT lock, mark FROM fence_mark'))
        keys = [key for key, in rows(path, 'SELECT key FROM entry ORDER BY key')]
        for w, at_least in zip(self.writers, least):
            mark = marks[w.lock]
            self.assertGreaterEqual(mark, at_least, w.lock)
            self.assertEqual([k for k in keys if k.startswith(w.lock + '-')], ['%s-%06d' % (w.lock, n) for n in range(1, mark + 1)])

    def test_each_is_one_commit_while_writers_go_on(self):
        began, i = [w.acked for w in self.writers], 0
        while i < 10 or any(w.acked <= n and w.error is None for w, n in zip(self.writers, began)): # until each of them has gone on
            path, least, i = self.lab.path('backup-%d' % i), [w.acked for w in self.writers], i + 1
            code, out, err = self.backup(path)
            self.assertEqual((code, err), (0, ''), out)
            self.check_one_commit(path, least)
        self.stop_writers()

    def test_killed_in_the_middle(self):
        r, whole = random.Random(seed()), 0
        for i in range(25):
            path, least = self.lab.path('killed-%d' % i), [w.acked for w in self.writers]
            self.backup(path, kill_after=r.uniform(0, 0.05))
            if os.path.exists(path):
                self.check_one_commit(path, least)
                whole += 1
        self.note('%d of 25 were whole' % whole)
        self.stop_writers()

    def test_others_read_the_file(self):
        """`sqlite3 FILE 'select * from fence_mark'` while it runs; a reader that takes its time holds up nobody."""
        path = os.path.join(self.store.data, 'fencelock.db')
        for _ in range(20):
            least = [w.acked for w in self.writers]
            marks = dict(rows(path, 'SELECT * FROM fence_mark'))
            for w, at_least in zip(self.writers, least):
                self.assertGreaterEqual(marks[w.lock], at_least)
        db = sqlite3.connect('file:%s?mode=ro' % path, uri=True)
        seen = db.execute('BEGIN').execute('SELECT sum(mark) FROM fence_mark').fetchone()
        before = [w.acked for w in self.writers]
        wait_until(lambda: all(w.acked > b + 300 for w, b in zip(self.writers, before)), 'writes beside a reader')
        self.assertEqual(db.execute('SELECT sum(mark) FROM fence_mark').fetchone(), seen)
        db.close()
        self.stop_writers()


if __name__ == '__main__':
    main()
