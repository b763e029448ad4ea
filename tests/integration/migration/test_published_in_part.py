"""PostgreSQL: the topic and a cut-over have what publications have, so each one of the table must have all changes."""

from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.online.way_back import plan_back
from headgate.migration.strategies.postgresql.lane import check_needed
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
@pytest.mark.parametrize("others", [(), ("CREATE PUBLICATION captured FOR TABLE items",)])
def test_a_table_that_any_publication_has_in_part_is_refused(
    url: str, tmp_path: Path, publication: str, others: tuple[str, ...]
) -> None:
    """Which one the connector reads is not known."""
    run(url, publication, *others)
    found = r"publication a_part leaves out .*(insert|update|delete|rows \(it has a WHERE\)).*use strategy direct"
    with closing(Played(url, tmp_path, ADD)) as change, pytest.raises(RefusedError, match=found) as refused:
        change.make()
    assert "id <" not in str(refused.value), "a condition has values of rows"


def test_a_row_filter_that_a_whole_schema_overrides(url: str, tmp_path: Path) -> None:
    run(url, "CREATE PUBLICATION captured FOR TABLE items WHERE (id < 3), TABLES IN SCHEMA public")
    with played(url, tmp_path, ADD) as change:
        cut_over_beside_writes(change)


@pytest.mark.parametrize("publication", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA public", "FOR TABLE items"])
def test_the_last_changes_are_seen_by_a_publication(url: str, tmp_path: Path, publication: str) -> None:
    run(url, f"CREATE PUBLICATION captured {publication}")
    with played(url, tmp_path, ADD) as change:
        cut_over_beside_writes(change)


def cut_over_beside_writes(change: Played) -> None:
    touched = change.followed()
    compare = touched.compare

    def behind_the_mark(*given: Any) -> None:
        compare(*given)
        change.run(
            "UPDATE items SET v = 50 WHERE id = 5", "INSERT INTO items VALUES (6, 60)", "DELETE FROM items WHERE id = 4"
        )
        change.late(upsert({"id": 5}, v=50), upsert({"id": 6}, v=60), delete({"id": 4}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(touched, "compare", behind_the_mark)
        change.cut_over(touched)
    assert rows(change) == [(1, 1), (2, 2), (3, 3), (5, 50), (6, 60)]


def test_a_publication_that_took_the_place_of_the_one_at_the_submission(url: str, tmp_path: Path) -> None:
    run(url, "CREATE PUBLICATION captured FOR TABLE items")
    with played(url, tmp_path, ADD) as change:
        run(url, "CREATE PUBLICATION other FOR TABLE items", "DROP PUBLICATION captured")
        cut_over_beside_writes(change)


def test_a_table_without_a_publication_by_the_time_of_the_cut_over(url: str, tmp_path: Path) -> None:
    run(url, "CREATE PUBLICATION captured FOR TABLE items")
    with played(url, tmp_path, ADD) as change:
        run(url, "DROP PUBLICATION captured")
        with pytest.raises(RefusedError, match="items is in no publication"):
            change.cut_over()
        assert not change.is_changed


LISTS = [
    ("(id, n)", "DROP COLUMN n"),
    ("(n)", "DROP COLUMN n"),
    ("WHERE (n > 3)", "RENAME COLUMN n TO m"),
    ("WHERE (n > 3)", "ALTER n TYPE bigint"),
]


@pytest.mark.parametrize(("part", "alter"), LISTS)
@pytest.mark.parametrize("is_locked", [False, True])
def test_a_column_that_a_publication_needs_by_the_time_of_the_cut_over(
    url: str, tmp_path: Path, part: str, alter: str, monkeypatch: pytest.MonkeyPatch, *, is_locked: bool
) -> None:
    """The copy would be published with fewer columns, or with all of them."""
    run(
        url,
        "ALTER TABLE items ADD COLUMN n int",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "CREATE PUBLICATION captured FOR TABLE items",
    )
    with played(url, tmp_path, alter) as change:
        touched, found = change.followed(), r"in publication p needs column n|publication p leaves out rows"
        if is_locked:
            monkeypatch.setattr(touched, "compare", lambda *_: run(url, f"CREATE PUBLICATION p FOR TABLE items {part}"))
        else:
            run(url, f"CREATE PUBLICATION p FOR TABLE items {part}")
        with pytest.raises(RefusedError, match=found):
            change.cut_over(touched)
        assert not change.is_changed


@pytest.mark.parametrize("kind", ["bigint", "text"])
def test_another_type_of_a_column_that_a_publication_filters_by(url: str, tmp_path: Path, kind: str) -> None:
    """The server's own ALTER refuses both; a copy's condition would not even be valid for the text."""
    run(url, "CREATE PUBLICATION captured FOR TABLE items WHERE (id < 3), TABLES IN SCHEMA public")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="used by a publication WHERE clause"):
        run(url, f"ALTER TABLE items ALTER id TYPE {kind}")
    found = "in publication captured needs column id. Change that first"
    with closing(Played(url, tmp_path, f"ALTER id TYPE {kind}")) as change, pytest.raises(RefusedError, match=found):
        change.make()


def test_another_type_of_a_column_that_a_publication_lists(url: str, tmp_path: Path) -> None:
    run(
        url,
        "ALTER TABLE items ADD COLUMN n int DEFAULT 1",
        "CREATE PUBLICATION captured FOR TABLE items",
        "CREATE PUBLICATION part FOR TABLE items (id, n)",
    )
    with played(url, tmp_path, "ALTER n TYPE bigint") as change:
        change.cut_over()
        assert change.run("SELECT attnames FROM pg_publication_tables WHERE pubname = 'part'") == [(["id", "n"],)]


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


def test_a_new_column_that_a_publication_lists_is_not_reverted(url: str, tmp_path: Path) -> None:
    run(url, "CREATE PUBLICATION captured FOR TABLE items")
    with played(url, tmp_path, ADD) as change:
        change.cut_over()
        run(url, "CREATE PUBLICATION p FOR TABLE items (id, extra)")
        with change.server.sessions.asking() as session:
            now = change.server.described(session, "public", "items")
            back = plan_back(change.plan, now)
            with pytest.raises(RefusedError, match="in publication p needs column extra"):
                check_needed(session, back.plan, is_back=True)


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
