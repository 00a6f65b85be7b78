"""The pictures of a report, as SVG that takes its colours from the page, so that they can be read on light and on dark."""

import html
import math

from . import report_story

CLASSES = {'acquire': 'wait', 'redlock': 'wait', 'open': 'wait', 'token': 'wait', 'read': 'read', 'get': 'read', 'check': 'read',
           'add': 'write', 'append': 'write', 'write': 'write', 'renew': 'renew', 'session renew': 'renew', 'release': 'end',
           'redlock release': 'end', 'session close': 'end'}
LEGEND = {'wait': 'asks for a lock or token (long: waits for it)', 'read': 'reads or checks', 'write': 'writes', 'renew': 'renews',
          'end': 'releases'}
OPS_DRAWN_MAX = 5000
WIDTH, LEFT, ROW, ROW_ZOOMED = 1180, 90, 18, 50
TEXT_W = 6.2 # of a letter, about


def esc(text):
    return html.escape(str(text), quote=True)


def class_of(op):
    return CLASSES.get(op.f, 'end')


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
        return ''.join('<path class="grid" d="M%.1f 0V%d"/><text class="soft" x="%.1f" y="%d" text-anchor="middle">%s s</text>'
                       % (self(at), height, self(at), height + 13, label) for at, label in ticks(self.low, self.high))


def svg(height, body, title):
    return '<div class="wide"><svg viewBox="0 0 %d %d" role="img" aria-label="%s">%s</svg></div>' % (WIDTH, height, esc(title), body)


def sparse(ops, keep=frozenset()):
    if len(ops) <= OPS_DRAWN_MAX:
        return ops
    step = math.ceil(len(ops) / OPS_DRAWN_MAX)
    return [op for i, op in enumerate(ops) if i % step == 0 or op.id in keep]


def box(axis, low, high, y, height, kind, title='', min_width=1.5):
    return '<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>' % (
        kind, axis(low), y, max(axis(high) - axis(low), min_width), height, esc(title))


def _faults(r, axis, height):
    """Rows of faults, and leaders that were seen first. Returns (svg, height of the rows)."""
    shown = [(n, b - r.origin, e - r.origin, t) for n, b, e, t in report_story.faults(r)]
    shown = [f for f in shown if f[2] >= axis.low and f[1] <= axis.high]
    names, out = sorted({f[0] for f in shown}), []
    for name, began, ended, targets in shown:
        y = names.index(name) * ROW + 2
        out.append(box(axis, began, ended, y, height(len(names)) - y, 'shade'))
        out.append(box(axis, began, ended, y, ROW - 6, 'fault', '%s, %.3f to %.3f s: %s' % (name, began, ended, ', '.join(targets))))
    out += ['<text x="4" y="%d">%s</text>' % (i * ROW + 13, esc(name)) for i, name in enumerate(names)]
    for t, node, term in report_story.leaders(r)[1:]:
        if axis.low <= t - r.origin <= axis.high:
            out.append('<path class="leader" d="M%.1f 0V%d"><title>%s leads in term %s</title></path>'
                       % (axis(t - r.origin), height(len(names)), esc(node), term))
    return ''.join(out), len(names) * ROW + 6


