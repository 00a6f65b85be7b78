"""Reads and checks Prometheus's text format 0.0.4, as strictly as a scraper would like it to be."""

import http.client
import re

from harness import PATIENCE_S, wait_until

NAME = re.compile(r'[a-z_][a-z0-9_]*\Z')
SAMPLE = re.compile(r'([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)\Z')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"')


class FormatError(AssertionError):
    pass


class Family:
    def __init__(self, name, kind, text):
        self.name, self.kind, self.help = name, kind, text
        self.samples = {}  # (name, sorted labels) -> value


def _labels(text):
    return tuple(sorted(LABEL.findall(text or '')))


def _belongs(family, name):
    if family.kind == 'histogram':
        return name in (family.name + '_bucket', family.name + '_sum', family.name + '_count')
    return name == family.name


def _check_histogram(family):
    buckets = []
    for (name, labels), value in family.samples.items():
        if name.endswith('_bucket'):
            le = dict(labels)['le']
            buckets.append((float('inf') if le == '+Inf' else float(le), value))
    if not buckets or buckets[-1][0] != float('inf'):
        raise FormatError('%s: the last bucket is not +Inf' % family.name)
    for (low, a), (high, b) in zip(buckets, buckets[1:]):
        if low >= high or a > b:
            raise FormatError('%s: buckets do not rise at %s' % (family.name, high))
    if family.samples[(family.name + '_count', ())] != buckets[-1][1]:
        raise FormatError('%s: the count is not that of the last bucket' % family.name)


def parse(text):
    """Families by name; FormatError when it is not what it should be."""
    families, current, pending = {}, None, None
    if not text.endswith('\n'):
        raise FormatError('the last line has no end')
    for line in text[:-1].split('\n'):
        if line.startswith('# HELP '):
            name, _, words = line[7:].partition(' ')
            if name in families or not NAME.match(name) or not words.endswith('.'):
                raise FormatError('HELP is wrong, or comes twice: %s' % line)
            pending = (name, words)
        elif line.startswith('# TYPE '):
            name, kind = line[7:].split(' ')
            if pending is None or pending[0] != name or kind not in ('counter', 'gauge', 'histogram'):
                raise FormatError('TYPE does not follow its HELP: %s' % line)
            if (kind == 'counter') != name.endswith('_total'):
                raise FormatError('counters, and only they, end with _total: %s' % line)
            current, pending = Family(name, kind, pending[1]), None
            families[name] = current
        else:
            found = SAMPLE.match(line)
            if not found or current is None or not _belongs(current, found.group(1)):
                raise FormatError('no sample of %s: %s' % (current and current.name, line))
            key = (found.group(1), _labels(found.group(2)))
            if key in current.samples:
                raise FormatError('twice: %s' % line)
            current.samples[key] = float(found.group(3))
    for family in families.values():
        if family.kind == 'histogram':
            _check_histogram(family)
    return families


class Metrics:
    """One scrape."""

    def __init__(self, text):
        self.text = text
        self.families = parse(text)

    def value(self, name, **labels):
        for family in self.families.values():
            found = family.samples.get((name, tuple(sorted(labels.items()))))
            if found is not None:
                return found
        raise KeyError('%s %s' % (name, labels))


def get(address, path='/metrics', method='GET', headers=None, timeout=PATIENCE_S, body=None):
    """(status, text) of one request."""
    host, _, port = address.rpartition(':')
    c = http.client.HTTPConnection(host, int(port), timeout=timeout)
    try:
        c.request(method, path, body=body, headers=headers or {})
        r = c.getresponse()
        return r.status, r.read().decode()
    finally:
        c.close()


def get_answered(address, path='/metrics', **more):
    """As get(), and again as long as the loop of the process has not answered its listener within 0.8 s: on a busy machine that is no
    fault."""
    def answered():
        status, text = get(address, path, **more)
        return None if status == 503 and 'the event loop has not answered' in text else (status, text)
    return wait_until(answered, 'an answer of the loop')


def scrape_once(address):
    status, text = get(address)
    if status != 200:
        raise FormatError('/metrics: %d %s' % (status, text))
    return Metrics(text)


def scrape(address):
    """With the figures of the loop."""
    def whole():
        metrics = scrape_once(address)
        return metrics if metrics.value('fencelock_loop_responding') == 1 else None
    return wait_until(whole, 'figures of the loop')


def listener(process):
    """HOST:PORT of the listener, from the log of its process."""
    return re.search(r'metrics at http://(\S+)/metrics', process.output()).group(1)
