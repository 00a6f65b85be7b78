"""Storages in which the suite must find a lost update: guards that are switched off, and the recipes that docs/FENCING.md had before there were
guards, as their users would use them."""

from guardkit.postgresql import PostgreSQL, text
from guardkit.suite import must
from harness import PATIENCE_S, wait_until


class PostgreSQLOff(PostgreSQL):
    """The guard with no table protected: claims work, and nobody looks at them."""

    def protect(self):
        pass

    def create(self, key, lock, value):
        self.admin.sql('INSERT INTO account VALUES (%s, %s, %s)' % (text(key), text(lock), text(value)))


class PostgreSQLRecipe(PostgreSQLOff):
    """fence_admit() called by each writer."""

    def protect(self):
        self.admin.sql('CREATE TABLE fence_recipe (lock text PRIMARY KEY, mark bigint NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991))')
        self.admin.sql('''CREATE FUNCTION fence_admit(the_lock text, token bigint) RETURNS void LANGUAGE plpgsql AS $$
            DECLARE now_mark bigint;
            BEGIN
                INSERT INTO fence_recipe VALUES (the_lock, token)
                    ON CONFLICT (lock) DO UPDATE SET mark = EXCLUDED.mark WHERE fence_recipe.mark <= EXCLUDED.mark;
                IF NOT FOUND THEN
                    SELECT mark INTO now_mark FROM fence_recipe WHERE lock = the_lock;
                    RAISE EXCEPTION USING ERRCODE = '44L01',
                        MESSAGE = format('STALE token %s is below the mark %s of lock %s', token, now_mark, the_lock);
                END IF;
            END $$''')
        self.admin.sql('GRANT ALL ON fence_recipe TO %s' % self.writer)

    def admit(self, lock, token):
        return 'SELECT fence_admit(%s, %s)' % (text(lock), text(token))

    def claim(self, session, lock, token):
        session.sql(self.admit(lock, token))

    held = lambda self, lock, token, local=None: self.admit(lock, token)

    def mark(self, session, lock):
        return int(session.one('SELECT mark FROM fence_recipe WHERE lock = %s' % text(lock)) or 0)

    def bypasses(self):
        def sql(statement):
            return lambda session, lock, key, value: session.sql(statement.format(key=text(key), value=text(value)))
        yield 'UPDATE without a token', sql('UPDATE account SET balance = {value} WHERE id = {key}')
        yield 'mark deleted by a writer', sql('DELETE FROM fence_recipe')

    def own(self):
        yield 3, 'claim and read in one statement, READ COMMITTED', self.claim_and_read
        yield 1, 'error ignored in autocommit', self.autocommit
        yield 1, 'savepoint, claim refused, rollback to', self.savepoint
        yield 10, 'holder paused in its transaction', self.paused

    def claim_and_read(self, suite):
        key, lock, a, b, old, new = self.begin(suite)
        b.start('SELECT fence_admit(%s, %d), balance FROM account WHERE id = %s;' % (text(lock), new, text(key)))
        # Else its statement may begin, and see the account, after the commit of the other.
        wait_until(lambda: self.admin.one('SELECT count(*) FROM pg_locks WHERE NOT granted') != '0', 'a wait for the mark')
        acknowledged = self.settle(a, b)
        seen = b.judged(b.finish(PATIENCE_S))[-1].split('|')[-1]
        return self.finish(key, lock, b, new, seen, acknowledged)

    def autocommit(self, suite):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(b, lock, new)
        a.ask(self.admit(lock, old) + ';')
        a.ask('UPDATE account SET balance = 666 WHERE id = %s;' % text(key))
        must(self.read(b, lock, key) == '100', 'who did not look at the error wrote %s', self.read(b, lock, key))

    def savepoint(self, suite):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        self.claim(b, lock, new)
        for statement in ('BEGIN', 'SAVEPOINT s', self.admit(lock, old), 'ROLLBACK TO s',
                          'UPDATE account SET balance = 666 WHERE id = %s' % text(key), 'COMMIT'):
            a.ask(statement + ';')
        must(self.read(b, lock, key) == '100', 'the value is %s', self.read(b, lock, key))

    def paused(self, suite):
        key, lock = suite.fresh('100')
        a, b, old, new = self.open(), self.open(), suite.token(), suite.token()
        a.sql('BEGIN')
        a.sql(self.admit(lock, old))
        b.start(self.admit(lock, new) + ';')
        answer = b.finish(3)
        a.end()
        must(answer is not None, 'the successor waited for as long as was looked, until the holder was ended by hand')
