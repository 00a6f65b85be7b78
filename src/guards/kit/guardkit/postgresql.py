"""The adapter for PostgreSQL with the guard of src/guards/postgresql, through psql."""

import json
import os
import re
import time

from .child import Child, program
from .storage import Refused, Storage, Unknown
from .suite import Broken, Skip, must, must_refuse

WORDS = {'44L01': 'STALE', '44L02': 'NOTOKEN', '44L03': 'NOTCLAIMED', '55L04': 'BUSY', '44L05': 'NOLOCK', '44L06': 'REFUSED',
         '40001': 'BUSY', '40P01': 'BUSY', '55P03': 'BUSY'}
GONE = ('57P01', '57P02', '57P03', '25P03', '08006')
# The first word of a message is in the server's language; notices and warnings have codes from 00 to 02.
ERROR = re.compile(r'^(?:psql:[^ ]* )?[^\s:]+:  (?!0[012])([0-9A-Z]{5}): (.*)')
ISOLATION = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')


def text(value):
    return "'" + str(value).replace("'", "''") + "'"


class Psql(Child):
    def __init__(self, url, role=None):
        super().__init__([program('psql'), '-XqAtw', '-v', 'VERBOSITY=verbose', '-v', 'ON_ERROR_STOP=0', '-d', url],
                         {'PGCLIENTENCODING': 'UTF8', 'PGCONNECT_TIMEOUT': '10', 'LC_ALL': 'C.UTF-8'})
        self.sql('SET client_min_messages = error' + ('' if role is None else '; SET ROLE %s' % role))

    def marker_command(self, marker):
        return '\\echo ' + marker

    def judged(self, lines):
        for line in lines:
            found = ERROR.match(line)
            if found and found.group(1) in GONE:
                raise Unknown(line)
            if found:
                raise Refused(WORDS.get(found.group(1), found.group(1)), found.group(2))
        return lines

    def sql(self, statement, seconds=15.0):
        return self.judged(self.ask(statement if statement.endswith('\n') else statement + ';', seconds))

    def must_find(self, statement):
        """A statement that finds no row is no error in SQL, but no write either. So the count of rows is checked."""
        rows = self.sql(statement)
        if 'RETURNING' in statement and rows in ([], ['0']):
            raise Refused('NOROW', 'no row was changed')

    def transaction(self, *statements, level='READ COMMITTED'):
        self.sql('BEGIN ISOLATION LEVEL ' + level)
        try:
            for statement in statements:
                self.must_find(statement)
            self.sql('COMMIT')
        except Refused:
            self.sql('ROLLBACK')
            raise

    def one(self, statement):
        rows = self.sql(statement)
        return rows[0] if rows else None


