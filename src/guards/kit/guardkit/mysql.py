"""The adapter for MariaDB and MySQL with the guard of src/guards/mysql, through the mariadb client."""

import os
import re
import subprocess
import time

from .child import Child, program
from .storage import Refused, Storage, Unknown
from .suite import Broken, must, must_refuse

WORDS = {'FL001': 'STALE', 'FL002': 'NOTOKEN', 'FL003': 'NOTCLAIMED', 'FL005': 'NOLOCK', 'FL006': 'REFUSED', '40001': 'BUSY'}
ERROR = re.compile(r'^ERROR (\d+) \((\w{5})\)(?: at line \d+)?:? ?(.*)')
HERE = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..', 'mysql'))
GONE = (2002, 2003, 2006, 2013, 1927, 4031)


def text(value):
    return "'" + str(value).replace('\\', '\\\\').replace("'", "''") + "'"


class Mysql(Child):
    def __init__(self, words, database='shop', password=None):
        super().__init__([program('mariadb', 'mysql')] + words + ['-N', '-B', '--force', '--unbuffered', '--skip-reconnect', '--raw',
                                                                  '--default-character-set=utf8mb4', database],
                         {} if password is None else {'MYSQL_PWD': password})

    def marker_command(self, marker):
        return "SELECT '%s';" % marker

    def judged(self, lines):
        for line in lines:
            found = ERROR.match(line)
            if found and int(found.group(1)) in GONE:
                raise Unknown(line)
            if found:
                word = 'BUSY' if found.group(1) in ('1205', '1213', '1020') else WORDS.get(found.group(2), found.group(2))
                raise Refused(word, found.group(3))
        return lines

    def sql(self, statement, seconds=30.0):
        return self.judged(self.ask(statement + ';', seconds))

    def one(self, statement):
        rows = self.sql(statement)
        return rows[0] if rows else None


