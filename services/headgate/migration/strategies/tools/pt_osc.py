"""Strategy ``pt-osc``: Percona's pt-online-schema-change, as it is installed on the owner's machine.

It copies within the server and keeps the copy in step by triggers of its own; it puts the copy in the table's place by
itself, as soon as that is done. Our plugin (pt_osc_plugin.pm) reports to the owner, holds a lock at the database that
shows whose session it is, and refuses to continue when the migration has another owner by now. The program is run with
options to drop nothing: when it fails, its triggers would be left to write to a copy that is gone. What it leaves is
removed by us.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import CHUNK_ROWS_DEFAULT, MigrationSpec
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import CopyPlan, DescribedTable, RefusedError
from headgate.migration.strategies.tools.output import printed
from headgate.migration.strategies.tools.tool import ToolRun, Tools, ToolStrategy, copy_name
from headgate.records.migration import MigrationRecorded
from headgate.records.throttle_reasons import OPERATOR

PLUGIN: Final = Path(__file__).with_name("pt_osc_plugin.pm")

TRIGGER_PREFIX_MAX: Final = 60
"""The program cuts the names of its triggers there."""

SESSION_SECONDS: Final = 31_536_000
"""For a session that is suspended because an operator wants it: MariaDB's longest wait_timeout, a year."""

_NO_FILES: Final = "--config=/dev/null"
"""The first of all options: what its files on this machine contain is not part of the migration."""

_CONSTRAINT: Final = re.compile(r"CONSTRAINT `((?:[^`]|``)*)")
"""What the program renames: it searches all of SHOW CREATE TABLE, comments too.

MariaDB gives a CHECK of the table a name (CONSTRAINT_1) where the statement gives none. A CHECK in a column's
definition has no name.
"""

_PROGRESS: Final = re.compile(r"Copying .*:\s+(\d+)% (?:(\d+)\+)?([\d:]+) remain$")


_OPTIONS: Final = frozenset(
    """
    analyze-before-swap binary-index check-interval check-plan chunk-index chunk-index-columns chunk-size
    chunk-size-limit chunk-time critical-load max-flow-ctl max-load null-to-not-null quiet sleep
    statistics tries
    """.split()  # noqa: SIM905 - words to be read
)


class PtOscStrategy(ToolStrategy):
    """See the module."""

    name = "pt-online-schema-change"
    options = _OPTIONS

    _is_still = False

    def _program(self, tools: Tools) -> str:
        return tools.pt_osc

    def _how_to_install(self) -> str:
        return (
            "install percona-toolkit there (Debian: apt-get install percona-toolkit), or name the program in "
            "HEADGATE_MIGRATION__PT_OSC"
        )

    def _check(self, statement: Statement, before: DescribedTable) -> None:
        if statement.having("rename-column") is not None:
            # It knows CHANGE only, and would copy nothing into a column that is renamed otherwise.
            raise RefusedError(f"{self.name} loses the values of a RENAME COLUMN: write CHANGE COLUMN old new TYPE")
        if (named := _CONSTRAINT.search(before.definition)) is not None:
            raise RefusedError(
                f"SHOW CREATE TABLE of {before.schema}.{before.name} has CONSTRAINT `{named[1]}`, and {self.name} "
                "changes names of constraints (it adds or removes underscores): use strategy online or direct"
            )

    def _names(self, plan: CopyPlan, attempt: int) -> tuple[str, tuple[str, ...], str]:
        prefix = re.sub(r"\W", "_", f"pt_osc_{plan.before.schema}_{plan.before.name}")[:TRIGGER_PREFIX_MAX]
        return copy_name(plan, self._server.migration, attempt, self._server.name_bytes_max), (), f"{prefix}_"

    def _try_out(self, program: str, statement: Statement, plan: CopyPlan, spec: MigrationSpec) -> None:
        """A dry run: it makes the copy, empty, and drops it again."""

        def options(file: Path) -> list[str]:
            copy = copy_name(plan, self._server.migration, 0, self._server.name_bytes_max)
            table = self._dsn(plan.before.schema, plan.before.name, file)
            return [_NO_FILES, "--dry-run", *self._options(statement, spec, copy, table)]

        done = self._dry_run(program, options)
        if done.returncode != 0:
            lines = printed(done)
            raise RefusedError(f"{self.name} --dry-run (exit code {done.returncode}): {' '.join(lines[-3:])}")

    def _command(self, program: str, run: ToolRun) -> list[str]:
        folder, plan, self._is_still = self._folder(), run.plan, False
        file = folder.write("client.cnf", self._credentials())
        return [
            program,
            _NO_FILES,
            "--execute",
            f"--pid={folder.path / 'pid'}",
            f"--plugin={PLUGIN}",
            "--no-drop-triggers",
            "--no-drop-new-table",
            "--no-drop-old-table",
            *self._options(run.statement, run.spec, plan.copy, self._dsn(plan.schema, plan.table, file)),
        ]

    def _options(self, statement: Statement, spec: MigrationSpec, copy: str, dsn: str) -> Sequence[str]:
        given = {option.partition("=")[0].removeprefix("--no-").removeprefix("--") for option in spec.tool_options}
        seconds = max(1, round(spec.cutover_threshold_seconds))
        ours = {
            "progress": "--progress=time,1",
            # Found in the list of sessions, a connector that captures changes would be taken for a replica.
            "recursion-method": "--recursion-method=none",
            "set-vars": f"--set-vars=wait_timeout={SESSION_SECONDS},lock_wait_timeout={seconds}",
        }
        if spec.chunk_rows != CHUNK_ROWS_DEFAULT:
            ours["chunk-size"] = f"--chunk-size={spec.chunk_rows}"
        return [
            f"--alter={statement.plain}",
            f"--new-table-name={copy}",
            "--no-version-check",  # it would ask its vendor
            "--no-check-alter",
            "--no-check-unique-key-change",  # both were checked before it was accepted
            *(option for name, option in ours.items() if name not in given),
            *spec.tool_options,
            dsn,
        ]

    def _dsn(self, schema: str, table: str, file: Path) -> str:
        at = self._server.sessions.at
        return f"h={at.host},P={at.port},D={schema},t={table},A=utf8mb4,F={file}"

    def _obey(self, record: MigrationRecorded) -> str:
        """By a signal: its own pause file is checked once a minute. Between two statements it holds no lock."""
        is_still = record.throttle_ratio > 0
        if self._process is not None and is_still != self._is_still:
            self._process.hold(is_held=is_still)
            self._is_still = is_still
        return f"{OPERATOR} it is paused" if is_still else ""

    def _seen(self, record: MigrationRecorded, note: str) -> Any:
        rows, eta = progress_of(self._folder().said(), record.table_rows)
        return fx.ToolSeen(
            is_live=True, rows_copied=rows, eta_seconds=eta, throttle_reason=self._obey(record), note=note
        )


def progress_of(lines: Sequence[str], table_rows: int) -> tuple[int | None, int | None]:
    """Rows copied and seconds left by the last line that has them: ``Copying `db`.`t`:  31% 00:02 remain``."""
    for line in reversed(lines):
        if (found := _PROGRESS.search(line)) is not None:
            seconds = 0
            for part in found.group(3).split(":"):
                seconds = 60 * seconds + int(part or 0)
            return table_rows * int(found.group(1)) // 100, seconds + 86_400 * int(found.group(2) or 0)
    return None, None
