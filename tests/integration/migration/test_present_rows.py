"""Rows that a change does not accept are found at its submission, before anything is copied, and can be listed."""

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psycopg
import pymysql
import pytest

from fixtures.installed_postgres import postgres_with_icu
from fixtures.services import database_connect
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.examining import checked_plan
from headgate.migration.strategies.planning import unproven_keys
from integration.migration.played import WHOLE, Played, played

pytestmark = pytest.mark.integration

POSTGRESQL = (
    "CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note varchar(20), UNIQUE (v))",
    "INSERT INTO items VALUES (1, 1, 'a'), (2, 2, 'A'), (3, 3, NULL), (4, 4, NULL), (5, 70000, 'ab')",
    "CREATE PUBLICATION captured FOR TABLE items",
)
MARIADB = (
    (
        "CREATE TABLE items (id int NOT NULL PRIMARY KEY, v int NOT NULL, note varchar(20) COLLATE utf8mb4_bin, "
        "kind enum('x', 'y'), body text CHARACTER SET latin1, UNIQUE (v)) CHARACTER SET utf8mb4"
    ),
    (
        "INSERT INTO items VALUES (1, 1, 'a', 'x', 'a'), (2, 2, 'A', 'y', 'b'), (3, 3, NULL, NULL, NULL), "
        "(4, 4, NULL, 'x', NULL), (5, 70000, 'ab', 'x', 'a')"
    ),
)


class Case(NamedTuple):
    """``listed``: rows of the statement that the error has; None if it has none. ``theirs``: the server does it."""

    change: str
    why: str
    listed: int | None
    before: Sequence[str] = ()
    lossy: tuple[str, ...] = ()
    theirs: bool = False


