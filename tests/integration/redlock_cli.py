#!/usr/bin/python3
"""`fencelock redlock` on real redis-servers: acquire, extend, release, check and run; passwords, databases, key
formats; tokens of a real cluster; and the end of a command whose lock cannot be extended, judged by a second
client that waits for the same lock."""

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Cluster, Lateness, Store, binary, env_without_options, free_ports, main, try_again, wait_until
from harness.lab import ROOT
from redlock_lab import FakeRedis, Redis
from redlock_servers import RedlockCase
from scripted_server import ScriptedServer

NO, USAGE, UNKNOWN, LOST, NOT_ACQUIRED, FAILED, NOT_FOUND = 1, 2, 3, 123, 124, 125, 127
OWNER = r'[0-9a-f]{40}'
LONG = ('--ttl', '80m', '--max-ttl', '24h') # a twentieth of it is 240 s
BUSY = r'not \w+: (too slow|unreachable)'


class CliCase(RedlockCase):
    def setUp(self):
        super().setUp()
        self.env = env_without_options()

    def use(self, servers):
        self.env['FENCELOCK_REDIS'] = ','.join(s if isinstance(s, str) else s.address for s in servers)

    def start(self, *args, safe=True):
        words = list(map(str, args))
        if safe:
            words.insert(1, '--restarts-are-safe')
        if '--budget' not in words:
            words[1:1] = ['--budget', '240s'] # the machine may be busy; a 20th of the TTL holds as well
        child = subprocess.Popen([binary('fencelock'), 'redlock', *words], env=self.env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self.kill_at_cleanup(child)

    def do(self, *args, **options):
        return self.wait_child(self.start(*args, **options))

    def answered(self, *args, **options):
        """What do() returns once the servers were quick enough: they have a second for a connection, and a twentieth of the TTL
        for an answer."""
        def quick_enough():
            got = self.do(*args, **options)
            return None if got[0] in (UNKNOWN, FAILED) and re.search(BUSY, got[2]) else got
        return try_again(quick_enough, 'an answer in time to ' + args[0])

    def done(self, *args, code=0, **options):
        """Its output, after checking the exit code."""
        got = self.answered(*args, **options)
        self.assertEqual(got[0], code, got)
        return got[1]

    def acquire(self, name, *args):
        """Patiently: the machine may be busy."""
        return self.done('acquire', name, '--wait', '240s', *(() if '--ttl' in args else LONG), *args).split()

    def release(self, name, owner, *args):
        """Its output. After a first try that was too slow, the lock may be gone."""
        got = self.do('release', name, owner, *args)
        if got[0] != 0:
            self.assertRegex(got[2], BUSY)
            self.assertIn(self.answered('release', name, owner, *args)[0], (0, NO))
            return '%s: released\n' % name
        return got[1]

    def checked(self, *args, code, text):
        """The output of `check` once it found this: a server that was slow to answer counts as unreachable."""
        def found():
            got = self.do('check', *args, safe=False)
            if got[0] == code and text in got[1]:
                return got[1]
            self.assertIn('unreachable', got[1], got)
            return None
        return try_again(found, text)


class Calls(CliCase):
    def test_acquire_extend_release(self):
        servers = self.redis(3)
        self.use(servers)
        owner, valid = self.acquire('lock')
        self.assertRegex(owner, '^%s$' % OWNER)
        self.assertTrue(0 < int(valid) <= 4800000 - 48002, valid)
        self.assertGreaterEqual(sum(s.get('lock') == owner for s in servers), 2)
        code, out, err = self.answered('acquire', 'lock')
        self.assertEqual((code, out), (NO, ''))
        self.assertIn('contended', err)
        self.assertIn(owner, self.done('extend', 'lock', owner, '--ttl', '160m', '--max-ttl', '24h'))
        self.assertGreater(max(s.call('PTTL', 'lock') for s in servers), 4800000)
        other = 'f' * 40
        self.done('extend', 'lock', other, code=NO)
        self.done('release', 'lock', other, code=NO)
        self.assertGreaterEqual(sum(s.get('lock') == owner for s in servers), 2)
        self.assertEqual(self.release('lock', owner), 'lock: released\n')
        self.done('release', 'lock', owner, code=NO)
        self.assertGone(servers, 'lock')

    def test_release_reaches_servers_that_are_slow_to_greet(self):
        """It ends with the quorum, and so does its process: those that were still being connected to are not left out."""
        servers = self.redis(5)
        self.use(servers)
        owner = self.acquire('lock')[0]
        late = [self.proxy(s, delay=0.1) for s in servers[3:]]
        self.use(servers[:3] + late)

        def is_gone():
            return all(s.call('EXISTS', 'lock') == 0 for s in servers)

        def reaches_all():
            """A greeting that takes more than a second is not waited for, on a busy machine also without the delay."""
            for s in servers: # acquiring may have left some out in the same way
                s.call('SET', 'lock', owner, 'PX', 600000)
            began = time.monotonic()
            code, _, err = self.do('release', 'lock', owner, '--max-ttl', '10m')
            if time.monotonic() - began < 0.9: # all were greeted in time
                self.assertEqual(code, 0, err)
                wait_until(is_gone, 'the end of all keys') # what it wrote last may be read after its end
                return True
            until = time.monotonic() + 2
            while code == 0 and not is_gone() and time.monotonic() < until:
                time.sleep(0.02)
            return code == 0 and is_gone()
        try_again(reaches_all, 'a release that leaves nothing behind')

    def test_json(self):
        self.use(self.redis(3))
        got = json.loads(self.done('acquire', 'a b', '--json', '--wait', '240s', *LONG))
        self.assertEqual((got['acquired'], got['name'], got['ttl_ms'], got['quorum']), (True, 'a b', 4800000, 2))
        self.assertEqual(len(got['servers']), 3)
        self.assertNotIn('token', got)
        lost = json.loads(self.done('acquire', 'a b', '--json', code=NO))
        self.assertEqual((lost['acquired'], lost['error'], lost['cause']), (False, 'ENOTHELD', 'contended'))
        more = json.loads(self.done('extend', 'a b', got['owner'], '--json', *LONG))
        self.assertEqual((more['extended'], more['owner']), (True, got['owner']))
        owners, was_slow = [got['owner']], []

        def released():
            code, out, err = self.do('release', 'a b', owners[-1], '--json')
            if code == 0:
                return out
            if was_slow and code == NO: # what was too slow may have released it
                owners.append(self.acquire('a b')[0])
            else:
                self.assertRegex(err, BUSY)
                was_slow.append(err)
            return None
        self.assertEqual(json.loads(try_again(released, 'a release')), {'released': True, 'name': 'a b'})

    def test_wrong_words_name_the_argument_and_the_remedy(self):
        self.use(['127.0.0.1:1'])
        for words, said in ((('acquire', 'x', '--redis', 'nonsense'), 'HOST:PORT'),
                            (('extend', 'x', 'short'), 'is not an owner'),
                            (('acquire', 'x', '--ttl', '40s'), '--max-ttl'),
                            (('acquire', 'x', '--ttl', '1s', '--min-validity', '1s'), '--min-validity'),
                            (('acquire', 'x', '--redis-user', 'me'), 'FENCELOCK_REDIS_PASSWORD'),
                            (('acquire', 'x', '--redis-password-file', '/nowhere/at/all'), '--redis-password-file'),
                            (('acquire', 'x', '--key-format', 'lock'), '%s'),
                            (('acquire', 'x', '--redis', '127.0.0.1:7,127.0.0.1:7'),
                             '--redis or FENCELOCK_REDIS cannot be used as given: 127.0.0.1:7 is given twice'),
                            (('acquire', 'x', '--redis', ','.join('127.0.0.1:%d' % i for i in range(1, 99))), '--redis'),
                            (('acquire', 'x', '--redis-db', '4294967296'), '--redis-db'),
                            (('acquire', 'x', '--budget', '0'), '--budget'),
                            (('run', 'x', '--ttl', '499', 'true'), '500 ms'),
                            (('run', 'x', '--on-lost', 'maybe', 'true'), '--on-lost'),
                            (('acquire', 'x' * 256), '1 to 255 bytes, not 256')):
            code, out, err = self.do(*words)
            self.assertEqual((code, out), (USAGE, ''), (words, err))
            self.assertIn(said, err)
        del self.env['FENCELOCK_REDIS']
        code, out, err = self.do('acquire', 'x')
        self.assertEqual(code, USAGE)
        self.assertIn('FENCELOCK_REDIS', err)

    def test_help(self):
        for command in ('acquire', 'extend', 'release', 'run', 'check'):
            out = self.done(command, '--help', safe=False)
            self.assertTrue(out.startswith('fencelock redlock %s ' % command), out)
            self.assertTrue(all(len(line) <= 100 for line in out.splitlines()), out)
            self.assertIn('FENCELOCK_REDIS_PASSWORD', out)

    def test_an_outage_is_not_contention(self):
        ports = free_ports(3)
        self.use(['127.0.0.1:%d' % port for port in ports])
        code, out, err = self.do('acquire', 'x')
        self.assertEqual((code, out), (UNKNOWN, ''))
        self.assertIn('unreachable', err)
        self.assertIn('--redis', err)
        self.assertEqual(self.do('run', 'x', '--wait', '0', '--', 'true')[0], FAILED)

    def test_restarted_servers_do_not_count_unless_told(self):
        self.use(self.redis(3))
        code, out, err = self.answered('acquire', 'x', *LONG, safe=False)
        self.assertEqual((code, out), (UNKNOWN, ''))
        self.assertIn('--restarts-are-safe', err)
        self.assertEqual(len(self.acquire('x')), 2)

    def test_passwords_databases_and_key_formats(self):
        servers = self.redis(3, '--requirepass', 'open sesame')
        for s in servers:
            s.password = 'open sesame'
        self.use(servers)
        code, out, err = self.answered('acquire', 'x')
        self.assertEqual((code, out), (UNKNOWN, ''))
        self.assertIn('refused', err)
        self.env['FENCELOCK_REDIS_PASSWORD'] = 'wrong'
        self.assertEqual(self.answered('acquire', 'x')[0], UNKNOWN)
        self.env['FENCELOCK_REDIS_PASSWORD'] = 'open sesame'
        owner = self.acquire('x', '--redis-db', '3', '--key-format', 'redlock:%s')[0]
        for s in servers:
            self.assertIsNone(s.get('redlock:x'))
        self.done('release', 'x', owner, code=NO)
        self.release('x', owner, '--redis-db', '3', '--key-format', 'redlock:%s')
        del self.env['FENCELOCK_REDIS_PASSWORD']
        secret = self.lab.path('secret')
        for text, good in (('open sesame\n', True), ('open sesame', True), ('', False), ('\n', False),
                           ('p' * 513, False)):
            with open(secret, 'w') as f:
                f.write(text)
            code, out, err = self.do('acquire', 'y' + text[:1].strip() + str(len(text)), '--wait', '240s' if good else 0,
                                     '--redis-user', 'default', '--redis-password-file', secret)
            self.assertEqual(code, 0 if good else USAGE, (text, err))

    def test_check(self):
        servers = self.redis(3)
        self.use(servers)
        out = self.checked(code=0, text='usable')
        self.assertIn('forgets', out)
        servers[1].call('REPLICAOF', '127.0.0.1', servers[0].port)
        got = json.loads(self.checked('--json', code=NO, text='replica'))
        self.assertFalse(got['fit'])
        self.assertIn(('replica', True, servers[1].address),
                      [(f['kind'], f['refuses'], f['address']) for f in got['findings']])
        self.checked(code=NO, text='not fit')
        servers[1].call('REPLICAOF', 'NO', 'ONE')
        for s in servers[:2]:
            s.process.kill()
        out = self.done('check', '--timeout', '2s', code=UNKNOWN, safe=False)
        self.assertIn('unreachable', out)
        self.assertNotIn('usable', out)
        self.assertFalse(json.loads(self.done('check', '--timeout', '2s', '--json', code=UNKNOWN, safe=False))['fit'])

    def test_servers_on_which_a_lock_could_not_be_released(self):
        """They take none, keep no key, and the check says why: it sets, extends and releases a lock of its own."""
        plain = [Redis(self.lab, 'plain-%d' % i) for i in range(3)]
        renamed = [Redis(self.lab, 'renamed-%d' % i, '--rename-command', 'EVAL', '', '--rename-command', 'EVALSHA', '') for i in range(3)]
        rights = {'scripts': ['~*', '+@all', '-@scripting'], 'delete': ['~*', '+@all', '-del'], 'extend': ['~*', '+@all', '-pexpire'],
                  'keys': ['~job-*', '+@all']}
        for server in plain:
            for name, rules in rights.items():
                server.call('ACL', 'SETUSER', name, 'on', '>pw', *rules)

        def use(servers, user):
            self.use(servers)
            self.env.pop('FENCELOCK_REDIS_PASSWORD', None)
            if user is None:
                return ()
            self.env['FENCELOCK_REDIS_PASSWORD'] = 'pw'
            return ('--redis-user', user)
        for servers, user, refused in ((renamed, None, 'EVAL'), (plain, 'scripts', 'EVAL'), (plain, 'extend', 'extended'),
                                       (plain, 'delete', 'released')):
            self.checked(*use(servers, user), code=NO, text=refused)
            if user != 'delete': # whose key ends with its TTL
                self.assertEqual([s.call('KEYS', '*') for s in servers], [[], [], []])
        for servers, user in ((plain, 'scripts'), (renamed, None)):
            code, _, err = self.answered('acquire', 'job', '--ttl', '20s', *use(servers, user))
            self.assertEqual(code, UNKNOWN)
            self.assertIn('EVAL', err)
            self.assertEqual([s.call('EXISTS', 'job') for s in servers], [0, 0, 0])
        # who may touch only some keys is not told that locks are impossible
        self.checked(*use(plain, 'keys'), code=0, text='fencelock-check-')

    def test_check_believes_no_answer_but_the_right_one(self):
        delex = b'*2\r\n*1\r\n$5\r\ndelex\r\n*-1\r\n'
        right = {b'SET': b'+OK\r\n', b'EVAL': b':1\r\n', b'DELEX': b':1\r\n'}
        for wrong, says in (({b'SET': b'$-1\r\n'}, 'set there: it answered nil'),
                            ({b'EVAL': b':0\r\n'}, 'extended there: it answered 0'),
                            ({b'EVAL': b'+OK\r\n'}, 'extended there: an answer of an unexpected type'),
                            ({b'DELEX': b':0\r\n'}, 'released there: it answered 0')):
            answers = {**right, **wrong}
            servers = [FakeRedis(lambda words, answers=answers: answers[words[0]], commands=delex) for _ in range(3)]
            for s in servers:
                self.addCleanup(s.close)
            self.use(servers)
            self.checked(code=NO, text='a lock could not be ' + says)

    def test_check_knows_what_is_no_redis(self):
        servers = self.redis(2)
        cluster = Cluster(self.lab, 1).start()
        env = dict(self.env, FENCELOCK_REDIS=','.join([s.address for s in servers] + cluster.addresses()))
        self.env = env
        got = json.loads(self.checked('--json', code=NO, text='stranger'))
        self.assertFalse(got['fit'])
        self.assertIn(('stranger', True, cluster.addresses()[0]),
                      [(f['kind'], f['refuses'], f['address']) for f in got['findings']])
        self.checked(code=NO, text='it is no Redis server')
        warning = cluster.addresses()[0] + ' is fencelockd and no independent Redis server'
        # Of two, both are needed. Of three, two could have answered before the node says what it is.
        self.env = dict(env, FENCELOCK_REDIS=','.join([servers[0].address] + cluster.addresses()))
        for words in (('acquire', 'a', '--wait', '240s', *LONG), ('run', 'b', *LONG, '--', 'true')):
            code, _, err = self.do(*words)
            self.assertEqual((code, err.count(warning)), (0, 1), err)
        self.use(servers[:1])
        self.assertNotIn('is fencelockd', self.do('acquire', 'c', '--wait', '240s')[2])


class Tokens(CliCase):
    def test_no_default_is_assumed(self):
        """Also by who has said to all commands that they shall learn the nodes from those they know."""
        self.use(self.redis(3))
        self.env['FENCELOCK_DISCOVER'] = 'yes'
        owner, _ = self.acquire('lock')
        self.release('lock', owner)
        self.done('run', 'lock', *LONG, '--', 'sh', '-c', 'test -z "$FENCELOCK_TOKEN"')

    def test_tokens_of_a_cluster(self):
        servers = self.redis(3)
        self.use(servers)
        cluster = Cluster(self.lab, 1).start()
        self.env['FENCELOCK_NODES'] = ','.join(cluster.addresses())
        owner, _, first = self.acquire('lock')
        self.release('lock', owner)
        owner, _, second = self.acquire('lock')
        self.assertGreater(int(second), int(first))
        self.release('lock', owner)
        code, out, err = self.do('run', 'lock', *LONG, '--', 'sh', '-c', 'echo $FENCELOCK_LOCK $FENCELOCK_TOKEN')
        self.assertEqual(code, 0, err)
        name, third = out.split()
        self.assertEqual(name, 'lock')
        self.assertGreater(int(third), int(second))
        # Not contention, and not wrong usage either, whatever the node says.
        for refusal in (b'-ERR unknown command\r\n', b'-LIMIT too many\r\n', b'-NOAUTH who\r\n'):
            with ScriptedServer([refusal]) as s:
                code, out, err = self.answered('acquire', 'lock', *LONG, '--nodes', s.address)
                self.assertEqual((code, out), (UNKNOWN, ''))
                self.assertIn(refusal.decode().strip('-\r\n'), err)
                self.assertNotIn('majority of the nodes', err)
                self.assertEqual(self.do('run', 'lock', *LONG, '--nodes', s.address, '--', 'true')[0], FAILED)
        cluster.nodes[0].kill()
        code, out, err = self.answered('acquire', 'lock', '--ttl', '2s')
        self.assertEqual((code, out), (UNKNOWN, ''))
        self.assertIn('no token', err)
        self.assertIn('--nodes', err)
        self.assertEqual(self.do('run', 'lock', '--ttl', '2s', '--wait', '0', '--', 'true')[0], FAILED)
        self.assertGone(servers, 'lock')


class Run(CliCase):
    def with_longer_ttls(self, attempt):
        """Calls attempt(ttl in seconds) until it returns something true: a machine that stands still for so long loses the lock."""
        for ttl_s in (3, 6, 12, 24, 48):
            if attempt(ttl_s):
                return
        self.fail('no TTL is long enough')

    def test_environment_exit_code_and_release(self):
        servers = self.redis(3)
        self.use(servers)
        self.env['FENCELOCK_TOKEN'] = '77' # of another lock, from outside
        code, out, err = self.do('run', 'lock', *LONG, '--', 'sh', '-c', 'env; exit 7')
        self.assertEqual(code, 7, err)
        found = dict(line.split('=', 1) for line in out.splitlines() if '=' in line)
        self.assertEqual(found['FENCELOCK_LOCK'], 'lock')
        self.assertNotIn('FENCELOCK_TOKEN', found)
        self.assertRegex(found['FENCELOCK_DEADLINE_MS'], '^[0-9]+$')
        self.assertGone(servers, 'lock')
        self.assertEqual(self.do('run', 'lock', *LONG, '--', '/no/such/command')[0], NOT_FOUND)
        self.assertEqual(self.do('run', 'lock', *LONG, '--', 'sh', '-c', 'kill -9 $$')[0], 128 + 9)

    def test_it_is_extended_while_the_command_runs(self):
        servers = self.redis(3)
        self.use(servers)

        def runs(ttl_s):
            go = self.lab.path('go%d' % ttl_s)
            child = self.start('run', 'lock', '--ttl', '%ds' % ttl_s, '--max-ttl', '24h', '--', 'sh', '-c',
                               'echo begun; until [ -e %s ]; do sleep 0.05; done' % go)
            if child.stdout.readline() == b'begun\n':
                value = next(filter(None, (s.get('lock') for s in servers)), None)
                began = time.monotonic()
                held = True
                while held and time.monotonic() - began < 1.5 * ttl_s: # without an extend it would be gone
                    held = sum(s.get('lock') == value for s in servers) >= 2
                    time.sleep(0.05)
                got = self.answered('run', 'lock', '--wait', '0', '--', 'true') if held else None
                if got is not None and got[0] == NOT_ACQUIRED:
                    with open(go, 'w'):
                        pass
                elif got is not None:
                    self.assertEqual(got[0], 0, got) # the lease has ended in between
            code, _, err = self.wait_child(child) # LOST, without being told to end, where it was not held
            if not os.path.exists(go):
                self.assertEqual(code, LOST, err)
                self.assertRegex(err, 'not held any more|no renewal came through')
            elif code != LOST:
                self.assertEqual(code, 0, err)
            return code == 0
        self.with_longer_ttls(runs)
        self.assertGone(servers, 'lock')

    def test_it_wakes_by_the_clock_of_deadlines(self):
        """Nobody can suspend the machine in a test. A timeout of poll(), or a timer of libuv, would end as much later as it was."""
        self.use(self.redis(3))
        child = self.start('run', 'lock', *LONG, '--', 'sh', '-c', 'trap "exit 9" USR1; echo ready; while :; do sleep 0.05; done')
        self.assertEqual(child.stdout.readline(), b'ready\n')
        folder = '/proc/%d/fdinfo' % child.pid

        def is_set():
            texts = []
            for name in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, name)) as f:
                    texts.append(f.read())
            boottime = [t for t in texts if 'clockid: %d\n' % time.CLOCK_BOOTTIME in t]
            return any('it_value: (0, 0)' not in t for t in boottime)
        wait_until(is_set, 'the timer of the client is set')
        child.send_signal(signal.SIGUSR1)
        self.assertEqual(self.wait_child(child)[0], 9)

    def test_signals_are_passed_on(self):
        self.use(self.redis(3))
        child = self.start('run', 'lock', *LONG, '--', 'sh', '-c', 'trap "exit 9" USR1; echo ready; while :; do sleep 0.05; done')
        self.assertEqual(child.stdout.readline(), b'ready\n')
        child.send_signal(signal.SIGUSR1)
        self.assertEqual(self.wait_child(child)[0], 9)

    def test_a_signal_ends_it_while_it_waits(self):
        servers = self.redis(3)
        self.use(servers)
        owner = self.acquire('lock')[0]
        for s in servers: # so that no attempt sets a key anywhere, which would be there for a moment
            s.call('SET', 'lock', owner, 'PX', 4800000)
        child = self.start('run', 'lock', '--', 'true')
        def tried():
            text = ' '.join(s.call('INFO', 'commandstats').decode() for s in servers)
            return sum(map(int, re.findall(r'cmdstat_set:calls=(\d+)', text))) > 3 * 3
        wait_until(tried, 'it tries')
        child.terminate()
        self.assertEqual(self.wait_child(child)[0], -signal.SIGTERM)
        self.assertEqual({s.get('lock') for s in servers} - {None}, {owner})

    def test_servers_that_are_of_no_use_are_named_and_asked_for_nothing_else(self):
        """A question of its own would be waited for, and meanwhile the lock may come, and be lost before its command is stopped."""
        fake = FakeRedis()
        self.addCleanup(fake.close)
        dead = ['127.0.0.1:%d' % port for port in free_ports(2)]
        self.use([fake, *dead])
        child = self.start('run', 'lock', *LONG, '--', 'true')
        said = child.stderr.readline().decode()
        self.assertIn('lock: waiting, but unreachable: too few servers can be connected to (', said)
        self.assertIn('; %s: no connection' % dead[0], said)
        self.assertIn('%s: no connection' % dead[1], said)
        child.terminate()
        self.assertEqual(self.wait_child(child)[0], -signal.SIGTERM)
        self.assertEqual(fake.requests, [])

    def test_deleted_keys_stop_the_command(self):
        servers = self.redis(3)
        self.use(servers)

        def stops(ttl_s):
            child = self.start('run', 'lock', '--ttl', '%ds' % ttl_s, '--max-ttl', '24h', '--', 'sleep', '240')
            wait_until(lambda: child.poll() is not None or sum(s.get('lock') is not None for s in servers) >= 2, 'it is held')
            for s in servers:
                s.call('DEL', 'lock')
            code, _, err = self.wait_child(child)
            self.assertEqual(code, LOST)
            return 'not held any more' in err
        self.with_longer_ttls(stops)

    def test_max_hold(self):
        self.use(self.redis(3))

        def ends(ttl_s):
            code, _, err = self.do('run', 'lock', '--ttl', '%ds' % ttl_s, '--max-ttl', '24h', '--max-hold', ttl_s * 1166, '--',
                                   'sleep', '240')
            self.assertEqual(code, LOST)
            return 'as long as was allowed' in err
        self.with_longer_ttls(ends)

    def test_a_silent_network_stops_the_command_before_another_has_the_lock(self):
        """Nothing that the holder sends reaches a server any more, while a second client goes straight to them and
        waits for the lock. The command ignores TERM and writes the time down until it is killed; its last entry has
        to be older than the second client's lock."""
        servers = self.redis(3)
        proxies = [self.proxy(s) for s in servers]
        beat = self.lab.path('beat')
        script = ('import os,signal,struct,sys,time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
                  'fd=os.open(sys.argv[1], os.O_CREAT|os.O_WRONLY, 0o600)\nprint("begun", flush=True)\n'
                  'while True:\n os.pwrite(fd, struct.pack("d", time.monotonic()), 0)\n time.sleep(0.0005)\n')

        def stops(ttl_s):
            self.use(proxies)
            child = self.start('run', 'lock', '--ttl', '%ds' % ttl_s, '--max-ttl', '24h', '--', '/usr/bin/python3', '-c', script, beat)
            begun = child.stdout.readline()
            with Lateness() as late:
                for p in proxies:
                    p.hold()
                self.use(servers)
                other = self.start('acquire', 'lock', '--wait', '240s')
                self.assertRegex(other.stdout.readline().decode(), OWNER)
                next_holder = time.monotonic()
                self.assertEqual(self.wait_child(other)[0], 0)
                code, _, err = self.wait_child(child)
            for p in proxies:
                p.let_go()
            self.assertEqual(code, LOST)
            if begun != b'begun\n':
                return False
            self.assertIn('no renewal came through', err)
            with open(beat, 'rb') as f:
                last = struct.unpack('d', f.read())[0]
            print('      killed %.0f ms before the next grant' % ((next_holder - last) * 1000))
            if last >= next_holder: # KILL is due a twentieth of the TTL earlier: the one that kills was that late, and others as well
                self.assertGreater(late.most_ms, ttl_s * 1000 / 20, 'the command was alive when the lock was granted to the next')
            return last < next_holder
        self.with_longer_ttls(stops)

    def test_the_counter_of_the_page(self):
        """The three lines of shell of docs/REDLOCK.md, as they stand there but for the addresses, many at once."""
        with open(os.path.join(ROOT, 'docs', 'REDLOCK.md')) as f:
            part = f.read().split('<!-- redlock -->\n```sh\n', 1)[1]
        lines = part.split('```', 1)[0].strip().split('\n')
        self.assertEqual(len(lines), 3)
        self.assertTrue(lines[0].startswith('export FENCELOCK_REDIS=') and lines[1].startswith('export FENCELOCK_NODES='))
        servers = self.redis(3)
        cluster = Cluster(self.lab).start()
        store = Store(self.lab)
        store.start()
        self.env.update(PATH=os.path.dirname(binary('fencelock')) + ':' + self.env['PATH'])
        addresses = {'10.0.0.': [s.address for s in servers], '10.0.1.': cluster.addresses(),
                     '10.0.2.': [store.address]}
        script = '\n'.join(lines)
        for net, ours in addresses.items():
            for i, address in enumerate(ours):
                script = re.sub(re.escape(net) + '%d:[0-9]+' % (i + 1), address, script)
        self.assertNotIn('10.0.', script)
        # these servers have only just been started
        script = script.replace('redlock run counter', 'redlock run counter --restarts-are-safe --budget 240s ' + ' '.join(LONG))
        self.env['FENCELOCK_TIMEOUT'] = '240s' # of the storage
        token = wait_until(lambda: cluster.leader().call('TOKEN', 'counter'), 'a token')
        store.call('SET', 'n', '0', 'FENCE', 'counter', token)
        together = [subprocess.Popen(['sh', '-c', script], env=self.env, stdin=subprocess.DEVNULL) for _ in range(4)]
        self.assertEqual([child.wait(PATIENCE_S) for child in together], [0] * 4)
        self.assertEqual(store.call('GET', 'n'), b'4')


if __name__ == '__main__':
    main()
