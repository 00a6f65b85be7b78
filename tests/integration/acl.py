#!/usr/bin/python3
"""Users and rights on real processes: tries everything that a user may not do, at the leader and at a follower."""

import hashlib
import itertools
import json
import os
import pty
import re
import socket
import subprocess
import sys
import termios
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Resp, RespError, as_dict, ask_again, binary, main, patient_env, wait_until
from harness.lab import ROOT
from login_flood import LoginFlood
from own_address import own_address
from wire_lab import form_texts

TTL = 600000


def read_until(fd, text):
    seen = b''
    while text not in seen:
        seen += os.read(fd, 4096)
    return seen


class AclCase(Case):
    def cluster(self, n=1, *extra):
        return Cluster(self.lab, n, extra).start()

    def login(self, node, user, password=None):
        c = node.client()
        self.addCleanup(c.close)
        self.assertEqual(c.call('AUTH', user, password or user + '-password'), 'OK')
        return c

    def user(self, node, name, *words):
        """Makes a user, with a password, and gives a connection of its."""
        self.assertEqual(node.call('ACL', 'SETUSER', name, 'on', '>%s-password' % name, *words), 'OK')
        return self.login(node, name)


class Rights(AclCase):
    def test_each_right_and_each_name(self):
        node = self.cluster().nodes[0]
        no = self.user(node, 'no')
        acq = self.user(node, 'acq', '~a*', '+@acquire')
        see = self.user(node, 'see', '~a*', '+@see')
        tok = self.user(node, 'tok', '~a*', '+@token', '+@break')
        token = acq.call('ACQUIRE', 'a1', 'TTL', TTL)
        self.assertError('NOPERM', acq, 'ACQUIRE', 'b1', 'TTL', TTL, text='@acquire')
        self.assertError('NOPERM', see, 'ACQUIRE', 'a2', 'TTL', TTL, text='@acquire')
        self.assertError('NOPERM', see, 'ACQUIRE', 'a1', 'TTL', TTL, 'WAIT', 1000, text='@acquire')
        self.assertError('NOPERM', see, 'ACQUIRE', 'a1', 'TTL', TTL, 'MODE', 'SHARED', text='@acquire')
        self.assertError('NOPERM', acq, 'ACQUIRE', 'a3', 'TTL', TTL, 'ALSO', 'a4', 'ALSO', 'b5', text='@acquire')
        self.assertError('NOPERM', no, 'SESSION', 'OPEN', 'session-0123456789', 'TTL', TTL, text='@acquire')
        # A refusal says the same of what is there and of what is not.
        self.assertEqual(self.assertError('NOPERM', acq, 'SHOW', 'a1'), self.assertError('NOPERM', acq, 'SHOW', 'nothing'))
        self.assertEqual(self.assertError('NOPERM', no, 'CHECK', 'a1', token), self.assertError('NOPERM', no, 'CHECK', 'b', 9))
        self.assertError('NOPERM', acq, 'LOCKS', text='@see')
        self.assertError('NOPERM', acq, 'SUBSCRIBE', 'lock:a1', text='@see')
        self.assertError('NOPERM', acq, 'TOKEN', 'a1', text='@token')
        self.assertError('NOPERM', acq, 'BREAK', 'a1', text='@break')
        self.assertError('NOPERM', tok, 'BREAK', 'b1', text='@break')
        for command in (('CLIENT', 'LIST'), ('CLUSTER', 'TRANSFER'), ('CLUSTER', 'REMOVE', 2), ('ACL', 'LIST'),
                        ('ACL', 'SETUSER', 'no', '+@all'), ('ACL', 'DELUSER', 'see'), ('ACL', 'GETUSER', 'no'),
                        ('ACL', 'USERS'), ('ACL', 'SAVE'), ('ACL', 'LOAD')):
            self.assertError('NOPERM', tok, *command, text='@admin')
        self.assertEqual(acq.call('CHECK', 'a1', token), 1) # its own
        self.assertGreater(tok.call('BREAK', 'a1'), token)
        self.assertEqual(no.call('ACL', 'WHOAMI'), b'no')

    def test_lists_and_events_are_filtered(self):
        node = self.cluster().nodes[0]
        see = self.user(node, 'see', '~a*', '+@see', '+@acquire')
        ears = self.login(node, 'see')
        ears.call('PSUBSCRIBE', 'lock:*')
        for name in ('b1', 'a1'):
            node.call('ACQUIRE', name, 'TTL', TTL, 'OWNER', 'owner-%s-0123456789' % name)
        self.assertEqual([as_dict(lock)['name'] for lock in see.call('LOCKS')[1]], ['a1'])
        self.assertEqual(ears.read()[2], b'lock:a1')
        node.call('ACL', 'SETUSER', 'see', 'resetkeys', '~b*')
        node.call('ACQUIRE', 'a2', 'TTL', TTL)
        node.call('ACQUIRE', 'b2', 'TTL', TTL)
        self.assertEqual(ears.read()[2], b'lock:b2')

    def test_the_busiest_are_filtered(self):
        """LOCKS BY WAIT is answered by each node for itself, from what its log has brought."""
        cluster = self.cluster(3, '--metrics', '127.0.0.1:0')
        cluster.steady()
        node = cluster.leader()
        self.assertEqual(node.call('ACL', 'SETUSER', 'see', 'on', '>see-password', '~a*', '+@see'), 'OK')
        self.assertEqual(node.call('ACL', 'SETUSER', 'blind', 'on', '>blind-password', '~*', '+@acquire'), 'OK')
        for name in ('a1', 'b1'):
            node.call('ACQUIRE', name, 'TTL', TTL)
            self.assertIsNone(node.call('ACQUIRE', name, 'TTL', TTL))
        def names(c):
            return [as_dict(row)['name'] for row in c.call('LOCKS', 'BY', 'WAIT')[1]]
        for each in cluster.nodes:
            wait_until(lambda: sorted(names(each)) == ['a1', 'b1'], 'both names')
            self.assertEqual(names(self.login(each, 'see')), ['a1'])
            self.assertError('NOPERM', self.login(each, 'blind'), 'LOCKS', 'BY', 'WAIT')
        self.user(node, 'boss', '~*', '+@all')
        self.assertEqual(self.login(node, 'boss').call('ACL', 'SETUSER', 'default', 'off'), 'OK')
        def is_shut(each):
            try:
                each.call('PING')
            except RespError as e:
                return e.word == 'NOAUTH'
        for each in cluster.nodes:
            wait_until(lambda: is_shut(each), 'that it has heard of it')
            self.assertError('NOAUTH', each.client(), 'LOCKS', 'BY', 'WAIT')
            self.assertError('NOAUTH', each.client(), 'HELLO', 3) # which would tell who leads, and where
            self.assertIsNotNone(each.client().call('HELLO', 3, 'AUTH', 'boss', 'boss-password'))

    def test_the_busiest_and_costly_patterns(self):
        """Comparing names with a user's patterns has a ceiling in one answer."""
        node = self.cluster(1, '--metrics', '127.0.0.1:0').nodes[0]
        patterns = [b'~*' + b'[@-\xbf]' * 49 + bytes([last]) for last in b'bcdefgh'] # sets of half of all bytes
        slow = self.user(node, 'slow', '+@see', *patterns)
        for i in range(10, 42):
            name = 'a' * 253 + str(i)
            node.call('ACQUIRE', name, 'TTL', TTL)
            self.assertIsNone(node.call('ACQUIRE', name, 'TTL', TTL))
        self.assertEqual(len(node.call('LOCKS', 'BY', 'WAIT')[1]), 32)
        self.assertError('LIMIT', slow, 'LOCKS', 'BY', 'WAIT', text='fewer or shorter patterns')
        self.assertEqual(slow.call('LOCKS')[1], [])

    def test_patterns_with_escapes_and_selectors(self):
        node = self.cluster().nodes[0]
        c = self.user(node, 'esc', '~a\\*b', '~[x-z]?', '+@acquire', '(~only:* +@see)')
        self.assertGreater(c.call('ACQUIRE', 'a*b', 'TTL', TTL), 0)
        self.assertGreater(c.call('ACQUIRE', 'y1', 'TTL', TTL), 0)
        self.assertError('NOPERM', c, 'ACQUIRE', 'aXb', 'TTL', TTL)
        self.assertError('NOPERM', c, 'SHOW', 'a*b')
        self.assertIsNone(c.call('SHOW', 'only:1'))
        for words in (('foo',), ('+get',), ('~a b\tc',), ('(~a',), ('#abc',), ('<wrong',)):
            self.assertError('ERR', node.client(), 'ACL', 'SETUSER', 'esc', *words)


