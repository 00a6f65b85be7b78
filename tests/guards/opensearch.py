#!/usr/bin/python3
"""OpenSearch (and so Elasticsearch) as a storage that fences, in the two ways that its users try. There is no guard of ours for it: this is what docs/FENCING.md
says of it, run. FENCELOCK_OPENSEARCH: a distribution, unpacked; FENCELOCK_JAVA: the home of the Java that it needs, if not the usual one.

External: the token is the document's version (external_gte). Right for writes, and there is no claim that loses nothing.
Compared: the token stands in the document, and each write names the sequence number that was read. It holds."""

import http.client
import json
import os
import shutil
import sys
import unittest
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', '..', 'src', 'guards', 'kit')]
from guardkit.storage import Refused, Storage, Unknown
from guardkit.suite import TOKEN_MAX, Suite, must
from harness import free_ports, main, seed, wait_until
from servers import ROUNDS, GuardCase, make_directory, unprivileged

HOME = os.environ.get('FENCELOCK_OPENSEARCH')


class Session:
    def __init__(self, port):
        self.port, self.connection, self.between = port, http.client.HTTPConnection('127.0.0.1', port, timeout=60), None

    def call(self, method, path, body=None, **query):
        try:
            self.connection.request(method, path + ('?' + urllib.parse.urlencode(query) if query else ''), json.dumps(body) if body is not None else None,
                                    {'Content-Type': 'application/json'})
            answer = self.connection.getresponse()
            found = json.loads(answer.read() or b'{}')
        except (OSError, http.client.HTTPException) as e:
            self.connection.close()
            raise Unknown(str(e)) from None
        if answer.status >= 500:
            raise Unknown(str(found)[:200])
        return answer.status, found

    def end(self):
        self.connection.close()


def at(key):
    return '/account/_doc/' + urllib.parse.quote(key, safe='')


class OpenSearch(Storage):
    """What both ways share."""
    kinds = ['index']
    workers = 4

    def __init__(self, port, server=None):
        self.port, self.sessions, self.keys = port, [], {}
        self.admin = Session(port)
        self.admin.call('PUT', '/account', {'settings': {'number_of_shards': 1, 'number_of_replicas': 0}, 'mappings': {'enabled': False}})
        if server is not None:
            self.server, self.restart = server, self.kill_and_start

    def kill_and_start(self):
        self.server.kill()
        self.server.start()
        self.admin = Session(self.port)

    def open(self):
        self.sessions.append(Session(self.port))
        return self.sessions[-1]

    def get(self, session, key):
        status, found = session.call('GET', at(key))
        return found if status == 200 else None

    def read(self, session, lock, key):
        return self.get(session, key)['_source']['value']

    def judge(self, token, status, found):
        if status == 409:
            raise Refused('STALE', 'token %s is below the mark: %s' % (token, str(found.get('error', {}).get('reason'))[:200]))
        if status >= 400:
            raise Refused('REFUSED', str(found)[:200])

    def bypasses(self):
        yield 'index without a token', lambda s, lock, key, value: s.call('PUT', at(key), {'value': value})
        yield 'DELETE', lambda s, lock, key, value: s.call('DELETE', at(key))


class External(OpenSearch):
    name = 'OpenSearch, external_gte'
    # Nothing of these is its own to hold: they are named in docs/FENCING.md.
    LACKS = {'index without a token', 'DELETE', "another lock's token", 'write between GET and PUT of a claim'}

    def put(self, session, key, token, source):
        if not isinstance(token, int) or not 1 <= token <= TOKEN_MAX:
            raise Refused('REFUSED', 'no token: %r' % (token,)) # 0 is a version that it takes
        self.judge(token, *session.call('PUT', at(key), source, version=token, version_type='external_gte'))

    def create(self, key, lock, value):
        self.keys.setdefault(lock, []).append(key)
        self.admin.call('PUT', at(key), {'lock': lock, 'value': value}, version=0, version_type='external_gte')

    def claim(self, session, lock, token):
        for key in self.keys[lock]:
            source = self.get(session, key)['_source']
            if session.between:
                session.between()
            self.put(session, key, token, source)

    def write(self, session, lock, token, key, value, how):
        self.put(session, key, token, {'lock': lock, 'value': value})

    def mark(self, session, lock):
        return self.get(session, self.keys[lock][0])['_version']

    def own(self):
        yield 3, 'write between GET and PUT of a claim', self.torn

    def torn(self, suite):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(a, lock, old)
        acknowledged = []

        def write():
            try:
                self.write(a, lock, old, key, '101', 'index')
                acknowledged.append(1)
            except Refused:
                pass
        b.between = write
        try:
            self.claim(b, lock, new)
        except Refused as e:
            return 'the claim is refused: %s' % str(e)[:60]
        seen = self.read(b, lock, key)
        must(not acknowledged or seen == '101', 'an acknowledged update is lost: %s', seen)