class PostgreSQL(Storage):
    """url: of a scratch database in which the guard is installed; made by scratch()."""

    name = 'PostgreSQL'

    def __init__(self, url, server=None):
        self.url, self.server, self.sessions = url, server, []
        self.admin = Psql(url)
        self.version = int(self.admin.one('SHOW server_version_num')) // 10000
        self.name = 'PostgreSQL %d' % self.version
        self.writer = 'fence_attack_%d_%d' % (os.getpid(), time.monotonic_ns() % 1000000)
        self.admin.sql('CREATE ROLE %s' % self.writer)
        self.admin.sql('CREATE TABLE account (id text PRIMARY KEY, lock text COLLATE "C", balance text) WITH (fillfactor = 50)')
        self.admin.sql('GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON account TO %s' % self.writer)
        self.protect()
        self.kinds = ['UPDATE', 'UPDATE after fence.use', 'upsert', 'DELETE and INSERT', 'COPY', 'UPDATE in autocommit',
                      'UPDATE at REPEATABLE READ', 'UPDATE at SERIALIZABLE', 'UPDATE by CTE'] + ['MERGE'] * (self.version >= 15)
        if server is not None:
            self.restart = self.kill_and_start

    def protect(self):
        self.admin.sql("SELECT fence.protect('account', 'lock')")

    def kill_and_start(self):
        self.server.kill()
        self.server.start()
        self.admin = Psql(self.url)

    # -- the seven ------------------------------------------------------------------------------------------
    def open(self):
        session = Psql(self.url, self.writer)
        self.sessions.append(session)
        return session

    def create(self, key, lock, value):
        self.admin.transaction('ALTER TABLE account DISABLE TRIGGER USER', # as a migration would, before anybody writes
                               'INSERT INTO account VALUES (%s, %s, %s)' % (text(key), text(lock), text(value)),
                               'ALTER TABLE account ENABLE ALWAYS TRIGGER fence_guard',
                               'ALTER TABLE account ENABLE ALWAYS TRIGGER fence_guard_all')

    def claim(self, session, lock, token):
        session.sql('CALL fence.claim(%s, %s)' % (text(lock), text(token)))

    def read(self, session, lock, key):
        return session.one('SELECT balance FROM account WHERE id = %s' % text(key))

    def held(self, lock, token, local='true'):
        """Sets the token without the check that fence.use() makes, so that the trigger has to find a stale one."""
        return "SELECT set_config('fence.held', %s, %s)" % (text(json.dumps({lock: token}, ensure_ascii=False)), local)

    def write(self, session, lock, token, key, value, how):
        update = 'UPDATE account SET balance = %s WHERE id = %s RETURNING id' % (text(value), text(key))
        row = '%s, %s, %s' % (text(key), text(lock), text(value))
        held = self.held(lock, token)
        if how == 'UPDATE after fence.use':
            held = 'SELECT fence.use(%s, %s)' % (text(lock), text(token))
        if how in ('UPDATE in autocommit',):
            session.sql(self.held(lock, token, 'false'))
            session.must_find(update)
        elif how == 'upsert':
            session.transaction(held, 'INSERT INTO account VALUES (%s) ON CONFLICT (id) DO UPDATE SET balance = EXCLUDED.balance RETURNING id' % row)
        elif how == 'MERGE':
            session.transaction(held, 'MERGE INTO account a USING (SELECT %s AS id, %s AS balance, %s AS lock) s ON a.id = s.id '
                                      'WHEN MATCHED THEN UPDATE SET balance = s.balance WHEN NOT MATCHED THEN '
                                      'INSERT VALUES (s.id, s.lock, s.balance)' % (text(key), text(value), text(lock)))
        elif how == 'DELETE and INSERT':
            session.transaction(held, 'DELETE FROM account WHERE id = %s RETURNING id' % text(key), 'INSERT INTO account VALUES (%s)' % row)
        elif how == 'COPY':
            session.transaction(held, 'DELETE FROM account WHERE id = %s RETURNING id' % text(key), self.copy(key, lock, value))
        elif how == 'UPDATE by CTE':
            session.transaction(held, 'WITH w AS (%s) SELECT count(*) FROM w' % update)
        else:
            level = how.split(' at ')[1] if ' at ' in how else 'READ COMMITTED'
            session.transaction(held, update, level=level)

    @staticmethod
    def copy(*values):
        row = '\t'.join(v.replace('\\', '\\\\').replace('\t', '\\t') for v in values)
        return 'COPY account FROM STDIN;\n%s\n\\.\n' % row

    def mark(self, session, lock):
        return int(session.one('SELECT mark FROM fence.mark WHERE lock = %s' % text(lock)) or 0)

    def bypasses(self):
        def sql(statement, admin=False):
            def act(session, lock, key, value):
                if admin:
                    session = Psql(self.url)
                    self.sessions.append(session)
                session.sql(statement.format(lock=text(lock), key=text(key), value=text(value)))
            return act
        yield 'INSERT without a token', sql("INSERT INTO account VALUES ({key} || 'x', {lock}, {value}); "
                                            'UPDATE account SET balance = {value} WHERE id = {key}')
        yield 'UPDATE without a token', sql('UPDATE account SET balance = {value} WHERE id = {key}')
        yield 'UPDATE of the whole table', sql('UPDATE account SET balance = {value}')
        yield 'DELETE without a token', sql('DELETE FROM account WHERE id = {key}')
        yield 'TRUNCATE', sql('TRUNCATE account')
        yield 'upsert without a token', sql('INSERT INTO account VALUES ({key}, {lock}, {value}) '
                                            'ON CONFLICT (id) DO UPDATE SET balance = EXCLUDED.balance')
        if self.version >= 15:
            yield 'MERGE without a token', sql('MERGE INTO account a USING (SELECT {key} AS id) s ON a.id = s.id '
                                               'WHEN MATCHED THEN UPDATE SET balance = {value}')
        yield 'COPY without a token', lambda s, lock, key, value: s.sql(self.copy(key + 'x', lock, value))
        yield 'row moved to another lock', sql("UPDATE account SET lock = 'elsewhere', balance = {value} WHERE id = {key}")
        yield 'row moved to no lock', sql('UPDATE account SET lock = NULL, balance = {value} WHERE id = {key}')
        yield 'forged setting', sql("SET fence.held = '{{\"lock\": 1}}'; UPDATE account SET balance = {value} WHERE id = {key}")
        yield 'setting that is no JSON', sql("SET fence.held = 'on'; UPDATE account SET balance = {value} WHERE id = {key}")
        yield 'search_path of the caller', sql(
            "CREATE SCHEMA IF NOT EXISTS pg_temp; CREATE FUNCTION pg_temp.yes(bigint, bigint) RETURNS boolean LANGUAGE sql AS "
            "'SELECT true'; CREATE OPERATOR pg_temp.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = pg_temp.yes); "
            "SET search_path = pg_temp, public, pg_catalog; SET fence.held = '{{\"x\": 1}}'; "
            'UPDATE account SET balance = {value} WHERE id = {key}')
        yield 'trigger switched off by a writer', sql('ALTER TABLE account DISABLE TRIGGER ALL; '
                                                      'UPDATE account SET balance = {value} WHERE id = {key}')
        yield 'session_replication_role', sql('SET session_replication_role = replica; '
                                              'UPDATE account SET balance = {value} WHERE id = {key}', True)
        yield 'mark deleted by a writer', sql('DELETE FROM fence.mark')
        yield 'mark lowered by a writer', sql('UPDATE fence.mark SET mark = 1')
        yield 'mark truncated by a writer', sql('TRUNCATE fence.mark')
        yield 'mark deleted by an administrator', sql('DELETE FROM fence.mark', True)
        yield 'mark lowered by an administrator', sql('UPDATE fence.mark SET mark = 1', True)
        yield 'mark renamed by an administrator', sql("UPDATE fence.mark SET lock = lock || 'x'", True)
        yield 'mark truncated by an administrator', sql('TRUNCATE fence.mark', True)

    # -- faults that only a database with transactions can have ------------------------------------------------
    def own(self):
        for level in ISOLATION:
            yield 3, 'claim waits, then reads, %s' % level, lambda suite, level=level: self.claim_waits(suite, level)
            yield 3, 'claim and read in one statement, %s' % level, lambda suite, level=level: self.one_statement(suite, level)
            yield 7, 'claim while a write is open, %s' % level, lambda suite, level=level: self.late_commit(suite, level)
            yield 7, 'write after a newer claim, %s' % level, lambda suite, level=level: self.overtaken(suite, level)
        yield 3, 'claim inside a function', self.inside_a_function
        yield 3, 'cursor opened before the claim', self.cursor
        yield 1, 'error ignored in autocommit', self.autocommit
        yield 1, 'savepoint, claim refused, rollback to', self.savepoint
        yield 7, 'check inside a savepoint that is rolled back', self.rolled_back_check
        yield 1, 'older token in a session that wrote under a newer', self.older_after_newer
        yield 1, 'many writes, then a claim, then one more', self.after_many
        yield 6, 'row moved by a trigger of the user', self.users_trigger
        yield 7, 'lock column that ignores case', self.ignores_case
        yield 10, 'holder paused in its transaction', self.paused
        yield 7, 'prepared transaction with a claim, rolled back', self.claim_taken_back
        yield 10, 'prepared transaction', self.prepared

    def begin(self, suite, level='READ COMMITTED', value='100'):
        """An older holder whose transaction has written 1 more and is open, and a session for its successor."""
        key, lock = suite.fresh(value)
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(a, lock, old)
        a.sql('BEGIN ISOLATION LEVEL ' + level)
        a.sql(self.held(lock, old))
        a.sql("UPDATE account SET balance = (balance::int + 1)::text WHERE id = %s" % text(key))
        return key, lock, a, b, old, new

    def settle(self, a, b, seconds=30):
        """Commits the older transaction while b's statement waits. True when the commit was acknowledged."""
        time.sleep(0.05) # not to settle: b may have to wait, and if it does not, that is no worse an order
        try:
            a.sql('COMMIT')
            return True
        except (Refused, Unknown):
            return False

    def claim_beside(self, a, b, claim):
        """b's claim while a's write is open: it must not be answered before that has ended. True when its commit was acknowledged."""
        b.start(claim)
        answer = b.finish(0.2)
        must(answer is None or not self.settle(a, b), 'the claim was answered while an older write was open, and that was committed')
        acknowledged = self.settle(a, b)
        b.judged(b.finish(60) if answer is None else answer)
        return acknowledged

    def finish(self, key, lock, b, new, seen, acknowledged):
        try:
            self.write(b, lock, new, key, str(int(seen) + 10), 'UPDATE')
        except Refused:
            return 'the new holder is told to begin again'
        final = int(self.read(self.open(), lock, key))
        must(final == 110 + acknowledged, 'an acknowledged update is lost: read %s, the value is %s', seen, final)

    def claim_waits(self, suite, level):
        key, lock, a, b, old, new = self.begin(suite, level)
        b.start('CALL fence.claim(%s, %s);' % (text(lock), new))
        acknowledged = self.settle(a, b)
        b.judged(b.finish(60))
        return self.finish(key, lock, b, new, self.read(b, lock, key), acknowledged)

    def one_statement(self, suite, level):
        """Claim and read in one request. A claim inside SELECT is not possible with the guard; the forms that a client can write are tried."""
        key, lock, a, b, old, new = self.begin(suite, level)
        b.sql('BEGIN ISOLATION LEVEL ' + level)
        tries = ['SELECT fence.claim(%s, %d), balance FROM account WHERE id = %s;' % (text(lock), new, text(key))]
        if level != 'READ COMMITTED':
            tries = ['CALL fence.claim(%s, %d); SELECT balance FROM account WHERE id = %s;' % (text(lock), new, text(key))]
        for statement in tries:
            b.start(statement)
            acknowledged = self.settle(a, b)
            try:
                seen = b.judged(b.finish(60))[-1].split('|')[-1]
            except Refused as e:
                b.sql('ROLLBACK')
                return 'refused: %s' % str(e)[:60]
            b.sql('COMMIT')
            return self.finish(key, lock, b, new, seen, acknowledged)

    def late_commit(self, suite, level):
        key, lock, a, b, old, new = self.begin(suite, level)
        acknowledged = self.claim_beside(a, b, 'CALL fence.claim(%s, %s);' % (text(lock), new))
        return self.finish(key, lock, b, new, self.read(b, lock, key), acknowledged)

    def overtaken(self, suite, level):
        """The older holder's transaction begins and reads before the newer claim, and writes after it."""
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(a, lock, old)
        a.sql('BEGIN ISOLATION LEVEL ' + level)
        self.read(a, lock, key)
        self.claim(b, lock, new)
        a.sql(self.held(lock, old))
        e = must_refuse(None, 'the stale write', a.sql, 'UPDATE account SET balance = 666 WHERE id = %s' % text(key))
        a.sql('COMMIT')
        must(self.read(b, lock, key) == '100', 'the value is %s', self.read(b, lock, key))
        return e.word

    def inside_a_function(self, suite):
        key, lock, a, b, old, new = self.begin(suite)
        b.sql('CREATE FUNCTION pg_temp.f(l text, t bigint) RETURNS int LANGUAGE plpgsql AS '
              "'BEGIN CALL fence.claim(l, t); RETURN 1; END'")
        b.start('SELECT pg_temp.f(%s, %d), balance FROM account WHERE id = %s;' % (text(lock), new, text(key)))
        acknowledged = self.settle(a, b)
        try:
            seen = b.judged(b.finish(60))[-1].split('|')[-1]
        except Refused as e:
            return 'refused: %s' % str(e)[:60]
        return self.finish(key, lock, b, new, seen, acknowledged)

    def cursor(self, suite):
        key, lock, a, b, old, new = self.begin(suite)
        b.sql('BEGIN')
        b.sql('DECLARE c CURSOR FOR SELECT balance FROM account WHERE id = %s' % text(key))
        b.start('CALL fence.claim(%s, %s);' % (text(lock), new))
        acknowledged = self.settle(a, b)
        try:
            b.judged(b.finish(60))
            seen = b.one('FETCH c')
            b.sql('COMMIT')
        except Refused as e:
            return 'refused: %s' % str(e)[:60]
        return self.finish(key, lock, b, new, seen, acknowledged)

    def autocommit(self, suite):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(a, lock, old)
        self.claim(b, lock, new)
        for statement in ('CALL fence.claim(%s, %d)' % (text(lock), old), 'UPDATE account SET balance = 666 WHERE id = %s' % text(key)):
            a.ask(statement + ';')
        must(self.read(b, lock, key) == '100', 'who did not look at the error of the claim wrote %s', self.read(b, lock, key))

    def savepoint(self, suite):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(a, lock, old)
        self.claim(b, lock, new)
        for statement in ('BEGIN', 'SAVEPOINT s', 'CALL fence.claim(%s, %d)' % (text(lock), old), 'ROLLBACK TO s',
                          'UPDATE account SET balance = 666 WHERE id = %s' % text(key), 'COMMIT'):
            a.ask(statement + ';')
        must(self.read(b, lock, key) == '100', 'the value is %s', self.read(b, lock, key))

    def rolled_back_check(self, suite):
        """A rollback to a savepoint drops the guard's check, and the lock on the mark with it. The next write must be checked again."""
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(a, lock, old)
        update = 'UPDATE account SET balance = %s WHERE id = ' + text(key)
        for statement in ('BEGIN', self.held(lock, old), 'SAVEPOINT s', update % 101, 'ROLLBACK TO s'):
            a.sql(statement)
        self.claim(b, lock, new)
        seen = self.read(b, lock, key)
        a.ask(update % 666 + ';')
        a.ask('COMMIT;')
        must(self.read(b, lock, key) == seen, 'the value is %s after the newer holder had read %s', self.read(b, lock, key), seen)

    def older_after_newer(self, suite):
        """A session uses a newer token, then an older one, as behind a pooler. What the guard remembers must not outlive its token."""
        key, lock = suite.fresh('100')
        a, old, new = self.open(), suite.token(), suite.token()
        update = 'UPDATE account SET balance = %s WHERE id = ' + text(key)
        self.claim(a, lock, new)
        for value in ('101', '102'):
            a.sql(self.held(lock, new, 'false'))
            a.sql(update % text(value))
        for local in ('false', 'true'):
            e = must_refuse('STALE', 'a write under an older token', a.transaction, self.held(lock, old, local), update % 666)
        a.sql('RESET fence.held')
        must_refuse('NOTOKEN', 'a write with no token', a.sql, update % 666)
        return e.word

    def after_many(self, suite):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        a.sql('CALL fence.claim(%s, %d, true)' % (text(lock), old))
        for n in range(20):
            a.sql('UPDATE account SET balance = %d WHERE id = %s' % (n, text(key)))
        self.claim(b, lock, new)
        must_refuse('STALE', 'the 21st write, after a claim', a.sql, 'UPDATE account SET balance = 666 WHERE id = ' + text(key))
        must(self.read(b, lock, key) == '19', 'the value is %s', self.read(b, lock, key))

    def users_trigger(self, suite):
        key, lock = suite.fresh('100')
        _, other = suite.fresh()
        a, token = self.open(), suite.token()
        self.claim(self.open(), lock, suite.token())
        self.claim(a, other, token)
        self.admin.sql('CREATE OR REPLACE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS '
                       "$$BEGIN NEW.lock := %s; RETURN NEW; END$$" % text(lock))
        self.admin.sql('CREATE TRIGGER zzz_move BEFORE INSERT OR UPDATE ON account FOR EACH ROW EXECUTE FUNCTION move()')
        try:
            must_refuse(None, 'an INSERT that a trigger moves to another lock', a.transaction, self.held(other, token),
                        "INSERT INTO account VALUES (%s || 'new', %s, '666')" % (text(key), text(other)))
        finally:
            self.admin.sql('DROP TRIGGER zzz_move ON account')

    def ignores_case(self, suite):
        """The lock column of a second table has a collation under which 'lock1' equals 'LOCK1', and has the same hash. A lock is its bytes all
        the same: a holder who has written to the first table must not get round the claim of the next one, nor into the rows of LOCK1."""
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        first = 'UPDATE account SET balance = 101 WHERE id = %s' % text(key)
        write = 'UPDATE any_case SET balance = %s WHERE lock = %s COLLATE "C" RETURNING id'
        try:
            self.admin.sql("CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        except Refused as e:
            raise Skip('no collation that ignores case: %s' % e) from None
        self.admin.sql('CREATE TABLE any_case (id int PRIMARY KEY, lock text COLLATE any_case, balance text)')
        try:
            self.admin.sql('INSERT INTO any_case VALUES (1, %s, 100), (2, %s, 100)' % (text(lock), text(lock.upper())))
            self.admin.sql("SELECT fence.protect('any_case', 'lock')")
            self.admin.sql('GRANT SELECT, INSERT, UPDATE, DELETE ON any_case TO %s' % self.writer)
            a.sql('CALL fence.claim(%s, %d, true)' % (text(lock), old))
            a.sql(first)
            a.sql('BEGIN')
            a.must_find(write % (101, text(lock)))
            self.claim_beside(a, b, 'CALL fence.claim(%s, %d, true);' % (text(lock), new))
            b.sql(first)
            for statement in (write % (666, text(lock.upper())), 'UPDATE any_case SET lock = %s WHERE id = 1 RETURNING id' % text(lock.upper())):
                must_refuse('NOTOKEN', 'of lock %s: %s' % (lock, statement), b.must_find, statement)
        finally:
            a.end()
            self.admin.sql('DROP TABLE any_case; DROP COLLATION any_case')

    def paused(self, suite):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        a.sql("SET fence.idle_limit = '1s'")
        self.claim(a, lock, old)
        a.sql('BEGIN')
        a.sql(self.held(lock, old))
        a.sql('UPDATE account SET balance = 101 WHERE id = %s' % text(key))
        began = time.monotonic()
        b.start('CALL fence.claim(%s, %s);' % (text(lock), new))
        answer = b.finish(15)
        if answer is None:
            a.end()
            raise Broken('the successor waited 15 s, until the holder was ended by hand')
        b.judged(answer)
        seconds = time.monotonic() - began
        try:
            a.sql('COMMIT')
            raise Broken('the paused transaction was committed after the claim')
        except (Refused, Unknown):
            pass
        must(self.read(b, lock, key) == '100', 'the value is %s', self.read(b, lock, key))
        return 'the successor had to wait %.1f s (fence.idle_limit is 1s here, 10s by itself)' % seconds

    def may_prepare(self):
        if int(self.admin.one('SHOW max_prepared_transactions')) == 0:
            raise Skip('max_prepared_transactions is 0 here')

    def claim_taken_back(self, suite):
        """ROLLBACK PREPARED takes a claim back, and what was checked after it; the session that made them keeps its settings, as after a commit."""
        self.may_prepare()
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        update = 'UPDATE account SET balance = %s WHERE id = ' + text(key)
        self.claim(a, lock, old)
        for statement in ('BEGIN', 'CALL fence.claim(%s, %d, true)' % (text(lock), new), update % 101, update % 102, "PREPARE TRANSACTION 'fence-attack'"):
            b.sql(statement)
        b.sql("ROLLBACK PREPARED 'fence-attack'")
        must(self.mark(a, lock) == old, 'the mark is %s', self.mark(a, lock))
        must_refuse('NOTCLAIMED', 'a write under a token whose claim was taken back', b.sql, update % 666)
        self.write(a, lock, old, key, '101', 'UPDATE')
        self.claim(b, lock, new)
        b.sql(update % 110)

    def prepared(self, suite):
        self.may_prepare()
        key, lock, a, b, old, new = self.begin(suite)
        a.sql("PREPARE TRANSACTION 'fence-attack'")
        b.sql("SET fence.claim_wait = '500ms'")
        e = must_refuse('BUSY', 'a claim beside a prepared transaction', self.claim, b, lock, new)
        a.sql("COMMIT PREPARED 'fence-attack'")
        self.claim(b, lock, new)
        must(self.read(b, lock, key) == '101', 'the value is %s', self.read(b, lock, key))
        return 'the claim is refused until an operator ends it'

    def close(self):
        for session in self.sessions:
            session.end()
        self.admin.sql('DROP OWNED BY %s' % self.writer)
        self.admin.sql('DROP ROLE %s' % self.writer)
        self.admin.end()
