"""Statements at real databases: what is refused touches nothing, plans write nothing, columns are not mistaken."""

import random
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pymysql
import pytest

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.shell.work import MigrationWork, open_strategy
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.statement import StatementError
from headgate.migration.strategies.contract import Memory, RefusedError
from headgate.migration.strategies.examining import checked_plan
from headgate.migration.strategies.online.lane_plan import lane_plan
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.records.migration import MigrationStrategy
from integration.migration.test_schema_changes import Place
from support.connections import described
from unit.migration.test_statement import MARIADB

pytestmark = pytest.mark.integration

SYNTAX_ERROR = 1064

REFUSED = {
    "mysql": (
        "ALTER TABLE n3 EXCHANGE PARTITION p0 WITH TABLE archive",
        "ALTER TABLE n3 CONVERT TABLE archive TO PARTITION p2 VALUES LESS THAN (3000)",
        "ALTER TABLE n3 CONVERT PARTITION p1 TO TABLE other",
        "ALTER TABLE archive RENAME = other",
        "ALTER TABLE archive RENAME other, ADD c int",
        "ALTER TABLE archive /*! RENAME TO other, */ ADD c int",
        "ALTER TABLE archive /*M! RENAME TO other, */ ADD c int",
        "DROP TABLE n3 /*! , archive */",
        "DROP TABLE n3, archive",
        "CREATE OR REPLACE TABLE archive (id int)",
        "CREATE TABLE other SELECT * FROM archive",
        "ALTER TABLE n3 TRUNCATE PARTITION p0",
        "ALTER TABLE archive DISCARD TABLESPACE",
        "ALTER TABLE archive ADD c int; DROP TABLE n3",
    ),
    "postgresql": (
        "ALTER TABLE n3 ATTACH PARTITION archive FOR VALUES FROM (5000) TO (6000)",
        "ALTER TABLE n3 DETACH PARTITION p0",
        "ALTER TABLE archive INHERIT n3",
        "ALTER TABLE archive RENAME TO other",
        "ALTER TABLE archive SET SCHEMA pg_catalog",
        "DROP TABLE n3, archive",
        "DROP TABLE n3 CASCADE",
        "CREATE TABLE other PARTITION OF n3 FOR VALUES FROM (5000) TO (6000)",
        "CREATE TABLE other AS SELECT * FROM archive",
        "ALTER TABLE archive ADD c int; DROP TABLE n3",
    ),
}

PLANNED = ("ALTER TABLE {} ADD COLUMN c int, DROP COLUMN v", "DROP TABLE {}", "CREATE TABLE wanted (id int)")


