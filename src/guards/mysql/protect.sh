#!/bin/sh
# Prints the SQL that protects a table: protect.sh DATABASE TABLE LOCK-COLUMN | mariadb. With "off" for the column: unprotects.
set -eu
if [ $# -ne 3 ] || ! printf '%s' "$1$2$3" | grep -qE '^[A-Za-z0-9_$]+$'; then
    echo "usage: protect.sh DATABASE TABLE LOCK-COLUMN|off (plain names)" >&2
    exit 2
fi
db=$1 table=$2 column=$3
for when in insert update delete; do
    echo "DROP TRIGGER IF EXISTS \`$db\`.\`fence_${table}_$when\`;"
done
[ "$column" = off ] && exit
cat <<SQL
DELIMITER //
BEGIN NOT ATOMIC
    IF @@version_comment LIKE '%Galera%' OR EXISTS (SELECT 1 FROM information_schema.global_variables
            WHERE variable_name = 'WSREP_ON' AND variable_value = 'ON') THEN
        SIGNAL SQLSTATE 'FL006' SET MESSAGE_TEXT = 'REFUSED Galera loses updates between its nodes: fence cannot hold there';
    END IF;
END//
CREATE TRIGGER \`$db\`.\`fence_${table}_insert\` AFTER INSERT ON \`$db\`.\`$table\` FOR EACH ROW CALL fence.admit(NEW.\`$column\`)//
CREATE TRIGGER \`$db\`.\`fence_${table}_delete\` AFTER DELETE ON \`$db\`.\`$table\` FOR EACH ROW CALL fence.admit(OLD.\`$column\`)//
CREATE TRIGGER \`$db\`.\`fence_${table}_update\` AFTER UPDATE ON \`$db\`.\`$table\` FOR EACH ROW
BEGIN
    CALL fence.admit(OLD.\`$column\`);
    IF NOT NEW.\`$column\` <=> OLD.\`$column\` THEN
        CALL fence.admit(NEW.\`$column\`);
    END IF;
END//
DELIMITER ;
SQL
