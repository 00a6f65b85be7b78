"""Histories. An event is a dict; a history is a list of them in time order; on disk it is one JSON object a line.

    t        seconds on the machine's monotonic clock (the same for all processes)
    type     invoke, ok, fail (surely did not happen), info (may have happened), nemesis, sample, mark, extra, seen (an event
             that a subscriber was sent)
    process  the client, as in Jepsen: after an info the same client goes on under a number that is new
    client   the client process, whatever its number now
    op       what ties a completion to its invocation; unique in the run
    f        acquire, renew, check, release, read, add ...
    others   lock, key, token, owner, value, based_on, error ... as the operation has them
"""

import copy
import json
import math

COMPLETIONS = ('ok', 'fail', 'info')


class Recorder:
    """Appends events to a file, each line whole and at once, so that a killed process leaves whole lines."""

    def __init__(self, path):
        self.file = open(path, 'a', buffering=1)

    def write(self, event):
        self.file.write(json.dumps(event, separators=(',', ':')) + '\n')

    def close(self):
        self.file.close()


def read(paths):
    """All events of some files in time order. A last line that was cut off is left out."""
    events = []
    for path in paths:
        with open(path) as f:
            for line in f:
                if line.endswith('\n'):
                    events.append(json.loads(line))
    events.sort(key=lambda e: e['t'])
    return events


class Op:
    """An invocation and what became of it. An operation without a completion is an info that never ended."""

    __slots__ = ('id', 'f', 'process', 'client', 'invoked', 'completed', 'type', 'fields')

    def __init__(self, event):
        self.id, self.f = event['op'], event['f']
        self.process, self.client = event['process'], event.get('client', event['process'])
        self.invoked, self.completed, self.type = event['t'], math.inf, 'info'
        self.fields = dict(event)

    def complete(self, event):
        self.type = event['type']
        self.completed = math.inf if self.type == 'info' else event['t']
        self.fields.update({k: v for k, v in event.items() if k not in ('t', 'type', 'process', 'client')})
        self.fields['answered'] = event['t']

    def get(self, name, default=None):
        return self.fields.get(name, default)

    def with_field(self, name, value):
        """A copy that has one field more."""
        other = copy.copy(self)
        other.fields = dict(self.fields, **{name: value})
        return other

    @property
    def ok(self):
        return self.type == 'ok'

    def words(self, origin=0.0):
        """One line about it."""
        end = 'never answered' if 'answered' not in self.fields else '%.3f' % (self.fields['answered'] - origin)
        more = ' '.join('%s=%s' % (k, self.fields[k]) for k in
                        ('lock', 'key', 'mode', 'session', 'token', 'id', 'based_on', 'value', 'found', 'error') if self.fields.get(k) is not None)
        return '%.3f..%s s  client %s  %s %s  -> %s' % (self.invoked - origin, end, self.client, self.f, more, self.type)


def pair(events):
    """Operations in order of invocation. What does not pair up is not judged here: see checkers.answered_once."""
    ops = {}
    for event in events:
        if event['type'] == 'invoke':
            ops.setdefault(event['op'], Op(event))
        elif event['type'] in COMPLETIONS and event['op'] in ops and 'answered' not in ops[event['op']].fields:
            ops[event['op']].complete(event)
    return list(ops.values())


def edn(events):
    """The history as Jepsen writes it, so that Knossos and Elle can read it."""
    def form(value):
        if value is None:
            return 'nil'
        if isinstance(value, bool):
            return 'true' if value else 'false'
        if isinstance(value, (int, float)):
            return repr(value)
        if isinstance(value, Keyword):
            return ':' + value
        if isinstance(value, (list, tuple)):
            return '[%s]' % ' '.join(form(v) for v in value)
        if isinstance(value, dict):
            return '{%s}' % ', '.join(':%s %s' % (k.replace('_', '-'), form(v)) for k, v in sorted(value.items()))
        return json.dumps(str(value))

    origin = events[0]['t'] if events else 0.0
    lines, invoked = [], {}
    free, names = 1 + max([e.get('process') or 0 for e in events], default=0), {} # of processes that go on under another number
    for index, event in enumerate(e for e in events if e['type'] in COMPLETIONS + ('invoke', 'nemesis')):
        kind, process, f = event['type'], event.get('process'), event['f']
        if kind == 'nemesis':
            kind, process, value = 'info', ':nemesis', {k: event[k] for k in ('targets', 'until') if k in event}
        else:
            if kind == 'invoke':
                invoked[event['op']] = event
            asked = invoked.get(event['op'], event)
            kind, f, value = _as_jepsen(kind, f, asked, event)
            recorded, process = process, names.get(process, process)
            if kind == 'info' and event['type'] != 'info': # after which a process is no more
                names[recorded], free = free, free + 1
        more = {k: v for k, v in event.items() if k not in ('t', 'type', 'process', 'f', 'value', 'targets', 'until')}
        lines.append('{:index %d, :time %d, :type :%s, :process %s, :f :%s, :value %s%s}' % (
            index, round((event['t'] - origin) * 1e9), kind, process, f.replace(' ', '-'), form(value),
            ''.join(', :%s %s' % (k.replace('_', '-'), form(v)) for k, v in sorted(more.items()))))
    return '\n'.join(lines) + '\n'


class Keyword(str):
    """A word of EDN that is written with a colon in front."""


def _as_jepsen(kind, f, asked, event):
    """Type, f and value as Jepsen's workloads have them: lists as transactions of appends and reads (elle.list-append),
    registers as independent tuples of key and value (Knossos), a lock as acquire and release by a process, of which an
    acquire that was told no has failed (knossos.model/mutex)."""
    key = asked.get('key')
    if f == 'append':
        return kind, 'txn', [[Keyword('append'), key, asked['id']]]
    if f == 'read' and (key or '').startswith('list-'):
        return kind, 'txn', [[Keyword('r'), key, (event.get('value') or '').split() if kind == 'ok' else None]]
    if f in ('write', 'get', 'read', 'add'):
        seen = event.get('value') if kind == 'ok' and f in ('get', 'read') else asked.get('value', asked.get('id'))
        return kind, 'read' if f == 'get' else f, [key, seen]
    if f == 'acquire' and kind == 'ok' and event.get('token') is None:
        kind = 'fail'
    if f == 'release' and kind == 'ok' and event.get('found') == 0:
        kind = 'info' # its lease had ended: as a mutex it may have been released by then
    return kind, f, asked.get('lock') or asked.get('session')
