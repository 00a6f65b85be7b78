"""`fencelock guard` for mysql://user:password@host:port/database?socket=...: MariaDB and MySQL, through the client program `mariadb` or
`mysql`."""

import os
import re
import secrets
import urllib.parse

from .driver import Usage, pairs_of, tell, tell_found
from .mysql import MySQL, Mysql, guard_sql, protect_sql, run_script, text
from .storage import Refused, Unknown
from .suite import Broken, Skip

PLAIN = re.compile(r'^[A-Za-z0-9_$]+$')
OPERATIONS = {'INSERT', 'UPDATE', 'DELETE'}


def words_of(parts, user, password):
    """Arguments and environment of the client program. The password is in the environment: every user can read arguments."""
    query = dict(urllib.parse.parse_qsl(parts.query))
    words = ['--user=' + user] if user else []
    if 'socket' in query:
        words += ['--socket=' + query['socket']]
    elif parts.hostname:
        words += ['--host=' + parts.hostname, '--protocol=tcp'] + (['--port=%d' % parts.port] if parts.port else [])
    return words, {'MYSQL_PWD': password} if password is not None else {}


class Driver:
    def __init__(self, url):
        self.parts, self.made = urllib.parse.urlsplit(url), None
        self.database = self.parts.path.strip('/')
        if not PLAIN.match(self.database):
            raise Usage("'%s' names no database, or not by a plain name: write mysql://user@host/database" % re.sub(r':[^/@]*@', '@', url)[:80])
        words, env = words_of(self.parts, urllib.parse.unquote(self.parts.username or ''),
                              urllib.parse.unquote(self.parts.password) if self.parts.password is not None else None)
        os.environ.update(env)
        self.words = words
        try:
            self.admin = Mysql(words, 'information_schema')
            self.version = self.admin.one('SELECT VERSION()')
        except Unknown as e:
            raise Unknown('cannot connect: %s' % str(e)[:300]) from None

    def installed(self):
        return self.admin.one("SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = 'fence' AND routine_name = 'claim'") != '0'

    def install(self, tables, as_json):
        pairs = pairs_of(tables)
        for table, _ in pairs:
            self.must_exist(table)
        self.install_procedures()
        for _, found, remedy in self.foreign_parts():
            raise Refused('REFUSED', '%s. %s' % (found, remedy))
        for table, lock in pairs:
            run_script(self.words, protect_sql(self.database, table, lock))
        tell(as_json, 'guard installed in %s%s\nwriters need: GRANT EXECUTE ON PROCEDURE fence.claim, fence.use and fence.admit, and no DROP or TRIGGER' % (
            self.version, ''.join('\n%s: protected, rows belong to the lock in %s' % p for p in pairs)), installed=True, version=self.version,
            protected=dict(pairs))
        return 0

    def install_procedures(self):
        """A second time too. MySQL drops them for that, and with them the rights of those who call them."""
        listed = ("SELECT CONCAT_WS('\x1f', routine_name, user, host) FROM mysql.procs_priv WHERE db = 'fence' AND routine_type = 'PROCEDURE' "
                  "AND FIND_IN_SET('Execute', proc_priv)")
        before = self.admin.sql(listed)
        try:
            run_script(self.words, guard_sql())
        finally: # when it breaks off as well, of the procedures that are there
            there = set(self.admin.sql("SELECT routine_name FROM information_schema.routines WHERE routine_schema = 'fence'"))
            for row in set(before) - set(self.admin.sql(listed)):
                name, user, host = row.split('\x1f')
                if name in there:
                    self.admin.sql('GRANT EXECUTE ON PROCEDURE fence.`%s` TO %s@%s' % (name, text(user), text(host)))

    def must_exist(self, table):
        if not PLAIN.match(table):
            raise Usage("'%s' is no plain name of a table" % table)
        if self.admin.one('SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = %s AND table_name = %s' % (
                text(self.database), text(table))) == '0':
            raise Refused('ERROR', 'there is no table %s.%s' % (self.database, table))

    def must_be_installed(self):
        if not self.installed():
            raise Refused('ERROR', 'there is no guard in this server. Install it: fencelock guard install URL TABLE=LOCK')

    def guarded(self):
        """A dict: schema.table to the operations for which it has a trigger of the guard."""
        found = {}
        for row in self.admin.sql("SELECT CONCAT(event_object_schema, '.', event_object_table, ' ', event_manipulation) FROM "
                                  "information_schema.triggers WHERE action_statement LIKE '%CALL fence.admit%' AND action_timing = 'AFTER'"):
            table, _, operation = row.rpartition(' ')
            found.setdefault(table, set()).add(operation)
        return found

    def check(self, tables, as_json, colours):
        self.must_be_installed()
        rows, guarded = [], self.guarded()
        for table in tables:
            self.must_exist(table)
            if self.database + '.' + table not in guarded:
                rows.append(['bad', '%s is not protected' % table, 'fencelock guard install URL %s=LOCK' % table])
        for table, there in guarded.items():
            for operation in sorted(OPERATIONS - there):
                rows.append(['bad', '%s of %s is not guarded' % (operation, table), 'fencelock guard install URL %s=LOCK' % table.split('.')[1]])
        rows += self.foreign_parts() + self.clusters() + self.older(guarded) + self.engines(guarded) + self.rights(guarded) + self.cascades(guarded) + self.losses()
        if not guarded:
            rows.append(['note', 'no table is protected', 'fencelock guard install URL TABLE=LOCK'])
        return tell_found(rows, sorted(guarded), as_json, colours)

    def foreign_parts(self):
        """What lies in the database of the guard and is not the guard's: who made it first, or made it later, has code or tables inside the guard."""
        admin = self.admin.one("SELECT definer FROM information_schema.routines WHERE routine_schema = 'fence' AND routine_name = 'admit'")
        rows = [['bad', '%s was made by %s, and the guard by %s' % (what, definer, admin), 'Look at it, drop it, and install the guard again.']
                for what, definer in (row.split('\x1f') for row in self.admin.sql(
                    "SELECT CONCAT('procedure fence.', routine_name, '\x1f', definer) FROM information_schema.routines WHERE routine_schema = 'fence' UNION "
                    "SELECT CONCAT('trigger fence.', trigger_name, '\x1f', definer) FROM information_schema.triggers WHERE event_object_schema = 'fence'"))
                if definer != admin]
        ours = 'mark_rises', 'mark_stays', 'origin_rises', 'origin_stays'
        rows += [['bad', 'trigger fence.%s is none of the guard' % name, 'Look at it, then DROP TRIGGER fence.%s' % name] for name in self.admin.sql(
            "SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = 'fence'") if name not in ours]
        columns = {'mark': 'lock varbinary(255) PRI,mark bigint ', 'origin': 'one tinyint PRI,floor bigint ,server varchar(1000) '}
        for table, right in columns.items():
            there = self.admin.one("SELECT GROUP_CONCAT(CONCAT_WS(' ', column_name, REGEXP_REPLACE(column_type, '(int)[(][0-9]+[)]', '\\\\1'), column_key) "
                                   "ORDER BY ordinal_position) FROM information_schema.columns WHERE table_schema = 'fence' AND table_name = %s" % text(table))
            engine = self.admin.one("SELECT CONCAT_WS(' ', table_type, engine) FROM information_schema.tables WHERE table_schema = 'fence' AND table_name = %s"
                                    % text(table))
            if (there, engine) != (right, 'BASE TABLE InnoDB'):
                rows.append(['bad', 'fence.%s is not as the guard makes it' % table, 'Look at it; DROP DATABASE fence, and install the guard again.'])
        return rows

    def clusters(self):
        try:
            self.admin.sql('CALL fence.refuse_cluster()')
            return []
        except Refused as e:
            return [['bad', str(e), 'Use one server with replicas, of which one is written to.']]

    def older(self, guarded):
        """Their triggers compare locks as text, so that a row can be moved to a lock whose name differs only in case."""
        listed = self.admin.sql("SELECT DISTINCT CONCAT(event_object_schema, '.', event_object_table) FROM information_schema.triggers WHERE "
                                "action_statement LIKE '%CALL fence.admit%' AND action_statement NOT LIKE '%USING utf8mb4%'")
        return [['bad', '%s was protected by an older version, which takes names of locks that differ in case for the same' % table,
                 'fencelock guard install URL %s=LOCK' % table.split('.')[1]] for table in listed if table in guarded]

    def engines(self, guarded):
        """ALTER TABLE keeps the triggers, and does not ask whether the new engine can undo what they refuse."""
        rows = []
        for table in guarded:
            schema, name = table.split('.')
            engine = self.admin.one('SELECT t.engine FROM information_schema.tables t LEFT JOIN information_schema.engines e ON e.engine = t.engine WHERE '
                                    "t.table_schema = %s AND t.table_name = %s AND COALESCE(e.transactions, '') <> 'YES'" % (text(schema), text(name)))
            if engine:
                rows.append(['bad', '%s has the engine %s, which cannot undo what is refused' % (table, engine), 'ALTER TABLE %s ENGINE = InnoDB' % table])
        return rows

    def rights(self, guarded):
        """The users who could empty a protected table, drop its triggers, or change marks. Administrators always can."""
        admins = set(self.admin.sql("SELECT grantee FROM information_schema.user_privileges WHERE privilege_type IN ('SUPER', 'CREATE USER')"))
        schemas = {t.split('.')[0] for t in guarded}
        rows = []
        listed = self.admin.sql(
            "SELECT CONCAT_WS('\\n', grantee, privilege_type, '*', '*') FROM information_schema.user_privileges UNION "
            "SELECT CONCAT_WS('\\n', grantee, privilege_type, table_schema, '*') FROM information_schema.schema_privileges UNION "
            "SELECT CONCAT_WS('\\n', grantee, privilege_type, table_schema, table_name) FROM information_schema.table_privileges"
            .replace('\\n', '\x1f'))
        for grantee, right, schema, table in (row.split('\x1f') for row in listed):
            if grantee in admins:
                continue
            where = '%s.%s' % (schema, table)
            if right in ('DROP', 'TRIGGER', 'ALTER') and schema in schemas | {'*'} and (table == '*' or where in guarded):
                rows.append(['bad', '%s can get round the guard: it has the right %s on %s' % (grantee, right, where),
                             'REVOKE %s ON %s FROM %s' % (right, where, grantee)])
            if right in ('INSERT', 'UPDATE', 'DELETE', 'DROP', 'TRIGGER', 'ALTER') and schema in ('fence', '*') and table in ('*', 'mark', 'origin'):
                rows.append(['bad', '%s may change marks: it has the right %s on %s' % (grantee, right, where),
                             'REVOKE %s ON %s FROM %s' % (right, where, grantee)])
        return rows

    def cascades(self, guarded):
        listed = self.admin.sql("SELECT CONCAT(constraint_schema, '.', table_name, ' ', referenced_table_name) FROM information_schema.referential_constraints "
                                "WHERE delete_rule IN ('CASCADE', 'SET NULL') OR update_rule IN ('CASCADE', 'SET NULL')")
        return [['bad', '%s changes by a cascade of %s, which runs no trigger' % (table, parent), 'Make that foreign key RESTRICT.']
                for table, _, parent in (row.partition(' ') for row in listed) if table in guarded]

    def losses(self):
        rows = []
        if self.admin.one('SELECT @@GLOBAL.innodb_flush_log_at_trx_commit') != '1':
            rows.append(['loss', 'innodb_flush_log_at_trx_commit is not 1', 'SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the configuration'])
        if self.admin.one('SELECT @@GLOBAL.log_bin') == '1' and self.admin.one('SELECT @@GLOBAL.sync_binlog') != '1':
            rows.append(['loss', 'sync_binlog is not 1', 'SET GLOBAL sync_binlog = 1, and in the configuration'])
        here = self.admin.sql("SELECT CONCAT_WS('|', server, CONCAT_WS(':', @@hostname, @@server_id, @@datadir)) FROM fence.origin")[0].split('|')
        if here[0] != here[1]:
            rows.append(['loss', 'these marks were made on %s, and this is %s: restored or promoted, they may be old' % tuple(here), 'fencelock guard adopt URL'])
        return rows

    def scratch(self):
        """Makes a database, a guard and a user for the attack alone. It cannot use the installed guard: that one's marks cannot be deleted."""
        self.made = 'fencelock_attack_%s' % secrets.token_hex(4)
        password = secrets.token_urlsafe(24) + 'aA1!'
        fence = self.made + '_fence'
        self.admin.sql('CREATE DATABASE %s' % self.made)
        run_script(self.words, guard_sql(fence))
        self.admin.sql("CREATE USER '%s'@'%%' IDENTIFIED BY %s" % (self.made, text(password)))
        if self.admin.one("SELECT COUNT(*) FROM mysql.user WHERE user = '' AND host <> '%'") != '0':
            self.admin.sql("CREATE USER '%s'@'localhost' IDENTIFIED BY %s" % (self.made, text(password)))
        for host in self.admin.sql("SELECT host FROM mysql.user WHERE user = '%s'" % self.made):
            who = "'%s'@'%s'" % (self.made, host)
            self.admin.sql('GRANT SELECT, INSERT, UPDATE, DELETE ON %s.* TO %s' % (self.made, who))
            for procedure in ('claim', '`use`', 'admit'):
                self.admin.sql('GRANT EXECUTE ON PROCEDURE %s.%s TO %s' % (fence, procedure, who))
        words, _ = words_of(self.parts, self.made, None)
        return MySQL(self.words, words, database=self.made, fence=fence, writer_password=password)

    def drop_scratch(self):
        if self.made:
            self.admin.sql('DROP DATABASE IF EXISTS %s' % self.made)
            self.admin.sql('DROP DATABASE IF EXISTS %s_fence' % self.made)
            for host in self.admin.sql("SELECT host FROM mysql.user WHERE user = '%s'" % self.made):
                self.admin.sql("DROP USER '%s'@'%s'" % (self.made, host))

    def attack_tables(self, report, tables):
        """Tries statements without a token on the user's tables and rolls each back. Leaves out TRUNCATE, which cannot be rolled back."""
        for table in tables:
            self.must_exist(table)
            name = '`%s`.`%s`' % (self.database, table)
            column = self.admin.one('SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND '
                                    "extra NOT LIKE '%%GENERATED%%' ORDER BY ordinal_position LIMIT 1" % (text(self.database), text(table)))
            for what in ('UPDATE %s SET `%s` = `%s`' % (name, column, column), 'DELETE FROM %s' % name):
                report.run(4, '%s %s' % (what.split()[0], table), self.rolled_back, name, what)

    def rolled_back(self, table, statement):
        session = Mysql(self.words, self.database)
        session.sql('START TRANSACTION')
        try:
            if session.one('SELECT COUNT(*) FROM (SELECT 1 FROM %s LIMIT 1) t' % table) == '0':
                raise Skip('the table is empty')
            try:
                session.sql(statement)
            except Refused as e:
                if e.word in ('NOTOKEN', 'REFUSED', 'NOLOCK'):
                    return e.word
                raise Skip(str(e)) from None
            raise Broken('was carried out without a token (and rolled back)')
        finally:
            session.sql('ROLLBACK')
            session.end()

    def adopt(self, token, as_json):
        self.must_be_installed()
        self.admin.sql('CALL fence.adopt(%d)' % token)
        tell(as_json, 'every token below %d is refused from here on' % token, adopted=True, token=token)
        return 0

    def uninstall(self, as_json):
        self.must_be_installed()
        for table in self.guarded():
            run_script(self.words, protect_sql(*table.split('.'), 'off'))
        run_script(self.words, 'DROP DATABASE fence;')
        tell(as_json, 'the guard and its marks are gone: nothing is fenced here any more', uninstalled=True)
        return 0