CI = "ALTER note TYPE varchar(20) COLLATE public.ci"
MAKE_CI = "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
"""The embedded server is built without ICU."""
REFUSED = {
    "postgresql": {
        "NULLs that are equal": Case(
            "ADD UNIQUE NULLS NOT DISTINCT (note)", r"equal in \(note\), where NULL is equal.*2 rows", 1
        ),
        "a key of before in which NULLs are not equal": Case(
            "DROP CONSTRAINT one, ADD CONSTRAINT two UNIQUE NULLS NOT DISTINCT (note)",
            r"equal in \(note\), where NULL is equal",
            1,
            ("ALTER TABLE items ADD CONSTRAINT one UNIQUE (note)",),
        ),
        "a deferrable key": Case(
            "ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED",
            r"equal in \(note\): .*2 rows",
            1,
            ("UPDATE items SET note = 'a' WHERE id = 2",),
        ),
        "a deferrable primary key": Case(
            "DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (note) DEFERRABLE",
            r"equal in \(note\): .*5 rows",
            1,
            ("UPDATE items SET note = 'a'", "ALTER TABLE items ALTER note SET NOT NULL"),
        ),
        "another collation": Case(
            CI, r"equal in \(note\): .*2 rows", 1, (MAKE_CI, "ALTER TABLE items ADD UNIQUE (note)")
        ),
        "another collation of an expression's column": Case(
            CI,
            "equal in the parts of key items_expr_idx",
            None,
            (MAKE_CI, "CREATE UNIQUE INDEX ON items ((note || 'x'))"),
        ),
        "another collation of a part of the rows": Case(
            CI,
            "equal in the parts of key items_note_idx",
            None,
            (MAKE_CI, "CREATE UNIQUE INDEX ON items (note) WHERE v < 3"),
        ),
        "a narrower type": Case(
            "ALTER note TYPE varchar(1)",
            r"equal in \(note\): .*2 rows",
            1,
            ("ALTER TABLE items ADD UNIQUE (note)",),
            ("note",),
        ),
        "a new column of one value": Case(
            "ADD COLUMN k int DEFAULT 7, ADD UNIQUE (k)", r"equal in \(k\): .*5 rows", None
        ),
        "a new column that is computed": Case(
            "ADD COLUMN g int GENERATED ALWAYS AS (v % 2) STORED, ADD UNIQUE (g)", r"equal in \(g\): .*5 rows", None
        ),
        "a check": Case("ADD CONSTRAINT small CHECK (v < 3)", "3 rows do not meet constraint small", 3),
        "NULL": Case(
            "ALTER note SET NOT NULL", "2 rows have NULL in column note", 2, lossy=("note",)
        ),
        "a check, by the new collation": Case(
            f"{CI}, ADD CONSTRAINT no_a CHECK (note <> 'a')", "2 rows do not meet constraint no_a", None, (MAKE_CI,)
        ),
        "a number out of range": Case(
            "ALTER v TYPE smallint", "smallint out of range", None, ("ALTER TABLE items DROP CONSTRAINT items_v_key",),
            ("v",),
        ),
    },
    "mariadb": {
        "another collation": Case(
            "MODIFY note varchar(20) COLLATE utf8mb4_general_ci",
            r"equal in \(note\): .*2 rows",
            1,
            ("ALTER TABLE items ADD UNIQUE (note)",),
        ),
        "another collation of the whole table": Case(
            "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
            r"equal in \(note\): .*2 rows",
            1,
            ("ALTER TABLE items ADD UNIQUE (note)",),
        ),
        "another collation of a column's beginning": Case(
            "MODIFY note varchar(20) COLLATE utf8mb4_general_ci",
            r"equal in \(note\): .*2 rows",
            1,
            ("UPDATE items SET note = 'bA' WHERE id = 1", "UPDATE items SET note = 'baX' WHERE id = 2",
             "ALTER TABLE items ADD UNIQUE (note(2))"),
        ),
        "a narrower text": Case(
            "MODIFY note varchar(1) COLLATE utf8mb4_bin",
            r"equal in \(note\): .*2 rows",
            1,
            ("ALTER TABLE items ADD UNIQUE (note)",),
            ("note",),
        ),
        "a narrower number": Case(
            "MODIFY v smallint NOT NULL",
            r"equal in \(v\): .*2 rows",
            1,
            ("UPDATE items SET v = 80000 WHERE id = 4",),
            ("v",),
        ),
        "a new column of one value": Case("ADD k int DEFAULT 7, ADD UNIQUE (k)", r"equal in \(k\): .*5 rows", None),
        "a new column that is computed": Case(
            "ADD g int AS (v % 2) STORED, ADD UNIQUE (g)", r"equal in \(g\): .*5 rows", None
        ),
        "a check": Case("ADD CONSTRAINT small CHECK (v < 3)", "3 rows do not meet constraint small", 3),
        "characters": Case(
            "MODIFY note varchar(20) CHARACTER SET latin1",
            r"2 rows have characters that are not in character set latin1 \(column note\)",
            2,
            ("UPDATE items SET note = 'Ωmega' WHERE id < 3",),
        ),
        "characters of the whole table": Case(
            "CONVERT TO CHARACTER SET latin1",
            r"1 rows have characters that are not in character set latin1 \(column note\)",
            1,
            ("UPDATE items SET note = 'Ωmega' WHERE id = 1",),
        ),
        "characters, though another column may lose values": Case(
            "MODIFY v smallint NOT NULL, MODIFY note varchar(20) CHARACTER SET latin1",
            r"1 rows have characters that are not in character set latin1 \(column note\)",
            1,
            ("UPDATE items SET note = 'Ωmega' WHERE id = 1",),
            ("v",),
        ),
        "texts of more bytes": Case(
            "MODIFY body text CHARACTER SET utf8mb4",
            r"1 rows have texts of more than 65535 bytes in utf8mb4 \(column body\)",
            1,
            ("UPDATE items SET body = REPEAT('é', 40000) WHERE id = 3",),
        ),
        "an enum's error value": Case(
            "ADD extra int DEFAULT 7",
            r"2 rows have the error value of an enum.*\(column kind\)",
            2,
            ("SET SESSION sql_mode = ''", "UPDATE items SET kind = 'z' WHERE id < 3"),
            theirs=True,
        ),
        "zero in a column that begins to count": Case(
            "MODIFY id int NOT NULL AUTO_INCREMENT",
            r"1 rows have 0 or NULL.*becomes AUTO_INCREMENT \(column id\)",
            1,
            ("UPDATE items SET id = 0 WHERE id = 5",),
            theirs=True,
        ),
    },
}  # fmt: skip
CASES = [(kind, name) for kind, cases in REFUSED.items() for name in cases]


@pytest.fixture(scope="module")
def icu_dsn(postgres_dsn: str) -> Iterator[str]:
    with postgres_with_icu(postgres_dsn) as dsn:
        yield dsn