@pytest.fixture(params=["mariadb_database", "postgres_database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = Place(request.getfixturevalue(request.param), tmp_path)
    if found.is_mariadb:
        parts = " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000), PARTITION p1 VALUES LESS THAN (2000))"
        found.run(f"CREATE TABLE n3 (id int PRIMARY KEY, v int NOT NULL DEFAULT 0){parts}")
    else:
        found.run(
            "CREATE PUBLICATION captured FOR ALL TABLES",
            "CREATE TABLE n3 (id int PRIMARY KEY, v int NOT NULL DEFAULT 0) PARTITION BY RANGE (id)",
            "CREATE TABLE p0 PARTITION OF n3 FOR VALUES FROM (0) TO (1000)",
        )
    found.run("CREATE TABLE archive (id int PRIMARY KEY, v int NOT NULL DEFAULT 0)")
    found.run("INSERT INTO n3 (id) VALUES (1), (2)", "INSERT INTO archive (id) VALUES (5), (6), (7)")
    yield found
    if not found.is_mariadb:
        found.run("DROP PUBLICATION captured")


def asked(place: Place, statement: str, strategy: MigrationStrategy, **more: Any) -> MigrationSpec:
    known = place.spec(strategy, "t", "ADD c int", allow_lossy=False)
    return msgspec.structs.replace(known, statement=statement, **more)


def state_of(place: Place) -> Any:
    """Every table there is, wherever, and the rows of ours."""
    rows = [place.run(f"SELECT * FROM {table} ORDER BY 1") for table in ("n3", "archive", "others")]
    if place.is_mariadb:
        return rows, place.run(
            "SELECT table_schema, table_name, create_time FROM information_schema.tables WHERE table_schema NOT IN "
            "('information_schema', 'performance_schema', 'sys') ORDER BY 1, 2"
        )
    return rows, place.run("SELECT relnamespace, relname, relfilenode FROM pg_class WHERE oid >= 16384 ORDER BY 1, 2")


def logged(place: Place) -> Any:
    """Where the binary log ends."""
    return place.run("SHOW MASTER STATUS") if place.is_mariadb else None


def test_refused_statements_touch_nothing_in_plans_and_submissions(place: Place) -> None:
    before = state_of(place), logged(place)
    for statement in REFUSED["mysql" if place.is_mariadb else "postgresql"]:
        for strategy in (MigrationStrategy.ONLINE, MigrationStrategy.DIRECT):
            for reads_only in (True, False):
                spec = asked(place, statement, strategy)
                told = MigrationWork(cluster_id=NO_CLUSTER).run(
                    fx.ExamineMigration("r", "m", spec, reads_only=reads_only)
                )
                assert isinstance(told, fx.ExamineRefused), (statement, told)
    assert (state_of(place), logged(place)) == before


RESERVED = ("ALTER TABLE {} ADD c int", "DROP TABLE {}", "DROP TABLE IF EXISTS {}", "CREATE TABLE {} (id int)")


def test_reserved_schemas_are_refused_also_where_the_connection_leads_into_them(place: Place, tmp_path: Path) -> None:
    spec = asked(place, "ALTER TABLE archive ADD COLUMN c int", MigrationStrategy.DIRECT)
    with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
        strategy._server.take_over(1)  # headgate.migration exists
    connection = spec.database
    if place.is_mariadb:
        parts = urlsplit(place.url)
        inside = f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}/headgate"
        connection = described(inside, tmp_path / "password")
    else:
        database = urlsplit(place.url).path.strip("/")
        place.run(f'ALTER ROLE CURRENT_USER IN DATABASE "{database}" SET search_path = headgate, public')
    before = state_of(place)
    for form in RESERVED:
        for table in ("migration", "headgate.migration", "HEADGATE.migration"):
            for strategy in (MigrationStrategy.DIRECT, MigrationStrategy.ONLINE):
                for more in ({}, {"reads_only": True}):
                    spec = msgspec.structs.replace(asked(place, form.format(table), strategy), database=connection)
                    told = MigrationWork(cluster_id=NO_CLUSTER).run(fx.ExamineMigration("r", "m", spec, **more))
                    assert isinstance(told, fx.ExamineRefused), (form, table, told)
                    assert "Headgate's own schema" in told.reason or "nothing to copy" in told.reason
    assert state_of(place) == before


@pytest.mark.parametrize("place", ["mariadb_database"], indirect=True)
def test_a_table_whose_rows_are_elsewhere_is_not_altered(place: Place) -> None:
    place.run("CREATE TABLE elsewhere (id int) ENGINE=MRG_MyISAM")
    statement = "ALTER TABLE elsewhere COMMENT='host ''192.0.2.1'' '"
    spec = asked(place, statement, MigrationStrategy.DIRECT)
    for reads_only in (True, False):
        told = MigrationWork(cluster_id=NO_CLUSTER).run(fx.ExamineMigration("r", "m", spec, reads_only=reads_only))
        assert isinstance(told, fx.ExamineRefused)
        assert "MRG_MyISAM does not keep the rows on this server" in told.reason


def test_a_plan_writes_nothing_anywhere(place: Place) -> None:
    before = state_of(place), logged(place)
    for strategy in (MigrationStrategy.ONLINE, MigrationStrategy.DIRECT):
        for statement in PLANNED:
            for more in ({}, {"prefer_instant": True}, {"declarative": True}):
                spec = asked(place, statement.format("archive"), strategy, **more)
                told = MigrationWork(cluster_id=NO_CLUSTER).run(fx.ExamineMigration("r", "m", spec, reads_only=True))
                assert isinstance(told, fx.Examined | fx.ExamineRefused), (statement, told)
    spec = asked(place, "ALTER TABLE archive ADD COLUMN c int", MigrationStrategy.ONLINE)
    told = MigrationWork(cluster_id=NO_CLUSTER).run(fx.ExamineMigration("r", "m", spec, reads_only=True))
    assert isinstance(told, fx.Examined), told
    assert "checked when it is submitted" in told.message
    with (
        closing(open_strategy("m", spec, cluster_id=NO_CLUSTER, reads_only=True)) as strategy,
        pytest.raises(RefusedError, match=r"(?i)read.only"),
    ):
        strategy._server.rehearse(parse_statement(spec.statement, strategy._server.dialect), None)
    assert (state_of(place), logged(place)) == before


def test_a_submission_leaves_nothing(place: Place) -> None:
    work = MigrationWork(cluster_id=NO_CLUSTER)
    spec = asked(place, "ALTER TABLE archive ADD COLUMN c int", MigrationStrategy.ONLINE)
    assert isinstance(work.run(fx.ExamineMigration("r", "m", spec)), fx.Examined)  # the database headgate may be new
    before = state_of(place), logged(place)
    for strategy in (MigrationStrategy.ONLINE, MigrationStrategy.DIRECT):
        told = work.run(fx.ExamineMigration("r", "m", msgspec.structs.replace(spec, strategy=strategy, topic="t")))
        assert isinstance(told, fx.Examined), told
    assert (state_of(place), logged(place)) == before


@pytest.mark.parametrize("place", ["mariadb_database"], indirect=True)
def test_who_may_not_keep_a_trial_out_of_the_log_is_told_so(place: Place, tmp_path: Path) -> None:
    database = place.url.rsplit("/", 1)[1]
    place.run(
        "CREATE OR REPLACE USER app@'%' IDENTIFIED BY 'secret'",
        f"GRANT ALL ON {database}.* TO app@'%'",
        "GRANT ALL ON headgate.* TO app@'%'",
        "GRANT PROCESS ON *.* TO app@'%'",
    )
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    spec = asked(place, "ALTER TABLE archive ADD COLUMN c int", MigrationStrategy.DIRECT)
    address = f"mysql://app@{place.url.split('@')[1]}"
    spec = msgspec.structs.replace(spec, database=described(address, tmp_path / "secret"))
    try:
        told = MigrationWork(cluster_id=NO_CLUSTER).run(fx.ExamineMigration("r", "m", spec))
        assert isinstance(told, fx.Examined), told
        assert "binary log has CREATE TABLE and DROP TABLE headgate.rehearsal_" in told.message
    finally:
        place.run("DROP USER app@'%'")


def test_foreign_keys_are_dropped_and_added_directly(place: Place) -> None:
    place.run(
        "CREATE TABLE child (id int PRIMARY KEY, o int, CONSTRAINT to_others FOREIGN KEY (o) REFERENCES others (id))"
    )
    drop = "DROP FOREIGN KEY" if place.is_mariadb else "DROP CONSTRAINT"
    others = "others" if place.is_mariadb else "public.others"
    for change in (f"{drop} to_others", f"ADD CONSTRAINT again FOREIGN KEY (o) REFERENCES {others} (id)"):
        statement = f"ALTER TABLE child {change}"
        for strategy, kind in ((MigrationStrategy.DIRECT, fx.Examined), (MigrationStrategy.ONLINE, fx.ExamineRefused)):
            told = MigrationWork(cluster_id=NO_CLUSTER).run(
                fx.ExamineMigration("r", "m", asked(place, statement, strategy))
            )
            assert isinstance(told, kind), (statement, told)


WEAK = {
    "mysql": ("UNIQUE KEY u (url(50), site_id)",),
    "postgresql": (
        "CREATE UNIQUE INDEX u ON weak (lower(url), site_id)",
        "CREATE UNIQUE INDEX u ON weak (site_id) WHERE v > 0",
        "ALTER TABLE weak ADD CONSTRAINT u UNIQUE (site_id) DEFERRABLE",
    ),
}


def test_a_weak_key_is_no_key(place: Place) -> None:
    for key in WEAK["mysql" if place.is_mariadb else "postgresql"]:
        inner, outer = (f", {key}", "SELECT 1") if place.is_mariadb else ("", key)
        place.run("DROP TABLE IF EXISTS weak")
        place.run(f"CREATE TABLE weak (url varchar(500) NOT NULL, site_id int NOT NULL, v int{inner})", outer)
        for reads_only in (True, False):
            spec = asked(place, "ALTER TABLE weak ADD c int", MigrationStrategy.ONLINE)
            told = MigrationWork(cluster_id=NO_CLUSTER).run(fx.ExamineMigration("r", "m", spec, reads_only=reads_only))
            assert isinstance(told, fx.ExamineRefused), key
            assert "a row is not found by u" in told.reason


COLUMNS = ("id", "name", "note", "Title")
PAIRED = {
    "mysql": (
        "CHANGE NAME label varchar(30)",
        "MODIFY Name varchar(60) FIRST, ADD x int AFTER Name",
        "RENAME COLUMN Name TO NOTE2, DROP note, ADD note varchar(30) DEFAULT 'new' AFTER id",
        "CHANGE name note varchar(30), CHANGE note NAME varchar(30)",
        "RENAME COLUMN TITLE TO name, RENAME COLUMN name TO title",
        "MODIFY note varchar(30) AFTER `TITLE`, MODIFY name varchar(30) AFTER NOTE, ADD a int FIRST, ADD b int FIRST",
        "ADD COLUMN (a int, b int), DROP COLUMN NAME, ADD name int DEFAULT 47 AFTER b",
        "DROP note, CHANGE title note varchar(30)",
        "ADD COLUMN IF NOT EXISTS NAME int, MODIFY IF EXISTS nothing int, DROP IF EXISTS nothing, ADD z int AFTER name",
    ),
    "postgresql": (
        "RENAME NOTE TO Label",
        'RENAME COLUMN "Title" TO title',
        "DROP name, ADD name varchar(30) DEFAULT 'new', ALTER NOTE TYPE text",
        "ADD COLUMN IF NOT EXISTS Name int, ADD title int DEFAULT 5",
    ),
}


def test_columns_are_paired_as_the_server_pairs_them(place: Place) -> None:
    quote = "`{}`" if place.is_mariadb else '"{}"'
    columns = ", ".join(f"{quote.format(name)} varchar(30) DEFAULT 'was {name}'" for name in COLUMNS[1:])
    for number, change in enumerate(PAIRED["mysql" if place.is_mariadb else "postgresql"]):
        table = f"paired_{number}"
        place.run(f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})", f"INSERT INTO {table} (id) VALUES (1)")
        statement = f"ALTER TABLE {table} {change}"
        spec = msgspec.structs.replace(asked(place, statement, MigrationStrategy.ONLINE), allow_lossy=True)
        with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
            _, plan = checked_plan(strategy._server, spec)
        place.run(statement)
        (row,) = place.run(f"SELECT * FROM {table}")
        names = [column.name for column in plan.after.columns]
        kept = {names[at]: value.removeprefix("was ") for at, value in enumerate(row) if str(value).startswith("was ")}
        assert {new: old for old, new in plan.pairs if old != "id"} == kept, change


