-- The statements of postgres.py: what a backup needs to know of the server and of its tables.

-- name: server (postgresql)
-- Return the version of the server, the schema of the service, and whether this user may read where its programs are.
SELECT current_setting('server_version_num'), current_schema(), has_function_privilege('pg_config()', 'execute');

-- name: program_folder (postgresql)
-- Return the folder of the server's programs, on its machine.
SELECT setting FROM pg_config WHERE name = 'BINDIR';

-- name: other_clients (postgresql)
-- Count the other clients of this database. They would wait for the restored tables, or change them.
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend';

-- name: tables (postgresql)
-- Return the names of all tables of the schema, with it, quoted.
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = current_schema();