def run_script(words, sql):
    """Runs a whole script through the client program, which understands DELIMITER."""
    done = subprocess.run([program('mariadb', 'mysql')] + words, input=sql.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise Refused('ERROR', done.stdout.decode(errors='replace').strip().split('\n')[-1])


def guard_sql(fence='fence'):
    """fence: the name of the schema; attacks use a second one beside the installed one."""
    with open(os.path.join(HERE, 'guard.sql')) as f:
        return re.sub(r'\bfence\.', fence + '.', f.read()).replace('DATABASE IF NOT EXISTS fence ', 'DATABASE IF NOT EXISTS %s ' % fence)


def protect_sql(database, table, lock, fence='fence'):
    done = subprocess.run([os.path.join(HERE, 'protect.sh'), database, table, lock], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=dict(os.environ, FENCE_SCHEMA=fence))
    if done.returncode:
        raise Refused('ERROR', done.stderr.decode().strip())
    return done.stdout.decode()


class MySQL(Storage):
    """root: arguments of a connection with all rights; writer: of one with a writer's rights."""

    kinds = ['UPDATE', 'UPDATE in autocommit', 'upsert', 'REPLACE', 'DELETE and INSERT', 'UPDATE at READ COMMITTED', 'UPDATE at SERIALIZABLE']

    def __init__(self, root, writer, server=None, database='shop', fence='fence', writer_password=None):
        self.root, self.writer, self.server, self.sessions = root, writer, server, []
        self.database, self.fence, self.writer_password = database, fence, writer_password
        self.admin = Mysql(root, database)
        version = self.admin.one('SELECT VERSION()')
        self.name = ('MariaDB ' if 'MariaDB' in version else 'MySQL ') + version.split('-')[0]
        self.admin.sql('CREATE TABLE account (id VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, '
                       '`lock` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, balance TEXT CHARACTER SET utf8mb4) ENGINE = InnoDB')
        self.protect(True)
        if server is not None:
            self.restart = self.kill_and_start

    def protect(self, on):
        run_script(self.root, protect_sql(self.database, 'account', 'lock' if on else 'off', self.fence))

    def kill_and_start(self):
        self.server.kill()
        self.server.start()
        self.admin = Mysql(self.root, self.database)

    def open(self):
        session = Mysql(self.writer, self.database, self.writer_password)
        self.sessions.append(session)
        return session

    def create(self, key, lock, value):
        held = 'SET @fence_lock = %s, @fence_token = 1' % text(lock)
        self.admin.sql('INSERT INTO %s.mark VALUES (%s, 1)' % (self.fence, text(lock))) # with the smallest token, as the first holder would
        self.admin.sql(held)
        self.admin.sql('INSERT INTO account VALUES (%s, %s, %s)' % (text(key), text(lock), text(value)))

    def claim(self, session, lock, token):
        session.sql('CALL %s.claim(%s, %s)' % (self.fence, text(lock), text(token)))

    def read(self, session, lock, key):
        return session.one('SELECT balance FROM account WHERE id = %s' % text(key))

    def write(self, session, lock, token, key, value, how):
        if str(token).isdigit() and int(token) > 0:
            session.sql('SET @fence_lock = %s, @fence_token = %s' % (text(lock), token)) # no check but the trigger's
        else:
            session.sql('CALL %s.`use`(%s, %s)' % (self.fence, text(lock), text(token)))
        update = 'UPDATE account SET balance = %s WHERE id = %s' % (text(value), text(key))
        row = 'account VALUES (%s, %s, %s)' % (text(key), text(lock), text(value))
        if how == 'UPDATE in autocommit':
            return self.must_find(session, update)
        if how == 'upsert':
            return session.sql('INSERT INTO %s ON DUPLICATE KEY UPDATE balance = VALUES(balance)' % row)
        if how == 'REPLACE':
            return session.sql('REPLACE INTO ' + row)
        level = how.split(' at ')[1] if ' at ' in how else 'REPEATABLE READ'
        session.sql('SET TRANSACTION ISOLATION LEVEL ' + level)
        session.sql('START TRANSACTION')
        try:
            if how == 'DELETE and INSERT':
                self.must_find(session, 'DELETE FROM account WHERE id = %s' % text(key))
                session.sql('INSERT INTO ' + row)
            else:
                self.must_find(session, update)
            session.sql('COMMIT')
        except Refused:
            session.sql('ROLLBACK')
            raise

    @staticmethod
    def must_find(session, statement):
        if session.sql(statement + '; SELECT ROW_COUNT()')[-1] == '0': # changed; what the suite writes is always new
            raise Refused('NOROW', 'no row was changed')

    def mark(self, session, lock):
        return int(self.admin.one('SELECT mark FROM %s.mark WHERE `lock` = %s' % (self.fence, text(lock))) or 0)

    def bypasses(self):
        def sql(statement, admin=False):
            def act(session, lock, key, value):
                if admin:
                    session = Mysql(self.root, self.database)
                    self.sessions.append(session)
                session.sql(statement.format(lock=text(lock), key=text(key), value=text(value), fence=self.fence))
            return act
        yield 'UPDATE without a token', sql('UPDATE account SET balance = {value} WHERE id = {key}')
        yield 'DELETE without a token', sql('DELETE FROM account WHERE id = {key}')
        yield 'REPLACE without a token', sql('REPLACE INTO account VALUES ({key}, {lock}, {value})')
        yield 'upsert without a token', sql('INSERT INTO account VALUES ({key}, {lock}, {value}) ON DUPLICATE KEY UPDATE balance = {value}')
        yield 'TRUNCATE by a writer', sql('TRUNCATE account')
        yield 'row moved to another lock', sql("UPDATE account SET `lock` = 'x', balance = {value} WHERE id = {key}")
        yield 'row moved to no lock', sql('UPDATE account SET `lock` = NULL, balance = {value} WHERE id = {key}')
        yield 'forged token', sql('SET @fence_lock = {lock}, @fence_token = 9007199254740991; UPDATE account SET balance = {value} WHERE id = {key}')
        yield 'trigger dropped by a writer', sql('DROP TRIGGER fence_account_update')
        yield 'UPDATE by an administrator', sql('UPDATE account SET balance = {value} WHERE id = {key}', True)
        for who, admin in (('a writer', False), ('an administrator', True)):
            yield 'mark lowered by ' + who, sql('UPDATE {fence}.mark SET mark = 1', admin)
            yield 'mark deleted by ' + who, sql('DELETE FROM {fence}.mark', admin)
            yield 'mark replaced by ' + who, sql('REPLACE INTO {fence}.mark VALUES ({lock}, 1)', admin)

    def own(self):
        for level in ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'):
            yield 7, 'claim while a write is open, ' + level, lambda suite, level=level: self.late_commit(suite, level)
            yield 7, 'write after a newer claim, ' + level, lambda suite, level=level: self.overtaken(suite, level)
        yield 3, 'claim in a transaction with an old snapshot', self.old_snapshot
        yield 1, 'savepoint, write refused, rollback to', self.savepoint
        for what, change in (('another lock', lambda lock: lock + 'x'), ('its lock in capitals', str.upper), ('its lock and a space', lambda lock: lock + ' '),
                             ('its lock with an accent', lambda lock: lock.replace('o', 'ó'))):
            yield 6, 'row moved by its holder to ' + what, lambda suite, change=change: self.moved(suite, change)
        yield 10, 'holder paused in its transaction', self.paused

    def begin(self, suite, level):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token() + 1, suite.token() + 1
        self.claim(a, lock, old)
        a.sql('SET TRANSACTION ISOLATION LEVEL ' + level)
        a.sql('START TRANSACTION')
        return key, lock, a, b, old, new

    def late_commit(self, suite, level):
        key, lock, a, b, old, new = self.begin(suite, level)
        a.sql('UPDATE account SET balance = 101 WHERE id = %s' % text(key))
        b.start('CALL %s.claim(%s, %d);' % (self.fence, text(lock), new))
        answer = b.finish(0.3)
        a.sql('COMMIT')
        must(answer is None, 'the claim was answered while an older write was open, and that was committed')
        b.judged(b.finish(30))
        must(self.read(b, lock, key) == '101', 'reads %s after an acknowledged write of 101', self.read(b, lock, key))

    def overtaken(self, suite, level):
        key, lock, a, b, old, new = self.begin(suite, level)
        if level != 'SERIALIZABLE': # where reading locks the row
            self.read(a, lock, key)
        self.claim(b, lock, new)
        try:
            a.sql('UPDATE account SET balance = 666 WHERE id = %s' % text(key))
        except Refused:
            pass
        a.sql('COMMIT')
        must(self.read(b, lock, key) == '100', 'the value is %s', self.read(b, lock, key))

    def old_snapshot(self, suite):
        key, lock, a, b, old, new = self.begin(suite, 'REPEATABLE READ')
        b.sql('START TRANSACTION WITH CONSISTENT SNAPSHOT')
        a.sql('UPDATE account SET balance = 101 WHERE id = %s' % text(key))
        a.sql('COMMIT')
        self.claim(b, lock, new)
        must(self.read(b, lock, key) == '101', 'reads %s, older than its claim', self.read(b, lock, key))

    def savepoint(self, suite):
        key, lock, a, b, old, new = self.begin(suite, 'REPEATABLE READ')
        self.claim(b, lock, new)
        for statement in ('SAVEPOINT s', 'UPDATE account SET balance = 666', 'ROLLBACK TO s',
                          'UPDATE account SET balance = 666 WHERE id = %s' % text(key), 'COMMIT'):
            a.ask(statement + ';')
        must(self.read(b, lock, key) == '100', 'the value is %s', self.read(b, lock, key))

    def moved(self, suite, change):
        """By one who may write the row as it was, and has no token for the lock to which it would belong."""
        key, lock = suite.fresh('100')
        a, token = self.open(), suite.token()
        self.claim(a, lock, token)
        self.write(a, lock, token, key, '101', self.kinds[0])
        must_refuse('NOTOKEN', 'the move', a.sql, 'UPDATE account SET `lock` = %s WHERE id = %s' % (text(change(lock)), text(key)))
        now = a.one('SELECT HEX(`lock`) FROM account WHERE id = %s' % text(key))
        must(now == lock.encode().hex().upper(), 'the lock is now %s', now)

    def paused(self, suite):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token() + 1, suite.token() + 1
        a.sql('SET @fence_idle_limit_s = 1')
        self.claim(a, lock, old)
        a.sql('START TRANSACTION')
        a.sql('UPDATE account SET balance = 101 WHERE id = %s' % text(key))
        began = time.monotonic()
        b.start('CALL %s.claim(%s, %d);' % (self.fence, text(lock), new))
        answer = b.finish(15)
        if answer is None:
            a.end()
            raise Broken('the successor waited 15 s, until the holder was ended by hand')
        b.judged(answer)
        must(self.read(b, lock, key) == '100', 'the value is %s', self.read(b, lock, key))
        return 'the successor had to wait %.1f s' % (time.monotonic() - began)

    def close(self):
        for session in self.sessions + [self.admin]:
            session.end()
