"""``/schema-migration/report-status``: status reports of pt-online-schema-change and gh-ost, as in Vitess.

    GET or POST  ?uuid=<migration>&status=running|complete|failed
                 [&hint=<stage>|ready_to_complete] [&progress=<percent>] [&eta=<seconds>] [&rowscopied=<rows>]
                 [&message=<text>] [&dryrun=true]
                 Authorization: Bearer <token>

The token is made for one attempt of one migration. It is known to this process and to the tool that it started, from a
file that no other user may read: it is never on the log, on a command line, in a log line or in an answer. A report
that is accepted becomes an input of the scheduler. Only the owner accepts reports: a tool is its child, so no other
process has a token.

    200 recorded   400 a parameter is missing or wrong    403 no token, or not this migration's    404 unknown migration
    409 it does not run    421 another process owns the migrations (it is named)    503 no process does now, or too busy
"""

import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from headgate.migration.core.effects import ToolReported, ToolStatus
from headgate.migration.core.state import MigrationsState
from headgate.migration.core.transitions import MigrationPhase, phase

PATH: Final = "/schema-migration/report-status"

TOKENS_MAX: Final = 1_000
"""Migrations whose last token is remembered; the oldest is forgotten first. Far more than run at once."""

STAGE_CHARACTERS_MAX: Final = 60
MESSAGE_CHARACTERS_MAX: Final = 500
"""What a tool may put on the log."""

READY: Final = "ready_to_complete"
"""Vitess's hint of a gh-ost whose cut-over is postponed."""

_PARAMETERS: Final = frozenset({"uuid", "status", "hint", "dryrun", "progress", "eta", "rowscopied", "message"})
_SCHEME: Final = "Bearer "


class Answer(Exception):  # noqa: N818 - an answer, good or bad, not an error of Headgate
    """What is answered: an HTTP status and a line of text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class ToolReports:
    """The endpoint of one process, and the tokens of the tools that it runs. Safe to use from any thread."""

    def __init__(self) -> None:
        """No process owns the migrations yet."""
        self._lock = threading.Lock()
        self._tokens: dict[str, str] = {}
        self._state: MigrationsState | None = None
        self._give: Callable[[ToolReported], bool] = lambda _report: False
        self._owner_id: Callable[[], str | None] = lambda: None

    # --- the service ---

    def serve(self, give: Callable[[ToolReported], bool], owner_id: Callable[[], str | None]) -> None:
        """Give reports to ``give`` from now on (False: it could not accept one); ``owner_id`` names the owner."""
        self._give, self._owner_id = give, owner_id

    def stands(self, state: MigrationsState | None) -> None:
        """After each turn of the role: the owner's state, None while this process is none."""
        self._state = state

    def issue(self, migration: str) -> str:
        """A token for a new attempt; those of earlier ones become invalid."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens.pop(migration, None)
            self._tokens[migration] = token
            while len(self._tokens) > TOKENS_MAX:
                del self._tokens[next(iter(self._tokens))]
        return token

    # --- the endpoint ---

    def routes(self) -> list[web.RouteDef]:
        """For the operations endpoints of this process."""
        return [web.get(PATH, self._answer), web.post(PATH, self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        answer = self.heard(request.query, request.headers.get("Authorization", ""))
        return web.Response(status=answer.status, text=f"{answer.text}\n")

    def heard(self, given: Mapping[str, str], authorization: str) -> Answer:
        """Accept a report, or answer why not."""
        try:
            report = self._checked(given, authorization)
        except Answer as refusal:
            return refusal
        if given.get("dryrun") == "true":
            return Answer(200, "a dry run: not recorded")
        if not self._give(report):
            return Answer(503, "reports come faster than they are taken in, or this process owns nothing any more")
        return Answer(200, "noted")

    def _checked(self, given: Mapping[str, str], authorization: str) -> ToolReported:
        state = self._state
        if state is None:
            owner = self._owner_id()
            if owner is None:
                raise Answer(503, "no process owns the migrations now: report again")
            raise Answer(
                421, f"{owner} owns the migrations, not this process: a tool reports to the process that started it"
            )
        report = _parsed(given)
        record = state.migrations.get(report.migration)
        if record is None:
            raise Answer(404, f"no migration {report.migration}")
        with self._lock:
            token = self._tokens.get(report.migration)
        said = authorization.removeprefix(_SCHEME) if authorization.startswith(_SCHEME) else ""
        if token is None or not hmac.compare_digest(token.encode(), said.encode()):
            raise Answer(403, f"not the token of the running attempt of {report.migration}")
        if (stands := phase(record)) is not MigrationPhase.RUNNING:
            raise Answer(409, f"{report.migration} is {stands.value}, it does not run")
        return report


def _parsed(given: Mapping[str, str]) -> ToolReported:
    """The report in a query. Raises Answer."""
    unknown = sorted(set(given) - _PARAMETERS)
    if unknown:
        raise Answer(400, f"unknown parameter {unknown[0]}; choose from {' '.join(sorted(_PARAMETERS))}")
    for name in ("uuid", "status"):
        if not given.get(name):
            raise Answer(400, f"parameter {name} is missing")
    if given["status"] not in set(ToolStatus):
        raise Answer(400, f"status is {given['status']!r}: {', '.join(ToolStatus)} are known")
    if given.get("dryrun", "false") not in ("true", "false"):
        raise Answer(400, f"dryrun is {given['dryrun']!r}: true or false")
    hint = given.get("hint", "")
    percent = _number(given, "progress", 100.0)
    return ToolReported(
        migration=given["uuid"],
        status=ToolStatus(given["status"]),
        stage="ready to cut over" if hint == READY else hint[:STAGE_CHARACTERS_MAX],
        rows_copied=_whole(given, "rowscopied"),
        progress_percent=percent,
        eta_seconds=_whole(given, "eta"),
        is_ready_to_complete=hint == READY,
        message=given.get("message", "")[:MESSAGE_CHARACTERS_MAX],
    )


def _number(given: Mapping[str, str], name: str, most: float) -> float | None:
    text: Any = given.get(name, "")
    try:
        number = float(text) if text else None
    except ValueError:
        raise Answer(400, f"{name} is {text!r}: a number is wanted") from None
    if number is not None and not 0 <= number <= most:
        raise Answer(400, f"{name} is {text}: 0 to {most:g} is possible")
    return number


def _whole(given: Mapping[str, str], name: str) -> int | None:
    """Tools report -1, or more than any table has, for what they do not know."""
    text = given.get(name, "")
    if text.startswith("-") and text[1:].isdecimal():
        return None
    number = _number(given, name, 2.0**63)
    return None if number is None or number >= 2.0**53 else int(number)
