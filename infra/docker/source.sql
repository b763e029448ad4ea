-- The source of docker-compose.yml: two tables with some rows to begin with, their owner, and Debezium's user.
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, changed timestamptz NOT NULL DEFAULT now());
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL, amount bigint NOT NULL, note text);
INSERT INTO customers SELECT n, 'customer ' || n FROM generate_series(1, 100) n;
INSERT INTO orders SELECT n, n % 100 + 1, n, 'order ' || n FROM generate_series(1, 1000) n;
-- Who changes schemas: docs/migrations.md, "Rights at the database". REPLICATION is for strategy online.
\set password `cat "${MIGRATOR_PASSWORD_FILE:-/run/secrets/migrator_password}"`
CREATE ROLE migrator LOGIN REPLICATION PASSWORD :'password';
GRANT CREATE ON DATABASE :"DBNAME" TO migrator;
GRANT USAGE, CREATE ON SCHEMA public TO migrator;
ALTER TABLE customers OWNER TO migrator;
ALTER TABLE orders OWNER TO migrator;
\set password `cat "${DEBEZIUM_PASSWORD_FILE:-/run/secrets/source_password}"`
CREATE ROLE debezium LOGIN REPLICATION PASSWORD :'password';
GRANT SELECT ON customers, orders TO debezium;
-- Tables that are made later are captured, too. Only a superuser may publish all of them.
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO debezium;
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO debezium;
ALTER DEFAULT PRIVILEGES FOR ROLE migrator IN SCHEMA public GRANT SELECT ON TABLES TO debezium;
CREATE PUBLICATION dbz_publication FOR ALL TABLES;
