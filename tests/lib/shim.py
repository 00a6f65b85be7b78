"""Controls tests/torture/shim.c: disturbs a process that runs with that library preloaded, and takes back what the process had not
synced when it was killed.

    shim = Shim(lab.path('node1.shim'), data, journal=True)
    lab.start(shim.env_command() + argv, 'node1')
    shim.set('slow_us', 20000)              from now on every sync takes 20 ms longer
    shim.set('read_slow_us', 20000)         so does every read of a file; get('loop_reads'): how many its first thread made since
    shim.fail('sync', 3, errno.EIO)         the third sync from now on fails
    shim.lose_unsynced(rng)                 after a SIGKILL: as a power cut would have left the files
"""

import fcntl
import mmap
import os
import re
import struct

from harness.lab import build_dir
from harness.wait import wait_until

HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'torture', 'shim.h')


def enumerators(name):
    """{name in lower case, without its prefix: value} of an enum of shim.h, where the one list is."""
    with open(HEADER, encoding='utf-8') as f:
        body = re.search(r'enum %s \{(.*?)\};' % name, re.sub(r'/\*.*?\*/', '', f.read(), flags=re.S), re.S).group(1)
    found, following = {}, 0
    for entry in filter(None, re.split(r'[\s,]*,\s*|\s+$', body.strip())):
        word, value = re.fullmatch(r'(\w+)(?:\s*=\s*(\d+))?', entry).groups()
        following = int(value or following)
        found[word.lower().replace(name + '_', '', 1)] = following
        following += 1
    return found


def number(name):
    """A number that shim.h defines."""
    with open(HEADER, encoding='utf-8') as f:
        return int(re.search(r'#define %s (\d+)' % name, f.read()).group(1))


SLOT, KIND = enumerators('slot'), enumerators('kind')
SLOTS = SLOT['slots']
# In place of an errno: a write does part of what it shall; the process is killed before the call; it is killed after the write,
# which is not synced.
SHORT_WRITE, KILLED_BEFORE, KILLED_AFTER = map(number, ('SHORT_WRITE', 'KILLED_BEFORE', 'KILLED_AFTER'))
SECTOR = 512
RECORD = struct.Struct('<c7xQQQQQ') # type, ino, offset, len, size, bytes that follow


def library(name='fencelock_shim'):
    """The path of a library to preload, or None where it was not built."""
    path = os.path.join(build_dir(), 'tests', 'torture', name + '.so')
    return path if os.path.exists(path) else None