@pytest.fixture
def icu_database(icu_dsn: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(icu_dsn, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        info = server.info
        yield f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/{name}"
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def made(request: pytest.FixtureRequest, kind: str, before: Sequence[str] = ()) -> str:
    fixture = "mariadb_database" if kind == "mariadb" else "icu_database" if MAKE_CI in before else "postgres_database"
    url: str = request.getfixturevalue(fixture)
    with closing(database_connect(url)) as session:
        client = session.cursor()
        for statement in (*(POSTGRESQL if kind == "postgresql" else MARIADB), *before):
            client.execute(statement)
    return url


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[" ".join(case) for case in CASES])
def test_they_are_refused(request: pytest.FixtureRequest, tmp_path: Path, kind: str, name: str) -> None:
    case = REFUSED[kind][name]
    url = made(request, kind, case.before)
    with closing(Played(url, tmp_path, case.change, allow_lossy=case.lossy)) as asked:
        tables = asked.run("SELECT table_name FROM information_schema.tables ORDER BY 1")
        with pytest.raises(RefusedError, match=case.why) as refused:
            asked.make()
        text = str(refused.value)
        listing = re.search(r"\(list them by: (.*)\)$", text)
        assert (None if listing is None else len(asked.run(listing[1]))) == case.listed, text
        assert "Ωmega" not in text, "an error has values of rows"
        left = {name for (name,) in asked.run("SELECT table_name FROM information_schema.tables ORDER BY 1")}
        assert left - {name for (name,) in tables} <= {"migration", "migration_owner", "owner"}, left
        if not (case.theirs or case.lossy):
            with pytest.raises((psycopg.Error, pymysql.MySQLError)):  # the server's own ALTER finds the same
                asked.run(f"ALTER TABLE items {case.change}")


ACCEPTED = {
    "postgresql": {
        "NULLs that are not equal": "ADD UNIQUE (note)",
        "a deferrable key": "ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED",
        "one NULL more": "ADD UNIQUE NULLS NOT DISTINCT (note, v)",
        "a value for each row": "ADD COLUMN u uuid DEFAULT gen_random_uuid(), ADD UNIQUE (u)",
        "a new column that is NULL": "ADD COLUMN k int, ADD UNIQUE (k), ADD CHECK (k > 7)",
        "a check": "ADD CHECK (v > 0)",
        "a wider type, and a rename": "ALTER v TYPE bigint",
        "a renamed column of a key": "RENAME COLUMN v TO w",
        "a domain's default": "ADD COLUMN d public.seven, ADD CHECK (d IS NOT NULL)",
    },
    "mariadb": {
        "NULLs that are not equal": "ADD UNIQUE (note)",
        "a value for each row": "ADD u varchar(36) DEFAULT uuid(), ADD UNIQUE (u)",
        "a number for each row": "ADD u int NOT NULL AUTO_INCREMENT UNIQUE",
        "a new column that is NULL": "ADD k int, ADD UNIQUE (k), ADD CHECK (k > 7)",
        "a check": "ADD CHECK (v > 0)",
        "characters that fit": "MODIFY note varchar(20) CHARACTER SET latin1",
        "the whole table": "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "a column that begins to count": "MODIFY id int NOT NULL AUTO_INCREMENT",
        "computed from a computed one": "ADD g int AS (v + 1), ADD h int AS (g + 1), ADD UNIQUE (h), ADD CHECK (h > g)",
        "a renamed column of a key": "RENAME COLUMN v TO w",
    },
}
FINE_BEFORE = {
    "a domain's default": ("CREATE DOMAIN seven AS int DEFAULT 7 CHECK (VALUE > 0)",),
}
FINE = [(kind, name) for kind, cases in ACCEPTED.items() for name in cases]


@pytest.mark.parametrize(("kind", "name"), FINE, ids=[" ".join(case) for case in FINE])
def test_rows_that_fit_are_copied(request: pytest.FixtureRequest, tmp_path: Path, kind: str, name: str) -> None:
    url = made(request, kind, FINE_BEFORE.get(name, ()))
    with played(url, tmp_path, ACCEPTED[kind][name]) as change:
        assert change.lane.differing(change.plan, WHOLE) == []
        change.cut_over()
        assert change.run("SELECT count(*) FROM items") == [(5,)]


def test_texts_are_compared_by_the_new_collation(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """By the old one, two of them are equal and one does not meet the check."""
    url = made(request, "postgresql", (MAKE_CI, "ALTER TABLE items ALTER note TYPE varchar(20) COLLATE ci"))
    change = "ALTER note TYPE varchar(20), ADD UNIQUE (note), ADD CHECK (note <> 'AB')"
    with closing(Played(url, tmp_path, change)) as asked:
        _, plan = checked_plan(asked.server, asked.spec)
        assert [key.columns for key in unproven_keys(plan)] == [("note",)]


def test_a_character_that_is_lost_beside_a_column_that_may_lose_is_seen(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It was written after the submission. The copy is not strict, because of the other column."""
    url = made(request, "mariadb", ("UPDATE items SET v = 5 WHERE id = 5",))
    change = "MODIFY v smallint NOT NULL, MODIFY note varchar(20) CHARACTER SET latin1"
    with closing(Played(url, tmp_path, change, allow_lossy=("v",)).make()) as made_so:
        made_so.run("UPDATE items SET note = 'Ωmega', v = 90000 WHERE id = 1")
        made_so.copied()
        assert made_so.lane.differing(made_so.plan, WHOLE) == [("1",)]