def overview(r, marked):
    """All clients' operations and the faults around them."""
    axis, clients = Axis(0, r.seconds), r.options.clients

    def height(names):
        return names * ROW + clients * ROW + 10
    faults, top = _faults(r, axis, height)
    out = [axis.draw(height(top // ROW)), faults]
    if getattr(r, 'healed', None):
        out.append('<path class="leader" d="M%.1f 0V%d"><title>the faults have ended</title></path>'
                   % (axis(r.healed - r.origin), height(top // ROW)))
    for client in range(clients):
        y = top + client * ROW
        out.append('<path class="grid" d="M%d %dH%d"/><text x="4" y="%d">client %d</text>' % (LEFT, y + 9, WIDTH - 10, y + 13, client))
    for op in sorted(sparse(r.ops, marked), key=lambda op: op.id in marked):
        kind = 'bad' if op.id in marked else class_of(op)
        out.append(box(axis, op.invoked - r.origin, op.get('answered', r.origin + r.seconds) - r.origin, top + op.client * ROW + 4,
                       ROW - 8, kind + ('' if op.ok else ' open'), op.words(r.origin), 1.2))
    return svg(height(top // ROW) + 18, ''.join(out), 'operations of all clients and faults over time')


def zoom(r, anomaly):
    """The clients of one anomaly: what they hold (the band), what they do, and the faults meanwhile."""
    ops = report_story.related(r, anomaly)
    low, high = (t - r.origin for t in report_story.window(ops))
    margin = max(0.01, (high - low) * 0.06)
    axis = Axis(low - margin, high + margin)
    clients = list(dict.fromkeys(op.client for op in ops))

    def height(names):
        return names * ROW + len(clients) * ROW_ZOOMED + 10
    faults, top = _faults(r, axis, height)
    out = [axis.draw(height(top // ROW)), faults]
    bad = {op.id for op in anomaly.ops}
    locks = {op.get('lock') for op in ops}
    for i, client in enumerate(clients):
        y = top + i * ROW_ZOOMED
        out.append('<text x="4" y="%d">client %d</text>' % (y + 30, client))
        out += [_held(r, axis, g, y + 32) for g in r.ops if g.client == client and g.f == 'acquire' and g.ok and g.get('lock') in locks
                and g.get('token') is not None]
        visible = [op for op in r.ops if op.client == client and op.invoked - r.origin <= axis.high
                   and op.get('answered', r.origin + r.seconds) - r.origin >= axis.low]
        for op in sorted(sparse(visible, bad), key=lambda op: op.id in bad):
            kind = 'bad' if op.id in bad else class_of(op)
            out.append(box(axis, op.invoked - r.origin, op.get('answered', r.origin + r.seconds) - r.origin, y + 21, 10,
                           kind + ('' if op.ok else ' open'), op.words(r.origin), 2.5))
        out += _labels(r, axis, [op for op in visible if op.id in bad], y)
    return svg(height(top // ROW) + 18, ''.join(out), 'the clients of this anomaly over time, with what they hold and the faults')


def _held(r, axis, grant, y):
    began, ended = grant.get('answered') - r.origin, report_story.held_until(r, grant)[0] - r.origin
    if ended <= began or ended < axis.low or began > axis.high:
        return ''
    out = box(axis, began, ended, y, 5, 'held', 'token %s, until %.3f s' % (grant.get('token'), ended))
    text = 'holds with token %s' % grant.get('token')
    if axis(ended) - axis(began) > TEXT_W * len(text):
        out += '<text class="soft" x="%.1f" y="%d">%s</text>' % (axis(began) + 3, y + 15, text)
    return out


def _labels(r, axis, ops, y):
    """A word to each marked operation, above it, as far as they do not hide each other."""
    out, taken = [], 0.0
    for op in sorted(ops, key=lambda op: op.invoked):
        text = '%s %s' % (op.f, op.get('id') or ('token %s' % op.get('token') if op.get('token') is not None else ''))
        x = min(max(axis(op.invoked - r.origin), taken), WIDTH - TEXT_W * len(text))
        if x >= taken:
            out.append('<text class="bad" x="%.1f" y="%d">%s</text>' % (x, y + 12, esc(text)))
            taken = x + TEXT_W * len(text) + 6
    return out


def latency(r):
    """Each answered operation as a point, seconds on a logarithmic scale."""
    axis, height = Axis(0, r.seconds), 190
    low, high = -4.0, 1.2

    def up(seconds):
        return 8 + (height - 16) * (high - math.log10(max(seconds, 1e-4))) / (high - low)
    out = [axis.draw(height)]
    for power, label in zip(range(-4, 2), ('0.1 ms', '1 ms', '10 ms', '100 ms', '1 s', '10 s')):
        out.append('<path class="grid" d="M%d %.1fH%d"/><text class="soft" x="4" y="%.1f">%s</text>'
                   % (LEFT, up(10.0 ** power), WIDTH - 10, up(10.0 ** power) + 4, label))
    for op in sparse([op for op in r.ops if 'answered' in op.fields]):
        out.append('<circle class="%s" cx="%.1f" cy="%.1f" r="1.6"/>' % (
            class_of(op) if op.ok else 'bad', axis(op.invoked - r.origin), up(op.get('answered') - op.invoked)))
    return svg(height + 18, ''.join(out), 'time to the answer of each operation')


def throughput(r):
    axis, height, width = Axis(0, r.seconds), 90, max(0.25, r.seconds / 200)
    buckets = [0] * (int(r.seconds / width) + 2)
    for op in r.ops:
        if op.ok:
            buckets[max(0, int((op.completed - r.origin) / width))] += 1
    top = max(buckets + [1])
    out = [axis.draw(height), '<text class="soft" x="4" y="14">%d /s</text>' % round(top / width)]
    for i, n in enumerate(buckets):
        h = (height - 6) * n / top
        out.append('<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>'
                   % (axis(i * width), height - h, max(axis((i + 1) * width) - axis(i * width) - 0.5, 0.5), h))
    return svg(height + 18, ''.join(out), 'operations answered with success a second')


def legend(ops, zoomed=False):
    used = {class_of(op) for op in ops}
    items = ['<span><i class="%s"></i>%s</span>' % (c, text) for c, text in LEGEND.items() if c in used]
    items += ['<span><i class="bad"></i>part of an anomaly</span>', '<span><i class="fault"></i>fault</span>']
    items += ['<span><i class="held"></i>holds the lock</span>'] if zoomed else ['<span>dashed: a new leader, and the end of all faults</span>']
    return '<p class="legend">%s<span>hollow: refused, or never answered</span></p>' % ''.join(items)
