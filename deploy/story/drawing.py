"""A picture as SVG: what the story and the demonstration of Redlock draw their lanes with."""

import math
from xml.sax.saxutils import escape

INK, FAINT, GRID, RED = '#1f2933', '#66727f', '#c9d1d9', '#c81e1e'
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"


class Drawing:
    def __init__(self, width, height, title, defs):
        """defs: patterns that shapes are filled with."""
        self.parts = []
        self.add('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="%s" role="img">' % (width, height, FONT))
        self.add('<title>%s</title>' % escape(title))
        self.add('<defs>%s</defs>' % defs)
        self.box(0, 0, width, height, '#fff', 'rx="12"')

    def end(self):
        """The whole picture, as text."""
        return '\n'.join(self.parts + ['</svg>']) + '\n'

    def add(self, text):
        self.parts.append(text)

    def line(self, x1, y1, x2, y2, colour, width=1.0, more=''):
        self.add('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g" %s/>'
                 % (x1, y1, x2, y2, colour, width, more))

    def box(self, x, y, w, h, fill, more=''):
        self.add('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" %s/>' % (x, y, w, max(h, 0), fill, more))

    def circle(self, x, y, radius, fill, more=''):
        self.add('<circle cx="%.1f" cy="%.1f" r="%g" fill="%s" %s/>' % (x, y, radius, fill, more))

    def cross(self, x, y, size, width):
        """What was refused, or killed; its middle is at x, y."""
        self.add('<path d="M%g %g l%d %d m0 -%d l-%d %d" stroke="%s" stroke-width="%d" stroke-linecap="round"/>'
                 % (x - size / 2, y - size / 2, size, size, size, size, size, RED, width))

    def text(self, x, y, spans, size=15, anchor='middle', colour=INK, more=''):
        """spans: a string, or (string, colour, bold) triples. A white rim keeps it legible on lines."""
        if isinstance(spans, str):
            spans = [(spans, colour, False)]
        body = ''.join('<tspan fill="%s"%s>%s</tspan>' % (c, ' font-weight="700"' if bold else '', escape(s))
                       for s, c, bold in spans)
        self.add('<text x="%.1f" y="%.1f" font-size="%g" text-anchor="%s" stroke="#fff" stroke-width="4" '
                 'stroke-linejoin="round" paint-order="stroke" xml:space="preserve" %s>%s</text>'
                 % (x, y, size, anchor, more, body))

    def arrow(self, x1, y1, x2, y2, colour, width=1.8, dashed=False):
        """Ends a little before the lane, so that the head touches it."""
        away = 8 if x2 > x1 else -8
        tip, length = (x2 - away * 0.8, y2), 10
        angle = math.atan2(y2 - y1, tip[0] - x1)
        self.line(x1 + away * 0.8, y1, tip[0] - math.cos(angle) * 6, tip[1] - math.sin(angle) * 6, colour, width,
                  'stroke-dasharray="5 4"' if dashed else '')
        points = [tip] + [(tip[0] - length * math.cos(angle + s * 0.42), tip[1] - length * math.sin(angle + s * 0.42))
                          for s in (1, -1)]
        self.add('<polygon points="%s" fill="%s"/>' % (' '.join('%.1f,%.1f' % p for p in points), colour))
