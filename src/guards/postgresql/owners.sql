-- The schema's owner can drop what is in it, and an object's owner can replace it: a role that made one of them first would own a part of
-- the guard, and its code would run as every writer. So the guard is installed, checked and removed only where all of it belongs to this role
-- or to a superuser.
SET search_path = pg_catalog, pg_temp;
DO $$
DECLARE
    other record;
BEGIN
    SELECT o.what, r.rolname INTO other FROM (
            SELECT 'schema fence' AS what, n.nspowner AS owner FROM pg_namespace n WHERE n.nspname = 'fence'
        UNION ALL
            SELECT 'relation fence.' || quote_ident(c.relname), c.relowner FROM pg_class c
            WHERE c.relnamespace = to_regnamespace('fence') AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
        UNION ALL
            SELECT 'function ' || p.oid::regprocedure, p.proowner FROM pg_proc p WHERE p.pronamespace = to_regnamespace('fence')
        ) o JOIN pg_roles r ON r.oid = o.owner
        WHERE NOT r.rolsuper AND r.rolname <> current_user
        ORDER BY o.what DESC LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'REFUSED % belongs to role %, which can take the guard away', other.what, other.rolname USING ERRCODE = '44L06',
            HINT = format('Log in as %I, if that role is to own the guard. If not, look at what is there, then DROP SCHEMA fence CASCADE.', other.rolname);
    END IF;
END $$;
RESET search_path;
