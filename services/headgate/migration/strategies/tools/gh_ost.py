"""Strategy ``gh-ost``: GitHub's gh-ost, as it is installed on the owner's machine.

It copies by statements, and follows the table's changes in the server's binary log. Its hooks report to the owner
(gh_ost_hook.py, one program under the names that gh-ost looks for). A flag file makes it wait before it cuts over; the
owner removes the file when the scheduler lets this migration complete. It is ended by its panic file, and killed if it
does not end; its speed is set over its socket.

gh-ost cannot be had where Headgate is built: this is tested against a program that keeps its published contract
(doc/hooks.md, doc/interactive-commands.md, doc/command-line-flags.md of github/gh-ost), and not against gh-ost.
"""

import os
import re
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headgate.databases.mysql.address import TLS_FILES
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import CHUNK_ROWS_DEFAULT, MigrationSpec, parse_spec
from headgate.migration.statements.statement import Statement
from headgate.migration.strategies.contract import CopyPlan, DescribedTable, RefusedError
from headgate.migration.strategies.tools.output import printed
from headgate.migration.strategies.tools.tool import ToolRun, Tools, ToolStrategy, copy_name
from headgate.records.migration import MigrationRecorded

HOOK: Final = Path(__file__).with_name("gh_ost_hook.py")

HOOKS: Final = (
    "gh-ost-on-startup",
    "gh-ost-on-row-copy-complete",
    "gh-ost-on-status",
    "gh-ost-on-begin-postponed",
    "gh-ost-on-before-cut-over",
    "gh-ost-on-success",
    "gh-ost-on-failure",
)
"""Those that report something to the owner."""

CHUNK_ROWS_MIN: Final = 10
CHUNK_ROWS_MAX: Final = 100_000
"""gh-ost's own bounds."""

SUFFIXES: Final = ("gho", "ghc", "del")
"""Of what it makes: the copy, its log, and the table before."""

SUFFIX_CHARACTERS: Final = len("__gho")

ANSWER_SECONDS_MAX: Final = 2.0
ANSWER_BYTES_MAX: Final = 8_192
"""Of its socket, which answers at once; beyond this it is asked again a second later."""

SOCKET: Final = "socket"
"""Named without its folder, in which gh-ost is started: Linux takes 107 bytes for a socket's path."""

PANIC_SECONDS_MAX: Final = 2.0
"""For it to see its panic file; then it is killed."""

CUT_OVER_SECONDS: Final = 10.0
"""Beyond what writers may wait: it tries several times."""

POLL_SECONDS: Final = 0.1

_THROTTLED: Final = re.compile(r"throttled, (.+)$", re.MULTILINE)
_OPTIONS: Final = frozenset(
    """
    aliyun-rds allow-master-master allow-on-master approve-renamed-columns assume-rbr attempt-instant-ddl azure
    binlogsyncer-max-reconnect-attempts charset chunk-size concurrent-rowcount critical-load
    critical-load-hibernate-seconds critical-load-interval-millis cut-over cut-over-exponential-backoff
    cut-over-lock-timeout-seconds debug default-retries dml-batch-size exact-rowcount exponential-backoff-max-interval
    gcp heartbeat-interval-millis max-lag-millis max-load mysql-timeout nice-ratio quiet replica-server-id
    replication-lag-query-interval-millis skip-metadata-lock-check stack verbose
    """.split()  # noqa: SIM905 - words to be read
)


