"""The linearizability judge: is there one order of the operations on an object, each at some moment between its invocation
and its answer, in which every answer is right? An operation with an unknown outcome may happen at any moment after its
invocation, or never.

The search goes through the answers in time order and keeps every configuration that is still possible (a state, and which
of the open operations have happened in it), as Lowe's just-in-time linearization does. Objects are independent of
each other, so each is judged alone; one whose search needs more than CONFIGURATIONS_MAX at once is reported as undecided.

A model defines an object: `start`, step(state, op) -> the states that the operation may lead to with the answer
that it had, expire(state, now) -> states it may go to by itself, forgettable(states, op) -> whether an unknown operation can no
longer make a difference, and interchangeable(op, now) -> None, or a key: of unknown operations with the same key it makes no
difference which of them happens."""

import math
from collections import defaultdict

from .checkers import Anomaly

CONFIGURATIONS_MAX = 200000
FREE, UNKNOWN = None, 'unknown'


class LockModel:
    """The lock: free, or held under a token. acquire answers a token larger than all before and makes it held (only when free), or
    nil (only when held). renew, check and release answer 1 only when held under their token. A lease may end at any moment
    from the last invocation that made it long (grant or renewal that the chosen order contains) plus its TTL on, never
    before; that is the earliest an outside observer can know of.

    Renewals and closes of sessions come with the tokens that their session got on this lock: a renewal makes the lease of
    such a holder long, a close ends it, and neither finds its session gone while it holds the lock."""
    start = (FREE, 0.0, 0) # holder, its lease may end from, highest token

    @staticmethod
    def expire(state, now):
        return [(FREE, 0.0, state[2])] if state[0] is not FREE and state[1] <= now else []

    @staticmethod
    def forgettable(states, op):
        return op.f == 'check'

    @staticmethod
    def interchangeable(op, now):
        """Unknown grants whose lease may end as soon as they happen."""
        return (op.get('session'),) if op.f == 'acquire' and op.invoked + op.get('ttl') <= now else None

    @staticmethod
    def step(state, op):
        if op.f == 'acquire':
            return _acquire(state, op)
        if op.get('tokens') is not None:
            return _of_session(state, op)
        holder, until, highest = state
        held = holder == op.get('token')
        if op.type == 'info':
            if op.f == 'release' and held:
                return [(FREE, 0.0, highest)]
            return [(holder, max(until, op.invoked + op.get('ttl')), highest)] if op.f == 'renew' and held else [state]
        if op.get('found') == 1:
            if not held:
                return []
            if op.f == 'release':
                return [(FREE, 0.0, highest)]
            return [(holder, max(until, op.invoked + op.get('ttl')), highest)] if op.f == 'renew' else [state]
        if not held:
            return [state]
        # An earlier try of it, whose answer was lost, may have released the lock; this one then found nothing.
        return [(FREE, 0.0, highest)] if op.f == 'release' and op.get('retried') else []


def _acquire(state, op):
    holder, until, highest = state
    token = op.get('token')
    if op.type == 'info':
        mark = (UNKNOWN, op.get('session'))
        return [(mark, op.invoked + op.get('ttl'), highest)] if holder is FREE else []
    if token is None:
        return [state] if holder is not FREE else []
    if holder == token and op.get('session') is not None:
        return [state] # the same session asks for it again
    return [(token, op.invoked + op.get('ttl'), token)] if holder is FREE and token > highest else []


def _of_session(state, op):
    holder, until, highest = state
    if holder not in op.get('tokens') and holder != (UNKNOWN, op.get('session')):
        return [state]
    if op.type == 'ok' and op.get('found') == 0 and not op.get('retried'):
        return []
    if op.f == 'session renew':
        return [(holder, max(until, op.invoked + op.get('ttl')), highest)] if op.get('found') != 0 else []
    return [(FREE, 0.0, highest)]


class RegisterModel:
    """A key of the storage: its value and the mark of its lock. The storage refuses exactly the operations whose token is below the mark;
    all others raise the mark to their token."""
    start = (None, 0)

    @staticmethod
    def expire(state, now):
        return []

    @staticmethod
    def forgettable(states, op):
        return op.f == 'get' and op.get('token') is None or all(mark > op.get('token') for _, mark in states)

    @staticmethod
    def interchangeable(op, now):
        return None

    @staticmethod
    def step(state, op):
        value, mark = state
        token = op.get('token')
        if op.get('stale'):
            return [state] if token < mark else []
        if token is not None and token < mark:
            return []
        if op.f == 'write':
            return [(op.get('value'), token)]
        if op.type == 'ok' and op.get('value') != value:
            return []
        return [(value, mark if token is None else token)]


def _settle(model, state, done, open_ops):
    """Lets everything happen at once that has an answer, which is right now, and changes nothing: to wait with it could
    only be worse. This keeps the many clients that are told no from multiplying the configurations."""
    more = {op.id for op in open_ops.values() if op.type == 'ok' and op.id not in done and model.step(state, op) == [state]}
    return (state, done | more) if more else (state, done)


class _Front:
    """Configurations that were reached. One in which more unknown operations have happened than in another, and nothing
    else is different, is left out: those that have not happened yet may still, or never."""

    def __init__(self, open_ops):
        self.unknown = frozenset(op.id for op in open_ops.values() if op.type == 'info')
        self.minimal = defaultdict(list)
        self.size = 0

    def add(self, configuration):
        """Whether it is a new one."""
        state, done = configuration
        happened, row = done & self.unknown, self.minimal[(state, done - self.unknown)]
        if any(other <= happened for other in row):
            return False
        kept = [other for other in row if not happened <= other]
        self.size += 1 + len(kept) - len(row)
        row[:] = kept + [happened]
        return True

    def all(self):
        return {(state, done | happened) for (state, done), row in self.minimal.items() for happened in row}