class Page(AclCase):
    def test_the_rights_of_each_command(self):
        """ACL CAT and the table of docs/PROTOCOL.md say the same; no right is needed to release one's own lock."""
        node = self.cluster(1).nodes[0]
        with open(os.path.join(ROOT, 'docs', 'PROTOCOL.md'), encoding='utf-8') as f:
            rows = re.findall(r'^\| `@(see|acquire|token|break|admin)` \| (.*) \|$', f.read(), re.M)
        self.assertEqual([right.encode() for right, _ in rows], node.call('ACL', 'CAT'))
        for right, commands in rows:
            on_the_page = {c.lower().replace(' ', '|') for c in re.findall(r'`([^`]+)`', commands)}
            self.assertEqual({c.decode() for c in node.call('ACL', 'CAT', right)}, on_the_page, right)


class Belongs(AclCase):
    def test_a_token_is_its_users(self):
        node = self.cluster().nodes[0]
        ann = self.user(node, 'ann', '~*', '+@acquire')
        bob = self.user(node, 'bob', '~*', '+@acquire')
        eye = self.user(node, 'eye', '~*', '+@acquire', '+@see')
        owner = 'owner-of-ann-0123'
        token = ann.call('ACQUIRE', 'l', 'TTL', TTL, 'OWNER', owner)
        self.assertEqual(bob.call('RENEW', 'l', token), 0) # as of a token that holds nothing
        self.assertEqual(bob.call('RELEASE', 'l', token), 0)
        self.assertError('NOPERM', eye, 'RENEW', 'l', token, text='another user')
        self.assertError('NOPERM', eye, 'RELEASE', 'l', token, text='another user')
        self.assertError('NOPERM', bob, 'ACQUIRE', 'l', 'TTL', TTL, 'OWNER', owner)
        shown = as_dict(eye.call('SHOW', 'l'))
        self.assertEqual(shown['user'], 'ann')
        self.assertRegex(shown['address'], r'^127\.0\.0\.1:\d+$')
        ann.call('SESSION', 'OPEN', 'session-of-ann-0123', 'TTL', TTL)
        self.assertEqual(bob.call('SESSION', 'CLOSE', 'session-of-ann-0123'), 0)
        self.assertError('NOSESSION', bob, 'ACQUIRE', 'm', 'SESSION', 'session-of-ann-0123')
        self.assertEqual(ann.call('RELEASE', 'l', token), 1)


