-- fencelock's guard for PostgreSQL 13 to 17: rows that only the newest holder of a lock can change.
-- Each lock has one mark, the highest token claimed; a trigger compares every writer's token with it. SQL and PL/pgSQL only.
--
-- How it holds. A writer keeps a shared advisory lock from its check to the end of its transaction; a claim that
-- raises the mark takes it exclusively, so it returns when every older transaction has ended. A claim is a procedure,
-- since the snapshot of a query is older than the claim inside it. Writers never wait for a claim: they are refused.
-- A session whose write was admitted remembers the count of claims. While that count stays the same, its writes are admitted
-- without another comparison. Names of objects and operators have their schema, because the caller chooses the search_path.
-- A lock is its bytes, so it is compared and hashed with collation "C": under the one that an argument or a column brings along, 'acct' may
-- equal 'ACCT' and have the hash of both.
--
-- owners.sql comes first. This script runs with the rights of its caller, so it finds nothing in schemas that others can write to.
SET search_path = pg_catalog, pg_temp;

CREATE TABLE IF NOT EXISTS fence.mark (
    lock text COLLATE "C" PRIMARY KEY CHECK (octet_length(lock) BETWEEN 1 AND 255),
    mark bigint NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991)
);

-- floor: every token below it is refused, for every lock. The other columns say on which server, and on which history of it,
-- the marks were made, so that a restored or promoted server is noticed.
CREATE TABLE IF NOT EXISTS fence.origin (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    floor bigint NOT NULL DEFAULT 1 CHECK (floor BETWEEN 1 AND 9007199254740991),
    server bigint NOT NULL,
    timeline integer NOT NULL
);
-- Counts the claims that raise a mark, of all locks together. A writer compared its token with the mark at some count; while the
-- count is the same it need not compare again. A sequence is not transactional, which is needed: a claim counts before it commits.
CREATE SEQUENCE IF NOT EXISTS fence.claims;
SELECT nextval('fence.claims');

INSERT INTO fence.origin (server, timeline)
    SELECT s.system_identifier, c.timeline_id FROM pg_control_system() s, pg_control_checkpoint() c
    WHERE NOT EXISTS (SELECT FROM fence.origin); -- and not ON CONFLICT: keep_origin() would be called first

CREATE OR REPLACE FUNCTION fence.version() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '1.0'::text $$;

-- ---- refusals: their codes are for programs -------------------------------------------------------------------------

-- Class 44 is that of a row which a rule of its table refuses: drivers and frameworks take it for an error of the program, and repeat nothing.
-- Class 55 is that of a lock which cannot be had now: an error of the server's state, which may be repeated.

