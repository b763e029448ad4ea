-- The target of docker-compose.yml: the same tables, empty, and the user by which Headgate writes them.
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, changed timestamptz NOT NULL);
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL, amount bigint NOT NULL, note text);
\set password `cat "${HEADGATE_PASSWORD_FILE:-/run/secrets/target_password}"`
CREATE ROLE headgate LOGIN PASSWORD :'password';
GRANT TEMPORARY ON DATABASE :"DBNAME" TO headgate;
CREATE SCHEMA headgate AUTHORIZATION headgate;
GRANT SELECT, INSERT, UPDATE, DELETE ON customers, orders TO headgate;
-- And of tables that are made later.
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO headgate;
ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO headgate;
