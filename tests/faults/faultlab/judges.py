"""More judges, of one workload each: lists, semaphores and readers, sessions, events. As those in checkers.py they are
pure functions, and compare times only as an outside observer may."""

import heapq
from collections import defaultdict

from .checkers import STORED, Anomaly, grants_of

PERMITS = 3 # of the semaphores of the workload


def lists(ops, finals):
    """Every append that was acknowledged is in the final list, once; every read saw a beginning of it, with all that had
    been acknowledged before it was sent; and tokens never fall along the list. finals: {key: text or None}."""
    wrong, appends, reads = [], defaultdict(dict), defaultdict(list)
    for op in ops:
        if op.f == 'append':
            appends[op.get('key')][op.get('id')] = op
        elif op.f == 'read' and op.ok:
            reads[op.get('key')].append(op)
    for key in sorted(set(appends) | set(reads)):
        if key not in finals:
            wrong.append(Anomaly('lost updates', 'nobody read the final value of %s' % key))
            continue
        final = (finals[key] or '').split()
        wrong += _one_list(key, final, appends[key], reads[key])
    return wrong


def _one_list(key, final, appends, reads):
    wrong, place = [], {}
    for i, element in enumerate(final):
        op = appends.get(element)
        if op is None or op.type == 'fail':
            wrong.append(Anomaly('lost updates', '%s holds %r, which %s' % (key, element, 'nobody appended' if op is None else
                                 'was refused'), [op] if op else []))
        if element in place:
            wrong.append(Anomaly('lost updates', '%s holds %r twice' % (key, element)))
        place[element] = i
    for op in appends.values():
        if op.ok and op.get('id') not in place:
            wrong.append(Anomaly('lost updates', 'the append %s to %s was acknowledged and is not in the final list'
                                 % (op.get('id'), key), [op]))
    known = [appends[e] for e in final if e in appends]
    for first, second in zip(known, known[1:]):
        if second.get('token') < first.get('token'):
            wrong.append(Anomaly('storage order', 'in %s the append with token %d stands behind that with token %d'
                                 % (key, second.get('token'), first.get('token')), [first, second]))
    done = sorted((op for op in appends.values() if op.ok and op.get('id') in place), key=lambda o: o.completed)
    at, furthest = 0, None
    for read in sorted(reads, key=lambda o: o.invoked):
        seen = (read.get('value') or '').split()
        while at < len(done) and done[at].completed < read.invoked:
            if furthest is None or place[done[at].get('id')] > place[furthest.get('id')]:
                furthest = done[at]
            at += 1
        if seen != final[:len(seen)]:
            wrong.append(Anomaly('lost updates', 'a read of %s saw what is no beginning of the final list' % key, [read]))
        elif furthest is not None and place[furthest.get('id')] >= len(seen):
            wrong.append(Anomaly('lost updates', 'a read of %s did not see %s, acknowledged before' % (key, furthest.get('id')),
                                 [furthest, read]))
    return wrong


def sums(ops, finals):
    """Moves between two accounts, each two adds of opposite amounts. In the end the accounts sum up to the halves of moves
    that were not let through as a whole. Whoever read both accounts under both locks saw both halves of every move that was
    acknowledged as a whole, or neither."""
    wrong, adds, moves, pairs = [], {}, defaultdict(list), defaultdict(dict)
    for op in ops:
        if op.f == 'add':
            adds[op.get('id')] = op
            moves[op.get('move')].append(op)
        elif op.f == 'read' and op.ok and op.get('token') is not None:
            pairs[op.get('token')].setdefault(op.get('key'), op) # what it saw first, before it wrote itself
    lineages = {}
    for key, value in finals.items():
        lineages[key] = _ids_before((value or '0 nothing').split()[1], adds)
    inside = set().union(*lineages.values()) if lineages else set()
    halves = sum(sum(h.get('delta') for h in both if h.get('id') in inside) for both in moves.values())
    total = sum(int((value or '0').split()[0]) for value in finals.values())
    if total != halves:
        wrong.append(Anomaly('sums', 'the accounts sum up to %d, and moves of which only a half was let through to %d' % (total, halves)))
    for both in moves.values():
        if any(h.ok and h.get('id') not in inside for h in both):
            wrong.append(Anomaly('sums', 'half of a move that was acknowledged is in no final value', both))
    whole = defaultdict(list) # of both keys
    for both in moves.values():
        if len(both) == 2 and all(h.ok for h in both):
            whole[frozenset(h.get('key') for h in both)].append(both)
    for token, reads in pairs.items():
        if len(reads) != 2:
            continue
        saw = {key: _ids_before((op.get('value') or '0 nothing').split()[1], adds) for key, op in reads.items()}
        for both in whole[frozenset(reads)]:
            there = [h.get('id') in saw[h.get('key')] for h in both]
            if there[0] != there[1] and both[0].get('token') != token:
                wrong.append(Anomaly('sums', 'token %d read two accounts and saw half of a move' % token, list(reads.values()) + both))
    return wrong


