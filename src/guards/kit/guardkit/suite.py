"""All attacks that need only the seven functions of storage.py, and the table of which rules held.

The rules are those of docs/FENCING.md. An attack that could not be made is "not tried", never "holds"."""

import json
import random
import sys
import threading
import time
import traceback

from .driver import count
from .storage import Refused, Unknown

RULES = {
    1: 'a token below the mark is refused',
    2: 'a token equal to the mark is accepted',
    3: 'a claim raises the mark, and reads after it are not older',
    4: 'a write without a token is refused, in whatever way',
    5: 'a token that was never issued is refused',
    6: 'a record belongs to one lock',
    7: 'mark and write are checked together',
    8: 'the mark is as durable as the data',
    9: 'a mark never goes down',
    10: 'a paused holder does not keep its successor out for ever',
    11: 'any name works',
}
TOKEN_MAX = (1 << 53) - 1


class Skip(Exception):
    """The attack could not be tried; the text says why."""


class Broken(Exception):
    """The rule does not hold; the text says what showed it."""


class Report:
    """Rows of (rule, attack, 'holds' | 'BROKEN' | 'not tried', detail)."""

    def __init__(self, storage, seed):
        self.storage, self.seed, self.rows = storage, seed, []

    def run(self, rule, attack, function, *args):
        began = time.monotonic()
        try:
            detail, outcome = function(*args) or '', 'holds'
        except Skip as e:
            detail, outcome = str(e), 'not tried'
        except Broken as e:
            detail, outcome = str(e), 'BROKEN'
        except Exception as e: # a guard that cannot even be used does not hold
            detail, outcome = '%s: %s' % (type(e).__name__, str(e).strip().split('\n')[0][:160]), 'BROKEN'
            if not isinstance(e, (Refused, Unknown, NotImplementedError)):
                detail += ' [%s]' % traceback.format_exc().strip().split('\n')[-3].strip()
        self.rows.append((rule, attack, outcome, detail, time.monotonic() - began))
        return outcome

    def count(self, outcome):
        return sum(1 for row in self.rows if row[2] == outcome)

    def ok(self):
        return self.count('BROKEN') == 0 and self.count('holds') > 0

    def rules_broken(self):
        return sorted({row[0] for row in self.rows if row[2] == 'BROKEN'})

    def show(self, out=sys.stdout, as_json=False, colours=False):
        if as_json:
            json.dump({'storage': self.storage, 'seed': self.seed, 'ok': self.ok(), 'attacks': [
                {'rule': r, 'attack': a, 'outcome': o, 'detail': d, 'seconds': round(s, 3)} for r, a, o, d, s in self.rows]}, out)
            out.write('\n')
            return
        width = max(len(row[1]) for row in self.rows)
        for rule, attack, outcome, detail, _ in sorted(self.rows, key=lambda row: row[0]):
            paint = {'holds': '32', 'BROKEN': '1;31', 'not tried': '33'}[outcome]
            word = '%-9s' % outcome
            out.write('%2d  %-*s  %s  %s\n' % (rule, width, attack, '\x1b[%sm%s\x1b[0m' % (paint, word) if colours else word, detail))
        for rule in self.rules_broken():
            out.write('rule %d does not hold: %s\n' % (rule, RULES[rule]))
        out.write('%s: %s withstood, %d got through, %d not tried (seed %d)\n' % (
            self.storage, count(self.count('holds'), 'attacks'), self.count('BROKEN'), self.count('not tried'), self.seed))


def must(condition, text, *args):
    if not condition:
        raise Broken(text % args if args else text)


def must_refuse(word, what, function, *args):
    """Calls function, which must be refused, and for the reason `word` if that is given."""
    try:
        function(*args)
    except Refused as e:
        if word and e.word != word:
            raise Broken('%s was refused with %s, not %s: %s' % (what, e.word, word, e)) from None
        return e
    raise Broken('%s was accepted' % what)


