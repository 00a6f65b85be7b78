-- Marks go with it: afterwards nothing is fenced. Take the guard off each table first: protect.sh DATABASE TABLE off.
DROP DATABASE IF EXISTS fence;
