"""What happened, as tables, JSON and sentences."""

from plan import FAULTS

SUMS = ('grants', 'two_at_once', 'refused', 'acknowledged', 'unknown', 'counter', 'lost')
MODE_TEXT = {'off': 'without tokens', 'writes': 'tokens on writes alone', 'on': 'with tokens'}
CODES = {'bold': '1', 'red': '31', 'green': '32', 'yellow': '33'}


class Totals(dict):
    def __init__(self):
        super().__init__(runs=0, runs_with_loss=0, runs_with_two_at_once=0, **dict.fromkeys(SUMS, 0))

    def add(self, run):
        self['runs'] += 1
        self['runs_with_loss'] += run.lost > 0
        self['runs_with_two_at_once'] += run.two_at_once > 0
        for key in SUMS:
            self[key] += getattr(run, key)


def paint(text, colour, colours):
    return '\033[%sm%s\033[0m' % (CODES[colour], text) if colours and colour else text


def show_table(titles, rows, colours):
    """titles: those that end in > are of columns of numbers. A cell is (text, colour)."""
    rows = [[(t.rstrip('>'), 'bold') for t in titles]] + [[(str(text), c) for text, c in row] for row in rows]
    widths = [max(len(row[i][0]) for row in rows) for i in range(len(titles))]
    for row in rows:
        cells = []
        for i, (text, colour) in enumerate(row):
            pad = ' ' * (widths[i] - len(text)) if i + 1 < len(row) or titles[i].endswith('>') else ''
            shown = paint(text, colour, colours)
            cells.append(pad + shown if titles[i].endswith('>') else shown + pad)
        print('  '.join(cells))


def show_run(run, colours):
    rows, acknowledged = [], 0
    for r in run.rounds:
        acknowledged += r['acknowledged']
        two = 'no' if not r['two_at_once'] else 'yes, both in time' if r['both_valid'] else 'yes'
        rows.append([(FAULTS[r['planned'].fault], None), ('writer %d' % (r['planned'].first + 1), None),
                     ('writer %d' % (r['planned'].next + 1), None), (two, 'yellow' if r['two_at_once'] else None),
                     ('refused', 'green') if r['refused'] else ('accepted', 'red'), (acknowledged, None),
                     (r['counter'], 'bold'), (r['lost'], 'red' if r['lost'] else 'green')])
    print('%s: %d writers, %d grant%s, %d ms' % (paint('seed %d, %s' % (run.plan.seed, MODE_TEXT[run.mode]), 'bold', colours),
                                                run.plan.writers, run.grants, '' if run.grants == 1 else 's', run.elapsed_ms))
    show_table(('FAULT', 'HOLDER', 'NEXT HOLDER', 'TWO AT ONCE', 'LATE WRITE', 'ACKNOWLEDGED>', 'COUNTER>',
                'LOST UPDATES>'), rows, colours)
    print()


def show_totals(totals, colours):
    """totals: by mode."""
    rows = []
    for mode, t in totals.items():
        colour = 'red' if t['lost'] else 'green'
        rows.append([(mode, 'bold')] + [(t[k], None) for k in ('runs', 'grants', 'two_at_once', 'refused', 'acknowledged',
                                                             'counter')] + [(t['lost'], colour), (t['runs_with_loss'], colour)])
    show_table(('TOKENS', 'RUNS>', 'GRANTS>', 'TWO AT ONCE>', 'WRITES REFUSED>', 'ACKNOWLEDGED>', 'COUNTER>',
                'LOST UPDATES>', 'RUNS WITH LOSS>'), rows, colours)


def as_json(run):
    rounds = [{'fault': r['planned'].fault, 'holder': r['planned'].first + 1, 'next': r['planned'].next + 1,
               'late_write_first': r['planned'].late_write_first, 'two_at_once': r['two_at_once'],
               'both_valid': r['both_valid'], 'late_write_refused': r['refused'], 'acknowledged': r['acknowledged'],
               'counter': r['counter'], 'lost': r['lost']} for r in run.rounds]
    return {'seed': run.plan.seed, 'tokens': run.mode, 'writers': run.plan.writers,
            **{key: getattr(run, key) for key in SUMS}, 'retries': run.retries, 'elapsed_ms': run.elapsed_ms,
            'rounds': rounds}


def sentence(run, event):
    """About one event, as the picture has it."""
    who, number = event['who'] + 1, event['number']
    acquired = 'writer %d has the lock' % who + (', token %d' % number if run.mode != 'off' and number else '')
    return {
        'added': 'all writers in turn: %d update%s' % (number or 0, '' if number == 1 else 's'),
        'acquired': acquired,
        'read': 'writer %d %s %d' % (who, 'claims, reads' if run.mode == 'on' else 'reads', number or 0),
        'stopped': 'writer %d is stopped (SIGSTOP)' % who,
        'continued': 'writer %d goes on' % who,
        'held back': 'writer %d writes: held back on its way' % who,
        'let go': 'the write of writer %d goes on its way' % who,
        'down': 'Redis %d is down' % who,
        'up': 'Redis %d is up, without keys' % who,
        'forgets': 'Redis %d is killed and restarted' % who,
        'jumps': 'the clock of Redis %d jumps by %d s' % (who, number or 0),
        'written': 'writer %d writes %d: accepted' % (who, number or 0),
        'refused': 'writer %d writes: refused, the mark is %d' % (who, event['more']),
        'again': 'writer %d starts anew, and is accepted' % who,
        'result': '%d acknowledged, counter %d' % (event['more'], number or 0),
    }[event['kind']]
