"""One HTML page a run: no scripts, no other files; the pictures are SVG."""

import html
import math

COLOURS = {'acquire': '#3b6fb6', 'read': '#7a9e3f', 'add': '#2f8f6b', 'release': '#8a8f98', 'renew': '#8b6bb1', 'check': '#b59a3c',
           'append': '#2f8f6b', 'write': '#2f8f6b', 'get': '#7a9e3f', 'token': '#3b6fb6', 'redlock': '#57a3c4', 'open': '#57a3c4',
           'session renew': '#8b6bb1', 'session close': '#8a8f98', 'redlock release': '#8a8f98'}
BAD, FAULT, INK, PALE = '#c8372d', '#e9c46a', '#24292f', '#e5e7ea'
OPS_DRAWN_MAX = 5000
WIDTH, LEFT, ROW = 1180, 110, 18

STYLE = '''
body { font: 15px/1.5 system-ui, sans-serif; color: #24292f; max-width: 1200px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: .2em; } h2 { font-size: 1.15em; margin-top: 2em; }
code, pre { font: 13px/1.45 ui-monospace, monospace; background: #f4f5f7; border-radius: 4px; }
code { padding: .1em .3em; } pre { padding: .8em 1em; overflow-x: auto; }
.good { color: #1d7a4f; } .bad { color: #c8372d; }
table { border-collapse: collapse; } td, th { padding: .15em .9em .15em 0; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.anomaly { border-left: 4px solid #c8372d; padding: .1em 1em; margin: 1.5em 0; background: #fdf5f4; }
svg { display: block; font: 11px system-ui, sans-serif; } .legend span { margin-right: 1.2em; white-space: nowrap; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: 2px; vertical-align: -.05em; }
'''

WHAT = {
    'answered once': 'every operation is answered at most once, and nothing comes unasked',
    'tokens': 'no token is granted twice; who asks later gets a larger one',
    'leases': 'a grant or a release that was acknowledged stays, until the lease may have ended',
    'linearizable': 'one order of the operations explains every answer about a lock',
    'replicas': 'nodes that applied the same entries have the same state',
    'liveness': 'every client gets on after the faults have ended',
    'storage order': 'the storage never accepts a token after a larger one',
    'recovers': 'servers start and agree again after the faults have ended',
    'processes': 'no server crashed, failed an assertion, or ended by itself',
    'lost updates': 'every add or append that was acknowledged is in the final value; every read of a list saw its beginning',
    'holders': 'never more holders than a lock allows',
    'sessions': 'a session and its locks last until its lease may have ended or its close was sent, and no longer',
    'events': 'subscribers hear what happened, in order, and without a gap that they are not told of',
}


def esc(text):
    return html.escape(str(text), quote=True)


def ticks(low, high, about=10):
    span = max(high - low, 1e-6)
    step = 10 ** math.floor(math.log10(span / about))
    for factor in (1, 2, 5, 10):
        if span / (step * factor) <= about:
            step *= factor
            break
    at = math.ceil(low / step) * step
    while at <= high + 1e-9:
        yield at, ('%.3f' % at).rstrip('0').rstrip('.')
        at += step


class Axis:
    def __init__(self, low, high):
        self.low, self.high = low, max(high, low + 1e-3)

    def __call__(self, t):
        t = min(max(t, self.low), self.high)
        return LEFT + (WIDTH - LEFT - 10) * (t - self.low) / (self.high - self.low)

    def draw(self, height):
        out = []
        for at, label in ticks(self.low, self.high):
            x = self(at)
            out.append('<path d="M%.1f 0V%d" stroke="%s"/><text x="%.1f" y="%d" text-anchor="middle" fill="#6a737d">%s s</text>'
                       % (x, height, PALE, x, height + 13, label))
        return ''.join(out)


def svg(height, body):
    return '<svg viewBox="0 0 %d %d" width="100%%" role="img">%s</svg>' % (WIDTH, height, body)


def sparse(ops, keep=frozenset()):
    if len(ops) <= OPS_DRAWN_MAX:
        return ops
    step = math.ceil(len(ops) / OPS_DRAWN_MAX)
    return [op for i, op in enumerate(ops) if i % step == 0 or op.id in keep]


def spans(r):
    """Faults as (name, from, to, targets) in seconds of the run."""
    return [(e['f'], e['t'] - r.origin, e['until'] - r.origin, e['targets']) for e in r.events if e['type'] == 'nemesis']