class Logins(AclCase):
    def test_wrong_passwords(self):
        node = self.cluster().nodes[0]
        self.user(node, 'ann', '~*', '+@acquire')
        with node.client() as c:
            for words in (('ann', 'wrong'), ('nobody', 'ann-password'), ('a b', 'x'), ('ann', 'x' * 600)):
                self.assertError('WRONGPASS', c, 'AUTH', *words)
            self.assertEqual(c.call('ACL', 'WHOAMI'), b'default')
            self.assertError('WRONGPASS', c, 'HELLO', 3, 'AUTH', 'ann', 'wrong')
            self.assertIsNotNone(c.call('HELLO', 2, 'AUTH', 'ann', 'ann-password', 'SETNAME', 'x'))
            self.assertEqual(c.call('ACL', 'WHOAMI'), b'ann')
        self.assertGreaterEqual(int(node.info()['login_failures']), 5)

    def test_failures_slow_the_address_down_and_nobody_else(self):
        node = self.cluster().nodes[0]
        self.user(node, 'ann', '~*', '+@acquire')
        clients = [node.client(timeout=60) for _ in range(12)]
        for c in clients:
            c.send('AUTH', 'ann', 'wrong')
        self.assertEqual({c.read().word for c in clients}, {'WRONGPASS'})
        for c in clients[:6]:
            c.send('AUTH', 'ann', 'wrong')
        wait_until(lambda: int(node.info()['logins_delayed']) > 0, 'delayed logins') # commands go on meanwhile
        for c in clients:
            c.close()

    def test_many_logins_of_one_address_leave_room_for_others(self):
        """With the right password, so that no failure slows them down."""
        node = self.cluster().nodes[0]
        self.user(node, 'ann', '~*', '+@acquire')
        with LoginFlood(node.address, '127.0.0.2', 600, 'ann', 'ann-password') as flood:
            flood.wait_until_refused()
            for _ in range(5):
                self.login(node, 'ann')

    def test_guesses_at_invented_names_lock_nobody_out(self):
        """From the same address, as all clients of a load balancer have: neither who has not logged in yet nor who has."""
        node = self.cluster().nodes[0]
        self.user(node, 'ann', '~*', '+@acquire')
        self.assertEqual(node.call('ACL', 'SETUSER', 'ben', 'on', '>ben-password'), 'OK')
        names = map('nobody-{}'.format, itertools.count())
        with LoginFlood(node.address, '127.0.0.1', 4, lambda: next(names), 'x'):
            wait_until(lambda: int(node.info()['login_failures']) > 16, 'many failures')
            for user in ('ann', 'ben', 'ann'):
                self.login(node, user)

    def test_what_stands_behind_auth_is_done_by_the_user(self):
        node = self.cluster().nodes[0]
        self.user(node, 'ann', '~a', '+@acquire')
        with node.client() as c:
            got = c.pipeline([('AUTH', 'ann', 'ann-password'), ('ACL', 'WHOAMI'), ('ACQUIRE', 'b', 'TTL', TTL)])
        self.assertEqual(got[:2], ['OK', b'ann'])
        self.assertEqual(got[2].word, 'NOPERM')

    def test_the_front_door_asks_who_it_is(self):
        """Also where it answers by itself: what scripts, keys and arguments it knows is nobody's business, and it keeps nothing."""
        node = self.cluster(1, '--front-door', 'a*').nodes[0]
        boss = self.user(node, 'boss', '~*', '+@all')
        no_rights = self.user(node, 'no')
        release = form_texts()['release']
        requests = [('DEL', 'redisson_unlock_latch:{x}:y'), ('EVALSHA', hashlib.sha1(release.encode()).hexdigest(), 0), ('EVALSHA', '0' * 40, 0),
                    ('GET', 'b'), ('GET', ''), ('SET', 'a', 'v'), ('EVAL', release + ' -- mine', 1, 'a', 'v'), ('EVAL', 'return 1', 0),
                    ('BLPOP', 'queue', 1), ('LOCKTOKEN', 'a', 'v'), ('SCRIPT', 'EXISTS', '0' * 40), ('SENTINEL', 'MASTERS')]
        boss.call('ACL', 'SETUSER', 'default', 'off')
        with node.client() as c:
            for request in requests:
                self.assertError('NOAUTH', c, *request)
            self.assertEqual(boss.call('SCRIPT', 'EXISTS', hashlib.sha1((release + ' -- mine').encode()).hexdigest()), [0])
            self.assertEqual(no_rights.call('DEL', 'redisson_unlock_latch:{x}:y'), 0) # somebody
            self.assertEqual(c.call('AUTH', 'boss', 'boss-password'), 'OK')
            self.assertEqual(c.call('EVAL', release + ' -- mine', 1, 'a', 'v'), 0)

    def test_requirepass(self):
        node = self.cluster_with_password()
        with node.client() as c:
            self.assertError('NOAUTH', c, 'ACQUIRE', 'a', 'TTL', TTL)
            self.assertError('NOAUTH', c, 'INFO')
            self.assertError('NOAUTH', c, 'PING')
            self.assertError('NOAUTH', c, 'SUBSCRIBE', 'lock:a')
            self.assertEqual(c.call('AUTH', 'sesame'), 'OK')
            self.assertGreater(c.call('ACQUIRE', 'a', 'TTL', TTL), 0)
            self.assertEqual(c.call('ACL', 'SETUSER', 'default', '>other', '<sesame'), 'OK')
            self.assertError('NOAUTH', c, 'ACQUIRE', 'a', 'TTL', TTL) # logged in by a password that is gone
            self.assertError('WRONGPASS', c, 'AUTH', 'sesame')
            self.assertEqual(c.call('AUTH', 'other'), 'OK')

    def cluster_with_password(self):
        cluster = Cluster(self.lab, 1, ['--requirepass', 'sesame'])
        node = cluster.nodes[0]
        node.launch()
        node.wait_ready()

        def logs_in():
            with node.client() as c:
                return c.call('AUTH', 'sesame') == 'OK'
        wait_until(logs_in, 'a login')
        return node

    def test_protected_mode(self):
        host = own_address()
        if host is None:
            self.skipTest('no address but loopback')
        cluster = Cluster(self.lab, 1)
        node = cluster.nodes[0]
        node.extra = ['--listen=0.0.0.0:%d' % node.port, '--advertise', node.address]
        argv = node.argv
        node.argv = lambda: [w for i, w in enumerate(argv()) if w != '--listen' and argv()[i - 1] != '--listen']
        cluster.start()
        there = '%s:%d' % (host, node.port)
        with Resp(there) as c:
            self.assertError('DENIED', c, 'ACQUIRE', 'a', 'TTL', TTL, text='protected mode')
            self.assertError('DENIED', c, 'SUBSCRIBE', 'lock:a')
            self.assertError('DENIED', c, 'ACL', 'SETUSER', 'me', 'on', 'nopass', '+@all', '~*')
            self.user(node, 'ann', '~*', '+@all')
            self.assertEqual(c.call('AUTH', 'ann', 'ann-password'), 'OK')
            self.assertGreater(c.call('ACQUIRE', 'a', 'TTL', TTL), 0)
            self.assertTrue(as_dict(c.call('SHOW', 'a'))['address'].startswith(host + ':'))
            node.call('ACL', 'SETUSER', 'default', 'off')
        with Resp(there) as c:
            self.assertError('NOAUTH', c, 'ACQUIRE', 'b', 'TTL', TTL)