class GhOstStrategy(ToolStrategy):
    """See the module."""

    name = "gh-ost"
    address_options = frozenset(TLS_FILES)
    options = _OPTIONS

    _ratio_told = 0.0

    def _program(self, tools: Tools) -> str:
        return tools.gh_ost

    def _how_to_install(self) -> str:
        return "install gh-ost there (github/gh-ost has packages), or name the program in HEADGATE_MIGRATION__GH_OST"

    def _check(self, statement: Statement, before: DescribedTable) -> None:
        del statement, before  # what it cannot do, it reports when it is tried out

    def _names(self, plan: CopyPlan, attempt: int) -> tuple[str, tuple[str, ...], str]:
        copy, *beside = (f"_{self._name(plan, attempt)}_{suffix}" for suffix in SUFFIXES)
        return copy, tuple(beside), ""

    def _name(self, plan: CopyPlan, attempt: int) -> str:
        """What it makes names of; it puts ``_`` before it and a suffix behind."""
        return copy_name(plan, self._server.migration, attempt, self._server.name_bytes_max - SUFFIX_CHARACTERS)

    def _try_out(self, program: str, statement: Statement, plan: CopyPlan, spec: MigrationSpec) -> None:
        """Without --execute it does everything but copying and cutting over, and drops what it has made."""

        def options(file: Path) -> list[str]:
            table = plan.before.schema, plan.before.name
            return [*self._options(statement, spec, table, self._name(plan, 0), file), f"--serve-socket-file={SOCKET}"]

        done = self._dry_run(program, options)
        if done.returncode != 0:
            lines = printed(done)
            fatal = [line for line in lines if "FATAL" in line] or lines
            raise RefusedError(f"{self.name} without --execute (exit code {done.returncode}): {' '.join(fatal[-2:])}")

    def _command(self, program: str, run: ToolRun) -> list[str]:
        folder, plan, self._ratio_told = self._folder(), run.plan, 0.0
        path = folder.path
        file = folder.write("client.cnf", self._credentials())
        (path / "hooks").mkdir(mode=0o700)
        for hook in HOOKS:
            text = f"#!/bin/sh\nexec '{sys.executable}' -I '{HOOK}' {hook}\n"
            folder.write(f"hooks/{hook}", text, is_program=True)
        folder.switch("postpone", is_on=True)
        force = plan.copy.removeprefix("_").removesuffix("_gho")
        return [
            program,
            "--execute",
            f"--hooks-path={path / 'hooks'}",
            f"--panic-flag-file={path / 'panic'}",
            f"--postpone-cut-over-flag-file={path / 'postpone'}",
            f"--serve-socket-file={SOCKET}",
            *self._options(run.statement, run.spec, (plan.schema, plan.table), force, file),
        ]

    def _options(
        self, statement: Statement, spec: MigrationSpec, table: tuple[str, str], force: str, file: Path
    ) -> Sequence[str]:
        at = self._server.sessions.at
        tls = [f"--{name.replace('_', '-')}={file}" for name, file in sorted(at.options.items()) if name in TLS_FILES]
        given = {option.partition("=")[0].removeprefix("--") for option in spec.tool_options}
        seconds = max(1, round(spec.cutover_threshold_seconds))
        ours = {
            "allow-on-master": "--allow-on-master",
            "cut-over-lock-timeout-seconds": f"--cut-over-lock-timeout-seconds={min(seconds, 10)}",
            "approve-renamed-columns": "--approve-renamed-columns",
        }
        if spec.chunk_rows != CHUNK_ROWS_DEFAULT:
            ours["chunk-size"] = f"--chunk-size={min(max(spec.chunk_rows, CHUNK_ROWS_MIN), CHUNK_ROWS_MAX)}"
        return [
            f"--host={at.host}",
            f"--port={at.port}",
            *(["--ssl", *tls] if tls else []),
            f"--conf={file}",
            f"--database={table[0]}",
            f"--table={table[1]}",
            f"--alter={statement.plain}",
            f"--force-table-names={force}",
            *(option for name, option in ours.items() if name not in given),
            *spec.tool_options,
        ]

    # --- while it runs ---

    def _seen(self, record: MigrationRecorded, note: str) -> Any:
        """It reports by itself that it lives; a process that reports nothing any more is not a sign of life."""
        return fx.ToolSeen(is_live=False, throttle_reason=self._obey(record), note=note)

    def _obey(self, record: MigrationRecorded) -> str:
        ratio = record.throttle_ratio
        if ratio != self._ratio_told and self._tell("throttle" if ratio >= 1 else "no-throttle") is not None:
            self._tell(f"nice-ratio={0 if ratio >= 1 else ratio / (1 - ratio):g}")
            self._ratio_told = ratio
        found = _THROTTLED.search(self._tell("status") or "")
        return found.group(1) if found else ""

    def _tell(self, command: str) -> str | None:
        """Its answer to an interactive command; None if it does not answer, as it does not before it has started."""
        answer = b""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
                channel.settimeout(ANSWER_SECONDS_MAX)
                _connect(channel, self._folder().path)
                channel.sendall(f"{command}\n".encode())
                channel.shutdown(socket.SHUT_WR)
                while len(answer) < ANSWER_BYTES_MAX and (piece := channel.recv(ANSWER_BYTES_MAX)):
                    answer += piece
        except OSError:
            return None
        return answer.decode(errors="replace")

    def cut_over(self, effect: fx.CutOverMigration) -> Any:
        """See contract: gh-ost is allowed to cut over, and waited for; it tries by itself, several times."""
        self._folder().switch("postpone", is_on=False)
        self._tell("cut-over")
        watch = fx.WatchMigration(effect.migration, effect.record, effect.owner_rev)
        seconds = parse_spec(effect.record.spec).cutover_threshold_seconds + CUT_OVER_SECONDS
        deadline = time.monotonic() + seconds
        while isinstance(found := self.watch(watch), fx.ToolSeen):
            if time.monotonic() > deadline:
                return fx.CutOverFailed(
                    f"gh-ost has not cut over within {seconds:g} s; it continues to retry by itself"
                )
            time.sleep(POLL_SECONDS)
        return found

    def _end_process(self) -> None:
        if self._process is not None and self._process.exit_code() is None:
            self._folder().switch("panic", is_on=True)
            self._process.wait(PANIC_SECONDS_MAX)
        super()._end_process()


def _connect(channel: socket.socket, folder: Path) -> None:
    """To the socket in that folder, however long the folder's path is. Raises OSError."""
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        channel.connect(f"/proc/self/fd/{opened}/{SOCKET}")
    finally:
        os.close(opened)
