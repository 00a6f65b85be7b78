"""One run of the demonstration.

In each round one writer is the holder that a fault hits, and another one acquires the lock while the first still
believes to hold it. The order of the steps is the same in every run; the faults are real:

    first: acquire, (claim,) read, look at the time: still valid
           ... the fault ...
    next:  acquire, (claim,) read
    first: write                  (or these two the other way round)
    next:  write

Without tokens both writes are accepted, and one update is lost. With them the claim of the next holder makes the
storage refuse the first one's write, which then does its update anew."""

import time

from harness import Resp
from lab import Trouble
from writer import TTL_MS

PAUSE_TTL_MS = 300
TTL_TRIES = 6 # doubled each time: a busy machine may need longer to get that far


class Again(Exception):
    """The lock ran out before the fault."""


class Run:
    def __init__(self, lab, plan, mode):
        self.lab, self.plan, self.mode = lab, plan, mode
        self.lock, self.key = 'demo-%d' % plan.seed, 'counter-%d' % plan.seed
        self.acknowledged = self.refused = self.unknown = self.grants = self.retries = self.two_at_once = 0
        self.events, self.rounds = [], []
        self.deadline = {}
        self.began = time.monotonic()

    def note(self, kind, who=0, number=0, more=0):
        self.events.append({'kind': kind, 't': time.monotonic() - self.began, 'round': len(self.rounds) - 1,
                            'who': who, 'number': number, 'more': more})

    def play(self):
        for planned in self.plan.rounds:
            self.rounds.append({'planned': planned, 'two_at_once': False, 'both_valid': False, 'refused': False})
            self.play_round(planned, self.rounds[-1])
        self.counter = self.read_counter()
        self.lost = max(0, self.acknowledged - self.counter)
        self.elapsed_ms = int((time.monotonic() - self.began) * 1000)
        return self

    # ---- steps --------------------------------------------------------------------------------

    def tell(self, w, do, **more):
        self.lab.writers[w].tell(dict(more, do=do, lock=self.lock, key=self.key, mode=self.mode,
                                      store=self.lab.proxy(self.mode, w).address))

    def ask(self, w, do, expected=(), **more):
        self.tell(w, do, **more)
        return self.hear(w, do, expected)

    def hear(self, w, do, expected=()):
        got = self.lab.writers[w].hear()
        if expected and got['word'] not in expected:
            raise Trouble('writer %d was told to %s and said: %s %s' % (w + 1, do, got['word'], got.get('why', '')))
        return got

    def read_counter(self):
        with Resp(self.lab.stores[self.mode].address, timeout=60) as c:
            return int(c.call('GET', self.key) or 0)

    def acquire(self, w, ttl_ms):
        got = self.ask(w, 'acquire', ttl_ms=ttl_ms)
        if got['word'] == 'failed' and ttl_ms < TTL_MS:
            raise Again # not with so short a TTL
        if got['word'] != 'acquired':
            raise Trouble('writer %d cannot acquire the lock: %s' % (w + 1, got.get('why')))
        self.deadline[w] = got['deadline']
        self.grants += 1
        self.note('acquired', w, got['token'])

    def claim_and_read(self, w):
        self.note('read', w, self.ask(w, 'read', ('read',))['value'])

    def hear_added(self, w):
        self.grants += self.hear(w, 'add', ('added',))['tries']
        self.acknowledged += 1

    def hear_of_write(self, w):
        """What became of a write that was sent: whether it was refused."""
        got = self.hear(w, 'write', ('written', 'refused', 'unknown'))
        if got['word'] == 'written':
            self.acknowledged += 1
            self.note('written', w, got['value'])
        elif got['word'] == 'refused':
            self.refused += 1
            self.note('refused', w, 0, got['mark'])
        else:
            self.unknown += 1
        return got['word'] == 'refused'

    # ---- a round ------------------------------------------------------------------------------

    def lose_a_lock(self, planned):
        """Three of five held the lock. One of them forgets it, and the two that were away come back: now a quorum is
        free."""
        if planned.fault == 'restart':
            self.note('forgets', planned.loses)
            self.lab.redis[planned.loses].restart()
        else:
            self.lab.jump(4 * TTL_MS // 1000)
            self.note('jumps', planned.loses, 4 * TTL_MS // 1000)
        for i in planned.away:
            self.lab.redis[i].start()
            self.note('up', i)
        if planned.fault == 'restart':
            self.note('up', planned.loses)

    def begin(self, planned, ttl_ms):
        """The first holder, up to the moment before its write, and the fault."""
        first = planned.first
        self.acquire(first, ttl_ms)
        self.claim_and_read(first)
        if self.ask(first, 'look')['word'] != 'valid': # it took too long, and the holder has seen so itself
            self.ask(first, 'release', ('released',))
            raise Again
        if planned.fault == 'pause':
            self.lab.writers[first].stop()
            self.note('stopped', first)
        elif planned.fault == 'delay':
            self.lab.hold_back(self.mode, first, lambda: self.tell(first, 'write'))
            self.note('held back', first)
        else:
            self.lose_a_lock(planned)

    def finish_first(self, planned):
        first = planned.first
        if planned.fault == 'delay':
            self.note('let go', first)
            self.lab.proxy(self.mode, first).let_go()
        else:
            self.tell(first, 'write')
        if planned.fault == 'pause':
            self.note('continued', first)
            self.lab.writers[first].go_on()
        return self.hear_of_write(first)

    def write_next(self, w):
        self.tell(w, 'write')
        self.hear_of_write(w)

    def faulty_update(self, planned, result):
        hits_redis = planned.fault in ('restart', 'clock')
        ttl_ms = TTL_MS if hits_redis else PAUSE_TTL_MS
        for i in planned.away if hits_redis else ():
            self.lab.redis[i].process.kill()
            self.note('down', i)
        for i in range(TTL_TRIES):
            try:
                self.begin(planned, ttl_ms << i)
                break
            except Again:
                self.retries += 1
        else:
            raise Trouble('this machine is too busy: locks run out at once')
        self.acquire(planned.next, TTL_MS)
        result['two_at_once'] = True
        result['both_valid'] = time.monotonic() < self.deadline[planned.first]
        self.two_at_once += 1
        self.claim_and_read(planned.next)
        if not planned.late_write_first:
            self.write_next(planned.next)
        result['refused'] = self.finish_first(planned)
        if planned.late_write_first:
            self.write_next(planned.next)
        self.ask(planned.next, 'release', ('released',))
        self.ask(planned.first, 'release', ('released',))

    def play_round(self, planned, result):
        acknowledged, before = self.acknowledged, self.read_counter()
        for _ in range(planned.adds): # all writers at once, undisturbed
            for w in range(self.plan.writers):
                self.tell(w, 'add')
            for w in range(self.plan.writers):
                self.hear_added(w)
        if planned.adds:
            self.note('added', 0, planned.adds * self.plan.writers)
        self.faulty_update(planned, result)
        if result['refused']:
            self.note('again', planned.first)
            self.tell(planned.first, 'add')
            self.hear_added(planned.first)
        result['counter'] = self.read_counter()
        result['acknowledged'] = self.acknowledged - acknowledged
        result['lost'] = max(0, before + result['acknowledged'] - result['counter'])
        self.note('result', 0, result['counter'], self.acknowledged)
