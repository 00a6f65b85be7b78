"""What the drivers of all storages share. A driver has install, check, scratch, drop_scratch, attack_tables, adopt, uninstall."""

import json
import os

DATA = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..'))
PAINT = {'bad': '1;31', 'loss': '33', 'note': '36'}


class Usage(Exception):
    pass


def pairs_of(tables):
    """Splits words TABLE=LOCK into pairs."""
    pairs = [t.partition('=') for t in tables]
    for table, equals, lock in pairs:
        if not table or not equals or not lock:
            raise Usage("'%s' does not say which lock its rows belong to: write TABLE=COLUMN, or TABLE=EXPRESSION" % (table + equals))
    return [(table, lock) for table, _, lock in pairs]


def count(n, things):
    """'1 table', '2 tables'."""
    return '%d %s' % (n, things[:-1] if n == 1 else things)


def tell(as_json, sentence, **more):
    print(json.dumps(more) if as_json else sentence)


def tell_found(rows, guarded, as_json, colours, of='tables'):
    """Prints what a check found; returns the exit code.
    rows: grade (bad: writes can bypass the guard; loss: marks can be lost; note), what, remedy."""
    if as_json:
        print(json.dumps({'ok': not any(r[0] == 'bad' for r in rows), 'protected': guarded, 'found': [
            {'grade': g, 'what': w, 'remedy': m} for g, w, m in rows]}))
    else:
        for grade, what, remedy in rows:
            word = '%-4s' % grade
            print('%s  %s\n      %s' % ('\x1b[%sm%s\x1b[0m' % (PAINT[grade], word) if colours else word, what, remedy))
        found = [] if guarded is None else ['%s protected' % count(len(guarded), of)]
        found += [] if rows else ['nothing found wrong']
        if found:
            print('; '.join(found))
    return 1 if any(r[0] in ('bad', 'loss') for r in rows) else 0
