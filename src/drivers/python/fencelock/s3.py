"""The fence for S3 and compatible stores: fencelock's guard (src/guards/s3), with the token of a lease.

The client is one of boto3, made with Config(retries={'total_max_attempts': 1}). The bucket has the guard's policy."""

from . import _errors
from ._s3_guard import FencedObjects, Refused, Unknown


class Fence:
    """Objects of one bucket that carry the token of a lease. What the guard refuses for another reason than a newer holder is Refused."""

    def __init__(self, s3, bucket, lease):
        self._objects, self.lease = FencedObjects(s3, bucket), lease

    @classmethod
    def claim(cls, s3, bucket, lease, *keys):
        """Marks each of these objects: from then on it refuses every older token. Claim all that you are going to read, before the first
        read. StaleToken: a newer holder has claimed, so the lease is over."""
        fence = cls(s3, bucket, lease)
        fence._call(fence._objects.claim, keys)
        return fence

    def read(self, key):
        """The content, or None."""
        return self._call(self._objects.read, key)

    def write(self, key, content):
        """Replaces the content of an object that was claimed. StaleToken: nothing was written. Uncertain: nobody knows; take the lock
        again, and read."""
        self._call(self._objects.write, key, content)

    def delete(self, key):
        """The object is without content from then on; its mark stays."""
        self._call(self._objects.delete, key)

    def _call(self, function, *arguments):
        self.lease.check()
        try:
            return function(self.lease.name, self.lease.token, *arguments)
        except Refused as e:
            if e.word == 'STALE':
                raise _errors.StaleToken(str(e)) from e
            raise
        except Unknown as e:
            raise _errors.Uncertain(str(e)) from e
