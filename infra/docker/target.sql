-- The target of docker-compose.yml: the same tables, empty.
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, changed timestamptz NOT NULL);
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL, amount bigint NOT NULL, note text);