class Tool(AclCase):
    def tool(self, *words, **env):
        """Its exit code and output. On a slow machine it also says that it waits."""
        done = subprocess.run([binary('fencelock'), *words], capture_output=True, text=True, timeout=PATIENCE_S, env=patient_env(**env))
        return done.returncode, done.stdout.strip(), '\n'.join(x for x in done.stderr.splitlines() if ': waiting' not in x)

    def test_user_and_password(self):
        node = self.cluster().nodes[0]
        self.user(node, 'ann', '~a*', '+@acquire', '+@see')
        node.call('ACL', 'SETUSER', 'default', '-@acquire')
        at = ('--nodes', node.address)
        path = self.lab.path('password')
        with open(path, 'w') as f:
            f.write('ann-password\n')
        code, token, error = self.tool('acquire', 'a1', *at, '--ttl', '10m', '--user', 'ann', '--password-file', path)
        self.assertEqual((code, error), (0, ''))
        code, out, _ = self.tool('show', 'a1', *at, FENCELOCK_USER='ann', FENCELOCK_PASSWORD='ann-password')
        self.assertEqual(code, 0, out)
        code, _, error = self.tool('acquire', 'b1', *at, '--user', 'ann', '--password-file', path)
        self.assertNotEqual(code, 0)
        self.assertIn('@acquire', error)
        code, _, error = self.tool('acquire', 'a2', *at)
        self.assertIn('@acquire', error)
        long = (*at, '--timeout', '1h') # it ends at once, or the test does not
        code, _, error = self.tool('acquire', 'a2', *long, '--user', 'ann', FENCELOCK_PASSWORD='wrong')
        self.assertEqual(self.tool('watch', *at, '--user', 'ann', FENCELOCK_PASSWORD='wrong')[0], 1)
        self.assertEqual(code, 1, error)
        self.assertIn('WRONGPASS', error)
        url = 'fencelock://ann:ann%2Dpassword@' + node.address
        code, out, error = self.tool('acquire', 'a9', FENCELOCK_NODES=url)
        self.assertEqual((code, error), (0, ''))
        for words, env in ((('--nodes', url), {}), (('--user', 'ann'), {'FENCELOCK_NODES': url}), (('--tls',), {'FENCELOCK_NODES': url}),
                           ((), {'FENCELOCK_NODES': url.replace('fencelock:', 'redis:')})):
            code, _, error = self.tool('show', 'a9', *words, **env)
            self.assertEqual(code, 2, error)
            self.assertNotIn('2Dpassword', error)
        for words, env in ((('--user', 'ann'), {}), (('--password-file', path), {}),
                           (('--user', 'ann', '--password-file', path + 'x'), {})):
            self.assertEqual(self.tool('acquire', 'a2', *at, *words, **env)[0], 2)
        code, out, error = self.tool('run', 'a3', *at, '--ttl', '10m', '--user', 'ann', '--password-file', path, '--', 'sh', '-c',
                                     'echo $FENCELOCK_TOKEN')
        self.assertEqual(code, 0, error) # on a slow machine it may say that the lock is not given back
        self.assertGreater(int(out), int(token))
        code, out, error = self.tool('run', 'a4', *at, '--ttl', '10m', '--user', 'ann', '--password-file', path, '--', binary('fencelock'),
                                     'show', 'a4', '--json', '--nodes', node.address)
        self.assertRegex(out, r'host=\S+ pid=[0-9]+ command=fencelock\b')
        self.assertRegex(json.loads(out)['owner'], r'^\S+@\S+/\d+/fencelock/[0-9a-f]{32}$') # so in lists, logs and events

    def users(self, node, *words, given=''):
        return subprocess.run([binary('fencelock'), 'user', *words, '--nodes', node.address], input=given, capture_output=True, text=True,
                              timeout=PATIENCE_S, env=patient_env())

    def test_users_are_made(self):
        node = self.cluster().nodes[0]
        self.assertEqual(self.users(node, 'add', 'bob', '~b*', '+@acquire', given='bob password\nmore\n').returncode, 0)
        bob = self.login(node, 'bob', 'bob password')
        self.assertGreater(bob.call('ACQUIRE', 'b1', 'TTL', TTL), 0)
        self.assertError('NOPERM', bob, 'ACQUIRE', 'a1', 'TTL', TTL)
        for words, given, code, says in ((('bob', '+@see'), 'x\n', 1, 'there is a user of that name'), (('eve', '+@see'), '', 2, 'it is empty'),
                                         (('eve', '+@see'), '\n', 2, 'it is empty'), (('eve', '>pass'), 'x\n', 2, 'not an argument'),
                                         (('eve', '+@nosuch'), 'x\n', 1, '@nosuch'), (('eve',), 'x\n', 2, 'too few')):
            done = self.users(node, 'add', *words, given=given)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(says, done.stderr)
        listed = json.loads(self.users(node, 'list', '--json').stdout)['users']
        self.assertEqual([(u['user'], u['state'], u['passwords']) for u in listed], [('default', 'on', 0), ('bob', 'on', 1)])
        self.assertNotIn('scrypt', self.users(node, 'list').stdout)
        self.assertEqual(self.users(node, 'remove', 'bob').returncode, 0)
        self.assertError('NOAUTH', bob, 'CHECK', 'b1', 1)
        self.assertEqual(self.users(node, 'remove', 'bob').returncode, 1)

    def test_a_password_is_asked_for(self):
        node = self.cluster().nodes[0]
        for first, second, code in (('typed', 'typed', 0), ('typed', 'mistyped', 2)):
            ours, theirs = pty.openpty()
            self.addCleanup(os.close, ours)
            child = subprocess.Popen([binary('fencelock'), 'user', 'add', 'ann%d' % code, '+@see', '--nodes', node.address], stdin=theirs,
                                     stdout=subprocess.PIPE, stderr=theirs, env=patient_env())
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
            seen = read_until(ours, b'password of the new user: ')
            os.write(ours, first.encode() + b'\n')
            seen += read_until(ours, b'the same again: ')
            os.write(ours, second.encode() + b'\n')
            self.assertEqual(child.wait(PATIENCE_S), code)
            self.assertNotIn(b'typed', seen)
            self.assertTrue(termios.tcgetattr(theirs)[3] & termios.ECHO)
            os.close(theirs)
        self.login(node, 'ann0', 'typed')


