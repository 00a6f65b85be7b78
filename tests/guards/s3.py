#!/usr/bin/python3
"""The guard for S3 against moto, a server that checks If-Match and If-None-Match. Its limits: it keeps objects in memory, so nothing
is said about crashes; it knows no bucket policy for conditions, so the unconditional write, which the policy forbids, is not
tried; and its check and write are atomic only because it answers one request at a time here. FENCELOCK_MOTO: a python that has it."""

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
from guardkit.storage import Refused, Storage, Unknown
from guardkit.suite import Suite
from servers import ROUNDS
from harness import Case, free_ports, main, seed, wait_until

PYTHON = os.environ.get('FENCELOCK_MOTO', '/usr/bin/python3')
SERVER = '''import sys
from werkzeug.serving import run_simple
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
run_simple('127.0.0.1', int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)'''


def why_not():
    try:
        import boto3
        version = tuple(int(n) for n in boto3.__version__.split('.')[:2])
    except ImportError:
        return 'boto3 is not installed'
    if subprocess.run([PYTHON, '-c', 'import moto.moto_server.werkzeug_app'], stderr=subprocess.DEVNULL).returncode:
        return 'moto, an S3 server, is not installed (a python that has it: FENCELOCK_MOTO)'
    return None if version >= (1, 36) else 'boto3 %s knows no If-Match' % boto3.__version__


def judged(function, *args):
    try:
        return function(*args)
    except fencelock_s3.Refused as e:
        raise Refused(e.word, str(e)) from None
    except fencelock_s3.Unknown as e:
        raise Unknown(str(e)) from None


class S3(Storage):
    name = 'S3 (moto)'
    kinds = ['PUT']
    workers = 4

    def __init__(self, url):
        import boto3
        from botocore.config import Config
        self.new = lambda: boto3.session.Session().client('s3', endpoint_url=url, aws_access_key_id='x', aws_secret_access_key='x', region_name='us-east-1',
                                        config=Config(retries={'total_max_attempts': 1}, max_pool_connections=1))
        self.making = threading.Lock()
        self.new().create_bucket(Bucket='bucket')
        self.first, self.keys = {}, {}

    def open(self):
        with self.making: # making clients is not safe in threads
            return fencelock_s3.FencedObjects(self.new(), 'bucket')

    def create(self, key, lock, value):
        self.first[key] = value
        self.keys.setdefault(lock, []).append(key)

    def claim(self, session, lock, token):
        judged(session.claim, lock, token, self.keys[lock])

    def read(self, session, lock, key):
        content = judged(session.peek, key)[0]
        return self.first[key] if content is None else content.decode()

    def write(self, session, lock, token, key, value, how):
        judged(session.write, lock, token, key, value.encode())

    def mark(self, session, lock):
        return judged(session.peek, self.keys[lock][0])[1]

    def bypasses(self):
        yield 'write of no claimed token', lambda s, lock, key, value: judged(s.write, lock, 9007199254740991, key, value.encode())
        yield 'PUT as if it were new', lambda s, lock, key, value: self.put(s, key, value, IfNoneMatch='*')
        yield 'PUT with an old ETag', lambda s, lock, key, value: self.put(s, key, value, IfMatch='"00000000000000000000000000000000"')

    @staticmethod
    def put(session, key, value, **condition):
        try:
            session.s3.put_object(Bucket='bucket', Key=key, Body=value.encode(), **condition)
        except session.s3.exceptions.ClientError as e:
            raise Refused('ERROR', str(e)) from None


class Off(S3):
    """Without conditions, as plain PUT and GET."""
    def claim(self, session, lock, token):
        pass

    def write(self, session, lock, token, key, value, how):
        session.s3.put_object(Bucket='bucket', Key=key, Body=b'fencelock 1 1 L "%s"\n%s' % (lock.encode(), value.encode()))


@unittest.skipIf(why_not(), why_not())
class S3Guard(Case):
    def setUp(self):
        super().setUp()
        port = free_ports(1)[0]
        self.lab.start([PYTHON, '-c', SERVER, port], 'moto')
        self.url = 'http://127.0.0.1:%d' % port
        self.storage = wait_until(lambda: self.try_open(S3), 60, 'an answer of moto')

    def try_open(self, kind):
        try:
            return kind(self.url)
        except Exception as e:
            raise RuntimeError(e)

    def test_every_attack(self):
        report = Suite(self.storage, seed(), rounds=ROUNDS).run()
        for row in report.rows:
            if row[2] != 'holds':
                self.note('%s %s: %s' % (row[2], row[1], row[3]))
        self.assertTrue(report.ok())
        self.note('%d attacks withstood' % report.count('holds'))

    def test_with_the_guard_off_updates_are_lost(self):
        report = Suite(Off(self.url), seed(), rounds=30).run(['random', 'stale PUT'])
        self.assertEqual({row[2] for row in report.rows}, {'BROKEN'})
        self.assertTrue(any('lost' in row[3] for row in report.rows))

    def test_new_old_and_deleted_objects(self):
        """Where the recipe ended with TypeError and ValueError, and lost its mark."""
        fence = self.storage.open()
        fence.claim('l', 5, ['new'])
        self.assertIsNone(fence.read('l', 5, 'new'))
        fence.s3.put_object(Bucket='bucket', Key='old', Body=b'content')
        with self.assertRaises(fencelock_s3.Refused) as e:
            fence.claim('l', 5, ['old'])
        self.assertEqual(e.exception.word, 'FOREIGN')
        fence.adopt('l', 5, 'old')
        self.assertEqual(fence.read('l', 5, 'old'), b'content')
        fence.delete('l', 5, 'old')
        self.assertIsNone(fence.read('l', 6, 'old'))
        for lock, word in (('l', 'STALE'), ('other', 'WRONGLOCK')):
            with self.assertRaises(fencelock_s3.Refused) as e:
                fence.write(lock, 5, 'old', b'x')
            self.assertEqual(e.exception.word, word)


if __name__ == '__main__':
    main()
