-- fencelock's guard for MariaDB 10.6 or newer and MySQL 8 or newer: rows that only the newest holder of a lock can change.
--
-- How it holds. A trigger reads the mark with a shared row lock, which sees the newest committed mark at every isolation level
-- and is kept until the transaction ends; a claim updates that row, so it waits for older writers. A claim is a
-- procedure that commits at its beginning and its end: so it is never part of a transaction with an older snapshot, and MySQL
-- does not allow functions to call it.
--
-- The text in /*M! is read by MariaDB alone, that in /*!50700 by MySQL alone. Dropping a procedure takes the rights on it from writers. MariaDB
-- replaces it, and keeps them; MySQL cannot, so there they have to be granted again, which `fencelock guard install` does.
CREATE DATABASE IF NOT EXISTS fence CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

DELIMITER //
-- Clusters that certify rows at commit (Galera, Group Replication with several primaries) do not see the row locks of other
-- nodes, so that two nodes lose each other's updates. The system tables that tell differ.
/*!50700 DROP PROCEDURE IF EXISTS fence.refuse_cluster */ //
CREATE /*M! OR REPLACE */ PROCEDURE fence.refuse_cluster()
BEGIN
    DECLARE found INT DEFAULT 0;
    /*M! SELECT COUNT(*) INTO found FROM information_schema.global_variables v
        WHERE (v.variable_name = 'WSREP_ON' AND v.variable_value = 'ON')
        OR (v.variable_name = 'WSREP_PROVIDER' AND v.variable_value NOT IN ('', 'none')); */
    IF VERSION() NOT LIKE '%MariaDB%' THEN
        SELECT COUNT(*) INTO found FROM performance_schema.global_variables v
            WHERE (v.variable_name = 'wsrep_on' AND v.variable_value = 'ON')
            OR (v.variable_name = 'wsrep_provider' AND v.variable_value NOT IN ('', 'none'))
            OR (v.variable_name = 'group_replication_single_primary_mode' AND v.variable_value = 'OFF');
    END IF;
    IF found > 0 THEN
        SIGNAL SQLSTATE 'FL006' SET MESSAGE_TEXT = 'REFUSED nodes of Galera, and several primaries, lose updates of each other: no guard holds there';
    END IF;
END//

-- An engine without transactions keeps the row of a statement that a trigger refused.
/*!50700 DROP PROCEDURE IF EXISTS fence.refuse_engine */ //
CREATE /*M! OR REPLACE */ PROCEDURE fence.refuse_engine(a_table VARCHAR(200), an_engine VARCHAR(64))
BEGIN
    DECLARE said VARCHAR(400);
    IF an_engine IS NULL THEN -- a view too
        SET said = LEFT(CONCAT('REFUSED there is no table ', a_table), 128);
        SIGNAL SQLSTATE 'FL006' SET MESSAGE_TEXT = said;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM information_schema.engines e WHERE e.engine = an_engine AND e.transactions = 'YES') THEN
        SET said = LEFT(CONCAT('REFUSED ', a_table, ' has the engine ', an_engine, ', which cannot undo what is refused: ALTER TABLE ', a_table,
            ' ENGINE = InnoDB'), 128);
        SIGNAL SQLSTATE 'FL006' SET MESSAGE_TEXT = said;
    END IF;
END//
DELIMITER ;
CALL fence.refuse_cluster();

-- floor: every claim below it is refused, for every lock. server: the server on which the marks were made, so that a restored
-- or promoted copy is noticed.
CREATE TABLE IF NOT EXISTS fence.origin (
    one TINYINT NOT NULL PRIMARY KEY CHECK (one = 1),
    floor BIGINT NOT NULL CHECK (floor BETWEEN 1 AND 9007199254740991),
    server VARCHAR(1000) NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO fence.origin VALUES (1, 1, CONCAT_WS(':', @@hostname, @@server_id, @@datadir));

CREATE TABLE IF NOT EXISTS fence.mark (
    `lock` VARBINARY(255) NOT NULL PRIMARY KEY,
    mark BIGINT NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991)
) ENGINE = InnoDB;

