"""Strategy gh-ost, against a program that keeps gh-ost's published contract (support/gh_ost_double.py)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.strategies.tools.gh_ost import HOOKS
from headgate.migration.strategies.tools.tool import said_by_tool
from headgate.records.migration import MigrationStrategy
from integration.migration.tool_change import Owner, Table, owned, pid_of
from support.ended import has_ended
from support.waiting import eventually

pytestmark = pytest.mark.integration

ADD = "ALTER TABLE items ADD COLUMN extra int NOT NULL DEFAULT 7"

Make = Callable[..., Owner]


@pytest.fixture
def table(mariadb_database: str, tmp_path: Path) -> Table:
    return Table(mariadb_database, tmp_path, rows=400)


@pytest.fixture
def owner(gh_ost: Path, tmp_path: Path) -> Iterator[Make]:
    longer_than_a_socket_may_be = tmp_path / ("folder" * 20)
    with owned(longer_than_a_socket_may_be, gh_ost=str(gh_ost)) as make:
        yield make


@pytest.fixture
def brake(tmp_path: Path) -> Path:
    """gh-ost stands still while this file is there."""
    file = tmp_path / "brake"
    file.touch()
    return file


def spec_of(table: Table, statement: str = ADD, *options: str, **more: Any) -> MigrationSpec:
    return table.spec(MigrationStrategy.GH_OST, statement, tool_options=options, **more)


def test_it_waits_for_the_scheduler_and_cuts_over_when_told(table: Table, owner: Make) -> None:
    one = owner(spec_of(table, ADD, chunk_rows=100))
    assert isinstance(one.examine(), fx.Examined)
    assert table.names("table") == ["items"], "trying it out leaves nothing"
    assert isinstance(one.start(), fx.Progressed)
    seen = one.watched(lambda _found: any(report.is_ready_to_complete for report in one.reports))
    assert not seen.is_live, "that it lives, it reports by itself"
    table.run("INSERT INTO items (id, v) VALUES (9999, 1)")
    assert table.columns() == ["id", "v", "s"]
    done = one.do(fx.CutOverMigration)
    assert isinstance(done, fx.Completed), done
    assert table.columns() == ["id", "v", "s", "extra"]
    assert table.run("SELECT COUNT(*), SUM(extra) FROM items") == [(table.rows + 1, 7 * (table.rows + 1))]
    (old,) = [artifact.name.partition(".")[2] for artifact in done.artifacts]
    assert old.endswith("_del")
    assert table.names("table") == sorted([old, "items"])
    stages = ["starting", *["copying"] * 4, "catching up", "ready to cut over", "cutting over"]
    assert one.stages() == stages
    copied = [report.rows_copied for report in one.reports if report.stage == "copying"]
    assert copied == [100, 200, 300, 400]
    assert [report.eta_seconds for report in one.reports] == [None] * len(one.reports), "it said that it did not know"
    assert one.reports[-1].status is fx.ToolStatus.COMPLETE
    assert said_by_tool(done.note)[-1] == "# Done"


def test_it_goes_as_fast_as_the_operator_says(table: Table, owner: Make, brake: Path) -> None:
    one = owner(spec_of(table, ADD, f"--throttle-additional-flag-file={brake}"))
    one.start()
    one.heard("starting")
    assert one.watched(lambda found: found.throttle_reason).throttle_reason == "flag-file"
    one.throttle(1.0)
    brake.unlink()
    one.watched(lambda found: found.throttle_reason == "commanded by user")
    one.throttle(0.5)
    one.watched(lambda found: found.throttle_reason == "")
    assert "# nice-ratio: 1.0" in one.asked("status")
    one.throttle(0.0)
    one.watched(lambda _found: "# nice-ratio: 0.0" in one.asked("status"))
    assert one.stop() == fx.Stopped()


def test_a_cancelled_one_sees_its_panic_file_and_nothing_is_left(table: Table, owner: Make, brake: Path) -> None:
    one = owner(spec_of(table, ADD, f"--throttle-additional-flag-file={brake}"))
    one.start()
    one.heard("starting")
    eventually(lambda: len(table.names("table")) == 3, "it has its tables")
    assert one.stop() == fx.Stopped()
    assert table.names("table") == ["items"]
    assert table.columns() == ["id", "v", "s"]


def test_the_next_owner_ends_what_the_last_one_has_left(table: Table, owner: Make, brake: Path) -> None:
    first = owner(spec_of(table, ADD, f"--throttle-additional-flag-file={brake}"))
    first.start()
    first.heard("starting")
    left = psutil.Process(pid_of(first.do(fx.WatchMigration)))
    second = owner(spec_of(table), 2)
    assert second.stop() == fx.Stopped()
    assert has_ended(left)
    assert table.names("table") == ["items"]


def test_without_its_owners_word_it_does_not_cut_over(table: Table, owner: Make) -> None:
    one = owner(spec_of(table))
    one.start()
    one.watched(lambda _found: any(report.is_ready_to_complete for report in one.reports))
    one.disown()
    one.let_go()
    broke = one.ended()
    assert isinstance(broke, fx.Broke), broke
    assert "hook gh-ost-on-before-cut-over failed" in "\n".join(said_by_tool(broke.note))
    assert table.columns() == ["id", "v", "s"]
    assert one.stop() == fx.Stopped()
    assert table.names("table") == ["items"]


def test_what_it_has_done_before_it_was_stopped_is_complete(table: Table, owner: Make) -> None:
    one = owner(spec_of(table))
    one.start()
    one.watched(lambda _found: any(report.is_ready_to_complete for report in one.reports))
    one.let_go()
    eventually(lambda: "extra" in table.columns(), "it has cut over")
    done = owner(spec_of(table), 2).stop()
    assert isinstance(done, fx.Completed)
    assert [name for name in table.names("table") if name != "items"] == [
        artifact.name.partition(".")[2] for artifact in done.artifacts
    ]


@pytest.mark.parametrize(
    ("statement", "options", "why"),
    [
        (ADD, ("--panic-flag-file=x",), "--panic-flag-file is not an option that a submission may give"),
        (ADD, ("--no-such-thing",), "no-such-thing"),
        ("ALTER TABLE items ADD COLUMN u varchar(36) DEFAULT uuid(), ADD UNIQUE KEY (u)", (), "--allow-lossy"),
    ],
)
def test_what_it_cannot_do_is_refused(
    table: Table, owner: Make, statement: str, options: tuple[str, ...], why: str
) -> None:
    refused = owner(spec_of(table, statement, *options)).examine()
    assert isinstance(refused, fx.ExamineRefused), refused
    assert why in refused.reason, refused.reason
    assert table.names("table") == ["items"]


def test_hooks_are_named_as_gh_ost_looks_for_them() -> None:
    known = [
        "startup",
        "validated",
        "rowcount-complete",
        "before-row-copy",
        "status",
        "interactive-command",
        "row-copy-complete",
        "stop-replication",
        "start-replication",
        "begin-postponed",
        "before-cut-over",
        "success",
        "failure",
    ]
    assert set(HOOKS) <= {f"gh-ost-on-{event}" for event in known}
