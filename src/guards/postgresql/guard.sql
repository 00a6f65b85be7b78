-- fencelock's guard for PostgreSQL 13 to 17: rows that only the newest holder of a lock can change.
-- One mark a lock, the highest token claimed; a trigger compares with it whoever writes. SQL and PL/pgSQL only.
--
-- How it holds. A writer keeps a shared advisory lock from its check to the end of its transaction; a claim that
-- raises the mark takes it exclusively, so it returns when every older transaction has ended. A claim is a procedure,
-- since the snapshot of a query is older than the claim inside it. Writers never wait for a claim: they are refused.
-- Names of objects and operators are written out, because the caller chooses the search_path.

CREATE TABLE IF NOT EXISTS fence.mark (
    lock text COLLATE "C" PRIMARY KEY CHECK (octet_length(lock) BETWEEN 1 AND 255),
    mark bigint NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991)
);

-- floor: no token below it is taken any more, whatever the lock. The rest says on which history of which server the
-- marks were made, so that a restored or promoted one is noticed.
CREATE TABLE IF NOT EXISTS fence.origin (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    floor bigint NOT NULL DEFAULT 1 CHECK (floor BETWEEN 1 AND 9007199254740991),
    server bigint NOT NULL,
    timeline integer NOT NULL
);
INSERT INTO fence.origin (server, timeline)
    SELECT s.system_identifier, c.timeline_id FROM pg_control_system() s, pg_control_checkpoint() c
    ON CONFLICT DO NOTHING;

CREATE OR REPLACE FUNCTION fence.version() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '1.0'::text $$;

-- ---- refusals: their codes are for programs -------------------------------------------------------------------------

