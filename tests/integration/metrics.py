#!/usr/bin/python3
"""Monitoring of a node: metrics, probes, the data of the page; and which client may see what."""

import contextlib
import ctypes
import json
import os
import re
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, RespError, main, patient_env, wait_until
from harness.lab import binary, free_ports
from metrics_text import FormatError, get, get_answered, listener, parse, scrape, scrape_once
from tls_lab import Certs

OWNER_A, OWNER_B = 'owner-a-0123456789', 'owner-b-0123456789'


def watched(node):
    return listener(node.process)


PTRACE_ATTACH, PTRACE_DETACH = 16, 17


@contextlib.contextmanager
def stopped_loop(pid):
    """Stops the main thread alone, which is the loop's, as a turn without end would; SIGSTOP would stop all."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), 'cannot stop the thread')
    os.waitpid(pid, 0x40000000)  # __WALL
    try:
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, pid, None, None)


class TheParser(Case):
    def test_it_can_say_no(self):
        good = '# HELP a_total Some.\n# TYPE a_total counter\na_total 1\n'
        parse(good)
        for bad in (good[:-1], good.replace('counter', 'gauge'), good + 'a_total 1\n', good + 'b 1\n',
                    good.replace('a_total 1', 'a_total{x="y} 1'), good.replace('# HELP a_total Some.\n', '')):
            with self.assertRaises(FormatError):
                parse(bad)


class OneNode(Case):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 1, ['--metrics', '127.0.0.1:0']).start()
        self.node = self.cluster.nodes[0]
        self.address = watched(self.node)

    def test_what_happens_to_a_lock_is_counted(self):
        token = self.node.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_A)
        self.assertIsNone(self.node.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_B))
        with self.node.client() as c:
            c.send('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_B, 'WAIT', 30000)
            wait_until(lambda: int(self.node.info()['waits']) == 1, 'the waiter')
            self.assertEqual(self.node.call('RELEASE', 'x', token), 1)
            granted = c.read()
        self.assertEqual(self.node.call('RENEW', 'x', token), 0)
        self.assertEqual(self.node.call('RELEASE', 'x', token), 0)
        self.assertEqual(self.node.call('BREAK', 'x') > granted, True)
        m = scrape(self.address)
        for name, labels, value in (
                ('fencelock_grants_total', {}, 2), ('fencelock_refused_total', {'reason': 'held'}, 1),
                ('fencelock_refused_total', {'reason': 'stale renew'}, 1),
                ('fencelock_refused_total', {'reason': 'stale release'}, 1),
                ('fencelock_grants_ended_total', {'cause': 'released'}, 1),
                ('fencelock_grants_ended_total', {'cause': 'broken'}, 1),
                ('fencelock_lock_wait_seconds_count', {}, 1), ('fencelock_lock_held_seconds_count', {}, 2),
                ('fencelock_lock_hand_over_seconds_count', {}, 1), ('fencelock_waits_begun_total', {}, 1),
                ('fencelock_leads', {}, 1), ('fencelock_ready', {}, 1), ('fencelock_locks_held', {}, 0),
                ('fencelock_loop_responding', {}, 1)):
            self.assertEqual((name, labels, m.value(name, **labels)), (name, labels, value))
        self.assertGreater(m.value('fencelock_log_sync_seconds_count'), 0)
        self.assertGreater(m.value('fencelock_commit_seconds_count'), 0)
        self.assertGreater(m.value('fencelock_apply_seconds_sum'), 0)
        self.assertGreater(m.value('process_start_time_seconds'), 1.6e9)
        self.assertGreater(m.value('fencelock_disk_free_bytes'), 0)
        self.assertNotIn('"x"', m.text)  # no lock has a label

    def test_the_busiest(self):
        """LOCKS BY WAIT, `fencelock locks --by wait` and `fencelock top` tell of the same lock."""
        self.node.call('ACQUIRE', 'idle', 'TTL', 60000, 'OWNER', OWNER_A)
        token = self.node.call('ACQUIRE', 'hot', 'TTL', 60000, 'OWNER', OWNER_A)
        self.assertEqual(self.node.call('LOCKS', 'BY', 'WAIT'), [b'', []])
        with self.node.client() as c:
            c.send('ACQUIRE', 'hot', 'TTL', 60000, 'OWNER', OWNER_B, 'WAIT', 30000)
            wait_until(lambda: int(self.node.info()['waits']) == 1, 'the waiter')
            self.node.call('RELEASE', 'hot', token)
            c.read()
        cursor, locks = self.node.call('locks', 'by', 'wait', 'COUNT', 1)
        told = dict(zip([key.decode() for key in locks[0][::2]], locks[0][1::2]))
        self.assertEqual((cursor, told['name'], told['waits'], told['waited_over_ms']), (b'', b'hot', 1, 0))
        for wrong in (('BY', 'AGE'), ('BY', 'WAIT', 'MATCH', 'x'), ('BY', 'WAIT', 'CURSOR', '0')):
            with self.assertRaisesRegex(RespError, 'BY of LOCKS'):
                self.node.call('LOCKS', *wrong)
        by = json.loads(self.tool('locks', '--by', 'wait', '--json'))
        self.assertEqual([lock['name'] for lock in by['busiest']], ['hot'])
        self.assertRegex(self.tool('locks', '--by', 'wait'), r'^LOCK +WAITED +WAITS')
        top = json.loads(self.tool('top', '--once', '--json'))
        self.assertEqual((top['leader_id'], top['locks_held'], top['busiest'][0]['name']), (1, 2, 'hot'))
        self.assertEqual(top['nodes'][0]['role'], 'leader')
        text = self.tool('top', '--once')
        self.assertIn('node 1 leads', text)
        self.assertNotIn('\033', text)
        self.assertIn("--by: 'age' is not wait", self.tool('locks', '--by', 'age', code=2))
        self.assertIn('--limit', self.tool('top', '--limit', '257', '--once', code=2))

    def tool(self, *args, code=0):
        got = subprocess.run([binary('fencelock'), *args, '--nodes', self.node.address], capture_output=True,
                             text=True, timeout=PATIENCE_S, env=patient_env())
        self.assertEqual((got.returncode, got.stderr if code == 0 else ''), (code, ''))
        return got.stdout + got.stderr

    def test_what_clients_tell_of_their_leases(self):
        token = self.node.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_A)
        self.node.call('SESSION', 'OPEN', OWNER_B, 'TTL', 60000)
        self.assertEqual(self.node.call('RENEW', 'x', token, 'JEOPARDY', 2, 'LOST', 1), 1)
        self.assertEqual(self.node.call('SESSION', 'RENEW', OWNER_B, 'LOST', 4294967295), 1)
        m = scrape(self.address)
        self.assertEqual(m.value('fencelock_client_jeopardies_total'), 2)
        self.assertEqual(m.value('fencelock_client_leases_lost_total'), 1 + 4294967295)
        for wrong in (-1, 4294967296, 'x'):
            with self.assertRaisesRegex(RespError, 'JEOPARDY'):
                self.node.call('RENEW', 'x', token, 'JEOPARDY', wrong)
        self.assertEqual(scrape(self.address).value('fencelock_client_jeopardies_total'), 2)

    def test_backups_have_an_age(self):
        m = scrape(self.address)
        self.assertEqual(m.value('fencelock_backups_total'), 0)
        self.assertNotIn('fencelock_backup_age_seconds', m.families)
        subprocess.run([binary('fencelock'), 'backup', self.lab.path('file'), '--nodes', self.node.address], check=True,
                       capture_output=True, timeout=PATIENCE_S, env=patient_env())
        m = scrape(self.address)
        self.assertEqual((m.value('fencelock_backups_total'), m.value('fencelock_backup_failures_total')), (1, 0))
        self.assertLess(m.value('fencelock_backup_age_seconds'), 3600)

    def test_an_expiry_has_its_cause(self):
        self.node.call('ACQUIRE', 'x', 'TTL', 100, 'OWNER', OWNER_A)
        wait_until(lambda: scrape(self.address).value('fencelock_grants_ended_total', cause='expired') == 1,
                   'the expiry')

    def test_the_page_and_its_data(self):
        status, page = get(self.address, '/')
        self.assertEqual(status, 200)
        self.assertIn('<!doctype html>', page.lower())
        for outside in ('http://', 'https://', ' src=', '@import', 'url('):
            self.assertNotIn(outside, page.replace('http://www.w3.org/2000/svg', ''))
        name = b'a \xff\x00"<%'
        self.node.call('ACQUIRE', name, 'TTL', 60000, 'OWNER', OWNER_A)
        self.assertIsNone(self.node.call('ACQUIRE', name, 'TTL', 60000, 'OWNER', OWNER_B))
        state = json.loads(get_answered(self.address, '/api/state')[1])
        self.assertEqual((state['role'], state['ready'], state['held']), ('leader', True, 1))
        quoted = state['hot'][0]['name']
        self.assertEqual(quoted, 'a%20%FF%00%22%3C%25')
        lock = json.loads(get_answered(self.address, '/api/lock?name=' + quoted)[1])
        self.assertEqual((lock['name'], lock['state'], lock['holders'][0]['owner']), (quoted, 'held', OWNER_A))
        self.assertEqual([e['what'] for e in lock['events']], ['refused'])
        self.assertEqual(json.loads(get_answered(self.address, '/api/lock?name=free')[1])['state'], 'free')
        self.assertEqual(get_answered(self.address, '/api/lock')[0], 404)
        self.assertEqual(get_answered(self.address, '/api/lock?name=' + 'n' * 255)[0], 200)
        self.assertEqual(get_answered(self.address, '/api/lock?name=' + 'n' * 256)[0], 400)
        self.assertEqual(get_answered(self.address, '/api/other')[0], 404)

    def test_the_page_keeps_back_what_the_tool_does(self):
        """Every character of src/base/escape.h, and no other, is replaced by the one function through which the page writes."""
        page = get(self.address, '/')[1]
        kept = re.compile(re.search(r'const kept = /(\[.*?\])/g;', page).group(1))
        wanted = {*range(0x20), *range(0x7f, 0xa0), 0x61c, 0x200e, 0x200f, *range(0x2028, 0x202f), *range(0x2066, 0x206a)}
        self.assertEqual({c for c in range(0x10000) if kept.match(chr(c))}, wanted)
        self.assertRegex(page, r"const esc = s => .*\.replace\(kept, '.ufffd'\);")
        self.assertIn('const show = s => esc(plain(s));', page)

    def test_nothing_can_be_changed_and_no_strange_name_leads_here(self):
        for method in ('POST', 'PUT', 'DELETE', 'OPTIONS'):
            self.assertEqual(get(self.address, '/metrics', method, body='x')[0], 405)
        self.assertEqual(get(self.address, '/metrics', 'HEAD'), (200, ''))
        self.assertEqual(get(self.address, '/nothing')[0], 404)
        for host, status in (('evil.example', 403), ('127.0.0.1.evil.example:1', 403), ('localhost:9', 200),
                             ('127.0.0.1', 200), ('[::1]:80', 200)):
            self.assertEqual((host, get_answered(self.address, '/api/state', headers={'Host': host})[0]), (host, status))

    def test_clients_that_ask_nothing_keep_out_nobody(self):
        """More of them than there are places, which send a byte now and then, so that they are never idle."""
        host, _, port = self.address.rpartition(':')
        over = threading.Event()
        silent = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(100)]

        def send_slowly():
            while not over.wait(1):
                for s in silent:
                    with contextlib.suppress(OSError):
                        s.send(b'x')
        thread = threading.Thread(target=send_slowly)
        thread.start()
        try:
            for _ in range(3):
                self.assertEqual(get_answered(self.address, '/livez'), (200, 'ok\n'))
        finally:
            over.set()
            thread.join()
            for s in silent:
                s.close()

    def test_the_page_shows_what_one_without_a_login_may_see(self):
        for name in ('open-1', 'secret-1'):
            self.node.call('ACQUIRE', name, 'TTL', 60000, 'OWNER', OWNER_A)
            self.assertIsNone(self.node.call('ACQUIRE', name, 'TTL', 60000, 'OWNER', OWNER_B))
        state = json.loads(get_answered(self.address, '/api/state')[1])
        for shown in (state['hot'], state['held_locks']):
            self.assertEqual({h['name'] for h in shown}, {'open-1', 'secret-1'})
        self.assertEqual({h['owner'] for h in state['held_locks']}, {OWNER_A})
        self.node.call('ACL', 'SETUSER', 'boss', 'on', 'nopass', '~*', '+@all')
        self.node.call('ACL', 'SETUSER', 'default', 'resetkeys', '~open*', '-@admin')
        state = json.loads(get_answered(self.address, '/api/state')[1])
        for shown in (state['hot'], state['held_locks']):
            self.assertEqual([h['name'] for h in shown], ['open-1'])
        for i in range(30): # the page has room for twenty
            self.node.call('ACQUIRE', 'open/%d' % i, 'TTL', 60000, 'OWNER', OWNER_A)
        self.assertEqual(len(json.loads(get_answered(self.address, '/api/state')[1])['held_locks']), 20)
        self.assertEqual(json.loads(get_answered(self.address, '/api/lock?name=open-1')[1])['state'], 'held')
        self.assertEqual(get_answered(self.address, '/api/lock?name=secret-1')[0], 404)

    def test_a_loop_that_stands_still_is_told(self):
        self.assertEqual(get_answered(self.address, '/livez'), (200, 'ok\n'))
        self.assertEqual(get_answered(self.address, '/readyz'), (200, 'ok\n'))
        with stopped_loop(self.node.process.pid):
            self.assertEqual(get(self.address, '/livez')[0], 503)
            self.assertEqual(get(self.address, '/readyz')[0], 503)
            m = scrape_once(self.address)
            self.assertEqual(m.value('fencelock_loop_responding'), 0)
            self.assertEqual(m.value('fencelock_node_info', node='1', version='0.1.0'), 1)
            self.assertNotIn('fencelock_leads', m.families)
        self.assertEqual(get_answered(self.address, '/livez'), (200, 'ok\n'))


class WhereItListens(Case):
    def test_beyond_loopback_no_names_are_told(self):
        cluster = Cluster(self.lab, 1, ['--metrics', '0.0.0.0:0']).start()
        port = watched(cluster.nodes[0]).rpartition(':')[2]
        address = '127.0.0.1:' + port
        self.assertEqual(scrape(address).value('fencelock_leads'), 1)
        self.assertEqual(get_answered(address, '/readyz')[0], 200)
        self.assertNotIn('<', get(address, '/')[1])
        self.assertEqual(get_answered(address, '/api/state')[0], 404)
        self.assertIn('no page', cluster.nodes[0].process.output())

    def test_unless_the_network_is_trusted(self):
        cluster = Cluster(self.lab, 1, ['--metrics', '0.0.0.0:0', '--protected-mode', 'no']).start()
        port = watched(cluster.nodes[0]).rpartition(':')[2]
        self.assertEqual(get_answered('127.0.0.1:' + port, '/api/state')[0], 200)

    def test_a_port_that_is_taken_is_told(self):
        cluster = Cluster(self.lab, 1, ['--metrics', '127.0.0.1:0']).start()
        taken = watched(cluster.nodes[0])
        got = subprocess.run([binary('fencelockd'), '--data', self.lab.path('other'), '--listen', '127.0.0.1:0',
                              '--peer', '127.0.0.1:%d' % free_ports(1)[0], '--metrics', taken],
                             capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(got.returncode, 1)
        self.assertIn('--metrics: cannot listen on 127.0.0.1 port ' + taken.rpartition(':')[2], got.stderr)


class OneNodeAlone(Case):
    def test_logins_and_certificates(self):
        certs = Certs(self.lab)
        cluster = Cluster(self.lab, 1, ['--metrics', '127.0.0.1:0', '--auditlog', self.lab.path('audit'), '--tls-cluster', 'yes'])
        node = cluster.nodes[0]
        certs.make('node', '1', '127.0.0.1')
        node.extra += certs.daemon('node-1', tls_port=str(free_ports(1)[0]))
        cluster.start()
        with node.client() as c:
            with self.assertRaises(RespError):
                c.call('AUTH', 'ann', 'wrong')
            node.call('ACL', 'SETUSER', 'ann', 'on', '>right')
            c.call('AUTH', 'ann', 'right')
            with self.assertRaises(RespError):
                c.call('ACQUIRE', 'x', 'TTL', 60000)
        seen = scrape(watched(node))
        self.assertEqual((seen.value('fencelock_logins_total'), seen.value('fencelock_login_failures_total')), (1, 1))
        self.assertGreaterEqual(seen.value('fencelock_denied_total'), 1)
        self.assertGreaterEqual(seen.value('fencelock_audit_lines_total'), 3)
        for which in ('own', 'ca', 'peer', 'peer ca'):
            left = seen.value('fencelock_certificate_left_seconds', certificate=which)
            self.assertGreater(left, 86400, which)

    def test_without_proc_memory_is_not_told(self):
        """0 bytes would be a lie."""
        if subprocess.run(['unshare', '-m', 'true'], capture_output=True).returncode != 0:
            self.skipTest('no name space can be made here')
        cluster = Cluster(self.lab, 1, ['--metrics', '127.0.0.1:0'])
        node = cluster.nodes[0]
        argv = node.argv
        node.argv = lambda: ['unshare', '-m', 'sh', '-c', 'mount -t tmpfs tmpfs /proc && exec "$@"', 'sh'] + argv()
        cluster.start()
        info = node.info()
        self.assertNotIn('used_memory_rss', info)
        self.assertIn('clients_memory', info)
        self.assertNotIn('process_resident_memory_bytes', scrape(watched(node)).families)


class ThreeNodes(Case):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 3, ['--metrics', '127.0.0.1:0', '--hold-ms', '1500']).start()

    def test_the_sum_over_the_nodes_is_right(self):
        self.cluster.steady() # a request that is uncertain may count twice
        for i in range(12):
            node = self.cluster.nodes[i % 3]
            node.call('RELEASE', 'x', node.call('ACQUIRE', 'x', 'TTL', 60000, 'OWNER', OWNER_A))

        def connected(m):
            return all(m.value('fencelock_member_connected', member=str(node.id)) == 1 for node in self.cluster.nodes)

        def scraped():
            shown = [scrape(watched(node)) for node in self.cluster.nodes]
            leads = [m for m in shown if m.value('fencelock_leads') == 1]
            return shown if len(leads) == 1 and connected(leads[0]) else None
        shown = wait_until(scraped, 'one leader, to whom all are connected')
        self.assertEqual(sum(m.value('fencelock_grants_total') for m in shown), 12)
        self.assertGreater(sum(m.value('fencelock_relay_seconds_count') for m in shown), 0)

    def test_a_leader_that_is_away_harms_no_healthy_node(self):
        """Two of three are stopped: the third cannot serve, and says so on /readyz; it lives all the same, so no
        probe restarts it. When they are back it is ready again."""
        alone = self.cluster.followers()[0]
        address = watched(alone)
        others = [node for node in self.cluster.nodes if node is not alone]
        wait_until(lambda: get_answered(address, '/readyz')[0] == 200, 'a leader before') # an election may go on
        for node in others:
            node.pause()
        wait_until(lambda: get_answered(address, '/readyz')[0] == 503, 'the end of its hold time')
        self.assertEqual(get_answered(address, '/livez')[0], 200)
        status, why = get_answered(address, '/readyz?verbose')
        self.assertEqual(status, 503)
        self.assertRegex(why, r'\[-\] leader: ')
        m = scrape(address)
        self.assertEqual((m.value('fencelock_ready'), m.value('fencelock_loop_responding')), (0, 1))
        self.assertGreater(m.value('fencelock_leaderless_seconds_total'), 0)
        for node in others:
            node.resume()
        wait_until(lambda: get_answered(address, '/readyz')[0] == 200, 'a leader')

    def test_one_that_was_never_formed_is_alive_and_not_ready(self):
        lone = Cluster(self.lab, 3, ['--metrics', '127.0.0.1:0']).nodes[0]
        lone.name, lone.data = 'lone', self.lab.path('lone')
        lone.start()
        self.assertEqual(get_answered(watched(lone), '/livez')[0], 200)
        status, why = get_answered(watched(lone), '/readyz?verbose')
        self.assertEqual(status, 503)
        self.assertIn('[-] cluster: not formed yet', why)


if __name__ == '__main__':
    main()
