-- The target of docker-compose.yml: the same tables, empty, their owner, and the user by which Headgate writes them.
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, changed timestamptz NOT NULL);
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL, amount bigint NOT NULL, note text);
\set password `cat "${MIGRATOR_PASSWORD_FILE:-/run/secrets/migrator_password}"`
CREATE ROLE migrator LOGIN PASSWORD :'password';
\set password `cat "${HEADGATE_PASSWORD_FILE:-/run/secrets/target_password}"`
CREATE ROLE headgate LOGIN PASSWORD :'password';
GRANT TEMPORARY ON DATABASE :"DBNAME" TO headgate;
CREATE SCHEMA headgate AUTHORIZATION headgate;
-- Who changes schemas: docs/migrations.md, "Rights at the database". Its tables are in the schema of feeds' positions.
GRANT CREATE ON DATABASE :"DBNAME" TO migrator;
GRANT USAGE, CREATE ON SCHEMA public, headgate TO migrator;
ALTER TABLE customers OWNER TO migrator;
ALTER TABLE orders OWNER TO migrator;
GRANT SELECT, INSERT, UPDATE, DELETE ON customers, orders TO headgate;
-- And of tables that are made later.
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO headgate;
ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO headgate;
ALTER DEFAULT PRIVILEGES FOR ROLE migrator IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO headgate;