class Audit(AclCase):
    def test_lines_of_what_was_done(self):
        path = self.lab.path('audit')
        cluster = self.cluster(1, '--auditlog', path)
        node = cluster.nodes[0]

        def lines(name=path):
            with open(name) as f:
                return [json.loads(l) for l in f if l.endswith('\n')] # the last one may be half written

        def line(event, **fields):
            return wait_until(lambda: [l for l in lines() if l['event'] == event and fields.items() <= l.items()],
                              'a line %s %r' % (event, fields))[-1]
        ann = self.user(node, 'ann', '~a*', '+@acquire')
        self.assertEqual(line('user_changed', changed='ann')['by'], 'default')
        token = ann.call('ACQUIRE', 'a"1\n', 'TTL', TTL, 'OWNER', 'owner-of-ann-0123')
        got = line('granted', lock='a"1\n', token=token, user='ann', owner='owner-of-ann-0123')
        self.assertRegex(got['address'], r'^127\.0\.0\.1:')
        self.assertRegex(got['time'], r'^20..-..-..T..:..:..\.\d{3}Z$')
        self.assertError('NOPERM', ann, 'ACQUIRE', 'b', 'TTL', TTL)
        line('refused', command='ACQUIRE', why='NOPERM', user='ann')
        denied = node.info()['requests_denied']
        self.assertError('NOPERM', ann, 'BLPOP', 'lock-signal:b', 1)
        line('refused', command='BLPOP', why='NOPERM', user='ann')
        renew_each = form_texts()['renew-each']
        self.assertError('NOPERM', ann, 'EVAL', renew_each, 3, 'b1', 'b2', 'b3', TTL, 'v', 'v', 'v')
        line('refused', command='EVAL', why='NOPERM', user='ann')
        self.assertEqual(ann.call('SET', 'a5', 'value-of-a5', 'NX'), 'OK')
        self.assertError('NOPERM', ann, 'EVAL', renew_each, 2, 'a5', 'b1', TTL, 'value-of-a5', 'v')  # nothing was done
        wait_until(lambda: len([l for l in lines() if l['event'] == 'refused' and l['command'] == 'EVAL']) == 2, 'a line of it')
        self.assertEqual(node.info()['requests_denied'], denied + 3)
        self.assertError('WRONGPASS', node.client(), 'AUTH', 'ann', 'wrong')
        line('refused', command='AUTH', why='WRONGPASS', user='ann')
        node.call('BREAK', 'a"1\n')
        line('broken', token=token, user='ann', by='default')
        os.rename(path, path + '.1')
        token = ann.call('ACQUIRE', 'a2', 'TTL', TTL)
        wait_until(lambda: os.path.exists(path), 'a new file')
        line('granted', token=token)
        self.assertEqual(ann.call('RELEASE', 'a2', token), 1)
        line('released', token=token)
        with open(path) as f:
            self.assertNotIn('password', f.read())
        node.terminate()
        node.start()
        cluster.wait_serving(node)
        line('granted', token=token, again=True)
        os.remove(path)
        os.mkdir(path) # what cannot be written is counted, and nobody waits for it
        ann = self.login(node, 'ann')
        self.assertGreater(ann.call('ACQUIRE', 'a3', 'TTL', TTL), 0)
        wait_until(lambda: int(node.info()['audit_lines_not_written']) > 0, 'a failure')


