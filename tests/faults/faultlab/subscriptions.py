"""Judges the events that subscribers of all locks got. Every lock is taken alone here.

The log has one order, and every node sends events in it. So the events of one connection between two known gaps (its beginning, a resync,
its end) are a segment of that order without a hole, whatever node it was connected to. Within a segment:

 1. each event is true: a token went to whom the history says, tokens of grants rise, an end is that of the last grant
 2. every acknowledged grant between two events has its own event
 3. grants and ends of a lock alternate; no token is granted, or ends, twice
 4. every place in a queue is taken once and ends once, by a grant or by leaving; the places of a lock are granted in the
    order in which they were taken, and none is open for longer than its client waits
 5. two segments that have an event in common are equal from there on, until one of them ends"""

import math
from collections import defaultdict

from .checkers import Anomaly, grants_of

ENDS = ('released', 'expired', 'broken')
WAIT_MOST_MS = 3000 # the longest WAIT of a client, see client.py
LATE_MS = 2000      # a wait that is over ends when the next batch is applied


def judge(events, ops):
    connections, granted, segments, wrong = defaultdict(list), {}, [], []
    open_ms = {op.get('owner'): _open_ms(op) for op in ops if op.f == 'acquire'}
    for g in grants_of(ops):
        granted[g.get('token')] = g
    for e in events:
        if e['type'] == 'seen':
            connections[e['connection']].append(e)
    for name, seen in connections.items():
        highest = 0
        for part in _parts(seen):
            segment = _Segment(name, granted, open_ms, highest)
            for e in part:
                segment.take(e)
            wrong += segment.wrong
            highest = segment.highest
            segments.append((name, part))
    return wrong + _agree(segments)


def _open_ms(op):
    """For how long its place may be open. Sending it again moves the deadline on, and its client does that until it is answered."""
    sent_for_s = op.get('answered', math.inf) - op.invoked if op.get('unknown', 1) else 0
    return sent_for_s * 1000 + WAIT_MOST_MS + LATE_MS


def _parts(seen):
    parts = [[]]
    for e in seen:
        if e['event'] == 'resync':
            parts.append([])
        else:
            parts[-1].append(e)
    return [p for p in parts if p]


