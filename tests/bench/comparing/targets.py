"""The goals, each as a ratio of two figures of the same run, or a bound on one. A figure that was not measured gives
no verdict."""

import statistics


def median(rows, field):
    values = [row[field] for row in rows or [] if row.get(field) is not None]
    return statistics.median(values) if values else None


class Results:
    """The medians in what compare has measured."""

    def __init__(self, result):
        self.result = result

    def pairs(self, service, clients, field='per_s', in_flight=1):
        return median(self.result.get('pairs', {}).get('%d/%d' % (clients, in_flight), {}).get(service), field)

    def of(self, group, service, field):
        return median(self.result.get(group, {}).get(service), field)

    def held(self, field):
        return (self.result.get('held') or {}).get(field)


def _ratio(a, b):
    return a / b if a is not None and b else None


def goals(result):
    """(what, value, 'at least' or 'at most', bound, unit) of every goal; value is None when it was not measured."""
    r = Results(result)
    ours, disk = 'fencelock', median(result.get('disk'), 'p50_us')
    p50 = r.pairs(ours, 1, 'p50_us')
    held_rss, idle = r.held('rss_held'), (result.get('rss') or {}).get('idle')
    sets = lambda group, field: _ratio(r.of(group, 'store', field), r.of(group, 'redis', field))
    handoff = lambda field: _ratio(r.of('handoff', ours, field), r.of('handoff', 'zookeeper', field))
    rows = [('%d client%s, pairs/s, of redis' % (n, 's'[:n > 1]), _ratio(r.pairs(ours, n), r.pairs('redis', n)), 'at least',
             bound, 'x') for n, bound in ((1, 0.72), (16, 1.0), (64, 1.05), (256, 1.3))]
    rows += [('256 clients, pairs/s, of %s' % peer, _ratio(r.pairs(ours, 256), r.pairs(peer, 256)), 'at least', bound, 'x')
             for peer, bound in (('zookeeper', 4.0), ('etcd', 12.0))]
    rows += [('%d client%s, server CPU of a pair, of redis' % (n, 's'[:n > 1]),
              _ratio(r.pairs(ours, n, 'cpu_s_per_1000'), r.pairs('redis', n, 'cpu_s_per_1000')), 'at most', bound, 'x')
             for n, bound in ((1, 2.0), (16, 1.5), (64, 1.15), (256, 0.9))]
    return rows + [
        ('256 in flight on one connection, pairs/s, of redis',
         _ratio(r.pairs(ours, 1, in_flight=256), r.pairs('redis', 1, in_flight=256)), 'at least', 1.9, 'x'),
        ('256 in flight on one connection, server CPU of a pair, of redis',
         _ratio(r.pairs(ours, 1, 'cpu_s_per_1000', 256), r.pairs('redis', 1, 'cpu_s_per_1000', 256)), 'at most', 0.5, 'x'),
        ('256 clients, renewals/s, of commands of pairs/s',
         _ratio(r.of('renew', 'RENEW', 'per_s'), r.of('renew', 'acquire, release', 'per_s')), 'at least', 1.5, 'x'),
        ('1 client, acquire p50, of the disk', _ratio(p50, disk), 'at most', 1.3, 'x'),
        ('1 client, acquire p50, of etcd', _ratio(p50, r.pairs('etcd', 1, 'p50_us')), 'at most', 0.35, 'x'),
        ('1 client, acquire p99, of its p50', _ratio(r.pairs(ours, 1, 'p99_us'), p50), 'at most', 3.0, 'x'),
        ('hand-off p50, of zookeeper', handoff('p50_us'), 'at most', 0.5, 'x'),
        ('hand-offs/s, of zookeeper', handoff('per_s'), 'at least', 2.0, 'x'),
        ('SIGKILL of the leader to next grant', r.of('SIGKILL', ours, 'to_grant_ms'), 'at most', 75, 'ms'),
        ('SIGSTOP of the leader to next grant', r.of('SIGSTOP', ours, 'to_grant_ms'), 'at most', 450, 'ms'),
        ('SIGTERM of the leader, gap between grants', r.of('SIGTERM', ours, 'gap_ms'), 'at most', 15, 'ms'),
        ('one node, empty directory, start to first grant',
         median([{'ms': ms} for ms in result.get('start_ms', [])], 'ms'), 'at most', 10, 'ms'),
        ('idle RSS of a node', max(idle) / 2**20 if idle else None, 'at most', 8, 'MiB'),
        ('RSS of a node, one million held locks', max(held_rss) / 2**20 if held_rss and r.held('count') == 1000000
         else None, 'at most', 250, 'MiB'),
        ('longest gap between grants during its snapshot',
         r.held('longest_gap_ms') if r.held('count') == 1000000 else None, 'at most', 20, 'ms'),
        ('storage, 1 client, fenced SETs/s, of redis SETs/s', sets('sets_1', 'per_s'), 'at least', 0.9, 'x'),
        ('storage, 64 clients, fenced SETs/s, of redis SETs/s', sets('sets_64', 'per_s'), 'at least', 0.95, 'x'),
        ('storage, 64 clients, server CPU of a SET, of redis', sets('sets_64', 'cpu_s_per_1000'), 'at most', 1.15, 'x'),
    ]


def met(goal):
    _, value, kind, bound, _ = goal
    if value is None:
        return None
    return value >= bound if kind == 'at least' else value <= bound