class Compared(External):
    """As the S3 module does it: mark and lock in the document, and if_seq_no in place of If-Match."""
    name = 'OpenSearch, if_seq_no'
    LACKS = {'index without a token', 'DELETE'}

    def create(self, key, lock, value):
        self.keys.setdefault(lock, []).append(key)
        self.admin.call('PUT', at(key), {'lock': lock, 'value': value, 'mark': 0})

    def change(self, session, lock, token, key, change):
        if not isinstance(token, int) or not 1 <= token <= TOKEN_MAX:
            raise Refused('REFUSED', 'no token: %r' % (token,))
        for _ in range(8):
            found = self.get(session, key)
            if found is None or 'mark' not in found['_source']:
                raise Refused('FOREIGN', 'no mark in %s' % key)
            source = found['_source']
            if source['lock'] != lock:
                raise Refused('WRONGLOCK', '%s belongs to %s' % (key, source['lock']))
            if token < source['mark']:
                raise Refused('STALE', 'token %d is below the mark %d' % (token, source['mark']))
            if session.between:
                session.between()
            status, answer = session.call('PUT', at(key), dict(source, mark=token, **change), if_seq_no=found['_seq_no'],
                                          if_primary_term=found['_primary_term'])
            if status != 409: # somebody was there first
                return self.judge(token, status, answer)
        raise Refused('BUSY', 'others write %s all the time' % key)

    def claim(self, session, lock, token):
        for key in self.keys[lock]:
            self.change(session, lock, token, key, {})

    def write(self, session, lock, token, key, value, how):
        self.change(session, lock, token, key, {'value': value})

    def mark(self, session, lock):
        return self.get(session, self.keys[lock][0])['_source']['mark']


@unittest.skipUnless(HOME, 'FENCELOCK_OPENSEARCH names no distribution of OpenSearch')
class OpenSearchFences(GuardCase):
    def setUp(self):
        super().setUp()
        self.port, self.inner = free_ports(2)
        self.words, user = unprivileged()
        for name in ('data', 'logs', 'tmp'):
            make_directory(self.lab.path(name), user)
        shutil.copytree(os.path.join(HOME, 'config'), self.lab.path('config'))
        options = os.path.join(self.lab.path('config'), 'jvm.options')
        with open(options) as f:
            text = f.read()
        with open(options, 'w') as f:
            f.write(text.replace('logs/', self.lab.path('logs') + '/')) # beside the distribution, otherwise
        for folder, _, files in os.walk(self.lab.path('config')):
            for path in [folder] + [os.path.join(folder, f) for f in files]:
                shutil.chown(path, user)
        self.start()

    def start(self):
        env = ['env', 'OPENSEARCH_PATH_CONF=' + self.lab.path('config'), 'OPENSEARCH_JAVA_OPTS=-Xms384m -Xmx384m',
               'OPENSEARCH_TMPDIR=' + self.lab.path('tmp')]
        if os.environ.get('FENCELOCK_JAVA'):
            env.append('OPENSEARCH_JAVA_HOME=' + os.environ['FENCELOCK_JAVA'])
        self.process = self.lab.start(self.words + env + [os.path.join(HOME, 'bin', 'opensearch'), '-Ediscovery.type=single-node', '-Enetwork.host=127.0.0.1',
                                      '-Ehttp.port=%d' % self.port, '-Etransport.port=%d' % self.inner, '-Epath.data=' + self.lab.path('data'),
                                      '-Epath.logs=' + self.lab.path('logs'), '-Ebootstrap.memory_lock=false'], 'opensearch')
        wait_until(lambda: not self.process.running() or self.answers(), 'an answer of OpenSearch')
        self.assertTrue(self.process.running(), self.process.last_output())

    def answers(self):
        try:
            return Session(self.port).call('GET', '/_cluster/health', wait_for_status='yellow', timeout='5s')[0] == 200
        except Unknown as e:
            raise RuntimeError(e) from None

    def kill(self):
        self.process.kill()

    def attack(self, kind, server=None):
        report = Suite(kind(self.port, server), seed(), rounds=ROUNDS, crashes=2).run()
        self.note_attacks(report)
        return {row[1] for row in report.rows if row[2] == 'BROKEN'}

    def test_external_gte_has_no_claim(self):
        """Whether random writers meet that moment is chance; the attack that makes it does not depend on it."""
        self.assertEqual(self.attack(External) - {'many writers at random'}, External.LACKS)

    def test_a_mark_in_the_document_and_if_seq_no_hold(self):
        self.assertEqual(self.attack(Compared, self), Compared.LACKS)


if __name__ == '__main__':
    main()
