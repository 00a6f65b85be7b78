"""Draws the recorded story as an SVG: a lane for each actor, time running down, an arrow for each
message. Waiting is compressed (the times at the left are the true ones); nothing else is arranged."""

import math

from drawing import FAINT, GRID, INK, RED, Drawing

WIDTH = 1016
LANES = {'lock service': 215, 'client 1': 425, 'client 2': 635, 'storage': 845}
TITLES = {'lock service': ('Lock service', 'three nodes, one Raft group'), 'client 1': ('Client 1', ''),
          'client 2': ('Client 2', ''), 'storage': ('Storage', 'keeps the highest token')}
COLOURS = {'client 1': '#1d5fbf', 'client 2': '#18794e', 'lock service': '#5b4b8a', 'storage': '#8a5a00'}
PALE = {'client 1': '#dbe8fb', 'client 2': '#d5f0e1'}
TOP, SLOPE = 168, 7

# Request kinds, who answers, and what is written on the arrows: (answer kinds, lane, label).
REQUESTS = {'asks': (('granted',), 'lock service', 'acquire'),
            'asks to read': (('has read',), 'storage', 'claim + read'),
            'writes': (('accepted', 'refused'), 'storage', 'write')}
# Room above each event, beyond what the time since the one before asks for.
ROOM = {'asks': 34, 'granted': 32, 'asks to read': 32, 'has read': 30, 'writes': 32, 'accepted': 30, 'refused': 32,
        'released': 32, 'paused': 24, 'resumed': 30, 'killed': 48}


def place(events):
    """Gives every event its y. Returns the y where the lanes end."""
    y, before = TOP, None
    for e in events:
        if e['kind'] in ROOM:
            waited = 0 if before is None else max(0.0, e['t'] - before)
            y += ROOM[e['kind']] + min(70.0, 30.0 * math.log10(1 + waited / 0.1))
            before = e['t']
        e['y'] = y
    return y + 46


def answer_to(events, index, kinds):
    asker = events[index]['actor']
    for e in events[index + 1:]:
        if e['kind'] in kinds and asker in (e['actor'], e.get('by')):
            return e
    return None


def near(client, other):
    """Where a label stands: between the client's lane and the next one on the way."""
    step = 105 if LANES[other] > LANES[client] else -105
    return LANES[client] + step


def draw_lanes(d, end):
    for name, x in LANES.items():
        d.line(x, TOP - 18, x, end, GRID, 2)
        title, below = TITLES[name]
        d.box(x - 96, TOP - 74, 192, 52, '#fff', 'rx="8" stroke="%s" stroke-width="2"' % COLOURS[name])
        d.text(x, TOP - (52 if below else 42), [(title, COLOURS[name], True)], 17)
        if below:
            d.text(x, TOP - 33, below, 12, colour=FAINT, more='style="stroke:none"')


def draw_leases(d, events, end):
    """Beside the lock service: who holds the lock from when to when."""
    x = LANES['lock service']
    grants = [e for e in events if e['kind'] == 'granted']
    for e in grants:
        later = [o for o in events if o['t'] > e['t'] and (o['kind'] == 'granted' or
                 (o['kind'] == 'released' and o['actor'] == e['actor']))]
        until = later[0]['y'] if later else end
        ended_by_time = bool(later) and later[0]['kind'] == 'granted'
        d.box(x - 8, e['y'] - SLOPE, 16, until - e['y'] + (0 if ended_by_time else SLOPE), COLOURS[e['actor']], 'rx="3"')
        middle = (e['y'] + until) / 2
        if until - e['y'] > 40:
            d.text(x - 16, middle - 3, 'held by', 13, 'end', FAINT)
            d.text(x - 16, middle + 13, [(e['actor'], COLOURS[e['actor']], True)], 13, 'end')
        if ended_by_time:
            d.line(x - 26, until - SLOPE, x + 12, until - SLOPE, COLOURS[e['actor']], 2)
            d.text(x - 30, until - SLOPE - 6, 'lease ends', 13, 'end', COLOURS[e['actor']])


def draw_clients(d, events):
    """A thin bar while a client is at work, and the pause as a wide one."""
    for name in ('client 1', 'client 2'):
        x, start = LANES[name], None
        for e in [e for e in events if e['actor'] == name or e.get('by') == name]:
            if start is None:
                start = e['y']
            if e['kind'] in ('released', 'refused'):
                d.box(x - 5, start, 10, e['y'] - start, PALE[name], 'stroke="%s" rx="2"' % COLOURS[name])
                start = None
    paused = next((e for e in events if e['kind'] == 'paused'), None)
    resumed = next((e for e in events if e['kind'] == 'resumed'), None)
    if not paused or not resumed:
        return
    x, top, bottom = LANES['client 1'], paused['y'], resumed['y']
    d.box(x - 62, top, 124, bottom - top, 'url(#pause)', 'rx="8" stroke="%s" stroke-width="1.5"' % COLOURS['client 1'])
    crossing = [top] + [e['y'] for e in events if top < e['y'] < bottom and e['actor'] == 'client 2'
                        and e['kind'] in ('asks', 'granted', 'released')] + [bottom]
    gap, at = max((b - a, (a + b) / 2) for a, b in zip(crossing, crossing[1:]))
    lines = [('paused', True, 17), ('SIGSTOP', False, 13), ('%.1f s' % (resumed['t'] - paused['t']), False, 13)]
    if gap < 70:
        lines = lines[:1] + lines[2:]
    y = at - 8 * len(lines) + 10
    for text, bold, size in lines:
        d.text(x, y, [(text, COLOURS['client 1'], bold)], size)
        y += 18


