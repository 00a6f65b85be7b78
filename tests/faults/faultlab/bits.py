"""One bit turned around in what a server has on disk, where its format can tell: not the last batch of entries of an open
segment, whose damage cannot be told from a torn write (src/consensus/segments.h), nor the record of term and vote."""

import os
import struct


def is_written(path):
    with open(path, 'rb') as f:
        return any(f.read())


def files_of(top, raft=False):
    """Names below top. raft: the record of term and vote among them."""
    found = []
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and name not in ('lock', 'lock.mdb') and not name.startswith('tmp') and \
                    (raft or not name.startswith('metadata')) and is_written(path):
                found.append(os.path.relpath(path, top))
    return sorted(found)


def end_of(path, data, raft=False):
    """Up to where a bit is turned around: all of it, or in an open segment what comes before the last batch."""
    if raft or not os.path.basename(path).startswith('open-'):
        return len(data)
    at, last = 8, 8
    while at + 16 <= len(data):
        n, = struct.unpack_from('<Q', data, at + 8)
        if not n:
            break
        last = at
        at += 16 + sum(16 + struct.unpack_from('<I', data, at + 16 + 16 * i + 12)[0] for i in range(n))
    return last


def flip(path, rng, raft=False):
    """Turns a bit around in a byte that is not zero, since most of a file may never have been written. Says which."""
    with open(path, 'r+b') as f:
        data = f.read()
        end = len(data[:end_of(path, data, raft)].rstrip(b'\0'))
        at = rng.randrange(end)
        while not data[at]:
            at = rng.randrange(end)
        bit = rng.randrange(8)
        f.seek(at)
        f.write(bytes([data[at] ^ 1 << bit]))
        f.flush()
        os.fsync(f.fileno())
    return 'bit %d of byte %d' % (bit, at)
