"""The picture of a run: for each mode a column of lanes, one for each writer, with time running down (a row for
each event, so waiting is shortened), and a sentence beside each event."""

from drawing import FAINT, GRID, INK, RED, Drawing
from plan import FAULTS, WRITERS_MAX
from report import sentence

PANEL, MARGIN, TOP, ROW, HEAD = 560, 24, 150, 22, 44
LANES, LANE = 64, 26
WORDS = LANES + WRITERS_MAX * LANE + 10
GREEN = '#18794e'
COLOURS = ('#1d5fbf', '#b4570a', '#5b4b8a', '#0f766e', '#9d2463')
TITLES = {'off': ('Without tokens', RED), 'writes': ('Tokens on writes alone, no claim', RED),
          'on': ('With tokens', GREEN)}
STRONG = ('stopped', 'held back', 'forgets', 'jumps')
PALE = ('up', 'down', 'added')
OWN = ('acquired', 'read', 'written')


class Panel:
    def __init__(self, drawing, run, x, tops):
        self.d, self.run, self.x = drawing, run, x
        rows = {}
        for e in run.events:
            rows[e['round']] = rows.get(e['round'], -1) + 1
            e['y'] = tops[e['round']] + HEAD + rows[e['round']] * ROW

    def lane(self, who):
        return self.x + LANES + who * LANE + LANE / 2

    def after(self, event, kinds, who=None):
        """The first event of these kinds after this one in its round, or what ends the round."""
        later = self.run.events[self.run.events.index(event) + 1:]
        for e in later:
            if e['kind'] == 'result' or (e['kind'] in kinds and e['who'] == (event['who'] if who is None else who)):
                return e
        return self.run.events[-1]

    def end_of_hold(self, grant):
        return self.after(grant, ('written', 'refused', 'acquired'))

    def draw_lanes(self, bottom):
        for w in range(self.run.plan.writers):
            x = self.lane(w)
            self.d.line(x, TOP - 14, x, bottom, GRID)
            self.d.circle(x, TOP - 22, 10, COLOURS[w])
            self.d.text(x, TOP - 17, [(str(w + 1), '#fff', True)], 13, more='style="stroke:none"')
        self.d.text(self.x + 8, TOP - 17, 'writer', 13, 'start', FAINT)

    def draw_two_at_once(self):
        """Behind the lanes: from the grant of the next holder until one of the two is through."""
        first = None
        for e in self.run.events:
            if e['kind'] == 'result':
                first = None
            if e['kind'] != 'acquired':
                continue
            if first is not None and e['who'] != first['who']:
                until = min(self.end_of_hold(first)['y'], self.end_of_hold(e)['y'])
                self.d.box(self.x + LANES - 4, e['y'] - 6, self.run.plan.writers * LANE + 8, until - e['y'] + 12,
                           '#fde2e2', 'rx="4"')
            first = e

    def draw_holds(self):
        for e in [e for e in self.run.events if e['kind'] == 'acquired']:
            self.d.box(self.lane(e['who']) - 5, e['y'], 10, self.end_of_hold(e)['y'] - e['y'], COLOURS[e['who']], 'rx="3"')
        for e in self.run.events:
            x, y = self.lane(e['who']), e['y']
            if e['kind'] in ('stopped', 'held back'):
                until = self.after(e, ('continued', 'let go'))['y']
                self.d.box(x - 8, y, 16, until - y, 'url(#away)', 'stroke="%s" rx="3"' % COLOURS[e['who']])
            elif e['kind'] == 'written':
                self.d.circle(x, y, 6, '#fff', 'stroke="%s" stroke-width="3"' % COLOURS[e['who']])
            elif e['kind'] == 'refused':
                self.d.cross(x, y, 12, 4)

    def draw_words(self):
        for e in self.run.events:
            words, colour, bold = sentence(self.run, e), INK, e['kind'] in STRONG
            if e['kind'] == 'result':
                lost = self.run.rounds[e['round']]['lost']
                words, colour, bold = words + (': one is lost' if lost else ''), RED if lost else GREEN, True
            elif e['kind'] == 'refused':
                colour, bold = RED, True
            elif e['kind'] in OWN:
                colour = COLOURS[e['who']]
            elif e['kind'] in PALE:
                colour = FAINT
            self.d.text(self.x + WORDS, e['y'] + 5, [(words, colour, bold)], 14, 'start')
            if e['kind'] != 'result':
                self.d.text(self.x + LANES - 12, e['y'] + 4, '%d ms' % (e['t'] * 1000), 11, 'end', FAINT)

    def draw(self, bottom):
        title, colour = TITLES[self.run.mode]
        self.d.text(self.x + LANES, TOP - 48, [(title, colour, True)], 19, 'start')
        self.draw_lanes(bottom)
        self.draw_two_at_once()
        self.draw_holds()
        self.draw_words()
        lost = '%d update%s acknowledged, the counter is %d: %d lost' % (self.run.acknowledged, '' if self.run.acknowledged == 1 else 's', self.run.counter, self.run.lost)
        self.d.text(self.x + LANES, bottom + 30, [(lost, RED if self.run.lost else GREEN, True)], 17, 'start')


def draw(runs):
    """One or two runs of the same seed side by side, as text."""
    plan = runs[0].plan
    tops = [TOP]
    for i in range(len(plan.rounds)):
        tops.append(tops[i] + HEAD + 6 + ROW * max(sum(e['round'] == i for e in run.events) for run in runs))
    bottom, width = tops[-1], MARGIN * 2 + len(runs) * PANEL
    d = Drawing(width, bottom + 52, 'Redlock under real faults, seed %d' % plan.seed,
                '<pattern id="away" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
                '<rect width="6" height="6" fill="#fff"/><rect width="2.5" height="6" fill="#9aa5b1"/></pattern>')
    d.text(MARGIN, 36, [('Redlock under real faults', INK, True)], 22, 'start')
    d.text(MARGIN, 58, 'Drawn from a run on real processes, seed %d: five Redis, %d writers of one counter. Time runs down, '
           'waiting is shortened. Red: two hold the lock at once.' % (plan.seed, plan.writers), 13, 'start', FAINT)
    for i, run in enumerate(runs):
        Panel(d, run, MARGIN + i * PANEL, tops).draw(bottom)
    for i, planned in enumerate(plan.rounds):
        d.box(MARGIN, tops[i], width - 2 * MARGIN, 24, '#eef1f4', 'rx="5"')
        d.text(MARGIN + 10, tops[i] + 17, [('%d. %s' % (i + 1, FAULTS[planned.fault]), INK, True)], 14, 'start',
               more='style="stroke:none"')
    return d.end()