def _older_equals(model, open_ops, now):
    """Of interchangeable operations the older happens first: {id: id of the next older one}."""
    last, older = {}, {}
    for op in open_ops.values(): # in order of invocation
        key = model.interchangeable(op, now) if op.type == 'info' else None
        if key is not None:
            if key in last:
                older[op.id] = last[key]
            last[key] = op.id
    return older


def _expand(model, start, open_ops, now):
    """All configurations that can be reached by letting open operations happen and leases end, up to `now`."""
    front, todo, older_equals = _Front(open_ops), [], _older_equals(model, open_ops, now)
    for state, done in start:
        c = _settle(model, state, done, open_ops)
        if front.add(c):
            todo.append(c)
    while todo:
        state, done = todo.pop()
        following = [(s, done) for s in model.expire(state, now)]
        for op in open_ops.values():
            if op.id not in done and older_equals.get(op.id, op.id) in done | {op.id}:
                following += [(s, done | {op.id}) for s in model.step(state, op) if s != state]
        for c in following:
            c = _settle(model, *c, open_ops)
            if front.add(c):
                todo.append(c)
        if front.size > CONFIGURATIONS_MAX:
            return None
    return front.all()


def search(model, name, ops):
    """None when there is such an order, otherwise an Anomaly."""
    events = []
    for op in ops:
        events.append((op.invoked, 0, op))
        if op.type == 'ok':
            events.append((op.completed, 1, op))
    events.sort(key=lambda e: e[:2])
    configurations, open_ops, recent = {(model.start, frozenset())}, {}, []
    for now, answered, op in events:
        if not answered:
            open_ops[op.id] = op
            continue
        recent = (recent + [op])[-4:]
        grown = _expand(model, configurations, open_ops, now)
        if grown is None:
            return Anomaly('linearizable', 'undecided: too many operations on %s are open at once' % name, [op])
        del open_ops[op.id]
        configurations = {(state, done - {op.id}) for state, done in grown if op.id in done}
        if not configurations:
            return Anomaly('linearizable', 'no order of the operations on %s explains the answer to %s of client %s, the last of these'
                           % (name, op.f, op.client), recent)
        # Unknown outcomes whose happening can no longer make a difference would only multiply configurations.
        states = {state for state, _ in configurations}
        for other in list(open_ops.values()):
            if other.type == 'info' and model.forgettable(states, other):
                del open_ops[other.id]
                configurations = {(state, done - {other.id}) for state, done in configurations}
    return None


def _all(model, of_name):
    return [a for a in (search(model, name, row) for name, row in sorted(of_name.items())) if a]


def _late_tries(op):
    """An acquire that was sent again is one operation, but each try of it that was never answered may still arrive, also
    after the grant that another try found has ended, and is then granted to nobody (docs/GUARANTEES.md, Ub)."""
    tries = op.get('unknown', 1 if op.get('retried') or op.type == 'info' else 0) - (op.type == 'info')
    late = []
    for number in range(tries):
        try_ = op.with_field('token', None)
        try_.id, try_.type, try_.completed = '%s, try %d' % (op.id, number + 1), 'info', math.inf
        late.append(try_)
    return late


def locks(ops):
    """Judges every lock of a history. Operations that surely did not happen are left out."""
    of_lock, late, tokens = defaultdict(list), defaultdict(list), defaultdict(lambda: defaultdict(set))
    for op in ops:
        if op.f == 'acquire' and op.get('session') is not None:
            tokens[op.get('session')][op.get('lock')].update({op.get('token')} - {None})
    for op in ops:
        if op.type == 'info':
            op.completed = math.inf
        if op.f in ('acquire', 'renew', 'check', 'release') and op.type != 'fail':
            of_lock[op.get('lock')].append(op)
            late[op.get('lock')] += _late_tries(op) if op.f == 'acquire' else []
        elif op.f in ('session renew', 'session close') and op.type != 'fail':
            for lock, those in tokens[op.get('session')].items():
                of_lock[lock].append(op.with_field('tokens', those))
    wrong = []
    for lock, row in sorted(of_lock.items()):
        found = search(LockModel, lock, row)
        if found and late[lock]: # they are many, and seldom needed
            found = search(LockModel, lock, row + late[lock])
        wrong += [found] if found else []
    return wrong


def values_told(ops):
    """When each value was first told to somebody who read it."""
    told = {}
    for op in ops:
        if op.f == 'get' and op.ok:
            told[op.get('value')] = min(op.completed, told.get(op.get('value'), math.inf))
    return told


def was_stale(op):
    return op.type == 'fail' and (op.get('error') or '').startswith('STALE')


def registers(ops):
    """Judges every key of the storage. A refusal of a stale token is an answer as well. Values are unique, which decides
    about most writes that were never answered: one whose value was read has happened before that was told; one whose value
    was never read can only have raised the mark, as an unanswered read with a token can, and of those one a token is enough."""
    of_key, told, claims = defaultdict(list), values_told(ops), set()
    for op in ops:
        stale = was_stale(op)
        if op.f not in ('write', 'get') or op.type == 'fail' and not stale:
            continue
        if stale:
            op = op.with_field('stale', True)
            op.type = 'ok'
        elif op.type == 'info' and op.f == 'write' and op.get('value') in told:
            op = op.with_field('unanswered', True)
            op.type, op.completed = 'ok', told[op.get('value')]
        elif op.type == 'info':
            claim = op.get('key'), op.get('token')
            if op.get('token') is None or claim in claims:
                continue
            claims.add(claim)
            op = op.with_field('value', None)
            op.f, op.completed = 'get', math.inf
        of_key[op.get('key')].append(op)
    return _all(RegisterModel, of_key)