@pytest.mark.parametrize("place", ["postgres_database"], indirect=True)
def test_a_column_that_is_added_again_has_a_name_of_its_own_until_the_cut_over(place: Place) -> None:
    statement = "ALTER TABLE again DROP c, ADD C int DEFAULT 47, DROP v, ADD x text"
    place.run("CREATE TABLE again (id int PRIMARY KEY, c text, v int)")
    spec = asked(place, statement, MigrationStrategy.ONLINE)
    with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
        server, lane = strategy._server, strategy._lane
        server.take_over(1)
        read, copied = checked_plan(server, spec)
        plan = lane_plan(copied, "topic", name_bytes_max=server.name_bytes_max)
        lane.make(read, plan, Memory(1, 1, "begun"), 10.0)
        shadow = plan.plan.shadow
        place.run(f"INSERT INTO {shadow} (id, c, v) VALUES (1, 'old', 2)")
        assert place.run(f"SELECT id, c, v, c_hg_new, x FROM {shadow}") == [(1, "old", 2, 47, None)]
        for name, _ in plan.dropped:  # as the cut-over does, in this order
            place.run(f"ALTER TABLE {shadow} DROP COLUMN {name}")
        for now, after in plan.renamed:
            place.run(f"ALTER TABLE {shadow} RENAME COLUMN {now} TO {after}")
        assert place.run(f"SELECT * FROM {shadow}") == [(1, 47, None)]


