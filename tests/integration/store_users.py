#!/usr/bin/python3
"""Users of fencelock-store, from its aclfile: tries everything that a user may not do. And users by certificate, at both daemons."""

import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, RespError, Store, as_dict, binary, free_ports, main, wait_until
from login_flood import LoginFlood
from tls_lab import Certs, TlsResp
from wire_lab import served

USERS = '''# one of each
user writer on >writer-password ~a* +@write +@claim +@read
user reader on >reader-password ~a* +@read
user all on >all-password ~* +@all
user off off >off-password ~* +@all
'''


# Each command: the rights that it needs, and what it is tried with. The key belongs to the lock a1.
NEEDS = {
    'auth': ((), 'all', 'x'), 'claim': (('claim',), 'a1', 5), 'client|getname': ((),), 'client|id': ((),),
    'client|info': ((),), 'client|list': (('admin',),), 'client|setinfo': ((), 'lib-name', 'x'), 'client|setname': ((), 'x'),
    'client|tracking': ((), 'OFF'), 'command|count': ((),), 'command|docs': ((), 'get'), 'command|info': ((), 'get'), 'command|list': ((),),
    'del': (('write',), 'none', 'FENCE', 'a1', 5), 'echo': ((), 'x'), 'get': (('read', 'claim'), 'key', 'FENCE', 'a1', 5), 'hello': ((), 2),
    'info': (('admin',),), 'mark': (('read',), 'a1'), 'ping': ((),), 'quit': ((),), 'reset': ((),), 'select': ((), 0),
    'set': (('write',), 'key', 'v', 'FENCE', 'a1', 5),
}
RIGHTS = ('read', 'write', 'claim', 'admin')


