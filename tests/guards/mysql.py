#!/usr/bin/python3
"""The guard of MariaDB on a real server: every attack, with the guard and without; the command; a node of Galera, which is
refused. FENCELOCK_MYSQLD: a mysqld of MySQL 8 or newer, for the same again."""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', '..', 'src', 'guards', 'kit')]
from guardkit.mysql import MySQL, Mysql, protect_sql, run_script
from guardkit.storage import Refused
from guardkit.suite import Suite
from harness import PATIENCE_S, Case, Cluster, binary, free_ports, main, seed, wait_until
from servers import FULL, ROOT, ROUNDS, GuardCase, make_directory, unprivileged


class PatientMysql(Mysql):
    def sql(self, statement, seconds=PATIENCE_S):
        return super().sql(statement, seconds)


class MariaDB:
    def __init__(self, lab):
        self.lab, self.data = lab, lab.path('mariadb')
        self.words, self.user = unprivileged('mysql')
        self.socket = os.path.join(tempfile.gettempdir(), 'fencelock-maria-%d.sock' % os.getpid())
        make_directory(self.data, self.user)
        self.initialize()
        self.root = ['--no-defaults', '-uroot', '-S', self.socket]
        self.writer = ['--no-defaults', '-uapp', '-S', self.socket]

    def program(self):
        return ['/usr/sbin/mariadbd', '--no-defaults']

    def initialize(self):
        done = subprocess.run(self.words + ['mariadb-install-db', '--no-defaults', '--datadir=' + self.data, '--skip-test-db',
                                            '--auth-root-authentication-method=normal'], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, cwd='/')
        assert done.returncode == 0, done.stdout.decode()

    def url(self):
        return 'mysql://root@localhost/shop?socket=' + self.socket

    def start(self, *more):
        self.process = self.lab.start(self.words + self.program() + [
            '--datadir=' + self.data, '--socket=' + self.socket, '--skip-networking', '--pid-file=' + self.data + '/pid',
            '--innodb-buffer-pool-size=32M', '--innodb-lock-wait-timeout=20',
            '--skip-log-bin'] + list(more), 'mariadb')
        wait_until(lambda: subprocess.run(['mariadb'] + self.root + ['-e', 'SELECT 1'], stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL).returncode == 0, 'an answer of MariaDB')
        return self

    def run(self, sql):
        done = subprocess.run(['mariadb'] + self.root, input=sql.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout.decode()

    def kill(self):
        self.process.kill()


class MySQLServer(MariaDB):
    """Without its two options, and with no file of options, it opens one more port and wants a directory that is not there."""

    def program(self):
        return [os.environ['FENCELOCK_MYSQLD'], '--no-defaults', '--mysqlx=OFF', '--secure-file-priv=NULL']

    def initialize(self):
        done = subprocess.run(self.words + self.program() + ['--initialize-insecure', '--datadir=' + os.path.join(self.data, 'd')],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd='/')
        assert done.returncode == 0, done.stdout.decode()
        self.data = os.path.join(self.data, 'd')


def statements_of(script):
    """Those of a script for the client program, which may change the delimiter."""
    found, text, delimiter = [], '', ';'
    for line in script.splitlines():
        if line.startswith('DELIMITER'):
            delimiter = line.split()[1]
            continue
        text += line + '\n'
        if line.endswith(delimiter):
            found.append(text.strip()[:-len(delimiter)])
            text = ''
    return found


class MySQLOff(MySQL):
    def protect(self, on):
        pass


@unittest.skipUnless(os.path.exists('/usr/sbin/mariadbd') and shutil.which('mariadb'), 'mariadb-server is not installed')
class MariaDBGuard(GuardCase):
    SERVER = MariaDB

    def setUp(self):
        super().setUp()
        self.server = self.SERVER(self.lab).start()
        with open(os.path.join(ROOT, 'src', 'guards', 'mysql', 'guard.sql')) as f:
            script = f.read()
        for _ in range(2): # again does no harm
            self.server.run(script)
        self.server.run("CREATE DATABASE shop; CREATE USER app@localhost; GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO app@localhost;"
                        "GRANT EXECUTE ON PROCEDURE fence.claim TO app@localhost; GRANT EXECUTE ON PROCEDURE fence.`use` TO app@localhost;"
                        "GRANT EXECUTE ON PROCEDURE fence.admit TO app@localhost;")

    def suite(self, kind):
        storage = kind(self.server.root, self.server.writer, self.server)
        self.addCleanup(storage.close)
        return Suite(storage, seed(), rounds=ROUNDS, crashes=2)

    def test_every_attack(self):
        report = self.suite(MySQL).run(None if FULL else ('kill',))
        self.note_attacks(report)
        self.assertTrue(report.ok())

    def test_with_the_guard_off_updates_are_lost(self):
        found = self.until_lost(self.suite(MySQLOff), 'random', 'stale UPDATE')
        self.assertEqual(found['stale UPDATE'][0], 'BROKEN')

    def test_what_somebody_else_made_first(self):
        """A user with rights on the database of the guard leaves a trigger, a procedure and a table there."""
        url = self.server.url()
        self.server.run("CREATE USER w1@localhost; GRANT ALL ON fence.* TO w1@localhost")
        first = Mysql(['-uw1', '-S', self.server.socket], 'fence')
        self.addCleanup(first.end)
        first.sql('CREATE PROCEDURE fence.helper() SELECT 1')
        first.sql('CREATE TRIGGER fence.other AFTER INSERT ON fence.mark FOR EACH ROW SET @x = 1')
        self.server.run('REVOKE ALL ON fence.* FROM w1@localhost')
        code, out, _ = self.guard('check', url)
        self.assertEqual(code, 1)
        for word in ('procedure fence.helper was made by w1@localhost', 'trigger fence.other was made by w1@localhost', 'fence.other is none of the guard'):
            self.assertIn(word, out)
        self.assertIn('fence.helper was made by w1@localhost', self.guard('install', url)[2])
        self.server.run('DROP PROCEDURE fence.helper; DROP TRIGGER fence.other')
        self.assertEqual(self.guard('install', url)[0], 0)
        self.server.run('ALTER TABLE fence.mark ENGINE = MyISAM')
        self.assertIn('fence.mark is not as the guard makes it', self.guard('check', url)[1])
        self.assertIn('fence.mark is not as the guard makes it', self.guard('install', url)[2])

    def test_install_check_attack_adopt_uninstall(self):
        url = self.server.url()
        self.server.run("CREATE TABLE shop.item (id VARCHAR(20) PRIMARY KEY, n INT); INSERT INTO shop.item VALUES ('a', 1)")
        for _ in range(2): # again does no harm
            code, out, err = self.guard('install', url, "item=CONCAT('item/', {row}.id)")
            self.assertEqual((code, err), (0, ''))
        self.assertEqual(self.guard('check', url, 'item'), (0, '1 table protected; nothing found wrong\n', ''))
        for wrong in ('nosuch', "CONCAT('item/', {row}.nosuch)"): # and what was installed before stays
            code, _, err = self.guard('install', url, 'item=' + wrong)
            self.assertEqual(code, 1)
            self.assertIn('nosuch', err)
        self.assertEqual(self.guard('check', url, 'item'), (0, '1 table protected; nothing found wrong\n', ''))
        code, out, err = self.guard('attack', url, 'item', '--json', '--seed', '5')
        report = json.loads(out)
        self.assertEqual((code, report['ok'], err), (0, True, ''), [a for a in report['attacks'] if a['outcome'] == 'BROKEN'])
        self.assertIn('UPDATE item', [a['attack'] for a in report['attacks']])
        s = Mysql(self.server.root)
        self.addCleanup(s.end)
        self.assertEqual(s.sql("SHOW DATABASES LIKE 'fencelock%'"), [])
        self.assertEqual(s.sql("SELECT user FROM mysql.user WHERE user LIKE 'fencelock%'"), [])
        self.server.run("GRANT DROP, TRIGGER ON shop.* TO app@localhost; GRANT UPDATE ON fence.mark TO app@localhost;"
                        'CREATE TABLE shop.child (id VARCHAR(20) PRIMARY KEY, FOREIGN KEY (id) REFERENCES shop.item (id) ON DELETE CASCADE)')
        self.assertEqual(self.guard('install', url, 'child=id')[0], 0)
        code, out, _ = self.guard('check', url)
        self.assertEqual(code, 1)
        for words in ('it has the right DROP', 'it has the right TRIGGER', 'may change marks', 'changes by a cascade of item'):
            self.assertIn(words, out)
        s.sql("CALL fence.claim('item/a', 3)")
        cluster = Cluster(self.lab, 1).start()
        for _ in range(9):
            cluster.nodes[0].call('TOKEN', 'x')
        self.server.run("UPDATE fence.origin SET server = 'another:1:/'") # as after a restore
        self.assertIn('restored or promoted', self.guard('check', url)[1])
        code, out, err = self.guard('adopt', url, '--nodes', cluster.nodes[0].address)
        self.assertEqual((code, err), (0, ''))
        self.assertNotIn('restored', self.guard('check', url)[1])
        for lock in ('item/a', 'new'):
            with self.assertRaises(Refused) as e:
                s.sql("CALL fence.claim('%s', 9)" % lock)
            self.assertEqual(e.exception.word, 'STALE')
        with self.assertRaises(Refused):
            s.sql("UPDATE shop.item SET n = 666")
        self.assertEqual(self.guard('uninstall', url)[0], 0)
        s.sql('UPDATE shop.item SET n = 2')
        self.assertEqual(s.sql("SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = 'shop'"), [])

    def session(self, words=None):
        session = PatientMysql(words or self.server.root)
        self.addCleanup(session.end)
        return session

    def refused(self, session, statement):
        with self.assertRaises(Refused, msg=statement) as e:
            session.sql(statement, PATIENCE_S)
        return e.exception.word

    def test_a_new_guard_that_breaks_off_leaves_the_old_one_on(self):
        """At each statement of protect.sh: while it is under way no write without a token is done, and none after its connection ended."""
        self.server.run('CREATE TABLE shop.item (id VARCHAR(20) PRIMARY KEY, n INT) ENGINE = InnoDB')
        script = statements_of(protect_sql('shop', 'item', 'id'))
        self.server.run("INSERT INTO shop.item VALUES ('a', 1);" + protect_sql('shop', 'item', 'id'))
        writer = self.session()
        writes = ('UPDATE item SET n = 666', 'DELETE FROM item', "INSERT INTO item VALUES ('b', 666)")
        for n in range(1, len(script) + 1):
            admin = self.session()
            for statement in script[:n]:
                admin.judged(admin.ask('DELIMITER //\n%s//\nDELIMITER ;' % statement, PATIENCE_S))
            writer.sql('SET lock_wait_timeout = 0') # MySQL takes that for 1
            for write in writes:
                self.assertIn(self.refused(writer, write), ('NOTOKEN', 'BUSY'), script[n - 1])
            admin.end()
            writer.sql('SET lock_wait_timeout = 3600') # the server may hear of the end later
            for write in writes:
                self.assertEqual(self.refused(writer, write), 'NOTOKEN', script[n - 1])
        self.assertEqual(writer.sql('SELECT * FROM item'), ['a\t1'])
        self.server.run(protect_sql('shop', 'item', 'id'))
        self.assertEqual(writer.one("SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = 'shop'"), '3')

    def test_tables_without_transactions_are_refused(self):
        """What their triggers refuse is stored all the same."""
        url, s = self.server.url(), self.session()
        engines = s.sql("SELECT engine FROM information_schema.engines WHERE transactions = 'NO' AND engine IN ('MyISAM', 'Aria', 'MEMORY')")
        self.assertIn('MyISAM', engines)
        for engine in engines:
            table = engine.lower()
            self.server.run('CREATE TABLE shop.%s (id VARCHAR(20) PRIMARY KEY, n INT) ENGINE = %s' % (table, engine))
            code, out, err = self.guard('install', url, table + '=id')
            self.assertEqual((code, out), (1, ''))
            for words in ('shop.' + table, engine, 'ALTER TABLE', 'ENGINE = InnoDB'):
                self.assertIn(words, err)
            self.assertIn(engine, self.refused_script(protect_sql('shop', table, 'id'))) # by hand
        self.assertEqual(s.one("SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = 'shop'"), '0')
        self.server.run('CREATE TABLE shop.item (id VARCHAR(20) PRIMARY KEY, n INT) ENGINE = InnoDB')
        self.assertEqual(self.guard('install', url, 'item=id')[0], 0)
        self.assertEqual(self.guard('check', url)[0], 0)
        self.server.run('ALTER TABLE shop.item ENGINE = MyISAM')
        code, out, _ = self.guard('check', url)
        self.assertEqual(code, 1)
        self.assertIn('bad ', out)
        self.assertIn('shop.item has the engine MyISAM', out)

    def refused_script(self, script):
        with self.assertRaises(Refused) as e:
            run_script(self.server.root, script)
        return str(e.exception)

    def test_locks_are_bytes_whatever_the_columns_character_set(self):
        """A lock is what the client named, in UTF-8: letters in the column's own character set are no other lock's bytes."""
        for n, kind in enumerate(('VARCHAR(60) CHARACTER SET utf8mb4', 'VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci',
                                  'TEXT CHARACTER SET utf8', 'VARCHAR(60) CHARACTER SET latin1', 'VARCHAR(60) CHARACTER SET utf16', 'VARBINARY(60)')):
            table, s = 'kind%d' % n, self.session()
            self.server.run('CREATE TABLE shop.%s (id INT PRIMARY KEY, `lock` %s, n INT) ENGINE = InnoDB' % (table, kind))
            values = "(1, '\u00fc', 1), (2, '\u00c3\u00bc', 1)" # the second in latin1 has the bytes of the first in UTF-8
            values += ", (3, '\u6163\u6374', 1)" * ('latin1' not in kind) # in utf16, the bytes of 'acct'
            s.sql('INSERT INTO %s VALUES %s' % (table, values))
            self.server.run(protect_sql('shop', table, 'lock'))
            for lock, own in (('\u00fc', 1), ('\u00c3\u00bc', 2), ('acct', 0), ('\u6163\u6374', 3)):
                s.sql("CALL fence.claim('%s', 5)" % lock)
                for row in (1, 2, 3):
                    update = 'UPDATE %s SET n = n + 1 WHERE id = %d' % (table, row)
                    if row == own or (row == 3 and 'latin1' in kind):
                        s.sql(update)
                    else:
                        self.assertEqual(self.refused(s, update), 'NOTOKEN', (kind, lock, row))

    def test_letters_of_an_expression_are_utf8(self):
        self.server.run("CREATE TABLE shop.item (id INT PRIMARY KEY, n INT) ENGINE = InnoDB; INSERT INTO shop.item VALUES (1, 1)")
        self.assertEqual(self.guard('install', self.server.url(), "item=CONCAT('\u00fc/',\n{row}.id)", env=dict(os.environ, LC_ALL='C'))[0], 0)
        s = self.session()
        s.sql("CALL fence.claim('\u00fc/1', 5)")
        s.sql('UPDATE item SET n = 2')

    def test_check_finds_triggers_of_an_older_version(self):
        self.server.run('CREATE TABLE shop.item (id VARCHAR(20) PRIMARY KEY, n INT) ENGINE = InnoDB;'
                        'CREATE TRIGGER shop.fence_item_insert AFTER INSERT ON shop.item FOR EACH ROW CALL fence.admit(NEW.id);'
                        'CREATE TRIGGER shop.fence_item_delete AFTER DELETE ON shop.item FOR EACH ROW CALL fence.admit(OLD.id);'
                        'CREATE TRIGGER shop.fence_item_update AFTER UPDATE ON shop.item FOR EACH ROW CALL fence.admit(OLD.id);')
        code, out, _ = self.guard('check', self.server.url())
        self.assertEqual(code, 1)
        self.assertIn('shop.item was protected by an older version', out)
        self.assertEqual(self.guard('install', self.server.url(), 'item=id')[0], 0)
        self.assertEqual(self.guard('check', self.server.url()), (0, '1 table protected; nothing found wrong\n', ''))

    def test_a_claim_commits_what_was_open_also_when_it_is_refused(self):
        s = self.session()
        s.sql('CREATE TABLE free (n INT) ENGINE = InnoDB')
        s.sql("CALL fence.claim('acct', 7)")
        for n, (call, word) in enumerate((("claim('', 8)", 'REFUSED'), ("claim('acct', 0)", 'REFUSED'), ("claim('acct', 6)", 'STALE'),
                                          ("forget('x')", 'REFUSED'))):
            s.sql('START TRANSACTION')
            s.sql('INSERT INTO free VALUES (%d)' % n)
            self.assertEqual(self.refused(s, 'CALL fence.' + call), word)
            s.sql('ROLLBACK')
            self.assertEqual(s.one('SELECT COUNT(*) FROM free'), str(n + 1), call)

    def test_a_second_install_leaves_writers_their_rights(self):
        self.assertEqual(self.guard('install', self.server.url())[0], 0)
        s = self.session(self.server.writer)
        s.sql("CALL fence.claim('acct', 7)")
        s.sql("CALL fence.`use`('acct', 7)")
        self.assertEqual(self.refused(s, 'CALL fence.forget(9)'), '42000') # and no more than they had


GALERA = sorted(glob.glob('/usr/lib/galera/libgalera_smm.so') + glob.glob('/usr/lib/*/galera/libgalera_smm.so'))


@unittest.skipUnless(os.path.exists('/usr/sbin/mariadbd') and GALERA, 'galera-4 is not installed')
class Galera(Case):
    """A cluster of one node is one all the same: others may join it at any time."""

    def test_refused_at_install(self):
        server = MariaDB(self.lab).start('--wsrep-on=ON', '--wsrep-provider=' + GALERA[0], '--wsrep-cluster-address=gcomm://', '--wsrep-new-cluster',
                                         '--binlog-format=ROW', '--innodb-autoinc-lock-mode=2', '--wsrep-node-address=127.0.0.1',
                                         '--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d' % free_ports(1)[0])
        wait_until(lambda: Mysql(server.root, 'mysql').sql("SHOW STATUS LIKE 'wsrep_ready'") == ['wsrep_ready\tON'], 'a node that is ready')
        server.run('CREATE DATABASE shop; CREATE TABLE shop.item (id VARCHAR(20) PRIMARY KEY, n INT) ENGINE = InnoDB')
        done = subprocess.run([binary('fencelock'), 'guard', 'install', server.url(), 'item=id'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(b'Galera', done.stderr)
        with open(os.path.join(ROOT, 'src', 'guards', 'mysql', 'guard.sql')) as f:
            done = subprocess.run(['mariadb'] + server.root, stdin=f, stdout=subprocess.PIPE, stderr=subprocess.PIPE) # by hand
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'Galera', done.stderr)
        for what in ('tables', 'triggers'):
            self.assertEqual(Mysql(server.root, 'mysql').one("SELECT COUNT(*) FROM information_schema.%s WHERE %s_schema IN ('fence', 'shop') "
                                                             % (what, what[:-1]) + ('' if what == 'triggers' else "AND table_name <> 'item'")), '0')


@unittest.skipUnless(os.environ.get('FENCELOCK_MYSQLD') and shutil.which('mariadb'), 'FENCELOCK_MYSQLD names no mysqld')
class MySQLGuard(MariaDBGuard):
    SERVER = MySQLServer


if __name__ == '__main__':
    main()
