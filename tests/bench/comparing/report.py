"""The result as text and as SVG."""

from . import targets
from .targets import Results, median


def _number(value, digits=3):
    if value is None:
        return '-'
    if value >= 10000:
        return '%.1f k' % (value / 1000)
    return '%.*g' % (digits, value) if value < 1000 else '%.0f' % value


def _table(rows):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    lines = ['  '.join(str(cell).ljust(w) if i == 0 else str(cell).rjust(w) for i, (cell, w) in
                       enumerate(zip(row, widths))).rstrip() for row in rows]
    return '\n'.join([lines[0], '-' * len(lines[0])] + lines[1:])


def _pairs(result, titles):
    r = Results(result)
    counts = [tuple(map(int, key.split('/'))) for key in result['pairs']]
    counts.sort(key=lambda c: (c[1], c[0]))
    blocks = []
    for field, what, better in (('per_s', 'pairs/s', 'x fencelock'), ('p50_us', 'acquire p50, us', 'x fencelock'),
                                ('p99_us', 'acquire p99, us', 'x fencelock'),
                                ('cpu_s_per_1000', 'server CPU-s per 1000 pairs, all nodes', 'x fencelock')):
        head = [what] + ['%d client%s%s' % (c, '' if c == 1 else 's', '' if f == 1 else ' x %d' % f) for c, f in counts]
        rows = [head]
        for name, title in titles.items():
            cells = []
            for clients, in_flight in counts:
                value = r.pairs(name, clients, field, in_flight)
                ours = r.pairs('fencelock', clients, field, in_flight)
                ratio = ' (%.2f)' % (value / ours) if value is not None and ours and name != 'fencelock' else ''
                cells.append(_number(value) + ratio)
            rows.append([title] + cells)
        blocks.append(_table(rows) + '\n(in brackets: %s)' % better)
    return '\n\n'.join(blocks)


def _epoll(result):
    """By the second generator: ratios to Redis, and who else took CPU."""
    counts = sorted((tuple(map(int, key.split('/'))) for key in result['epoll']), key=lambda c: (c[1], c[0]))
    rows = [['one epoll loop, hiredis'] + ['%d client%s%s' % (c, '' if c == 1 else 's', '' if f == 1 else ' x %d' % f)
                                           for c, f in counts]]
    def row(title, cell):
        rows.append([title] + [cell(result['epoll']['%d/%d' % count]) for count in counts])
    for name in ('fencelock', 'redis'):
        for field, what in (('per_s', 'pairs/s'), ('cpu_s_per_1000', 'server CPU-s/1000'), ('client_cores', 'cores of the client'),
                            ('kernel_cores', 'cores of kernel threads')):
            row('%s, %s' % (name, what), lambda c, n=name, f=field: _number(median(c.get(n), f)))
    def ratio(field):
        def cell(c):
            a, b = median(c.get('fencelock'), field), median(c.get('redis'), field)
            return '%.2f' % (a / b) if a is not None and b else '-'
        return cell
    row('pairs/s, of Redis', ratio('per_s'))
    row('server CPU, of Redis', ratio('cpu_s_per_1000'))
    return _table(rows)


def _grouped(result, group, title, columns, titles):
    rows = [[title] + [head for head, _ in columns] + ['runs']]
    for name, runs in result[group].items():
        rows.append([titles.get(name, name)] + [_number(median(runs, field)) for _, field in columns] + [len(runs)])
    return _table(rows)


def _mib(values):
    return ' '.join('%.1f' % (v / 2**20) for v in values)


def _goals(result):
    rows = [['goal', 'measured', '', 'wanted', 'met']]
    for goal in targets.goals(result):
        what, value, kind, bound, unit = goal
        verdict = targets.met(goal)
        if verdict is None:
            continue
        rows.append([what, _number(value), unit, '%s %g' % (kind, bound),
                     'yes' if verdict else 'NO'])
    return _table(rows)


