"""Users who have no right on a table get none at MariaDB from its schema change, neither on the copy nor later on."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest

from fixtures.services import mariadb_connect
from headgate_lab.chaos.hostile_functions import HOSTILE_DATABASE, is_sprung, plant
from integration.migration.mariadb_change import Change, opened

pytestmark = pytest.mark.integration

DENIED: Final = frozenset({1044, 1095, 1142, 1143, 1227, 1419})
"""No right on a database, another user's session, a table, a column, what needs a global right, a trigger."""

ADDED: Final = "ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7"


@pytest.fixture
def items(mariadb_database: str) -> Iterator[Any]:
    with closing(mariadb_connect(mariadb_database)) as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note varchar(20))")
        cursor.execute("INSERT INTO items SELECT seq, seq, 'secret' FROM seq_1_to_200")
        yield cursor


@pytest.fixture
def stranger(mariadb_database: str, items: Any) -> Iterator[Any]:
    """Someone who may read one column of the table, and write a table of their own beside it."""
    schema = mariadb_database.rsplit("/", 1)[1]
    items.execute("CREATE TABLE beside (id int PRIMARY KEY)")
    items.execute("CREATE OR REPLACE USER stranger@'%' IDENTIFIED BY 'stranger'")
    items.execute(f"GRANT SELECT (id) ON {schema}.items TO stranger@'%'")
    items.execute(f"GRANT ALL ON {schema}.beside TO stranger@'%'")
    try:
        with (
            closing(mariadb_connect(f"mysql://stranger:stranger@{mariadb_database.split('@')[1]}")) as session,
            session.cursor() as cursor,
        ):
            yield cursor
    finally:
        items.execute("DROP USER stranger@'%'")


def denied(stranger: Any, *statements: str) -> None:
    for statement in statements:
        with pytest.raises(pymysql.MySQLError) as refused:
            stranger.execute(statement)
        assert refused.value.args[0] in DENIED, (statement, refused.value)


def trials(table: str) -> list[str]:
    """What reads, changes or takes a table."""
    return [
        f"SELECT * FROM {table}",
        f"SELECT note FROM {table}",
        f"UPDATE {table} SET v = 0",
        f"DELETE FROM {table}",
        f"INSERT INTO {table} (id, v) VALUES (999, 9)",
        f"SHOW CREATE TABLE {table}",
        f"CREATE TRIGGER watch BEFORE UPDATE ON {table} FOR EACH ROW SET NEW.v = 0",
        f"CREATE OR REPLACE TABLE {table} (id int PRIMARY KEY)",
        f"DROP TABLE {table}",
        f"RENAME TABLE {table} TO taken",
        f"ALTER TABLE {table} ADD COLUMN mine int",
        f"LOCK TABLES {table} WRITE",
    ]


def test_who_has_no_right_on_the_table_has_none_on_its_copy_nor_on_what_is_kept(
    mariadb_database: str, tmp_path: Path, items: Any, stranger: Any
) -> None:
    with opened(mariadb_database, tmp_path, ADDED) as change:
        change.copied()
        denied(stranger, *trials(change.plan.plan.shadow))
        denied(
            stranger,
            "SELECT * FROM headgate.migration",
            "UPDATE headgate.migration SET stage = 'changed'",
            "DELETE FROM headgate.progress",
            "UPDATE headgate.progress SET next_offset = 9",
            "CREATE TABLE headgate.mine (id int)",
            "DROP DATABASE headgate",
            f"ALTER TABLE beside RENAME TO {change.plan.plan.shadow}_old",
        )
        _sees_no_session_of_others(change, stranger)
        change.cut_over()
        assert change.is_changed
        old = _old_table(items)
    denied(stranger, *trials(old), "SELECT note FROM items", "SELECT extra FROM items", "UPDATE items SET v = 0")
    stranger.execute("SELECT count(id) FROM items")
    assert stranger.fetchall() == ((200,),)
    items.execute("SELECT count(*), min(extra), sum(v) FROM items")
    assert items.fetchall() == ((200, 7, 20_100),)


def _sees_no_session_of_others(change: Change, stranger: Any) -> None:
    stranger.execute("SHOW PROCESSLIST")
    assert {row[1] for row in stranger.fetchall()} == {"stranger"}
    others = change.run(
        "SELECT id FROM information_schema.processlist "
        "WHERE db = DATABASE() AND user <> 'stranger' AND command = 'Sleep'"
    )
    assert others
    denied(stranger, *(f"KILL {number}" for (number,) in others))


def _old_table(items: Any) -> str:
    items.execute("SHOW TABLES")
    (old,) = {name for (name,) in items.fetchall()} - {"items", "beside"}
    return str(old)


def test_functions_and_views_called_like_the_servers_own_are_not_run(
    mariadb_database: str, tmp_path: Path, items: Any
) -> None:
    schema = mariadb_database.rsplit("/", 1)[1]

    def execute(statement: str) -> list[tuple[Any, ...]]:
        items.execute(statement)
        return list(items.fetchall())

    plant(execute, [schema])
    try:
        with opened(mariadb_database, tmp_path, ADDED) as change:
            change.copied().cut_over()
            assert change.is_changed
        assert not is_sprung(execute)
        assert execute(f"SELECT sum(v), min(extra) FROM {schema}.items") == [(20_100, 7)]
    finally:
        items.execute(f"DROP DATABASE IF EXISTS {HOSTILE_DATABASE}")
