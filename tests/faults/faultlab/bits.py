"""Flips one bit, or removes the end, of a file of a server. A checksum or the format can detect every such change (src/log/format.c), but for
one: a sector of 512 bytes that is all zero afterwards looks as if it had never been written. So none is made so."""

import os

SECTOR = 512


def is_written(path):
    with open(path, 'rb') as f:
        return any(any(part) for part in iter(lambda: f.read(1 << 16), b''))


def files_of(top):
    """Names below top of what was written and is still wanted."""
    found = []
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and name not in ('lock', 'fencelock.db-shm') and not name.endswith('.part') and is_written(path):
                found.append(os.path.relpath(path, top))
    return sorted(found)


def is_detectable(data, at, bit):
    """Whether the byte is not zero, and its sector is not all zero without the bit."""
    begin = at // SECTOR * SECTOR
    sector = bytearray(data[begin:begin + SECTOR])
    sector[at - begin] ^= 1 << bit
    return bool(data[at]) and any(sector)


def cut(path, at):
    """Removes everything from this byte on. Returns a text that says so."""
    os.truncate(path, at)
    return 'cut off at byte %d' % at


def flip_at(path, at, bit):
    """Flips this bit. Returns a text that says which; None when nothing could detect it."""
    with open(path, 'r+b') as f:
        data = f.read()
        if not is_detectable(data, at, bit):
            return None
        f.seek(at)
        f.write(bytes([data[at] ^ 1 << bit]))
    return 'bit %d of byte %d' % (bit, at)


def flip(path, rng):
    """Turns a bit around in a byte that is not zero, since most of a file may never have been written. Says which."""
    with open(path, 'r+b') as f:
        data = f.read()
        end = len(data.rstrip(b'\0'))
        at, bit = rng.randrange(end), rng.randrange(8)
        while not is_detectable(data, at, bit):
            at, bit = rng.randrange(end), rng.randrange(8)
        f.seek(at)
        f.write(bytes([data[at] ^ 1 << bit]))
        f.flush()
        os.fsync(f.fileno())
    return 'bit %d of byte %d' % (bit, at)
