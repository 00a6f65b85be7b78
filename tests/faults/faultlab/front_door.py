"""Locks as a library for Redis takes them: SET NX PX and the scripts that libraries send (docs/FRONTDOOR.md), each in several
of their wordings, over the same connection and with the same record as the native commands; and as Redisson does, which takes
a lock as often as it likes and gives it back as often."""

import hashlib
import time

from harness import RespError

from . import asking

# Our own texts of the forms. Libraries send them with EVAL, or with EVALSHA and again with EVAL when that says NOSCRIPT.
RELEASE = ("if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
           "local have = redis.call('get', KEYS[1]) if have ~= ARGV[1] then return 0 end redis.call('del', KEYS[1]) return 1")
RELEASE_EACH = ("local n = 0 for _, key in ipairs(KEYS) do if redis.call('get', key) == ARGV[1] then "
                "n = n + redis.call('del', key) end end return n")
EXTEND = ("if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end",
          "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) return 1")
ACQUIRE_ALL = ("for _, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end "
               "for _, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'px', ARGV[2]) end return #KEYS")
ENTER = ("if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then "
         "return redis.call('pttl', KEYS[1]) end redis.call('hincrby', KEYS[1], ARGV[2], 1) "
         "redis.call('pexpire', KEYS[1], ARGV[1]) return nil")
LEAVE_ONCE = ("local done = redis.call('get', KEYS[3]) if done then return tonumber(done) end "
              "if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end "
              "local last = redis.call('hincrby', KEYS[1], ARGV[3], -1) <= 0 "
              "if last then redis.call('del', KEYS[1]) redis.call(ARGV[4], KEYS[2], ARGV[1]) "
              "else redis.call('pexpire', KEYS[1], ARGV[2]) end "
              "redis.call('set', KEYS[3], last and 1 or 0, 'px', ARGV[5]) return last and 1 or 0")
RENEW = ("if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end redis.call('pexpire', KEYS[1], ARGV[1]) return 1")
DELAY_S = 0.02 # between two tries for a lock that another has: there is no queue


def done(answer):
    """What a form says, as 1 or 0."""
    return 1 if answer in (1, 'OK') else 0


