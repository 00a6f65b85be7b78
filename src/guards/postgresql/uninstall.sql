-- Takes the guard off every table, and itself away. Marks go with it: afterwards nothing is fenced.
DO $$
DECLARE
    p record;
BEGIN
    FOR p IN SELECT the_table FROM fence.protected LOOP
        PERFORM fence.unprotect(p.the_table);
    END LOOP;
END $$;
DROP EXTENSION IF EXISTS fencelock;
DROP SCHEMA IF EXISTS fence CASCADE;
