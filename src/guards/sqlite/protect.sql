-- The triggers of one table. protect() replaces @TABLE@, and @NEW@ and @OLD@ by expressions for the lock of the row.
DROP TRIGGER IF EXISTS "fence_insert_@NAME@";
DROP TRIGGER IF EXISTS "fence_update_@NAME@";
DROP TRIGGER IF EXISTS "fence_delete_@NAME@";
CREATE TRIGGER "fence_insert_@NAME@" AFTER INSERT ON @TABLE@ BEGIN
    SELECT fence_admit(@NEW@, (SELECT mark FROM fence_mark WHERE lock = @NEW@));
END;
CREATE TRIGGER "fence_update_@NAME@" AFTER UPDATE ON @TABLE@ BEGIN
    SELECT fence_admit(@OLD@, (SELECT mark FROM fence_mark WHERE lock = @OLD@));
    SELECT fence_admit(@NEW@, (SELECT mark FROM fence_mark WHERE lock = @NEW@));
END;
CREATE TRIGGER "fence_delete_@NAME@" AFTER DELETE ON @TABLE@ BEGIN
    SELECT fence_admit(@OLD@, (SELECT mark FROM fence_mark WHERE lock = @OLD@));
END;
