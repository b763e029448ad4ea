"""A migration by an external program, run as a child of the owner: the common part of pt-osc and gh-ost.

    start     the program runs with a folder, a token and a name for its copy of its own; what an earlier attempt has
              left is taken away first
    watch     is the process there? when it has ended, the database shows the outcome
    stop      the process group is killed, its session at the database ended, its triggers and copy taken away
    adopt     an owner does not continue another owner's program: it is started again

An owner that dies leaves the program running. The next one ends it: by its folder on the same machine, and from
everywhere at the database, where the copy's name is another one for each attempt. Rows never leave the server, or go
through the program: they do not pass through Spark.
"""

import re
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, may_lose, parse_spec
from headgate.migration.statements.statement import Statement, StatementError
from headgate.migration.strategies.contract import CopyPlan, DescribedTable, Memory, RefusedError
from headgate.migration.strategies.examining import AT_SUBMISSION, checked_plan, read_plan
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.no_way_back import revert_refused
from headgate.migration.strategies.planning import allowing, shadow_name, unproven_keys
from headgate.migration.strategies.tools import at_mariadb as at_table
from headgate.migration.strategies.tools.process import ToolFolder, ToolProcess
from headgate.records.migration import MigrationRecorded

CHECK_SECONDS_MAX: Final = 60.0
"""For a program to try a change out."""

_OPTION: Final = re.compile(r"^--[a-z][a-z0-9-]*(=.*)?$", re.DOTALL)


class Tools(msgspec.Struct, frozen=True):
    """What programs need of the owner's process: where they report, by which token, where they keep their files.

    ``pt_osc`` and ``gh_ost`` are programs, by their names on the PATH or by their whole paths.
    """

    issue_token: Callable[[str], str]
    report_url: str
    folder: Path
    pt_osc: str = "pt-online-schema-change"
    gh_ost: str = "gh-ost"


