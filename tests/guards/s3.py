#!/usr/bin/python3
"""The guard for S3, its modules in Python and in Go, and its command, against moto, a server that checks If-Match and If-None-Match. Its
limits: it keeps objects in memory, so nothing is said about crashes; it answers one request at a time here, so its check and write
are atomic; and of a bucket's policy it reads no conditions, which policy_proxy.py does in its place. FENCELOCK_MINIO: a minio, for the
same on disks, with many requests at a time, and with kill -9. Other servers: fencelock guard attack s3://x?endpoint=URL."""

import glob
import json
import os
import subprocess
import sys
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, '..', '..')
sys.path[:0] = [os.path.join(HERE, '..', 'lib'), os.path.join(ROOT, 'src', 'guards', 'kit'), os.path.join(ROOT, 'src', 'guards', 's3')]
sys.path = [p for p in sys.path if os.path.abspath(p or '.') != HERE]
sys.path.append(HERE)
import fencelock_s3
from guardkit.s3 import S3, Off
from guardkit.suite import Suite
from redlock_peers_lab import Unavailable, build, fetch, installed, need, venv
from servers import FULL, ROUNDS, GuardCase
from harness import PATIENCE_S, Cluster, free_ports, main, seed, wait_until

MOTO = '''import sys
from werkzeug.serving import run_simple
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
run_simple('127.0.0.1', int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)'''
BY_POLICY = {'PUT without a condition', 'PUT with If-Match: *', 'DELETE', 'DELETE of several', 'COPY over it', 'upload in parts', "the bucket's policy"}
KEYS = {'AWS_ACCESS_KEY_ID': 'fencelock', 'AWS_SECRET_ACCESS_KEY': 'fencelock-secret', 'AWS_DEFAULT_REGION': 'us-east-1',
        'AWS_SHARED_CREDENTIALS_FILE': '/dev/null', 'AWS_CONFIG_FILE': '/dev/null', 'AWS_EC2_METADATA_DISABLED': 'true'}
os.environ.update(KEYS)
OTHER_STATEMENT = {'Sid': 'Mine', 'Effect': 'Deny', 'Principal': '*', 'Action': 's3:GetObject', 'Resource': 'arn:aws:s3:::bucket/secret/*'}

try:
    PYTHON = venv('guards-s3', os.path.join(HERE, 'python'))
    sys.path[:0] = glob.glob(os.path.join(os.path.dirname(PYTHON), '..', 'lib', 'python3*', 'site-packages'))
    import boto3
    from botocore.config import Config
    MISSING = None
except Unavailable as reason:
    MISSING = str(reason)


def go_session():
    """The program of src/guards/s3/go that is driven by lines."""
    need('go')

    def make(directory):
        fetch(directory, 'go', 'mod', 'download')
        build(directory, 'go', 'vet', './...')
        build(directory, 'go', 'build', '-o', 'session', './attack')
    return os.path.join(installed('guards-s3-go', make, os.path.join(ROOT, 'src', 'guards', 's3', 'go')), 'session')


class GoSession:
    """FencedObjects in Go."""

    def __init__(self, program, url, bucket, client):
        self.s3, self.one_at_a_time = client, threading.Lock()
        self.process = subprocess.Popen([program, url, 'us-east-1', bucket], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, do, lock, token, keys, content=''):
        with self.one_at_a_time:
            line = json.dumps({'do': do, 'lock': lock, 'token': token, 'keys': keys, 'content': content})
            self.process.stdin.write(line.encode() + b'\n')
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
        if answer['word'] == 'unknown':
            raise fencelock_s3.Unknown(answer['text'])
        if answer['word'] != 'ok':
            raise fencelock_s3.Refused('REFUSED' if answer['word'] == 'error' else answer['word'], answer['text'])
        content = answer['content']
        return None if content is None else content.encode(), answer['mark']

    def claim(self, lock, token, keys):
        self.call('claim', lock, token, keys)

    def read(self, lock, token, key):
        return self.call('read', lock, token, [key])[0]

    def peek(self, key):
        return self.call('peek', 'x', 1, [key])

    def write(self, lock, token, key, content):
        self.call('write', lock, token, [key], content.decode())

    def delete(self, lock, token, key):
        self.call('delete', lock, token, [key])

    def adopt(self, lock, token, key):
        self.call('adopt', lock, token, [key])

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


