"""An anomaly as a story: what happened, in the order in which it took effect, and who did it."""

import math

STEPS_MAX = 40
FAULTS_TOLD_MAX = 8
SHORT_S = 0.02 # an operation that took no longer is told once; one that did, when it was sent and when it was answered


class Step:
    """who: a client's number, or None for what happened around the clients. kind: '', 'bad', 'fault'."""

    def __init__(self, t, who, text, kind=''):
        self.t, self.who, self.text, self.kind = t, who, text, kind


def _value(op):
    text = op.get('value')
    if text is None:
        return 'finds nothing'
    words = text.split()
    if len(words) == 2 and words[0].lstrip('-').isdigit(): # a count or a sum, and who made it
        return 'finds %s, written by %s' % tuple(words)
    return 'finds %s' % (text if len(words) < 6 else '... ' + ' '.join(words[-5:]))


def _under(op):
    return 'token %s' % op.get('token') if op.get('token') is not None else 'no token'


def _outcome(op):
    if 'answered' not in op.fields:
        return 'never answered'
    if op.ok:
        return 'accepted'
    return '%s: %s' % ('refused' if op.type == 'fail' else 'no answer, so it may have been done', op.get('error') or '?')


def _found(op):
    return _outcome(op) if not op.ok else 'it is held' if op.get('found') else 'no longer held'


def sentence(op):
    """What an operation was and what came of it, without who and when."""
    lock, token = op.get('lock'), op.get('token')
    if op.f in ('acquire', 'token'):
        if op.ok and token is not None:
            return 'gets %s with token %s' % (lock, token) if op.f == 'acquire' else 'draws token %s for %s' % (token, lock)
        return 'asks for %s: %s' % (lock, 'somebody else has it' if op.ok else _outcome(op))
    if op.f in ('read', 'get'):
        return 'reads %s with %s: %s' % (op.get('key'), _under(op), _value(op) if op.ok else _outcome(op))
    if op.f == 'add':
        return 'writes %s with %s: %s, made from what %s left, as %s: %s' % (
            op.get('key'), _under(op), op.get('count', '?'), op.get('based_on'), op.get('id'), _outcome(op))
    if op.f in ('append', 'write'):
        return '%s %s to %s with %s: %s' % ('appends' if op.f == 'append' else 'writes', op.get('id') or op.get('value'),
                                            op.get('key'), _under(op), _outcome(op))
    if op.f in ('renew', 'check', 'release'):
        return '%s token %s of %s: %s' % (op.f + 's', token, lock, _found(op) if op.f != 'release' or not op.ok else
                                          'done' if op.get('found') else 'no longer held')
    return '%s %s: %s' % (op.f, op.get('session') or lock or '', _found(op))


def faults(r):
    """(name, from, to, targets) on the machine's clock."""
    return [(e['f'], e['t'], e['until'], e['targets']) for e in r.events if e['type'] == 'nemesis']


def leaders(r):
    """(when it was first seen, node, term) of each change of leader."""
    seen, last = [], None
    for e in r.events:
        if e['type'] == 'sample' and e.get('leader') and e['node'] == 'node%s' % e['leader'] and (last is None or e['term'] > last):
            seen.append((e['t'], e['node'], e['term']))
            last = e['term']
    return seen


def grant_of(r, op):
    """The grant whose token an operation carries."""
    for g in r.ops:
        if g.f in ('acquire', 'token') and g.ok and g.client == op.client and g.get('token') == op.get('token') is not None \
                and op.get('lock') in [g.get('lock')] + (g.get('also') or []):
            return g
    return None


def held_until(r, grant):
    """(end, why) of what a grant gives: its release was sent, or its lease must have ended, counted from the answers."""
    if grant.get('ttl') is None:
        return None, ''
    end = grant.get('answered') + grant.get('ttl')
    for op in r.ops:
        if op.client != grant.client or op.get('token') != grant.get('token') or op.get('lock') != grant.get('lock'):
            continue
        if op.f == 'renew' and op.ok and op.get('found') == 1:
            end = max(end, op.get('answered') + op.get('ttl'))
        if op.f == 'release':
            return (op.invoked, 'released') if op.invoked < end else (end, 'ended')
    return end, 'ended'