class AuditElsewhere(AclCase):
    def test_syslog(self):
        """A node in a name space of its own, whose /dev/log is ours."""
        path = self.lab.path('log.sock')
        cluster = Cluster(self.lab, 1, ['--auditlog', 'syslog'])
        node = cluster.nodes[0]
        argv = node.argv
        old = self.lab.path('dev')
        os.mkdir(old)
        script = ('mount --rbind /dev "$1" && mount -t tmpfs tmpfs /dev && ln -s "$2" /dev/log && '
                  'for i in null zero random urandom shm; do ln -s "$1/$i" /dev/$i; done && shift 2 && exec "$@"')
        probe = subprocess.run(['unshare', '-m', 'true'], capture_output=True)
        if probe.returncode != 0:
            self.skipTest('no name space can be made here')
        node.argv = lambda: ['unshare', '-m', 'sh', '-c', script, 'sh', old, path] + argv()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind(path)
            s.settimeout(PATIENCE_S)
            cluster.start()
            token = node.call('ACQUIRE', 'report', 'TTL', TTL, 'OWNER', 'owner-of-audit-0123')
            while True:
                line = s.recv(65536)
                self.assertRegex(line, rb'^<85>.*fencelockd\[[0-9]+\]: \{') # authpriv.notice
                got = json.loads(line[line.index(b'{'):])
                if got['event'] == 'granted':
                    break
            self.assertEqual((got['lock'], got['token']), ('report', token))

    def test_what_does_not_fit_is_counted_and_said(self):
        """The file is a pipe that nobody reads: commands go on, and the log tells of its gap."""
        path = self.lab.path('audit')
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        node = self.cluster(1, '--auditlog', path).nodes[0]
        name, owner = 'n' * 255, 'o' * 255
        def dropped():
            with node.client(timeout=PATIENCE_S) as c:
                for _ in range(20):
                    tokens = c.pipeline([('ACQUIRE', name[:250] + '%05d' % i, 'TTL', TTL, 'OWNER', owner) for i in range(200)])
                    c.pipeline([('RELEASE', name[:250] + '%05d' % i, t) for i, t in enumerate(tokens)])
            return int(node.info()['audit_lines_dropped']) > 0
        wait_until(dropped, 'lines that were left out')
        lost = int(node.info()['audit_lines_dropped'])
        rest = b''
        def told():
            nonlocal rest
            node.call('TOKEN', 'x') # and lines that make it write again
            node.call('RELEASE', 'again', node.call('ACQUIRE', 'again', 'TTL', TTL))
            try:
                while True:
                    rest += os.read(reader, 1 << 20)
            except BlockingIOError:
                pass
            events = [json.loads(l) for l in rest.split(b'\n')[:-1]]
            gaps = [e for e in events if e['event'] == 'dropped']
            return gaps and events[-1]['event'] != 'dropped' and sum(e['lines'] for e in gaps) >= lost
        wait_until(told, 'a line that says what is missing')


class Revoked(AclCase):
    def test_open_connections_lose_the_right(self):
        node = self.cluster().nodes[0]
        ann = self.user(node, 'ann', '~*', '+@acquire')
        token = ann.call('ACQUIRE', 'a', 'TTL', TTL)
        node.call('ACL', 'SETUSER', 'ann', '-@acquire')
        self.assertError('NOPERM', ann, 'RENEW', 'a', token)
        node.call('ACL', 'SETUSER', 'ann', '+@acquire')
        self.assertEqual(ann.call('RENEW', 'a', token), 1)
        short = ann.call('ACQUIRE', 'b', 'TTL', 4000)
        node.call('ACL', 'SETUSER', 'ann', 'off')
        self.assertError('NOAUTH', ann, 'RENEW', 'a', token)
        self.assertError('NOAUTH', ann, 'PING')
        self.assertError('NOAUTH', ann, 'RENEW', 'a', token, 'JEOPARDY', 7, 'LOST', 7) # alarms of nobody are none
        self.assertEqual(node.info()['leases_in_jeopardy_told'], 0)
        node.call('ACL', 'DELUSER', 'ann')
        self.user(node, 'ann', '~*', '+@acquire')
        self.assertError('NOAUTH', ann, 'RENEW', 'a', token) # another one of the same name
        # An end of a lease asks for no right.
        wait_until(lambda: node.call('CHECK', 'b', short) == 0, "the lease's end")

    def test_waiting_ends_with_the_right(self):
        node = self.cluster().nodes[0]
        ann = self.user(node, 'ann', '~*', '+@acquire')
        token = node.call('ACQUIRE', 'a', 'TTL', TTL)
        ann.send('ACQUIRE', 'a', 'TTL', TTL, 'WAIT', TTL, 'OWNER', 'owner-of-ann-0123')
        waiting = lambda: as_dict(node.call('SHOW', 'a'))['waiters'] == 1
        wait_until(waiting, 'ann in the queue')
        node.call('ACL', 'SETUSER', 'ann', 'resetkeys')
        answer = ann.read(PATIENCE_S)
        self.assertEqual(answer.word, 'NOPERM')
        self.assertEqual(node.call('RELEASE', 'a', token), 1)
        self.assertIsNone(node.call('SHOW', 'a'))


    def test_a_signal_is_awaited_no_longer(self):
        """BLPOP of python-redis-lock waits for the end of a lock, at a node, and is asked again when users change."""
        node = self.cluster().nodes[0]
        pop = self.user(node, 'pop', '~lock:*', '+@acquire')
        token = node.call('ACQUIRE', 'lock:x', 'TTL', TTL)
        pop.send('BLPOP', 'lock-signal:x', 600)
        wait_until(lambda: node.info()['blocked_clients'] == 1, 'that it waits')
        node.call('ACL', 'SETUSER', 'pop', 'resetkeys')
        self.assertEqual(pop.read(PATIENCE_S), [b'lock-signal:x', b'1']) # not nil, which says that the time is over
        self.assertError('NOPERM', pop, 'BLPOP', 'lock-signal:x', 600)
        self.assertEqual(node.call('RELEASE', 'lock:x', token), 1)