@unittest.skipIf(MISSING, MISSING)
class S3Guard(GuardCase):
    LETS_THROUGH = BY_POLICY - {'PUT with If-Match: *'}

    def setUp(self):
        super().setUp()
        self.port = free_ports(1)[0]
        self.url = 'http://127.0.0.1:%d' % self.port
        self.session = boto3.session.Session()
        self.start()
        self.client().create_bucket(Bucket='bucket')

    def start(self):
        self.process = self.lab.start(self.argv(), 'server')
        wait_until(self.answers, 'an answer of the server')

    def argv(self):
        return [PYTHON, '-c', MOTO, self.port]

    def answers(self):
        try:
            return self.client().list_buckets() is not None
        except Exception as e:
            raise RuntimeError(e)

    def kill(self):
        self.process.kill()

    def client(self):
        return self.session.client('s3', endpoint_url=self.url, config=Config(
            retries={'total_max_attempts': 1}, max_pool_connections=1, s3={'addressing_style': 'path'}))

    def storage(self, kind=S3, **more):
        return kind(self.client, 'bucket', policy='ignored', **more)

    def fence(self):
        return fencelock_s3.FencedObjects(self.client(), 'bucket')

    def must_hold(self, report):
        broken = {row[1]: row[3] for row in report.rows if row[2] == 'BROKEN'}
        for name, detail in broken.items():
            if name not in self.LETS_THROUGH:
                self.note('%s: %s' % (name, detail))
        self.assertEqual(set(broken), self.LETS_THROUGH)
        self.note('%d attacks withstood' % report.count('holds'))

    def refused(self, word, function, *args):
        with self.assertRaises(fencelock_s3.Refused) as e:
            function(*args)
        self.assertEqual(e.exception.word, word, str(e.exception))

    @unittest.skipUnless(FULL, 'fencelock guard attack makes the same attacks, in test_attack_leaves_nothing_behind; GUARDS_FULL=1 makes these too')
    def test_every_attack(self):
        self.must_hold(Suite(self.storage(), seed(), rounds=ROUNDS).run())

    def go(self):
        try:
            program = go_session()
        except Unavailable as reason:
            self.skipTest(str(reason))
        return lambda client: GoSession(program, self.url, 'bucket', client)

    def test_every_attack_on_the_go_module(self):
        self.must_hold(Suite(self.storage(session=self.go()), seed(), rounds=ROUNDS).run())

    def test_both_modules_read_the_same_objects(self):
        one, other = self.fence(), self.go()(self.client())
        for n, lock in enumerate(('l', 'ünï/ cödé', 'a"b\\<&>', '\u2028\n', 'x' * 255)):
            key = 'k%d' % n
            one.claim(lock, 5, [key])
            other.write(lock, 5, key, b'from Go')
            self.assertEqual(one.read(lock, 6, key), b'from Go')
            self.refused('STALE', other.write, lock, 5, key, b'late')
            one.write(lock, 6, key, b'line\nline')
            self.assertEqual(other.read(lock, 7, key), b'line\nline')
            self.refused('WRONGLOCK', other.claim, 'another', 8, [key])
            other.delete(lock, 7, key)
            self.assertEqual(one.peek(key), (None, 7))
        for fence in (one, other):
            self.refused('REFUSED', fence.claim, 'x' * 256, 5, ['k'])
        other.close()

    def test_with_the_guard_off_updates_are_lost(self):
        found = self.until_lost(Suite(self.storage(Off), seed(), rounds=30), 'random', 'stale PUT')
        self.assertEqual({outcome for outcome, _ in found.values()}, {'BROKEN'})

    def new_old_and_deleted(self, fence):
        """Where the recipe ended with TypeError and ValueError, and lost its mark."""
        fence.claim('l', 5, ['new'])
        self.assertIsNone(fence.read('l', 5, 'new'))
        fence.s3.put_object(Bucket='bucket', Key='old', Body=b'content')
        self.refused('FOREIGN', fence.claim, 'l', 5, ['old'])
        fence.adopt('l', 5, 'old')
        self.assertEqual(fence.read('l', 5, 'old'), b'content')
        fence.delete('l', 5, 'old')
        self.assertIsNone(fence.read('l', 6, 'old'))
        self.refused('STALE', fence.write, 'l', 5, 'old', b'x')
        self.refused('WRONGLOCK', fence.write, 'other', 5, 'old', b'x')
        self.refused('REFUSED', fence.adopt, 'l', 6, 'old')
        self.refused('REFUSED', fence.adopt, 'l', 6, 'nothing')

    def test_new_old_and_deleted_objects(self):
        self.new_old_and_deleted(self.fence())

    def test_new_old_and_deleted_objects_in_go(self):
        fence = self.go()(self.client())
        self.new_old_and_deleted(fence)
        fence.close()

    def test_a_client_that_repeats_writes_is_refused(self):
        client = self.session.client('s3', endpoint_url=self.url)
        with self.assertRaisesRegex(ValueError, 'total_max_attempts'):
            fencelock_s3.FencedObjects(client, 'bucket')

    # -- fencelock guard ----------------------------------------------------------------------------------
    def guard(self, *args):
        """Its program in Python finds boto3 where PYTHON has it."""
        return super().guard(*args, env=dict(os.environ, PATH=os.path.dirname(PYTHON) + ':' + os.environ['PATH']))

    def adopt(self, url, token):
        """`fencelock guard adopt`, less the cluster that the token comes from."""
        done = subprocess.run([PYTHON, os.path.join(ROOT, 'src', 'guards', 'kit', 'fencelock-guard'), 'adopt', url, '--token', str(token)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_adopt_knows_nothing_of_an_object_that_the_restore_lost(self):
        """As src/guards/s3/README.md says, and so does adopt: in the objects that are there. A claim of the name with a new token closes the gap."""
        url, fence = 's3://bucket?endpoint=' + self.url, self.fence()
        for key in ('kept', 'lost', 'claimed'):
            fence.claim('l', 36, [key])
        for key in ('lost', 'claimed'): # the backup was older
            fence.s3.delete_object(Bucket='bucket', Key=key)
        code, out, err = self.adopt(url, 40)
        self.assertEqual((code, err), (0, ''))
        self.assertIn('in 1 object that is there', out)
        fence.claim('l', 40, ['claimed'])
        for key in ('kept', 'claimed'):
            self.refused('STALE', fence.claim, 'l', 35, [key])
        fence.claim('l', 35, ['lost'])

    def test_install(self):
        """A store that does not know the conditions would refuse every write: the bucket keeps the policy that it had."""
        client = self.client()
        before = {'Version': '2012-10-17', 'Statement': [dict(OTHER_STATEMENT)]}
        client.put_bucket_policy(Bucket='bucket', Policy=json.dumps(before))
        code, out, err = self.guard('install', 's3://bucket/data/?endpoint=' + self.url)
        self.assertEqual((code, out), (1, ''))
        self.assertIn('this store does not know If-Match in a policy', err)
        self.assertEqual(json.loads(client.get_bucket_policy(Bucket='bucket')['Policy']), before)

    def test_attack_leaves_nothing_behind(self):
        """And tells what this server lets through."""
        url = 's3://bucket?endpoint=' + self.url
        code, out, err = self.guard('attack', url, '--json', '--seed', '5')
        self.assertEqual((code, err), (1 if self.LETS_THROUGH else 0, ''), out)
        broken = {a['attack'] for a in json.loads(out)['attacks'] if a['outcome'] == 'BROKEN'}
        self.assertEqual(broken, self.LETS_THROUGH)
        self.assertEqual([b['Name'] for b in self.client().list_buckets()['Buckets']], ['bucket'])
        self.assertNotIn('Contents', self.client().list_objects_v2(Bucket='bucket'))

    def test_wrong_input(self):
        for args, code, word in ((('check', 's3://'), 2, 's3://BUCKET'), (('check', 's3://b?colour=red'), 2, 's3://BUCKET'),
                                 (('install', 's3://bucket?endpoint=' + self.url, 'a=b'), 2, 'first claimed'),
                                 (('check', 's3://bucket?endpoint=http://127.0.0.1:1'), 3, '127.0.0.1'),
                                 (('check', 's3://nothing?endpoint=' + self.url), 1, 'NoSuchBucket')):
            got, out, err = self.guard(*args)
            self.assertEqual((got, out), (code, ''), (args, err))
            self.assertIn(word, err)


class PolicyServer(S3Guard):
    """A server that applies the policy."""
    LETS_THROUGH = set()

    def argv(self):
        behind = free_ports(1)[0]
        self.lab.start([PYTHON, '-c', MOTO, behind], 'moto')
        return [PYTHON, os.path.join(HERE, 'policy_proxy.py'), self.port, behind, self.lab.path('faults')]

    def fault(self, *lines):
        """From now on these requests fail, and no others; see policy_proxy.py."""
        with open(self.lab.path('faults.new'), 'w') as f:
            f.write(''.join(line + '\n' for line in lines))
        os.rename(self.lab.path('faults.new'), self.lab.path('faults'))

    def storage(self, kind=S3, **more):
        if kind is S3:
            self.client().put_bucket_policy(Bucket='bucket', Policy=fencelock_s3.policy('bucket'))
        return kind(self.client, 'bucket', policy='holds', **more)

    def test_install(self):
        """And check, attack, adopt, uninstall."""
        url = 's3://bucket/data/?endpoint=' + self.url
        client, fence = self.client(), self.fence()
        client.put_bucket_policy(Bucket='bucket', Policy=json.dumps({'Version': '2012-10-17', 'Statement': [OTHER_STATEMENT]}))
        client.put_object(Bucket='bucket', Key='data/foreign', Body=b'x')
        code, out, err = self.guard('check', url)
        self.assertEqual((code, err), (1, ''), out)
        self.assertIn('lacks FencelockConditionalWritesOnly', out)
        for _ in range(2): # again does no harm
            code, out, err = self.guard('install', url, '--json')
            self.assertEqual((code, err), (0, ''), out)
            self.assertEqual(json.loads(out), {'installed': True, 'enforced': True})
        found = json.loads(client.get_bucket_policy(Bucket='bucket')['Policy'])['Statement']
        self.assertEqual([s['Sid'] for s in found], ['Mine', 'FencelockConditionalWritesOnly', 'FencelockNoWildcard', 'FencelockNoDeletion'])
        self.assertEqual(found[1]['Resource'], 'arn:aws:s3:::bucket/data/*')
        client.put_object(Bucket='bucket', Key='elsewhere', Body=b'x') # the policy is of that prefix
        fence.claim('l', 5, ['data/a'])
        fence.write('l', 5, 'data/a', b'1')
        code, out, err = self.guard('check', url)
        self.assertEqual((code, err), (0, ''), out)
        self.assertIn('first data/f', out)
        self.assertEqual(self.guard('check', url, 'data/foreign')[0], 1)
        self.assertEqual(self.guard('check', url, 'data/a'), (0, '1 object protected; nothing found wrong\n', ''))
        code, out, err = self.guard('attack', url, '--json', '--seed', '5')
        self.assertEqual((code, err), (0, ''), out)
        self.assertIn('PUT without a condition in s3://bucket/data/', [a['attack'] for a in json.loads(out)['attacks'] if a['outcome'] == 'holds'])
        client.put_bucket_lifecycle_configuration(Bucket='bucket', LifecycleConfiguration={'Rules': [
            {'ID': 'old', 'Status': 'Enabled', 'Filter': {'Prefix': 'data/'}, 'Expiration': {'Days': 30}}]})
        code, out, _ = self.guard('check', url)
        self.assertEqual(code, 1)
        self.assertIn('the lifecycle rule old deletes objects', out)
        cluster = Cluster(self.lab, 1).start()
        for _ in range(9):
            cluster.nodes[0].call('TOKEN', 'x')
        code, out, err = self.guard('adopt', url, '--nodes', cluster.nodes[0].address)
        self.assertEqual((code, err), (0, ''))
        self.assertIn('in 1 object ', out)
        self.refused('STALE', fence.write, 'l', 9, 'data/a', b'late')
        self.assertEqual(fence.read('l', 11, 'data/a'), b'1')
        self.assertEqual(self.guard('uninstall', url)[0], 0)
        self.assertEqual(json.loads(client.get_bucket_policy(Bucket='bucket')['Policy'])['Statement'], [OTHER_STATEMENT])

    def test_a_store_that_fails_in_the_middle(self):
        """That is unknown (3), and no traceback with the exit code of "no"; adopt says that it has to be run again."""
        url, fence = 's3://bucket/data/?endpoint=' + self.url, self.fence()
        fence.claim('l', 5, ['data/a', 'data/b'])
        for line, code in (('GET /bucket/data/b 500', 3), ('GET /bucket/data/b 403', 1)):
            self.fault(line)
            got, out, err = self.guard('check', url)
            self.assertEqual((got, out), (code, ''), (line, err))
            self.assertNotIn('Traceback', err)
        for line, code in (('GET /bucket/data/b 0', 3), ('PUT /bucket/data/b 500', 3), ('PUT /bucket/data/b 403', 1)):
            self.fault(line)
            got, out, err = self.adopt(url, 40)
            self.assertEqual((got, out), (code, ''), (line, err))
            self.assertNotIn('Traceback', err)
            self.assertIn('adopt again', err)
            self.assertEqual(fence.peek('data/a')[1], 40)
        self.fault()
        self.assertEqual(self.adopt(url, 41)[0], 0)
        for key in ('data/a', 'data/b'):
            self.refused('STALE', fence.claim, 'l', 40, [key])


# With nothing between them and the server, these would say the same again.
for inherited in ('test_both_modules_read_the_same_objects', 'test_with_the_guard_off_updates_are_lost', 'test_new_old_and_deleted_objects',
                  'test_new_old_and_deleted_objects_in_go', 'test_a_client_that_repeats_writes_is_refused', 'test_wrong_input',
                  'test_adopt_knows_nothing_of_an_object_that_the_restore_lost'):
    setattr(PolicyServer, inherited, None)


@unittest.skipUnless(os.environ.get('FENCELOCK_MINIO'), 'FENCELOCK_MINIO names no minio')
class MinIO(S3Guard):
    """On disk, many requests at a time, and killed. It takes no policy with conditions on If-Match."""

    def argv(self):
        data = self.lab.path('minio')
        os.makedirs(data, exist_ok=True)
        return ['env', 'MINIO_ROOT_USER=fencelock', 'MINIO_ROOT_PASSWORD=fencelock-secret', 'MINIO_BROWSER=off', 'MINIO_UPDATE=off',
                os.environ['FENCELOCK_MINIO'], 'server', '--address', '127.0.0.1:%d' % self.port, data]

    def test_every_attack(self):
        self.must_hold(Suite(self.storage(server=self), seed(), rounds=ROUNDS, crashes=2).run())

    LETS_THROUGH = BY_POLICY

    def test_install(self):
        code, out, err = self.guard('install', 's3://bucket?endpoint=' + self.url)
        self.assertEqual((code, out), (1, ''))
        self.assertIn('does not take the policy', err)


if __name__ == '__main__':
    main()
