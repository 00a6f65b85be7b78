-- The table, after `fencelock guard install`. Its column "lock" names the lock of each row.
CREATE TABLE account (lock text PRIMARY KEY, balance bigint NOT NULL, paid timestamptz NOT NULL);
INSERT INTO account VALUES ('account/42', 0, '-infinity');
SELECT fence.protect('account', 'lock');
