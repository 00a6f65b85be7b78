-- fencelock's guard for SQLite 3.35 or newer. The triggers call fence_admit(lock, mark), which compares the connection's token
-- with the mark. Only a connection opened by fencelock_sqlite.py or fencelock_sqlite.c has that function. Writes of all others,
-- the sqlite3 shell included, fail with "no such function".
PRAGMA journal_mode = WAL;
BEGIN IMMEDIATE;

CREATE TABLE IF NOT EXISTS fence_mark (
    lock TEXT PRIMARY KEY NOT NULL CHECK (typeof(lock) = 'text' AND length(CAST(lock AS BLOB)) BETWEEN 1 AND 255),
    mark INTEGER NOT NULL CHECK (typeof(mark) = 'integer' AND mark BETWEEN 1 AND 9007199254740991)
) WITHOUT ROWID;

-- Every claim below the floor is refused, for every lock: adopt() raises it, after a restore.
CREATE TABLE IF NOT EXISTS fence_origin (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    floor INTEGER NOT NULL CHECK (typeof(floor) = 'integer' AND floor BETWEEN 1 AND 9007199254740991)
);
INSERT OR IGNORE INTO fence_origin VALUES (1, 1);
-- Made anew each time: what is there under their names may be those of an older guard, or somebody else's.
DROP TRIGGER IF EXISTS fence_origin_rises;
DROP TRIGGER IF EXISTS fence_origin_stays;
DROP TRIGGER IF EXISTS fence_mark_floor;
DROP TRIGGER IF EXISTS fence_mark_rises;
DROP TRIGGER IF EXISTS fence_mark_stays;
DROP TRIGGER IF EXISTS fence_mark_is_not_replaced;
CREATE TRIGGER fence_origin_rises BEFORE UPDATE ON fence_origin WHEN NEW.floor < OLD.floor
BEGIN SELECT RAISE(ABORT, 'REFUSED the floor never goes down'); END;
CREATE TRIGGER fence_origin_stays BEFORE DELETE ON fence_origin
BEGIN SELECT RAISE(ABORT, 'REFUSED the floor is not deleted'); END;
-- Programs in C claim with an INSERT of their own.
CREATE TRIGGER fence_mark_floor BEFORE INSERT ON fence_mark
WHEN NEW.mark < (SELECT floor FROM fence_origin)
BEGIN SELECT RAISE(ABORT, 'STALE the token is below the floor of this file'); END;

CREATE TRIGGER fence_mark_rises BEFORE UPDATE ON fence_mark
WHEN NEW.mark < OLD.mark OR NEW.lock <> OLD.lock
BEGIN SELECT RAISE(ABORT, 'REFUSED a mark never goes down'); END;

-- One below the floor says no more than the floor does.
CREATE TRIGGER fence_mark_stays BEFORE DELETE ON fence_mark
WHEN OLD.mark >= (SELECT floor FROM fence_origin)
BEGIN SELECT RAISE(ABORT, 'REFUSED a mark is not deleted'); END;

-- INSERT OR REPLACE deletes without the trigger above.
CREATE TRIGGER fence_mark_is_not_replaced BEFORE INSERT ON fence_mark
WHEN EXISTS (SELECT 1 FROM fence_mark m WHERE m.lock = NEW.lock AND m.mark > NEW.mark)
BEGIN SELECT RAISE(ABORT, 'REFUSED a mark never goes down'); END;
COMMIT;
