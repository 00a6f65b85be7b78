#!/usr/bin/python3
"""The guard of PostgreSQL on a real server: every attack, the same without the guard, restore, fail-over, the command."""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', '..', 'src', 'guards', 'kit')]
from guardkit.child import Child
from guardkit.postgresql import PostgreSQL
from guardkit.storage import Refused, Unknown
from guardkit.suite import Suite
from harness import Cluster, binary, main, seed, wait_until
from recipes import PostgreSQLOff, PostgreSQLRecipe
from servers import FULL, ROOT, ROUNDS, GuardCase, PatientPsql as Psql, Postgres, install_postgresql


@unittest.skipUnless(Postgres.is_there(), 'PostgreSQL is not installed')
class PostgresCase(GuardCase):
    def server(self, name='postgres', **options):
        pg = Postgres(self.lab, name, **options).init().start()
        self.addCleanup(pg.stop)
        return pg

    def database(self, pg, name='shop', guard=True):
        Psql(pg.url('postgres')).sql('CREATE DATABASE %s' % name)
        if guard:
            install_postgresql(pg.url(name))
        return pg.url(name)

    def account(self, url, lock="'''account/'' || id'"):
        s = Psql(url)
        s.sql('CREATE TABLE account (id text PRIMARY KEY, balance int)')
        s.sql("INSERT INTO account VALUES ('a', 100), ('b', 200)")
        if lock:
            s.sql("SELECT fence.protect('account', %s)" % lock)
        return s


class Attacks(PostgresCase):
    def suite(self, kind, pg, url):
        storage = kind(url, pg)
        self.addCleanup(lambda: [s.end() for s in storage.sessions])
        return Suite(storage, seed(), rounds=ROUNDS, crashes=2)

    def test_every_attack(self):
        pg = self.server()
        report = self.suite(PostgreSQL, pg, self.database(pg)).run(None if FULL else ('kill', 'prepared', 'ignores case'))
        self.note_attacks(report)
        self.assertTrue(report.ok())
        self.assertEqual(report.count('not tried'), 0)

    def test_with_the_guard_off_updates_are_lost(self):
        pg = self.server()
        self.until_lost(self.suite(PostgreSQLOff, pg, self.database(pg)), 'random', 'UPDATE', 'between')

    def test_the_recipe_of_old_does_not_hold(self):
        pg = self.server()
        report = self.suite(PostgreSQLRecipe, pg, self.database(pg)).run((
            'one statement', 'autocommit', 'savepoint', 'without', 'deleted', 'paused', 'another', 'stale claim'))
        outcome = {row[1]: row[2] for row in report.rows}
        self.assertEqual(outcome.pop('stale claim'), 'holds')
        outcome.pop('stale UPDATE in autocommit', None)
        self.assertEqual(set(outcome.values()), {'BROKEN'}, outcome)

    @unittest.skipUnless(os.environ.get('FENCELOCK_POSTGRES'), 'FENCELOCK_POSTGRES names no other versions (directories with bin/)')
    def test_other_versions(self):
        for home in os.environ['FENCELOCK_POSTGRES'].split(':'):
            with self.subTest(home):
                pg = self.server('pg-' + re.sub(r'\W', '-', home)[-20:], bin_dir=os.path.join(home, 'bin'))
                report = self.suite(PostgreSQL, pg, self.database(pg)).run()
                self.note_attacks(report)
                self.assertTrue(report.ok())


