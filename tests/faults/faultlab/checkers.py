"""Judges. Each is a pure function from operations (history.Op) or events to a list of Anomaly; none knows how the
history came about. Times are compared only as an outside observer can: one operation was answered before another was sent.
"""

from collections import defaultdict


class Anomaly:
    def __init__(self, kind, text, ops=(), at=None):
        self.kind, self.text, self.ops = kind, text, list(ops)
        times = [op.invoked for op in self.ops]
        self.at = at if at is not None else (min(times) if times else None)

    def __repr__(self):
        return '%s: %s' % (self.kind, self.text)


def answered_once(events):
    """Every completion has its invocation before it, no operation is answered twice, nothing comes unasked."""
    wrong, invoked, completed = [], {}, set()
    for e in events:
        if e['type'] == 'invoke':
            if e['op'] in invoked:
                wrong.append(Anomaly('answered once', 'operation %s was invoked twice' % e['op'], at=e['t']))
            invoked[e['op']] = e['t']
        elif e['type'] in ('ok', 'fail', 'info'):
            if e['op'] not in invoked:
                wrong.append(Anomaly('answered once', 'operation %s was answered and never asked' % e['op'], at=e['t']))
            if e['op'] in completed:
                wrong.append(Anomaly('answered once', 'operation %s was answered twice' % e['op'], at=e['t']))
            completed.add(e['op'])
        elif e['type'] == 'extra':
            wrong.append(Anomaly('answered once', 'client %s: %s' % (e['client'], e['error']), at=e['t']))
    return wrong


def grants_of(ops):
    return [op for op in ops if op.f == 'acquire' and op.ok and op.get('token') is not None]


def tokens(ops):
    """No two grants share a token; a grant asked for after another was answered has the larger one. A token that was
    drawn with TOKEN counts as a grant."""
    wrong, by_token = [], {}
    grants = [op for op in ops if op.f in ('acquire', 'token') and op.ok and op.get('token') is not None]
    for g in grants:
        other = by_token.setdefault(g.get('token'), g)
        if other is not g and (other.get('lock'), other.get('owner')) != (g.get('lock'), g.get('owner')):
            wrong.append(Anomaly('tokens', 'token %d was granted twice' % g.get('token'), [other, g]))
    # A session that asks again for what it holds, or was granted without having heard of it, is given the same token.
    unheard = {(op.get('lock'), op.get('owner')) for op in ops if op.f == 'acquire' and op.type == 'info'}
    grants = [g for g in by_token.values() if (g.get('lock'), g.get('owner')) not in unheard]
    answered, at, highest = sorted(grants, key=lambda g: g.completed), 0, None
    for g in sorted(grants, key=lambda g: g.invoked):
        while at < len(answered) and answered[at].completed < g.invoked:
            if highest is None or answered[at].get('token') > highest.get('token'):
                highest = answered[at]
            at += 1
        if highest is not None and g.get('token') <= highest.get('token') and \
                (g.get('lock'), g.get('owner')) != (highest.get('lock'), highest.get('owner')):
            wrong.append(Anomaly('tokens', 'token %d was granted to somebody who asked after token %d had been answered'
                                 % (g.get('token'), highest.get('token')), [highest, g]))
    return wrong


def last_token(events, ops):
    """The token that was drawn after everything, with a node restarted, is above all others."""
    for e in events:
        if e['type'] == 'mark' and e['f'] == 'last token':
            return [Anomaly('tokens', 'token %d was drawn at the very end, and %d had been given before'
                            % (e['token'], op.get('token')), [op])
                    for op in ops if op.ok and (op.get('token') or 0) >= e['token']][:1]
    return []


def token_count(events, ops):
    """Each sending of an ACQUIRE or TOKEN draws one token at most, and one that was refused draws none. So of all tokens up
    to the last one, no more are unaccounted for than there were sendings whose outcome nobody knows, and locks that were taken
    through the door for Redis and lost before the client asked for the token."""
    last = [e['token'] for e in events if e['type'] == 'mark' and e['f'] == 'last token']
    drawing = [op for op in ops if op.f in ('acquire', 'token')]
    if not last or any('answered' not in op.fields for op in drawing):
        return [] # it was cut off in the midst of a call
    told = {op.get('token') for op in drawing if op.ok and op.get('token') is not None}
    unknown = sum(op.get('unknown', 0) + op.get('unheard', 0) for op in drawing)
    lost = last[0] - 1 - len(told)
    if 0 <= lost <= unknown:
        return []
    return [Anomaly('token count', '%d tokens were drawn before the last one, clients were told of %d, and %d sendings of unknown outcome '
                    'may have drawn one each' % (last[0] - 1, len(told), unknown), at=ops[-1].invoked)]


STORED = ('read', 'add', 'append', 'write', 'get', 'claim') # operations on the storage