def related(r, anomaly):
    """The operations of an anomaly, and what led to them: the grants of their tokens, the reads that writes were made from."""
    found = {op.id: op for op in anomaly.ops}
    bases = {op.get('based_on') for op in anomaly.ops if op.f == 'add'}
    if len(bases) > 1: # the one that went over another was made from something that this one had not seen: where from?
        found.update({op.id: op for op in r.ops if op.f == 'add' and op.get('id') in bases})
    for op in list(found.values()):
        before = [o for o in r.ops if o.client == op.client and o.invoked < op.invoked]
        if op.f in ('add', 'append', 'write'):
            found.update({o.id: o for o in [o for o in before if o.f == 'read' and o.get('key') == op.get('key')][-1:]})
        grant = grant_of(r, op)
        if grant is not None:
            found[grant.id] = grant
    return sorted(found.values(), key=lambda op: op.invoked)


def window(ops):
    """From when to when an anomaly happens: a wait for a lock before its grant is not part of it."""
    low = min(op.invoked if op.get('answered') is None or op.f != 'acquire' else op.get('answered') for op in ops)
    return low, max([low] + [op.get('answered', op.invoked) for op in ops if op.get('answered', op.invoked) < math.inf])


def _told(op, bad, origin):
    """The steps of one operation."""
    kind, answered = 'bad' if op.id in bad else '', op.get('answered')
    if op.f in ('acquire', 'token') and op.ok:
        more = '' if op.get('ttl') is None or op.get('token') is None else ', asked for at %.3f s, for %g s' % (
            op.invoked - origin, op.get('ttl'))
        return [Step(answered, op.client, sentence(op) + more, kind)]
    if answered is not None and answered - op.invoked <= SHORT_S:
        # A read saw what was there before its answer, and a write is there by the time of its answer.
        return [Step(op.invoked if op.f in ('read', 'get') else answered, op.client, sentence(op), kind)]
    sent = sentence(op).rpartition(': ')[0] if answered is not None else sentence(op)
    steps = [Step(op.invoked, op.client, sent + (', on its way' if answered is not None else ''), kind)]
    if answered is not None:
        steps.append(Step(answered, op.client, 'is answered about %s: %s' % (op.get('id') or 'that', sentence(op).rpartition(': ')[2]), kind))
    return steps


def steps(r, anomaly):
    """The story, in the order of effects. Empty for an anomaly without operations or a moment."""
    ops = related(r, anomaly)
    bad = {op.id for op in anomaly.ops}
    if ops:
        low, high = window(ops)
    elif anomaly.at is not None:
        low, high = anomaly.at - 2.0, anomaly.at + 0.5
    else:
        return []
    out = [step for op in ops for step in _told(op, bad, r.origin)]
    for op in ops:
        until, why = held_until(r, op) if op.f == 'acquire' and op.ok and op.get('token') is not None else (None, '')
        if until is not None and low <= until <= high:
            out.append(Step(until, op.client, 'sends the release of token %s' % op.get('token') if why == 'released' else
                            'has lost %s by now: the lease of token %s is over' % (op.get('lock'), op.get('token'))))
    ids = {op.get('id') for op in ops if op.get('id')}
    for e in r.events:
        if e['type'] == 'mark' and e.get('id') in ids:
            out.append(Step(e['t'], None, 'the write %s is %s' % (e['id'], 'held back on its way to the storage (fault hold)'
                       if e['f'] == 'held' else 'let through' + (', after the next holder has read' if e.get('after_next_read') else '')), 'fault'))
    if not ops:
        out.append(Step(anomaly.at, None, 'this is seen', 'fault'))
    out += _around(r, low, high, {'client%s' % op.client for op in ops})
    out.sort(key=lambda s: s.t)
    if len(out) > STEPS_MAX:
        out = [s for s in out if s.kind == 'bad'] or out[:STEPS_MAX]
    return out


def _around(r, low, high, actors):
    """Faults that began or went on meanwhile, but for those of clients that have no part in it; and new leaders."""
    meanwhile = [f for f in faults(r) if f[1] <= high and f[2] >= low
                 and (f[0] != 'clients' or not actors or actors & {t.partition(',')[0] for t in f[3]})]
    out = []
    for name, began, ended, targets in meanwhile[:FAULTS_TOLD_MAX]:
        what = ', '.join(targets[:1] if name == 'partition' else targets) # of a partition the links that are cut say it all
        out.append(Step(began, None, 'the fault %s (%s) begins, and lasts until %.3f s' % (name, what, ended - r.origin), 'fault'))
    if len(meanwhile) > FAULTS_TOLD_MAX:
        out.append(Step(meanwhile[FAULTS_TOLD_MAX][1], None, '%d more faults follow meanwhile' % (len(meanwhile) - FAULTS_TOLD_MAX), 'fault'))
    out += [Step(t, None, '%s is seen to lead, in term %s' % (node, term), 'fault') for t, node, term in leaders(r) if low <= t <= high]
    return out