class ThreeNodes(AclCase):
    def test_users_are_the_clusters(self):
        cluster = self.cluster(3)
        cluster.steady()
        leader = cluster.leader()
        follower = cluster.followers()[0]
        leader.call('ACL', 'SETUSER', 'ann', 'on', '>ann-password', '~a*', '+@acquire')
        ann = self.login(follower, 'ann') # at once: the leader is asked, however late the follower is
        self.assertGreater(ann.call('ACQUIRE', 'a1', 'TTL', TTL), 0)
        # A follower that is behind lets nobody do what was forbidden meanwhile.
        leader.call('ACL', 'SETUSER', 'ann', 'resetkeys', '~b*')
        self.assertError('NOPERM', ann, 'ACQUIRE', 'a2', 'TTL', TTL)
        leader.call('ACL', 'SETUSER', 'ann', 'off')
        self.assertError('NOAUTH', ann, 'ACQUIRE', 'b1', 'TTL', TTL)
        leader.call('ACL', 'SETUSER', 'ann', 'on')

        # A leader that is killed in the middle of changes: each was made, or was not, on all nodes.
        stop = threading.Event()
        made = []

        def change():
            numbers = itertools.count(1)
            while not stop.is_set():
                i = next(numbers) # no cluster keeps any number of users: later changes are of the same ones
                name = 'u%d' % (i % 200)
                try:
                    if follower.call('ACL', 'SETUSER', name, 'on', 'nopass', 'resetkeys', '~x%d' % i, '+@see') == 'OK':
                        made.append(name.encode())
                except (RespError, OSError):
                    pass
        changer = threading.Thread(target=change)
        changer.start()
        try:
            wait_until(lambda: len(made) >= 3, 'changes')
            leader.kill()
            before = len(made)
            wait_until(lambda: len(made) >= before + 3, 'changes by the next leader')
        finally:
            stop.set()
            changer.join()
        users = ask_again(follower, 'ACL', 'USERS')
        self.assertLessEqual(set(made), set(users))

        # The node comes back empty, and has the users from a snapshot or the log.
        cluster.wipe(leader)
        cluster.replace(leader)
        leader.start()
        cluster.wait_serving(leader)
        wait_until(lambda: len(set(cluster.wait_same_state())) == 1, 'one state')
        self.assertEqual(sorted(leader.call('ACL', 'USERS')), sorted(users))
        self.assertError('NOPERM', self.login(leader, 'ann'), 'ACQUIRE', 'a2', 'TTL', TTL)


    def test_a_file_is_one_change(self):
        """Files take turns; whoever looks sees all of one, also when the leader is killed in the middle, and so does a node that
        comes back without its disk."""
        path = self.lab.path('users.acl')
        sets = [['user boss on nopass ~* +@all\n'] + ['user %s%03d on nopass ~%s* +@see\n' % (c, i, c) for i in range(150)]
                for c in 'ab']
        names = [{b'default'} | {line.split()[1].encode() for line in lines} for lines in sets]

        def put(n):
            with open(path + '.new', 'w') as f:
                f.writelines(sets[n])
            os.rename(path + '.new', path)
        put(0)
        cluster = Cluster(self.lab, 3, ['--aclfile', path]).start()
        leader, follower = cluster.leader(), cluster.followers()[0]

        def boss(node):
            c = node.client()
            self.addCleanup(c.close)
            try:
                return c if c.call('AUTH', 'boss', 'x') == 'OK' else None
            except RespError:
                return None
        loader, looker = (wait_until(lambda: boss(follower), 'users of the file') for _ in range(2))
        self.assertEqual(set(ask_again(looker, 'ACL', 'USERS')), names[0]) # the first ones came as a whole as well
        stop = threading.Event()
        loaded, seen, wrong = [], [], []

        def load():
            n = 0
            while not stop.is_set():
                n = 1 - n
                put(n)
                try:
                    loaded.append(loader.call('ACL', 'LOAD', timeout=PATIENCE_S))
                except RespError as e:
                    if e.word not in ('UNCERTAIN', 'NOLEADER'):
                        wrong.append(e.line)

        def look():
            while not stop.is_set():
                try:
                    users = set(looker.call('ACL', 'USERS', timeout=PATIENCE_S))
                except RespError as e:
                    if e.word not in ('UNCERTAIN', 'NOLEADER'):
                        wrong.append(e.line)
                    continue
                if users in names:
                    seen.append(names.index(users))
                else:
                    wrong.append('%d users, of neither file' % len(users))
        threads = [threading.Thread(target=f) for f in (load, look)]
        for t in threads:
            t.start()
        try:
            wait_until(lambda: len(loaded) >= 5, 'files that were loaded')
            leader.kill()
            before, looks = len(loaded), len(seen)
            wait_until(lambda: len(loaded) >= before + 5 and {0, 1} <= set(seen[looks:]), 'files that the next leader loaded')
        finally:
            stop.set()
            for t in threads:
                t.join()
        self.assertEqual(wrong, [])
        last = set(ask_again(looker, 'ACL', 'USERS'))
        self.assertIn(last, names)
        cluster.wipe(leader)
        c = wait_until(lambda: boss(cluster.leader()), 'the boss at the leader')
        wait_until(lambda: c.call('CLUSTER', 'REPLACE', leader.id) == 'OK', 'REPLACE')
        leader.start()
        cluster.wait_serving(leader)
        wait_until(lambda: len(set(cluster.wait_same_state())) == 1, 'one state')
        c = wait_until(lambda: boss(leader), 'the boss at the node that is back')
        self.assertEqual(set(ask_again(c, 'ACL', 'USERS')), last)