-- FL001 STALE: a newer token has claimed. Stop; acquire the lock again.
-- FL002 NOTOKEN: the transaction has no token for this lock.
-- FL003 NOTCLAIMED: the token is newer than the mark. Claim with it, read again, then write.
-- FL004 BUSY: nothing was done, and it may be tried again: a claim is under way, or older transactions still run.
-- FL005 NOLOCK: the row belongs to no lock. FL006 REFUSED: not in this way; the message says how.
CREATE OR REPLACE FUNCTION fence.refuse(word text, message text, remedy text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = word || ' ' || message, HINT = remedy,
        ERRCODE = CASE word WHEN 'STALE' THEN 'FL001' WHEN 'NOTOKEN' THEN 'FL002' WHEN 'NOTCLAIMED' THEN 'FL003'
                       WHEN 'BUSY' THEN 'FL004' WHEN 'NOLOCK' THEN 'FL005' ELSE 'FL006' END;
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
            USING ERRCODE = 'FL006';
    END IF;
    IF a_token IS NULL OR a_token NOT BETWEEN 1 AND 9007199254740991 THEN
        RAISE EXCEPTION 'REFUSED a token is a number from 1 to 9007199254740991, not %', coalesce(a_token::text, 'NULL')
            USING ERRCODE = 'FL006', HINT = 'It was never issued: pass on what the lock service answered.';
    END IF;
END $$;

-- ---- marks only rise ------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION fence.keep_mark() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME = 'mark' THEN
        IF NEW.lock = OLD.lock AND NEW.mark >= OLD.mark THEN
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
    RAISE EXCEPTION 'REFUSED a mark never goes down, and is not deleted' USING ERRCODE = 'FL006',
        HINT = 'fence.forget(token) drops the marks below a token, and refuses such tokens from then on.';
END $$;

DROP TRIGGER IF EXISTS keep ON fence.mark;
DROP TRIGGER IF EXISTS keep_all ON fence.mark;
DROP TRIGGER IF EXISTS keep ON fence.origin;
DROP TRIGGER IF EXISTS keep_all ON fence.origin;
CREATE TRIGGER keep BEFORE UPDATE OR DELETE ON fence.mark FOR EACH ROW EXECUTE FUNCTION fence.keep_mark();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON fence.mark EXECUTE FUNCTION fence.keep_mark();
CREATE TRIGGER keep BEFORE UPDATE OR DELETE ON fence.origin FOR EACH ROW EXECUTE FUNCTION fence.keep_mark();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON fence.origin EXECUTE FUNCTION fence.keep_mark();
ALTER TABLE fence.mark ENABLE ALWAYS TRIGGER keep, ENABLE ALWAYS TRIGGER keep_all;
ALTER TABLE fence.origin ENABLE ALWAYS TRIGGER keep, ENABLE ALWAYS TRIGGER keep_all;

-- ---- which tokens this transaction has ------------------------------------------------------------------------------

-- The setting fence.held is a JSON object, lock to token. Whoever forges it gains nothing that a claim would not give:
-- a token is no password, and one that is not the mark is refused.
CREATE OR REPLACE FUNCTION fence.note(a_lock text, a_token bigint, for_session boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held jsonb := coalesce(nullif(current_setting('fence.held', true), ''), '{}')::jsonb || jsonb_build_object(a_lock, a_token);
BEGIN
    IF (SELECT count(*) FROM jsonb_object_keys(held)) > 64 THEN
        RAISE EXCEPTION 'REFUSED one transaction or session uses at most 64 locks' USING ERRCODE = 'FL006',
            HINT = 'RESET fence.held forgets those of the session.';
    END IF;
    PERFORM set_config('fence.held', held::text, NOT for_session);
END $$;

-- A holder that is paused inside its transaction keeps its successor out. So an idle transaction that writes under a
-- token is ended after fence.idle_limit (10s; 0: never), unless a shorter limit is set already.
CREATE OR REPLACE FUNCTION fence.bound_idle() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bound text := coalesce(nullif(current_setting('fence.idle_limit', true), ''), '10s');
    now_is text := current_setting('idle_in_transaction_session_timeout');
BEGIN
    IF bound <> '0' AND (now_is = '0' OR now_is::interval > bound::interval) THEN
        PERFORM set_config('idle_in_transaction_session_timeout', bound, true);
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
    PERFORM pg_advisory_xact_lock(hashtextextended(a_lock, 1718514275));
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
    PERFORM fence.judge(a_lock, a_token, greatest(o.floor, a_token)) FROM fence.origin o FOR SHARE;
    INSERT INTO fence.mark AS m VALUES (a_lock, a_token)
        ON CONFLICT (lock) DO UPDATE SET mark = EXCLUDED.mark WHERE m.mark <= EXCLUDED.mark;
    IF NOT FOUND THEN
        SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.lock = a_lock;
        PERFORM fence.judge(a_lock, a_token, now_mark);
    END IF;
    -- A claim that was answered must survive a crash.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

CREATE OR REPLACE PROCEDURE fence.claim(a_lock text, a_token bigint, for_session boolean DEFAULT false)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stack text;
    now_mark bigint;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    PERFORM fence.refuse_wrong_place(stack);
    PERFORM fence.check_arguments(a_lock, a_token);
    SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.lock = a_lock;
    IF now_mark > a_token THEN
        PERFORM fence.judge(a_lock, a_token, now_mark);
    ELSIF now_mark = a_token AND pg_try_advisory_xact_lock_shared(hashtextextended(a_lock, 1718514275)) THEN
        -- Claimed before, so older transactions have ended. A newer claim may have come in between.
        SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.lock = a_lock;
        PERFORM fence.judge(a_lock, a_token, now_mark);
    ELSE
        PERFORM fence.raise_mark(a_lock, a_token);
    END IF;
    PERFORM fence.note(a_lock, a_token, for_session);
    PERFORM fence.bound_idle();
END $$;

-- For the holder's further transactions: says under which token they write. It does not claim.
CREATE OR REPLACE FUNCTION fence.use(a_lock text, a_token bigint, for_session boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_mark bigint;
BEGIN
    PERFORM fence.check_arguments(a_lock, a_token);
    SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.lock = a_lock;
    PERFORM fence.judge(a_lock, a_token, now_mark);
    PERFORM fence.note(a_lock, a_token, for_session);
    PERFORM fence.bound_idle();
END $$;

-- ---- writing --------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION fence.mark_for_share(a_lock text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT m.mark FROM fence.mark m WHERE m.lock = a_lock FOR SHARE $$;

-- Lets the transaction write what belongs to this lock, or refuses. The advisory lock comes first; the mark is read
-- after it, with a snapshot of its own. At REPEATABLE READ and above there is no such snapshot: the row lock finds a
-- newer mark there (SQLSTATE 40001). Runs once a row: no SECURITY DEFINER and no SET, which cost as much as the check.
CREATE OR REPLACE FUNCTION fence.admit(a_lock text) RETURNS void LANGUAGE plpgsql AS $$
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
    IF NOT pg_catalog.pg_try_advisory_xact_lock_shared(pg_catalog.hashtextextended(a_lock, 1718514275)) THEN
        PERFORM fence.refuse('BUSY', pg_catalog.format('a newer token is claiming lock %L', a_lock),
                             'Nothing was written. Try again to learn what became of it.');
    END IF;
    IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed' THEN
        SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.lock OPERATOR(pg_catalog.=) a_lock;
    ELSE
        now_mark := fence.mark_for_share(a_lock);
    END IF;
    IF a_token OPERATOR(pg_catalog.=) now_mark THEN
        IF pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0' THEN
            bound := pg_catalog.current_setting('fence.idle_limit', true);
            held := pg_catalog.set_config('idle_in_transaction_session_timeout',
                CASE WHEN bound OPERATOR(pg_catalog.<>) '' THEN bound ELSE '10s' END, true);
        END IF;
        RETURN;
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

-- What the trigger function of a table is to be. The lock of a row is a column, or an expression over columns.
CREATE OR REPLACE FUNCTION fence.trigger_source(a_table regclass, lock_is text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_column boolean := EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = a_table AND a.attname = lock_is AND a.attnum > 0);
    is_constant boolean := lock_is ~ '^\s*''([^'']|'''')*''\s*$';
    of_row text := CASE WHEN is_column THEN format('%%1$s.%I', lock_is) WHEN is_constant THEN lock_is
                        ELSE '(SELECT (' || replace(lock_is, '%', '%%') || ') FROM (SELECT %1$s.*) AS of_row)' END;
BEGIN
    RETURN format($f$
DECLARE
    was pg_catalog.text;
    is_now pg_catalog.text;
BEGIN
    IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN
        %3$s
        RETURN NULL;
    END IF;
    IF TG_OP OPERATOR(pg_catalog.<>) 'INSERT' THEN
        was := %1$s;
        PERFORM fence.admit(was);
    END IF;
    IF TG_OP OPERATOR(pg_catalog.<>) 'DELETE' THEN
        is_now := %2$s;
        IF TG_OP OPERATOR(pg_catalog.=) 'INSERT' OR (is_now OPERATOR(pg_catalog.=) was) IS NOT TRUE THEN
            PERFORM fence.admit(is_now);
        END IF;
    END IF;
    RETURN NULL;
END $f$, CASE WHEN is_constant THEN of_row ELSE format(of_row, 'OLD') END,
         CASE WHEN is_constant THEN of_row ELSE format(of_row, 'NEW') END,
         CASE WHEN is_constant THEN 'PERFORM fence.admit(' || lock_is || ');'
              ELSE 'PERFORM fence.refuse(''REFUSED'', ''TRUNCATE takes rows of every lock'', ''DELETE the rows of your lock.'');' END);
END $$;

-- Attaches the guard to a table; again, to change the lock or to take in new partitions. For its owner. lock_is: a
-- column, an expression over columns ('''account/'' || id'), or one quoted name for the whole table ('''accounts''').
CREATE OR REPLACE FUNCTION fence.protect(a_table regclass, lock_is text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind "char" := (SELECT c.relkind FROM pg_class c WHERE c.oid = a_table);
    home text := (SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = a_table);
    path text := 'pg_catalog, ' || home || ', pg_temp';
    checker text := home || '.' || quote_ident('fence_of_' || a_table::oid);
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
    -- A wrong expression is told now, with the table's owner's rights, and not by the first write.
    IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = a_table AND a.attname = lock_is AND a.attnum > 0) THEN
        PERFORM set_config('search_path', path, true);
        EXECUTE format('SELECT (%s)::text FROM %s AS of_row LIMIT 0', lock_is, a_table);
        PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
    END IF;
    EXECUTE format('CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql %s AS %L', checker,
                   CASE WHEN lock_is ~ '^\w+$' THEN '' ELSE 'SET search_path = ' || path END, fence.trigger_source(a_table, lock_is));
    EXECUTE format('COMMENT ON FUNCTION %s() IS %L', checker, lock_is);
    EXECUTE format('DROP TRIGGER IF EXISTS fence_guard ON %s', a_table);
    EXECUTE format('CREATE TRIGGER fence_guard AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION %s()', a_table, checker);
    FOR part IN SELECT fence.parts(a_table) LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER fence_guard', part);
        EXECUTE format('DROP TRIGGER IF EXISTS fence_guard_all ON %s', part);
        EXECUTE format('CREATE TRIGGER fence_guard_all BEFORE TRUNCATE ON %s EXECUTE FUNCTION %s()', part, checker);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER fence_guard_all', part);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION fence.unprotect(a_table regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    checker regprocedure := (SELECT t.tgfoid FROM pg_trigger t WHERE t.tgrelid = a_table AND t.tgname = 'fence_guard');
    part regclass;
BEGIN
    FOR part IN SELECT fence.parts(a_table) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS fence_guard_all ON %s', part);
    END LOOP;
    EXECUTE format('DROP TRIGGER IF EXISTS fence_guard ON %s', a_table);
    IF checker IS NOT NULL THEN
        EXECUTE format('DROP FUNCTION %s', checker);
    END IF;
END $$;

CREATE OR REPLACE VIEW fence.protected AS
    SELECT t.tgrelid::regclass AS the_table, obj_description(t.tgfoid, 'pg_proc') AS lock_is
    FROM pg_trigger t WHERE t.tgname = 'fence_guard' AND t.tgparentid = 0;

-- ---- looking after it -----------------------------------------------------------------------------------------------

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

-- What keeps the guard from holding here. grade: bad (writes can go round it), loss (a crash or fail-over can take
-- marks back), note. No row: nothing found.
CREATE OR REPLACE FUNCTION fence.check() RETURNS TABLE (grade text, what text, remedy text)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'bad', format('the guard of %s is switched off', t.tgrelid::regclass), format('SELECT fence.protect(%L, %L)', p.the_table, p.lock_is)
        FROM fence.protected p, fence.parts(p.the_table) part JOIN pg_trigger t ON t.tgrelid = part
        WHERE t.tgname LIKE 'fence\_guard%' AND t.tgenabled <> 'A'
    UNION ALL
    SELECT 'bad', format('TRUNCATE of %s is not guarded', part), format('SELECT fence.protect(%L, %L)', p.the_table, p.lock_is)
        FROM fence.protected p, fence.parts(p.the_table) part
        WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = part AND t.tgname = 'fence_guard_all')
    UNION ALL
    SELECT 'bad', format('role %s owns the protected table %s, and can log in: it can switch the guard off', r.rolname, p.the_table),
           'Let writers be another role than the owner.'
        FROM fence.protected p JOIN pg_class c ON c.oid = p.the_table JOIN pg_roles r ON r.oid = c.relowner
        WHERE r.rolcanlogin AND NOT r.rolsuper
    UNION ALL
    SELECT 'bad', format('role %s may change %s', coalesce(nullif(a.grantee::regrole::text, '-'), 'PUBLIC'), c.oid::regclass),
           format('REVOKE ALL ON %s FROM %s', c.oid::regclass, coalesce(nullif(a.grantee::regrole::text, '-'), 'PUBLIC'))
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
        WHERE c.oid IN ('fence.mark'::regclass, 'fence.origin'::regclass) AND a.grantee <> c.relowner AND a.privilege_type <> 'SELECT'
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
    SELECT 'note', format('prepared transaction %L keeps newer claims out until it is ended', gid), format('COMMIT or ROLLBACK PREPARED %L', gid)
        FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'note', 'no table is protected', 'SELECT fence.protect(table, lock column or expression)' WHERE NOT EXISTS (SELECT FROM fence.protected)
$$;

-- ---- rights ---------------------------------------------------------------------------------------------------------

REVOKE ALL ON ALL TABLES IN SCHEMA fence FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA fence FROM PUBLIC;
GRANT USAGE ON SCHEMA fence TO PUBLIC;
GRANT SELECT ON fence.mark, fence.origin, fence.protected TO PUBLIC;
GRANT EXECUTE ON PROCEDURE fence.claim(text, bigint, boolean) TO PUBLIC;
GRANT EXECUTE ON FUNCTION fence.use(text, bigint, boolean), fence.admit(text), fence.version(), fence.refuse(text, text, text),
    fence.mark_for_share(text), fence.judge(text, bigint, bigint),
    fence.protect(regclass, text), fence.unprotect(regclass), fence.parts(regclass), fence.trigger_source(regclass, text) TO PUBLIC;