class Tables(PostgresCase):
    def setUp(self):
        super().setUp()
        self.pg = self.server()
        self.url = self.database(self.pg)

    def refused(self, word, session, statement):
        with self.assertRaises(Refused) as e:
            session.sql(statement)
        self.assertEqual(e.exception.word, word, str(e.exception))

    def test_partitions(self):
        s = Psql(self.url)
        s.sql("CREATE TABLE t (id int, lock text, n int, PRIMARY KEY (id)) PARTITION BY RANGE (id)")
        s.sql('CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)')
        s.sql("INSERT INTO t VALUES (1, 'l', 0)")
        s.sql("SELECT fence.protect('t', 'lock')")
        s.sql('CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)')
        for statement in ('UPDATE t SET n = 1', 'UPDATE t1 SET n = 1', "INSERT INTO t2 VALUES (11, 'l', 0)", 'DELETE FROM ONLY t1'):
            self.refused('NOTOKEN', s, statement)
        self.refused('REFUSED', s, 'TRUNCATE t1')
        self.assertIn('t2 is not guarded', s.one('SELECT what FROM fence.check()'))
        s.sql("SELECT fence.protect('t', 'lock')")
        self.refused('REFUSED', s, 'TRUNCATE t2')
        self.assertEqual(s.sql('SELECT what FROM fence.check()'), [])
        s.sql("CALL fence.claim('l', 5)")
        s.transaction("SELECT fence.use('l', 5)", 'UPDATE t SET id = 12 WHERE id = 1 RETURNING id') # into the other partition
        self.refused('REFUSED', s, "SELECT fence.protect('t1', 'lock')")

    def test_expressions_constants_and_what_cannot_be_protected(self):
        s = self.account(self.url)
        s.sql("CALL fence.claim('account/a', 5)")
        s.transaction("SELECT fence.use('account/a', 5)", "UPDATE account SET balance = 1 WHERE id = 'a' RETURNING id")
        with self.assertRaises(Refused):
            s.transaction("SELECT fence.use('account/a', 5)", 'UPDATE account SET balance = 1')
        s.sql("SELECT fence.protect('account', '''everything''')") # another lock from here on
        s.sql("CALL fence.claim('everything', 6)")
        s.transaction("SELECT fence.use('everything', 6)", 'UPDATE account SET balance = 2', 'TRUNCATE account')
        s.sql('CREATE VIEW v AS SELECT 1; CREATE TABLE parent (i int); CREATE TABLE kid () INHERITS (parent)')
        self.refused('REFUSED', s, "SELECT fence.protect('v', 'lock')")
        self.refused('REFUSED', s, "SELECT fence.protect('parent', 'i')")
        self.refused('42703', s, "SELECT fence.protect('account', 'nothing')")
        s.sql("SELECT fence.unprotect('account')")
        s.sql("INSERT INTO account VALUES ('c', 1)")

    def test_forgetting_marks(self):
        s = self.account(self.url)
        for token in (5, 6, 7):
            s.sql("CALL fence.claim('l%d', %d)" % (token, token))
        self.assertEqual(s.one('SELECT fence.forget(7)'), '2')
        self.refused('STALE', s, "CALL fence.claim('l5', 6)")
        self.refused('STALE', s, "CALL fence.claim('new', 6)")
        s.sql("CALL fence.claim('new', 8)")

    def test_forgetting_waits_for_writers_and_is_seen_by_them(self):
        s, admin = self.account(self.url, "'''all'''"), Psql(self.url)
        s.sql("SET fence.idle_limit = '10min'") # it is idle in its transaction until the other one waits
        s.sql("CALL fence.claim('all', 5, true)")
        for _ in range(2): # the second time nothing is looked up
            s.sql('UPDATE account SET balance = balance + 1')
        s.sql('BEGIN')
        s.sql('UPDATE account SET balance = balance + 1')
        admin.start('SELECT fence.forget(6);')
        wait_until(lambda: Psql(self.url).one("SELECT count(*) FROM pg_locks WHERE NOT granted") != '0', 'a wait for the writer')
        s.sql('COMMIT')
        self.assertEqual(admin.judged(admin.finish(240)), ['1'])
        self.refused('NOTCLAIMED', s, 'UPDATE account SET balance = 666')

    def test_a_mark_raised_by_an_administrator_is_seen(self):
        s, admin = self.account(self.url, "'''all'''"), Psql(self.url)
        s.sql("CALL fence.claim('all', 5, true)")
        s.sql('UPDATE account SET balance = 1')
        admin.sql("UPDATE fence.mark SET mark = 6 WHERE lock = 'all'")
        self.refused('STALE', s, 'UPDATE account SET balance = 666')

    def test_each_operation_beside_the_look_up(self):
        """INSERT, UPDATE and DELETE when the session has written before, and rows that go to another lock."""
        s = Psql(self.url)
        for table, lock in (('by_column', 'lock'), ('by_expression', 'lower(lock)'), ('by_constant', "'l'")):
            s.sql('CREATE TABLE %s (id int PRIMARY KEY, lock varchar(20), n int)' % table)
            s.sql("SELECT fence.protect('%s', %s)" % (table, "'" + lock.replace("'", "''") + "'"))
            s.sql("RESET fence.held; CALL fence.claim('l', 5, true)")
            for _ in range(2):
                for statement in ("INSERT INTO %s SELECT i, 'l', 0 FROM generate_series(1, 3) i", 'UPDATE %s SET n = n + 1', 'DELETE FROM %s'):
                    s.sql(statement % table)
            s.sql("INSERT INTO %s VALUES (1, 'l', 0)" % table)
            if lock != "'l'":
                self.refused('NOTOKEN', s, "UPDATE %s SET lock = 'm'" % table)
                self.refused('NOLOCK', s, 'UPDATE %s SET lock = NULL' % table)
                self.refused('NOTOKEN', s, "INSERT INTO %s VALUES (2, 'm', 0)" % table)
                self.refused('REFUSED', s, 'TRUNCATE ' + table)
            s.sql('RESET fence.held')
            for statement in ("INSERT INTO %s VALUES (3, 'l', 0)", 'UPDATE %s SET n = 9', 'DELETE FROM %s'):
                self.refused('NOTOKEN', s, statement % table)

    def test_any_collation(self):
        """A lock is its bytes: a collation, of the column or of what a client passes, changes neither which lock it is nor its hash."""
        s = Psql(self.url)
        s.sql("CREATE COLLATION german (provider = icu, locale = 'de'); "
              "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        for token, collation in enumerate(('"C"', '"default"', 'german', 'any_case'), 5):
            s.sql('CREATE TABLE t (id int PRIMARY KEY, lock text COLLATE %s, n int)' % collation)
            s.sql("SELECT fence.protect('t', 'lock')")
            for level in ('READ COMMITTED', 'SERIALIZABLE'):
                s.sql("CALL fence.claim('l' COLLATE %s, %d)" % (collation, token))
                use = "SELECT fence.use('l' COLLATE %s, %d)" % (collation, token)
                s.transaction(use, "INSERT INTO t VALUES (1, 'l', 0)", "UPDATE t SET n = 1 RETURNING id", level=level)
                self.refused('NOTOKEN', s, "DELETE FROM t")
                s.transaction(use, "DELETE FROM t WHERE id = 1 RETURNING id", level=level)
            self.refused('STALE', s, "CALL fence.claim('l' COLLATE %s, 4)" % collation)
            s.sql('DROP TABLE t')

    def test_a_trigger_that_an_older_version_made_is_named(self):
        s = self.account(self.url, "'id'")
        self.assertEqual(s.sql('SELECT what FROM fence.check()'), [])
        s.sql("DO $do$ BEGIN EXECUTE format('CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS %L', tgfoid::regproc, "
              "replace(fence.trigger_source(tgrelid, 'id'), 'COLLATE pg_catalog.\"C\"', '')) FROM pg_trigger WHERE tgname = 'fence_guard'; END $do$")
        self.assertIn('not as this version of the guard makes it', '\n'.join(s.sql("SELECT what FROM fence.check() WHERE grade = 'bad'")))
        self.assertIn("As role postgres: SELECT fence.protect('public.account', LOCK)", s.one("SELECT remedy FROM fence.check() WHERE grade = 'bad'"))
        s.sql("SELECT fence.protect('account', 'id')")
        self.assertEqual(s.sql('SELECT what FROM fence.check()'), [])

    def test_an_owner_that_logs_in_is_named(self):
        s = self.account(self.url)
        s.sql('CREATE ROLE careless LOGIN; ALTER TABLE account OWNER TO careless; GRANT UPDATE ON fence.mark TO careless')
        found = '\n'.join(s.sql('SELECT grade, what FROM fence.check()'))
        self.assertIn('owns the protected table', found)
        self.assertIn('may change fence.mark', found)
        code, out, _ = self.guard('check', self.url, '--json')
        self.assertEqual((code, json.loads(out)['ok']), (1, False))

    # -- roles that were there first ------------------------------------------------------------------------

    def roles(self, s):
        """w1 made things before the guard came, or may make triggers. w2 is another writer."""
        s.sql('CREATE ROLE w1 LOGIN; CREATE ROLE w2 LOGIN; GRANT CREATE ON SCHEMA public TO PUBLIC; GRANT CREATE ON DATABASE shop TO w1; '
              'GRANT SELECT, INSERT, UPDATE, DELETE ON account TO w1, w2')
        return [self.login(self.url, who) for who in ('w1', 'w2')]

    def login(self, url, who):
        return Psql(url.replace('user=postgres', 'user=' + who))

    def bad(self, s):
        return '\n'.join(s.sql("SELECT what FROM fence.check() WHERE grade = 'bad'"))

    def test_a_trigger_function_belongs_to_the_guard(self):
        """Whatever another role makes in the schema of the table, the function that is called is none that it can change."""
        s = self.account(self.url, lock=None)
        w1, w2 = self.roles(s)
        oid = s.one("SELECT 'account'::regclass::oid")
        w1.sql("CREATE FUNCTION public.fence_of_%s() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'" % oid)
        s.sql("SELECT fence.protect('account', 'id')")
        self.assertEqual(s.one('SELECT p.pronamespace::regnamespace || $$ $$ || p.proowner::regrole FROM pg_trigger t '
                               "JOIN pg_proc p ON p.oid = t.tgfoid WHERE t.tgname = 'fence_guard'"), 'fence postgres')
        self.refused('NOTOKEN', w2, 'UPDATE account SET balance = 666')
        # The function of one table cannot be exchanged through another table that calls it.
        checker = s.one("SELECT tgfoid::regproc FROM pg_trigger WHERE tgname = 'fence_guard'")
        w1.sql('CREATE TABLE public.mine (id text)')
        w1.sql('CREATE TRIGGER fence_guard AFTER INSERT ON public.mine FOR EACH ROW EXECUTE FUNCTION %s()' % checker)
        w1.sql("SELECT fence.protect('mine', '''mine''')")
        w1.sql("SELECT fence.unprotect('mine')")
        w1.sql("SELECT fence.make_checker('account', '''mine''')")
        w1.sql('SELECT fence.drop_unused()')
        self.refused('NOTOKEN', w2, 'UPDATE account SET balance = 666')
        self.assertEqual(s.sql("SELECT 'fence.' || proname FROM pg_proc WHERE proname LIKE 'of\\_%'"), [checker])
        self.assertEqual(self.bad(s), '')

    def test_a_guard_of_which_another_role_owns_a_part_is_refused(self):
        url = self.database(self.pg, 'other', guard=False)
        s = Psql(url)
        s.sql('CREATE ROLE w1 LOGIN; GRANT CREATE ON DATABASE other TO w1')
        self.login(url, 'w1').sql('CREATE SCHEMA fence; CREATE TABLE fence.mark (lock text COLLATE "C" PRIMARY KEY, mark bigint NOT NULL)')
        self.assertIn('schema fence belongs to role w1', self.guard('install', url)[2])
        s.sql('ALTER SCHEMA fence OWNER TO postgres')
        self.assertIn('fence.mark belongs to role w1', self.guard('install', url)[2])
        s.sql('DROP SCHEMA fence CASCADE')
        self.assertEqual(self.guard('install', url)[0], 0)
        # A part that changes hands later is noticed before anything of the guard is called.
        s.sql('ALTER FUNCTION fence.version() OWNER TO w1')
        code, out, _ = self.guard('check', url)
        self.assertEqual(code, 1)
        self.assertIn('function fence.version() belongs to role w1', out)
        for action in (('install', url), ('uninstall', url)):
            self.assertIn('belongs to role w1', self.guard(*action)[2])
        s.sql('ALTER FUNCTION fence.version() OWNER TO postgres; ALTER SCHEMA fence OWNER TO w1')
        self.assertIn('schema fence belongs to role w1', self.guard('check', url)[1])

    def test_an_expression_finds_nothing_that_another_role_made(self):
        """An operator in the table's schema that fits the types of a lock's expression better than the server's own."""
        s = self.account(self.url, lock=None)
        w1, w2 = self.roles(s)
        w1.sql("CREATE FUNCTION public.joined(text, varchar) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'mine'$$; "
               'CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = varchar, FUNCTION = public.joined)')
        s.sql('ALTER TABLE account ALTER id TYPE varchar(20)')
        s.sql("SELECT fence.protect('account', '(''account/''::text) || id')")
        w1.sql("CALL fence.claim('mine', 7, true)")
        self.refused('NOTOKEN', w1, "UPDATE account SET balance = 666 WHERE id = 'a'")
        w2.sql("CALL fence.claim('account/a', 8, true)")
        w2.sql("UPDATE account SET balance = 101 WHERE id = 'a'")
        # Functions of a schema are called by their whole name.
        s.sql("CREATE FUNCTION public.lock_of(varchar) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'of ' || $1$$")
        self.refused('42883', s, "SELECT fence.protect('account', 'lock_of(id)')")
        s.sql("SELECT fence.protect('account', 'public.lock_of(id)')")
        w2.sql("CALL fence.claim('of a', 9, true)")
        w2.sql("UPDATE account SET balance = 102 WHERE id = 'a'")

    def test_the_tool_calls_nothing_that_another_role_made(self):
        """Functions in public that fit what the tool and the script ask better than the server's own would run as the administrator."""
        url = self.database(self.pg, 'other', guard=False)
        s = Psql(url)
        s.sql('CREATE ROLE w1 LOGIN; GRANT CREATE ON SCHEMA public TO PUBLIC; CREATE TABLE account (id text PRIMARY KEY)')
        trap = 'LANGUAGE plpgsql AS $$BEGIN ALTER ROLE w1 SUPERUSER; RETURN %s; END$$'
        w1 = self.login(url, 'w1')
        w1.sql('CREATE FUNCTION public.nextval(text) RETURNS bigint ' + trap % '1')
        w1.sql('CREATE FUNCTION public.concat_ws(text, text, text, text) RETURNS text ' + trap % "''")
        w1.sql('CREATE FUNCTION public.quote_ident(name) RETURNS text ' + trap % "'id'")
        w1.sql('CREATE FUNCTION public.same(oid, regclass) RETURNS boolean ' + trap % 'true')
        w1.sql('CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.same)')
        for action in (('install', url, 'account=id'), ('check', url, 'account'), ('attack', url, 'account'),
                       ('uninstall', url)):
            code, out, err = self.guard(*action)
            self.assertEqual(code, 0, '%s: %s%s' % (action[0], out, err))
            self.assertEqual(s.one("SELECT rolsuper FROM pg_roles WHERE rolname = 'w1'"), 'f', action)

    def test_the_right_to_make_triggers_is_named(self):
        s = self.account(self.url, "'id'")
        w1, w2 = self.roles(s)
        s.sql('GRANT ALL ON account TO w1')
        w1.sql("CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        self.assertIn('w1 may make triggers on public.account', self.bad(s))
        if int(s.one('SHOW server_version_num')) >= 140000: # that it does harm
            w1.sql('CREATE OR REPLACE TRIGGER fence_guard AFTER INSERT OR UPDATE OR DELETE ON account FOR EACH ROW EXECUTE FUNCTION public.nothing()')
            w2.sql('UPDATE account SET balance = 666')
            self.assertIn('is not as this version of the guard makes it', self.bad(s))
            self.assertIn('belongs to role w1', self.bad(s))
        s.sql('REVOKE TRIGGER ON account FROM w1')
        s.sql("SELECT fence.protect('account', 'id')")
        self.refused('NOTOKEN', w2, 'UPDATE account SET balance = 667')
        self.assertEqual(self.bad(s), '')

    def test_no_remedy_has_an_expression_of_somebody_else(self):
        s = self.account(self.url, lock=None)
        w1, _ = self.roles(s)
        s.sql('ALTER TABLE account OWNER TO w1')
        w1.sql("SELECT fence.protect('account', '''evil'' || id'); ALTER TABLE account DISABLE TRIGGER ALL")
        remedies = '\n'.join(s.sql('SELECT remedy FROM fence.check()'))
        self.assertIn('As role w1', remedies)
        self.assertNotIn('evil', remedies)

    def test_an_old_dump(self):
        s = self.account(self.url)
        s.sql("CALL fence.claim('account/a', 5)")
        dump = subprocess.run([os.path.join(self.pg.bin, 'pg_dump'), '-d', self.url], stdout=subprocess.PIPE, check=True).stdout
        s.sql("CALL fence.claim('account/a', 9)")
        other = self.server('other')
        url = self.database(other, 'copy', guard=False)
        done = subprocess.run([shutil.which('psql'), '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', url], input=dump, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        t = Psql(url)
        self.refused('NOTOKEN', t, 'UPDATE account SET balance = 1') # the guard came along
        install_postgresql(url) # again: it is a copy all the same
        self.assertEqual(t.one("SELECT mark FROM fence.mark WHERE lock = 'account/a'"), '5')
        code, out, _ = self.guard('check', url)
        self.assertEqual(code, 1)
        self.assertIn('restored copy', out)
        # Token 9 has claimed before: what it holds is newer than this copy, so it must read again.
        with self.assertRaises(Refused) as e:
            t.transaction("SELECT set_config('fence.held', '{\"account/a\": 9}', true)", "UPDATE account SET balance = 1 WHERE id = 'a'")
        self.assertEqual(e.exception.word, 'NOTCLAIMED')
        cluster = Cluster(self.lab, 1).start()
        for _ in range(9):
            cluster.nodes[0].call('TOKEN', 'x')
        code, out, err = self.guard('adopt', url, '--nodes', cluster.nodes[0].address)
        self.assertEqual(code, 0, err)
        self.refused('STALE', t, "CALL fence.claim('account/a', 9)")
        self.assertEqual(self.guard('check', url)[0], 0)

    def test_a_standby_that_was_behind_is_promoted(self):
        s = self.account(self.url)
        s.sql("CALL fence.claim('account/a', 5)")
        standby = Postgres(self.lab, 'standby')
        subprocess.run(['install', '-d', '-m', '700', '-o', standby.user, standby.data], check=True)
        os.makedirs(standby.sockets, exist_ok=True)
        shutil.chown(standby.sockets, standby.user)
        self.addCleanup(standby.stop)
        standby.run('pg_basebackup', '-D', standby.data, '-h', self.pg.sockets, '-p', str(self.pg.port), '-U', 'postgres', '-R', '-c', 'fast')
        standby.start()
        wait_until(lambda: s.one('SELECT count(*) FROM pg_stat_replication') == '1', 'replication')
        self.assertIn('asynchronous', '\n'.join(s.sql('SELECT what FROM fence.check()')))
        position = s.one('SELECT pg_current_wal_lsn()')
        wait_until(lambda: Psql(standby.url('shop')).one("SELECT pg_last_wal_replay_lsn() >= '%s'" % position) == 't', 'replay')
        standby.kill() # from here on it hears nothing
        s.sql("CALL fence.claim('account/a', 9)")
        s.transaction("SELECT fence.use('account/a', 9)", "UPDATE account SET balance = 109 WHERE id = 'a' RETURNING id")
        self.pg.kill()
        standby.start()
        t = Psql(standby.url('shop'))
        t.sql('SELECT pg_promote()')
        wait_until(lambda: t.one('SELECT pg_is_in_recovery()') == 'f', 'the promotion')
        self.assertEqual(t.one("SELECT mark FROM fence.mark WHERE lock = 'account/a'"), '5') # claim and write are lost, both
        with self.assertRaises(Refused) as e:
            t.transaction("SELECT set_config('fence.held', '{\"account/a\": 9}', true)", "UPDATE account SET balance = 1 WHERE id = 'a'")
        self.assertEqual(e.exception.word, 'NOTCLAIMED')
        t.sql('CHECKPOINT')
        code, out, _ = self.guard('check', standby.url('shop'))
        self.assertEqual(code, 1)
        self.assertIn('promoted', out)


class Command(PostgresCase):
    def test_install_check_attack_uninstall(self):
        pg = self.server()
        url = self.database(pg, guard=False)
        self.account(url, lock=None)
        code, _, err = self.guard('check', url)
        self.assertEqual(code, 1)
        self.assertIn('no guard in this database', err)
        code, _, err = self.guard('install', url, 'account')
        self.assertEqual(code, 2)
        self.assertIn('TABLE=COLUMN', err)
        for _ in range(2): # again does no harm
            code, out, err = self.guard('install', url, "account='account/' || id")
            self.assertEqual((code, err), (0, ''))
        self.assertEqual(self.guard('check', url, 'account')[0], 0)
        code, out, err = self.guard('attack', url, 'account', '--json', '--seed', '5')
        report = json.loads(out)
        self.assertEqual((code, report['ok'], err), (0, True, ''), [a for a in report['attacks'] if a['outcome'] == 'BROKEN'])
        self.assertIn('UPDATE account', [a['attack'] for a in report['attacks']])
        self.assertEqual(Psql(pg.url('postgres')).sql("SELECT datname FROM pg_database WHERE datname LIKE 'fencelock%'"), [])
        self.assertEqual(Psql(url).sql("SELECT rolname FROM pg_roles WHERE rolname LIKE 'fence%'"), [])
        self.assertEqual(self.guard('uninstall', url)[0], 0)
        Psql(url).sql('UPDATE account SET balance = 1')
        self.assertEqual(Psql(url).sql("SELECT proname FROM pg_proc WHERE proname LIKE 'fence%'"), [])

    def test_wrong_input(self):
        for args, code, word in ((('attack', 'oracle://x'), 2, 'postgres://'), (('check', 'postgres://127.0.0.1:1/x'), 3, 'refused'),
                                 (('install',), 2, 'URL'), (('instal', 'x'), 2, "did you mean 'guard install'")):
            got, out, err = self.guard(*args)
            self.assertEqual((got, out), (code, ''), err)
            self.assertIn(word, err)

    def test_a_client_that_ends_before_it_is_asked(self):
        """What it said is told, as when it ends later."""
        class Ended(Child):
            def marker_command(self, marker):
                return marker
        client = Ended(['sh', '-c', 'echo it was refused'])
        client.process.wait()
        with self.assertRaisesRegex(Unknown, 'it was refused'):
            client.ask('SELECT 1')

    def test_the_commands_of_the_readme(self):
        """From a running PostgreSQL to a protected table and a late write that is refused, as README has it."""
        with open(os.path.join(ROOT, 'README.md')) as f:
            block = re.search(r'<!-- guard -->\n```sh\n(.*?)```', f.read(), re.S).group(1)
        node, block = block.split('\n', 1)
        self.assertRegex(node, '^fencelockd & +#')
        self.assertEqual((block.count('--ttl 5s'), block.count('--wait 1m')), (1, 1))
        block = block.replace('--ttl 5s', '--ttl 15s').replace('--wait 1m', '--wait 240s') # the machine may be busy
        pg, cluster = self.server(), Cluster(self.lab, 1).start()
        url = self.database(pg, guard=False)
        env = {'FENCELOCK_NODES': cluster.nodes[0].address, 'PGHOST': pg.sockets, 'PGPORT': str(pg.port), 'PGUSER': 'postgres',
               'PGDATABASE': 'shop', 'FENCELOCK_TIMEOUT': '200s', 'PATH': os.path.dirname(binary('fencelock')) + ':' + os.environ['PATH']}
        done = subprocess.run(['bash', '-c', block], env=dict(os.environ, **env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual((done.stdout.count('UPDATE 1'), done.stdout.count('ERROR:  STALE')), (1, 1), done.stdout)
        s = Psql(url)
        self.assertEqual(s.one("SELECT balance FROM account WHERE id = 'a'"), '110')
        with self.assertRaises(Refused):
            s.sql('UPDATE account SET balance = 0')

    def test_the_page_about_jobs(self):
        """docs/JOBS.md, block by block: a job is done once, a worker that was replaced is refused, and a loop does the rest."""
        with open(os.path.join(ROOT, 'docs', 'JOBS.md')) as f:
            blocks = dict(re.findall(r'<!-- job (\w+) -->\n```sh\n(.*?)```', f.read(), re.S))
        self.assertEqual(set(blocks), {'tables', 'work', 'worker', 'late'})
        pg, cluster = self.server(), Cluster(self.lab, 1).start()
        url = self.database(pg, guard=False)
        env = dict(os.environ, FENCELOCK_NODES=cluster.nodes[0].address, PGHOST=pg.sockets, PGPORT=str(pg.port), PGUSER='postgres', PGDATABASE='shop',
                   FENCELOCK_TIMEOUT='200s', PATH=os.path.dirname(binary('fencelock')) + ':' + os.environ['PATH'])
        folder = self.lab.path('jobs')
        os.makedirs(folder)
        with open(os.path.join(folder, 'work'), 'w') as f:
            f.write(blocks['work'])
        os.chmod(f.name, 0o755)
        late = blocks['late'].replace('--ttl 5s', '--ttl 15s').replace('--wait 1m', '--wait 240s') # the machine may be busy
        worker = blocks['worker'].replace('--ttl 30s', '--ttl 10m')
        run = lambda script: subprocess.run(['bash', '-c', script], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        done = run(blocks['tables'])
        self.assertEqual(done.returncode, 0, done.stdout)
        done = run(late)
        self.assertEqual((done.stdout.count('ERROR:  STALE'), done.stdout.rstrip().endswith('\nFIRST')), (1, True), done.stdout)
        s = Psql(url)
        self.assertEqual(s.one('SELECT count(*) FROM step'), '1')
        done = run(worker)
        self.assertEqual((done.returncode, s.one("SELECT string_agg(output, ' ' ORDER BY job) FROM result")), (0, 'FIRST SECOND'), done.stdout)
        with self.assertRaises(Refused):
            s.sql("INSERT INTO step VALUES (1, 2, 'without a token')")

    def test_an_application_that_owned_its_table(self):
        """The SQL of the guard's own page: afterwards nobody who can log in can switch the guard off."""
        with open(os.path.join(ROOT, 'src/guards/postgresql/README.md')) as f:
            block = re.search(r'<!-- two roles -->\n```sql\n(.*?)```', f.read(), re.S).group(1)
        url = self.database(self.server())
        boss = self.account(url)
        boss.sql('CREATE ROLE web LOGIN; CREATE ROLE migrator LOGIN; ALTER TABLE account OWNER TO web')
        check = lambda: subprocess.run([binary('fencelock'), 'guard', 'check', url, 'account'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        done = check()
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn('role web owns the protected table public.account', done.stdout)
        boss.sql(block)
        done = check()
        self.assertEqual(done.returncode, 0, done.stdout)
        web = Psql(url)
        web.sql('SET SESSION AUTHORIZATION web')
        for sql in ("UPDATE account SET balance = 0 WHERE id = 'a'", 'ALTER TABLE account DISABLE TRIGGER fence_guard', 'SET ROLE shop_owner'):
            with self.assertRaises(Refused):
                web.sql(sql)
        web.sql("CALL fence.claim('account/a', 7, true)")
        web.sql("UPDATE account SET balance = 1 WHERE id = 'a'")
        self.assertEqual(web.one("SELECT balance FROM account WHERE id = 'a'"), '1')


@unittest.skipUnless(os.geteuid() == 0 and shutil.which('unshare'), 'needs root, for a mount of its own')
class AsAnExtension(PostgresCase):
    def with_extension(self, name):
        """A server that sees the files of the extension where its other extensions are."""
        pg = Postgres(self.lab, name)
        share = subprocess.run([os.path.join(pg.bin, 'pg_config'), '--sharedir'], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        copy = self.lab.path('extension-of-' + name)
        shutil.copytree(os.path.join(share, 'extension'), copy)
        shutil.copy(os.path.join(ROOT, 'src/guards/postgresql/fencelock.control'), copy)
        with open(os.path.join(copy, 'fencelock--1.0.sql'), 'w') as out:
            for part in ('extension-head.sql', 'guard.sql', 'extension-tail.sql'):
                with open(os.path.join(ROOT, 'src/guards/postgresql', part)) as f:
                    out.write(f.read())
        pg.init()
        plain = pg.argv
        pg.argv = lambda: ['unshare', '-m', 'sh', '-c', 'mount --bind "$0" "$1" && shift && exec "$@"', copy, share + '/extension'] + plain()
        self.addCleanup(pg.stop)
        return pg.start()

    def copied(self, pg, url, target, *options):
        """What pg_dump writes of a database, once it has been restored into a new one of the target server; and the URL of that."""
        dump = subprocess.run([os.path.join(pg.bin, 'pg_dump'), '-d', url, *options], stdout=subprocess.PIPE, check=True).stdout
        copy = self.database(target, 'copy%d' % len(options), guard=False)
        done = subprocess.run([shutil.which('psql'), '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', copy], input=dump, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        return dump.decode(), copy

    def test_extension(self):
        pg = self.with_extension('postgres')
        url = self.database(pg, guard=False)
        s = self.account(url, lock=None)
        s.sql('CREATE ROLE app LOGIN; ALTER DATABASE shop OWNER TO app; ALTER TABLE account OWNER TO app')
        code, out, err = self.guard('install', url.replace('user=postgres', 'user=app'), "account='account/' || id")
        self.assertEqual((code, err), (0, ''))
        self.assertIn('as an extension', out)
        s.sql("CALL fence.claim('account/a', 5)")
        with self.assertRaises(Refused):
            Psql(url.replace('user=postgres', 'user=app')).sql('UPDATE fence.mark SET mark = 1') # it is not the app's
        dump, copy = self.copied(pg, url, pg)
        self.assertRegex(dump, r'COPY fence\.mark .*\naccount/a\t5')
        self.assertEqual(Psql(copy).one('SELECT mark FROM fence.mark'), '5')
        # The schema is app's, who made it, so app could take the guard away: an administrator is told so.
        self.assertIn('schema fence belongs to role app', self.guard('install', url)[2])
        self.assertIn('schema fence belongs to role app', self.guard('check', url)[1])
        as_app = url.replace('user=postgres', 'user=app')
        self.assertEqual(self.guard('install', as_app)[0], 0) # which is ALTER EXTENSION UPDATE
        self.assertEqual(self.guard('uninstall', as_app)[0], 0)

    def test_an_old_dump(self):
        """CREATE EXTENSION makes a row of its own for the floor and the server. It must not be what a restored copy goes by."""
        pg, other = self.with_extension('postgres'), self.with_extension('other')
        url = self.database(pg, guard=False)
        s = Psql(url)
        s.sql('CREATE EXTENSION fencelock')
        s.sql("CALL fence.claim('x', 800)")
        self.assertEqual(s.one('SELECT fence.forget(1000)'), '1')
        s.sql("CALL fence.claim('y', 1001)")
        for options in ((), ('--inserts',)):
            copy = self.copied(pg, url, other, *options)[1]
            t = Psql(copy)
            for lock, token in (('x', 500), ('y', 1000)):
                with self.assertRaises(Refused) as e:
                    t.sql("CALL fence.claim('%s', %d)" % (lock, token))
                self.assertEqual(e.exception.word, 'STALE')
            self.assertIn('this is a restored copy', self.guard('check', copy)[1])
            t.sql('SELECT fence.adopt(2000)')
            self.assertNotIn('this is a restored copy', self.guard('check', copy)[1])
        self.assertEqual(s.sql('SELECT floor FROM fence.origin'), ['1000'])


if __name__ == '__main__':
    main()