@pytest.mark.parametrize("place", ["mariadb_database"], indirect=True)
def test_tables_whose_names_are_alike_are_told_apart(place: Place) -> None:
    for table in ("log_1", "log11", "LOG_1", "a$b"):
        place.run(f"CREATE TABLE `{table}` (id int PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
    spec = asked(place, "ALTER TABLE log_1 ADD c int", MigrationStrategy.DIRECT)
    with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
        server = strategy._server
        server.take_over(1)
        schema = place.url.rsplit("/", 1)[1]
        found = [set(server.identity(schema, table).split(",")) for table in ("log_1", "log11", "LOG_1", "a$b")]
    assert [len(numbers) for numbers in found] == [2, 2, 2, 2]
    assert len(set.union(*found)) == 8


@pytest.mark.parametrize("place", ["mariadb_database"], indirect=True)
def test_mariadb_knows_the_grammar_of_every_clause_that_is_read(place: Place) -> None:
    place.run("CREATE TABLE t (a int, b varchar(20), c int, d text, id int PRIMARY KEY)")
    unknown = {}
    for change in MARIADB:
        try:
            place.run(f"ALTER TABLE t {change}")
        except pymysql.MySQLError as error:
            if error.args[0] == SYNTAX_ERROR:
                unknown[change] = str(error)
        place.run("CREATE OR REPLACE TABLE t (a int, b varchar(20), c int, d text, id int PRIMARY KEY)")
    assert unknown == {}


KEYWORDS = """
ADD DROP MODIFY CHANGE ALTER RENAME CONVERT COLUMN INDEX KEY TO TABLE PARTITION WITH COMMENT DEFAULT SET FIRST AFTER
EXCHANGE UNION = ( ) , , , ; a b c int text NOT NULL 'x' 'archive' `archive` archive others IF EXISTS CHECK AS
REFERENCES PRIMARY UNIQUE ENGINE InnoDB FORCE BY HASH REMOVE PARTITIONING CONSTRAINT 1 SELECT FROM LIKE IGNORE
"""
ODD = ("RENAME TO archive", "/*x*/", "/*!999999", "#x\n", "--", "-- x\n", "-1", "'\\\\'", "''''", '"y"', "b'1'")
WORDS = (*KEYWORDS.split(), *ODD)
STARTS = (
    "ADD c int",
    "DROP b",
    "MODIFY a bigint",
    "CHANGE a z int",
    "ADD INDEX (a)",
    "COMMENT 'x'",
    "RENAME COLUMN a TO z",
)
DRAWN = 20_000
ACCEPTED_MIN = 300


@pytest.mark.parametrize("place", ["mariadb_database"], indirect=True)
def test_what_is_accepted_changes_one_table_and_makes_none(place: Place) -> None:
    """Words are drawn; what our grammar accepts is run by the server's, which may read it in another way."""
    draw = random.Random(79)  # noqa: S311 - statements, not secrets
    accepted = 0
    made = "CREATE OR REPLACE TABLE t (a int, b int, id int PRIMARY KEY)"
    place.run(made)

    def others() -> Any:
        rows, tables = state_of(place)
        return rows, [table for table in tables if table[1] != "t"]

    before = others()
    with closing(place.connect()) as session, session.cursor() as cursor:
        for _ in range(DRAWN):
            words = [draw.choice(WORDS) for _ in range(draw.randrange(1, 5))]
            parts = [draw.choice(STARTS), *words, draw.choice((*STARTS, ""))]
            text = f"ALTER TABLE t {' '.join(draw.sample(parts, len(parts)) if draw.random() < 0.3 else parts)}"
            try:
                parse_statement(text, "mysql")
            except StatementError:
                continue
            accepted += 1
            with suppress(pymysql.MySQLError):
                cursor.execute(text)
            cursor.execute(made)
    assert accepted > ACCEPTED_MIN
    assert others() == before
