-- The triggers of one table. protect() replaces @TABLE@, and @NEW@ and @OLD@ by expressions for the lock of the row.
-- It is fence_admit() that refuses, by its own error. The RAISE is never reached, but has to be there: before 3.39.3 SQLite
-- undoes a failed statement inside a transaction only if the statement has a RAISE or a constraint that may abort it.
DROP TRIGGER IF EXISTS "fence_insert_@NAME@";
DROP TRIGGER IF EXISTS "fence_update_@NAME@";
DROP TRIGGER IF EXISTS "fence_delete_@NAME@";
CREATE TRIGGER "fence_insert_@NAME@" AFTER INSERT ON @TABLE@ BEGIN
    SELECT RAISE(ABORT, 'REFUSED') WHERE fence_admit(@NEW@, (SELECT mark FROM fence_mark WHERE lock = @NEW@)) IS NOT 1;
END;
CREATE TRIGGER "fence_update_@NAME@" AFTER UPDATE ON @TABLE@ BEGIN
    SELECT RAISE(ABORT, 'REFUSED') WHERE fence_admit(@OLD@, (SELECT mark FROM fence_mark WHERE lock = @OLD@)) IS NOT 1;
    SELECT RAISE(ABORT, 'REFUSED') WHERE fence_admit(@NEW@, (SELECT mark FROM fence_mark WHERE lock = @NEW@)) IS NOT 1;
END;
CREATE TRIGGER "fence_delete_@NAME@" AFTER DELETE ON @TABLE@ BEGIN
    SELECT RAISE(ABORT, 'REFUSED') WHERE fence_admit(@OLD@, (SELECT mark FROM fence_mark WHERE lock = @OLD@)) IS NOT 1;
END;
