#!/usr/bin/python3
"""The guard of Redis on a real server: every attack, the command, and the script that docs/FENCING.md once had."""

import json
import os
import shutil
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', '..', 'src', 'guards', 'kit')]
sys.path = [p for p in sys.path if os.path.abspath(p or '.') != HERE] # our name is that of a library
sys.path.append(HERE)
from guardkit.redis import Connection, Redis
from guardkit.storage import Refused
from guardkit.suite import Suite
from servers import ROUNDS, GuardCase
from harness import Cluster, free_ports, main, seed, wait_until


class Server:
    def __init__(self, lab, program='redis-server', name='redis'):
        self.lab, self.program, self.port, self.dir = lab, program, free_ports(1)[0], lab.path(name)
        os.makedirs(self.dir)
        self.acl = os.path.join(self.dir, 'users.acl')
        with open(self.acl, 'w') as f:
            f.write('user default on nopass ~* &* +@all\n')
        self.url = 'redis://127.0.0.1:%d' % self.port

    def start(self):
        self.process = self.lab.start([self.program, '--port', self.port, '--bind', '127.0.0.1', '--dir', self.dir, '--appendonly', 'yes',
                                       '--appendfsync', 'always', '--save', '', '--aclfile', self.acl], 'redis')
        wait_until(self.answers, 'an answer of Redis')
        return self

    def answers(self):
        try:
            return Connection(self.url).call('PING') == 'PONG'
        except Exception as e:
            raise RuntimeError(e)

    def kill(self):
        self.process.kill()


class RedisScript(Redis):
    """The script, with keys that everybody knows."""
    SCRIPT = """local token, mark = ARGV[1], redis.call('GET', KEYS[1])
if #token > 16 or not token:match('^[1-9]%d*$') then return redis.error_reply('ERR token') end
if mark and (#token < #mark or (#token == #mark and token < mark)) then
    return redis.error_reply('STALE token ' .. token .. ' is below the mark ' .. mark) end
redis.call('SET', KEYS[1], token)
if ARGV[2] then return redis.call('SET', KEYS[2], ARGV[2]) end
return redis.call('GET', KEYS[2])"""

    def claim(self, session, lock, token):
        session.call('EVAL', self.SCRIPT, 2, 'm:' + lock, 'none', token)

    def read(self, session, lock, key):
        found = session.call('GET', key)
        return self.first[key] if found is None else found

    def write(self, session, lock, token, key, value, how):
        session.call('EVAL', self.SCRIPT, 2, 'm:' + lock, key, token, value)

    def mark(self, session, lock):
        return int(session.call('GET', 'm:' + lock) or 0)


class Off(RedisScript):
    """Tokens are sent, and nobody looks."""
    SCRIPT = "redis.call('SET', KEYS[1], ARGV[1]) if ARGV[2] then return redis.call('SET', KEYS[2], ARGV[2]) end"


OTHER_PROGRAM = os.environ.get('FENCELOCK_REDIS')