def timeline(r, low, high, marked=frozenset(), labels=False):
    """Clients' operations and the faults around them between two moments."""
    axis = Axis(low, high)
    faults = [f for f in spans(r) if f[2] >= low and f[1] <= high]
    names = sorted({f[0] for f in faults})
    row = 34 if labels else ROW
    height = len(names) * ROW + r.options.clients * row + 10
    out = [axis.draw(height)]
    for name, began, ended, targets in faults:
        y = names.index(name) * ROW + 2
        out.append('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" opacity=".25"/>'
                   % (axis(began), y, max(axis(ended) - axis(began), 1), height - y, FAULT))
        out.append('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>'
                   % (axis(began), y, max(axis(ended) - axis(began), 1.5), ROW - 6, '#d39a1e',
                      esc('%s, %.3f to %.3f s: %s' % (name, began, ended, ', '.join(targets)))))
    for i, name in enumerate(names):
        out.append('<text x="4" y="%d" fill="%s">%s</text>' % (i * ROW + 13, INK, esc(name)))
    top = len(names) * ROW + 6
    for client in range(r.options.clients):
        y = top + client * row
        out.append('<path d="M%d %dH%d" stroke="%s"/><text x="4" y="%d" fill="%s">client %d</text>'
                   % (LEFT, y + row // 2, WIDTH - 10, PALE, y + row // 2 + 4, INK, client))
    visible = [op for op in r.ops if op.invoked - r.origin <= high
               and op.get('answered', r.origin + r.seconds) - r.origin >= low]
    for op in sparse(visible, marked):
        out.append(operation(r, op, axis, top + op.client * row, row, op.id in marked, labels))
    return svg(height + 18, ''.join(out))


def operation(r, op, axis, y, row, marked, labels):
    began, ended = axis(op.invoked - r.origin), axis(op.get('answered', r.origin + r.seconds) - r.origin)
    colour = BAD if marked else COLOURS.get(op.f, INK)
    solid = '' if op.ok else ' fill-opacity=".25" stroke="%s"' % colour
    bar = 8 if labels else ROW - 8
    out = '<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"%s><title>%s</title></rect>' % (
        began, y + (row - bar) / 2 + (5 if labels else 0), max(ended - began, 1.2), bar, colour, solid, esc(op.words(r.origin)))
    if labels and marked:
        out += '<text x="%.1f" y="%.1f" fill="%s">%s</text>' % (
            min(began, WIDTH - 150), y + 12, colour, esc('%s, token %s' % (op.f, op.get('token'))))
    return out


def latency(r):
    """Each answered operation as a point, seconds on a logarithmic scale, and answers a second below."""
    axis, height = Axis(0, r.seconds), 190
    done = [op for op in r.ops if 'answered' in op.fields]
    low, high = -4.0, 1.2

    def up(seconds):
        return 8 + (height - 16) * (high - math.log10(max(seconds, 1e-4))) / (high - low)
    out = [axis.draw(height)]
    for power in range(-4, 2):
        label = {-4: '0.1 ms', -3: '1 ms', -2: '10 ms', -1: '100 ms', 0: '1 s', 1: '10 s'}[power]
        out.append('<path d="M%d %.1fH%d" stroke="%s"/><text x="4" y="%.1f" fill="#6a737d">%s</text>'
                   % (LEFT, up(10.0 ** power), WIDTH - 10, PALE, up(10.0 ** power) + 4, label))
    for op in sparse(done):
        seconds = op.get('answered') - op.invoked
        out.append('<circle cx="%.1f" cy="%.1f" r="1.6" fill="%s"/>' % (
            axis(op.invoked - r.origin), up(seconds), COLOURS.get(op.f, INK) if op.ok else BAD))
    return svg(height + 18, ''.join(out))


def throughput(r):
    axis, height, width = Axis(0, r.seconds), 90, max(0.25, r.seconds / 200)
    buckets = [0] * (int(r.seconds / width) + 2)
    for op in r.ops:
        if op.ok:
            buckets[max(0, int((op.completed - r.origin) / width))] += 1
    top = max(buckets + [1])
    out = [axis.draw(height), '<text x="4" y="14" fill="#6a737d">%d /s</text>' % round(top / width)]
    for i, n in enumerate(buckets):
        h = (height - 6) * n / top
        x = axis(i * width)
        out.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#7f9cc0"/>'
                   % (x, height - h, max(axis((i + 1) * width) - x - 0.5, 0.5), h))
    return svg(height + 18, ''.join(out))


def legend(used):
    items = ['<span><i style="background:%s"></i>%s</span>' % (c, f) for f, c in COLOURS.items() if f in used]
    items.append('<span><i style="background:#d39a1e"></i>fault</span>')
    items.append('<span>pale: refused, or never answered</span>')
    return '<p class="legend">%s</p>' % ''.join(items)


def context(r, anomaly):
    """The operations of an anomaly and what the same clients did under the same tokens."""
    around = []
    for op in anomaly.ops:
        around += [o for o in r.ops if o.client == op.client and o.get('token') is not None
                   and o.get('token') == op.get('token') and o.f in ('acquire', 'read', 'add', 'claim')
                   and o.invoked <= op.invoked]
        # A read without a token is the last of its client before the write.
        reads = [o for o in r.ops if o.client == op.client and o.f == 'read' and o.invoked <= op.invoked]
        around += reads[-1:] if op.f == 'add' else []
    unique = {o.id: o for o in around + anomaly.ops}
    return sorted(unique.values(), key=lambda o: o.invoked)


def anomaly_section(r, number, anomaly):
    ops = context(r, anomaly) if anomaly.ops else []
    out = ['<div class="anomaly"><h3>%d. %s</h3><p>%s</p>' % (number, esc(anomaly.kind), esc(anomaly.text))]
    if ops:
        bad = {op.id for op in anomaly.ops}
        out.append('<p>The operations that make it, in the order in which they were sent:</p><pre>')
        ids = {op.get('id') for op in anomaly.ops if op.get('id')}
        lines = [(op.invoked, ('&gt; ' if op.id in bad else '  ') + esc(op.words(r.origin))) for op in ops]
        lines += [(e['t'], esc('  %.3f s  the write %s, token %s, is %s%s' % (
            e['t'] - r.origin, e['id'], e['token'], 'held back on its way' if e['f'] == 'held' else 'let through, after the '
            'next holder has read' if e.get('after_next_read') else 'let through',
            ': ' + e['answer'] if e.get('answer') else ''))) for e in r.events if e['type'] == 'mark' and e.get('id') in ids]
        out += [line + '\n' for _, line in sorted(lines)]
        out.append('</pre>')
        low = min(op.invoked for op in ops) - r.origin
        high = max(min(op.get('answered', op.invoked), op.invoked + 8) for op in ops) - r.origin
        margin = max(0.02, (high - low) * 0.08)
        out.append(timeline(r, low - margin, high + margin, {op.id for op in ops if op.id in bad}, labels=True))
    return ''.join(out) + '</div>'


def verdict_rows(r):
    rows = []
    for kind, found in r.anomalies.items():
        word = '<span class="good">holds</span>' if not found else '<span class="bad">broken, %d times</span>' % len(found)
        rows.append('<tr><td>%s</td><td>%s</td><td>%s</td></tr>' % (word, esc(kind), esc(WHAT.get(kind, ''))))
    return ''.join(rows)


def count_rows(r):
    kinds = {}
    for op in r.ops:
        kinds.setdefault(op.f, {}).setdefault(op.type, []).append(op)
    out = ['<table><tr><th>operation</th><th>ok</th><th>refused</th><th>unknown</th><th>p50</th><th>p99</th><th>longest</th></tr>']
    for f in sorted(kinds):
        times = sorted(op.completed - op.invoked for op in kinds[f].get('ok', []))
        points = ['%.1f ms' % (times[min(int(len(times) * q), len(times) - 1)] * 1000) if times else '' for q in (0.5, 0.99, 1)]
        out.append('<tr><td>%s</td>%s%s</tr>' % (
            f, ''.join('<td class="n">%d</td>' % len(kinds[f].get(t, [])) for t in ('ok', 'fail', 'info')),
            ''.join('<td class="n">%s</td>' % p for p in points)))
    out.append('</table><table>')
    for what, n in sorted(r.counts.items()):
        out.append('<tr><td>%s</td><td class="n">%d</td></tr>' % (esc(what), n))
    out.append('<tr><td>time in which two clients could both believe to hold a lock</td><td class="n">%.1f s</td></tr></table>' % r.overlap_s)
    return ''.join(out)


def page(r, command):
    anomalies = r.anomalies_list()
    verdict = '<span class="good">nothing was lost</span>' if not anomalies else \
        '<span class="bad">%d anomalies</span>' % len(anomalies)
    ops = sum(1 for op in r.ops)
    marked = {op.id for a in anomalies for op in a.ops}
    parts = ['<!doctype html><html lang="en"><meta charset="utf-8"><title>fencelock: %s, seed %d</title><style>%s</style>'
             % (esc(r.options.workload), r.options.seed, STYLE),
             '<h1>%s: %s</h1>' % (esc(r.options.workload), verdict),
             '<p>%d operations in %.1f s by %d clients on %d locks; %d faults; %d fail-overs. Run it again:</p><pre>%s</pre>'
             '<p>The seed decides what is asked and which faults come; when they meet is up to the machine.</p>'
             % (ops, r.seconds, r.options.clients, r.options.locks, r.counts.get('faults', 0), r.counts.get('fail-overs', 0),
                esc(command)),
             '<h2>Verdict</h2><table>%s</table>' % verdict_rows(r)]
    if anomalies:
        parts.append('<h2>What went wrong</h2>')
        parts += [anomaly_section(r, i + 1, a) for i, a in enumerate(anomalies[:10])]
        if len(anomalies) > 10:
            parts.append('<p>And %d more.</p>' % (len(anomalies) - 10))
    parts += ['<h2>Operations and faults</h2>', legend({op.f for op in r.ops}), timeline(r, 0, r.seconds, marked),
              '<h2>Time to the answer</h2>', latency(r), '<h2>Operations a second</h2>', throughput(r),
              '<h2>Counts</h2>', count_rows(r), '</html>']
    return ''.join(parts)