def text(result):
    titles, env = result['titles'], result['environment']
    parts = ['%d CPUs (%s), Linux %s, %s; load average before: %.1f\n%s\nAll servers and clients on this machine; medians '
             'of %d rounds, taken in turns.' % (env['cpus'], env['cpu'], env['kernel'], env['file_system'],
                                               env['load_before'],
                                               '; '.join('%s: %s' % v for v in env['versions'].items()),
                                               result['rounds'])]
    if result.get('load_during'):
        parts.append('Load average while measuring: %.1f to %.1f. %s' % (
            min(result['load_during']), max(result['load_during']), result['noise']))
    if result.get('pairs'):
        parts.append(_pairs(result, titles))
    if result.get('epoll'):
        parts.append(_epoll(result))
    if result.get('renew'):
        parts.append(_grouped(result, 'renew', '256 clients', [('commands/s', 'per_s'), ('p50 us', 'p50_us'), ('p99 us', 'p99_us'),
                                                               ('CPU-s/1000', 'cpu_s_per_1000')], titles))
    if result.get('disk'):
        parts.append('disk, three synced 4 KiB writes at once: %s/s, p50 %s us' % (
            _number(median(result['disk'], 'per_s')), _number(median(result['disk'], 'p50_us'))))
    if result.get('handoff'):
        parts.append(_grouped(result, 'handoff', 'one lock, 16 waiters',
                              [('hand-offs/s', 'per_s'), ('p50 us', 'p50_us'), ('p99 us', 'p99_us')], titles))
    for group in ('SIGKILL', 'SIGSTOP', 'SIGTERM'):
        if result.get(group):
            parts.append(_grouped(result, group, '%s of the leader' % group,
                                  [('longest gap, ms', 'gap_ms')] if group == 'SIGTERM' else
                                  [('to next grant, ms', 'to_grant_ms')], titles) +
                     '\n(fencelock\'s client has default settings; etcd\'s waits 300 ms for a silent server; ZooKeeper\'s session is 4 s)')
    if result.get('start_ms'):
        parts.append('start of one node to first grant, ms: median %.1f, of %s' % (
            median([{'v': v} for v in result['start_ms']], 'v'), ' '.join('%.1f' % v for v in result['start_ms'])))
    if result.get('rss'):
        parts.append('RSS of the nodes, MiB: idle %s; after load %s' % (_mib(result['rss']['idle']),
                                                                        _mib(result['rss']['loaded'])))
    if result.get('held'):
        h = result['held']
        parts.append('%d held locks: RSS %s MiB (before %s, peak %s, after a snapshot %s); snapshot of %.0f MiB, which a '
                     'child wrote in %s ms;\nlongest time between two grants of one client meanwhile %.1f ms (median %.2f)' % (
                         h['count'], _mib(h['rss_held']), _mib(h['rss_idle']), _mib(h['rss_peak']),
                         _mib(h['rss_after_snapshot']), h['snapshot_bytes'] / 2**20,
                         ', '.join(map(str, h['snapshot_ms'])), h['longest_gap_ms'], h['median_gap_ms']))
    for group, title in (('sets_1', '1 client, synced writes'), ('sets_64', '64 clients, synced writes')):
        if result.get(group):
            parts.append(_grouped(result, group, title,
                                  [('SETs/s', 'per_s'), ('p50 us', 'p50_us'), ('CPU-s/1000', 'cpu_s_per_1000')], titles))
    for name, why in result.get('unavailable', {}).items():
        parts.append('%s was left out: %s' % (name, why))
    if any(targets.met(goal) is not None for goal in targets.goals(result)):
        parts.append(_goals(result))
    return '\n\n'.join(parts) + '\n'


# -- SVG ----------------------------------------------------------------------------------------

COLOURS = ['#0b6e99', '#b3541e', '#8a8a2a', '#5b4b8a', '#6b7280']
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 860, 380, 60, 70, 40


def _escape(words):
    return words.replace('&', '&amp;').replace('<', '&lt;')


def svg(result):
    """Bars of pairs/s, a group for each number of clients, longer is better."""
    r, titles = Results(result), result['titles']
    counts = sorted(int(k.split('/')[0]) for k in result['pairs'] if k.endswith('/1'))
    top = max((r.pairs(n, c) or 0) for n in titles for c in counts) or 1
    group = (WIDTH - LEFT - 20) / len(counts)
    bar = group * 0.8 / len(titles)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">'
           % (WIDTH, HEIGHT), '<rect width="100%" height="100%" fill="white"/>',
           '<text x="%d" y="22" font-size="15">Acquire and release of an uncontended lock, pairs a second</text>' % LEFT]
    for i, title in enumerate(titles.values()):
        x, y = LEFT + (i % 3) * 270, 40 + (i // 3) * 16
        out.append('<rect x="%d" y="%d" width="10" height="10" fill="%s"/><text x="%d" y="%d">%s</text>'
                   % (x, y - 9, COLOURS[i % len(COLOURS)], x + 15, y, _escape(title)))
    floor = HEIGHT - BOTTOM
    for g, clients in enumerate(counts):
        x = LEFT + g * group
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%d client%s</text>'
                   % (x + group * 0.4, floor + 20, clients, '' if clients == 1 else 's'))
        for i, name in enumerate(titles):
            value = r.pairs(name, clients)
            if value is None:
                continue
            height = value / top * (floor - TOP - 15)
            out.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>'
                       % (x + i * bar, floor - height, bar * 0.9, height, COLOURS[i % len(COLOURS)]))
            out.append('<text x="%.1f" y="%.1f" font-size="9" text-anchor="middle">%s</text>'
                       % (x + i * bar + bar * 0.45, floor - height - 3, _number(value)))
    out.append('<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#333"/></svg>' % (LEFT, floor, WIDTH - 20, floor))
    return '\n'.join(out) + '\n'
