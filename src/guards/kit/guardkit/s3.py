"""The adapter for S3 and compatible object stores with the guard of src/guards/s3, through boto3."""

import os
import sys
import threading

from .storage import Refused, Storage, Unknown
from .suite import Broken, Skip, must

sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..', 's3')))
import fencelock_s3

OLD_ETAG = '"00000000000000000000000000000000"'
# What a server did with the bucket's policy.
POLICY = {'holds': '', 'ignored': 'the server took the policy, and lets writes without a condition through',
          'bans': 'the server does not know If-Match in a policy: with it, it refuses every write',
          'refused': 'the server takes no such policy', 'none': 'no policy was asked for'}


def judged(function, *args, **named):
    """A call of the guard, or of the client beside it. An answer below 500 is a refusal."""
    try:
        return function(*args, **named)
    except fencelock_s3.Refused as e:
        raise Refused(e.word, str(e)) from None
    except fencelock_s3.Unknown as e:
        raise Unknown(str(e)) from None
    except Exception as e: # botocore's, which need not be there to import this
        if 'botocore' not in type(e).__module__:
            raise
        status = (getattr(e, 'response', None) or {}).get('ResponseMetadata', {}).get('HTTPStatusCode')
        if status is None or status >= 500:
            raise Unknown(str(e)) from None
        raise Refused('ERROR', str(e)) from None


