"""PostgreSQL: the table after a change is what it was before, and what the statement says; or the change is refused."""

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headgate.databases.postgresql import sql
from headgate.migration.core import effects as fx
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.fingerprint import Facts
from headgate.migration.strategies.postgresql.fingerprint import facts_of
from integration.migration.played import Played, played

pytestmark = pytest.mark.integration

SET_UP = (
    "CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, note varchar(20), big text, UNIQUE (v, id))",
    "ALTER TABLE items SET (fillfactor = 70, autovacuum_enabled = false, toast.autovacuum_vacuum_scale_factor = 0.2)",
    "INSERT INTO items VALUES (1, 1, 'a', 'x'), (2, 2, 'b', 'y')",
    "CREATE PUBLICATION captured FOR TABLE items",
    "CREATE PUBLICATION part FOR TABLE items (id, v)",
    "CREATE PUBLICATION overridden FOR TABLE items WHERE (v > 0), TABLES IN SCHEMA public",
    "COMMENT ON TABLE items IS 'the shop''s'",
    "COMMENT ON COLUMN items.note IS 'a note'",
    "ALTER TABLE items ALTER COLUMN note SET STATISTICS 500, ALTER COLUMN v SET (n_distinct = -0.5)",
    "ALTER TABLE items ALTER COLUMN big SET STORAGE EXTERNAL",
    "ALTER TABLE items ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    "ALTER TABLE items CLUSTER ON items_pkey",
    "ALTER TABLE items REPLICA IDENTITY USING INDEX items_v_id_key",
    "CREATE STATISTICS correlated (dependencies) ON v, note FROM items",
    "CREATE INDEX by_note ON items (lower(note)) WHERE v > 0",
    "GRANT SELECT ON items TO {role} WITH GRANT OPTION",
    "GRANT UPDATE (note, v) ON items TO {role}",
    "ALTER DEFAULT PRIVILEGES GRANT DELETE ON TABLES TO {role}",
)


@pytest.fixture
def url(postgres_database: str, role: str) -> str:
    with psycopg.connect(postgres_database, autocommit=True) as session:
        for statement in SET_UP:
            session.execute(statement.format(role=role))
    return postgres_database


def facts(change: Played) -> Facts:
    with change.server.sessions.asking() as session:
        return facts_of(session, sql.Identifier("public", "items"))


def changed(url: str, tmp_path: Path, change: str) -> tuple[Facts, Facts]:
    """What held before and holds no more, and what holds since."""
    with played(url, tmp_path, change) as made:
        before = facts(made)
        made.cut_over()
        after = facts(made)
    aspects = {fact.aspect for fact in before}
    assert aspects >= {"row security", "cluster mark", "published column", "storage parameters", "table comment"}
    return before - after, after - before


def test_a_column_that_is_added_changes_nothing_else(url: str, tmp_path: Path) -> None:
    gone, new = changed(url, tmp_path, "ADD COLUMN extra int NOT NULL DEFAULT 7")
    assert [fact.aspect for fact in gone] == ["columns"]
    assert sorted((fact.aspect, fact.subject) for fact in new) == [("column", "extra"), ("columns", "")]


def test_what_is_about_a_column_follows_its_name(url: str, tmp_path: Path) -> None:
    gone, new = changed(url, tmp_path, "RENAME COLUMN note TO title")
    assert {fact.aspect for fact in gone | new} == {"columns", "column", "index", "statistics", "column grant"}
    assert [(fact.text, fact.column) for fact in sorted(new) if fact.aspect == "column grant"] == [("UPDATE", "title")]
    (column,) = (fact for fact in new if fact.aspect == "column")
    assert "STATISTICS 500" in column.text
    assert "COMMENT 'a note'" in column.text


@pytest.mark.parametrize(
    "change",
    ["REPLICA IDENTITY FULL", "DISABLE ROW LEVEL SECURITY", "OWNER TO pg_monitor", "CLUSTER ON items_v_id_key"],
)
def test_a_statement_whose_effect_a_copy_would_not_have(url: str, tmp_path: Path, change: str) -> None:
    with closing(Played(url, tmp_path, change)) as asked:
        told = asked.strategy.examine(asked.spec, None)
    assert isinstance(told, fx.ExamineRefused), told
    assert "is done by strategy direct only" in told.reason