class ToolStrategy(ABC):
    """One migration done by a program; see contract.Strategy."""

    name: str
    options: frozenset[str]
    """Options that a submission may give: limits and ways of working. Others name hosts, files or SQL, or are ours."""
    address_options: frozenset[str] = frozenset()
    """Options of an address that the program is given; a migration whose address has others is refused."""

    def __init__(self, server: MariadbServer, migration: str, tools: Tools | None) -> None:
        """Nothing is opened yet. Without ``tools`` it can only examine, as far as the database shows."""
        self._server, self._migration = server, migration
        self._tools_given = tools
        self._process: ToolProcess | None = None

    # --- what differs ---

    @abstractmethod
    def _program(self, tools: Tools) -> str:
        """Its setting."""

    @abstractmethod
    def _how_to_install(self) -> str:
        """What to do where it is missing."""

    @abstractmethod
    def _check(self, statement: Statement, before: DescribedTable) -> None:
        """Raise RefusedError for what this program would do wrong with the statement, or with the table as it is."""

    @abstractmethod
    def _try_out(self, program: str, statement: Statement, plan: CopyPlan, spec: MigrationSpec) -> None:
        """Have the program itself check the change, without doing it. Raises RefusedError with its words."""

    @abstractmethod
    def _names(self, plan: CopyPlan, attempt: int) -> tuple[str, tuple[str, ...], str]:
        """The names of its copy and of what else it makes, and the prefix of its triggers' names."""

    @abstractmethod
    def _command(self, program: str, run: "ToolRun") -> list[str]:
        """The command line; files that it needs are written into the folder."""

    @abstractmethod
    def _obey(self, record: MigrationRecorded) -> str:
        """Set a running program to the speed that the operator wants; why it waits, if it does."""

    def _seen(self, record: MigrationRecorded, note: str) -> Any:
        """A running process."""
        return fx.ToolSeen(is_live=True, throttle_reason=self._obey(record), note=note)

    # --- effects ---

    def examine(self, spec: MigrationSpec, reverted: MigrationRecorded | None) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        if reverted is not None:
            return revert_refused(spec, reverted)
        try:
            self._check_options(spec)
            statement, plan = self._checked(spec)
            if self._tools_given is not None:
                self._try_out(self._installed(self._tools_given), statement, plan, spec)
        except (RefusedError, StatementError) as error:
            return fx.ExamineRefused(str(error))
        return fx.Examined(
            "alter",
            f"{plan.before.schema}.{plan.before.name}",
            self._server.where(plan.before.schema),
            is_immediate=False,
            message=self._server.logged,
        )

    def plan(self, spec: MigrationSpec) -> fx.Examined | fx.ExamineRefused:
        """See contract."""
        try:
            self._check_options(spec)
            statement, before = read_plan(self._server, spec)
            self._check_spelling(statement, before)
            self._check(statement, before)
        except (RefusedError, StatementError) as error:
            return fx.ExamineRefused(str(error))
        table = f"{before.schema}.{before.name}"
        message = f"it was not looked whether the owner has {self.name}; {AT_SUBMISSION}"
        where = self._server.where(before.schema)
        return fx.Examined("alter", table, where, is_immediate=False, message=message)

    def _checked(self, spec: MigrationSpec) -> tuple[Statement, CopyPlan]:
        """The plan for the table and its rows as they are now. Raises RefusedError, StatementError."""
        statement, plan = checked_plan(self._server, spec)
        self._check_new_keys(plan, spec)
        self._check_spelling(statement, plan.before)
        self._check_exchanged(plan)
        self._check(statement, plan.before)
        return statement, plan

    def _check_spelling(self, statement: Statement, before: DescribedTable) -> None:
        """The program finds columns by their names, as they are written."""
        names = {column.name for column in before.columns}
        if unlike := [s.column for s in statement.steps if s.column is not None and s.column not in names]:
            raise RefusedError(
                f"{self.name} compares names of columns letter by letter, and the table has no {unlike[0]}: write the "
                "name as SHOW CREATE TABLE does"
            )

    def _check_exchanged(self, plan: CopyPlan) -> None:
        """The program takes a column's values from the one that had its name before."""
        known, to_old = {column.name.lower() for column in plan.before.columns}, {new: old for old, new in plan.pairs}
        for column in plan.after.columns:
            was = None if column.is_generated else to_old.get(column.name, "")
            if was is not None and was != column.name and column.name.lower() in known:
                raise RefusedError(
                    f"{self.name} would take the values of the column {column.name} of before, which is another one "
                    "after the change: use strategy direct, or submit a migration for each of the two"
                )

    def _check_new_keys(self, plan: CopyPlan, spec: MigrationSpec) -> None:
        present = [key.columns for key in plan.before.rules.unique]
        for key in unproven_keys(plan):
            if all(may_lose(spec.allow_lossy, name) for name in key.columns):
                continue
            if key.columns in present:
                raise RefusedError(
                    f"{self.name} drops rows that become equal under a unique key, and the change gives key {key.name} "
                    f"other values, or another collation: use online; or add {allowing(key.columns)}"
                )
            raise RefusedError(
                f"{self.name} drops rows that become equal under a new unique key while it runs, and compares "
                f"nothing: use online; or add {allowing(key.columns)}"
            )

    def _check_options(self, spec: MigrationSpec) -> None:
        if unknown := sorted(set(self._server.sessions.at.options) - {"bulk"} - self.address_options):
            raise RefusedError(
                f"the connection's address has {', '.join(unknown)}, which {self.name} cannot be given: it would "
                "connect in another way. Use strategy online"
            )
        for option in spec.tool_options:
            name = option.partition("=")[0].removeprefix("--")
            if not _OPTION.match(option):
                raise RefusedError(f"--tool-option {option!r}: write --name or --name=value")
            if name.removeprefix("no-") not in self.options:
                known = ", ".join(f"--{option}" for option in sorted(self.options))
                raise RefusedError(
                    f"--tool-option {option}: --{name} is not an option that a submission may give to {self.name}. "
                    f"Write one of them in full: {known}"
                )

    def _installed(self, tools: Tools) -> str:
        program = self._program(tools)
        found = shutil.which(program)
        if found is None:
            raise RefusedError(f"the owner of the migrations has no {program}: {self._how_to_install()}")
        return found

    def start(self, effect: fx.StartMigration) -> Any:
        """See contract."""
        tools, spec = self._tools(), parse_spec(effect.record.spec)
        if (done := self._ended(effect.owner_rev, spec)) is not None:
            return done
        try:
            program = self._installed(tools)
            statement, plan = self._checked(spec)
            run = self._noted(effect, statement, plan, spec)
        except RefusedError as error:
            self._server.forget()
            return fx.Refused(str(error))
        folder = self._folder()
        folder.make()
        token = tools.issue_token(self._migration)
        file = folder.write_json(
            "tool.json",
            run.told(tools.report_url, token, self._server.sessions.lock_name("tool"), self._server.migration),
        )
        try:
            command = self._command(program, run)
            self._process = ToolProcess(folder, command, {"HEADGATE_TOOL_FILE": str(file)})
        except OSError as error:
            self._server.forget()
            return fx.Refused(f"{program} cannot be started: {error}")
        return fx.Progressed("starting", table_rows=run.plan.rows, note=self._note())

    def _noted(self, effect: fx.StartMigration, statement: Statement, plan: CopyPlan, spec: MigrationSpec) -> "ToolRun":
        """The work to do, stored at the database before it begins."""
        before = plan.before
        copy, beside, triggers = self._names(plan, effect.record.attempt)
        numbers = at_table.numbers_of(self._server, before.schema, before.name)
        tool_plan = at_table.ToolPlan(
            before.schema,
            before.name,
            copy,
            numbers,
            before.definition,
            plan.after.definition,
            before.rows,
            beside,
            triggers,
        )
        attempt = effect.record.attempt
        self._server.note(Memory(effect.owner_rev, attempt, "begun", msgspec.json.encode(tool_plan).decode()))
        return ToolRun(self._migration, effect.owner_rev, attempt, statement, spec, tool_plan)

    def adopt(self, effect: fx.AdoptMigration) -> Any:
        """See contract."""
        if self._process is not None and self._process.exit_code() is None:
            return fx.Progressed(effect.record.stage, table_rows=effect.record.table_rows, note=self._note())
        plan = at_table.noted(self._server.take_over(effect.owner_rev))
        if plan is not None and at_table.is_changed(self._server, plan):
            return fx.Completed("seen in force", at_table.finished(self._server, plan), self._note())
        return fx.NotThere()

    def watch(self, effect: fx.WatchMigration) -> Any:
        """See contract."""
        process = self._process
        if process is None:
            return self.adopt(fx.AdoptMigration(effect.migration, effect.record, owner_rev=effect.owner_rev))
        code = process.exit_code()
        if code is None:
            return self._seen(effect.record, self._note())
        plan = at_table.noted(self._server.take_over(effect.owner_rev))
        if plan is not None and at_table.is_changed(self._server, plan):
            done = fx.Completed("", at_table.finished(self._server, plan), self._note())
            self._folder().remove()
            return done
        said = self._folder().kept()
        last = f": {said[-1]}" if said else ""
        ended = f"has ended with exit code {code}" if code else "has ended, but the table was not changed"
        return fx.Broke(f"{self.name} {ended}{last}", note=self._note())

    def cut_over(self, effect: fx.CutOverMigration) -> Any:
        """See contract: the program does it when it is ready."""
        return self.watch(fx.WatchMigration(effect.migration, effect.record, effect.owner_rev))

    def stop(self, effect: fx.StopMigration) -> Any:
        """See contract."""
        done = self._ended(effect.owner_rev, parse_spec(effect.record.spec))
        if done is None:
            self._server.forget()
            self._folder().remove()
            self._server.close()
        return done or fx.Stopped()

    def clean_up(self, effect: fx.CleanUpMigration) -> Any:
        """See contract."""
        self._server.take_over(effect.owner_rev)
        return fx.CleanedUp(self._server.drop(effect.record.artifacts))

    def close(self) -> None:
        """The program is a child of this owner: it ends with its term."""
        self._end_process()
        self._server.close()

    # --- parts ---

    def _ended(self, owner_rev: int, spec: MigrationSpec) -> fx.Completed | None:
        """End whatever is under way and take it away, unless the change is in force: then Completed."""
        memory = self._server.take_over(owner_rev)
        self._end_process()
        if self._tools_given is not None:
            self._folder().end_left_over()
        self._server.sessions.end_part(self._server.sessions.main, "tool")
        plan = at_table.noted(memory)
        if plan is None:
            return None
        if not at_table.is_changed(self._server, plan):
            at_table.take_away(self._server, plan, spec.cutover_threshold_seconds)
            # Its last rename may have come in between; from here on there is nothing that could be renamed.
            if not at_table.is_changed(self._server, plan):
                return None
        return fx.Completed("it was in force already", at_table.finished(self._server, plan), self._note())

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _tools(self) -> Tools:
        if self._tools_given is None:
            raise RefusedError(f"{self.name} is run by `headgate serve migration` only")
        return self._tools_given

    def _credentials(self) -> str:
        return option_file(self._server.sessions.at.user, self._server.sessions.password())

    def _folder(self) -> ToolFolder:
        return ToolFolder(self._tools().folder, self._server.migration)

    def _dry_run(self, program: str, options: Callable[[Path], Sequence[str]]) -> "subprocess.CompletedProcess[bytes]":
        """Run the program to its end. ``options``: for the path of the file with its user and password."""
        with tempfile.TemporaryDirectory(prefix="headgate-tool-") as folder:
            file = Path(folder, "client.cnf")
            file.touch(mode=0o600)
            file.write_text(self._credentials(), encoding="utf-8")
            try:
                return subprocess.run(
                    [program, *options(file)],
                    capture_output=True,
                    stdin=subprocess.DEVNULL,
                    check=False,
                    timeout=CHECK_SECONDS_MAX,
                    cwd=folder,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise RefusedError(f"{program} cannot be tried out: {error}") from error

    def _note(self) -> str:
        pid = None if self._process is None else self._process.pid
        return msgspec.json.encode(Note(pid, self._folder().kept())).decode()


class Note(msgspec.Struct):
    """What the log keeps of a program: for people."""

    pid: int | None = None
    said: list[str] = []


class ToolRun(msgspec.Struct, frozen=True):
    """One run of a program."""

    migration: str
    owner_rev: int
    attempt: int
    statement: Statement
    spec: MigrationSpec
    plan: at_table.ToolPlan

    def told(self, url: str, token: str, lock: str, row: str) -> dict[str, Any]:
        """What the program's hooks get in a file that only this user can read.

        ``row`` is the migration's id in the table ``headgate.migration`` of the database.
        """
        return {
            "url": url,
            "token": token,
            "migration": self.migration,
            "owner_rev": self.owner_rev,
            "attempt": self.attempt,
            "lock": lock,
            "row": row,
            "schema": self.plan.schema,
            "table": self.plan.table,
            "numbers": ",".join(map(str, self.plan.numbers)),
        }


def said_by_tool(note: str) -> list[str]:
    """The program's lines in a record's note; none for another strategy."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(note or "{}", type=Note).said
    return []


def copy_name(plan: CopyPlan, migration: str, attempt: int, limit: int) -> str:
    """A name for the copy that no other attempt has."""
    return shadow_name(plan.before.name, f"{migration}/{attempt}", limit)


def option_file(user: str, password: str) -> str:
    """An option file of MariaDB's with these, whatever characters they have."""
    return f"[client]\nuser={_option_value(user)}\npassword={_option_value(password)}\n"


def _option_value(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