class S3(Storage):
    """new(): a client of a writer. session(client): what has the functions of FencedObjects, and that client as s3. policy: what became of
    the bucket's."""

    kinds = ['PUT']
    workers = 4

    def __init__(self, new, bucket, policy='none', server=None, name='S3', session=None):
        self.new, self.bucket, self.policy, self.name = new, bucket, policy, name
        self.session = session or (lambda client: fencelock_s3.FencedObjects(client, bucket))
        self.making, self.first, self.keys, self.sessions = threading.Lock(), {}, {}, []
        if server is not None:
            self.server = server
            self.restart = self.kill_and_start

    def kill_and_start(self):
        self.server.kill()
        self.server.start()

    # -- the seven ----------------------------------------------------------------------------------------
    def open(self):
        with self.making: # making clients is not safe in threads
            self.sessions.append(self.session(self.new()))
            return self.sessions[-1]

    def end_sessions(self):
        for session in self.sessions:
            getattr(session, 'close', lambda: None)()
        self.sessions = []

    def create(self, key, lock, value):
        """An object is made by its first claim; this is its value until the first write."""
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
        def put(**condition):
            return lambda s, lock, key, value: judged(s.s3.put_object, Bucket=self.bucket, Key=key, Body=value.encode(), **condition)
        yield 'write of no claimed token', lambda s, lock, key, value: judged(s.write, lock, fencelock_s3.TOKEN_MAX, key, value.encode())
        yield 'PUT without a condition', put()
        yield 'PUT as if it were new', put(IfNoneMatch='*')
        yield 'PUT with an old ETag', put(IfMatch=OLD_ETAG)
        yield 'PUT with If-Match: *', put(IfMatch='*')
        yield 'DELETE', lambda s, lock, key, value: judged(s.s3.delete_object, Bucket=self.bucket, Key=key)
        yield 'DELETE of several', self.delete_several
        yield 'COPY over it', self.copy
        yield 'upload in parts', self.parts

    def delete_several(self, session, lock, key, value):
        answer = judged(session.s3.delete_objects, Bucket=self.bucket, Delete={'Objects': [{'Key': key}]})
        if answer.get('Errors'):
            raise Refused('ERROR', answer['Errors'][0]['Code'])

    def copy(self, session, lock, key, value):
        client = session.s3
        judged(client.put_object, Bucket=self.bucket, Key=key + '.other', Body=value.encode(), IfNoneMatch='*')
        judged(client.copy_object, Bucket=self.bucket, Key=key, CopySource={'Bucket': self.bucket, 'Key': key + '.other'})

    def parts(self, session, lock, key, value):
        client, at = session.s3, {'Bucket': self.bucket, 'Key': key}
        upload = judged(client.create_multipart_upload, **at)['UploadId']
        part = judged(client.upload_part, PartNumber=1, UploadId=upload, Body=value.encode(), **at)
        judged(client.complete_multipart_upload, UploadId=upload, MultipartUpload={'Parts': [{'PartNumber': 1, 'ETag': part['ETag']}]}, **at)

    # -- faults that only an object store can have --------------------------------------------------------------
    def own(self):
        yield 4, "the bucket's policy", self.policy_holds
        yield 7, 'conditional PUTs at the same time', self.at_once
        yield 3, 'claim of several objects', self.several
        yield 6, 'deleted object keeps lock and mark', self.deleted
        yield 9, 'object without a mark is refused', self.foreign

    def policy_holds(self, suite):
        if self.policy == 'none':
            raise Skip(POLICY['none'])
        must(self.policy == 'holds', '%s', POLICY.get(self.policy, self.policy))

    def at_once(self, suite):
        """Of several PUTs with one ETag exactly one may succeed. A server that compares first and writes later accepts two."""
        clients = [self.open().s3 for _ in range(4)]
        for n in range(max(10, suite.rounds)):
            key, condition = 'once%d' % n, {'IfNoneMatch': '*'}
            for time_ in range(2): # as a new object, and over an old one. No two have the same content, and so the same ETag
                done, ready = [], threading.Barrier(len(clients))

                def put(i, client, key=key, condition=condition, body=b'%d %%d' % time_):
                    ready.wait()
                    try:
                        done.append(judged(client.put_object, Bucket=self.bucket, Key=key, Body=body % i, **condition)['ETag'])
                    except (Refused, Unknown):
                        pass
                threads = [threading.Thread(target=put, args=(i, c)) for i, c in enumerate(clients)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join(60)
                must(len(done) == 1, '%d of %d PUTs with %s were done, in round %d', len(done), len(clients), ' '.join(condition), n)
                condition = {'IfMatch': done[0]}

    def several(self, suite):
        """After a claim of two objects, what is read of either is final: the old holder's late write is refused."""
        key, lock = suite.fresh('1')
        other = key + '.second'
        self.create(other, lock, '1')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(a, lock, old)
        self.write(a, lock, old, other, '2', 'PUT')
        self.claim(b, lock, new)
        for k in (key, other):
            seen = self.read(b, lock, k)
            try:
                self.write(a, lock, old, k, '666', 'PUT')
            except Refused as e:
                must(e.word == 'STALE', 'the late write was refused with %s', e)
            must(self.read(b, lock, k) == seen, 'the value of %s is %s', k, self.read(b, lock, k))

    def deleted(self, suite):
        key, lock = suite.fresh('1')
        _, other = suite.fresh('1')
        old, new = suite.token(), suite.token()
        a = self.open()
        judged(a.claim, lock, new, [key])
        judged(a.write, lock, new, key, b'x')
        judged(a.delete, lock, new, key)
        must(judged(a.peek, key) == (None, new), 'it has %s', judged(a.peek, key))
        for use, token, word in ((lock, old, 'STALE'), (other, suite.token(), 'WRONGLOCK')):
            try:
                judged(a.claim, use, token, [key])
                raise Broken('a claim with token %d of %s was accepted' % (token, use))
            except Refused as e:
                must(e.word == word, 'refused with %s', e)

    def foreign(self, suite):
        """A client that sends the right ETag with plain bytes removes the mark. The store cannot forbid that; the next claim must notice it."""
        key, lock = suite.fresh('1')
        a, token = self.open(), suite.token()
        self.claim(a, lock, token)
        self.write(a, lock, token, key, '2', 'PUT')
        client = a.s3
        etag = judged(client.get_object, Bucket=self.bucket, Key=key)['ETag']
        judged(client.put_object, Bucket=self.bucket, Key=key, Body=b'666', IfMatch=etag)
        try:
            self.claim(self.open(), lock, suite.token())
        except Refused as e:
            must(e.word == 'FOREIGN', 'refused with %s', e)
            return 'somebody wrote it with the right ETag and no mark; FOREIGN'
        raise Broken('it was claimed as if nothing had been')


class Off(S3):
    """The same storage without the guard: PUT and GET without conditions."""

    def claim(self, session, lock, token):
        pass

    def write(self, session, lock, token, key, value, how):
        session.s3.put_object(Bucket=self.bucket, Key=key, Body=b'fencelock 1 1 L "%s"\n%s' % (lock.encode(), value.encode()))