HANGING = {
    "function of SQL": (
        "CREATE FUNCTION public.counted() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM items; END",
        "function public.counted() would still refer to the old table",
    ),
    "function of its rows": (
        "CREATE FUNCTION public.shown(items) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "function public.shown(public.items) would still refer to the old table",
    ),
    "policy of another table": (
        "CREATE TABLE others (id int); CREATE POLICY seen ON others USING (EXISTS (SELECT FROM items))",
        "policy seen on table public.others would still refer to the old table",
    ),
    "column of its row type": ("CREATE TABLE kept (row items)", "table public.kept would still refer to the old table"),
    "view": ("CREATE VIEW shown AS SELECT id FROM items", "view public.shown would still show the old table"),
    "rule": ("CREATE RULE never AS ON DELETE TO items DO INSTEAD NOTHING", "rule never would stay with the old table"),
    "policy": ("CREATE POLICY mine ON items USING (true)", "policy mine would stay with the old table"),
    "subscription": (
        (
            "CREATE SUBSCRIPTION taken CONNECTION '{url}' PUBLICATION captured "
            "WITH (enabled = false, create_slot = false, slot_name = NONE, copy_data = false)"
        ),
        "subscription taken would still refer to the old table",
    ),
    "extension": ("ALTER EXTENSION plpgsql ADD TABLE items", "extension plpgsql would still refer to the old table"),
}
UNDONE = {"subscription": "DROP SUBSCRIPTION taken", "extension": "ALTER EXTENSION plpgsql DROP TABLE items"}
"""What would keep the database from being dropped, or the next test from using it."""


@pytest.mark.parametrize("case", HANGING)
def test_what_cannot_be_carried_over_is_refused_at_submission_and_under_the_lock(
    url: str, tmp_path: Path, case: str
) -> None:
    statement, why = HANGING[case]
    with played(url, tmp_path, "ADD COLUMN extra int") as change:
        change.run(statement.replace("{url}", url))
        try:
            with pytest.raises(RefusedError) as told:
                change.cut_over()
            assert why in str(told.value)
            assert not change.is_changed
            for examined in (change.strategy.examine(change.spec, None), change.strategy.plan(change.spec)):
                assert isinstance(examined, fx.ExamineRefused)
                assert why in examined.reason
        finally:
            if case in UNDONE:
                change.run(UNDONE[case])


def test_a_table_that_would_be_another_one_is_rolled_back(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.migration.strategies.postgresql.handover._marks", lambda *_: [])
    with played(url, tmp_path, "ADD COLUMN extra int") as change:
        before = facts(change)
        with pytest.raises(RefusedError, match="would lack cluster mark items_pkey; row security enabled forced after"):
            change.cut_over()
        assert not change.is_changed
        assert facts(change) == before


def test_who_has_no_right_on_the_table_has_none_on_its_copy(url: str, tmp_path: Path) -> None:
    """Default privileges give rights on every new table, and the copy is one."""
    role = url.rpartition("/")[2] + "_role"
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {role}, PUBLIC")
        session.execute(f"REVOKE ALL ON items FROM {role}")
    with played(url, tmp_path, "ADD COLUMN extra int") as change:
        copy = change.plan.held.shadow
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(f"SET ROLE {role}")
            for statement in (
                f"SELECT * FROM {copy}",
                f"DELETE FROM {copy}",
                f"INSERT INTO {copy} (id, v) VALUES (9, 9)",
                f"CREATE TRIGGER t BEFORE UPDATE ON {copy} EXECUTE FUNCTION suppress_redundant_updates_trigger()",
                "SELECT * FROM headgate.migration",
                "UPDATE headgate.migration SET stage = 'changed'",
                "UPDATE headgate.progress SET next_offset = 9",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    session.execute(statement)
        change.cut_over()
        assert {fact.subject for fact in facts(change) if fact.aspect == "grant"} == {"postgres"}


def test_a_grant_made_meanwhile_is_carried_over(url: str, tmp_path: Path) -> None:
    with played(url, tmp_path, "ADD COLUMN extra int") as change:
        change.run("GRANT TRUNCATE ON items TO PUBLIC")
        change.cut_over()
        assert [fact.text for fact in facts(change) if fact.subject == "PUBLIC"] == ["TRUNCATE"]