def storage_order(ops):
    """After an operation with a token was carried out, the storage carries out none that was sent later with a
    smaller one of the same lock."""
    wrong, of_lock = [], defaultdict(list)
    for op in ops:
        if op.f in STORED and op.ok and op.get('token') is not None:
            of_lock[op.get('lock')].append(op)
    for lock, accepted in of_lock.items():
        done, at, highest = sorted(accepted, key=lambda o: o.completed), 0, None
        for op in accepted:
            while at < len(done) and done[at].completed < op.invoked:
                if highest is None or done[at].get('token') > highest.get('token'):
                    highest = done[at]
                at += 1
            if highest is not None and op.get('token') < highest.get('token'):
                wrong.append(Anomaly('storage order', 'the storage accepted token %d for %s after it had accepted token %d'
                                     % (op.get('token'), lock, highest.get('token')), [highest, op]))
    return wrong


def _lineage(key, final, adds):
    """Ids from the final value back to nothing, and what is wrong with that. adds: id -> Op, of one key."""
    chain, wrong, seen = [], [], set()
    at = final
    while at != 'nothing':
        op = adds.get(at)
        if op is None:
            return chain, [Anomaly('lost updates', '%s holds %r, which nobody wrote' % (key, at))]
        if at in seen:
            return chain, [Anomaly('lost updates', 'the lineage of %s runs in a circle' % key, [op])]
        if op.type == 'fail':
            wrong.append(Anomaly('lost updates', 'an add to %s that was refused is in the value' % key, [op]))
        seen.add(at)
        chain.append(at)
        at = op.get('based_on')
    chain.reverse()
    return chain, wrong


def lost_updates(ops, finals):
    """Every add that was acknowledged is in the lineage of the final value. finals: {key: last value, or None}."""
    wrong, adds = [], defaultdict(dict)
    for op in ops:
        if op.f == 'add':
            adds[op.get('key')][op.get('id')] = op
    for key in sorted(set(adds) | set(finals)):
        if key not in finals:
            wrong.append(Anomaly('lost updates', 'nobody read the final value of %s' % key))
            continue
        count, _, last = (finals[key] or '0 nothing').partition(' ')
        chain, broken = _lineage(key, last, adds[key])
        wrong += broken
        if broken:
            continue
        amount = sum(adds[key][i].get('delta', 1) for i in chain)
        if int(count) != amount:
            wrong.append(Anomaly('lost updates', '%s counts %s, and its lineage of %d adds %d' % (key, count, len(chain), amount)))
        inside = set(chain)
        after = {adds[key][i].get('based_on'): adds[key][i] for i in chain}
        for op in adds[key].values():
            if op.ok and op.get('id') not in inside:
                wrong.append(_explain_lost(key, op, ops, adds[key], after))
        for first, second in zip(chain, chain[1:]):
            a, b = adds[key][first], adds[key][second]
            if b.get('token') < a.get('token'):
                wrong.append(Anomaly('storage order', 'in %s the add with token %d went over that with token %d'
                                     % (key, b.get('token'), a.get('token')), [a, b]))
    return wrong


def _explain_lost(key, lost, ops, adds, after):
    """The add that overwrote the lost one, with the read that was too old. It is the first add in the final value that does not descend
    from the lost one and was answered later; or the add before that, if its reader saw it after the lost add had been answered."""
    at, steps = lost, 0
    while at.get('based_on') not in after and at.get('based_on') in adds and steps < 10000:
        at, steps = adds[at.get('based_on')], steps + 1
    winner, before = after.get(at.get('based_on')), None
    text = 'the add %s to %s was acknowledged and is not in the final value' % (lost.get('id'), key)
    if winner is None:
        return Anomaly('lost updates', text, [lost])
    while winner.completed <= lost.completed and winner.get('id') in after:
        winner, before = after[winner.get('id')], winner
    read = _read_before(winner, ops)
    if before is not None and read is not None and read.invoked > lost.completed:
        winner, read = before, _read_before(before, ops)
    return Anomaly('lost updates', text + ': it (token %s) was made from %s, and %s (token %s), made from %s, went over it without '
                   'having seen it' % (lost.get('token'), lost.get('based_on'), winner.get('id'), winner.get('token'),
                                       winner.get('based_on')), ([read] if read else []) + [lost, winner])


def _read_before(add, ops):
    """The read that an add was made from: its client's last before it."""
    reads = [op for op in ops if op.f == 'read' and op.client == add.client and op.get('key') == add.get('key')
             and op.invoked < add.invoked]
    return reads[-1] if reads else None


def each_lock(ops):
    """Each operation on several locks (`also`) as one operation on each lock. A refused one is left out: it says nothing of any one lock."""
    for op in ops:
        if not op.get('also'):
            yield op
        elif not (op.f == 'acquire' and op.ok and op.get('token') is None):
            for lock in [op.get('lock')] + op.get('also'):
                yield op.with_field('lock', lock)


