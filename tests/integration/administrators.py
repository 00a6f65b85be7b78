#!/usr/bin/python3
"""What would leave nobody who can change users: it is refused, at every way in; and the way out, when nobody can log in."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from acl import AclCase
from harness import PATIENCE_S, RespError, binary, main, wait_until


class LastAdministrator(AclCase):
    """Users are in the log: what left nobody who can change them could not be undone."""
    LAST = 'nobody who can log in would have @admin'

    def test_nobody_can_take_it_from_all(self):
        path = self.lab.path('users.acl')
        with open(path, 'w') as f:
            f.write('user boss on >boss-password ~* +@all\n')
        node = self.cluster(1, '--aclfile', path).nodes[0]
        boss = wait_until(lambda: self.login_or_none(node, 'boss'), 'users of the file')
        self.assertEqual(boss.call('ACL', 'SETUSER', 'default', 'off'), 'OK')
        self.assertEqual(boss.call('ACL', 'SETUSER', 'ann', 'on', '>ann-password', '~*', '+@acquire'), 'OK')
        for words in ((), ('-@admin',), ('off',), ('resetpass',), ('reset',)):
            if words:
                self.assertError('ERR', boss, 'ACL', 'SETUSER', 'boss', *words, text=self.LAST)
        self.assertError('ERR', boss, 'ACL', 'DELUSER', 'ann', 'boss', text='1 other was deleted')
        self.assertError('ERR', boss, 'ACL', 'DELUSER', 'boss', 'default', text="'default' cannot be deleted")
        for text, says in (('', 'names none'), ('# none\n', 'names none'), ('user default off\n', self.LAST),
                           ('user default off\nuser boss on >boss-password ~* +@all -@admin\n', self.LAST),
                           ('user default off\nuser boss on >boss-password ~* +@all', 'has no end')):
            with open(path, 'w') as f:
                f.write(text)
            self.assertError('ERR', boss, 'ACL', 'LOAD', text=says)
            self.assertEqual(boss.call('ACL', 'USERS'), [b'default', b'boss'], text)
        self.assertEqual(self.login(node, 'boss').call('ACL', 'WHOAMI'), b'boss')

    def login_or_none(self, node, user):
        try:
            return self.login(node, user)
        except RespError:
            return None

    def test_two_at_one_moment(self):
        """Each would leave the other, through different nodes: one of them stays."""
        cluster = self.cluster(3)
        cluster.steady()
        node = cluster.nodes[0]
        for name in ('ann', 'bob'):
            self.assertEqual(node.call('ACL', 'SETUSER', name, 'on', 'nopass', '~*', '+@all'), 'OK')
        users = [(name, self.login(n, name)) for name, n in zip(('ann', 'bob'), cluster.nodes[1:])]
        self.assertEqual(users[0][1].call('ACL', 'SETUSER', 'default', 'off'), 'OK')
        for _ in range(10):
            for name, c in users:
                c.send('ACL', 'SETUSER', name, '-@admin')
            left = []
            for name, c in users:
                answer = c.read()
                if answer != 'OK':
                    self.assertIn(self.LAST, answer.line)
                    left.append((name, c))
            self.assertEqual(len(left), 1)
            for name, _ in users:
                self.assertEqual(left[0][1].call('ACL', 'SETUSER', name, '+@admin'), 'OK')
            for _, c in users: # a node that has not heard of it yet would refuse it early
                wait_until(lambda: self.may_administer(c), 'the right, at its node')

    def may_administer(self, c):
        try:
            return c.call('CLIENT', 'LIST') is not None
        except RespError:
            return False

    def test_a_file_without_one_is_refused_at_the_start(self):
        path = self.lab.path('users.acl')
        for text, ends in (('user default off\nuser bob on >p ~* +@acquire\n', 'nobody could ever change users'),
                           ('user default off\nuser bob on ~* +@all\n', 'nobody could ever change users'),
                           ('user default off\nuser bob on >p ~* +@all', 'end it with a newline')):
            with open(path, 'w') as f:
                f.write(text)
            for more in ([], ['--check']):
                done = subprocess.run([binary('fencelockd'), '--data', self.lab.path('d'), '--listen', '127.0.0.1:0', '--aclfile', path, *more],
                                      capture_output=True, text=True, timeout=PATIENCE_S)
                self.assertNotEqual(done.returncode, 0, text)
                self.assertIn(ends, done.stdout + done.stderr)

    def test_a_new_cluster_without_the_old_users(self):
        """When nobody can log in any more, and nobody knows a password."""
        cluster = self.cluster(1)
        node = cluster.nodes[0]
        node.call('ACL', 'SETUSER', 'boss', 'on', '>forgotten', '~*', '+@all')
        with node.client() as boss:
            boss.call('AUTH', 'boss', 'forgotten')
            boss.call('ACL', 'SETUSER', 'default', 'off')
        node.terminate()
        path, new = self.lab.path('users.acl'), self.lab.path('new')
        with open(path, 'w') as f:
            f.write('user default off\nuser next on >next-password ~* +@all\n')
        begin = [binary('fencelockd'), '--recover-from', node.data, '--tokens-above', '9', '--data', new, '--id', '1',
                 *node.membership_args(), '--reset-users']
        done = subprocess.run(begin, capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('WARNING: the new cluster has NO users of the old one', done.stderr)
        node.data = new
        node.extra = ['--aclfile', path]
        node.launch()
        node.wait_ready()
        c = wait_until(lambda: self.login_or_none(node, 'next'), 'users of the file')
        self.assertEqual(c.call('ACL', 'USERS'), [b'default', b'next'])
        self.assertError('WRONGPASS', c, 'AUTH', 'boss', 'forgotten')
        refused = subprocess.run([*begin[:1], '--reset-users'], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertIn('--reset-users has no effect without --restore', refused.stderr)

if __name__ == '__main__':
    main()