def _ids_before(at, adds):
    ids = set()
    while at in adds and at not in ids:
        ids.add(at)
        at = adds[at].get('based_on')
    return ids


def holders(ops):
    """Never more certain holders than a lock allows: one alone, PERMITS of a semaphore, any number of readers. A holder
    is certain from its answer until it sent its release or its lease, with acknowledged renewals, may have ended."""
    wrong, of_lock, ends = [], defaultdict(list), {}
    for g in grants_of(ops):
        of_lock[g.get('lock')].append(g)
        ends[g.get('token')] = g.invoked + g.get('ttl')
    released = {}
    for op in ops:
        token = op.get('token')
        if token in ends and op.f == 'renew' and op.ok and op.get('found') == 1 and token not in released:
            ends[token] = max(ends[token], op.invoked + op.get('ttl'))
        elif token in ends and op.f == 'release':
            released.setdefault(token, op.invoked)
    for lock, grants in of_lock.items():
        active = [] # (end, token, grant)
        for g in sorted(grants, key=lambda g: g.completed):
            end = min(ends[g.get('token')], released.get(g.get('token'), float('inf')))
            while active and active[0][0] <= g.completed:
                heapq.heappop(active)
            if end > g.completed:
                heapq.heappush(active, (end, g.get('token'), g))
            wrong += _too_many(lock, [a[2] for a in active])
    return wrong


def _too_many(lock, active):
    modes = {g.get('mode') for g in active}
    if modes == {'permits'} and len(active) > PERMITS:
        return [Anomaly('holders', '%s has %d permits and %d holders at once' % (lock, PERMITS, len(active)), active)]
    if len(active) > 1 and 'permits' not in modes and modes != {'shared'}:
        return [Anomaly('holders', '%s is held alone, and by %d at once' % (lock, len(active)), active)]
    return []


