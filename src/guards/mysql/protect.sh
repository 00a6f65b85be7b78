#!/bin/sh
# Prints the SQL that protects a table: protect.sh DATABASE TABLE LOCK | mariadb, or | mysql. LOCK is a column, or an
# expression in which {row}.column is a column: "CONCAT('account/', {row}.id)". With "off" for LOCK: takes the guard off.
set -eu
fence=${FENCE_SCHEMA:-fence}
if [ $# -ne 3 ] || ! printf '%s' "$1$2$fence" | grep -qE '^[A-Za-z0-9_$]+$'; then
    echo "usage: protect.sh DATABASE TABLE LOCK|off (plain names)" >&2
    exit 2
fi
db=$1 table=$2
if printf '%s' "$3" | grep -qE '^[A-Za-z0-9_$]+$'; then lock="{row}.\`$3\`"; else lock="($3)"; fi

# The name of the lock in bytes, of text in UTF-8, as clients send it. As text, names that differ only in case, accents or spaces at
# the end would be the same lock, by the column's collation; and in latin1 one name has the bytes of another one in UTF-8.
bytes() { # ROW
    of_row=$(printf '%s' "$lock" | sed "s/{row}/$1/g")
    printf '%s' "IF(CHARSET($of_row) = 'binary', CAST($of_row AS BINARY), CAST(CONVERT($of_row USING utf8mb4) AS BINARY))"
}

new=$(bytes NEW) old=$(bytes OLD)

drop() { # PREFIX of the triggers
    for when in insert update delete; do
        echo "DROP TRIGGER IF EXISTS \`$db\`.\`$1${table}_$when\`;"
    done
}

create() { # PREFIX of the triggers
    cat <<SQL
DELIMITER //
CREATE TRIGGER \`$db\`.\`$1${table}_insert\` AFTER INSERT ON \`$db\`.\`$table\` FOR EACH ROW CALL $fence.admit($new)//
CREATE TRIGGER \`$db\`.\`$1${table}_delete\` AFTER DELETE ON \`$db\`.\`$table\` FOR EACH ROW CALL $fence.admit($old)//
CREATE TRIGGER \`$db\`.\`$1${table}_update\` AFTER UPDATE ON \`$db\`.\`$table\` FOR EACH ROW
BEGIN
    CALL $fence.admit($old);
    IF NOT ($new <=> $old) THEN
        CALL $fence.admit($new);
    END IF;
END//
DELIMITER ;
SQL
}

if [ "$3" = off ]; then
    drop fence_
    drop fence-
    exit
fi
# DDL cannot be rolled back. So the new triggers are made under other names first: an error in LOCK ends the script there, and what
# was there before stays. They are the guard while the old ones are exchanged, should this end in the middle. The lock on the table
# lets no write come between; it is the only statement that waits for others, so who gives up waiting has changed nothing.
echo "SET NAMES utf8mb4;" # for letters in LOCK: in another locale the client says latin1
echo "CALL $fence.refuse_cluster();"
echo "CALL $fence.refuse_engine('$db.$table', (SELECT engine FROM information_schema.tables WHERE table_schema = '$db' AND table_name = '$table'));"
echo "LOCK TABLES \`$db\`.\`$table\` WRITE;"
drop fence-
create fence-
drop fence_
create fence_
drop fence-
echo "UNLOCK TABLES;"
