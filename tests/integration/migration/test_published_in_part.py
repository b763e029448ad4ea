"""PostgreSQL: a cut-over sees the table's last changes by a publication, so that must have all of them."""

from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.migration.strategies.contract import RefusedError
from integration.migration.played import Played, delete, played, upsert

pytestmark = pytest.mark.integration

ADD = "ADD COLUMN extra int DEFAULT 7"
IN_PART = (
    "CREATE PUBLICATION a_part FOR TABLE items WITH (publish = 'insert, update')",
    "CREATE PUBLICATION a_part FOR TABLE items WITH (publish = 'insert')",
    "CREATE PUBLICATION a_part FOR TABLE items WITH (publish = 'update, delete')",
    "CREATE PUBLICATION a_part FOR TABLE items WHERE (id < 3)",
    "CREATE PUBLICATION a_part FOR ALL TABLES WITH (publish = 'insert, update')",
)
"""The first publication by name."""


@pytest.fixture
def url(postgres_database: str) -> str:
    with psycopg.connect(postgres_database, autocommit=True) as session:
        session.execute("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL)")
        session.execute("INSERT INTO items SELECT n, n FROM generate_series(1, 5) n")
    return postgres_database


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        for statement in statements:
            session.execute(statement)


@pytest.mark.parametrize("publication", IN_PART)
def test_the_last_changes_are_seen_by_a_publication_of_all(
    url: str, tmp_path: Path, publication: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(url, publication, "CREATE PUBLICATION captured FOR TABLE items (id)")
    with played(url, tmp_path, ADD) as change:
        touched = change.followed()
        compare = touched.compare

        def behind_the_mark(*given: Any) -> None:
            compare(*given)
            change.run(
                "UPDATE items SET v = 50 WHERE id = 5",
                "INSERT INTO items VALUES (6, 60)",
                "DELETE FROM items WHERE id = 4",
            )
            change.late(upsert({"id": 5}, v=50), upsert({"id": 6}, v=60), delete({"id": 4}))

        monkeypatch.setattr(touched, "compare", behind_the_mark)
        change.cut_over(touched)
        assert rows(change) == [(1, 1), (2, 2), (3, 3), (5, 50), (6, 60)]


@pytest.mark.parametrize("publication", IN_PART)
def test_a_table_that_is_published_in_part_only_is_refused(url: str, tmp_path: Path, publication: str) -> None:
    run(url, publication)
    found = "publication a_part leaves out .*(insert|update|delete|rows that are not)"
    with closing(Played(url, tmp_path, ADD)) as change, pytest.raises(RefusedError, match=found):
        change.make()


def test_a_publication_that_leaves_changes_out_by_the_time_of_the_cut_over(url: str, tmp_path: Path) -> None:
    run(url, "CREATE PUBLICATION captured FOR TABLE items")
    with played(url, tmp_path, ADD) as change:
        run(url, "ALTER PUBLICATION captured SET (publish = 'insert, update')")
        with pytest.raises(RefusedError, match="publication captured leaves out delete"):
            change.cut_over()
        assert not change.is_changed
        run(url, "ALTER PUBLICATION captured SET (publish = 'insert, update, delete')")
        change.cut_over()
        assert change.is_changed


@pytest.mark.parametrize(
    "identity",
    [
        ("ALTER TABLE items REPLICA IDENTITY NOTHING",),
        ("CREATE UNIQUE INDEX i ON items (v)", "ALTER TABLE items REPLICA IDENTITY USING INDEX i", "DROP INDEX i"),
    ],
)
def test_changes_that_name_no_row(url: str, tmp_path: Path, identity: tuple[str, ...]) -> None:
    run(url, "CREATE PUBLICATION captured FOR TABLE items", *identity)
    found = "items has a replica identity that names no row.* DEFAULT, or FULL"
    with closing(Played(url, tmp_path, ADD)) as change, pytest.raises(RefusedError, match=found):
        change.make()


def rows(change: Played) -> list[tuple[object, ...]]:
    return change.run("SELECT id, v FROM items ORDER BY id")
