#!/usr/bin/python3
"""fencelock-store as its users meet it: commands, options, stock clients, clients that misbehave."""

import os
import resource
import signal
import socket
import subprocess
import sys

import redis

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, RespError, Store, binary, free_ports, limit_asan_quarantine, main, wait_until
from harness.resp import encode

TOKEN_MAX = 2 ** 53 - 1
VALUE_MAX = 1024 * 1024


class StoreCase(Case):
    def store(self, *more):
        store = Store(self.lab)
        store.start(*more)
        return store


class Commands(StoreCase):
    def test_stale_before_and_after_a_restart(self):
        store = self.store()
        with store.client() as c:
            c.call('CLAIM', 'x', 33)
            self.assertEqual(c.call('SET', 'k', 'v', 'FENCE', 'x', 33), 'OK')
            self.assertEqual(c.call('CLAIM', 'x', 34), 'OK')
        for _ in range(2):
            with store.client() as c:
                for request in (('SET', 'k', 'w', 'FENCE', 'x', 33), ('DEL', 'k', 'FENCE', 'x', 33),
                                ('GET', 'k', 'FENCE', 'x', 33), ('CLAIM', 'x', 33)):
                    text = self.assertError('STALE', c, *request)
                    words = text.split()
                    self.assertEqual(words[:2] + words[5:8], ['token', '33', 'mark', '34', 'of'], text)
                self.assertEqual(c.call('GET', 'k'), b'v')
                self.assertEqual(c.call('MARK', 'x'), 34)
            store.kill()
            store.start()

    def test_every_refusal(self):
        store = self.store()
        with store.client() as c:
            c.call('SET', 'k', 'v', 'FENCE', 'a', 5)
            text = self.assertError('WRONGLOCK', c, 'SET', 'k', 'w', 'FENCE', 'b', 9)
            self.assertIn("'a'", text)
            self.assertIn("'b'", text)
            self.assertError('WRONGLOCK', c, 'GET', 'k', 'FENCE', 'b', 9)
            self.assertError('WRONGLOCK', c, 'DEL', 'k', 'FENCE', 'b', 9)
            self.assertEqual(c.call('MARK', 'b'), 0)
            self.assertError('NOTOKEN', c, 'SET', 'k', 'w')
            self.assertError('NOTOKEN', c, 'SET', 'new', 'w')
            self.assertError('NOTOKEN', c, 'DEL', 'k')
            for token in ('0', TOKEN_MAX + 1, 2 ** 64, '-1', '1.0', '', 'x', '0x10', ' 5', '1' * 400):
                self.assertError('ERR', c, 'CLAIM', 'a', token)
                self.assertError('ERR', c, 'SET', 'k', 'w', 'FENCE', 'a', token)
                self.assertError('ERR', c, 'GET', 'k', 'FENCE', 'a', token)
            self.assertError('ERR', c, 'SET', 'k', 'w', 'FENCE', 'a')
            self.assertError('ERR', c, 'SET', 'k', 'w', 'EX', '10')
            self.assertError('ERR', c, 'MARK')
            self.assertError('ERR', c, 'ACQUIRE', 'a')
            self.assertEqual(c.call('GET', 'k'), b'v')
            self.assertEqual(c.call('MARK', 'a'), 5)
            # A deleted key stays with its lock.
            self.assertEqual(c.call('DEL', 'k', 'FENCE', 'a', 5), 1)
            self.assertEqual(c.call('DEL', 'k', 'FENCE', 'a', 5), 0)
            self.assertError('WRONGLOCK', c, 'SET', 'k', 'w', 'FENCE', 'b', 9)
            self.assertEqual(c.call('CLAIM', 'a', TOKEN_MAX), 'OK')
            self.assertError('STALE', c, 'CLAIM', 'a', TOKEN_MAX - 1)
        info = store.info()
        self.assertEqual((info['refused_stale'], info['refused_notoken'], info['refused_wronglock']),
                         (1, 3, 4))
        self.assertEqual((info['keys'], info['deleted_keys_bound'], info['marks'], info['fencing']),
                         (0, 1, 1, 'on'))

    def test_sizes_at_their_limits(self):
        store = self.store()
        with store.client() as c:
            for key in (b'k' * 400, b'\x00', b'\r\n', bytes(range(256))):
                c.call('SET', key, key * 2, 'FENCE', 'x', 1)
                self.assertEqual(c.call('GET', key), key * 2)
            self.assertError('ERR', c, 'SET', 'k' * 401, 'v', 'FENCE', 'x', 1)
            self.assertError('ERR', c, 'SET', '', 'v', 'FENCE', 'x', 1)
            c.call('CLAIM', b'\xff' * 255, 1)
            self.assertEqual(c.call('MARK', b'\xff' * 255), 1)
            self.assertError('ERR', c, 'CLAIM', 'x' * 256, 1)
            big = os.urandom(VALUE_MAX)
            c.call('SET', 'big', big, 'FENCE', 'x', 1)
            self.assertEqual(c.call('GET', 'big'), big)
            self.assertError('ERR', c, 'SET', 'big', big + b'x', 'FENCE', 'x', 1)
            self.assertEqual(c.call('GET', 'big'), big)
            c.call('SET', 'empty', '', 'FENCE', 'x', 1)
            self.assertEqual(c.call('GET', 'empty'), b'')
        store.kill()
        store.start()
        self.assertEqual(store.call('GET', 'big'), big)

    def test_a_pipeline_reads_its_own_writes(self):
        store = self.store()
        requests, want = [], []
        for i in range(3000):
            requests += [('SET', 'k%d' % (i % 7), 'v%d' % i, 'FENCE', 'x', 10 + i), ('GET', 'k%d' % (i % 7)),
                         ('MARK', 'x'), ('SET', 'k0', 'late', 'FENCE', 'x', 9 + i)]
            want += ['OK', b'v%d' % i, 10 + i, 'STALE']
        with store.client(timeout=PATIENCE_S) as c:
            got = [r.word if isinstance(r, RespError) else r for r in c.pipeline(requests)]
        self.assertEqual(got, want)
        info = store.info()
        self.assertGreater(int(info['ops_written']) / int(info['commits']), 1.5, info)

    def test_connections_share_commits(self):
        store = self.store()
        clients = [store.client() for _ in range(50)]
        for turn in range(20):
            store.pause() # so that it finds all of them at once, however slowly they are sent
            for i, c in enumerate(clients):
                c.send('SET', 'k%d' % i, 'v%d' % turn, 'FENCE', 'x%d' % i, turn + 1)
            store.resume()
            for c in clients:
                self.assertEqual(c.read(), 'OK')
        info = store.info()
        self.assertEqual(info['ops'], 1000)
        self.assertLess(int(info['commits']), 900, info)
        for c in clients:
            c.close()

    def test_stock_client(self):
        store = self.store()
        r = redis.Redis('127.0.0.1', store.port, socket_timeout=240)
        self.assertTrue(r.ping())
        self.assertEqual(r.execute_command('CLAIM', 'lock', 7), b'OK')
        self.assertEqual(r.execute_command('SET', 'k', 'v', 'FENCE', 'lock', 7), True)
        self.assertEqual(r.get('k'), b'v')
        self.assertIsNone(r.get('none'))
        self.assertEqual(r.execute_command('MARK', 'lock'), 7)
        with self.assertRaises(redis.ResponseError) as caught:
            r.execute_command('SET', 'k', 'w', 'FENCE', 'lock', 6)
        self.assertTrue(str(caught.exception).startswith('STALE token 6 is below the mark 7 of lock'))
        with self.assertRaises(redis.ResponseError):
            r.set('k', 'w') # NOTOKEN
        pipe = r.pipeline(transaction=False)
        for i in range(100):
            pipe.execute_command('SET', 'p%d' % i, i, 'FENCE', 'lock', 7)
            pipe.get('p%d' % i)
        self.assertEqual(pipe.execute()[1::2], [b'%d' % i for i in range(100)])
        self.assertEqual(r.info('storage')['keys'], 101)
        self.assertEqual(r.execute_command('DEL', 'k', 'FENCE', 'lock', 7), 1)
        r.client_setname('me')
        self.assertEqual(r.client_getname(), 'me')
        r.close()

    def test_hello_3(self):
        store = self.store()
        with store.client() as c:
            self.assertEqual(c.call('HELLO', 3)[b'server'], b'fencelock-store')
            self.assertIsNone(c.call('GET', 'none'))
            c.send('QUIT')
            self.assertEqual(c.read_until_closed(), ['OK'])

    def test_hello_behind_other_requests(self):
        """Each answer is in the protocol that held when its request came."""
        store = self.store()
        with store.client() as c:
            c.send_raw(encode('GET', 'none') + encode('HELLO', 3) + encode('GET', 'none') + encode('HELLO', 2) + encode('GET', 'none'))
            self.assertEqual(c.sock.recv(5, socket.MSG_WAITALL), b'$-1\r\n')
            self.assertEqual(c.read()[b'proto'], 3)
            self.assertEqual(c._line(), b'_') # pylint: disable=W0212
            c.read()
            self.assertEqual(c._line(), b'$-1') # pylint: disable=W0212

    def test_without_fencing(self):
        store = Store(self.lab)
        store.program = 'fencelock-store-unfenced'
        store.start()
        self.assertIn('IGNORED', store.process.output())
        with store.client() as c:
            c.call('SET', 'k', 'new', 'FENCE', 'x', 34)
            c.call('SET', 'k', 'stale', 'FENCE', 'x', 33)
            self.assertEqual(c.call('GET', 'k'), b'stale') # the lost update
            c.call('SET', 'k', 'v')
        self.assertTrue(store.info()['fencing'].startswith('off'))


