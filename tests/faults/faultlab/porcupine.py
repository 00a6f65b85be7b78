"""The history as tests/faults/porcupine reads it: one JSON object a line, an operation on one object.

    object    `lock X`, `key X` (of the storage), or `tokens`, the counter that all grants of the cluster draw from
    call, return   seconds; without a return it may happen at any time after its call, or never
    known     there is an answer; token, value, found: what it says

A lease that may end is an operation of its own, `end`, which may happen from then on, or never. Porcupine knows of no
operation that was never carried out; all of those here change nothing when they come last, and so may be put there."""

import json
from collections import defaultdict

from . import linear
from .history import pair


def _row(object_, op, known, **more):
    row = {'object': object_, 'client': op.client, 'f': op.f, 'call': op.invoked, 'known': known}
    if known:
        row['return'] = op.completed
    row.update({k: v for k, v in more.items() if v not in (None, False)})
    return row


def _end(lock, holder, token, call):
    row = {'object': 'lock ' + lock, 'client': -1, 'f': 'end', 'call': call, 'known': False}
    row.update({'holder': holder} if token is None else {'token': token})
    return row


def _lock_rows(ops):
    """Of the workload `lock`: one holder, no sessions, one lock at a time."""
    lasts = defaultdict(float)
    for op in ops:
        if op.f == 'renew' and op.ok and op.get('found') == 1:
            held = op.get('lock'), op.get('token')
            lasts[held] = max(lasts[held], op.invoked + op.get('ttl'))
    for op in ops:
        lock = op.get('lock')
        if op.f == 'acquire':
            unknown = op.get('unknown', 0) if op.ok else max(1, op.get('unknown', 0))
            for number in range(unknown): # tries without an answer, each of which may still be carried out
                holder = '%s try %d' % (op.id, number)
                yield _row('lock ' + lock, op, False, holder=holder)
                yield _end(lock, holder, None, op.invoked + op.get('ttl'))
            if op.ok:
                yield _row('lock ' + lock, op, True, token=op.get('token'))
            if op.ok and op.get('token') is not None:
                yield _end(lock, None, op.get('token'), max(op.invoked + op.get('ttl'), lasts[lock, op.get('token')]))
        elif op.f in ('renew', 'check', 'release') and (op.ok or op.f == 'release'):
            yield _row('lock ' + lock, op, op.ok, token=op.get('token'), found=op.get('found') == 1, retried=op.get('retried'))


def _key_rows(ops):
    """Of the workload `register`. An unanswered write whose value nobody read can only have raised the mark, as an unanswered
    read with a token can, and of those one a token is enough."""
    read, claims = linear.values_told(ops), set()
    for op in ops:
        stale = linear.was_stale(op)
        if op.f not in ('write', 'get') or op.type == 'fail' and not stale:
            continue
        if stale:
            row = _row('key ' + op.get('key'), op, True, token=op.get('token'))
            row.update({'f': 'stale', 'return': op.get('answered')})
        elif op.type == 'info' and op.f == 'write' and op.get('value') in read: # done before its value was told
            row = _row('key ' + op.get('key'), op, True, token=op.get('token'), value=op.get('value'))
            row['return'] = read[op.get('value')]
        elif not op.ok and (op.get('token') is None or (op.get('key'), op.get('token')) in claims):
            continue
        else:
            row = _row('key ' + op.get('key'), op, op.ok, token=op.get('token'), value=op.get('value'))
            if not op.ok:
                claims.add((op.get('key'), op.get('token')))
                row.update({'f': 'get', 'value': ''})
        yield row


def _token_rows(ops):
    first = {}
    for op in ops:
        if op.f in ('acquire', 'token') and op.ok and op.get('token') is not None and op.get('session') is None and \
                not op.get('retried'):
            first.setdefault((op.get('token'), op.get('lock'), op.get('owner')), op)
    for op in first.values():
        yield _row('tokens', op, True, token=op.get('token'))


def rows(events, workload):
    ops = [op for op in pair(events) if op.type != 'fail' or op.f in ('write', 'get')]
    found = list(_token_rows(ops))
    if workload == 'lock':
        found += _lock_rows(ops)
    if workload == 'register':
        found += _key_rows(ops)
    return sorted(found, key=lambda row: row['call'])


def text(events, workload):
    return ''.join(json.dumps(row, separators=(',', ':')) + '\n' for row in rows(events, workload))
