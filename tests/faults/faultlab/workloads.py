"""The workloads: of each, the function that a client (client.py) repeats. It invokes operations and records them; they are judged later.
After a write that was refused or never answered, nothing more is written under its token."""

import select
import time

from harness import RespError

LIST_MAX = 60 # then the next list begins; every read records a whole one


def counter(c):
    """Reads a counter under a lock, adds one, writes it back. The value is `count id`, where the id is that of the
    add that wrote it: with what each add was based on, the whole lineage of a value can be told."""
    lock, token = c.acquire()
    if token is None:
        return
    key = 'counter-of-' + lock
    for _ in range(c.random.choice((1, 1, 1, 2, 4))):
        kind, value = c.read(lock, key, token)
        if kind != 'ok':
            break
        count, based_on = value.split() if value else ('0', 'nothing')
        c.think()
        c.maybe_pause()
        mine = 'a%d-%d' % (c.o.number, c.ops)
        new = '%d %s' % (int(count) + 1, mine)
        kind, _ = c.ask_store('add', ['SET', key, new, 'FENCE', lock, token], lock=lock, key=key, token=token,
                              id=mine, based_on=based_on, count=int(count) + 1)
        if kind != 'ok':
            break
    if c.random.random() < 0.9:
        c.release(lock, token)


def append(c):
    """Reads a list under a lock, appends to it, writes it back."""
    lock, token = c.acquire()
    if token is None:
        return
    for _ in range(c.random.choice((1, 1, 2, 4))):
        key = 'list-%d-of-%s' % (c.lists.get(lock, 0), lock)
        kind, value = c.read(lock, key, token)
        if kind != 'ok':
            break
        elements = value.split() if value else []
        if len(elements) >= LIST_MAX:
            c.lists[lock] = c.lists.get(lock, 0) + 1
            continue
        c.think()
        c.maybe_pause()
        mine = 'e%d-%d' % (c.o.number, c.ops)
        kind, _ = c.ask_store('append', ['SET', key, ' '.join(elements + [mine]), 'FENCE', lock, token],
                              lock=lock, key=key, token=token, id=mine)
        if kind != 'ok':
            break
    if c.random.random() < 0.9:
        c.release(lock, token)


def register(c):
    """The storage alone: tokens are drawn and no lock is held, so that writes and reads with new, old and the same
    tokens meet. What is refused tells something too: that the mark was above."""
    lock = 'lock-%d' % c.random.randrange(c.o.locks)
    key = 'register-of-' + lock
    if lock not in c.drawn or c.random.random() < 0.3:
        token = c.ask_nodes('token', ['TOKEN', lock], 6.0, lock=lock, owner='%d-%d' % (c.o.number, c.ops))[1]
        if token is None:
            return
        c.drawn.setdefault(lock, []).append(token)
    token = c.random.choice(c.drawn[lock][-3:])
    for _ in range(c.random.choice((1, 2, 3))):
        c.think()
        c.maybe_pause()
        what = c.random.random()
        if what < 0.45:
            value = 'w%d-%d' % (c.o.number, c.ops)
            c.ask_store('write', ['SET', key, value, 'FENCE', lock, token], lock=lock, key=key, token=token, value=value)
        elif what < 0.75:
            c.ask_store('get', ['GET', key], lock=lock, key=key)
        else:
            c.ask_store('get', ['GET', key, 'FENCE', lock, token], lock=lock, key=key, token=token)


def lock(c):
    """The lock alone: renews, checks, releases; sometimes keeps it for longer than its lease, which only renewals
    make possible; sometimes walks away and lets it expire."""
    name, token = c.acquire()
    if token is not None:
        use(c, name, token)


def use(c, name, token):
    ttl_s = c.o.ttl_ms / 1000.0
    if c.random.random() < 0.25:
        for _ in range(c.random.choice((2, 3))):
            time.sleep(c.random.uniform(0.5, 0.8) * ttl_s)
            c.maybe_pause()
            c.renew(name, token)
    for _ in range(c.random.randrange(4)):
        c.think()
        c.maybe_pause()
        if c.random.random() < 0.5:
            c.renew(name, token)
        else:
            c.check(name, token)
    if c.random.random() < 0.85:
        c.release(name, token)
        if c.random.random() < 0.2:
            c.check(name, token)


def semaphore(c):
    """Locks that several hold: some with three permits, some with readers and writers."""
    number = c.random.randrange(c.o.locks)
    if c.random.random() < 0.5:
        name, mode, words = 'three-%d' % number, 'permits', ['PERMITS', 3]
    elif c.random.random() < 0.7:
        name, mode, words = 'readers-%d' % number, 'shared', ['MODE', 'SHARED']
    else:
        name, mode, words = 'readers-%d' % number, 'alone', []
    _, token = c.acquire(name, words, mode=mode)
    if token is not None:
        use(c, name, token)