class Files(AclCase):
    def test_file_of_users(self):
        path = self.lab.path('users.acl')
        with open(path, 'w') as f:
            f.write('# users\nuser default off\nuser boss on >secret ~* +@all\n\nuser ann on nopass ~a* +@acquire\n')
        cluster = Cluster(self.lab, 1, ['--aclfile', path])
        node = cluster.nodes[0]
        node.launch()
        node.wait_ready()

        def boss():
            c = node.client()
            self.addCleanup(c.close)
            return c if c.call('AUTH', 'boss', 'secret') == 'OK' else None
        c = wait_until(boss, 'users of the file')
        with node.client() as stranger:
            self.assertError('NOAUTH', stranger, 'ACQUIRE', 'a', 'TTL', TTL)
        self.assertEqual(c.call('ACL', 'USERS'), [b'default', b'ann', b'boss']) # one list, by name
        c.call('ACL', 'SETUSER', 'bob', 'on', '>bobs', '~b', '+@see')
        real = self.lab.path('elsewhere.acl')
        os.rename(path, real)
        os.symlink(real, path)
        self.assertEqual(c.call('ACL', 'SAVE'), 'OK')
        self.assertTrue(os.path.islink(path))
        saved = open(real).read()
        self.assertNotIn('bobs', saved)
        self.assertNotIn('secret', saved)
        self.assertEqual(saved.splitlines(), [l.decode() for l in c.call('ACL', 'LIST')])
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path, 'a') as f:
            f.write('user eve on nopass ~e +@see\n')
        c.call('ACL', 'DELUSER', 'ann')
        c.call('ACL', 'SETUSER', 'zoe', 'on')
        self.assertEqual(c.call('ACL', 'LOAD'), 'OK')
        c = boss()
        self.assertEqual(sorted(c.call('ACL', 'USERS')), [b'ann', b'bob', b'boss', b'default', b'eve'])
        self.login(node, 'bob', 'bobs')
        with open(path, 'a') as f:
            f.write('user eve on\n')
        self.assertError('ERR', c, 'ACL', 'LOAD', text='users.acl:6')
        self.assertEqual(len(c.call('ACL', 'USERS')), 5)

    def test_more_users_than_a_cluster_keeps(self):
        path = self.lab.path('users.acl')
        many = ''.join('user u%04d on nopass ~%s +@see\n' % (i, 'a' * 200) for i in range(400))
        with open(path, 'w') as f:
            f.write('user boss on nopass ~* +@all\n')
        node = Cluster(self.lab, 1, ['--aclfile', path]).start().nodes[0]
        boss = node.client()
        self.addCleanup(boss.close)
        wait_until(lambda: boss.call('AUTH', 'boss', 'x') == 'OK', 'users of the file')
        with open(path, 'a') as f:
            f.write(many)
        text = self.assertError('ERR', boss, 'ACL', 'LOAD', text='48 KiB')
        self.assertRegex(text, r'users\.acl:2\d\d: ') # the line where it is too much, and what to do
        self.assertIn('one user', text)
        self.assertEqual(boss.call('ACL', 'USERS'), [b'default', b'boss'])
        check = subprocess.run([binary('fencelockd'), '--data', self.lab.path('d'), '--listen', '127.0.0.1:0', '--aclfile', path],
                               capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertNotEqual(check.returncode, 0)
        self.assertIn('48 KiB', check.stderr)

    def test_what_was_saved_can_be_loaded(self):
        """A user of more patterns than one command can bring, and more users than can be loaded."""
        path = self.lab.path('users.acl')
        with open(path, 'w') as f:
            f.write('user default on nopass ~* +@all\n')
        node = Cluster(self.lab, 1, ['--aclfile', path]).start().nodes[0]
        wait_until(lambda: ask_again(node, 'ACL', 'USERS') == [b'default'], 'users of the file')
        with node.client() as c:
            for first in 'abc':
                self.assertEqual(c.call('ACL', 'SETUSER', 'ann', *['~%s%d' % (first, i) for i in range(100, 200)]), 'OK')
            self.assertEqual(c.call('ACL', 'SAVE'), 'OK')
            self.assertEqual(c.call('ACL', 'LOAD'), 'OK')
            for first in range(0, 2048, 128):
                got = c.pipeline([('ACL', 'SETUSER', 'u%d' % i) for i in range(first, first + 128)], timeout=PATIENCE_S)
                self.assertEqual(set(got), {'OK'})
            with open(path) as f:
                before = f.read()
            self.assertError('ERR', c, 'ACL', 'SAVE', text='users.acl')
            with open(path) as f:
                self.assertEqual(f.read(), before)

    def test_a_disk_that_hangs_holds_up_no_login(self):
        """A pipe stands for a file that cannot be read at the moment."""
        path = self.lab.path('users.acl')
        text = 'user default on nopass ~* +@all\nuser ann on nopass ~a* +@see\n'
        with open(path, 'w') as f:
            f.write(text)
        node = Cluster(self.lab, 1, ['--aclfile', path]).start().nodes[0]
        wait_until(lambda: len(ask_again(node, 'ACL', 'USERS')) == 2, 'users of the file')
        os.unlink(path)
        os.mkfifo(path)
        with node.client(timeout=PATIENCE_S) as c, node.client(timeout=PATIENCE_S) as other:
            c.send('ACL', 'LOAD')
            pipe = wait_until(lambda: os.open(path, os.O_WRONLY | os.O_NONBLOCK), 'the node to read')
            try:
                self.assertEqual(other.call('AUTH', 'ann', 'x'), 'OK')
            finally:
                os.write(pipe, text.encode())
                os.close(pipe)
            self.assertEqual(c.read(), 'OK')

    def test_a_wrong_file_is_said_at_the_start(self):
        path = self.lab.path('users.acl')
        with open(path, 'w') as f:
            f.write('user ann on >secret foo\n')
        done = subprocess.run([binary('fencelockd'), '--data', self.lab.path('d'), '--listen', '127.0.0.1:0',
                               '--aclfile', path], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('users.acl:1', done.stderr)
        self.assertNotIn('secret', done.stderr)


if __name__ == '__main__':
    main()
