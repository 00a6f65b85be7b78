"""The linearizability judge for locks: is there one order of the operations on a lock, each at some moment between its
invocation and its answer, in which every answer is right?

The lock: free, or held under a token. acquire answers a token larger than all before and makes it held (only when free), or nil (only
when held). renew, check and release answer 1 only when held under their token. A lease may end at any moment from the
last invocation that made it long (grant or renewal that the chosen order contains) plus its TTL on, never before; that is the
earliest an outside observer can know of. An operation with an unknown outcome may happen at any moment after its invocation, or
never.

The search goes through the answers in time order and keeps every configuration that is still possible (a state, and which
of the open operations have happened in it), as Lowe's just-in-time linearization does. Locks are independent of
each other, so each is judged alone; a lock whose search needs more than CONFIGURATIONS_MAX at once is reported as undecided."""

import math
from collections import defaultdict

from .checkers import Anomaly

CONFIGURATIONS_MAX = 200000
FREE, UNKNOWN = None, 'unknown'


def _step(state, op, now):
    """States that op may lead to. state: (holder, lease may end from, highest token)."""
    holder, until, highest = state
    f, token = op.f, op.get('token')
    if f == 'acquire':
        if op.type == 'info':
            return [(UNKNOWN, op.invoked + op.get('ttl'), highest)] if holder is FREE else []
        if token is None:
            return [state] if holder is not FREE else []
        return [(token, op.invoked + op.get('ttl'), token)] if holder is FREE and token > highest else []
    held = holder == token
    if op.type == 'info':
        if f == 'release' and held:
            return [(FREE, 0.0, highest)]
        return [(holder, max(until, op.invoked + op.get('ttl')), highest)] if f == 'renew' and held else [state]
    found = op.get('found')
    if found == 1:
        if not held:
            return []
        if f == 'release':
            return [(FREE, 0.0, highest)]
        return [(holder, max(until, op.invoked + op.get('ttl')), highest)] if f == 'renew' else [state]
    if not held:
        return [state]
    # An earlier try of it, whose answer was lost, may have released the lock; this one then found nothing.
    return [(FREE, 0.0, highest)] if f == 'release' and op.get('retried') else []


def _settle(state, done, open_ops, now):
    """Lets everything happen at once that has an answer, which is right now, and changes nothing: to wait with it could
    only be worse. This keeps the many clients that are told no from multiplying the configurations."""
    more = {op.id for op in open_ops.values() if op.type == 'ok' and op.id not in done and _step(state, op, now) == [state]}
    return (state, done | more) if more else (state, done)


def _expand(start, open_ops, now):
    """All configurations that can be reached by letting open operations happen and leases end, up to `now`."""
    seen = {_settle(state, done, open_ops, now) for state, done in start}
    todo = list(seen)
    while todo:
        state, done = todo.pop()
        following = []
        if state[0] is not FREE and state[1] <= now:
            following.append(((FREE, 0.0, state[2]), done))
        for op in open_ops.values():
            if op.id not in done:
                following += [(s, done | {op.id}) for s in _step(state, op, now) if s != state]
        for c in following:
            c = _settle(*c, open_ops, now)
            if c not in seen:
                seen.add(c)
                todo.append(c)
        if len(seen) > CONFIGURATIONS_MAX:
            return None
    return seen


def one_lock(lock, ops):
    """None when there is such an order, otherwise an Anomaly."""
    events = []
    for op in ops:
        events.append((op.invoked, 0, op))
        if op.type == 'ok':
            events.append((op.completed, 1, op))
    events.sort(key=lambda e: e[:2])
    configurations, open_ops, recent = {((FREE, 0.0, 0), frozenset())}, {}, []
    for now, answered, op in events:
        if not answered:
            open_ops[op.id] = op
            continue
        recent = (recent + [op])[-4:]
        grown = _expand(configurations, open_ops, now)
        if grown is None:
            return Anomaly('linearizable', 'undecided: too many operations on %s are open at once' % lock, [op])
        del open_ops[op.id]
        configurations = {(state, done - {op.id}) for state, done in grown if op.id in done}
        if not configurations:
            return Anomaly('linearizable', 'no order of the operations on %s explains the answer to %s of client %s, the last of these'
                           % (lock, op.f, op.client), recent)
        # Unknown outcomes whose happening can no longer make a difference would only multiply configurations.
        for other in list(open_ops.values()):
            if other.type == 'info' and other.f in ('check',):
                del open_ops[other.id]
                configurations = {(state, done - {other.id}) for state, done in configurations}
    return None


def locks(ops):
    """Judges every lock of a history. Operations that surely did not happen are left out."""
    of_lock = defaultdict(list)
    for op in ops:
        if op.f in ('acquire', 'renew', 'check', 'release') and op.type != 'fail':
            if op.type == 'info':
                op.completed = math.inf
            of_lock[op.get('lock')].append(op)
    return [a for a in (one_lock(lock, row) for lock, row in sorted(of_lock.items())) if a]