def sessions(ops):
    """A session lives until its lease, with acknowledged renewals, may have ended, or its close was sent; until then it is
    found, and so is every lock that it holds and has not released, and nobody else is granted one. A closed session holds
    nothing, and one that was not found once is never found again."""
    wrong, state, of_lock = [], {}, defaultdict(list)
    for op in ops: # one client uses a session, so the order of sending is also that of the answers
        s = state.setdefault(op.get('session'), {'until': 0.0, 'close_sent': float('inf'), 'closed': None, 'released': {}, 'gone': None})
        if op.get('session') is None:
            continue
        alive = op.completed < s['until'] and s['close_sent'] == float('inf')
        if op.f == 'open' and op.ok:
            s['until'] = op.invoked + op.get('ttl')
        elif op.f == 'session renew' and op.ok:
            if op.get('found') == 1:
                s['until'] = max(s['until'], op.invoked + op.get('ttl'))
            elif alive:
                wrong.append(Anomaly('sessions', 'a renewal did not find a session, %.3f s before it could end'
                                     % (s['until'] - op.completed), [op]))
        elif op.f == 'session close':
            if op.ok and op.get('found') == 0 and not op.get('retried') and alive:
                wrong.append(Anomaly('sessions', 'a close did not find a session, %.3f s before it could end'
                                     % (s['until'] - op.completed), [op]))
            s['close_sent'] = min(s['close_sent'], op.invoked)
            s['closed'] = op.completed if op.ok else s['closed']
        elif op.f == 'acquire' and op.type == 'fail' and alive and (op.get('error') or '').startswith('NOSESSION'):
            wrong.append(Anomaly('sessions', 'an acquire did not find a session, %.3f s before it could end' % (s['until'] - op.completed), [op]))
        elif op.f in ('check', 'release') and op.ok:
            gone = s['released'].get(op.get('token'))
            if op.get('found') == 0 and alive and gone is None and not op.get('retried'):
                wrong.append(Anomaly('sessions', 'a %s did not find token %d of a live session' % (op.f, op.get('token')), [op]))
            if op.get('found') == 1 and s['closed'] is not None and op.invoked > s['closed']:
                wrong.append(Anomaly('sessions', 'token %d is found after its session was closed' % op.get('token'), [op]))
        if op.f in ('session renew', 'session close') and op.ok:
            if op.get('found') == 1 and s['gone'] is not None and op.invoked > s['gone'].completed:
                wrong.append(Anomaly('sessions', 'a session was gone, and a %s finds it' % op.f[8:], [s['gone'], op]))
            s['gone'] = op if op.get('found') == 0 and s['gone'] is None else s['gone']
        if op.f == 'release':
            s['released'].setdefault(op.get('token'), op.invoked)
    for g in grants_of(ops):
        of_lock[g.get('lock')].append(g)
    for row in of_lock.values():
        row.sort(key=lambda g: g.get('token'))
        for first, second in zip(row, row[1:]):
            s = state[first.get('session')]
            until = min(s['until'], s['close_sent'], s['released'].get(first.get('token'), float('inf')))
            if second.completed < until and first.get('owner') != second.get('owner'):
                wrong.append(Anomaly('sessions', 'token %d was granted %.3f s before the session of token %d could end'
                                     % (second.get('token'), until - second.completed, first.get('token')), [first, second]))
    return wrong


NOT_NOW = ('NOLEADER', 'BUSY', 'refused:') # that nothing was done then is judged by token_count(), and by the order there must be
OF_SESSIONS = ('NOSESSION',) # judged with them


def refusals(events, ops):
    """Each refusal that is not for a while has a cause in the history. STALE: the storage may know a larger token of the lock by then.
    DEADLOCK: the client may hold a lock that another client asks for. LIMIT: the storage's disk may be full, by a fault. No client of any
    workload reaches another LIMIT, or asks under one owner for different locks (MISMATCH), and no other word has a cause either."""
    wrong, sent, asked = [], defaultdict(list), defaultdict(list)
    full = [e for e in events if e['type'] == 'nemesis' and any(t.startswith('store: ') for t in e.get('targets') or ())]
    for op in ops:
        if op.get('token') is not None and op.f in STORED:
            sent[op.get('lock')].append(op)
        elif op.f == 'acquire' and op.type != 'fail':
            asked[op.get('owner')].append(op)
    for op in ops:
        word = (op.get('error') or '').split(' ')[0] if op.type == 'fail' else ''
        if word in NOT_NOW + OF_SESSIONS + ('',):
            continue
        if word == 'STALE':
            known = any(o.get('token') > op.get('token', 0) for o in sent[op.get('lock')] if o.invoked < op.completed)
        elif word == 'DEADLOCK':
            held = {o.get('lock') for o in asked[op.get('owner')] if o.invoked < op.completed and o.get('lock') != op.get('lock')}
            known = any(o.get('lock') in held and o.invoked < op.completed
                        for owner, row in asked.items() if owner != op.get('owner') for o in row)
        else:
            known = word == 'LIMIT' and ' disk ' in op.get('error') and any(e['t'] < op.completed and e['until'] > op.invoked for e in full)
        if not known:
            wrong.append(Anomaly('refusals', 'a %s was refused without cause: %s' % (op.f, op.get('error')), [op]))
    return wrong


def listeners(events, clients, healed):
    """After the faults have ended, every subscriber hears something."""
    heard = {e['client'] for e in events if e['type'] == 'seen' and e['t'] > healed}
    return [Anomaly('liveness', 'client %d, a subscriber, heard nothing after the faults ended' % c, at=healed)
            for c in clients if c not in heard]
