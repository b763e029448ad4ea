"""Strategy pt-osc: the real program at a real MariaDB, its plugin's reports, what is left of it however it ends."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from fixtures.services import mariadb_execute
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.tools.tool import said_by_tool
from headgate.records.migration import MigrationStrategy
from integration.migration.tool_change import BRAKED, Brake, Owner, Table, owned, pid_of
from support.connections import described
from support.ended import has_ended
from support.waiting import eventually

pytestmark = pytest.mark.integration

ADD = "ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7, CHANGE COLUMN s title varchar(60)"
HALTED = ("--chunk-size=100", "--sleep=3600")
"""It stands still behind its first chunk, until it is ended."""

Make = Callable[..., Owner]


@pytest.fixture
def table(mariadb_database: str, tmp_path: Path) -> Table:
    return Table(mariadb_database, tmp_path)


@pytest.fixture
def owner(pt_osc: Path, tmp_path: Path) -> Iterator[Make]:
    with owned(tmp_path, pt_osc=str(pt_osc)) as make:
        yield make


@pytest.fixture
def brake(table: Table) -> Iterator[Brake]:
    """For a copy with the options BRAKED: it comes to a stop in its last chunk, and goes on when the row is free."""
    made = Brake(table.url, table.rows)
    yield made
    made.release()


def spec_of(table: Table, statement: str = ADD, **more: Any) -> MigrationSpec:
    return table.spec(MigrationStrategy.PT_OSC, statement, **more)


def test_a_table_is_changed_and_nothing_but_the_old_one_is_left(table: Table, owner: Make) -> None:
    one = owner(spec_of(table))
    assert isinstance(one.examine(), fx.Examined)
    assert table.names("table") == ["items"], "trying it out leaves nothing"
    begun = one.start()
    assert isinstance(begun, fx.Progressed)
    done = one.ended()
    assert isinstance(done, fx.Completed), done
    assert table.columns() == ["id", "v", "title", "extra"]
    assert table.run("SELECT COUNT(*), MIN(title), SUM(extra) FROM items") == [(table.rows, "a", 7 * table.rows)]
    assert table.names("trigger") == []
    assert [artifact.name for artifact in done.artifacts] == [f"{table.schema}._items_old"]
    assert table.names("table") == ["_items_old", "items"]
    stages = ["examining", "making the copy", "making triggers", "copying", "copied", "renaming", "renamed"]
    assert one.stages() == stages
    assert one.reports[-1].status is fx.ToolStatus.COMPLETE
    assert "Swapped original and new tables OK." in "\n".join(said_by_tool(done.note))
    one.stands(replace(one.record, artifacts=done.artifacts))
    assert one.do(fx.CleanUpMigration) == fx.CleanedUp()
    assert table.names("table") == ["items"]


def test_no_secret_stands_where_others_can_read_it(table: Table, owner: Make) -> None:
    secret = "a\"b'c\\d #;e"
    name = f"u{os.getpid()}"
    quoted = secret.replace("\\", "\\\\").replace("'", "''")
    mariadb_execute(table.url, f"CREATE USER {name}@'%' IDENTIFIED BY '{quoted}'")
    mariadb_execute(table.url, f"GRANT ALL ON *.* TO {name}@'%'")
    try:
        table.password_file.write_text(secret, encoding="utf-8")
        database = described(table.address.replace("root@", f"{name}@"), table.password_file)
        one = owner(spec_of(table, database=database, tool_options=HALTED))
        assert isinstance(one.examine(), fx.Examined)
        one.start()
        one.heard("copying")
        process = psutil.Process(pid_of(one.do(fx.WatchMigration)))
        folder = next(Path(word.split("=")[1]).parent for word in process.cmdline() if word.startswith("--pid="))
        token = json.loads((folder / "tool.json").read_text())["token"]
        for words in (process.cmdline(), process.environ().values()):
            assert not any(secret in word or token in word for word in words)
        assert {oct(path.stat().st_mode & 0o777) for path in (folder, folder.parent)} == {"0o700"}
        for private in ("client.cnf", "tool.json"):
            assert (folder / private).stat().st_mode & 0o077 == 0
        assert one.stop() == fx.Stopped()
        assert not folder.exists()
    finally:
        mariadb_execute(table.url, f"DROP USER {name}@'%'")


def test_a_cancelled_one_is_gone_with_its_triggers_and_its_copy(table: Table, owner: Make) -> None:
    one = owner(spec_of(table, tool_options=(*HALTED, "--progress=iterations,1")))
    one.start()
    one.heard("copying")
    found = one.watched(lambda found: found.rows_copied)
    assert 0 < found.rows_copied < one.record.table_rows
    assert len(table.names("trigger")) == 3
    table.run("UPDATE items SET v = v + 1 WHERE id <= 10")
    assert one.stop() == fx.Stopped()
    assert has_ended(pid_of(found))
    assert (table.names("trigger"), table.names("table")) == ([], ["items"])
    table.run("UPDATE items SET v = v + 1 WHERE id <= 10")
    assert table.run("SELECT SUM(v) FROM items") == [(20,)]
    assert table.columns() == ["id", "v", "s"]


def test_it_stands_still_when_told_and_goes_on(table: Table, owner: Make, brake: Brake) -> None:
    one = owner(spec_of(table, tool_options=BRAKED))
    one.at["copying"] = brake.hold
    one.start()
    one.heard("copying")
    one.throttle(1.0)
    held = one.watched(lambda found: found.throttle_reason)
    assert held.throttle_reason == "an operator: it is paused"
    process = psutil.Process(pid_of(held))
    eventually(lambda: process.status() == psutil.STATUS_STOPPED, "it stands still")
    brake.release()
    table.run("UPDATE items SET v = v + 1")  # clients do not wait for it
    one.throttle(0.0)
    assert isinstance(one.ended(), fx.Completed)


def test_the_next_owner_ends_what_the_last_one_has_left_and_begins_anew(table: Table, owner: Make) -> None:
    first = owner(spec_of(table, tool_options=HALTED))
    first.start()
    first.heard("copying")
    left = psutil.Process(pid_of(first.do(fx.WatchMigration)))
    os.killpg(left.pid, signal.SIGSTOP)  # it would not notice that its session was ended
    second = owner(spec_of(table), 2)
    assert second.stop() == fx.Stopped(), "by its folder: its number is not known to this one"
    assert has_ended(left)
    assert (table.names("trigger"), table.names("table")) == ([], ["items"])
    second.stands(replace(second.record, attempt=2))
    second.start()
    assert isinstance(second.ended(), fx.Completed)
    assert table.columns() == ["id", "v", "title", "extra"]


def test_one_that_runs_elsewhere_can_change_nothing_any_more(
    table: Table, owner: Make, brake: Brake, tmp_path: Path, pt_osc: Path
) -> None:
    """It is frozen while it is taken over by an owner that does not see its process, and goes on afterwards."""
    first = owner(spec_of(table, tool_options=BRAKED))
    first.at["copying"] = brake.hold
    first.start()
    first.heard("copying")
    pid = pid_of(first.do(fx.WatchMigration))
    os.killpg(pid, signal.SIGSTOP)
    brake.release()
    with owned(tmp_path / "elsewhere", pt_osc=str(pt_osc)) as make_elsewhere:
        second = make_elsewhere(spec_of(table, tool_options=BRAKED), 2)
        assert second.stop() == fx.Stopped()
        second.stands(replace(second.record, attempt=2))
        second.at["copying"] = brake.hold
        second.start()
        second.heard("copying")
        second.throttle(1.0)
        second.watched(lambda found: found.throttle_reason)
        brake.release()
        os.killpg(pid, signal.SIGCONT)
        eventually(lambda: has_ended(pid), "it ends")
        assert len(table.names("trigger")) == 3, "those of the second attempt"
        table.run("UPDATE items SET v = v + 1")
        second.throttle(0.0)
        done = second.ended()
    assert isinstance(done, fx.Completed), done
    output = next((tmp_path / "tools").rglob("output.log")).read_text()
    assert "was not altered" in output, output
    assert table.run("SELECT COUNT(*), MIN(v) FROM items") == [(table.rows, 1)]
    assert table.columns() == ["id", "v", "title", "extra"]
    assert table.names("trigger") == []


def test_what_was_renamed_before_it_was_stopped_is_complete(table: Table, owner: Make) -> None:
    one = owner(spec_of(table))
    one.start()
    eventually(lambda: "extra" in table.columns(), "it has renamed")
    assert isinstance(owner(spec_of(table), 2).stop(), fx.Completed)
    assert table.names("trigger") == []


def test_a_table_that_is_emptied_meanwhile_stays_empty(table: Table, owner: Make) -> None:
    """Its triggers do not fire on that: the copy has all the rows."""
    one = owner(spec_of(table))
    one.at["copied"] = lambda: table.run("TRUNCATE TABLE items")
    one.start()
    broke = one.ended()
    assert isinstance(broke, fx.Broke), broke
    assert "truncated or rebuilt" in "\n".join(said_by_tool(broke.note))
    assert one.reports[-1].status is fx.ToolStatus.FAILED
    assert one.stop() == fx.Stopped()
    assert table.run("SELECT COUNT(*) FROM items") == [(0,)]
    assert (table.names("trigger"), table.names("table")) == ([], ["items"])


@pytest.mark.parametrize("new", ["ADD UNIQUE KEY (s, id)", "ADD COLUMN n int, ADD UNIQUE KEY (n)"])
def test_a_unique_key_under_which_no_rows_can_be_equal_is_accepted(table: Table, owner: Make, new: str) -> None:
    """The table has another one over a column that is not changed."""
    table.run("ALTER TABLE items ADD COLUMN g varchar(20) AS (CONCAT(s, id)) STORED UNIQUE")
    assert isinstance(owner(spec_of(table, f"ALTER TABLE items {new}")).examine(), fx.Examined)


@pytest.mark.parametrize(
    ("statement", "more", "why"),
    [
        ("ALTER TABLE items RENAME COLUMN s TO title", {}, "CHANGE COLUMN"),
        ("ALTER TABLE items ADD COLUMN u varchar(36) DEFAULT uuid(), ADD UNIQUE KEY (u)", {}, "--allow-lossy"),
        ("ALTER TABLE items ADD COLUMN c int", {"tool_options": ("--plugin=x",)}, "may give"),
        ("ALTER TABLE items ADD COLUMN c int", {"tool_options": ("--plug=x",)}, "may give"),
        ("ALTER TABLE items ADD COLUMN c int", {"tool_options": ("--no-swap",)}, "may give"),
        ("ALTER TABLE items ADD COLUMN c int", {"tool_options": ("-p",)}, "--name=value"),
        ("ALTER TABLE items ADD COLUMN c int", {"tool_options": ("--no-such-thing",)}, "no-such-thing"),
        ("ALTER TABLE items MODIFY COLUMN v smallint", {}, "values could be lost"),
    ],
)
def test_what_it_would_do_wrong_is_refused(
    table: Table, owner: Make, statement: str, more: dict[str, Any], why: str
) -> None:
    refused = owner(spec_of(table, statement, **more)).examine()
    assert isinstance(refused, fx.ExamineRefused), refused
    assert why in refused.reason, refused.reason
    assert table.names("table") == ["items"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("ADD CONSTRAINT positive CHECK (v >= 0)", "positive"),
        ("ADD CONSTRAINT _positive CHECK (v >= 0)", "_positive"),
        ("ADD CONSTRAINT `a``b` CHECK (v >= 0)", "a``b"),
        ("ADD CHECK (v >= 0)", "CONSTRAINT_1"),
        ("COMMENT 'CONSTRAINT `positive` was dropped'", "positive"),
    ],
)
def test_a_table_is_refused_if_it_would_change_names_of_constraints(
    table: Table, owner: Make, change: str, name: str
) -> None:
    one = owner(spec_of(table))
    assert isinstance(one.examine(), fx.Examined)
    table.run(f"ALTER TABLE items {change}")
    planned = one.work.run(fx.ExamineMigration("r", "m", one.spec, reads_only=True))
    for told, kind in (
        (planned, fx.ExamineRefused),
        (one.examine(), fx.ExamineRefused),
        (one.start(), fx.Refused),  # it was changed after the submission
    ):
        assert isinstance(told, kind), told
        assert f"has CONSTRAINT `{name}`" in told.reason, told
    assert table.names("table") == ["items"]
    assert table.names("trigger") == []


def test_a_check_of_a_column_is_kept(table: Table, owner: Make) -> None:
    table.run("ALTER TABLE items MODIFY COLUMN v int NOT NULL CHECK (v >= 0)")
    one = owner(spec_of(table))
    assert isinstance(one.examine(), fx.Examined)
    one.start()
    assert isinstance(one.ended(), fx.Completed)
    assert "`v` int(11) NOT NULL CHECK (`v` >= 0)" in table.run("SHOW CREATE TABLE items")[0][1]


def test_where_it_is_not_installed_it_says_what_to_install(table: Table, tmp_path: Path) -> None:
    with owned(tmp_path, pt_osc="no-such-program") as make:
        refused = make(spec_of(table)).examine()
    assert isinstance(refused, fx.ExamineRefused)
    assert "apt-get install percona-toolkit" in refused.reason
