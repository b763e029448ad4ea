"""Instant DDL tried first: what the server can do by its catalogue alone is done so, everything else is copied."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import written
from headgate.migration.shell.work import open_strategy
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.records.migration import MigrationStrategy
from integration.migration.test_under_a_feed import Table
from support.migration_records import recorded
from support.waiting import eventually

pytestmark = pytest.mark.integration

CHANGES = {
    "postgresql": {
        "ADD COLUMN w int": True,
        "ADD COLUMN w int NOT NULL DEFAULT 7": True,
        "DROP COLUMN s": True,
        "RENAME COLUMN s TO title": True,
        "ALTER COLUMN s TYPE varchar(80)": True,
        "ALTER COLUMN s SET DEFAULT 'x'": True,
        "ADD COLUMN w float NOT NULL DEFAULT random()": False,
        "ALTER COLUMN v TYPE bigint": False,
        "ALTER COLUMN s SET NOT NULL": False,
        "ADD CHECK (v >= 0)": False,
        "ADD UNIQUE (id, v)": False,
        "ADD COLUMN w int, ALTER COLUMN v TYPE bigint": False,
    },
    "mysql": {
        "ADD COLUMN w int": True,
        "ADD COLUMN w int NOT NULL DEFAULT 7;": True,
        "DROP COLUMN s": True,
        "RENAME COLUMN s TO title": True,
        "MODIFY s varchar(60)": True,
        "ALTER COLUMN s SET DEFAULT 'x'": True,
        "MODIFY v bigint NOT NULL": False,
        "ADD INDEX (v)": False,
        "ADD COLUMN w int, MODIFY v bigint NOT NULL": False,
        "ADD COLUMN w int, ALGORITHM=COPY": False,
    },
}
"""Whether nothing has to be copied."""


@pytest.fixture(params=["postgresql", "mysql"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    url = request.getfixturevalue("postgres_database" if request.param == "postgresql" else "mariadb_database")
    found = Table(url, tmp_path)
    found.run("CREATE TABLE items (id int PRIMARY KEY, v int NOT NULL, s varchar(40))")
    found.run("INSERT INTO items VALUES (1, 1, 'a'), (2, 2, NULL)")
    return found


def test_what_takes_no_time_is_known_from_an_empty_table(table: Table) -> None:
    before = table.run("SELECT * FROM items")
    found = {}
    for change in CHANGES[table.kind]:
        spec = msgspec.structs.replace(table.spec(MigrationStrategy.ONLINE, change), prefer_instant=True)
        with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
            examined = strategy.examine(msgspec.structs.replace(spec, allow_lossy=True), None)
        found[change] = isinstance(examined, fx.Examined) and examined.is_immediate
    assert found == CHANGES[table.kind]
    assert table.run("SELECT * FROM items") == before


def test_a_change_is_made_at_once(table: Table) -> None:
    change = next(text for text, instant in CHANGES[table.kind].items() if instant and "COLUMN w" in text)
    spec = msgspec.structs.replace(table.spec(MigrationStrategy.ONLINE, change), prefer_instant=True)
    with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
        examined = strategy.examine(spec, None)
        assert isinstance(examined, fx.Examined)
        assert examined.is_immediate
        record = msgspec.structs.replace(recorded(written(spec)), is_immediate=True)
        assert isinstance(strategy.start(fx.StartMigration("m", record, None, 1)), fx.Progressed)
        watch = fx.WatchMigration("m", record, 1)
        eventually(lambda: isinstance(strategy.watch(watch), fx.Completed), "it is in force")
    assert table.run("SELECT id, w FROM items ORDER BY id") == [(1, None), (2, None)]


@pytest.mark.parametrize("table", ["mysql"], indirect=True)
def test_a_table_that_cannot_any_more_is_not_copied_under_a_lock(table: Table) -> None:
    """MariaDB refuses ALGORITHM=INSTANT where the table needs another one; the test asks for what never can."""
    spec = msgspec.structs.replace(table.spec(MigrationStrategy.ONLINE, "ADD INDEX (v)"), prefer_instant=True)
    record = msgspec.structs.replace(recorded(written(spec)), is_immediate=True)
    with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
        told = strategy.start(fx.StartMigration("m", record, None, 1))
    assert isinstance(told, fx.Refused)
    assert "ALGORITHM=INSTANT" in told.reason


@pytest.mark.parametrize("table", ["postgresql"], indirect=True)
def test_what_became_slow_since_the_submission_is_not_done_under_the_lock(table: Table) -> None:
    spec = msgspec.structs.replace(
        table.spec(MigrationStrategy.ONLINE, "ALTER COLUMN s TYPE varchar(80)"), prefer_instant=True
    )
    with closing(open_strategy("m", spec, cluster_id=NO_CLUSTER)) as strategy:
        examined = strategy.examine(spec, None)
        assert isinstance(examined, fx.Examined)
        assert examined.is_immediate
        table.run("ALTER TABLE items ADD CONSTRAINT short CHECK (s <> '')")
        record = msgspec.structs.replace(recorded(written(spec)), is_immediate=True)
        told = strategy.start(fx.StartMigration("m", record, None, 1))
    assert isinstance(told, fx.Refused), told
    assert "is not instant any more" in told.reason