-- 44L01 STALE: a newer token has claimed. Stop; acquire the lock again.
-- 44L02 NOTOKEN: the transaction has no token for this lock.
-- 44L03 NOTCLAIMED: the token is newer than the mark. Claim with it, read again, then write.
-- 55L04 BUSY: a claim is under way, or older transactions still run. Nothing was done; the caller may try again.
-- 44L05 NOLOCK: the row belongs to no lock. 44L06 REFUSED: this way to write is not allowed; the message names the right one.
CREATE OR REPLACE FUNCTION fence.refuse(word text, message text, remedy text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = word || ' ' || message, HINT = remedy,
        ERRCODE = CASE word WHEN 'STALE' THEN '44L01' WHEN 'NOTOKEN' THEN '44L02' WHEN 'NOTCLAIMED' THEN '44L03'
                       WHEN 'BUSY' THEN '55L04' WHEN 'NOLOCK' THEN '44L05' ELSE '44L06' END;
END $$;

CREATE OR REPLACE FUNCTION fence.judge(a_lock text, a_token bigint, a_mark bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF a_token < a_mark THEN
        PERFORM fence.refuse('STALE', format('token %s is below the mark %s of lock %L', a_token, a_mark, a_lock),
                             'A newer holder has claimed. Stop, acquire the lock again, claim, and read again.');
    ELSIF a_mark IS NULL OR a_token > a_mark THEN
        PERFORM fence.refuse('NOTCLAIMED', format('token %s is above the mark %s of lock %L', a_token,
                             coalesce(a_mark::text, '(none)'), a_lock),
                             format('CALL fence.claim(%L, %s) first, then read what you are going to change.', a_lock, a_token));
    END IF;
END $$;

CREATE OR REPLACE FUNCTION fence.check_arguments(a_lock text, a_token bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF a_lock IS NULL OR octet_length(a_lock) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'REFUSED the name of a lock has 1 to 255 bytes, not %', coalesce(octet_length(a_lock)::text, 'NULL')
            USING ERRCODE = '44L06';
    END IF;
    IF a_token IS NULL OR a_token NOT BETWEEN 1 AND 9007199254740991 THEN
        RAISE EXCEPTION 'REFUSED a token is a number from 1 to 9007199254740991, not %', coalesce(a_token::text, 'NULL')
            USING ERRCODE = '44L06', HINT = 'It was never issued: pass on what the lock service answered.';
    END IF;
END $$;

-- ---- marks only rise ------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION fence.keep_mark() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME = 'mark' THEN
        IF NEW.lock = OLD.lock AND NEW.mark >= OLD.mark THEN
            -- A claim holds this lock by now. Whoever raises a mark in another way waits for the writers here.
            PERFORM pg_advisory_xact_lock(hashtextextended(OLD.lock, 1718514275)), nextval('fence.claims'), set_config('fence.raised', 'on', true);
            RETURN NEW;
        END IF;
    ELSIF TG_OP = 'UPDATE' THEN
        IF NEW.floor >= OLD.floor THEN
            RETURN NEW;
        END IF;
    ELSIF TG_OP = 'DELETE' AND TG_TABLE_NAME = 'mark' THEN
        IF OLD.mark < (SELECT o.floor FROM fence.origin o) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'REFUSED a mark never goes down, and is not deleted' USING ERRCODE = '44L06',
        HINT = 'fence.forget(token) drops the marks below a token, and refuses such tokens from then on.';
END $$;

-- A dump of the extension has this row, and is restored after CREATE EXTENSION has made another. The floor is the higher of the two; server
-- and history are those of the dump, since its marks were made there.
CREATE OR REPLACE FUNCTION fence.keep_origin() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE fence.origin o SET floor = greatest(o.floor, NEW.floor), server = NEW.server, timeline = NEW.timeline;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;

DROP TRIGGER IF EXISTS keep ON fence.mark;
DROP TRIGGER IF EXISTS keep_all ON fence.mark;
DROP TRIGGER IF EXISTS keep ON fence.origin;
DROP TRIGGER IF EXISTS keep_all ON fence.origin;
DROP TRIGGER IF EXISTS keep_new ON fence.origin;
CREATE TRIGGER keep BEFORE UPDATE OR DELETE ON fence.mark FOR EACH ROW EXECUTE FUNCTION fence.keep_mark();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON fence.mark EXECUTE FUNCTION fence.keep_mark();
CREATE TRIGGER keep BEFORE UPDATE OR DELETE ON fence.origin FOR EACH ROW EXECUTE FUNCTION fence.keep_mark();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON fence.origin EXECUTE FUNCTION fence.keep_mark();
CREATE TRIGGER keep_new BEFORE INSERT ON fence.origin FOR EACH ROW EXECUTE FUNCTION fence.keep_origin();
ALTER TABLE fence.mark ENABLE ALWAYS TRIGGER keep, ENABLE ALWAYS TRIGGER keep_all;
ALTER TABLE fence.origin ENABLE ALWAYS TRIGGER keep, ENABLE ALWAYS TRIGGER keep_all, ENABLE ALWAYS TRIGGER keep_new;

-- ---- which tokens this transaction has ------------------------------------------------------------------------------

-- The setting fence.held is a JSON object, lock to token. Forging it gives nothing that a claim would not give: a token is no
-- password, and a token that is not equal to the mark is refused.
CREATE OR REPLACE FUNCTION fence.note(a_lock text, a_token bigint, for_session boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held jsonb := coalesce(nullif(current_setting('fence.held', true), ''), '{}')::jsonb || jsonb_build_object(a_lock, a_token);
BEGIN
    IF (SELECT count(*) FROM jsonb_object_keys(held)) > 64 THEN
        RAISE EXCEPTION 'REFUSED one transaction or session uses at most 64 locks' USING ERRCODE = '44L06',
            HINT = 'RESET fence.held forgets those of the session.';
    END IF;
    PERFORM set_config('fence.held', held::text, NOT for_session);
END $$;

-- A holder that is paused inside its transaction blocks the next holder's claim. So an idle transaction that writes under a
-- token is ended after fence.idle_limit (10s; 0: never), unless a shorter limit is set already.
CREATE OR REPLACE FUNCTION fence.bound_idle(for_session boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bound text := coalesce(nullif(current_setting('fence.idle_limit', true), ''), '10s');
    now_is text := current_setting('idle_in_transaction_session_timeout');
BEGIN
    IF bound <> '0' AND (now_is = '0' OR now_is::interval > bound::interval) THEN
        PERFORM set_config('idle_in_transaction_session_timeout', bound, NOT for_session);
    END IF;
END $$;

-- ---- claim ----------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION fence.refuse_wrong_place(stack text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF strpos(stack, E'\n') > 0 THEN
        PERFORM fence.refuse('REFUSED', 'a claim is a statement of its own, not a part of a function, procedure or DO block',
            'What called it may read with a snapshot older than the claim. Send CALL fence.claim(...) from the client.');
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM fence.refuse('REFUSED', format('a claim inside a transaction at %s reads older than it claims',
            upper(current_setting('transaction_isolation'))),
            'Claim first, at READ COMMITTED; then begin, SELECT fence.use(lock, token), and read.');
    END IF;
    IF EXISTS (SELECT FROM pg_cursors c WHERE c.statement !~* '^\s*call\M') THEN
        PERFORM fence.refuse('REFUSED', 'a cursor is open, and reads older than this claim', 'Close it, claim, and open it again.');
    END IF;
END $$;

-- Waits for transactions that write under older tokens, at most fence.claim_wait (30s), or lock_timeout if that is less.
CREATE OR REPLACE FUNCTION fence.wait_for_writers(a_lock text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bound text := coalesce(nullif(current_setting('fence.claim_wait', true), ''), '30s');
    before text := current_setting('lock_timeout');
BEGIN
    IF before = '0' OR before::interval > bound::interval THEN
        PERFORM set_config('lock_timeout', bound, true);
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(a_lock COLLATE "C", 1718514275));
    PERFORM set_config('lock_timeout', before, true);
EXCEPTION WHEN lock_not_available THEN
    PERFORM fence.refuse('BUSY', format('a transaction under an older token of lock %L still runs', a_lock),
        'Claim again. Idle ones are ended after fence.idle_limit; a prepared one needs COMMIT or ROLLBACK PREPARED.');
END $$;

CREATE OR REPLACE FUNCTION fence.raise_mark(a_lock text, a_token bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_mark bigint;
BEGIN
    PERFORM fence.wait_for_writers(a_lock);
    PERFORM nextval('fence.claims'); -- after the lock, so that no writer of this lock reads it in between
    PERFORM set_config('fence.raised', 'on', true); -- see fence.admit()
    PERFORM fence.judge(a_lock, a_token, greatest(o.floor, a_token)) FROM fence.origin o FOR SHARE;
    INSERT INTO fence.mark AS m VALUES (a_lock, a_token)
        ON CONFLICT (lock) DO UPDATE SET mark = EXCLUDED.mark WHERE m.mark <= EXCLUDED.mark;
    IF NOT FOUND THEN
        SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.lock = a_lock COLLATE "C";
        PERFORM fence.judge(a_lock, a_token, now_mark);
    END IF;
    -- A claim that was answered must survive a crash, and be on a synchronous standby.
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

CREATE OR REPLACE PROCEDURE fence.claim(a_lock text, a_token bigint, for_session boolean DEFAULT false)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stack text COLLATE "C";
    now_mark bigint;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    PERFORM fence.refuse_wrong_place(stack);
    PERFORM fence.check_arguments(a_lock, a_token);
    SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.lock = a_lock COLLATE "C";
    IF now_mark > a_token THEN
        PERFORM fence.judge(a_lock, a_token, now_mark);
    ELSIF now_mark = a_token AND pg_try_advisory_xact_lock_shared(hashtextextended(a_lock COLLATE "C", 1718514275)) THEN
        -- Claimed before, so older transactions have ended. A newer claim may have come in between.
        SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.lock = a_lock COLLATE "C";
        PERFORM fence.judge(a_lock, a_token, now_mark);
    ELSE
        PERFORM fence.raise_mark(a_lock, a_token);
    END IF;
    PERFORM fence.note(a_lock, a_token, for_session);
    PERFORM fence.bound_idle(for_session);
END $$;

-- use: names the token of the holder's next transactions. It does not claim.
CREATE OR REPLACE FUNCTION fence.use(a_lock text, a_token bigint, for_session boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_mark bigint;
BEGIN
    PERFORM fence.check_arguments(a_lock, a_token);
    SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.lock = a_lock COLLATE "C";
    PERFORM fence.judge(a_lock, a_token, now_mark);
    PERFORM fence.note(a_lock, a_token, for_session);
    PERFORM fence.bound_idle(for_session);
END $$;

-- ---- writing --------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION fence.mark_for_share(a_lock text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT m.mark FROM fence.mark m WHERE m.lock = a_lock COLLATE "C" FOR SHARE $$;

-- admit: lets the transaction write rows of this lock, or refuses with a reason. The advisory lock comes first; the mark
-- is read after it, with a snapshot of its own. At REPEATABLE READ and above there is no such snapshot: the row lock finds
-- a newer mark there (SQLSTATE 40001). The result is kept in fence.checked, for fence.quick_check(): while the
-- advisory lock is held shared no claim of this lock is possible, so count and mark belong together. But a transaction that raised a
-- mark (fence.raised) keeps the result to itself: PREPARE TRANSACTION keeps the settings of a session as COMMIT does, and ROLLBACK PREPARED
-- takes the mark back, and not the count.
DROP FUNCTION IF EXISTS fence.admit(text);
CREATE FUNCTION fence.admit(a_lock text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    held text := pg_catalog.current_setting('fence.held', true);
    a_token bigint;
    now_mark bigint;
    bound text;
BEGIN
    IF a_lock IS NULL THEN
        PERFORM fence.refuse('NOLOCK', 'this row belongs to no lock: its lock is NULL', 'Give it one.');
    END IF;
    IF held OPERATOR(pg_catalog.<>) '' THEN
        a_token := (held::pg_catalog.jsonb OPERATOR(pg_catalog.->>) a_lock)::pg_catalog.int8;
    END IF;
    IF a_token IS NULL THEN
        PERFORM fence.refuse('NOTOKEN', pg_catalog.format('this transaction has no token for lock %L', a_lock),
                             'CALL fence.claim(lock, token) first, or SELECT fence.use(lock, token).');
    END IF;
    IF NOT pg_catalog.pg_try_advisory_xact_lock_shared(pg_catalog.hashtextextended(a_lock COLLATE pg_catalog."C", 1718514275)) THEN
        PERFORM fence.refuse('BUSY', pg_catalog.format('a newer token is claiming lock %L', a_lock),
                             'Nothing was written. Try again to learn what became of it.');
    END IF;
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed' THEN
        SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.lock OPERATOR(pg_catalog.=) a_lock COLLATE pg_catalog."C";
    ELSE
        now_mark := fence.mark_for_share(a_lock);
    END IF;
    IF a_token OPERATOR(pg_catalog.=) now_mark THEN
        bound := pg_catalog.current_setting('fence.idle_limit', true);
        IF pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0' THEN
            bound := pg_catalog.set_config('idle_in_transaction_session_timeout',
                CASE WHEN bound OPERATOR(pg_catalog.<>) '' THEN bound ELSE '10s' END, true);
        END IF;
        held := pg_catalog.set_config('fence.checked', pg_catalog.pg_sequence_last_value('fence.claims')::pg_catalog.text
            OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) a_lock OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) held,
            COALESCE(pg_catalog.current_setting('fence.raised', true), '') OPERATOR(pg_catalog.<>) '');
        RETURN true;
    END IF;
    PERFORM fence.judge(a_lock, a_token, now_mark);
END $$;

-- ---- protecting tables ----------------------------------------------------------------------------------------------

-- All tables that rows of this one may be stored in: itself, and its partitions.
CREATE OR REPLACE FUNCTION fence.parts(a_table regclass) RETURNS SETOF regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE t(rel) AS (
        SELECT a_table::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN t ON i.inhparent = t.rel)
    SELECT rel::regclass FROM t
$$;

-- An expression for trigger functions: true when fence.admit() has admitted this token before, no lock has been claimed since,
-- and no claim is under way. When it is false, fence.admit() must decide. It is one expression, without a query: PL/pgSQL prepares each
-- anew in each transaction, and a query costs three times as much.
CREATE OR REPLACE FUNCTION fence.quick_check(a_lock text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format($f$pg_catalog.pg_try_advisory_xact_lock_shared(pg_catalog.hashtextextended(%1$s, 1718514275))
        AND pg_catalog.current_setting('fence.checked', true) OPERATOR(pg_catalog.=) (
            pg_catalog.pg_sequence_last_value('fence.claims')::pg_catalog.text OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||)
            %1$s OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) pg_catalog.current_setting('fence.held', true))
        AND (pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.<>) '0'
            OR pg_catalog.current_setting('fence.idle_limit', true) OPERATOR(pg_catalog.=) '0')$f$, a_lock)
$$;

CREATE OR REPLACE FUNCTION fence.is_column(a_table regclass, name text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = a_table AND a.attname = name AND a.attnum > 0 AND NOT a.attisdropped)
$$;

CREATE OR REPLACE FUNCTION fence.is_constant(lock_is text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$ SELECT lock_is ~ '^\s*''([^'']|'''')*''\s*$' $$;

-- The text that the trigger function of a table must have. The lock of a row is a column, one for all, or an expression over columns,
-- which costs a query. A column may be null in one of OLD and NEW, where the operation has none.
CREATE OR REPLACE FUNCTION fence.trigger_source(a_table regclass, lock_is text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was text := 'was';
    is_now text := 'is_now';
    find text := '';
BEGIN
    IF fence.is_column(a_table, lock_is) THEN
        was := format('(OLD.%I::pg_catalog.text COLLATE pg_catalog."C")', lock_is);
        is_now := format('(NEW.%I::pg_catalog.text COLLATE pg_catalog."C")', lock_is);
    ELSIF fence.is_constant(lock_is) THEN
        was := lock_is || '::pg_catalog.text';
        is_now := was;
    ELSE
        find := format($f$
    IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
        SELECT o.l, n.l INTO was, is_now FROM (SELECT (%1$s) AS l FROM (SELECT OLD.*) AS of_row) AS o,
            (SELECT (%1$s) AS l FROM (SELECT NEW.*) AS of_row) AS n;
    ELSIF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN
        is_now := (SELECT (%1$s) FROM (SELECT NEW.*) AS of_row);
    ELSE
        was := (SELECT (%1$s) FROM (SELECT OLD.*) AS of_row);
    END IF;$f$, lock_is);
    END IF;
    RETURN format($f$
DECLARE
    was pg_catalog.text;
    is_now pg_catalog.text;
    ok pg_catalog.bool;
BEGIN%s
    IF %s OPERATOR(pg_catalog.=) %s AND %s THEN
        RETURN NULL;
    ELSIF TG_OP OPERATOR(pg_catalog.<>) 'UPDATE' AND %s THEN
        RETURN NULL;
    END IF;
    IF TG_OP OPERATOR(pg_catalog.<>) 'INSERT' THEN
        ok := fence.admit(%2$s);
    END IF;
    IF TG_OP OPERATOR(pg_catalog.=) 'INSERT'
        OR TG_OP OPERATOR(pg_catalog.=) 'UPDATE' AND (%2$s OPERATOR(pg_catalog.=) %3$s) IS NOT TRUE THEN
        ok := fence.admit(%3$s);
    END IF;
    RETURN NULL;
END $f$, find, was, is_now, fence.quick_check(was), fence.quick_check(format('COALESCE(%s, %s)', is_now, was)));
END $$;

-- The trigger for TRUNCATE, with the lock of the whole table as its argument, if there is one.
CREATE OR REPLACE FUNCTION fence.on_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ok pg_catalog.bool;
BEGIN
    IF TG_NARGS OPERATOR(pg_catalog.=) 1 THEN
        ok := fence.admit(TG_ARGV[0]);
    ELSE
        PERFORM fence.refuse('REFUSED', 'TRUNCATE takes rows of every lock', 'DELETE the rows of your lock.');
    END IF;
    RETURN NULL;
END $$;

-- Drops the trigger functions that no trigger calls.
CREATE OR REPLACE FUNCTION fence.drop_unused() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unused regprocedure;
BEGIN
    FOR unused IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'fence'::regnamespace AND p.proname LIKE 'of\_%'
            AND p.prorettype = 'trigger'::regtype AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = p.oid) LOOP
        EXECUTE format('DROP FUNCTION %s', unused);
    END LOOP;
END $$;

-- Makes a trigger function for a table, and returns it. It is always a new one, so nobody can change the one that a table has. It lies in this
-- schema and belongs to the owner of the guard: in the table's schema another role could make it first. It runs with the rights of the writer.
CREATE OR REPLACE FUNCTION fence.make_checker(a_table regclass, lock_is text) RETURNS regprocedure
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n integer := 1;
    checker text;
BEGIN
    LOOP
        checker := format('fence.of_%s_%s', a_table::oid, n);
        EXIT WHEN to_regproc(checker) IS NULL;
        n := n + 1;
    END LOOP;
    EXECUTE format('CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql %s AS %L', checker,
                   CASE WHEN fence.is_column(a_table, lock_is) OR fence.is_constant(lock_is) THEN '' ELSE 'SET search_path = pg_catalog, pg_temp' END,
                   fence.trigger_source(a_table, lock_is));
    EXECUTE format('COMMENT ON FUNCTION %s() IS %L', checker, lock_is);
    RETURN checker::regproc;
END $$;

-- protect: attaches the guard to a table. Called by the table's owner; call it again after a change of the lock or new partitions. lock_is: a
-- column, an expression over columns ('''account/'' || id'), or one quoted name for the whole table ('''accounts'''). An expression finds only
-- what is in pg_catalog: functions and operators of other schemas are written with their schema.
CREATE OR REPLACE FUNCTION fence.protect(a_table regclass, lock_is text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind "char" := (SELECT c.relkind FROM pg_class c WHERE c.oid = a_table);
    checker regprocedure;
    part regclass;
BEGIN
    IF kind NOT IN ('r', 'p') THEN
        PERFORM fence.refuse('REFUSED', format('%s is not a table', a_table), 'Protect the table behind a view.');
    END IF;
    IF kind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = a_table) THEN
        PERFORM fence.refuse('REFUSED', format('other tables inherit from %s', a_table), 'Use partitions, or protect each without children.');
    END IF;
    IF (SELECT c.relispartition FROM pg_class c WHERE c.oid = a_table) THEN
        PERFORM fence.refuse('REFUSED', format('%s is a partition', a_table), 'Protect the partitioned table.');
    END IF;
    -- A wrong expression fails here, with the rights of the table's owner, and not at the first write.
    IF NOT fence.is_column(a_table, lock_is) THEN
        EXECUTE format('SELECT (%s)::text FROM %s AS of_row LIMIT 0', lock_is, a_table);
    END IF;
    checker := fence.make_checker(a_table, lock_is);
    EXECUTE format('DROP TRIGGER IF EXISTS fence_guard ON %s', a_table);
    EXECUTE format('CREATE TRIGGER fence_guard AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION %s', a_table, checker);
    FOR part IN SELECT fence.parts(a_table) LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER fence_guard', part);
        EXECUTE format('DROP TRIGGER IF EXISTS fence_guard_all ON %s', part);
        EXECUTE format('CREATE TRIGGER fence_guard_all BEFORE TRUNCATE ON %s EXECUTE FUNCTION fence.on_truncate(%s)', part,
                       CASE WHEN fence.is_constant(lock_is) THEN lock_is ELSE '' END);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER fence_guard_all', part);
    END LOOP;
    PERFORM fence.drop_unused();
END $$;

CREATE OR REPLACE FUNCTION fence.unprotect(a_table regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT fence.parts(a_table) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS fence_guard_all ON %s', part);
    END LOOP;
    EXECUTE format('DROP TRIGGER IF EXISTS fence_guard ON %s', a_table);
    PERFORM fence.drop_unused();
END $$;

CREATE OR REPLACE VIEW fence.protected AS
    SELECT t.tgrelid::regclass AS the_table, obj_description(t.tgfoid, 'pg_proc') AS lock_is
    FROM pg_trigger t WHERE t.tgname = 'fence_guard' AND t.tgparentid = 0;

-- ---- maintenance ----------------------------------------------------------------------------------------------------

-- Refuses every token below this one from now on, and drops the marks below it. For the end of a restore or a
-- fail-over, with a new token of the lock service; and, with its min_live_token, to keep the marks few.
CREATE OR REPLACE FUNCTION fence.forget(below bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n bigint;
BEGIN
    PERFORM fence.check_arguments('-', below);
    -- Every transaction that has read a mark holds this table until it ends.
    LOCK TABLE fence.mark IN ACCESS EXCLUSIVE MODE;
    -- So does, with this, every one that has looked at the count of claims.
    ALTER SEQUENCE fence.claims CACHE 1;
    PERFORM nextval('fence.claims');
    UPDATE fence.origin SET floor = greatest(floor, below);
    DELETE FROM fence.mark m WHERE m.mark < below;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- After a restore or a fail-over: forgets, and takes the present server for the marks' own.
CREATE OR REPLACE FUNCTION fence.adopt(new_token bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE fence.origin o SET server = s.system_identifier, timeline = c.timeline_id
        FROM pg_control_system() s, pg_control_checkpoint() c;
    RETURN fence.forget(new_token);
END $$;

-- The reasons why the guard may not hold on this server. grade: bad (writes can bypass it), loss (a crash or fail-over can take
-- marks back), note. No rows: nothing was found.
CREATE OR REPLACE FUNCTION fence.check() RETURNS TABLE (grade text, what text, remedy text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    -- A remedy never has the expression of a lock: its author is the owner of the table, and another role would run it.
    WITH guarded AS (
        SELECT p.the_table, p.lock_is, format('As role %s: SELECT fence.protect(%L, LOCK), with the lock that fence.protected shows if it is right',
            c.relowner::regrole, p.the_table) AS again, t.tgfoid
        FROM fence.protected p JOIN pg_class c ON c.oid = p.the_table
            JOIN pg_trigger t ON t.tgrelid = p.the_table AND t.tgname = 'fence_guard')
    SELECT 'bad', format('the guard of %s is switched off', t.tgrelid::regclass), p.again
        FROM guarded p, fence.parts(p.the_table) part JOIN pg_trigger t ON t.tgrelid = part
        WHERE t.tgname LIKE 'fence\_guard%' AND t.tgenabled <> 'A'
    UNION ALL
    SELECT 'bad', format('the trigger function of %s is not as this version of the guard makes it', p.the_table), p.again
        FROM guarded p JOIN pg_proc f ON f.oid = p.tgfoid
        WHERE f.prosrc <> fence.trigger_source(p.the_table, p.lock_is) OR f.pronamespace <> 'fence'::regnamespace
    UNION ALL
    SELECT 'bad', format('the trigger function of %s belongs to role %s, which can change it', p.the_table, f.proowner::regrole), p.again
        FROM guarded p JOIN pg_proc f ON f.oid = p.tgfoid
        WHERE f.proowner <> (SELECT c.relowner FROM pg_class c WHERE c.oid = 'fence.mark'::regclass)
    UNION ALL -- as owners.sql does, for an extension, which is also made by a dump that is put back
    SELECT 'bad', format('schema fence belongs to role %s, which can take the guard away', r.rolname), format('ALTER SCHEMA fence OWNER TO %s', c.relowner::regrole)
        FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner, pg_class c
        WHERE n.nspname = 'fence' AND c.oid = 'fence.mark'::regclass AND NOT r.rolsuper AND c.relowner <> r.oid
    UNION ALL
    SELECT 'bad', format('TRUNCATE of %s is not guarded', part), p.again
        FROM guarded p, fence.parts(p.the_table) part
        WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = part AND t.tgname = 'fence_guard_all'
            AND t.tgfoid = 'fence.on_truncate'::regproc)
    UNION ALL
    SELECT 'bad', format('%s may make triggers on %s, so also replace the guard', coalesce(nullif(a.grantee::regrole::text, '-'), 'PUBLIC'), part),
           format('REVOKE TRIGGER ON %s FROM %s', part, coalesce(nullif(a.grantee::regrole::text, '-'), 'PUBLIC'))
        FROM guarded p, fence.parts(p.the_table) part JOIN pg_class c ON c.oid = part, aclexplode(c.relacl) a
        WHERE a.privilege_type = 'TRIGGER' AND a.grantee <> c.relowner
    UNION ALL
    SELECT 'bad', format('role %s owns the protected table %s, and can log in: it can switch the guard off', r.rolname, p.the_table),
           'Let writers be another role than the owner.'
        FROM fence.protected p JOIN pg_class c ON c.oid = p.the_table JOIN pg_roles r ON r.oid = c.relowner
        WHERE r.rolcanlogin AND NOT r.rolsuper
    UNION ALL
    SELECT 'bad', format('role %s may change %s', coalesce(nullif(a.grantee::regrole::text, '-'), 'PUBLIC'), c.oid::regclass),
           format('REVOKE ALL ON %s FROM %s', c.oid::regclass, coalesce(nullif(a.grantee::regrole::text, '-'), 'PUBLIC'))
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
        WHERE c.oid IN ('fence.mark'::regclass, 'fence.origin'::regclass, 'fence.claims'::regclass) AND a.grantee <> c.relowner AND a.privilege_type <> 'SELECT'
    UNION ALL
    SELECT 'loss', format('%s is off', name), format('ALTER SYSTEM SET %s = on', name)
        FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
    UNION ALL
    SELECT 'loss', format('standby %s is asynchronous: promoted, it may lack what was acknowledged', application_name),
           'Set synchronous_standby_names, or run fencelock guard adopt after each promotion.'
        FROM pg_stat_replication WHERE sync_state = 'async'
    UNION ALL
    SELECT 'loss', 'these marks were made on another server: this is a restored copy, and they may be old', 'fencelock guard adopt URL'
        FROM fence.origin o, pg_control_system() s WHERE o.server <> s.system_identifier
    UNION ALL
    SELECT 'loss', format('this server was promoted or recovered since (timeline %s, now %s): its marks may be old', o.timeline,
                          c.timeline_id), 'fencelock guard adopt URL'
        FROM fence.origin o, pg_control_checkpoint() c WHERE o.timeline <> c.timeline_id
    UNION ALL
    SELECT 'note', format('a subscription writes to the protected table %s, and is refused', p.the_table),
           format('SELECT fence.unprotect(%L), until this server is the one that is written to', p.the_table)
        FROM fence.protected p WHERE EXISTS (SELECT FROM pg_subscription_rel r, fence.parts(p.the_table) part WHERE r.srrelid = part)
    UNION ALL
    SELECT 'note', format('prepared transaction %L keeps newer claims out until it is ended', gid), format('COMMIT or ROLLBACK PREPARED %L', gid)
        FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'note', 'no table is protected', 'SELECT fence.protect(table, lock column or expression)' WHERE NOT EXISTS (SELECT FROM fence.protected)
$$;

-- ---- rights ---------------------------------------------------------------------------------------------------------

REVOKE ALL ON ALL TABLES IN SCHEMA fence FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA fence FROM PUBLIC;
GRANT USAGE ON SCHEMA fence TO PUBLIC;
GRANT SELECT ON fence.mark, fence.origin, fence.claims, fence.protected TO PUBLIC;
GRANT EXECUTE ON PROCEDURE fence.claim(text, bigint, boolean) TO PUBLIC;
GRANT EXECUTE ON FUNCTION fence.use(text, bigint, boolean), fence.admit(text), fence.version(), fence.refuse(text, text, text),
    fence.mark_for_share(text), fence.judge(text, bigint, bigint), fence.on_truncate(), fence.is_column(regclass, text),
    fence.is_constant(text), fence.protect(regclass, text), fence.unprotect(regclass), fence.parts(regclass), fence.make_checker(regclass, text),
    fence.drop_unused(), fence.trigger_source(regclass, text), fence.quick_check(text) TO PUBLIC;
RESET search_path;
