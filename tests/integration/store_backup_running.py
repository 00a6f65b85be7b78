#!/usr/bin/python3
"""Backups of a storage that runs: BACKUP and `fencelock store backup`. Each has all of one commit, while writers go
on. A kill leaves no file with the name of a backup. A user who may not read everything gets none."""

import json
import os
import random
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Deadline, RespError, Store, binary, free_ports, main, seed, wait_until
from tls_lab import Certs

USERS = '''user boss on >boss-password ~* +@all
user clerk on >clerk-password ~a* +@all
user clock on >clock-password ~* +@read +@write +@claim
'''
HEADER = 48
WRITERS = 4


def records(path):
    """What stands in the file: marks by lock, keys."""
    with open(path, 'rb') as f:
        data = f.read()
    at, marks, keys = HEADER, {}, {}
    while True:
        key_len, value_len = struct.unpack_from('<HI', data, at)
        key, value = data[at + 6:at + 6 + key_len], data[at + 6 + key_len:at + 6 + key_len + value_len]
        at += 6 + key_len + value_len + 4
        if key_len == 0:
            assert at == len(data)
            return marks, keys
        if key[:1] == b'L':
            marks[key[1:].decode()] = struct.unpack('<Q', value)[0]
        elif key[:1] == b'K':
            keys[key[1:].decode()] = value[2 + value[1]:]


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
    def tool(self, *words, **env):
        argv = [binary('fencelock'), 'store', 'backup'] + [str(w) for w in words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, env=dict(os.environ, FENCELOCK_TIMEOUT='200s', **env))

    def good(self, *words, **env):
        done = self.tool(*words, '--json', **env)
        self.assertEqual((done.returncode, done.stderr), (0, ''), done.stdout)
        return json.loads(done.stdout)

    def refused(self, *words, says, code=1, **env):
        done = self.tool(*words, **env)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(says, done.stderr)

    def filled(self, keys=50, *options):
        store = Store(self.lab).start(*options)
        with store.client() as c:
            for at in range(0, keys, 500):
                c.pipeline([('SET', 'key-%06d' % i, 'value' * 40, 'FENCE', 'lock-%d' % (i % 10), 100 + i)
                            for i in range(at, min(at + 500, keys))])
        return store

    def restored(self, backup, above, name):
        store = Store(self.lab, name)
        subprocess.run([binary('fencelock-store'), '--restore', backup, '--data', store.data, '--above', str(above)],
                       check=True, capture_output=True, timeout=PATIENCE_S)
        return store.start()

    def test_each_is_one_commit_while_writers_go_on(self):
        """Of each writer: all keys up to some point and none behind it, what was acknowledged before among them, and its mark is the
        token of the last one."""
        store = self.filled(3000)
        writers = [Writer(store, i) for i in range(WRITERS)]
        for w in writers:
            w.start()
        last, backup = {}, self.lab.path('backup')
        for _ in range(6):
            before = {w.lock: w.acked for w in writers}
            told = self.good(backup, '--replace', '--store', store.address)
            marks, keys = records(backup)
            self.assertEqual((told['keys'], told['marks']), (len(keys), len(marks)))
            self.assertEqual(len([k for k in keys if k.startswith('key-')]), 3000)
            for w in writers:
                numbers = sorted(int(k[len(w.lock) + 1:]) for k in keys if k.startswith(w.lock + '-'))
                self.assertEqual(numbers, list(range(1, len(numbers) + 1)), 'a hole')
                self.assertGreaterEqual(len(numbers), before[w.lock], 'it lacks what was acknowledged before')
                self.assertGreaterEqual(len(numbers), last.get(w.lock, 0))
                self.assertEqual(marks.get(w.lock, 0), len(numbers), 'the mark is of another moment')
                last[w.lock] = len(numbers)
        for w in writers:
            w.over = True
            w.join(PATIENCE_S)
            self.assertIsNone(w.error)
        self.assertEqual(int(store.info()['backups']), 6)
        self.assertEqual(int(store.info()['backup_failures']), 0)
        self.assertEqual(os.stat(backup).st_mode & 0o777, 0o600)
        above = max([w.acked for w in writers] + [told['highest_mark']])
        new = self.restored(backup, above, 'restored')
        for w in writers: # nobody of before the restore writes after it
            with self.assertRaises(RespError) as caught:
                new.call('SET', w.lock + '-000001', 'late', 'FENCE', w.lock, w.acked)
            self.assertEqual(caught.exception.word, 'STALE')
        self.assertEqual(new.call('CLAIM', 'w0', above + 1), 'OK')

    def test_one_at_a_time_from_its_beginning_to_its_end(self):
        """One that is not read for 5 s gives way to the next, which happens here as well when something stands still for so long."""
        store, other, gave_way = self.filled(2000), self.lab.path('other'), 0
        c = store.client()
        self.addCleanup(c.close)

        def word(*command):
            with self.assertRaises(RespError) as caught:
                c.call(*command)
            return caught.exception.word

        used = 0.0 # when the backup was used last, or before

        def use(*command):
            nonlocal used
            used = time.monotonic()
            return c.call(*command)

        def assert_stale(since):
            self.assertGreater(time.monotonic() - since, 4.9, 'a backup has given way that was in use')

        backup = use('BACKUP')
        while True:
            before = used
            try:
                backup = use('BACKUP')
            except RespError as e:
                self.assertEqual(e.word, 'BUSY')
                used = before
                break
            assert_stale(before)
            gave_way += 1
        while True:
            self.assertEqual(word('BACKUP', backup + 2, 0), 'NOTFOUND')
            self.assertEqual(word('BACKUP', 0, 0), 'ERR')
            self.assertEqual(word('BACKUP', backup, -1), 'ERR')
            wait_until(lambda: use('BACKUP', backup, 0) is not None, 'the first piece') # pylint: disable=W0640
            self.assertEqual(word('BACKUP', backup, 0), 'ERR') # that one was given
            told = self.tool(other, '--store', store.address)
            if told.returncode != 0:
                break
            assert_stale(used)
            os.unlink(other)
            backup, gave_way = use('BACKUP'), gave_way + 1
        self.assertEqual(told.returncode, 3, told.stderr)
        self.assertIn('another backup', told.stderr)
        self.assertEqual(os.listdir(self.lab.path('')).count('other'), 0)
        at = 65536
        while True:
            piece = c.call('BACKUP', backup, at)
            if not piece:
                break
            at += len(piece)
        self.assertEqual(word('BACKUP', backup, at), 'NOTFOUND')
        self.assertEqual(at, self.good(other, '--store', store.address)['bytes'])
        # One that nobody reads does not keep others waiting for long.
        self.assertGreater(use('BACKUP'), 0)
        wait_until(lambda: self.tool(self.lab.path('third'), '--store', store.address).returncode == 0, 'a backup in its place', every=0.3)
        assert_stale(used)
        self.assertEqual(int(store.info()['backup_failures']), 1 + gave_way)

    def test_killed_in_the_middle(self):
        """The storage or the tool, at any moment: no file has the name that is not whole, and nothing is left in the directory."""
        store, r, backup = self.filled(6000), random.Random(seed()), self.lab.path('backup')
        names = sorted(os.listdir(store.data))
        whole, i, patience = 0, 0, Deadline(PATIENCE_S)
        while i < 12 or i == whole: # a kill may always come too late, where this process stands still
            self.assertFalse(patience.passed(), '%d kills, and each but %d was too late' % (i, i - whole))
            p = subprocess.Popen([binary('fencelock'), 'store', 'backup', backup, '--store', store.address],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(r.uniform(0, 0.08)) # at any moment: which one does not matter
            if i % 2 == 0:
                store.kill()
            else:
                p.kill()
            p.communicate(timeout=PATIENCE_S)
            if i % 2 == 0:
                self.assertIn(p.returncode, (0, 1, 3))
                self.assertEqual(sorted(os.listdir(store.data)), names)
                store.start()
            if os.path.exists(backup):
                self.assertEqual(self.good('--verify', backup)['keys'], 6000)
                os.unlink(backup)
                whole += 1
            elif i % 2 == 0:
                self.assertFalse(os.path.exists(backup + '.part'), 'the tool leaves what it could not finish')
            i += 1
        store.kill() # what the tool had begun goes with it
        store.start()
        self.assertEqual(self.good(backup, '--store', store.address)['keys'], 6000)

    def test_damaged_and_foreign_files(self):
        store, backup, bad = self.filled(200), self.lab.path('backup'), self.lab.path('bad')
        self.good(backup, '--store', store.address)
        with open(backup, 'rb') as f:
            good = f.read()
        r = random.Random(seed())
        wrong = [good[:n] for n in [0, HEADER - 1, len(good) - 1] + [r.randrange(len(good)) for _ in range(6)]]
        for at in [8, 12, len(good) - 1] + [r.randrange(len(good)) for _ in range(12)]:
            wrong.append(good[:at] + bytes([good[at] ^ (1 << r.randrange(8))]) + good[at + 1:])
        node = Cluster(self.lab, 1).start().nodes[0]
        foreign = self.lab.path('foreign')
        subprocess.run([binary('fencelock'), 'backup', foreign, '--nodes', node.address, '--timeout', '200s'], check=True, capture_output=True,
                       timeout=PATIENCE_S)
        with open(foreign, 'rb') as f:
            wrong.append(f.read())
        for content in wrong:
            with open(bad, 'wb') as f:
                f.write(content)
            self.refused('--verify', bad, says='bad')
        self.assertEqual(self.good('--verify', backup)['keys'], 200)
        # and the other way round
        done = subprocess.run([binary('fencelock'), 'backup', '--verify', backup], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 1, done.stdout)

    def test_a_folder_of_the_newest(self):
        store, folder = self.filled(5), self.lab.path('folder')
        os.mkdir(folder)
        files = []
        for i in range(4):
            store.call('SET', 'more', str(i), 'FENCE', 'lock', 1000 + i)
            files.append(self.good('--keep', 2, folder, '--store', store.address)['file'])
        self.assertEqual(sorted(os.listdir(folder)), [os.path.basename(f) for f in files[2:]])
        self.refused('--keep', 0, folder, says='--keep', code=2)
        self.refused(self.lab.path('nowhere/backup'), '--store', store.address, says='nowhere')

    def test_who_may(self):
        """With users and TLS: @admin, and @read to everything."""
        certs, users, backup = Certs(self.lab), self.lab.path('users.acl'), self.lab.path('backup')
        with open(users, 'w', encoding='utf-8') as f:
            f.write(USERS)
        port = free_ports(1)[0]
        certs.make('server', 'server', '127.0.0.1')
        store = Store(self.lab).start('--aclfile', users, '--tls-port', str(port), '--tls-auth-clients', 'no',
                                      *certs.daemon())
        with store.client() as c:
            c.call('AUTH', 'boss', 'boss-password')
            c.call('SET', 'key', 'value', 'FENCE', 'b', 7)

        def asked(user, address, *more):
            words = (backup, '--store', address) + more
            if user is None:
                return words
            path = self.lab.path(user)
            with open(path, 'w', encoding='utf-8') as f:
                f.write(user + '-password\n')
            return words + ('--user', user, '--password-file', path)
        tls = ('127.0.0.1:%d' % port, *certs.tool())
        for at in ((store.address,), tls):
            self.refused(*asked(None, *at), says='Authentication required')
            self.refused(*asked('clock', *at), says='@admin')
            self.refused(*asked('clerk', *at), says='@read') # an admin, of a part
            self.assertFalse(os.path.exists(backup) or os.path.exists(backup + '.part'))
            self.assertEqual(self.good(*asked('boss', *at))['keys'], 1)
            os.unlink(backup)
        with store.client() as c:
            c.call('AUTH', 'clerk', 'clerk-password')
            for command in (('BACKUP',), ('BACKUP', 1, 0)):
                with self.assertRaises(RespError) as caught:
                    c.call(*command)
                self.assertEqual(caught.exception.word, 'NOPERM')


if __name__ == '__main__':
    main()
