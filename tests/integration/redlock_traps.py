#!/usr/bin/python3
"""The defects of other Redlock libraries, each a test of ours; tokens; keeping; contention; checking."""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import main, wait_until
from harness.lab import build_dir
from redlock_lab import DAY_MS, ENDS, FINDINGS, LONG_MS, PATIENT_MS, Redis
from redlock_servers import RedlockCase


def refuses(found):
    return sorted(FINDINGS[f[0]] for f in found['findings'] if f[1])


def warns(found):
    return sorted(FINDINGS[f[0]] for f in found['findings'] if not f[1])


class Traps(RedlockCase):
    def test_extend_does_not_overwrite_another_owner(self):
        servers = self.redis(3)
        d = self.driver(servers)
        self.assertTrue(d.acquire('lock').ok)
        for s in servers:
            s.call('SET', 'lock', 'theirs', 'PX', LONG_MS // 2)
        self.assertEqual(d.extend('lock', LONG_MS).cause, 'lost')
        self.assertEqual([s.get('lock') for s in servers], ['theirs'] * 3)
        self.assertLess(max(s.call('PTTL', 'lock') for s in servers), LONG_MS // 2 + 1)

    def test_a_lock_that_has_expired_is_not_returned(self):
        servers = self.redis(3)
        proxies = [self.proxy(s) for s in servers]
        d = self.driver(proxies)
        self.warm(d)
        for p in proxies:
            p.delay = 0.25
        a = d.acquire('lock', 100)
        self.assertEqual((a.ok, a.cause), (False, 'too slow'))
        self.assertGone(servers, 'lock')

    def test_a_minority_that_is_down_costs_no_exception_and_leaves_nothing(self):
        servers = self.redis(3)
        d = self.driver(servers)
        servers[1].process.kill()
        self.assertTrue(d.acquire('lock').ok)
        self.assertTrue(d.release('lock').ok)
        self.assertGone([servers[0], servers[2]], 'lock')

    def test_an_even_split_ends(self):
        servers = self.redis(2)
        servers[0].call('SET', 'lock', 'theirs')
        d = self.driver(servers)
        a = d.acquire('lock')
        self.assertEqual(a.cause, 'contended')
        self.assertGone(servers[1:], 'lock')

    def test_the_wall_clock_does_not_matter_to_us(self):
        """The library may not call anything that reads the wall clock."""
        path = os.path.join(build_dir(), 'src', 'client', 'libfli_redlock.a')
        names = subprocess.run(['nm', '-u', path], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True).stdout.split()
        for name in ('time', 'gettimeofday', 'localtime', 'ftime', 'rand', 'random', 'pthread_create', 'uv_queue_work', 'uv_getaddrinfo',
                     'signal', 'sigaction', 'uv_signal_start'):
            self.assertNotIn(name, names)

    def test_servers_are_asked_side_by_side(self):
        """Five servers that take 60 ms each take 60 ms together."""
        servers = self.redis(5)
        proxies = [self.proxy(s) for s in servers]
        d = self.driver(proxies)
        self.warm(d)
        for p in proxies:
            p.delay = 0.06
        for p in proxies:
            p.hold()
        d.send('acquire', 0, 'lock', LONG_MS, 0, 0)
        wait_until(lambda: all(b'\r\nlock\r\n' in p.seen for p in proxies), 'all SETs are sent without any answer')
        for p in proxies:
            p.let_go()
        self.assertTrue(d.read().ok)

    def test_extend_does_not_create_a_lock_that_was_lost(self):
        servers = self.redis(3)
        d = self.driver(servers)
        self.acquire_everywhere(d, servers)
        for s in servers:
            s.call('FLUSHALL')
        self.assertEqual(d.extend('lock').cause, 'lost')
        self.assertEqual([s.call('DBSIZE') for s in servers], [0] * 3)

    def test_a_partial_lock_is_released_and_does_not_block_the_next_attempt(self):
        servers = self.redis(5)
        for s in servers[:3]:
            s.call('SET', 'lock', 'theirs')
        d = self.driver(servers)
        self.assertEqual(d.acquire('lock').cause, 'contended')
        self.assertGone(servers[3:], 'lock')
        for s in servers[:3]:
            s.call('DEL', 'lock')
        self.assertTrue(d.acquire('lock').ok)

    def test_whether_it_is_held_is_a_matter_of_the_deadline_and_no_server_is_asked(self):
        """What servers say about "still" is old when it arrives, and may be a yes after the expiry."""
        servers = self.redis(3)
        d = self.driver(servers)
        a = wait_until(lambda: (x := d.acquire('lock', 1000)).ok and x, 'a lock for a second')
        for s in servers:
            s.call('SET', 'lock', a['value']) # for ever, as far as they know
            s.process.pause() # who asks them now waits
        seen = []
        wait_until(lambda: seen.append(d('left', 0)['left']) or seen[-1] == 0, 'it is over', 0.01)
        self.assertEqual(seen, sorted(seen, reverse=True))
        self.assertLessEqual(a['deadline'], time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
        for s in servers:
            s.process.resume()

    def test_a_lock_with_a_token_is_like_one_without(self):
        """The same TTL on the servers, no key besides, and a token that neither an extend nor a second try changes."""
        servers = self.redis(3)
        d = self.driver(servers)
        self.warm(d)
        self.assertGone(servers, 'warm')
        self.assertEqual(d('fenced', 0, 'lock', LONG_MS, 0, 0, 0, 5, 0)['token'], 5)
        wait_until(lambda: all(s.call('EXISTS', 'lock') for s in servers), 'all have it')
        for s in servers:
            self.assertIn(s.call('PTTL', 'lock'), range(1, LONG_MS + 1))
            self.assertEqual(s.call('KEYS', '*'), [b'lock'])
        self.assertEqual(d('extend', 0, 'lock', 2 * LONG_MS)['token'], 5)
        self.assertEqual(d('fenced', 1, 'lock', LONG_MS, 0, 0, 0, 6, 0).cause, 'contended') # there is no re-entry
        self.assertEqual(d('extend', 0, 'lock', 2 * LONG_MS)['token'], 5)
        self.assertTrue(d.release('lock').ok)
        for s in servers:
            wait_until(lambda s=s: s.call('DBSIZE') == 0, 'nothing is left')

    def test_two_names_are_two_locks(self):
        d = self.driver(self.redis(3))
        self.assertTrue(d.acquire('a', slot=0).ok)
        self.assertTrue(d.acquire('b', slot=1).ok)
        self.assertEqual(d.acquire('a', slot=2).cause, 'contended')

    def test_values_are_random_and_unlike(self):
        servers = self.redis(1)
        d = self.driver(servers)
        seen = set()
        for i in range(200):
            seen.add(d.acquire('lock%d' % i)['value'])
        self.assertEqual(len(seen), 200)
        for at in range(40): # no digit is fixed
            self.assertGreater(len({v[at] for v in seen}), 4)

    def test_quorum_counts_the_configured_servers(self):
        servers = self.redis(5)
        for s in servers[:3]:
            s.process.kill()
        a = self.driver(servers).acquire('lock')
        self.assertEqual((a['quorum'], a.cause), (3, 'unreachable')) # two of two that answer are not enough

    def test_a_failed_extend_releases_nothing(self):
        servers = self.redis(3)
        d = self.driver(servers)
        self.acquire_everywhere(d, servers)
        before = [s.get('lock') for s in servers]
        for s in servers:
            s.call('CONFIG', 'SET', 'min-replicas-to-write', '1')
        e = d.extend('lock')
        self.assertEqual((e.result, e.cause), ('EDENIED', 'refused'), e)
        self.assertEqual([s.get('lock') for s in servers], before)

    def test_an_outage_is_not_contention(self):
        servers = self.redis(3)
        for s in servers:
            s.process.kill()
        a = self.driver(servers).acquire('lock', wait=50)
        self.assertEqual((a.result, a.cause), ('ENOCONN', 'unreachable'))

    def test_a_dead_server_crashes_nothing(self):
        servers = self.redis(1)
        d = self.driver(servers)
        self.assertTrue(d.acquire('lock').ok)
        servers[0].process.kill()
        self.assertEqual(d.extend('lock').cause, 'unreachable')
        self.assertEqual(d.release('lock').cause, 'unreachable')
        self.assertEqual(d.acquire('other').cause, 'unreachable')

    def test_a_connection_that_is_gone_kills_no_process(self):
        """A release is written to a socket whose other end was closed a moment ago: that is no SIGPIPE."""
        path = self.lab.path('s')
        if len(path) > 107:
            self.skipTest('the path of the build directory is too long for a socket')
        fakes = [self.fake(lambda words: b':0\r\n' if words[0] != b'SET' or b'warm' in words else None)
                 for _ in range(2)] + [self.fake(lambda words: None, path=path)]
        d = self.driver(fakes, loop=True)
        d.send('acquire', 0, 'lock', LONG_MS, 0, 0)
        wait_until(lambda: all('SET' in f.words() for f in fakes), 'all are asked')
        d.pause()
        for f in fakes[:2]: # Its loop will see these first, and release everywhere ...
            f.sockets[-1].sendall(b'$-1\r\n')
        fakes[2].close() # ... before it sees this.
        d.resume()
        self.assertEqual(d.read().cause, 'contended')

    def test_a_release_overtakes_no_set(self):
        """The server hangs; the SET is given up and released. When it wakes up it does both, in order."""
        servers = self.redis(3)
        d = self.driver(servers, budget=1000)
        self.warm(d)
        for s in servers[:2]:
            s.process.pause()
        self.assertEqual(d.acquire('lock').cause, 'too slow')
        for s in servers[:2]:
            s.process.resume()
        for s in servers: # only what is on the way can delete it: the driver does nothing any more
            wait_until(lambda s=s: s.call('EXISTS', 'lock') == 0, 'the key is gone')
            self.assertEqual(s.call('EXISTS', 'lock'), 0)

    def test_a_release_waits_for_a_server_that_is_down(self):
        servers = self.redis(3)
        proxies = [self.proxy(s) for s in servers]
        d = self.driver(proxies, loop=True, connect=300)
        d.send('acquire', 0, 'lock', LONG_MS, PATIENT_MS, 0)
        self.assertTrue(d.read().ok)
        wait_until(lambda: [s.call('EXISTS', 'lock') for s in servers].count(1) >= 2, 'the keys')
        proxies[0].hold()
        proxies[1].hold()
        for p in proxies[:2]:
            p.cut()
        d.send('release', 0, 'lock')
        self.assertFalse(d.read().ok)
        for p in proxies[:2]:
            p.let_go()
        self.assertGone(servers, 'lock')

    def test_a_server_may_forget_scripts(self):
        servers = self.redis(3)
        for loop in (False, True):
            d = self.driver(servers, loop=loop)
            self.assertTrue(d('acquire', 0, 'lock', LONG_MS, 0, 0).ok)
            for s in servers:
                s.call('SCRIPT', 'FLUSH')
            self.assertTrue(d('extend', 0, 'lock', LONG_MS).ok)
            for s in servers:
                s.call('SCRIPT', 'FLUSH')
            self.assertTrue(d('release', 0, 'lock').ok)
            self.assertGone(servers, 'lock')

    def test_a_release_needs_no_second_word_after_the_call(self):
        """Between blocking calls nobody hears that a server has forgotten its scripts: the release that is written must
        do, be it of a lock or of what an attempt in vain has set."""
        servers = self.redis(5)
        for last in range(3):
            proxies = [self.proxy(s) for s in servers[:3]]
            d = self.driver(proxies)
            self.acquire_everywhere(d, servers[:3])
            for s in servers:
                s.call('SCRIPT', 'FLUSH')
            proxies[last].hold()
            self.assertTrue(d.release('lock').ok)
            proxies[last].let_go()
            self.assertGone(servers, 'lock')
        d = self.driver(servers)
        self.warm(d)
        for s in servers[:3]:
            s.call('SET', 'other', 'theirs')
        for s in servers:
            s.call('SCRIPT', 'FLUSH')
        self.assertEqual(d.acquire('other').cause, 'contended')
        self.assertGone(servers[3:], 'other')

    def test_newer_delete_commands_are_used_and_given_up(self):
        for commands, word in ((b'*2\r\n*1\r\n$5\r\ndelex\r\n*-1\r\n', 'DELEX'),
                               (b'*2\r\n*-1\r\n*1\r\n$7\r\ndelifeq\r\n', 'DELIFEQ')):
            for permitted in (True, False):
                def answer(words, permitted=permitted):
                    if words[0] == b'SET':
                        return b'+OK\r\n'
                    if words[0].startswith(b'DEL') and not permitted:
                        return b'-NOPERM this user has no permissions\r\n'
                    return b':1\r\n'
                f = self.fake(answer, commands=commands)
                d = self.driver([f])
                self.assertTrue(d.acquire('lock').ok)
                self.assertTrue(d.release('lock').ok)
                self.assertEqual(f.words(), ['SET', word] if permitted else ['SET', word, 'EVAL'])
                d.close()


class Restarts(RedlockCase):
    """A server that was restarted may have forgotten locks, so it does not count until the longest TTL is over."""

    def test_a_restarted_server_does_not_count_until_it_is_old_enough(self):
        servers = self.redis(3)
        d = self.driver(servers, safe=0, max_ttl=2500)
        a = wait_until(lambda: (x := d.acquire('lock', 2500)).ok and x, 'a lock', 0.1)
        # Two of three forget it. Without the rule the next one would get it now.
        for s in servers[:2]:
            s.restart()
        other = self.driver(servers, safe=0, max_ttl=2500)
        got = wait_until(lambda: (x := other.acquire('lock', 2500)).ok and x, 'the next lock', 0.02)
        now = got['deadline'] - (2500 - 27) # when its attempt began
        self.assertGreaterEqual(now, a['deadline'])

    def test_what_is_told_about_it(self):
        servers = self.redis(3)
        d = self.driver(servers, safe=0)
        a = d.acquire('lock')
        self.assertEqual((a.result, a.cause), ('EDENIED', 'refused'), a)
        self.assertIn('young', a.statuses)
        self.assertGone(servers, 'lock') # asked all the same, and released
        self.assertTrue(self.driver(servers, safe=1).acquire('lock').ok)

    def test_who_does_not_tell_its_uptime_counts_later(self):
        fakes = [self.fake() for _ in range(3)]
        for f in fakes:
            f.info = b'-NOPERM this user has no permissions to run the info command\r\n'
        self.assertEqual(self.driver(fakes, safe=0).acquire('lock').statuses.count('young'), 2)
        self.assertTrue(self.driver(fakes, safe=1).acquire('lock').ok)
        d = self.driver(fakes, safe=0, max_ttl=200)
        wait_until(lambda: d.acquire('lock', 200).ok, 'they count')

    def test_the_same_server_twice_counts_once(self):
        s = self.redis(1)[0]
        d = self.driver([s, self.proxy(s), self.proxy(s)])
        a = wait_until(lambda: (x := d.acquire('lock')).statuses.count('twice') == 2 and x,
                       'it is known')
        self.assertEqual((a.result, a.cause), ('EDENIED', 'refused'))
        for _ in range(5): # decided without a word to any server: that must not wait for one either
            self.assertEqual(d.acquire('lock').cause, 'refused')


class Checks(RedlockCase):
    def test_findings(self):
        servers = self.redis(3, '--appendonly', 'yes', '--appendfsync', 'always')
        found = self.driver(servers)('check')
        self.assertEqual((found['result'], found['findings']), ('OK', []))
        self.assertEqual(warns(self.driver(servers, safe=0)('check')), ['young'] * 3)
        self.assertEqual(warns(self.driver(servers[:2])('check')), ['even', 'few'])
        servers[0].call('CONFIG', 'SET', 'maxmemory-policy', 'volatile-lru')
        servers[1].call('CONFIG', 'SET', 'appendfsync', 'everysec')
        found = self.driver(servers, safe=0, max_ttl=10)('check')
        self.assertEqual((found['result'], refuses(found)), ('EDENIED', ['evicts']))
        self.assertIn('forgets', warns(found))
        servers[0].call('CONFIG', 'SET', 'maxmemory-policy', 'noeviction')
        servers[1].call('REPLICAOF', '127.0.0.1', '1')
        d = self.driver(servers)
        # A replica is asked again and again what it is, and until it has answered it counts as unreachable.
        found = wait_until(lambda: (x := d('check'))['result'] != 'OK' and x, 'the replica is known as one')
        self.assertEqual((found['result'], refuses(found)), ('EDENIED', ['replica']))
        servers[1].process.kill()
        self.assertEqual(warns(self.driver(servers)('check')), ['unreachable'])
        servers[2].process.pause()
        d = self.driver(servers, connect=2000) # which may be too short for the one that is well, too
        wait_until(lambda: warns(d('check')) == ['unreachable'] * 2, 'two are known as unreachable')
        servers[2].process.resume()

    def test_twice_and_refused(self):
        s = self.redis(1)[0]
        locked = Redis(self.lab, 'locked', '--requirepass', 'x')
        found = self.driver([s, self.proxy(s), locked])('check')
        self.assertEqual(refuses(found), ['refused', 'twice'])

    def test_on_a_loop(self):
        d = self.driver(self.redis(3), loop=True)
        self.assertEqual(d('check')['result'], 'OK')


class Tokens(RedlockCase):
    def fenced(self, d, result=0, token=7, delay=0, ttl=LONG_MS, min_validity=0, wait=0):
        return d('fenced', 0, 'lock', ttl, wait, min_validity, result, token, delay)

    def blamed(self, d, asked):
        """For what was late: the token, unless the lock alone was and none was asked for."""
        return 'no token' if d('status')['asked'] > asked else 'too slow'

    def await_late_token(self, d):
        """It comes to nobody; and before the end of the process, whose memory is looked at then."""
        def came():
            status = d('status')
            return status['asked'] == status['answered']
        wait_until(came, 'the token that is late')

    def test_the_token_comes_with_the_lock(self):
        servers = self.redis(3)
        for loop in (False, True):
            d = self.driver(servers, loop=loop)
            a = self.fenced(d, token=41)
            self.assertTrue(a.ok, a)
            self.assertEqual(a['token'], 41)
            self.assertTrue(d('release', 0, 'lock').ok)
            self.assertGone(servers, 'lock')
            self.assertEqual(self.fenced(d, token=42, delay=30)['token'], 42)
            d('release', 0, 'lock')
            self.assertGone(servers, 'lock')

    def test_a_token_that_comes_too_late_is_a_failure_and_a_release(self):
        servers = self.redis(3)
        for loop in (False, True):
            d = self.driver(servers, loop=loop)
            a = self.fenced(d, delay=300, ttl=20000, min_validity=19600)
            self.assertEqual((a.result, a.cause), ('ETIMEOUT', self.blamed(d, 0)), a)
            self.assertGone(servers, 'lock')
            if loop:
                self.await_late_token(d)

    def test_an_issuer_that_is_silent_does_not_hold_up_the_call(self):
        servers = self.redis(3)
        d = self.driver(servers, loop=True)
        self.warm(d)
        # A driver that stands still for so long meets both at once, its end and the token; or the lock alone is late, and no
        # token is asked for.
        for _ in range(20):
            asked = d('status')['asked']
            a = self.fenced(d, delay=2000, ttl=20000, min_validity=19600)
            self.assertEqual((a.result, a.cause), ('ETIMEOUT', self.blamed(d, asked)), a)
            self.assertGone(servers, 'lock')
            self.await_late_token(d)
            if d('status')['asked'] > asked and a['elapsed_us'] < 2000000:
                return
        self.fail('it waited for the token: %s' % a)

    def test_no_token_is_a_failure_and_a_release(self):
        servers = self.redis(3)
        for loop in (False, True):
            for delay in (0, 20):
                d = self.driver(servers, loop=loop)
                a = self.fenced(d, result=-1004, delay=delay)
                self.assertEqual((a.result, a.cause), ('ENOLEADER', 'no token'), a)
                self.assertGone(servers, 'lock')
                for bad in (0, 2 ** 53):
                    self.assertEqual(self.fenced(d, token=bad, delay=delay).result, 'EPROTO')
                self.assertGone(servers, 'lock')
                self.assertTrue(self.fenced(d, token=2 ** 53 - 1).ok)
                d('release', 0, 'lock')
                self.assertGone(servers, 'lock')

    def test_no_quorum_no_token(self):
        servers = self.redis(3)
        for s in servers:
            s.call('SET', 'lock', 'theirs')
        self.assertEqual(self.fenced(self.driver(servers)).cause, 'contended')

    def test_cancel_while_the_token_is_awaited(self):
        servers = self.redis(3)
        d = self.driver(servers, loop=True)
        delay, a = 300, None
        while a is None or a.ok: # the token was sooner
            if a is not None:
                self.assertTrue(d('release', 0, 'lock').ok)
                self.assertGone(servers, 'lock')
                delay *= 2
            d.send('fenced', 0, 'lock', LONG_MS, 0, 0, 0, 9, delay)
            wait_until(lambda: sum(s.call('EXISTS', 'lock') for s in servers) >= 2, 'the quorum')
            time.sleep(0.05)
            a = d('cancel')
        self.assertEqual(a.cause, 'cancelled')
        self.assertGone(servers, 'lock')
        self.await_late_token(d)


class Keeping(RedlockCase):
    """Where a lock has to end soon, its TTL is short, and a machine that stands still for so long loses it: then the same is tried
    with a longer one."""

    def keep(self, servers, ttl, max_hold, **options):
        d = self.driver(servers, loop=True, **options)
        self.warm(d)
        return d, self.keep_with(d, ttl, max_hold)

    def keep_with(self, d, ttl, max_hold):
        d.send('keep', 0, 'lock', ttl, PATIENT_MS, max_hold)
        a = d.read()
        self.assertTrue(a.ok, a)
        return a

    def with_longer_ttls(self, d, attempt):
        """Calls attempt(factor) for larger and larger factors of all times until it returns something true. When it returns
        nothing, its lock was lost because the machine stood still."""
        for factor in (1, 2, 4, 8, 16, 32, 64):
            value = attempt(factor)
            if value:
                return value
            d.send('unkeep')
        raise AssertionError('no TTL is long enough')

    def assertLateLoss(self, end):
        self.assertIn(ENDS[end['why']], ('expired', 'lost'), end)

    def test_it_is_kept_for_many_ttls_and_then_stopped(self):
        self.kept_for_many_ttls(loop=True)

    def test_a_handle_whose_calls_block_keeps_it_as_well(self):
        self.kept_for_many_ttls(loop=False)

    def kept_for_many_ttls(self, loop):
        servers = self.redis(3)
        d = self.driver(servers, loop=loop)
        self.warm(d)

        def lasts(factor):
            a = self.keep_with(d, 400 * factor, DAY_MS)
            deadline = time.monotonic() + 2 * factor
            while time.monotonic() < deadline:
                held = sum(s.get('lock') == a['value'] for s in servers)
                if held < 2 or not d.lines.empty(): # the keeper knows it as well, then
                    self.assertLateLoss(d.read())
                    return None
            return a
        self.with_longer_ttls(d, lasts)
        d.send('unkeep')
        d.send('release', 0, 'lock')
        wait_until(lambda: d.read()['command'] == 'release', 'the release')
        self.assertGone(servers, 'lock')

    def test_max_hold_ends_it(self):
        servers = self.redis(3)
        d = self.driver(servers, loop=True)
        self.warm(d)

        def ends(factor):
            began = time.clock_gettime(time.CLOCK_BOOTTIME) * 1000
            self.keep_with(d, 400 * factor, 1500 * factor)
            end = d.read()
            if ENDS[end['why']] != 'max hold':
                self.assertLateLoss(end)
                return None
            self.assertLessEqual(end['deadline'], time.clock_gettime(time.CLOCK_BOOTTIME) * 1000 + 1500 * factor)
            self.assertGreater(end['deadline'], began + 900 * factor)
            return True
        self.with_longer_ttls(d, ends)
        self.assertGone(servers, 'lock') # by its TTL: nobody extends it any more

    def test_a_conflict_ends_it_at_once(self):
        servers = self.redis(3)
        d = self.driver(servers, loop=True)
        self.warm(d)

        def ends(factor):
            self.keep_with(d, 900 * factor, DAY_MS)
            for s in servers[:2]:
                s.call('SET', 'lock', 'theirs')
            end = d.read()
            self.assertEqual([s.get('lock') for s in servers[:2]], ['theirs'] * 2)
            if ENDS[end['why']] != 'lost':
                self.assertLateLoss(end)
                for s in servers[:2]:
                    s.call('DEL', 'lock')
                return None
            self.assertEqual(end['left'], 0)
            return True
        self.with_longer_ttls(d, ends)

    def test_an_outage_ends_it_at_the_deadline_and_not_before(self):
        servers = self.redis(3)
        d = self.driver(servers, loop=True, connect=100, hung=100)
        self.warm(d)

        def ends(factor):
            a = self.keep_with(d, 600 * factor, DAY_MS)
            for s in servers[:2]:
                s.process.pause()
            end = d.read()
            for s in servers[:2]:
                s.process.resume()
            self.assertLateLoss(end)
            self.assertEqual(end['left'], 0)
            if ENDS[end['why']] == 'lost': # two servers had forgotten it before they were stopped
                return None
            self.assertGreaterEqual(end['deadline'], a['deadline'])
            return True
        self.with_longer_ttls(d, ends)

    def test_an_outage_that_ends_in_time_does_not(self):
        servers = self.redis(3)
        d = self.driver(servers, loop=True)
        self.warm(d)

        def lasts(factor):
            self.keep_with(d, 3000 * factor, DAY_MS)
            for s in servers[:2]:
                s.process.pause()
            time.sleep(1.4 * factor) # an extend is tried after a second, and fails
            for s in servers[:2]:
                s.process.resume()
            wait_until(lambda: not d.lines.empty() or min(s.call('PTTL', 'lock') for s in servers[:2]) > 1800 * factor, 'it is extended')
            time.sleep(0.1)
            if not d.lines.empty():
                self.assertLateLoss(d.read())
                return None
            return True
        self.with_longer_ttls(d, lasts)

    def test_closing_ends_it(self):
        d, _ = self.keep(self.redis(3), LONG_MS, DAY_MS)
        d.send('close')
        d.read_nothing(0.1) # without a callback
        self.assertEqual(d.close(), 0)


class Contention(RedlockCase):
    def test_32_clients(self):
        servers = self.redis(5)
        d = self.driver(servers, loop=True, retry=5, retry_cap=100)
        d.send('contend', 32, 4, 'lock', LONG_MS, DAY_MS, 2)
        a = d.read()
        self.note('%d attempts for %d grants' % (a['attempts'], sum(a['grants'])))
        self.assertEqual((a['overlaps'], a['failures'], a['grants']), (0, 0, [4] * 32))
        self.assertGone(servers, 'lock')

    def test_8_processes(self):
        servers = self.redis(3)
        drivers = [self.driver(servers, loop=True, retry=5, retry_cap=100) for _ in range(8)]
        for d in drivers:
            d.send('contend', 2, 5, 'lock', LONG_MS, DAY_MS, 1)
        for d in drivers:
            a = d.read()
            self.assertEqual((a['overlaps'], a['failures'], a['grants']), (0, 0, [5] * 2))
        self.assertGone(servers, 'lock')

    def test_32_clients_while_servers_come_and_go(self):
        servers = self.redis(5)
        d = self.driver(servers, loop=True, retry=5, retry_cap=100, hung=200, connect=200)
        d.send('contend', 32, 3, 'lock', 2000, DAY_MS, 2)
        for i in range(4):
            for s in (servers[i], servers[(i + 1) % 5]):
                s.process.pause()
            time.sleep(0.25)
            for s in (servers[i], servers[(i + 1) % 5]):
                s.process.resume()
        a = d.read()
        self.assertEqual((a['overlaps'], a['failures'], a['grants']), (0, 0, [3] * 32))
        self.assertGone(servers, 'lock')

    def test_cancel_and_close_in_the_middle(self):
        servers = self.redis(3)
        for s in servers:
            s.call('SET', 'lock', 'theirs')
        d = self.driver(servers, loop=True)
        d.send('acquire', 0, 'lock', LONG_MS, DAY_MS, 0)
        d.read_nothing(0.2)
        a = d('cancel')
        self.assertEqual((a.result, a.cause), ('ENOTHELD', 'cancelled'))
        d.send('acquire', 0, 'lock', LONG_MS, DAY_MS, 0)
        d.read_nothing(0.1)
        a = d('close')
        self.assertEqual((a.result, a.cause), ('ENOTHELD', 'cancelled'))


if __name__ == '__main__':
    main()
