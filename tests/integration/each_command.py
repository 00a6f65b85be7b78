#!/usr/bin/python3
"""Each command of the table: the right that it asks for, and that nothing of it is done in a transaction."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from acl import AclCase
from harness import PATIENCE_S, RespError, Store, as_dict, ask_again, main
from wire_lab import form_texts, served, sha1

TTL = 600000
OWNER = 'owner-0123456789ab'
RELEASE = form_texts()['release']
# Each command: the right that it needs, and what it is tried with. `held` is somebody else's, token 1.
NEEDS = {
    'acl|cat': (None,), 'acl|deluser': ('admin', 'nobody'), 'acl|getuser': ('admin', 'nobody'), 'acl|list': ('admin',), 'acl|load': ('admin',),
    'acl|save': ('admin',), 'acl|setuser': ('admin', 'nobody'), 'acl|users': ('admin',), 'acl|whoami': (None,),
    'acquire': ('acquire', 'held'), 'auth': (None, 'default', 'x'), 'blpop': ('see', 'lock-signal:held', 0.001), 'break': ('break', 'held'),
    'check': ('see', 'held', 1), 'client|getname': (None,), 'client|id': (None,), 'client|info': (None,), 'client|list': ('admin',),
    'client|setinfo': (None, 'lib-name', 'x'), 'client|setname': (None, 'x'), 'client|tracking': (None, 'OFF'),
    'cluster|add': ('admin', 9, '127.0.0.1:1', 'x'), 'cluster|backup': ('admin',), 'cluster|config': ('admin', 'GET'),
    'cluster|info': (None,), 'cluster|move': ('admin', 9, '127.0.0.1:1'), 'cluster|members': (None,), 'cluster|remove': ('admin', 9),
    'cluster|replace': ('admin', 9), 'cluster|transfer': ('admin', 9), 'command|count': (None,), 'command|docs': (None, 'get'),
    'command|info': (None, 'get'), 'command|list': (None,), 'del': ('break', 'held'), 'delex': ('acquire', 'held', 'IFEQ', 'x'),
    'delifeq': ('acquire', 'held', 'x'), 'echo': (None, 'x'), 'eval': ('acquire', RELEASE, 1, 'held', 'x'),
    'evalsha': ('acquire', sha1(RELEASE), 1, 'held', 'x'), 'exists': ('see', 'held'), 'get': ('see', 'held'), 'hello': (None, 2),
    'hexists': ('see', 'held', 'mine'), 'hget': ('see', 'held', 'mine'), 'info': (None,), 'leader': (None,), 'locks': ('see',),
    'locktoken': ('see', 'held', 'mine'), 'pexpire': ('break', 'held', TTL), 'ping': (None,), 'psubscribe': ('see', 'lock:*'), 'pttl': ('see', 'held'),
    'punsubscribe': (None,), 'quit': (None,), 'release': ('acquire', 'free', 1), 'renew': ('acquire', 'held', 1), 'reset': (None,),
    'script|exists': (None, '0' * 40), 'script|flush': (None,), 'script|load': (None, RELEASE), 'select': (None, 0), 'sentinel': (None, 'MASTERS'),
    'session|close': (None, OWNER), 'session|list': (None,), 'session|open': ('acquire', OWNER, 'TTL', 1000), 'session|renew': ('acquire', OWNER),
    'session|show': (None, OWNER), 'set': ('acquire', 'held', 'x', 'NX'), 'show': ('see', 'held'), 'subscribe': ('see', 'lock:held'),
    'token': ('token', 'held'), 'ttl': ('see', 'held'), 'unlink': ('break', 'held'), 'unsubscribe': (None,),
}
RIGHTS = ('see', 'acquire', 'token', 'break', 'admin')
EITHER = {'blpop'} # @acquire is enough for these: who may take the lock may wait for it


class Table(AclCase):
    def refused_right(self, node, user, name):
        """The right that the user is told to lack; None when the command goes further."""
        with node.client(timeout=PATIENCE_S) as c:
            self.assertEqual(c.call('AUTH', user, 'x'), 'OK')
            try:
                c.call(*name.split('|'), *NEEDS[name][1:])
            except RespError as e:
                found = re.match(r'NOPERM .*@(\w+)', e.line)
                self.assertTrue(found or e.word not in ('NOPERM', 'NOAUTH'), (user, name, e.line))
                return found and found[1]
            return None

    def test_each_command_asks_for_its_right_and_for_no_other(self):
        node = self.cluster(1, '--front-door-del', 'yes').nodes[0]
        node.call('SET', 'held', 'mine', 'NX', 'PX', TTL)
        self.assertEqual(served(node), set(NEEDS), 'say here what a new command needs')
        node.call('ACL', 'SETUSER', 'no', 'on', 'nopass', '~*')
        for right in RIGHTS:
            node.call('ACL', 'SETUSER', 'only-' + right, 'on', 'nopass', '~*', '+@' + right)
            node.call('ACL', 'SETUSER', 'without-' + right, 'on', 'nopass', '~*', '+@all', '-@' + right)
        for name, (right, *_) in NEEDS.items():
            with self.subTest(name):
                self.assertEqual(self.refused_right(node, 'no', name), right)
        # Those that break locks and change the cluster come last: until then all is there.
        for right in RIGHTS:
            for name in (n for n, needs in NEEDS.items() if needs[0] == right):
                with self.subTest(name, right=right):
                    self.assertEqual(self.refused_right(node, 'without-' + right, name), None if name in EITHER else right)
        for right in RIGHTS:
            for name in (n for n, needs in NEEDS.items() if needs[0] == right):
                with self.subTest(name, only=right):
                    self.assertIsNone(self.refused_right(node, 'only-' + right, name))


class Relayed(AclCase):
    def test_each_command_at_a_follower_has_an_answer(self):
        """The leader ends the stream of a node that passes on what none may: then all of its commands are UNCERTAIN."""
        cluster = self.cluster(3, '--front-door-del', 'yes')
        follower = cluster.followers()[0]
        ask_again(follower, 'SET', 'held', 'mine', 'NX', 'PX', TTL)
        settings = as_dict(ask_again(follower, 'CLUSTER', 'CONFIG', 'GET'))
        more = [('CLUSTER', 'CONFIG', 'SET', name, value) for name, value in settings.items()]
        more += [('ACL', 'SETUSER', 'somebody', 'on', 'nopass'), ('ACL', 'DELUSER', 'somebody')]
        for words in [(*name.split('|'), *NEEDS[name][1:]) for name in NEEDS] + more:
            with self.subTest(words), follower.client(timeout=PATIENCE_S) as c:
                try:
                    c.call(*words)
                except RespError as e:
                    self.assertTrue(e.word != 'UNCERTAIN' and (e.word != 'NOLEADER' or 'send it to the leader' in str(e)), e)


class Transactions(AclCase):
    def test_nothing_of_a_transaction_is_done(self):
        """As Redis answers one whose commands it refuses, at both daemons, so that no client loses count of the answers."""
        node = self.cluster().nodes[0]
        store = Store(self.lab).start()
        for server, write, read in ((node, ('SET', 'k', OWNER, 'NX'), ('GET', 'k')), (store, ('SET', 'k', 'v', 'FENCE', 'l', 5), ('GET', 'k'))):
            with server.client() as c:
                got = []
                for command in (('multi',), write, ('nonsense',), ('MULTI',), ('exec', 'x'), write[:1], ('EXEC',), read, ('EXEC',), ('DISCARD',)):
                    try:
                        got.append(c.call(*command))
                    except RespError as e:
                        got.append(e.word)
                # EXEC ends it, whatever stands behind it: else a mistake would leave it open.
                self.assertEqual(got, ['OK', 'ERR', 'ERR', 'ERR', 'EXECABORT', 'ERR', 'ERR', None, 'ERR', 'ERR'])
                self.assertEqual(c.call('MULTI'), 'OK')
                self.assertError('ERR', c, *write, text='send the commands without MULTI')
                self.assertEqual([c.call('DISCARD'), c.call(*read), c.call('MULTI'), c.call('RESET'), c.call(*read)], ['OK', None, 'OK', 'RESET', None])
                self.assertEqual(c.call(*write), 'OK')
                self.assertEqual([c.call('MULTI'), c.call('QUIT')], ['OK', 'OK'])

if __name__ == '__main__':
    main()