class FileUsers(Case):
    def lacks(self, store, user, name):
        """The right that the user is told to lack; None: it has all."""
        with store.client(PATIENCE_S) as c:
            self.assertEqual(c.call('AUTH', user, 'x'), 'OK')
            try:
                c.call(*name.split('|'), *NEEDS[name][1:])
            except RespError as e:
                self.assertIn(e.word, ('NOPERM', 'BUSY'), (user, name, e.line))
                return e.line.split('@')[1].split()[0] if e.word == 'NOPERM' else None
            return None

    def test_each_command_asks_for_its_rights_and_for_no_others(self):
        lines = ['user without-%s on nopass ~* +@all -@%s\n' % (r, r) for r in RIGHTS]
        lines += ['user only-%s on nopass ~* %s\n' % (name.replace('|', '-'), ' '.join('+@' + r for r in needs[0])) for name, needs in NEEDS.items()]
        store = self.store(''.join(lines) + 'user all on nopass ~* +@all\n')
        with store.client() as c:
            c.call('AUTH', 'all', 'x')
            self.assertEqual(c.call('SET', 'key', 'v', 'FENCE', 'a1', 5), 'OK')
            self.assertEqual(served(c), set(NEEDS), 'say here what a new command needs')
        for name, (needs, *_) in NEEDS.items():
            with self.subTest(name):
                self.assertIsNone(self.lacks(store, 'only-' + name.replace('|', '-'), name))
                for right in RIGHTS:
                    self.assertEqual(self.lacks(store, 'without-' + right, name), right if right in needs else None)

    def store(self, text=USERS, *more):
        self.path = self.lab.path('users.acl')
        self.write(text)
        store = Store(self.lab)
        store.start('--aclfile', self.path, *more)
        return store

    def write(self, text):
        with open(self.path, 'w', encoding='utf-8') as f:
            f.write(text)

    def login(self, store, user):
        c = store.client(60) # a busy machine takes its time for a password's hash
        self.addCleanup(c.close)
        self.assertEqual(c.call('AUTH', user, user + '-password'), 'OK')
        return c

    def test_each_right_and_each_name(self):
        store = self.store()
        nobody, writer, reader, boss = store.client(), *(self.login(store, u) for u in ('writer', 'reader', 'all'))
        self.addCleanup(nobody.close)
        for command in (('CLAIM', 'a1', 5), ('GET', 'k'), ('GET', 'k', 'FENCE', 'a1', 5), ('MARK', 'a1'), ('INFO',),
                        ('SET', 'k', 'v', 'FENCE', 'a1', 5), ('SET', 'k', 'v'), ('DEL', 'k', 'FENCE', 'a1', 5), ('HELLO', 3),
                        ('PING',), ('CLIENT', 'LIST')):
            self.assertError('NOAUTH', nobody, *command)
        self.assertEqual(writer.call('CLAIM', 'a1', 5), 'OK')
        self.assertEqual(writer.call('GET', 'k', 'FENCE', 'a1', 5), None)
        self.assertEqual(writer.call('SET', 'k', 'v', 'FENCE', 'a1', 5), 'OK')
        self.assertEqual(boss.call('SET', 'other', 'w', 'FENCE', 'b1', 5), 'OK')
        for command, right in ((('CLAIM', 'b1', 9), '@claim'), (('SET', 'n', 'v', 'FENCE', 'b1', 9), '@write'),
                               (('DEL', 'other', 'FENCE', 'b1', 9), '@write'), (('MARK', 'b1'), '@read'),
                               (('GET', 'other'), '@read'), (('GET', 'nothing'), '@read'), (('INFO',), '@admin'),
                               (('GET', 'other', 'FENCE', 'b1', 9), '@read'), (('CLIENT', 'LIST'), '@admin')):
            self.assertError('NOPERM', writer, *command, text=right)
        for command, right in ((('CLAIM', 'a1', 9), '@claim'), (('SET', 'k', 'w', 'FENCE', 'a1', 9), '@write'),
                               (('GET', 'k', 'FENCE', 'a1', 9), '@claim')):
            self.assertError('NOPERM', reader, *command, text=right)
        self.assertEqual((reader.call('GET', 'k'), reader.call('MARK', 'a1')), (b'v', 5))
        self.assertEqual((boss.call('MARK', 'b1'), boss.call('GET', 'nothing')), (5, None))
        self.assertError('NOTOKEN', writer, 'SET', 'k', 'v')
        # Whose key it is is told to those who may read that lock.
        self.assertNotIn('b1', self.assertError('WRONGLOCK', writer, 'SET', 'other', 'v', 'FENCE', 'a1', 5))
        self.assertError('WRONGLOCK', boss, 'SET', 'other', 'v', 'FENCE', 'a1', 5, text='b1')
        self.assertIn(b'user=writer', boss.call('CLIENT', 'LIST'))
        self.assertGreater(int(store_info(boss)['requests_denied']), 10)

    def test_logging_in(self):
        store = self.store()
        with store.client() as c:
            self.assertError('WRONGPASS', c, 'AUTH', 'writer', 'wrong')
            self.assertError('WRONGPASS', c, 'AUTH', 'nobody', 'writer-password')
            self.assertError('WRONGPASS', c, 'AUTH', 'off', 'off-password')
            self.assertError('NOAUTH', c, 'MARK', 'a1')
            self.assertEqual(as_dict(c.call('HELLO', 2, 'AUTH', 'reader', 'reader-password'))['server'],
                             'fencelock-store')
            self.assertEqual(c.call('MARK', 'a1'), 0)
        with store.client() as c: # what stands behind AUTH is done by the user
            answers = c.pipeline([('AUTH', 'all', 'all-password'), ('SET', 'k', 'v', 'FENCE', 'a1', 1), ('GET', 'k')])
            self.assertEqual(answers, ['OK', 'OK', b'v'])
        for _ in range(20): # cut off in the middle of it
            with store.client() as c:
                c.send('AUTH', 'all', 'all-password')
        with self.login(store, 'all') as c:
            self.assertEqual(int(store_info(c)['login_failures']), 3)

    def test_many_logins_of_one_address_leave_room_for_others(self):
        store = self.store()
        with LoginFlood(store.address, '127.0.0.2', 400, 'reader', 'reader-password') as flood:
            flood.wait_until_refused()
            for _ in range(5):
                self.login(store, 'all')

    def test_a_file_that_is_read_again(self):
        store = self.store()
        writer, boss = self.login(store, 'writer'), self.login(store, 'all')
        self.write(USERS.replace('+@write +@claim', '+@claim') + 'what is this\n')
        store.process.signal(signal.SIGHUP)
        store.process.wait_output('the old users stay')
        self.assertEqual(writer.call('SET', 'k', 'v', 'FENCE', 'a1', 5), 'OK')
        # Passwords that stand there in clear are hashed anew: their users log in again.
        self.write(USERS.replace('>writer-password', 'nopass'))
        store.process.signal(signal.SIGHUP)
        store.process.wait_output('read again')
        for c in (writer, boss):
            self.assertError('NOAUTH', c, 'MARK', 'a1')
        writer = self.login(store, 'writer')
        self.write(USERS.replace('>writer-password', 'nopass').replace('+@write +@claim', '+@claim'))
        store.process.signal(signal.SIGHUP)
        def lost():
            try:
                return writer.call('SET', 'k', 'v', 'FENCE', 'a1', 5) is None
            except RespError as e:
                return e.word == 'NOPERM'
        wait_until(lost, 'a right that is gone')
        self.assertEqual(writer.call('CLAIM', 'a1', 6), 'OK')
        for text in ('', USERS[:-1]): # cut off
            self.write(text)
            store.process.signal(signal.SIGHUP)
            store.process.wait_output('may have been cut off')
        self.assertEqual(writer.call('CLAIM', 'a1', 7), 'OK')
        self.write(USERS.replace('user writer', '#'))
        store.process.signal(signal.SIGHUP)
        wait_until(lambda: self.is_nobody(writer), 'a user that is gone')

    def is_nobody(self, c):
        try:
            c.call('MARK', 'a1')
        except RespError as e:
            return e.word == 'NOAUTH'
        return False

    def test_a_default_user_in_the_file(self):
        store = self.store('user default on nopass ~a* +@read\n')
        with store.client() as c:
            self.assertEqual(c.call('MARK', 'a1'), 0)
            self.assertError('NOPERM', c, 'MARK', 'b1', text='@read')

    def test_a_default_user_with_a_password(self):
        store = self.store('user default on >default-password ~* +@all\n')
        with store.client(60) as c:
            for command in (('CLAIM', 'a1', 5), ('GET', 'k'), ('MARK', 'a1'), ('SET', 'k', 'v', 'FENCE', 'a1', 5), ('INFO',),
                            ('CLIENT', 'LIST'), ('PING',)):
                self.assertError('NOAUTH', c, *command)
            self.assertError('WRONGPASS', c, 'AUTH', 'wrong')
            self.assertEqual(c.call('AUTH', 'default-password'), 'OK')
            self.assertEqual(c.call('SET', 'k', 'v', 'FENCE', 'a1', 5), 'OK')
            self.assertIn(b'user=default', c.call('CLIENT', 'LIST'))
            self.assertEqual(c.call('RESET'), 'RESET')
            self.assertError('NOAUTH', c, 'MARK', 'a1')
        logged_in = self.login(store, 'default')
        self.write('user default on >another-password ~* +@all\n')
        store.process.signal(signal.SIGHUP)
        store.process.wait_output('read again')
        self.assertError('NOAUTH', logged_in, 'MARK', 'a1')

    def test_the_tool(self):
        store = self.store()
        def tool(*words, user='writer'):
            env = dict(os.environ, FENCELOCK_USER=user, FENCELOCK_PASSWORD=user + '-password')
            done = subprocess.run([binary('fencelock'), 'store', *words, '--store', store.address, '--timeout', '1h'],
                                  capture_output=True, text=True, timeout=PATIENCE_S, env=env)
            return done.returncode, done.stdout.strip(), done.stderr
        fence = ('--lock', 'a1', '--token', '5')
        self.assertEqual(tool('claim', *fence)[0], 0)
        self.assertEqual(tool('set', 'k', 'v', *fence)[0], 0)
        self.assertEqual(tool('get', 'k', user='reader')[:2], (0, 'v'))
        code, _, error = tool('set', 'k', 'w', *fence, user='reader')
        self.assertEqual(code, 1)
        self.assertIn('@write', error)
        code, _, error = tool('get', 'k', user='nobody') # at once
        self.assertEqual(code, 1)
        self.assertIn('WRONGPASS', error)
        plain = Store(self.lab, 'plain') # one without users serves who names one
        plain.start()
        done = subprocess.run([binary('fencelock'), 'store', 'mark', '--lock', 'x', '--store', plain.address, '--timeout', '1h'],
                              env=dict(os.environ, FENCELOCK_USER='u', FENCELOCK_PASSWORD='p'), capture_output=True,
                              text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, '0'), done.stderr)

    def test_wrong_files_are_said_at_the_start(self):
        path = self.lab.path('bad.acl')
        for text, says in ((None, 'No such file'), ('user a on +@see\n', 'bad.acl:1: '), ('nonsense\n', 'bad.acl:1: ')):
            if text is not None:
                with open(path, 'w', encoding='utf-8') as f:
                    f.write(text)
            done = subprocess.run([binary('fencelock-store'), '--data', self.lab.path('d'), '--listen', '127.0.0.1:0',
                                   '--aclfile', path], capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn('--aclfile: ', done.stderr)
            self.assertIn(says, done.stderr)


class StrictAsAUser(Case):
    def test_checks_are_asked_by_a_user(self):
        """A cluster that tells nobody anything who has not logged in."""
        cluster = Cluster(self.lab, 1).start()
        node = cluster.nodes[0]
        self.assertEqual(node.call('ACL', 'SETUSER', 'store', 'on', '>store-password', '~a*', '+@see'), 'OK')
        self.assertEqual(node.call('ACL', 'SETUSER', 'ann', 'on', '>ann-password', '~*', '+@all'), 'OK')
        ann = node.client()
        self.addCleanup(ann.close)
        ann.call('AUTH', 'ann', 'ann-password')
        self.assertEqual(ann.call('ACL', 'SETUSER', 'default', 'off'), 'OK')
        token, other = ann.call('ACQUIRE', 'a1', 'TTL', 600000), ann.call('ACQUIRE', 'b1', 'TTL', 600000)
        def store(name, password, timeout_ms):
            path = self.lab.path(name + '.password')
            with open(path, 'w', encoding='utf-8') as f:
                f.write(password + '\n')
            s = Store(self.lab, name)
            s.start('--strict', node.address, '--strict-timeout', timeout_ms, '--strict-user', 'store', '--strict-password-file', path)
            return s
        good = store('good', 'store-password', '60000')
        with good.client() as c:
            answers = c.pipeline([('CLAIM', 'a1', token), ('SET', 'k', 'v', 'FENCE', 'a1', token), ('GET', 'k', 'FENCE', 'a1', token)])
            self.assertEqual(answers, ['OK', 'OK', b'v'])
            self.assertError('NOTHELD', c, 'CLAIM', 'a1', token + 5)
            self.assertError('UNCHECKED', c, 'CLAIM', 'b1', other) # it may not see that lock
            self.assertEqual(c.call('CLAIM', 'a1', token), 'OK')
        bad = store('bad', 'wrong', '500')
        with bad.client() as c:
            self.assertError('UNCHECKED', c, 'CLAIM', 'a1', token)
            self.assertEqual(c.call('MARK', 'a1'), 0)
        waits = store('waits', 'wrong', '60000') # a login takes its time, and only who waits for it hears that it is refused
        with waits.client() as c:
            c.send('CLAIM', 'a1', token)
            waits.process.wait_output('the login is refused')
        for words in (('--strict-user', 'x'), ('--strict-password-file', '/nothing')):
            done = subprocess.run([binary('fencelock-store'), '--data', self.lab.path('d'), '--listen', '127.0.0.1:0', *words],
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn('go together', done.stderr)


def store_info(c):
    text = c.call('INFO')
    return dict(line.split(':', 1) for line in text.decode().splitlines() if ':' in line)


class CertificateUsers(Case):
    def setUp(self):
        super().setUp()
        self.certs = Certs(self.lab)
        self.certs.make('server', 'server', '127.0.0.1')
        for name in ('ann', 'ben'):
            self.certs.make('client', name)
        self.port = free_ports(1)[0]
        self.address = '127.0.0.1:%d' % self.port

    def as_user(self, name):
        c = TlsResp(self.address, self.certs.context(name))
        self.addCleanup(c.close)
        return c

    def test_an_alternative_name(self):
        """The first that is no address: bytes of other kinds name nobody."""
        path = self.lab.path('users.acl')
        with open(path, 'w', encoding='utf-8') as f:
            f.write('user ann@example.org on ~a* +@claim\nuser ann on ~* +@all\nuser spiffe://x/ben on ~b* +@claim\n'
                    'user default on nopass ~* +@all\n')
        for name, san in (('ann', 'IP:10.0.0.1,email:ann@example.org,DNS:ann'), ('ben', 'URI:spiffe://x/ben'), ('cid', None)):
            self.sign(name, san)
        store = Store(self.lab)
        store.start('--aclfile', path, '--tls-auth-clients-user', 'SAN', *self.certs.daemon(tls_port=str(self.port)))
        self.assertEqual(self.as_user('ann').call('CLAIM', 'a1', 1), 'OK')
        self.assertError('NOPERM', self.as_user('ann'), 'CLAIM', 'b1', 1)
        self.assertEqual(self.as_user('ben').call('CLAIM', 'b1', 1), 'OK')
        self.assertError('NOAUTH', self.as_user('cid'), 'CLAIM', 'a1', 1)

    def sign(self, name, san):
        """Replaces a client's certificate by one with these alternative names."""
        at = self.lab.path(name)
        with open(at + '.ext', 'w', encoding='utf-8') as f:
            f.write('extendedKeyUsage=clientAuth\n' + ('subjectAltName=%s\n' % san if san else ''))
        def openssl(*words):
            subprocess.run(['openssl', *words], check=True, capture_output=True)
        if not os.path.exists(self.certs.key(name)):
            self.certs.make('client', name)
        openssl('req', '-new', '-key', self.certs.key(name), '-subj', '/CN=' + name, '-out', at + '.csr')
        openssl('x509', '-req', '-in', at + '.csr', '-CA', self.certs.crt('ca'), '-CAkey', self.certs.key('ca'), '-days', '2',
                '-CAcreateserial', '-extfile', at + '.ext', '-out', self.certs.crt(name))

    def test_at_the_lock_service(self):
        cluster = Cluster(self.lab, 1, self.certs.daemon(tls_port=str(self.port), tls_auth_clients_user='CN'))
        node = cluster.start().nodes[0]
        self.assertEqual(node.call('ACL', 'SETUSER', 'ann', 'on', 'resetpass', '~a*', '+@acquire', '+@see'), 'OK')
        self.certs.make('client', 'boss')
        self.assertEqual(node.call('ACL', 'SETUSER', 'boss', 'on', 'resetpass', '~*', '+@all'), 'OK')
        # Of a user without a password the cluster does not know that it can log in, until it has.
        self.assertError('ERR', node, 'ACL', 'SETUSER', 'default', '-@all', '+@see')
        boss = self.as_user('boss')
        self.assertEqual(boss.call('ACL', 'SETUSER', 'default', '-@all', '+@see'), 'OK')
        ann = self.as_user('ann')
        self.assertEqual(ann.call('ACL', 'WHOAMI'), b'ann')
        self.assertGreater(ann.call('ACQUIRE', 'a1', 'TTL', 60000), 0)
        self.assertError('NOPERM', ann, 'ACQUIRE', 'b1', 'TTL', 60000)
        ben = self.as_user('ben') # a certificate of the same CA, and no such user: nobody, until it logs in
        for command in (('ACL', 'WHOAMI'), ('ACQUIRE', 'a2', 'TTL', 60000), ('INFO',), ('HELLO', 3), ('RESET',), ('SHOW', 'a1')):
            if command == ('RESET',):
                self.assertEqual(ben.call('RESET'), 'RESET')
            else:
                self.assertError('NOAUTH', ben, *command)
        # Without a password of its own nobody else is that user.
        for password in ('', 'ann'):
            self.assertError('WRONGPASS', ben, 'AUTH', 'ann', password)
        # RESET goes back to the certificate's user, and one that is off is not raised to the default user.
        self.assertEqual(ann.call('RESET'), 'RESET')
        self.assertEqual(ann.call('ACL', 'WHOAMI'), b'ann')
        before = self.as_user('ann')
        self.assertEqual(boss.call('ACL', 'SETUSER', 'ann', 'off'), 'OK')
        for c in (ann, self.as_user('ann')):
            for again in range(2):
                for command in (('ACQUIRE', 'a3', 'TTL', 60000), ('INFO',), ('SHOW', 'a1'), ('SUBSCRIBE', 'lock:a1')):
                    self.assertError('NOAUTH', c, *command)
                self.assertEqual(c.call('RESET'), 'RESET')
        self.assertEqual(boss.call('ACL', 'SETUSER', 'ann', 'on'), 'OK')
        self.assertError('NOAUTH', before, 'ACL', 'WHOAMI') # its login is over
        self.assertEqual(before.call('RESET'), 'RESET')
        for c in (before, ann, self.as_user('ann')):
            self.assertEqual(c.call('ACL', 'WHOAMI'), b'ann')
        # Nor does a user rise to the default user when it is deleted; and it can log in as another.
        self.assertEqual(boss.call('ACL', 'DELUSER', 'ann'), 1)
        self.assertEqual(boss.call('ACL', 'SETUSER', 'cid', 'on', '>cid-password'), 'OK')
        for c in (ann, self.as_user('ann')):
            for again in range(2):
                self.assertError('NOAUTH', c, 'SHOW', 'a1')
                self.assertEqual(c.call('RESET'), 'RESET')
            self.assertEqual(c.call('AUTH', 'cid', 'cid-password'), 'OK')
            self.assertEqual(c.call('ACL', 'WHOAMI'), b'cid')

    def test_at_the_storage(self):
        path = self.lab.path('users.acl')
        with open(path, 'w', encoding='utf-8') as f:
            f.write('user ann on ~a* +@read +@write +@claim\nuser cid off ~* +@all\n')
        store = Store(self.lab)
        store.start('--aclfile', path, '--tls-auth-clients-user', 'CN',
                    *self.certs.daemon(tls_port=str(self.port)))
        ann = self.as_user('ann')
        self.assertEqual(ann.call('CLAIM', 'a1', 1), 'OK')
        self.assertError('NOPERM', ann, 'CLAIM', 'b1', 1)
        self.certs.make('client', 'cid')
        for name in ('ben', 'cid'):
            self.assertError('NOAUTH', self.as_user(name), 'CLAIM', 'a1', 1)
        # Where there is a default user, one that is off is not it; and RESET goes back to one's own.
        with open(path, 'w', encoding='utf-8') as f:
            f.write('user ann on ~a* +@read\nuser cid off ~* +@all\nuser default on nopass ~* +@all\n')
        store.process.signal(signal.SIGHUP)
        store.process.wait_output('read again')
        ben, cid, ann = map(self.as_user, ('ben', 'cid', 'ann')) # there is no user ben
        for again in range(2):
            for c in (ben, cid):
                self.assertError('NOAUTH', c, 'CLAIM', 'b1', 1)
            self.assertError('NOPERM', ann, 'CLAIM', 'a1', 1)
            self.assertEqual([c.call('RESET') for c in (ben, cid, ann)], ['RESET'] * 3)
        self.assertError('WRONGPASS', self.as_user('ben'), 'AUTH', 'ann', '')


if __name__ == '__main__':
    main()
