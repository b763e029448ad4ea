-- The source of docker-compose.yml: two tables with some rows to begin with.
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, changed timestamptz NOT NULL DEFAULT now());
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL, amount bigint NOT NULL, note text);
INSERT INTO customers SELECT n, 'customer ' || n FROM generate_series(1, 100) n;
INSERT INTO orders SELECT n, n % 100 + 1, n, 'order ' || n FROM generate_series(1, 1000) n;
