-- pg_dump leaves out what an extension's tables hold, unless they are named here: marks, the floor and where they were made must come along.
SELECT pg_catalog.pg_extension_config_dump('fence.mark', '');
SELECT pg_catalog.pg_extension_config_dump('fence.origin', '');