DELIMITER //
DROP TRIGGER IF EXISTS fence.mark_rises//
CREATE TRIGGER fence.mark_rises BEFORE UPDATE ON fence.mark FOR EACH ROW
BEGIN
    IF NEW.mark < OLD.mark OR NEW.`lock` <> OLD.`lock` THEN
        SIGNAL SQLSTATE 'FL006' SET MESSAGE_TEXT = 'REFUSED a mark never goes down';
    END IF;
END//
DROP TRIGGER IF EXISTS fence.mark_stays//
CREATE TRIGGER fence.mark_stays BEFORE DELETE ON fence.mark FOR EACH ROW
BEGIN
    IF OLD.mark >= (SELECT o.floor FROM fence.origin o) THEN
        SIGNAL SQLSTATE 'FL006' SET MESSAGE_TEXT = 'REFUSED a mark is not deleted: CALL fence.forget(token) drops those below a token';
    END IF;
END//
DROP TRIGGER IF EXISTS fence.origin_rises//
CREATE TRIGGER fence.origin_rises BEFORE UPDATE ON fence.origin FOR EACH ROW
BEGIN
    IF NEW.floor < OLD.floor THEN
        SIGNAL SQLSTATE 'FL006' SET MESSAGE_TEXT = 'REFUSED the floor never goes down';
    END IF;
END//
DROP TRIGGER IF EXISTS fence.origin_stays//
CREATE TRIGGER fence.origin_stays BEFORE DELETE ON fence.origin FOR EACH ROW
BEGIN
    SIGNAL SQLSTATE 'FL006' SET MESSAGE_TEXT = 'REFUSED the floor is not deleted';
END//

/*!50700 DROP PROCEDURE IF EXISTS fence.check_arguments */ //
CREATE /*M! OR REPLACE */ PROCEDURE fence.check_arguments(a_lock VARBINARY(1000), a_token VARCHAR(64))
BEGIN
    IF a_lock IS NULL OR LENGTH(a_lock) NOT BETWEEN 1 AND 255 THEN
        SIGNAL SQLSTATE 'FL006' SET MESSAGE_TEXT = 'REFUSED the name of a lock has 1 to 255 bytes';
    END IF;
    IF a_token IS NULL OR a_token NOT REGEXP '^[1-9][0-9]{0,15}$' OR CAST(a_token AS UNSIGNED) > 9007199254740991 THEN
        SIGNAL SQLSTATE 'FL006' SET MESSAGE_TEXT = 'REFUSED a token is a number from 1 to 9007199254740991';
    END IF;
END//

-- Raises the mark, and sets the token under which this session writes. Commits an open transaction, as DDL does, also when it is refused.
/*!50700 DROP PROCEDURE IF EXISTS fence.claim */ //
CREATE /*M! OR REPLACE */ PROCEDURE fence.claim(a_lock VARBINARY(1000), a_token VARCHAR(64))
BEGIN
    DECLARE now_mark BIGINT DEFAULT 0;
    DECLARE said VARCHAR(128);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    COMMIT; -- first: so that a refusal, for whatever reason, finds nothing of the caller's to roll back
    CALL fence.check_arguments(a_lock, a_token);
    START TRANSACTION;
    SELECT o.floor INTO now_mark FROM fence.origin o LOCK IN SHARE MODE;
    IF now_mark > CAST(a_token AS UNSIGNED) THEN
        SET said = CONCAT('STALE token ', a_token, ' is below the floor ', now_mark, ' of this server');
        SIGNAL SQLSTATE 'FL001' SET MESSAGE_TEXT = said;
    END IF;
    INSERT INTO fence.mark VALUES (a_lock, CAST(a_token AS UNSIGNED))
        ON DUPLICATE KEY UPDATE mark = GREATEST(mark, VALUES(mark));
    SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.`lock` = a_lock FOR UPDATE;
    IF now_mark > CAST(a_token AS UNSIGNED) THEN
        SET said = CONCAT('STALE token ', a_token, ' is below the mark ', now_mark);
        SIGNAL SQLSTATE 'FL001' SET MESSAGE_TEXT = said;
    END IF;
    COMMIT;
    SET @fence_lock = a_lock, @fence_token = CAST(a_token AS UNSIGNED);
    CALL fence.bound_idle();
END//