def leases(ops, alone=True):
    """An acknowledged grant stays: until its lease may have ended (first sent + ttl, and so for each acknowledged
    renewal) or its release was sent, nobody else is granted the lock, and its holder's CHECK, RENEW and RELEASE
    find it. An acknowledged release stays, and a token that was once not found is never found again. alone=False: others may hold it too."""
    wrong, of_lock, of_token = [], defaultdict(list), {}
    for g in sorted(grants_of(ops), key=lambda g: g.get('token')):
        if (g.get('lock'), g.get('token')) in of_token:
            continue # judged by tokens()
        of_lock[g.get('lock')].append(g)
        of_token[g.get('lock'), g.get('token')] = {'grant': g, 'until': g.invoked + g.get('ttl'), 'release_sent': None, 'released': None, 'gone': None}
    for op in ops: # in order of invocation; one client uses a token, so that is also the order of its answers
        state = of_token.get((op.get('lock'), op.get('token')))
        if state is None or op.f not in ('renew', 'check', 'release'):
            continue
        found, certain = op.get('found'), op.ok and not op.get('retried')
        if op.f == 'release' and state['release_sent'] is None:
            if certain and found == 0 and op.completed < state['until']:
                wrong.append(Anomaly('leases', 'a release did not find token %d, %.3f s before its lease could end'
                                     % (op.get('token'), state['until'] - op.completed), [state['grant'], op]))
            state['release_sent'] = op.invoked
        elif state['release_sent'] is None and op.ok and found == 0 and \
                op.completed < state['until']:
            wrong.append(Anomaly('leases', 'a %s did not find token %d, %.3f s before its lease could end'
                                 % (op.f, op.get('token'), state['until'] - op.completed), [state['grant'], op]))
        if op.f == 'renew' and op.ok and found == 1:
            state['until'] = max(state['until'], op.invoked + op.get('ttl'))
        if state['released'] is not None and op.ok and found == 1 and op.invoked > state['released'].completed:
            wrong.append(Anomaly('leases', 'token %d was released and is found again' % op.get('token'), [state['released'], op]))
        elif state['gone'] is not None and op.ok and found == 1 and op.invoked > state['gone'].completed:
            wrong.append(Anomaly('leases', 'token %d was gone and is found again' % op.get('token'), [state['gone'], op]))
        if op.f == 'release' and op.ok:
            state['released'] = op
        if op.ok and found == 0 and state['gone'] is None:
            state['gone'] = op
    for row in of_lock.values() if alone else ():
        for first, second in zip(row, row[1:]):
            s = of_token[first.get('lock'), first.get('token')]
            until = s['until']
            if s['release_sent'] is not None:
                until = min(until, s['release_sent'])
            if second.completed < until and first.get('owner') != second.get('owner'):
                wrong.append(Anomaly('leases', 'token %d was granted %.3f s before the lease of token %d could end'
                                     % (second.get('token'), until - second.completed, first.get('token')), [first, second]))
    return wrong


def liveness(ops, clients, healed, bound_s, goal):
    """After the faults have ended, every client has carried out an operation of kind `goal` within the bound."""
    wrong = []
    for client in clients:
        times = [op.completed for op in ops if op.client == client and op.f == goal and op.ok and op.invoked > healed]
        if not times or min(times) > healed + bound_s:
            wrong.append(Anomaly('liveness', 'client %s had no %s within %g s after the faults ended' % (client, goal, bound_s),
                                 at=healed))
    return wrong


def replicas(events):
    """Two nodes that have applied the same entries have the same state."""
    wrong, of_index = [], {}
    for e in events:
        if e['type'] == 'sample' and e.get('index') is not None:
            first = of_index.setdefault(e['index'], e)
            if first['hash'] != e['hash']:
                who = '%s and %s have' % (first['node'], e['node']) if first['node'] != e['node'] else '%s has had' % e['node']
                wrong.append(Anomaly('replicas', '%s different states at index %s of the log' % (who, e['index']), at=e['t']))
    return wrong


def overlap_s(ops):
    """No anomaly but a figure: for how long two clients could both believe to hold a lock, summed up. A holder that
    asks nobody believes it until it has sent its release, or has been refused."""
    of_lock = defaultdict(list)
    ends = {}
    for op in ops:
        if op.get('token') is not None and op.f != 'acquire':
            ends[op.get('token')] = max(ends.get(op.get('token'), 0.0), op.invoked)
    for g in grants_of(ops):
        of_lock[g.get('lock')].append((g.completed, max(g.completed, ends.get(g.get('token'), g.completed))))
    total = 0.0
    for row in of_lock.values():
        row.sort()
        latest = 0.0
        for began, ended in row:
            total += max(0.0, min(latest, ended) - began)
            latest = max(latest, ended)
    return total