def session(c):
    """A session with several locks: opened, renewed, closed, or left to expire."""
    owner = 'session-%03d-turn-%08d-%08x' % (c.o.number, c.ops, c.random.getrandbits(32))
    ttl_s = c.o.ttl_ms / 1000.0
    until = time.monotonic() + ttl_s
    if not c.ask_nodes('open', ['SESSION', 'OPEN', owner, 'TTL', c.o.ttl_ms], 6.0, session=owner, ttl=ttl_s)[0]:
        return
    held = {}
    for _ in range(c.random.choice((1, 2, 3, 5))):
        c.think()
        c.maybe_pause()
        what = c.random.random()
        if what < 0.5:
            name = 'lock-%d' % c.random.randrange(c.o.locks)
            args = ['ACQUIRE', name, 'SESSION', owner] + (['WAIT', c.random.choice((100, 400))] if c.random.random() < 0.5 else [])
            token = c.ask_nodes('acquire', args, 12.0, lock=name, owner=owner, session=owner,
                                ttl=max(0.0, until - time.monotonic()))[1]
            if token is not None:
                held[name] = token
        elif what < 0.8:
            time.sleep(c.random.uniform(0.0, 0.6) * ttl_s)
            sent = time.monotonic()
            found = c.ask_nodes('session renew', ['SESSION', 'RENEW', owner], 6.0, session=owner, ttl=ttl_s)[1]
            until = max(until, sent + ttl_s) if found == 1 else until
        elif held:
            name = c.random.choice(sorted(held))
            if c.random.random() < 0.4:
                c.ask_nodes('release', ['RELEASE', name, held[name]], 6.0, lock=name, token=held.pop(name), session=owner)
            else:
                c.ask_nodes('check', ['CHECK', name, held[name]], 6.0, lock=name, token=held[name], session=owner)
    if c.random.random() < 0.75:
        c.ask_nodes('session close', ['SESSION', 'CLOSE', owner], 6.0, session=owner)
        if held and c.random.random() < 0.3:
            name = c.random.choice(sorted(held))
            c.ask_nodes('check', ['CHECK', name, held[name]], 6.0, lock=name, token=held[name], session=owner)


def is_subscriber(workload, number):
    return workload == 'watch' and number < 2


def watch(c):
    """Clients 0 and 1 listen to everything that happens to locks; the others make it happen."""
    if not is_subscriber('watch', c.o.number):
        lock(c)
        return
    c.listening = getattr(c, 'listening', -1) + 1
    name, end = '%d-%d' % (c.o.number, c.listening), time.monotonic() + c.random.uniform(1.0, 6.0)
    try:
        with c.nodes.connect(c.nodes.addresses[c.random.randrange(len(c.nodes.addresses))], 10) as r:
            r.send('PSUBSCRIBE', 'lock:*')
            while not c.stopping and time.monotonic() < end:
                if r.at >= len(r.buffer) and not select.select([r.sock], [], [], 0.25)[0]:
                    continue
                frame = r.read()
                if isinstance(frame, RespError):
                    return
                if frame[0] == b'pmessage':
                    words = dict(w.split('=', 1) for w in frame[3].decode().split())
                    c.note('seen', f='seen', connection=name, lock=frame[2].decode().partition(':')[2], event=words['event'],
                           owner=words.get('owner'), token=int(words['token']) if 'token' in words else None,
                           wait=int(words['wait']) if 'wait' in words else None,
                           clock=int(words['clock']))
    except (OSError, RespError):
        time.sleep(0.05)


def bank(c):
    """Moves an amount between two accounts of several, under both of their locks and one token, named in either order. The
    sum of all accounts stays the same, but for moves of which only one half was let through."""
    first, second = ('account-%d' % n for n in c.random.sample(range(max(3, c.o.locks)), 2))
    token = c.acquire(first, ['ALSO', second], also=[second])[1]
    if token is None:
        return
    for _ in range(c.random.choice((1, 1, 2))):
        seen = {}
        for lock in (first, second):
            kind, value = c.read(lock, 'counter-of-' + lock, token)
            if kind != 'ok':
                break
            seen[lock] = value.split() if value else ['0', 'nothing']
        if len(seen) < 2 or not _move(c, first, second, token, seen):
            break
        if c.random.random() < 0.3:
            c.ask_nodes('check', ['CHECK', second, token], 6.0, lock=second, token=token)
    if c.random.random() < 0.3:
        c.ask_nodes('renew', ['RENEW', second, token], 6.0, lock=second, also=[first], token=token, ttl=c.o.ttl_ms / 1000.0)
    if c.random.random() < 0.9:
        lock, other = (first, second) if c.random.random() < 0.5 else (second, first)
        c.ask_nodes('release', ['RELEASE', lock, token], 6.0, lock=lock, also=[other], token=token)


def _move(c, first, second, token, seen):
    move, amount = 'm%d-%d' % (c.o.number, c.ops), c.random.randrange(1, 100)
    for lock, delta in ((first, -amount), (second, amount)):
        c.think()
        c.maybe_pause()
        count, based_on = seen[lock]
        mine, key = 'a%d-%d' % (c.o.number, c.ops), 'counter-of-' + lock
        kind, _ = c.ask_store('add', ['SET', key, '%d %s' % (int(count) + delta, mine), 'FENCE', lock, token], lock=lock, key=key,
                              token=token, id=mine, based_on=based_on, count=int(count) + delta, delta=delta, move=move)
        if kind != 'ok':
            return False
    return True


WORKLOADS = {'bank': bank, 'counter': counter, 'append': append, 'register': register, 'lock': lock, 'semaphore': semaphore,
         'session': session, 'watch': watch}