@unittest.skipUnless(shutil.which('redis-server'), 'redis-server is not installed')
class RedisGuard(GuardCase):
    PROGRAM = 'redis-server'

    def setUp(self):
        super().setUp()
        self.server = Server(self.lab, self.PROGRAM).start()

    def test_every_attack(self):
        code, out, err = self.guard('install', self.server.url, '--json')
        self.assertEqual((code, err), (0, ''))
        writer = 'redis://fence-writer:%s@127.0.0.1:%d' % (json.loads(out)['password'], self.server.port)
        storage = Redis(self.server.url, writer, self.server)
        report = Suite(storage, seed(), rounds=ROUNDS, crashes=2).run()
        self.note_attacks(report)
        self.assertTrue(report.ok())

    def test_install_again_keeps_marks_and_password(self):
        password = json.loads(self.guard('install', self.server.url, '--json')[1])['password']
        s = Connection('redis://fence-writer:%s@127.0.0.1:%d' % (password, self.server.port))
        s.call('FCALL', 'fence_set', 0, 'l', 5, 'k', 'v')
        self.assertEqual(self.guard('install', self.server.url)[0], 0)
        self.assertEqual(s.call('FCALL', 'fence_peek', 0, 'l', 'k'), 'v')
        with self.assertRaises(Refused):
            s.call('FCALL', 'fence_set', 0, 'l', 4, 'k', 'v')
        self.assertEqual(self.guard('check', self.server.url)[0], 0)
        Connection(self.server.url).call('CONFIG', 'SET', 'appendfsync', 'everysec')
        code, out, _ = self.guard('check', self.server.url)
        self.assertEqual(code, 1)
        self.assertIn('appendfsync', out)
        self.assertEqual(self.guard('uninstall', self.server.url)[0], 0)
        with self.assertRaises(Refused):
            Connection(self.server.url).call('FCALL', 'fence_mark', 0, 'l')

    def test_attack_leaves_nothing_behind(self):
        admin = Connection(self.server.url)
        code, out, err = self.guard('attack', self.server.url, '--json', '--seed', '5') # no guard here yet
        report = json.loads(out)
        self.assertEqual((code, report['ok'], err), (0, True, ''), [a for a in report['attacks'] if a['outcome'] == 'BROKEN'])
        self.assertEqual(self.guard('install', self.server.url)[0], 0)
        code, out, err = self.guard('attack', self.server.url)
        self.assertEqual((code, err), (0, ''), out)
        self.assertIn('holds', out)
        self.assertEqual((admin.call('KEYS', '*'), len(admin.call('FUNCTION', 'LIST'))), ([], 1))
        self.assertEqual(sorted(admin.call('ACL', 'USERS')), ['default', 'fence-writer'])
        admin.call('ACL', 'SETUSER', 'fence-writer', 'allkeys', '+eval') # as somebody might who needs it once
        code, out, _ = self.guard('attack', self.server.url, '--json')
        broken = [a['attack'] for a in json.loads(out)['attacks'] if a['outcome'] == 'BROKEN']
        self.assertEqual((code, 'EVAL by fence-writer' in broken, 'SET of any key by fence-writer' in broken), (1, True, True), broken)
        self.assertEqual(self.guard('check', self.server.url)[0], 1)

    def test_a_replica_that_was_behind_is_promoted(self):
        """Redis takes marks back then. The check notices, and adopt refuses whoever was there before."""
        password = json.loads(self.guard('install', self.server.url, '--json')[1])['password']
        replica = Server(self.lab, self.PROGRAM, 'replica').start()
        admin = Connection(replica.url)
        admin.call('REPLICAOF', '127.0.0.1', self.server.port)
        wait_until(lambda: 'master_link_status:up' in admin.call('INFO', 'replication'), 'replication')
        s = Connection('redis://fence-writer:%s@127.0.0.1:%d' % (password, self.server.port))
        s.call('FCALL', 'fence_set', 0, 'l', 5, 'k', 'old')
        wait_until(lambda: Connection(replica.url).call('FCALL_RO', 'fence_mark', 0, 'l') == '5', 'mark 5 on the replica')
        self.assertIn('there are replicas', self.guard('check', self.server.url)[1])
        admin.call('REPLICAOF', '127.0.0.1', free_ports(1)[0]) # from here on it hears nothing
        s.call('FCALL', 'fence_claim', 0, 'l', 9)
        s.call('FCALL', 'fence_set', 0, 'l', 9, 'k', 'new')
        self.server.kill()
        admin.call('REPLICAOF', 'NO', 'ONE')
        self.assertEqual(admin.call('FCALL', 'fence_mark', 0, 'l'), '5') # lost, with what was written
        code, out, _ = self.guard('check', replica.url)
        self.assertEqual(code, 1)
        self.assertIn('promoted', out)
        cluster = Cluster(self.lab, 1).start()
        for _ in range(9):
            cluster.nodes[0].call('TOKEN', 'x')
        code, out, err = self.guard('adopt', replica.url, '--nodes', cluster.nodes[0].address)
        self.assertEqual((code, err), (0, ''))
        for token in (5, 9):
            with self.assertRaises(Refused) as e:
                admin.call('FCALL', 'fence_set', 0, 'l', token, 'k', '666')
            self.assertEqual(e.exception.word, 'STALE')
        self.assertNotIn('promoted', self.guard('check', replica.url)[1])
        admin.call('FCALL', 'fence_set', 0, 'l', 11, 'k', 'newer')

    def test_waitaof(self):
        """A write that WAITAOF has confirmed is on the disk of the server and of a replica."""
        if 'waitaof' not in [c.lower() for c in Connection(self.server.url).call('COMMAND', 'LIST')]:
            self.skipTest('this server has no WAITAOF: it came with Redis 7.2')
        password = json.loads(self.guard('install', self.server.url, '--json')[1])['password']
        replica = Server(self.lab, self.PROGRAM, 'replica').start()
        Connection(replica.url).call('REPLICAOF', '127.0.0.1', self.server.port)
        s = Connection('redis://fence-writer:%s@127.0.0.1:%d' % (password, self.server.port))
        wait_until(lambda: s.call('FCALL', 'fence_set', 0, 'l', 5, 'k', 'v') == 'OK' and s.call('WAITAOF', 1, 1, 5000) == [1, 1],
                   'both disks')
        for server in (self.server, replica):
            server.kill()
            server.start()
            admin = Connection(server.url)
            self.assertEqual(admin.call('FCALL_RO', 'fence_mark', 0, 'l'), '5')
            self.assertEqual(admin.call('FCALL_RO', 'fence_peek', 0, 'l', 'k'), 'v')

    def test_binary_values(self):
        password = json.loads(self.guard('install', self.server.url, '--json')[1])['password']
        s = Connection('redis://fence-writer:%s@127.0.0.1:%d' % (password, self.server.port))
        for value in ('', 'a\nb', '\0x', ' ', '5:x y', 'x' * 100000):
            s.call('FCALL', 'fence_set', 0, 'l', 5, 'k', value)
            self.assertEqual(s.call('FCALL', 'fence_get', 0, 'l', 5, 'k'), value)
        s.call('FCALL', 'fence_del', 0, 'l', 5, 'k')
        self.assertIsNone(s.call('FCALL', 'fence_get', 0, 'l', 5, 'k'))
        with self.assertRaises(Refused) as e:
            s.call('FCALL', 'fence_set', 0, 'm', 9, 'k', 'v') # it stays the lock's, deleted or not
        self.assertEqual(e.exception.word, 'WRONGLOCK')

    def suite(self, kind):
        return Suite(kind(self.server.url, self.server.url), seed(), rounds=30)

    def test_the_script_is_right_and_can_be_gone_round(self):
        report = self.suite(RedisScript).run(('stale', 'random', 'SET of', 'FLUSHALL', 'another'))
        found = {row[1]: row[2:4] for row in report.rows}
        self.assertEqual([found[a][0] for a in ('stale claim', 'stale FCALL fence_set', 'many writers at random')], ['holds'] * 3)
        self.assertEqual([found[a][0] for a in ('SET of the key', 'FLUSHALL of marks', "another lock's token")], ['BROKEN'] * 3)

    def test_with_the_guard_off_updates_are_lost(self):
        self.until_lost(self.suite(Off), 'random')


@unittest.skipUnless(shutil.which('valkey-server'), 'valkey-server is not installed')
class ValkeyGuard(RedisGuard):
    PROGRAM = 'valkey-server'


@unittest.skipUnless(OTHER_PROGRAM, 'FENCELOCK_REDIS names no other redis-server or valkey-server')
class OtherGuard(RedisGuard):
    PROGRAM = OTHER_PROGRAM


if __name__ == '__main__':
    main()