class Shim:
    def __init__(self, path, data, journal=False, more=(), memory=False):
        """path: of the control file, where its journal goes as well; data: the directory that is disturbed; more:
        libraries to preload in front of it; memory: allocations can fail too. No io_uring may be had unless set('ring', 1)."""
        self.path, self.data = path, data
        self.libraries = list(more) + [library('fencelock_shim' if memory else 'fencelock_shim_plain')]
        self.journal = path + '.undo' if journal else None
        with open(path, 'wb') as f:
            f.write(bytes(8 * SLOTS))
        with open(path, 'r+b') as f:
            self.map = mmap.mmap(f.fileno(), 8 * SLOTS)

    def env(self):
        """What the environment of the process must have. The directory must be there when it begins."""
        os.makedirs(self.data, mode=0o700, exist_ok=True)
        if os.path.exists(self.path + '.stack'):
            os.unlink(self.path + '.stack')
        env = {'LD_PRELOAD': ':'.join(self.libraries), 'FENCELOCK_SHIM': self.path, 'FENCELOCK_SHIM_DIR': self.data,
               'FENCELOCK_SHIM_STACK': '1',
               'ASAN_OPTIONS': '%s:verify_asan_link_order=0' % os.environ.get('ASAN_OPTIONS', 'abort_on_error=1')}
        if self.journal:
            env['FENCELOCK_SHIM_UNDO'] = self.journal
        return env

    def env_command(self):
        """The same as env(1) in front of a command line."""
        return ['env'] + ['%s=%s' % item for item in sorted(self.env().items())]

    # -- the control file -------------------------------------------------------------------------------
    def _put(self, at, value):
        struct.pack_into('<q', self.map, 8 * at, value)

    def _get(self, at):
        return struct.unpack_from('<q', self.map, 8 * at)[0]

    def set(self, name, value):
        self._put(SLOT[name], value)

    def get(self, name):
        return self._get(SLOT[name])

    def set_rate(self, ppm, now_ns):
        """The monotonic clock goes on from where it is, at another pace."""
        old = self.get('pace')
        rate, since, ahead = (self._get(SLOT['paces'] + 3 * old + i) for i in range(3))
        for i, value in enumerate((ppm, now_ns, ahead + (now_ns - since) // 1000000 * rate)):
            self._put(SLOT['paces'] + 3 * (1 - old) + i, value)
        self.set('pace', 1 - old)

    @staticmethod
    def _at(kind):
        return SLOT['kinds'] + 4 * KIND[kind]

    def calls(self, kind):
        return self._get(self._at(kind))

    def failed(self, kind):
        return self._get(self._at(kind) + 3)

    def stack(self):
        """The stacks of the calls that were made to fail; empty when none was."""
        try:
            with open(self.path + '.stack', encoding='utf-8', errors='replace') as f:
                return f.read()
        except FileNotFoundError:
            return ''

    def reset(self):
        """Resets counters and disturbances, for the next process."""
        self.map[:] = bytes(8 * SLOTS)

    def fail(self, kind, after, errno):
        """The call number `after` from now on fails, once."""
        at = self._at(kind)
        self._put(at + 2, errno)
        self._put(at + 1, self._get(at) + after)

    def fail_no_more(self, kind):
        self._put(self._at(kind) + 1, 0)

    # -- what a power cut leaves --------------------------------------------------------------------------
    def forget_journal(self):
        """Everything up to now counts as synced, or is gone together with its disk."""
        if self.journal and os.path.exists(self.journal):
            os.truncate(self.journal, 0)
            folder, name = os.path.split(self.journal)
            for other in os.listdir(folder):
                if other.startswith(name + '.'):
                    os.unlink(os.path.join(folder, other))

    def lose_unsynced(self, rng=None, torn=None):
        """Takes back what was not synced: all of it, or with rng some of it, since a disk may have written more than
        it was told to. torn: another rng; of the last write the first sectors stay, and others go.
        The process must be dead. Returns how many writes and names were taken back."""
        self._wait_for_children()
        records = _pending(_read(self.journal))
        if torn is not None:
            _tear(records, torn)
        if rng is not None:
            records = _choose(records, rng)
        files = _inodes([self.data, os.path.dirname(self.journal)])
        for r in reversed([r for r in records if r['type'] in 'WT']):
            _take_back(r, files)
        for r in reversed([r for r in records if r['type'] in 'CRU']):
            _rename_back(r)
        self.forget_journal()
        return len(records)

    def _wait_for_children(self):
        """A child dies with its parent, but a little later, and may be writing until then."""
        with open(self.journal, 'ab') as f:
            def alone():
                try:
                    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    return False
            wait_until(alone, 'the end of all that write to %s' % self.journal, every=0.005)


def _read(path):
    """All whole records, with where each begins."""
    try:
        with open(path, 'rb') as f:
            data = f.read()
    except FileNotFoundError:
        return
    at = 0
    while at + RECORD.size <= len(data):
        kind, ino, offset, length, size, n = RECORD.unpack_from(data, at)
        end = at + RECORD.size + n
        if end > len(data):
            return # the process was killed before the write that this was to prepare
        yield {'at': at, 'type': kind.decode(), 'ino': ino, 'offset': offset, 'len': length, 'size': size,
               'bytes': data[at + RECORD.size:end], 'synced': []}
        at = end


def _pending(records):
    """The records that no sync has made durable, in order. `synced` of a record: ranges of it that later writes have made durable."""
    pending = []
    for r in records:
        if r['type'] in 'WTCRU':
            pending.append(r)
        elif r['type'] == 'S':
            pending = [p for p in pending if not (p['ino'] == r['ino'] and p['type'] in 'WT' and p['at'] < r['offset'])]
        elif r['type'] == 'D':
            # Journaling file systems commit what is not data in order, so sizes of files that were made longer go along.
            pending = [p for p in pending if not (p['at'] < r['offset'] and (
                p['type'] == 'T' or p['ino'] == r['ino'] and p['type'] in 'CRU'))]
        else:
            _mark_synced(pending, r)
    return pending


def _mark_synced(earlier, r):
    for p in earlier:
        if p['ino'] == r['ino'] and p['type'] in 'WT':
            p['synced'].append((r['offset'], r['offset'] + r['len']))


def _tear(records, rng):
    last = [r for r in records if r['type'] == 'W' and r['len'] > SECTOR][-1:]
    for r in last:
        _mark_synced(records, dict(r, len=SECTOR * rng.randrange(1, -(-r['len'] // SECTOR))))


def _replaces(gone, renamed):
    """Whether these are the two halves of a rename over another file, which happens whole or not at all."""
    return gone['type'] == 'U' and renamed['type'] == 'R' and \
        gone['bytes'].split(b'\n')[0] == renamed['bytes'].split(b'\n')[1]


def _choose(records, rng):
    """Some of the records: any writes of data, but only the changes of names after some moment, since file systems keep their order."""
    share = rng.choice((0.0, 0.5, 0.9))
    names = [r for r in records if r['type'] in 'CRU']
    kept = rng.randrange(len(names) + 1) if share else 0
    if 0 < kept < len(names) and _replaces(names[kept - 1], names[kept]):
        kept += 1
    gone = [r['at'] for r in names[kept:]]
    chosen = []
    for r in records:
        if r['type'] in 'WT' and rng.random() < share:
            _mark_synced(chosen, r)
        elif r['type'] in 'WT' or r['at'] in gone:
            chosen.append(r)
    return chosen


def _inodes(folders):
    found = {}
    for top in folders:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    found[os.lstat(path).st_ino] = path
                except FileNotFoundError:
                    pass
    return found


def _take_back(r, files):
    path = files.get(r['ino'])
    if path is None:
        return # gone as well
    with open(path, 'r+b') as f:
        at, end = r['offset'], r['offset'] + (r['len'] if r['type'] == 'W' else 0)
        old = r['bytes'].ljust(end - at, b'\0') # beyond its end a file that is made longer reads as zeros
        for began, ended in sorted(r['synced']) + [(end, end)]:
            began = min(max(began, at), end)
            if began > at:
                f.seek(at)
                f.write(old[at - r['offset']:began - r['offset']])
            at = max(at, ended)
        if r['size'] < r['offset'] + r['len']: # it had made the file longer
            f.truncate(max([r['size']] + [ended for _, ended in r['synced']]))


def _rename_back(r):
    text = r['bytes'].decode().split('\n')
    try:
        if r['type'] == 'C':
            os.unlink(text[0])
        elif r['type'] == 'R':
            os.rename(text[1], text[0])
        elif not os.path.exists(text[0]):
            os.link(text[1], text[0])
    except FileNotFoundError:
        pass
