"""Statements for each clause at MariaDB."""

from typing import Final

from headgate_lab.schema_changes.case import Case, changing

__all__ = ["MARIADB_CASES", "MARIADB_TABLES"]

MARIADB_TABLES: Final = (
    "CREATE TABLE others (id int PRIMARY KEY)",
    "INSERT INTO others SELECT seq FROM seq_0_to_99",
    (
        "CREATE TABLE items (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, a int DEFAULT 5, s varchar(20) DEFAULT 'é', "
        "d decimal(6,2) DEFAULT 1.25, word enum('x','y') DEFAULT 'x', at datetime(6), body text, twice int AS (n * 2) "
        "STORED, KEY by_a (a), CONSTRAINT positive CHECK (n >= 0)) CHARACTER SET latin1"
    ),
)

_RANGES: Final = (
    "ALTER TABLE items PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (20), "
    "PARTITION p1 VALUES LESS THAN (1000000))"
)
_FOREIGN: Final = "ALTER TABLE items ADD CONSTRAINT other FOREIGN KEY (a) REFERENCES others (id)"

MARIADB_CASES: Final[tuple[Case, ...]] = (
    changing("add-column", "ADD COLUMN c int NOT NULL DEFAULT 7 AFTER id"),
    changing("add-column", "ADD c varchar(20) CHARACTER SET utf8mb4 DEFAULT 'é' FIRST"),
    changing("modify-column", "MODIFY a bigint DEFAULT 5"),
    changing("modify-column", "MODIFY S varchar(60) CHARACTER SET utf8mb4 FIRST, ADD COLUMN c int AFTER S"),
    changing("modify-column", "MODIFY word varchar(5)"),
    changing("modify-column", "MODIFY d decimal(6,1)", lossy=("d",)),
    changing("change-column", "CHANGE S title varchar(30) DEFAULT 'é'"),
    changing("rename-column", "RENAME COLUMN A TO amount, DROP COLUMN d"),
    changing("drop-column", "DROP COLUMN a, ADD COLUMN a int DEFAULT 47"),
    changing("column-default", "ALTER a SET DEFAULT 9, ALTER COLUMN s DROP DEFAULT"),
    changing("add-index", "ADD INDEX by_s (s, d)"),
    changing("add-index", "ADD FULLTEXT KEY words (body)"),
    changing("add-unique", "ADD UNIQUE KEY by_both (a, id)"),
    changing("add-primary", "DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)"),
    changing("drop-primary", "DROP PRIMARY KEY", "ALTER TABLE items ADD UNIQUE KEY by_id (id)"),
    changing("drop-index", "DROP INDEX by_a"),
    changing("rename-index", "RENAME INDEX by_a TO of_a"),
    changing("add-check", "ADD CONSTRAINT small CHECK (n < 1000000)"),
    changing("drop-constraint", "DROP CONSTRAINT positive"),
    changing("convert-charset", "CONVERT TO CHARACTER SET utf8mb4"),
    changing("default-charset", "DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin"),
    changing("engine", "ENGINE = InnoDB"),
    changing("storage", "ROW_FORMAT = COMPACT, STATS_PERSISTENT = 1"),
    changing("table-comment", "COMMENT = 'the shop''s'"),
    changing("force", "FORCE"),
    changing("partition-by", "PARTITION BY HASH (id) PARTITIONS 3"),
    changing("remove-partitioning", "REMOVE PARTITIONING", _RANGES),
    changing("add-unique-prefix", "ADD UNIQUE by_begin (s(10), id)"),
    changing("ignore-index", "ALTER INDEX by_a IGNORED"),
    changing("add-foreign", "ADD CONSTRAINT other FOREIGN KEY (a) REFERENCES others (id)"),
    changing("drop-foreign", "DROP FOREIGN KEY other", _FOREIGN),
    changing("other-engine", "ENGINE = Aria"),
    changing("counter", "AUTO_INCREMENT = 5000", "ALTER TABLE items MODIFY id int AUTO_INCREMENT"),
    changing("hints", "MAX_ROWS = 1000000, AVG_ROW_LENGTH = 100"),
    changing("order-by", "ORDER BY n, id"),
    changing("algorithm", "ADD COLUMN c int, ALGORITHM = COPY, LOCK = SHARED"),
    changing("add-partition", "ADD PARTITION (PARTITION p2 VALUES LESS THAN (20000000))", _RANGES),
    changing("drop-partition", "DROP PARTITION p0", _RANGES),
    changing("coalesce-partition", "COALESCE PARTITION 2", "ALTER TABLE items PARTITION BY HASH (id) PARTITIONS 4"),
    changing(
        "reorganize-partition",
        "REORGANIZE PARTITION p0 INTO (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20))",
        _RANGES,
    ),
    changing("versioning", "ADD SYSTEM VERSIONING"),
    Case("create-table", "CREATE TABLE wanted (id int PRIMARY KEY, v varchar(20) DEFAULT 'é')"),
    Case("create-like", "CREATE TABLE wanted LIKE others"),
    Case("drop-table", "DROP TABLE items"),
    changing("executable-comment", "/*! RENAME TO others2, */ ADD c int"),
    changing("rename-table", "RENAME = others2"),
    changing("exchange-partition", "EXCHANGE PARTITION p0 WITH TABLE others", _RANGES),
    changing("convert-partition", "CONVERT PARTITION p1 TO TABLE others2", _RANGES),
    changing("union", "UNION = (others)"),
    Case("drop-tables", "DROP TABLE items, others"),
    Case("create-select", "CREATE TABLE wanted SELECT * FROM items"),
    Case("create-replace", "CREATE OR REPLACE TABLE items (id int)"),
    Case("temporary", "CREATE TEMPORARY TABLE wanted (id int)"),
    changing("truncate-partition", "TRUNCATE PARTITION p0", _RANGES),
    changing("maintain-partition", "REBUILD PARTITION p0", _RANGES),
    changing("tablespace", "DISCARD TABLESPACE"),
    changing("directory", "DATA DIRECTORY = '/tmp'"),
    changing("elsewhere-engine", "ENGINE = BLACKHOLE"),
    changing("keys-enabled", "DISABLE KEYS"),
    Case("ignore", "ALTER IGNORE TABLE items ADD UNIQUE (n)"),
    changing("wait", "WAIT 5 ADD c int"),
)