class Suite:
    def __init__(self, storage, seed, rounds=150, crashes=3):
        self.s, self.seed, self.rounds, self.crashes = storage, seed, rounds, crashes
        self.random = random.Random(seed)
        self.number, self.guard = 0, threading.Lock()
        self.last_token = seed % 1000 * 1000
        self.history = []                  # of the random runs, for other judges too
        self.aside = None                  # a lock that no other part uses

    # -- parts of attacks ------------------------------------------------------------------------
    def token(self):
        with self.guard:
            self.last_token += 1
            return self.last_token

    def fresh(self, value='100', lock=None):
        """A key that nobody has used, and its lock: that nobody has used either, or the one that is given."""
        with self.guard:
            self.number += 1
            key, lock = 'k%d' % self.number, lock or 'lock%d' % self.number
        self.s.create(key, lock, value)
        return key, lock

    def value(self, lock, key):
        return self.s.read(self.s.open(), lock, key)

    # -- attacks -------------------------------------------------------------------------------------------
    def stale_write(self, how):
        key, lock = self.fresh()
        a, b, old, new = self.s.open(), self.s.open(), self.token(), self.token()
        self.s.claim(a, lock, old)
        self.s.write(a, lock, old, key, '101', self.s.kinds[0])
        self.s.claim(b, lock, new)
        before = self.s.read(b, lock, key)
        e = must_refuse('STALE', 'a write under token %d after a claim with %d' % (old, new), self.s.write, a, lock, old, key, '666', how)
        must(self.value(lock, key) == before, 'it was refused, and yet the value changed from %s to %s', before, self.value(lock, key))
        must(str(old) in str(e) and str(new) in str(e), 'the refusal does not name both numbers: %s', e)
        self.s.write(b, lock, new, key, '110', how)

    def stale_claim(self):
        key, lock = self.fresh()
        a, old, new = self.s.open(), self.token(), self.token()
        self.s.claim(a, lock, new)
        must_refuse('STALE', 'a claim below the mark', self.s.claim, self.s.open(), lock, old)
        must(self.s.mark(a, lock) == new, 'the mark is %s, not %s', self.s.mark(a, lock), new)

    def equal_tokens(self):
        key, lock = self.fresh()
        a, b, token = self.s.open(), self.s.open(), self.token()
        for session in (a, b, a):
            self.s.claim(session, lock, token)
        for i, session in enumerate((a, a, b)):
            self.s.write(session, lock, token, key, str(200 + i), self.s.kinds[0])
        must(self.value(lock, key) == '202', 'the value is %s after the third write of 202', self.value(lock, key))
        must(self.s.mark(a, lock) == token, 'the mark is %s, not %s', self.s.mark(a, lock), token)

    def claim_is_no_write(self):
        key, lock = self.fresh('first')
        token = self.token()
        self.s.claim(self.s.open(), lock, token)
        must(self.value(lock, key) == 'first', 'a claim changed the value')
        must(self.s.mark(self.s.open(), lock) == token, 'a claim did not raise the mark')

    def read_after_claim(self):
        """The right-hand column of docs/FENCING.md: claim, read, and the old holder's write arrives after them."""
        key, lock = self.fresh('100')
        a, b, old, new = self.s.open(), self.s.open(), self.token(), self.token()
        self.s.claim(a, lock, old)
        self.s.claim(b, lock, new)
        seen = int(self.s.read(b, lock, key))
        acknowledged = 0
        try:
            self.s.write(a, lock, old, key, '101', self.s.kinds[0])
            acknowledged = 1
        except Refused:
            pass
        self.s.write(b, lock, new, key, str(seen + 10), self.s.kinds[0])
        must(int(self.value(lock, key)) == 110 + acknowledged, 'an acknowledged update is lost: the value is %s', self.value(lock, key))

    def no_token(self, name, function):
        key, lock = self.fresh('100')
        a, token = self.s.open(), self.token()
        self.s.claim(a, lock, token)
        self.s.write(a, lock, token, key, '101', self.s.kinds[0])
        mark = self.s.mark(self.s.open(), lock)
        try:
            function(self.s.open(), lock, key, '666')
        except Refused:
            pass
        must(self.value(lock, key) == '101', '%s changed the value to %s', name, self.value(lock, key))
        must(self.s.mark(self.s.open(), lock) == mark, '%s changed the mark from %s to %s', name, mark, self.s.mark(self.s.open(), lock))

    def odd_token(self, token):
        key, lock = self.fresh('100')
        must_refuse(None, 'a claim with %r' % (token,), self.s.claim, self.s.open(), lock, token)
        must_refuse(None, 'a write with %r' % (token,), self.s.write, self.s.open(), lock, token, key, '666', self.s.kinds[0])
        must(self.value(lock, key) == '100', 'a write with %r was refused and done', token)

    def largest_token(self):
        key, lock = self.fresh('100')
        a = self.s.open()
        self.s.claim(a, lock, TOKEN_MAX)
        self.s.write(a, lock, TOKEN_MAX, key, '101', self.s.kinds[0])
        must_refuse('STALE', 'a claim with 2^53-2 after 2^53-1', self.s.claim, self.s.open(), lock, TOKEN_MAX - 1)

    def text_order(self):
        """Tokens are compared as numbers: 9 is below 10, but above it as text."""
        key, lock = self.fresh()
        a = self.s.open()
        for token in (9, 10, 99, 100):
            self.s.claim(a, lock, token)
        must_refuse('STALE', 'a claim with 99 after 100', self.s.claim, a, lock, 99)

    def other_lock(self):
        _, shorter = self.fresh()
        key, lock = self.fresh('100', shorter + 'a')
        # Among them one with which the record's lock begins, two that begin with it, and one with another case.
        for other in [shorter] + [self.fresh(lock=name)[1] for name in (None, lock + 'b', lock.upper(), lock + ' ', ' ' + lock)]:
            self.under_another_lock(key, lock, other)

    def under_another_lock(self, key, lock, other):
        a, first = self.s.open(), self.token()
        value = str(200 + first) # a new one each time: a storage may take a write that changes nothing for none
        self.s.claim(a, lock, first)
        self.s.write(a, lock, first, key, value, self.s.kinds[0])
        token = self.token()
        b = self.s.open() # a has both
        self.s.claim(b, other, token)
        must_refuse(None, 'a write under the token of lock %r' % other, self.s.write, b, other, token, key, '666', self.s.kinds[0])
        must(self.value(lock, key) == value, 'the value changed to %s', self.value(lock, key))

    def names(self, name):
        with self.guard:
            self.number += 1
            key, lock = 'k%d' % self.number, '%s%d' % (name, self.number)
        self.s.create(key, lock, '1')
        a, old, new = self.s.open(), self.token(), self.token()
        self.s.claim(a, lock, old)
        self.s.write(a, lock, old, key, name, self.s.kinds[0])
        must(self.s.read(a, lock, key) == name, 'reads %r', self.s.read(a, lock, key))
        self.s.claim(a, lock, new)
        must_refuse('STALE', 'a stale write', self.s.write, a, lock, old, key, '666', self.s.kinds[0])

    # -- many writers, in whatever order -----------------------------------------------------------------------
    def worker(self, key, lock, rounds, seed, over):
        """Adds to a counter, each time under a new token, as a new holder would."""
        rnd, session = random.Random(seed), self.s.open()
        for n in range(rounds):
            if over.is_set():
                return
            if session is None:
                try:
                    session = self.s.open()
                except (Refused, Unknown, OSError):
                    time.sleep(0.05)
                    continue
            time.sleep(rnd.random() * 0.01)
            token, add = self.token(), {'id': '%x-%d' % (seed, n), 'key': key, 'lock': lock}
            add['token'] = token
            try:
                self.s.claim(session, lock, token)
                if rnd.random() < 0.3:
                    time.sleep(rnd.random() * 0.004)      # other writers may overtake it here
                count, _, last = self.s.read(session, lock, key).partition(' ')
                if rnd.random() < 0.3:
                    time.sleep(rnd.random() * 0.004)      # and here
                add.update(based_on=last, began=time.monotonic())
                with self.guard:
                    self.history.append(add)
                how = rnd.choice(self.s.kinds)
                self.s.write(session, lock, token, key, '%d %s' % (int(count) + 1, add['id']), how)
                add.update(outcome='ok', ended=time.monotonic())
            except Refused:
                add.setdefault('outcome', 'fail')
            except (Unknown, OSError):
                add.setdefault('outcome', 'info')
                session = None

    def judge(self, key, final):
        """Follows the final value back, add by add. Each acknowledged add must be in this chain, no refused one, and the count must agree."""
        adds = {a['id']: a for a in self.history if a['key'] == key and 'based_on' in a}
        count, _, at = final.partition(' ')
        chain = []
        while at != 'nothing':
            must(at in adds and len(chain) <= len(adds), 'the value descends from %r, which nobody wrote', at)
            must(adds[at]['outcome'] != 'fail', 'the write %s was refused, and is in the value', at)
            chain.append(at)
            at = adds[at]['based_on']
        lost = [a for a in adds.values() if a['outcome'] == 'ok' and a['id'] not in chain]
        must(not lost, '%d of %d acknowledged updates are lost, first %s', len(lost),
             sum(a['outcome'] == 'ok' for a in adds.values()), lost and lost[0]['id'])
        must(int(count) == len(chain), 'the value counts %s, and descends from %d writes', count, len(chain))
        tokens = [adds[i]['token'] for i in reversed(chain)]
        must(tokens == sorted(tokens), 'a smaller token wrote after a larger one')
        return sum(a['outcome'] == 'ok' for a in adds.values()), len(adds)

    def storm(self, disturb=None):
        key, lock = self.fresh('0 nothing')
        self.aside = self.fresh()[1] # now: a storage may have to lift its guard to make a record
        over = threading.Event()
        threads = [threading.Thread(target=self.worker, daemon=True, args=(
            key, lock, self.rounds, self.random.randrange(1 << 30), over)) for _ in range(self.s.workers)]
        for t in threads:
            t.start()
        if disturb:
            disturb(threads, lock)
            over.set()
        for t in threads:
            t.join(120)
        must(not any(t.is_alive() for t in threads), 'a client hangs')
        # A single client afterwards must succeed, and build on the others' last value.
        self.worker(key, lock, 2, self.random.randrange(1 << 30), threading.Event())
        done, tried = self.judge(key, self.value(lock, key))
        must(done > 0, 'nobody got a write through, which shows nothing')
        return '%s acknowledged of %d tried, none lost' % (count(done, 'updates'), tried)

    def crash(self, threads, lock):
        for _ in range(self.crashes):
            time.sleep(0.1 + self.random.random() * 0.5)
            mark = self.s.mark(self.s.open(), lock)
            self.acknowledge()
            self.s.restart()
            again = self.s.mark(self.s.open(), lock)
            must(again >= mark, 'the mark was %s before the crash, and is %s', mark, again)
        time.sleep(0.3)

    def acknowledge(self):
        """When this returns, all that was read so far is durable: the storage's log has it before this acknowledged claim. Having
        read it is not enough, since InnoDB shows a commit to others before it is flushed."""
        self.s.claim(self.s.open(), self.aside, self.token())

    def crash_claim(self):
        key, lock = self.fresh('100')
        a, old, new = self.s.open(), self.token(), self.token()
        self.s.claim(a, lock, old)
        self.s.write(a, lock, old, key, '101', self.s.kinds[0])
        self.s.claim(a, lock, new)
        self.s.restart()
        must_refuse('STALE', 'a stale write after a crash', self.s.write, self.s.open(), lock, old, key, '666', self.s.kinds[0])
        must(self.value(lock, key) == '101', 'the value is %s', self.value(lock, key))

    # -- all of them ---------------------------------------------------------------------------------------------
    def run(self, only=None):
        report = Report(self.s.name, self.seed)
        for rule, name, function, *args in self.attacks():
            if only is None or any(word in name for word in only):
                report.run(rule, name, function, *args)
                self.s.end_sessions()
        return report

    def attacks(self):
        for how in self.s.kinds:
            yield 1, 'stale ' + how, self.stale_write, how
        yield 1, 'stale claim', self.stale_claim
        yield 1, 'tokens compared as numbers', self.text_order
        yield 2, 'equal tokens, two sessions', self.equal_tokens
        yield 3, 'claim on a new or old record', self.claim_is_no_write
        yield 3, 'write between claim and write', self.read_after_claim
        for name, function in self.s.bypasses():
            yield (9 if 'mark' in name else 4), name, self.no_token, name, function
        for token in (0, -1, TOKEN_MAX + 1, 'abc', ''):
            yield 5, 'token %r' % (token,), self.odd_token, token
        yield 5, 'token 2^53-1', self.largest_token
        yield 6, "another lock's token", self.other_lock
        yield 7, 'many writers at random', self.storm
        if self.s.restart:
            yield 8, 'kill -9 after a claim', self.crash_claim
            yield 8, 'kill -9 among many writers', self.storm, self.crash
        else:
            yield 8, 'kill -9', _not_ours
        for name in self.s.odd_names:
            yield 11, 'name %r' % name, self.names, name
        for rule, name, function in self.s.own():
            yield rule, name, function, self


def _not_ours():
    raise Skip('this server is not ours to kill, or keeps nothing')
