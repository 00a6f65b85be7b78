#!/usr/bin/python3
"""The guard of PostgreSQL where data goes from one server to another: logical replication, synchronous standbys, dumps of data only."""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', '..', 'src', 'guards', 'kit')]
from guardkit.storage import Refused
from harness import PATIENCE_S, main, wait_until
from postgresql import PostgresCase
from servers import PatientPsql as Psql, Postgres


class Copies(PostgresCase):
    def refused(self, word, session, *statements):
        with self.assertRaises(Refused) as e:
            session.transaction(*statements)
        self.assertEqual(e.exception.word, word, str(e.exception))

    def two_servers(self):
        """A publisher whose table is protected, and a server with the same table and the guard."""
        self.pg, self.other = self.server(), self.server('other')
        for pg in (self.pg, self.other):
            pg.kill()
            pg.start('-c', 'wal_level=logical', '-c', 'wal_retrieve_retry_interval=200ms')
        self.url, self.copy = self.database(self.pg), self.database(self.other)
        source, target = self.account(self.url), Psql(self.copy)
        target.sql('CREATE TABLE account (id text PRIMARY KEY, balance int)')
        source.sql("CREATE PUBLICATION data FOR TABLE account; CREATE PUBLICATION marks FOR TABLE fence.mark WITH (publish = 'insert, update')")
        return source, target

    def subscribe(self, target):
        target.sql("CREATE SUBSCRIPTION s CONNECTION 'host=%s port=%d user=postgres dbname=shop' PUBLICATION data, marks" % (self.pg.sockets, self.pg.port))

    @staticmethod
    def wait_for_sync(target):
        """Until then each table is copied by a worker of its own, and marks may come before the data they are about."""
        wait_until(lambda: target.one("SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel") == 't', 'tables in step')

    def server_log(self, name):
        with open(self.lab.path(name + '.log'), errors='replace') as f:
            return f.read()

    def test_a_subscriber_that_is_protected_refuses_what_is_replicated(self):
        _, target = self.two_servers()
        target.sql("SELECT fence.protect('account', '''account/'' || id')")
        self.subscribe(target)
        wait_until(lambda: 'NOTOKEN this transaction has no token for lock' in self.server_log('other'), "the refusal in the subscriber's log")
        self.assertEqual(target.sql('SELECT * FROM account'), [])
        self.assertIn('a subscription writes to the protected table public.account', '\n'.join(target.sql('SELECT what FROM fence.check()')))
        target.sql("SELECT fence.unprotect('account')")
        wait_until(lambda: target.one('SELECT count(*) FROM account') == '2', 'the rows, once it is unprotected')

    def test_switching_over_to_a_subscriber(self):
        """Marks are replicated beside the data, and the guard goes on where it was on the other server."""
        source, target = self.two_servers()
        self.subscribe(target)
        self.wait_for_sync(target)
        for token, balance in ((5, 105), (9, 109)):
            source.sql("CALL fence.claim('account/a', %d)" % token)
            source.transaction("SELECT fence.use('account/a', %d)" % token, "UPDATE account SET balance = %d WHERE id = 'a' RETURNING id" % balance)
        source.sql("CALL fence.claim('account/b', 7)")
        source.sql('SELECT fence.forget(8)') # drops that mark here, and the subscriber cannot drop it
        source.sql("CALL fence.claim('account/b', 10)") # which is a new row, that is there already
        wait_until(lambda: 'duplicate key value' in self.server_log('other'), 'a mark that is in the way')
        target.sql('SELECT fence.forget(8)') # as is to be done on both
        wait_until(lambda: target.sql('SELECT lock, mark FROM fence.mark ORDER BY lock') == ['account/a|9', 'account/b|10'], 'the marks')
        self.assertEqual(target.one("SELECT balance FROM account WHERE id = 'a'"), '109')
        with self.assertRaises(Refused):
            target.sql("UPDATE fence.mark SET mark = 1") # they are kept there as well
        self.pg.kill()
        target.sql('ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s')
        target.sql("SELECT fence.protect('account', '''account/'' || id')")
        write = "UPDATE account SET balance = balance + 1 WHERE id = 'a' RETURNING id"
        held = "SELECT set_config('fence.held', '{\"account/a\": %d}', true)"
        self.refused('STALE', target, held % 5, write)
        target.transaction("SELECT fence.use('account/a', 9)", write)
        self.assertEqual(target.one("SELECT balance FROM account WHERE id = 'a'"), '110')

    def test_a_subscriber_that_was_behind(self):
        """It lacks the newest claim and what was written under it: that holder is told to read again, and adopt refuses all before."""
        source, target = self.two_servers()
        self.subscribe(target)
        self.wait_for_sync(target)
        source.sql("CALL fence.claim('account/a', 5)")
        wait_until(lambda: target.sql('SELECT mark FROM fence.mark') == ['5'], 'the mark')
        target.sql('ALTER SUBSCRIPTION s DISABLE')
        wait_until(lambda: target.one("SELECT count(*) FROM pg_stat_subscription WHERE pid IS NOT NULL") == '0', 'the end of its worker')
        source.sql("CALL fence.claim('account/a', 9)")
        source.transaction("SELECT fence.use('account/a', 9)", "UPDATE account SET balance = 109 WHERE id = 'a' RETURNING id")
        self.pg.kill()
        target.sql('ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s')
        target.sql("SELECT fence.protect('account', '''account/'' || id')")
        held = "SELECT set_config('fence.held', '{\"account/a\": %d}', true)"
        self.refused('NOTCLAIMED', target, held % 9, "UPDATE account SET balance = 110 WHERE id = 'a'")
        target.sql('SELECT fence.adopt(10)')
        for token in (5, 9):
            with self.assertRaises(Refused) as e:
                target.sql("CALL fence.claim('account/a', %d)" % token)
            self.assertEqual(e.exception.word, 'STALE')

    def test_a_synchronous_standby_has_every_claim(self):
        pg = self.server()
        url = self.database(pg)
        s = self.account(url)
        standby = Postgres(self.lab, 'standby')
        subprocess.run(['install', '-d', '-m', '700', '-o', standby.user, standby.data], check=True)
        os.makedirs(standby.sockets, exist_ok=True)
        shutil.chown(standby.sockets, standby.user)
        self.addCleanup(standby.stop)
        standby.run('pg_basebackup', '-D', standby.data, '-h', pg.sockets, '-p', str(pg.port), '-U', 'postgres', '-R', '-c', 'fast')
        standby.start()
        s.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        s.sql('SELECT pg_reload_conf()')
        wait_until(lambda: s.one('SELECT sync_state FROM pg_stat_replication') == 'sync', 'a synchronous standby')
        self.assertEqual(s.sql("SELECT what FROM fence.check() WHERE grade = 'loss'"), [])
        other = Psql(url)
        for token, level in ((8, 'off'), (9, 'local')): # the claim waits for it all the same
            standby.kill()
            s.sql('SET synchronous_commit = ' + level)
            s.start("CALL fence.claim('account/a', %d);" % token)
            waits = lambda: other.one("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'CALL%'") == '1'
            wait_until(lambda: waits() or s.finish(0) is not None, 'a wait for the standby, or the answer')
            self.assertTrue(waits(), 'a claim at synchronous_commit = %s was answered while the standby was down' % level)
            standby.start()
            self.assertEqual(s.judged(s.finish(PATIENCE_S)), [])
        pg.kill()
        t = Psql(standby.url('shop'))
        t.sql('SELECT pg_promote()')
        wait_until(lambda: t.one('SELECT pg_is_in_recovery()') == 'f', 'the promotion')
        self.assertEqual(t.one("SELECT mark FROM fence.mark WHERE lock = 'account/a'"), '9')
        with self.assertRaises(Refused) as e:
            t.sql("CALL fence.claim('account/a', 5)")
        self.assertEqual(e.exception.word, 'STALE')

    def test_a_dump_of_data_only(self):
        """It is refused like any other write; --disable-triggers, which is a superuser's, leaves the guard weaker, and check says so."""
        pg = self.server()
        url = self.database(pg)
        s = self.account(url)
        dump = self.lab.path('dump')
        with open(dump, 'wb') as out:
            subprocess.run([os.path.join(pg.bin, 'pg_dump'), '-Fc', '--data-only', '-t', 'account', '-d', url], stdout=out, check=True)
        s.sql("SELECT fence.unprotect('account'); TRUNCATE account; SELECT fence.protect('account', '''account/'' || id')")

        def restore(*more):
            with open(dump, 'rb') as data:
                return subprocess.run([os.path.join(pg.bin, 'pg_restore'), '--data-only', '-d', url, *more], stdin=data, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT)
        done = restore()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b'NOTOKEN', done.stdout)
        self.assertEqual(s.sql('SELECT * FROM account'), [])
        self.assertEqual(s.sql('SELECT what FROM fence.check()'), [])
        self.assertEqual(restore('--disable-triggers').returncode, 0)
        self.assertEqual(s.one('SELECT count(*) FROM account'), '2')
        self.assertIn('the guard of public.account is switched off', '\n'.join(s.sql('SELECT what FROM fence.check()')))
        self.refused('NOTOKEN', s, 'UPDATE account SET balance = 1') # it still holds, but for a replication role
        s.sql("SELECT fence.protect('account', '''account/'' || id')")
        self.assertEqual(s.sql('SELECT what FROM fence.check()'), [])


if __name__ == '__main__':
    main()