class _Segment:
    """The rules 1 to 4 for what was heard without a gap. What was held and awaited before is not known."""

    def __init__(self, name, granted, open_ms, highest):
        self.name, self.granted, self.open_ms, self.highest = name, granted, open_ms, highest
        self.clock, self.began = 0, None # began: when the first was heard
        self.wrong = []
        self.holder = {} # by lock: its token, None when it is free; not in it: not known
        self.heard = []  # tokens of grants
        self.ended = set()
        self.places = {} # open ones, in their order: lock, and the clock by which it ends
        self.first = self.last = None # places that were heard to be taken
        self.gone = set()

    def wrong_at(self, e, text, *args):
        self.wrong.append(Anomaly('events', '%s %s' % (self.name, text % args), at=e['t']))

    def take(self, e):
        if e['clock'] < self.clock:
            self.wrong_at(e, 'heard that the clock of the events went back')
        self.began = e['t'] if self.began is None else self.began
        self.clock = e['clock']
        if e['event'] == 'queued':
            self.queued(e)
        elif e['event'] == 'left':
            self.leave(e, e.get('wait'))
        elif e['event'] == 'granted':
            self.grant(e)
        elif e['event'] in ENDS:
            self.end(e)
        for wait, (lock, until) in list(self.places.items()):
            if self.clock > until:
                self.wrong_at(e, 'did not hear that the place %d in the queue of %s ended', wait, lock)
                del self.places[wait]

    def queued(self, e):
        wait = e.get('wait')
        if wait is None:
            return
        if self.last is not None and wait <= self.last:
            self.wrong_at(e, 'heard of the place %d in a queue after the place %d', wait, self.last)
            return
        self.first = wait if self.first is None else self.first
        self.last = wait
        self.places[wait] = (e['lock'], e['clock'] + self.open_ms.get(e['owner'], WAIT_MOST_MS + LATE_MS))

    def leave(self, e, wait):
        if wait is None:
            return
        if wait in self.gone:
            self.wrong_at(e, 'heard twice that the place %d in the queue of %s ended', wait, e['lock'])
        elif wait not in self.places and self.first is not None and wait > self.first:
            self.wrong_at(e, 'did not hear that the place %d in the queue of %s was taken, and that it ended', wait, e['lock'])
        elif wait in self.places and self.places[wait][0] != e['lock']:
            self.wrong_at(e, 'heard that the place %d in the queue of %s ended at %s', wait, self.places[wait][0], e['lock'])
        self.places.pop(wait, None)
        self.gone.add(wait)

    def grant(self, e):
        token, lock, asked = e['token'], e['lock'], self.granted.get(e['token'])
        if token <= self.highest:
            self.wrong_at(e, 'heard of token %d after token %d', token, self.highest)
        if asked is not None and (asked.get('lock'), asked.get('owner')) != (lock, e['owner']):
            self.wrong.append(Anomaly('events', '%s heard that token %d went to another' % (self.name, token), [asked]))
        if self.holder.get(lock) is not None:
            self.wrong_at(e, 'did not hear that token %d of %s ended, but of token %d', self.holder[lock], lock, token)
        if self.heard:
            for missing in range(self.heard[-1] + 1, token):
                if missing in self.granted:
                    self.wrong.append(Anomaly('events', '%s did not hear of token %d, but of %d and %d'
                                              % (self.name, missing, self.heard[-1], token), [self.granted[missing]]))
        if e.get('wait') is not None:
            if asked is not None and asked.invoked > self.began and e['wait'] not in self.places and e['wait'] not in self.gone:
                self.wrong_at(e, 'did not hear that the place %d in the queue of %s was taken, and that it was granted', e['wait'], lock)
            before = [w for w, (other, _) in self.places.items() if other == lock and w < e['wait']]
            if before:
                self.wrong_at(e, 'heard that the place %d in the queue of %s was granted before the place %d', e['wait'], lock, before[0])
            self.leave(e, e['wait'])
        elif any(other == lock for other, _ in self.places.values()):
            self.wrong_at(e, 'heard that token %d of %s went past its queue', token, lock)
        self.highest = max(self.highest, token)
        self.heard.append(token)
        self.holder[lock] = token

    def end(self, e):
        token, lock = e['token'], e['lock']
        if token in self.ended:
            self.wrong_at(e, 'heard twice that token %d of %s ended', token, lock)
        elif lock in self.holder and self.holder[lock] != token:
            self.wrong_at(e, 'heard that token %d of %s had %s, and that lock was under %s', token, lock, e['event'],
                     self.holder[lock] or 'none')
        elif lock not in self.holder and self.heard and token > self.heard[0]:
            self.wrong_at(e, 'did not hear that token %d of %s was granted, and that it %s', token, lock, e['event'])
        self.ended.add(token)
        self.holder[lock] = None


def _key(e):
    return e['event'], e['lock'], e['token'], e.get('wait')


def _agree(segments):
    """Rule 5. Each segment is compared with those that overlap it, from the first event that both have."""
    wrong, index = [], defaultdict(list)
    for number, (_, part) in enumerate(segments):
        for at, e in enumerate(part):
            index[_key(e)].append((number, at))
    for number, (name, part) in enumerate(segments):
        met = set()
        for at, e in enumerate(part):
            for other, other_at in index[_key(e)]:
                if other <= number or other in met:
                    continue
                met.add(other)
                wrong += _compare(name, part, at, *segments[other], other_at)
    return wrong


def _compare(name, part, at, other_name, other, other_at):
    if at > 0 and other_at > 0: # the first that both have, and yet neither began with it
        return [Anomaly('events', '%s and %s heard different events before %s of %s'
                        % (name, other_name, part[at]['event'], part[at]['lock']), at=part[at]['t'])]
    for a, b in zip(part[at:], other[other_at:]):
        if _key(a) != _key(b):
            return [Anomaly('events', '%s heard %s of %s (token %s, place %s) where %s heard %s of %s (token %s, place %s)'
                            % (name, a['event'], a['lock'], a['token'], a.get('wait'), other_name, b['event'], b['lock'],
                               b['token'], b.get('wait')), at=a['t'])]
    return []