class BadClients(StoreCase):
    def test_slow_reader(self):
        """Asks for far more than it reads. Memory stays bounded and others are served."""
        store = self.store()
        store.call('SET', 'big', 'b' * VALUE_MAX, 'FENCE', 'x', 1)
        before = store.process.rss()
        slow = [store.client(rcvbuf=4096) for _ in range(4)]
        for c in slow:
            c.sock.setblocking(False)
            data = b'*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n' * 2000
            try:
                c.sock.send(data)
            except OSError:
                pass
        with store.client() as c:
            for i in range(200):
                self.assertEqual(c.call('SET', 'k', i, 'FENCE', 'x', 1), 'OK')
        self.assertEqual(store.info()['slow_readers_cut_off'], 0)
        grown = store.process.rss() - before
        self.note('%d MiB more after 8000 unread answers of 1 MiB' % (grown >> 20))
        self.assertLess(grown, 600 << 20)
        for c in slow:
            c.close()
        with store.client() as c:
            self.assertEqual(c.call('GET', 'k'), b'199')
        wait_until(lambda: store.info()['connected_clients'] == 1)

    def test_long_pipeline_of_large_reads(self):
        """Far more bytes of answers than may be unsent, from a client that reads them only after it has sent
        everything, with small writes in between: nobody is cut off, and the order stays."""
        store = self.store()
        big = 'b' * VALUE_MAX
        requests, want = [], []
        for i in range(300):
            if i % 10 == 0:
                requests.append(('SET', 'n', i, 'FENCE', 'x', 1))
                want.append('OK')
            requests += [('GET', 'big'), ('GET', 'n')]
            want += [b'', b'%d' % (i - i % 10)]
        small = [('SET', 's', i, 'FENCE', 'x', 1) for i in range(20)]
        with store.client(timeout=PATIENCE_S) as c, store.client(timeout=PATIENCE_S) as other:
            other.call('SET', 'big', big, 'FENCE', 'x', 1)
            c.send_raw(b''.join(encode(*r) for r in requests))
            self.assertEqual([other.call(*r) for r in small], ['OK'] * 20) # nobody else waits for it
            got = []
            for _ in requests:
                answer = c.read()
                got.append(answer if answer == 'OK' or len(answer) < 10 else answer[:4].rstrip(b'b'))
        self.assertEqual(got, want)
        self.assertLess(store.process.rss(), 400 << 20)
        self.assertEqual(store.info()['slow_readers_cut_off'], 0)

    def test_endless_pipeline_of_large_writes(self):
        """One client pushes 1 MiB writes as fast as it can and does not read: what does not fit into the
        bound of what may wait is refused, each with an answer."""
        store = self.store()
        requests = [('SET', 'k%d' % (i % 5), 'b' * VALUE_MAX, 'FENCE', 'x', 1) for i in range(150)]
        with store.client(timeout=PATIENCE_S) as c:
            answers = [str(a) for a in c.pipeline(requests)]
        self.assertEqual(len(answers), 150)
        self.assertTrue(all(a == 'OK' or a.startswith('BUSY') for a in answers), set(answers))
        self.assertIn('OK', answers)
        self.assertLess(store.process.rss(), 500 << 20)

    def test_half_closed(self):
        """A client that shuts its sending side still gets the answers it is owed."""
        store = self.store()
        with store.client() as c:
            c.send_raw(b''.join(b'*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n%d\r\n$5\r\nFENCE\r\n$1\r\nx\r\n$1\r\n5\r\n' % i
                                for i in range(10)))
            c.sock.shutdown(socket.SHUT_WR)
            self.assertEqual(c.read_until_closed(), ['OK'] * 10)
        self.assertEqual(store.call('GET', 'k'), b'9')

    def test_gone_before_the_answer(self):
        store = self.store()
        for i in range(100):
            with store.client() as c:
                c.send('SET', 'k', 'v%d' % i, 'FENCE', 'x', i + 1)
        wait_until(lambda: store.info()['connected_clients'] == 1)
        self.assertEqual(store.call('SET', 'k', 'end', 'FENCE', 'x', 1000), 'OK')

    def test_rubbish(self):
        store = self.store()
        for data in (b'*1\r\n$99999999999\r\n', b'*-7\r\n', b'$$$$\r\n\r\n', os.urandom(5000),
                     b'*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2097152\r\n' + b'x' * 2097152 + b'\r\n',
                     b'A' * 100000):
            with store.client() as c:
                try:
                    c.send_raw(data)
                    c.sock.shutdown(socket.SHUT_WR)
                    c.read_until_closed()
                except (OSError, ValueError):
                    pass
        self.assertEqual(store.call('PING'), 'PONG')

    def test_full_database(self):
        store = self.store('--size-max', '2M')
        with store.client() as c:
            written = 0
            while True:
                try:
                    c.call('SET', 'k%d' % written, 'v' * 10000, 'FENCE', 'x', 1)
                    written += 1
                except RespError as e:
                    self.assertEqual(e.word, 'LIMIT', e.text)
                    self.assertIn('--size-max', e.text)
                    break
            self.assertGreater(written, 50)
            for i in range(written):
                self.assertEqual(len(c.call('GET', 'k%d' % i)), 10000)
            for i in range(written // 2):
                self.assertEqual(c.call('DEL', 'k%d' % i, 'FENCE', 'x', 1), 1)
            c.call('SET', 'again', 'v' * 10000, 'FENCE', 'x', 1)
        self.assertEqual(store.terminate(), 0)
        store.start('--size-max', '8M')
        self.assertEqual(len(store.call('GET', 'again')), 10000)

    def test_full_disk(self):
        """A limit on the size of files stands in for the disk: refused, nothing half done, and it goes on
        when there is room again."""
        store = self.store()
        resource.prlimit(store.process.pid, resource.RLIMIT_FSIZE, (3 << 20, resource.RLIM_INFINITY))
        with store.client() as c:
            written, refused = 0, 0
            while written < 1000 and refused < 5: # the first may be for want of room in the WAL, which then begins anew
                try:
                    c.call('SET', 'k%d' % written, 'v' * 20000, 'FENCE', 'x', 1)
                    written, refused = written + 1, 0
                except RespError as e:
                    self.assertEqual(e.word, 'LIMIT', e.text)
                    refused += 1
            self.assertLess(written, 1000)
            for _ in range(20):
                self.assertError('LIMIT', c, 'SET', 'more', 'v' * 500000, 'FENCE', 'x', 1)
            self.assertIsNone(c.call('GET', 'more'))
            resource.prlimit(store.process.pid, resource.RLIMIT_FSIZE,
                             (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            self.assertEqual(c.call('SET', 'more', 'v' * 500000, 'FENCE', 'x', 1), 'OK')
        store.kill()
        store.start()
        self.assertEqual(len(store.call('GET', 'more')), 500000)
        self.assertEqual(int(store.info()['keys']), written + 1)


class Options(StoreCase):
    def run_store(self, *args, **env):
        full = dict(os.environ, **env)
        return subprocess.run([binary('fencelock-store'), *args], capture_output=True, text=True, timeout=PATIENCE_S,
                              cwd=self.lab.dir, env=full, check=False)

    def test_usage_errors(self):
        for args, env, word in ((['--frob'], {}, '--frob'), (['--data'], {}, '--data'), (['extra'], {}, 'extra'),
                                (['-x'], {}, '-x'), (['--listen', 'nonsense'], {}, '--listen'),
                                (['--listen', '127.0.0.1:65536'], {}, '--listen'),
                                (['--listen', '0.0.0.0:0'], {}, '--protected-mode no'),
                                (['--allow-remote'], {}, 'protected-mode no'),
                                ([], {'FENCELOCK_STORE_ALLOW_REMOTE': 'yes'}, 'protected-mode no'),
                                (['--data', ''], {}, '--data'), (['--size-max', '1000'], {}, '--size-max'),
                                (['--size-max', '9999999999999G'], {}, '--size-max'),
                                (['--size-max', '-1'], {}, '--size-max'), (['--size-max', ''], {}, '--size-max'),
                                (['--no-fencing'], {}, '--no-fencing'), # no build has it
                                ([], {'FENCELOCK_STORE_SIZE_MAX': 'big'}, 'FENCELOCK_STORE_SIZE_MAX')):
            done = self.run_store(*args, **env)
            self.assertEqual(done.returncode, 2, (args, env, done.stderr))
            self.assertIn(word, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertEqual(done.stdout, '')

    def test_help_and_version(self):
        done = self.run_store('--help')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        for word in ('--listen', '--data', '--size-max', '--protected-mode', 'FENCELOCK_STORE_LISTEN'):
            self.assertIn(word, done.stdout)
        done = self.run_store('--version')
        self.assertEqual((done.returncode, done.stdout.split()[0]), (0, 'fencelock-store'))

    def test_port_0_and_environment(self):
        process = self.lab.start([binary('fencelock-store')], 'env', cwd=self.lab.dir, env={
            'FENCELOCK_STORE_LISTEN': '127.0.0.1:0', 'FENCELOCK_STORE_DATA': 'there',
            'FENCELOCK_STORE_SIZE_MAX': '4M'})
        process.wait_output('ready: listening on 127.0.0.1:')
        port = int(process.output().split('ready: listening on 127.0.0.1:')[1].split()[0])
        store = Store(self.lab, port=port)
        self.assertEqual(store.info()['db_bytes_max'], 4 << 20)
        self.assertTrue(os.path.exists(self.lab.path('there', 'fencelock.db')))
        self.assertEqual(process.terminate(), 0)

    def test_second_process_on_the_directory(self):
        store = self.store()
        done = self.run_store('--listen', '127.0.0.1:0', '--data', store.data)
        self.assertEqual(done.returncode, 1)
        self.assertIn('another process', done.stderr)
        self.assertEqual(store.call('PING'), 'PONG')

    def test_taken_port(self):
        store = self.store()
        done = self.run_store('--listen', store.address, '--data', 'other')
        self.assertEqual(done.returncode, 1)
        self.assertIn('--listen', done.stderr)
        self.assertIn(str(store.port), done.stderr)

    def test_damaged_directory(self):
        store = self.store()
        store.call('SET', 'k', 'needle-needle', 'FENCE', 'x', 5)
        self.assertEqual(store.terminate(), 0)
        path = os.path.join(store.data, 'fencelock.db')
        with open(path, 'rb') as f:
            whole = f.read()
        for damaged in (whole.replace(b'needle', b'noodle'), whole[:len(whole) // 2], b'', b'x' * 20000):
            with open(path, 'wb') as f:
                f.write(damaged)
            done = self.run_store('--listen', '127.0.0.1:0', '--data', store.data)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(store.data, done.stderr)
        os.unlink(path)
        self.assertEqual(self.run_store('--listen', '127.0.0.1:0', '--data', store.data).returncode, 1)
        with open(path, 'wb') as f:
            f.write(whole)
        store.start()
        self.assertEqual(store.call('MARK', 'x'), 5)

    def test_unusable_directory(self):
        done = self.run_store('--listen', '127.0.0.1:0', '--data', '/dev/null/x')
        self.assertEqual(done.returncode, 1)
        self.assertIn('/dev/null/x', done.stderr)
        done = self.run_store('--listen', '127.0.0.1:%d' % free_ports(1)[0], '--data', self.lab.path('no', 'parent'))
        self.assertEqual(done.returncode, 1)
        self.assertIn('parent', done.stderr)

    def test_the_limit_of_open_files_is_raised(self):
        """A shell's soft limit is often 1024, below what a storage serves."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        store = Store(self.lab)
        process = self.lab.start(['/bin/sh', '-c', 'ulimit -S -n 64 && exec "$@"', 'sh', *store.argv()], 'limited')
        process.wait_output('ready: listening on')
        self.assertEqual(resource.prlimit(process.pid, resource.RLIMIT_NOFILE), (hard, hard))
        clients = [store.client() for _ in range(100)]
        self.assertEqual(clients[-1].call('PING'), 'PONG')
        for c in clients:
            c.close()
        self.assertEqual(process.terminate(), 0)

    def test_a_second_signal_ends_a_daemon_at_once(self):
        """While it is stopped it gets both signals, which come in one turn of its loop then."""
        cluster = Cluster(self.lab, 1)
        cluster.start()
        for server in (self.store(), cluster.nodes[0]):
            server.process.asked_to_end = True
            server.process.pause()
            server.process.signal(signal.SIGTERM)
            server.process.signal(signal.SIGINT)
            server.process.resume()
            self.assertEqual(server.process.wait(), 128 + signal.SIGINT)
            self.assertIn('second signal: ending at once', server.process.output())

    def test_many_idle_connections(self):
        want = 2000
        self.need_open_files(want + 100)
        store = self.store()
        idle = [store.client() for _ in range(want)]
        self.assertEqual(store.call('SET', 'k', 'v', 'FENCE', 'x', 1), 'OK')
        for c in idle[::100]:
            self.assertEqual(c.call('GET', 'k'), b'v')
        for c in idle:
            c.close()
        self.assertEqual(store.terminate(), 0)


if __name__ == '__main__':
    limit_asan_quarantine()
    main()
