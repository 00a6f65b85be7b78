"""fencelock's guard for S3 and compatible object stores with conditional writes. Needs boto3, or any client like it.

    fence = FencedObjects(s3, 'bucket')
    fence.claim('acct', 37, ['balance'])              before the first read; names every object that is going to be read
    old = fence.read('acct', 37, 'balance')           None when it does not exist
    fence.write('acct', 37, 'balance', b'110')        Stale when a newer token has claimed

The mark of a lock for an object stands inside that object, in a line in front of its content, since an ETag is made of the
content alone. An object is never deleted: delete() leaves its line, so that mark and lock stay. Every write names the ETag that it
read (If-Match), or that there was none (If-None-Match). The store must refuse unconditional writes: policy() is that rule."""

import json
import re

TOKEN_MAX = (1 << 53) - 1
MAGIC = b'fencelock 1 '


class Refused(Exception):
    """word: STALE, WRONGLOCK, REFUSED, BUSY, or FOREIGN for an object that was there before the guard."""

    def __init__(self, word, text):
        super().__init__(word + ' ' + text)
        self.word = word


class Unknown(Exception):
    """The answer to a write was lost. Read again, under a new token, before anything else is written."""


def policy(bucket, prefix='', principal='*'):
    """A bucket policy: no PutObject without If-Match or If-None-Match, none that any ETag satisfies, and no deletion. Uploads in parts
    and copies are PutObject too, and cannot name a condition everywhere: they are forbidden with it."""
    where, deny = 'arn:aws:s3:::%s/%s*' % (bucket, prefix), {'Effect': 'Deny', 'Principal': principal}
    return json.dumps({'Version': '2012-10-17', 'Statement': [
        {'Sid': 'FencelockConditionalWritesOnly', **deny, 'Action': 's3:PutObject', 'Resource': where,
         'Condition': {'Null': {'s3:if-match': 'true', 's3:if-none-match': 'true'}}},
        {'Sid': 'FencelockNoWildcard', **deny, 'Action': 's3:PutObject', 'Resource': where,
         'Condition': {'StringEquals': {'s3:if-match': '*'}}},
        {'Sid': 'FencelockNoDeletion', **deny, 'Action': ['s3:DeleteObject', 's3:DeleteObjectVersion'], 'Resource': where}]})


class FencedObjects:
    def __init__(self, s3, bucket, tries=8):
        """The client must not repeat writes by itself: Config(retries={'total_max_attempts': 1}). A repeated one may be refused
        although its first copy was done, and the caller would take that for a refusal."""
        config = getattr(getattr(s3, 'meta', None), 'config', None)
        if config is not None and (getattr(config, 'retries', None) or {}).get('total_max_attempts') != 1:
            raise ValueError("the client repeats writes by itself: make it with Config(retries={'total_max_attempts': 1})")
        self.s3, self.bucket, self.tries = s3, bucket, tries

    @staticmethod
    def _check(lock, token):
        if not isinstance(lock, str) or not 1 <= len(lock.encode()) <= 255:
            raise Refused('REFUSED', 'the name of a lock is text of 1 to 255 bytes')
        if isinstance(token, bool) or not isinstance(token, int) or not 1 <= token <= TOKEN_MAX:
            raise Refused('REFUSED', 'a token is a number from 1 to %d, not %r' % (TOKEN_MAX, token))

    def _get(self, key):
        """(condition for the next write, mark, lock, content or None)."""
        try:
            found = self.s3.get_object(Bucket=self.bucket, Key=key)
        except self.s3.exceptions.NoSuchKey:
            return {'IfNoneMatch': '*'}, 0, None, None
        body = found['Body'].read()
        line, newline, content = body.partition(b'\n')
        parts = re.fullmatch(rb'fencelock 1 (\d{1,16}) ([LD]) (".*")', line)
        if not newline or parts is None:
            raise Refused('FOREIGN', '%r was there before the guard: adopt() it' % key)
        lock = json.loads(parts.group(3))
        return {'IfMatch': found['ETag']}, int(parts.group(1)), lock, content if parts.group(2) == b'L' else None

    def _put(self, key, condition, token, lock, content):
        """True when it was written, False when another write came first."""
        head = MAGIC + b'%d %s %s\n' % (token, b'D' if content is None else b'L', json.dumps(lock).encode())
        try:
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=head + (content or b''), **condition)
            return True
        except Exception as e: # botocore's errors: this file can be imported without botocore
            status = (getattr(e, 'response', None) or {}).get('ResponseMetadata', {}).get('HTTPStatusCode')
            if status in (404, 409, 412):
                return False
            if status is not None and status < 500:
                raise
            raise Unknown('the outcome of a write to %r is unknown: %s' % (key, e)) from e

    def _judge(self, key, lock, token, mark, found_lock):
        if found_lock is not None and found_lock != lock:
            raise Refused('WRONGLOCK', '%r belongs to lock %r' % (key, found_lock))
        if token < mark:
            raise Refused('STALE', 'token %d is below the mark %d of lock %r' % (token, mark, lock))

    def claim(self, lock, token, keys):
        """Marks every object before any is read. Creates those that do not exist, without content."""
        self._check(lock, token)
        for key in keys:
            for _ in range(self.tries):
                condition, mark, found_lock, content = self._get(key)
                self._judge(key, lock, token, mark, found_lock)
                if mark == token or self._put(key, condition, token, lock, content):
                    break
            else:
                raise Refused('BUSY', 'others write %r all the time; claim again' % key)

    def read(self, lock, token, key):
        """Returns the content, or None. Claims first, so that no older holder can write after the read."""
        self.claim(lock, token, [key])
        _, mark, found_lock, content = self._get(key)
        self._judge(key, lock, token, mark, found_lock)
        return content

    def peek(self, key):
        """Returns (content or None, mark) without a claim. Not for read-modify-write."""
        _, mark, _, content = self._get(key)
        return content, mark

    def write(self, lock, token, key, content):
        """Replaces the content of a claimed object. content: bytes, or None to delete."""
        self._check(lock, token)
        for _ in range(self.tries):
            condition, mark, found_lock, _ = self._get(key)
            self._judge(key, lock, token, mark, found_lock)
            if mark != token:
                raise Refused('NOTCLAIMED', 'token %d is above the mark %d of %r: claim, and read again' % (token, mark, key))
            if self._put(key, condition, token, lock, content):
                return
        raise Refused('BUSY', 'others write %r all the time; nothing was written' % key)

    def delete(self, lock, token, key):
        self.write(lock, token, key, None)

    def raise_mark(self, key, token):
        """For use after a restore: from now on every lower token is refused for this object, for every lock. False when the mark was that high already."""
        for _ in range(self.tries):
            condition, mark, lock, content = self._get(key)
            if lock is None or mark >= token:
                return False
            self._check(lock, token)
            if self._put(key, condition, token, lock, content):
                return True
        raise Refused('BUSY', 'others write %r all the time; do it again' % key)

    def adopt(self, lock, token, key):
        """Puts an object that existed before the guard under it, with its content."""
        self._check(lock, token)
        try:
            found = self.s3.get_object(Bucket=self.bucket, Key=key)
        except self.s3.exceptions.NoSuchKey:
            raise Refused('REFUSED', 'there is no %r' % key) from None
        content = found['Body'].read()
        if content.startswith(MAGIC):
            raise Refused('REFUSED', '%r is guarded already' % key)
        if not self._put(key, {'IfMatch': found['ETag']}, token, lock, content):
            raise Refused('BUSY', '%r has changed meanwhile' % key)
