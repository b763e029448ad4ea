"""Programs that do a migration: what may be asked of them, what they print, where their files are."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from headgate.config.error_values import VALUES_IN_ERRORS
from headgate.migration.core.effects import ExamineRefused
from headgate.migration.core.spec import MigrationSpec, MigrationSpecError, parse_spec, written
from headgate.migration.shell.work import open_strategy
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.migration.strategies.tools.gh_ost_hook import given
from headgate.migration.strategies.tools.output import shown
from headgate.migration.strategies.tools.process import LINES_MAX, ToolFolder, ToolProcess
from headgate.migration.strategies.tools.pt_osc import progress_of
from headgate.migration.strategies.tools.tool import option_file, said_by_tool
from headgate.records.migration import MigrationStrategy
from support.connections import described
from support.waiting import END_SECONDS_MAX


def checked(strategy: MigrationStrategy, **more: Any) -> MigrationSpec:
    spec = MigrationSpec(
        statement="ALTER TABLE t ADD c int", database=described("mysql://u@h/d"), strategy=strategy, **more
    )
    return parse_spec(written(spec))


@pytest.mark.parametrize(
    ("strategy", "more", "why"),
    [
        (MigrationStrategy.PT_OSC, {"postpone_completion": True}, "cannot be postponed"),
        (MigrationStrategy.PT_OSC, {"in_order_completion": True, "context": "c"}, "nor ordered"),
        (MigrationStrategy.PT_OSC, {"force_cutover_after_seconds": 5.0}, "cuts over by itself"),
        (MigrationStrategy.GH_OST, {"threads_running_max": 5}, "--tool-option"),
        (MigrationStrategy.ONLINE, {"tool_options": ("--a=b",)}, "runs no program"),
    ],
)
def test_what_a_program_cannot_do_is_refused(strategy: MigrationStrategy, more: dict[str, Any], why: str) -> None:
    with pytest.raises(MigrationSpecError, match=why):
        checked(strategy, **more)


@pytest.mark.parametrize(
    ("strategy", "address", "option", "why"),
    [
        (MigrationStrategy.GH_OST, "", "--throttle-http=http://evil", "may give"),
        (MigrationStrategy.GH_OST, "", "--throttle-control-replicas=evil", "may give"),
        (MigrationStrategy.GH_OST, "", "--throttle-flag-file=/etc/passwd", "may give"),
        (MigrationStrategy.GH_OST, "", "--throttle-query=SELECT LOAD_FILE('/etc/passwd')", "may give"),
        (MigrationStrategy.GH_OST, "", "--skip-strict-mode", "may give"),
        (MigrationStrategy.GH_OST, "", "--ssl-key=/etc/key", "may give"),
        (MigrationStrategy.PT_OSC, "", "--recursion-method=hosts", "may give"),
        (MigrationStrategy.PT_OSC, "", "--check-slave=h=evil", "may give"),
        (MigrationStrategy.PT_OSC, "", "--where=id < 5", "may give"),
        (MigrationStrategy.PT_OSC, "", "--set-vars=sql_log_bin=0", "may give"),
        (MigrationStrategy.PT_OSC, "", "--slee=1", "may give"),
        (MigrationStrategy.PT_OSC, "", "--no-swap-tables", "may give"),
        (MigrationStrategy.PT_OSC, "?ssl_ca=/etc/ca.pem", "--sleep=1", "ssl_ca, which pt-online-schema-change cannot"),
        (MigrationStrategy.GH_OST, "?unix_socket=/run/s", "--nice-ratio=1", "unix_socket, which gh-ost cannot"),
    ],
)
def test_a_submission_brings_no_host_file_or_sql_by_an_option(
    strategy: MigrationStrategy, address: str, option: str, why: str
) -> None:
    spec = checked(strategy, tool_options=(option,))
    spec = msgspec.structs.replace(spec, database=described(f"mysql://u@h/d{address}"))
    told = open_strategy("m", spec, cluster_id=NO_CLUSTER).examine(spec, None)
    assert isinstance(told, ExamineRefused)
    assert why in told.reason


def test_gh_ost_waits_for_its_completion() -> None:
    assert checked(MigrationStrategy.GH_OST, postpone_completion=True).postpone_completion


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        ("Copying `shop`.`items`:  31% 00:02 remain", (310, 2)),
        ("Copying `shop`.`items`: 100% 00:00 remain", (1_000, 0)),
        ("Copying `a b`.`c:d`:   5% 01:10:05 remain", (50, 4_205)),
        ("Copying `shop`.`items`:   1% 3+02:00:00 remain", (10, 266_400)),
        ("2026-11-23T19:05:34 Copied rows OK.", (None, None)),
    ],
)
def test_how_far_pt_osc_is_by_what_it_prints(line: str, progress: tuple[int | None, int | None]) -> None:
    assert progress_of(["Copying `shop`.`items`:   0% 09:09 remain", line], 1_000)[0] in (progress[0], 0)
    assert progress_of([line], 1_000) == progress


def test_gh_osts_hooks_say_what_it_tells_them() -> None:
    told = {
        "GH_OST_COPIED_ROWS": "17",
        "GH_OST_PROGRESS": "3.4",
        "GH_OST_ETA_SECONDS": "9223372036854775807",
        "GH_OST_DRY_RUN": "false",
        "GH_OST_STATUS": "Copy: 17/500; ETA: 3s",
    }
    assert given("gh-ost-on-status", told, "m1") == {
        "uuid": "m1",
        "status": "running",
        "hint": "copying",
        "dryrun": "false",
        "progress": "3.4",
        "eta": "9223372036854775807",
        "rowscopied": "17",
    }
    postponing = given("gh-ost-on-status", told | {"GH_OST_STATUS": "ETA: postponing cut-over"}, "m1")
    assert "hint" not in postponing, "it is not copying any more"
    assert given("gh-ost-on-failure", {}, "m1")["message"] == "gh-ost has failed"


def test_any_password_can_stand_in_an_option_file() -> None:
    assert option_file("a b", 'x"y\\z') == '[client]\nuser="a b"\npassword="x\\"y\\\\z"\n'


def test_a_folder_is_this_users_alone(tmp_path: Path) -> None:
    folder = ToolFolder(tmp_path / "root", "m1")
    folder.make()
    file = folder.write("secret", "x")
    assert (folder.path.stat().st_mode & 0o077, file.stat().st_mode & 0o077) == (0, 0)
    folder.remove()
    folder.path.symlink_to(tmp_path)
    with pytest.raises(RefusedError, match="not a folder of this user's alone"):
        folder.make()
    folder.path.unlink()
    folder.path.parent.chmod(0o755)
    with pytest.raises(RefusedError, match="not a folder of this user's alone"):
        folder.make()


SECRET = "4111-1111"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (f"DBD::mysql::st execute failed: Duplicate entry '{SECRET}' for key 'PRIMARY' [for Statement", None),
        (f"DBD::mysql::db do failed: {SECRET} is refused by a trigger at /usr/bin/pt-osc line 1.", None),
        ("DBD::mysql::st execute failed: Unknown column 'a.b' in 'field list'", "Unknown column 'a.b' in …"),
        ("DBD::mysql::st execute failed: Lock wait timeout exceeded; try again [for", "timeout exceeded; try again …"),
        (f"2026-01-01T00:00:00 Error copying rows from `a`.`b` to `a`.`c`: {SECRET!r}", "to `a`.`c`: …"),
        (
            f"Copying rows caused a MySQL error 1265: Message: Data truncated for column 'a' at row 1, '{SECRET}'",
            "row 1, …",
        ),
        (f"2026-01-01 00:00:00 FATAL Error 1062 (23000): Duplicate entry '{SECRET}' for key 'x'", "(23000): …"),
        (f"2026-01-01 00:00:00 INFO Migration range min values: [{SECRET}]", "min values: …"),
        ("2026-01-01 00:00:00 INFO rotate to next log from mysql-bin.000001:12 to mysql-bin.000002", "000002"),
        ("2026-01-01T00:00:00 Swapped original and new tables OK.", "new tables OK."),
        ("`a`.`b` was not altered.", "not altered."),
        ("copy_rows, 10, 0.25", "0.25"),
        (f"second line of a value: {SECRET}", ""),
    ],
)
def test_what_a_program_prints_is_stored_without_values(
    line: str, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VALUES_IN_ERRORS, raising=False)
    text = "".join(shown([line]))
    assert SECRET not in text
    assert text.endswith("failed: …" if kept is None else kept), text
    assert bool(text) == (kept != "")


def test_an_operator_may_have_what_a_program_prints_but_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VALUES_IN_ERRORS, "true")
    lines = [
        f"DBD::mysql::db do failed: {SECRET} is refused",
        f"ERROR Error 1062: Duplicate entry '{SECRET}' for key 'k'",
    ]
    assert shown(lines) == [lines[0], "ERROR Error 1062: …"]


def test_what_a_program_prints_is_kept_within_bounds(tmp_path: Path) -> None:
    folder = ToolFolder(tmp_path / "root", "m1")
    folder.make()
    assert folder.kept() == []
    lines = [f"Found {number} slaves" for number in range(200)]
    folder.output().write_text("\n".join(["x" * 100_000, *lines, "Copying `a`.`b`:  3% 00:09 remain"]))
    assert folder.kept() == lines[-LINES_MAX:]
    assert folder.said()[-1].endswith("remain")
    assert said_by_tool("") == said_by_tool('{"upto": [1], "rows": 5}') == said_by_tool("no JSON") == []


def test_a_program_and_its_children_are_ended_by_their_folder_and_no_other_is(tmp_path: Path) -> None:
    folder, other = ToolFolder(tmp_path / "root", "m1"), ToolFolder(tmp_path / "root", "m2")
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    processes = []
    for one in (folder, other):
        one.make()
        processes.append(ToolProcess(one, [sys.executable, "-c", program, str(one.path)], {}))
    left, spared = processes
    children: list[psutil.Process] = []
    while not children:
        children = psutil.Process(left.pid).children()
    folder.end_left_over()
    assert left.wait(END_SECONDS_MAX)
    _, alive = psutil.wait_procs(children, timeout=END_SECONDS_MAX)
    assert not alive
    assert spared.exit_code() is None
    spared.kill()
    assert spared.exit_code() is not None
    other.end_left_over()


def test_a_process_that_has_got_the_number_of_a_program_is_left_alone(tmp_path: Path) -> None:
    """Numbers are the system's to give again: a process is known by the folder on its command line."""
    folder = ToolFolder(tmp_path / "root", "m1")
    folder.make()
    folder.write("pid", str(os.getpid()))
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        (folder.path / "pid").write_text(str(stranger.pid))
        folder.end_left_over()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