class FrontDoor:
    def __init__(self, client):
        self.c = client
        self.values = {} # of (lock, token)
        self.entered = set() # values that have taken a lock as Redisson does

    def script(self, text, *arguments, keys=1):
        """In one of the two ways."""
        if self.c.random.random() < 0.5:
            return ['EVAL', text, keys, *arguments]
        return ['EVALSHA', hashlib.sha1(text.encode()).hexdigest(), keys, *arguments]

    def once(self, *args):
        """As Server.once; a script that this node does not know by its name is sent."""
        try:
            return self.c.nodes.once(*args)
        except RespError as e:
            if e.word != 'NOSCRIPT':
                raise
            return self.c.nodes.once('EVAL', next(t for t in (*RELEASE, RELEASE_EACH, *EXTEND, ACQUIRE_ALL, ENTER, LEAVE_ONCE, RENEW)
                                                  if hashlib.sha1(t.encode()).hexdigest() == args[1]), *args[2:])

    # -- taking -----------------------------------------------------------------------------------------
    def acquire(self, lock, patience_s):
        """The token, or None. As a library does: it asks again while another has it. A try whose answer was lost may have
        taken the lock, which LOCKTOKEN tells."""
        if self.c.random.random() < 0.3:
            return self.enter(lock, patience_s)
        c = self.c
        value = 'value-%03d-%08d-%08x' % (c.o.number, c.ops, c.random.getrandbits(32))
        end = time.monotonic() + patience_s
        args = c.random.choice((['SET', lock, value, 'NX', 'PX', c.o.ttl_ms], ['SET', lock, value, 'PX', c.o.ttl_ms, 'NX'],
                                ['EVAL', ACQUIRE_ALL, 1, lock, value, c.o.ttl_ms]))
        with asking.RetriedOperation(c, 'acquire', 12.0, lock=lock, owner=value, ttl=c.o.ttl_ms / 1000.0) as a:
            while True:
                taken = a.ask(self.once, *args)
                if taken is a.NOTHING:
                    return None
                a.happened = done(taken) == 1
                a.drawn = int(a.happened)
                if a.happened or a.tries:
                    token = a.ask_about(self.once, 'LOCKTOKEN', lock, value)
                    if token is a.NOTHING:
                        return None
                    if token is not None:
                        self.values[lock, token] = value
                        a.complete('ok', token=token)
                        return token
                if a.happened:
                    a.complete('info', error='it was taken, and its lease was over before the token was asked for')
                    return None
                if time.monotonic() >= end or c.stopping:
                    a.complete('ok', token=None)
                    return None
                time.sleep(DELAY_S)

    def enter(self, lock, patience_s):
        """Takes the lock one to three times, as Redisson does. When an answer was lost, the count is unknown: leave() releases until
        the lock is free. A client that was slower than its lease may have had two grants, and the record shows one of them."""
        c = self.c
        owner = 'client-%03d-%08x:%d' % (c.o.number, c.random.getrandbits(32), c.ops)
        self.entered.add(owner)
        end, times = time.monotonic() + patience_s, c.random.choice((1, 1, 2, 3))
        with asking.RetriedOperation(c, 'acquire', 12.0, lock=lock, owner=owner, ttl=c.o.ttl_ms / 1000.0) as a:
            began, taken = None, 0
            while taken < times:
                asked = time.monotonic()
                left = a.ask(self.once, *self.script(ENTER, lock, c.o.ttl_ms, owner))
                if left is a.NOTHING:
                    return None
                if left is None:
                    began, taken, a.happened = began or asked, taken + 1, True
                    a.drawn = taken # the lease of the first may have been over
                elif taken or a.tries:
                    break
                elif time.monotonic() >= end or c.stopping:
                    a.complete('ok', token=None)
                    return None
                else:
                    time.sleep(DELAY_S)
            token = a.ask_about(self.once, 'LOCKTOKEN', lock, owner)
            if token is a.NOTHING:
                return None
            if token is None or taken < times or (time.monotonic() - began) * 1000 >= c.o.ttl_ms:
                a.complete('info', error='its lease may have been over before it was taken again, or the token was asked for')
                return None
            self.values[lock, token] = owner
            a.complete('ok', token=token)
            return token

    # -- holding ----------------------------------------------------------------------------------------
    def renew(self, lock, token):
        value, ttl_ms = self.values[lock, token], self.c.o.ttl_ms
        if value in self.entered:
            self.simple('renew', self.script(RENEW, lock, ttl_ms, value), lock, token, ttl=ttl_ms / 1000.0)
            return
        args = self.c.random.choice((self.script(self.c.random.choice(EXTEND), lock, value, ttl_ms),
                                     ['SET', lock, value, 'XX', 'PX', ttl_ms]))
        self.simple('renew', args, lock, token, ttl=ttl_ms / 1000.0)

    def check(self, lock, token):
        self.simple('check', ['LOCKTOKEN', lock, self.values[lock, token]], lock, token, found=lambda answer: int(answer == token))

    def release(self, lock, token):
        value = self.values[lock, token]
        if value in self.entered:
            self.leave(lock, token, value)
            return
        args = self.c.random.choice((self.script(self.c.random.choice(RELEASE), lock, value), self.script(RELEASE_EACH, lock, value),
                                     ['DELIFEQ', lock, value], ['DELEX', lock, 'IFEQ', value]))
        self.simple('release', args, lock, token)

    def leave(self, lock, token, owner):
        """Releases until the lock is free. 0: the owner still has it; nil: the owner does not have it."""
        c = self.c
        with asking.RetriedOperation(c, 'release', 6.0, lock=lock, token=token) as a:
            for turn in range(100):
                latch = 'latch:{%s}:%08x%d' % (lock, c.random.getrandbits(32), turn)  # the same, however often it is sent
                answer = a.ask(self.once, *self.script(LEAVE_ONCE, lock, 'channel:{%s}' % lock, latch, 0, c.o.ttl_ms, owner,
                                                       'publish', 20000, keys=3))
                if answer is a.NOTHING:
                    return
                if answer != 0:
                    break
                a.happened = True  # it is not free, but not as it was
            a.complete('ok', found=done(answer))

    def simple(self, f, args, lock, token, found=done, **fields):
        with asking.RetriedOperation(self.c, f, 6.0, lock=lock, token=token, **fields) as a:
            answer = a.ask(self.once, *args)
            if answer is not a.NOTHING:
                a.complete('ok', found=found(answer))