def draw_messages(d, events):
    for i, e in enumerate(events):
        client, kind = e['actor'], e['kind']
        if kind == 'released':
            d.arrow(LANES[client], e['y'] - SLOPE, LANES['lock service'], e['y'], COLOURS[client])
            d.text(near(client, 'lock service'), e['y'] - 10, 'release')
            continue
        if kind not in REQUESTS:
            continue
        kinds, server, label = REQUESTS[kind]
        answer = answer_to(events, i, kinds)
        if answer is None:
            continue
        refused = answer['kind'] == 'refused'
        colour = RED if refused else COLOURS[client]
        x, sx, at = LANES[client], LANES[server], near(client, server)
        d.arrow(x, e['y'] - SLOPE, sx, e['y'], colour, 2.6 if refused else 1.8)
        spans = [(label, RED if refused else INK, refused)]
        if 'token' in e:
            spans += [(', ', INK, False), ('token %d' % e['token'], colour, True)]
        d.text(at, e['y'] - 10, spans)
        d.arrow(sx, answer['y'] - SLOPE, x, answer['y'], colour, 2.6 if refused else 1.8, dashed=True)
        if kind == 'asks':
            d.text(at, answer['y'] - 10, [('ok, ', INK, False), ('token %d' % answer['token'], colour, True)])
        elif kind == 'asks to read':
            d.text(at, answer['y'] - 10, '“%s”' % answer['value'] if answer['value'] else 'empty')
        elif refused:
            d.text(at, answer['y'] - 10, [('refused: stale', RED, True)])
            d.cross(sx, e['y'], 14, 4)
        else:
            d.text(at, answer['y'] - 10, 'ok')


def draw_storage(d, events):
    """Beside the storage: its mark whenever it grows, and what is written."""
    x, mark = LANES['storage'] + 18, 0
    for i, e in enumerate(events):
        if e['kind'] == 'has read' and e['token'] > mark:
            mark = e['token']
            y = next(o['y'] for o in reversed(events[:i]) if o['kind'] == 'asks to read' and o['actor'] == e['actor'])
            d.box(x, y - 3, 72, 22, '#fdf3d8', 'rx="11" stroke="%s"' % COLOURS['storage'])
            d.text(x + 36, y + 13, [('mark %d' % mark, COLOURS['storage'], True)], 13.5, more='style="stroke:none"')
        elif e['kind'] == 'accepted':
            d.text(x, e['y'] - 13, [('“%s”' % e['value'], INK, False)], 13, 'start')
        elif e['kind'] == 'refused':
            d.text(x, e['y'] - 25, [('%d < %d' % (e['token'], mark), RED, True)], 16, 'start')


def draw_failover(d, events):
    killed = next((e for e in events if e['kind'] == 'killed'), None)
    granted = next((e for e in events if killed and e['kind'] == 'granted' and e['t'] > killed['t']), None)
    if not killed or not granted:
        return
    x, y = LANES['lock service'], killed['y']
    d.box(x - 8, y, 16, granted['y'] - SLOPE - y, 'url(#nobody)', 'stroke="%s" rx="3"' % RED)
    d.cross(x, y, 20, 5)
    d.text(x - 20, y - 6, [('leader killed', RED, True)], 14, 'end')
    d.text(x - 20, y + 11, [('node %d, SIGKILL' % killed['leader'], RED, False)], 13, 'end')


def draw_times(d, events):
    shown = -100.0
    for e in events:
        wanted = e['kind'] in ('paused', 'resumed', 'granted', 'refused', 'killed', 'accepted') or \
            (e['kind'] == 'asks' and e['actor'] == 'client 1')
        if wanted and e['y'] - shown >= 22:
            shown = e['y']
            d.line(62, e['y'] - 4, 74, e['y'] - 4, GRID, 2)
            d.text(56, e['y'], '%.2f s' % e['t'], 13, 'end', FAINT)


def draw(events, ttl_s):
    """The whole picture, as text. events: as Timeline keeps them."""
    events = sorted((dict(e) for e in events), key=lambda e: e['t'])
    end = place(events)
    height = end + 58
    d = Drawing(WIDTH, height, 'A paused client wakes up after its lease has ended; storage refuses its late write',
                '<pattern id="pause" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
                '<rect width="8" height="8" fill="#eef4fd"/><rect width="3" height="8" fill="#cfe0f8"/></pattern>'
                '<pattern id="nobody" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
                '<rect width="6" height="6" fill="#fff"/><rect width="2" height="6" fill="%s"/></pattern>' % RED)
    d.text(WIDTH / 2, 40, [('A paused client, and the token that stops its late write', INK, True)], 24)
    d.text(WIDTH / 2, 66, 'Drawn from a run on real processes; leases of %g s; time runs down, waiting is shortened' % ttl_s, 14,
           colour=FAINT)
    draw_lanes(d, end)
    draw_leases(d, events, end)
    draw_clients(d, events)
    draw_failover(d, events)
    draw_messages(d, events)
    draw_storage(d, events)
    draw_times(d, events)
    tokens = []
    for e in events:
        if e['kind'] == 'granted':
            tokens.append((str(e['token']), COLOURS[e['actor']], True))
            tokens.append((' < ', FAINT, False))
    d.text(WIDTH / 2, height - 22, [('The tokens only ever grow:  ', FAINT, False)] + tokens[:-1], 17)
    return d.end()