-- For other sessions of the same holder: sets the token under which they write. It does not claim.
/*!50700 DROP PROCEDURE IF EXISTS fence.use */ //
CREATE /*M! OR REPLACE */ PROCEDURE fence.`use`(a_lock VARBINARY(1000), a_token VARCHAR(64))
BEGIN
    CALL fence.check_arguments(a_lock, a_token);
    SET @fence_lock = a_lock, @fence_token = CAST(a_token AS UNSIGNED);
    CALL fence.bound_idle();
END//

-- Called by the triggers of protected tables. Runs with the rights of the user who installed it.
/*!50700 DROP PROCEDURE IF EXISTS fence.admit */ //
CREATE /*M! OR REPLACE */ PROCEDURE fence.admit(a_lock VARBINARY(1000))
BEGIN
    DECLARE now_mark BIGINT DEFAULT 0;
    DECLARE said VARCHAR(128);
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET now_mark = 0;
    IF a_lock IS NULL THEN
        SIGNAL SQLSTATE 'FL005' SET MESSAGE_TEXT = 'NOLOCK this row belongs to no lock';
    END IF;
    IF @fence_lock IS NULL OR @fence_token IS NULL OR CAST(@fence_lock AS BINARY) <> a_lock THEN
        SIGNAL SQLSTATE 'FL002' SET MESSAGE_TEXT = 'NOTOKEN this session has no token for the lock of this row: CALL fence.claim(lock, token)';
    END IF;
    SELECT m.mark INTO now_mark FROM fence.mark m WHERE m.`lock` = a_lock LOCK IN SHARE MODE;
    IF @fence_token < now_mark THEN
        SET said = CONCAT('STALE token ', @fence_token, ' is below the mark ', now_mark);
        SIGNAL SQLSTATE 'FL001' SET MESSAGE_TEXT = said;
    ELSEIF @fence_token <> now_mark THEN
        SET said = CONCAT('NOTCLAIMED token ', @fence_token, ' is above the mark ', now_mark, ': claim, and read again');
        SIGNAL SQLSTATE 'FL003' SET MESSAGE_TEXT = said;
    END IF;
END//

-- MariaDB ends idle transactions. MySQL has no such limit: there the connection is closed after that time idle, inside a
-- transaction or not. @fence_idle_limit_s = 0 changes neither.
/*!50700 DROP PROCEDURE IF EXISTS fence.bound_idle */ //
CREATE /*M! OR REPLACE */ PROCEDURE fence.bound_idle()
BEGIN
    DECLARE bound INT DEFAULT 10;
    IF @fence_idle_limit_s IS NOT NULL THEN
        SET bound = CAST(@fence_idle_limit_s AS SIGNED);
    END IF;
    IF bound > 0 AND VERSION() NOT LIKE '%MariaDB%' AND @@SESSION.wait_timeout > bound THEN
        SET SESSION wait_timeout = bound;
    END IF;
    /*M! IF bound > 0 AND (@@SESSION.idle_transaction_timeout = 0 OR @@SESSION.idle_transaction_timeout > bound) THEN
        SET SESSION idle_transaction_timeout = bound;
    END IF; */
END//

-- Refuses every token below this one from now on, and drops the marks below it. For an administrator, with the
-- min_live_token of the lock service, to keep the marks few.
/*!50700 DROP PROCEDURE IF EXISTS fence.forget */ //
CREATE /*M! OR REPLACE */ PROCEDURE fence.forget(below VARCHAR(64))
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    COMMIT;
    CALL fence.check_arguments('-', below);
    START TRANSACTION;
    UPDATE fence.origin SET floor = GREATEST(floor, CAST(below AS UNSIGNED));
    DELETE FROM fence.mark WHERE mark < CAST(below AS UNSIGNED); -- waits for whoever writes under one of them
    COMMIT;
END//

-- After a restore or a fail-over: forgets, and takes the present server for the marks' own.
/*!50700 DROP PROCEDURE IF EXISTS fence.adopt */ //
CREATE /*M! OR REPLACE */ PROCEDURE fence.adopt(new_token VARCHAR(64))
BEGIN
    CALL fence.forget(new_token);
    UPDATE fence.origin SET server = CONCAT_WS(':', @@hostname, @@server_id, @@datadir);
    COMMIT;
END//
DELIMITER ;
