"""pt-osc and gh-ost: what was checked at the submission is checked again when the program would be started."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headgate.migration.core import effects as fx
from headgate.records.migration import MigrationStrategy
from integration.migration.tool_change import Owner, Table, owned

pytestmark = pytest.mark.integration

Make = Callable[..., Owner]


class Case(NamedTuple):
    """``until``: what happens to the table between the submission and the start."""

    change: str
    until: str
    why: str


CASES = {
    "a key that made the new one unique": Case(
        "ADD UNIQUE KEY (v, s)", "ALTER TABLE items DROP KEY one", "under a new unique key"
    ),
    "the spelling of a column": Case(
        "CHANGE COLUMN v w bigint NOT NULL", "ALTER TABLE items CHANGE COLUMN v V int NOT NULL", "letter by letter"
    ),
    "a row that the new form refuses": Case(
        "MODIFY COLUMN v int NOT NULL CHECK (v < 100)", "UPDATE items SET v = 100 WHERE id = 1", "1 rows"
    ),
}


@pytest.fixture
def owner(pt_osc: Path, gh_ost: Path, tmp_path: Path) -> Iterator[Make]:
    with owned(tmp_path, pt_osc=str(pt_osc), gh_ost=str(gh_ost)) as make:
        yield make


@pytest.fixture
def table(mariadb_database: str, tmp_path: Path) -> Table:
    made = Table(mariadb_database, tmp_path, rows=100)
    made.run("UPDATE items SET v = id - 1")
    made.run("ALTER TABLE items ADD UNIQUE KEY one (v)")
    return made


@pytest.mark.parametrize("strategy", [MigrationStrategy.PT_OSC, MigrationStrategy.GH_OST])
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_change_that_would_lose_values_by_now_is_not_started(
    table: Table, owner: Make, strategy: MigrationStrategy, case: Case
) -> None:
    one = owner(table.spec(strategy, f"ALTER TABLE items {case.change}"), 1)
    accepted = one.examine()
    assert isinstance(accepted, fx.Examined), accepted
    table.run(case.until)
    before = table.run("SHOW CREATE TABLE items"), table.run("SELECT * FROM items ORDER BY id")
    told = one.start()
    assert isinstance(told, fx.Refused), told
    assert case.why in told.reason, told.reason
    assert (table.run("SHOW CREATE TABLE items"), table.run("SELECT * FROM items ORDER BY id")) == before
    assert (table.names("trigger"), table.names("table")) == ([], ["items"])
    assert table.run("SELECT id FROM headgate.migration") == []


@pytest.mark.parametrize("strategy", [MigrationStrategy.PT_OSC, MigrationStrategy.GH_OST])
def test_a_dry_run_refuses_names_that_the_program_does_not_find(
    table: Table, owner: Make, strategy: MigrationStrategy
) -> None:
    one = owner(table.spec(strategy, "ALTER TABLE items CHANGE COLUMN V w int NOT NULL"), 1)
    told = one.work.run(fx.ExamineMigration("r", "m", one.spec, reads_only=True))
    assert isinstance(told, fx.ExamineRefused), told
    assert "letter by letter" in told.reason
