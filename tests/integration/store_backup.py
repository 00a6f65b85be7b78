#!/usr/bin/python3
"""Backups of the sample storage and storages out of them. What was issued before a restore is refused after it, and no key is
written before its lock was claimed anew."""

import os
import random
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, RespError, Store, binary, main, seed


class StoreBackups(Case):
    def run_store(self, *args, kill_after=None):
        argv = [binary('fencelock-store')] + [str(a) for a in args]
        p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if kill_after is not None:
            time.sleep(kill_after) # at any moment: which one does not matter
            p.kill()
        out, err = p.communicate(timeout=PATIENCE_S)
        return p.returncode, out, err

    def good(self, *args):
        code, out, err = self.run_store(*args)
        self.assertEqual((code, err), (0, ''), out)
        return {line[:14].strip(): line[14:].strip() for line in out.splitlines()}

    def refused(self, *args, says, code=1):
        got, out, err = self.run_store(*args)
        self.assertEqual(got, code, out + err)
        self.assertIn(says, err)

    def filled(self, keys=50):
        store = Store(self.lab).start()
        for i in range(keys):
            store.call('SET', 'key-%d' % i, 'value-%d' % i * 50, 'FENCE', 'lock-%d' % (i % 10), 100 + i)
        store.call('DEL', 'key-7', 'FENCE', 'lock-7', 150 + keys)
        store.call('CLAIM', 'claimed', 300)
        return store

    def stale(self, store, *args):
        with self.assertRaises(RespError) as caught:
            store.call(*args)
        self.assertEqual(caught.exception.word, 'STALE')
        return str(caught.exception)

    def restored(self, backup, above, name='restored'):
        store = Store(self.lab, name)
        told = self.good('--restore', backup, '--data', store.data, '--above', above)
        return store.start(), told

    def test_there_and_back(self):
        old = self.filled()
        backup = self.lab.path('backup')
        told = self.good('--backup', backup, '--data', old.data)
        self.assertEqual(old.terminate(), 0)
        self.good('--backup', self.lab.path('of a stopped one'), '--data', old.data)
        self.assertEqual((told['keys'], told['deleted keys'], told['marks'], told['highest mark']), ('49', '1', '11', '300'))
        self.assertEqual(os.stat(backup).st_mode & 0o777, 0o600)
        self.assertEqual(self.good('--verify', backup)['keys'], '49')

        # the old one goes on; what it accepts is lost with it
        old.start()
        old.call('SET', 'key-1', 'later', 'FENCE', 'lock-1', 500)
        self.assertEqual(old.terminate(), 0)
        new, told = self.restored(backup, 500)
        self.assertIn('500', told['restored'])
        self.assertEqual(new.call('GET', 'key-1'), b'value-1' * 50)
        self.assertIsNone(new.call('GET', 'key-7'))
        self.assertEqual(new.call('MARK', 'lock-1'), 501)
        self.assertEqual(new.call('MARK', 'never-seen'), 501)
        for token in (1, 141, 300, 500): # of before, whatever the lock
            for lock in ('lock-1', 'never-seen'):
                self.stale(new, 'CLAIM', lock, token)
                self.stale(new, 'SET', 'key-1' if lock == 'lock-1' else 'fresh', 'x', 'FENCE', lock, token)
                self.stale(new, 'GET', 'key-1' if lock == 'lock-1' else 'fresh', 'FENCE', lock, token)
        # of after: not without a claim, or a read with the token
        self.assertIn('claimed', self.stale(new, 'SET', 'key-1', 'x', 'FENCE', 'lock-1', 501))
        self.assertIn('claimed', self.stale(new, 'DEL', 'key-1', 'FENCE', 'lock-1', 501))
        self.assertEqual(new.call('CLAIM', 'lock-1', 501), 'OK')
        new.call('SET', 'key-1', 'x', 'FENCE', 'lock-1', 501)
        self.assertEqual(new.call('GET', 'key-2', 'FENCE', 'lock-2', 502), b'value-2' * 50)
        new.call('SET', 'key-2', 'y', 'FENCE', 'lock-2', 502)
        with self.assertRaises(RespError) as caught: # a key stays its lock's
            new.call('SET', 'key-7', 'z', 'FENCE', 'lock-2', 503)
        self.assertEqual(caught.exception.word, 'WRONGLOCK')

        # all of that outlives kills, and the next backup
        new.kill()
        new.start()
        self.stale(new, 'CLAIM', 'lock-3', 500)
        self.stale(new, 'CLAIM', 'lock-1', 500)
        self.assertEqual(new.terminate(), 0)
        again = self.lab.path('again')
        self.good('--backup', again, '--data', new.data)
        self.refused('--restore', again, '--data', self.lab.path('low'), '--above', 500, says='cannot be')
        newer, _ = self.restored(again, 600, 'newer')
        self.stale(newer, 'CLAIM', 'lock-1', 502)
        self.assertEqual(newer.call('GET', 'key-1', 'FENCE', 'lock-1', 601), b'x')

    def test_numbers_and_directories_that_cannot_be(self):
        store = self.filled(5)
        self.assertEqual(store.terminate(), 0)
        backup = self.lab.path('backup')
        self.good('--backup', backup, '--data', store.data)
        fresh = self.lab.path('fresh')
        self.refused('--restore', backup, '--data', fresh, says='--above', code=2)
        self.refused('--restore', backup, '--above', 500, says='--data', code=2)
        self.refused('--restore', backup, '--data', fresh, '--above', 0, says='--above', code=2)
        self.refused('--restore', backup, '--data', fresh, '--above', 299, says='the backup has the mark 300')
        self.refused('--restore', backup, '--data', store.data, '--above', 500, says='is not empty')
        self.refused('--backup', self.lab.path('other'), '--data', self.lab.path('nowhere'), says='nowhere')
        self.refused('--restore', backup, '--verify', backup, says='exclude each other', code=2)
        self.assertFalse(os.path.exists(fresh))
        os.mkdir(fresh)
        self.good('--restore', backup, '--data', fresh, '--above', 500)

    def test_damaged_and_foreign_files(self):
        store = self.filled()
        self.assertEqual(store.terminate(), 0)
        backup = self.lab.path('backup')
        self.good('--backup', backup, '--data', store.data)
        with open(backup, 'rb') as f:
            good = f.read()
        r = random.Random(seed())
        bad = [good[:n] for n in [0, 1, 99, 100, len(good) - 1] + [r.randrange(len(good)) for _ in range(8)]]
        places = [m.start() for word in (b'key-1', b'value-1', b'lock-1', b'fence_mark') for m in re.finditer(word, good)]
        for at in r.sample(places, min(len(places), 25)): # where something stands; elsewhere a bit may mean nothing
            bad.append(good[:at] + bytes([good[at] ^ (1 << r.randrange(8))]) + good[at + 1:])
        bad += [b'something else\n' * 20]
        fresh = self.lab.path('fresh')
        for content in bad:
            with open(self.lab.path('bad'), 'wb') as f:
                f.write(content)
            self.refused('--verify', self.lab.path('bad'), says='bad')
            self.refused('--restore', self.lab.path('bad'), '--data', fresh, '--above', 500, says='bad')
            self.assertFalse(os.path.exists(fresh))

    def test_killed_at_any_moment(self):
        """Of a backup and of a restore: what has the name is whole, and the next attempt goes through."""
        store = self.filled(400)
        self.assertEqual(store.terminate(), 0)
        r = random.Random(seed())
        backup, whole = self.lab.path('backup'), 0
        for _ in range(25):
            self.run_store('--backup', backup, '--data', store.data, kill_after=r.uniform(0, 0.03))
            if os.path.exists(backup):
                self.assertEqual(self.good('--verify', backup)['keys'], '399')
                os.unlink(backup)
                whole += 1
        self.good('--backup', backup, '--data', store.data)
        data = self.lab.path('new')
        for _ in range(25):
            self.run_store('--restore', backup, '--data', data, '--above', 1000, kill_after=r.uniform(0, 0.05))
            if os.path.exists(data):
                new = Store(self.lab, 'new').start()
                self.assertEqual(int(new.info()['keys']), 399)
                self.stale(new, 'CLAIM', 'lock-1', 1000)
                new.kill()
                shutil.rmtree(data)
        self.good('--restore', backup, '--data', data, '--above', 1000)
        store.start()
        self.assertEqual(store.call('GET', 'key-1'), b'value-1' * 50)

    def test_a_counter_across_a_restore(self):
        """Holders of before the restore, who wake up after it, change nothing; those of after lose nothing."""
        cluster = Cluster(self.lab, 1).start()
        node = cluster.nodes[0]
        store = Store(self.lab, 'first').start()

        def add(store, token):
            value = int(store.call('GET', 'counter', 'FENCE', 'lock', token) or 0)
            store.call('SET', 'counter', value + 1, 'FENCE', 'lock', token)

        for _ in range(20):
            add(store, node.call('TOKEN', 'lock'))
        store.terminate()
        backup = self.lab.path('backup')
        self.good('--backup', backup, '--data', store.data)
        store.start()
        sleepers = [node.call('TOKEN', 'lock') for _ in range(5)]
        add(store, sleepers[-1])
        store.terminate()
        new, _ = self.restored(backup, node.info()['last_token'], 'second')
        for token in sleepers:
            self.stale(new, 'SET', 'counter', 999, 'FENCE', 'lock', token)
            self.stale(new, 'GET', 'counter', 'FENCE', 'lock', token)
        for _ in range(10):
            add(new, node.call('TOKEN', 'lock'))
        self.assertEqual(int(new.call('GET', 'counter')), 30)


if __name__ == '__main__':
    main()
