-- For each table: @TABLE@ and @NEW@ and @OLD@ (the lock of a row, as an expression) are put in by protect().
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
