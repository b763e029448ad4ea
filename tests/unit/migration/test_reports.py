"""The endpoint where tools report: who is believed, what is refused and how, and what the scheduler is told."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from headgate.migration.core.effects import ToolReported, ToolStatus
from headgate.migration.core.machine import MIGRATIONS
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.core.state import MigrationsState
from headgate.migration.shell.reports import PATH, TOKENS_MAX, ToolReports
from headgate.observability.http import OpsServer
from headgate.observability.metrics import new_registry
from headgate.observability.probes import Probes
from headgate.records.migration import MigrationKey, MigrationState, MigrationStrategy
from support.migration_records import recorded

RUNNING = {"uuid": "m1", "status": "running"}


class Desk:
    """The endpoint of an owner with one migration, and what came through."""

    def __init__(self, state: MigrationState = MigrationState.RUNNING, ending: MigrationState | None = None) -> None:
        self.heard: list[ToolReported] = []
        self.has_room = True
        self.reports = ToolReports()
        self.reports.serve(self._take, lambda: "other-7")
        self.state: MigrationsState = MIGRATIONS.new_state(0)
        spec = MigrationSpec(statement="ALTER TABLE t ADD c int", database="db", strategy=MigrationStrategy.PT_OSC)
        record = recorded(written(spec), state=state, ending=ending)
        MIGRATIONS.evolve(self.state, MigrationKey("m1"), record, 1)
        self.reports.stands(self.state)
        self.token = self.reports.issue("m1")

    def _take(self, report: ToolReported) -> bool:
        if self.has_room:
            self.heard.append(report)
        return self.has_room

    def say(self, given: dict[str, str], token: str | None = None) -> tuple[int, str]:
        answer = self.reports.heard(given, f"Bearer {self.token if token is None else token}")
        return answer.status, answer.text


def test_a_report_is_given_to_the_scheduler() -> None:
    desk = Desk()
    more = {"hint": "copying", "progress": "41.5", "eta": "12", "rowscopied": "830"}
    assert desk.say(RUNNING | more) == (200, "noted")
    assert desk.say({"uuid": "m1", "status": "failed", "message": "x" * 900}) == (200, "noted")
    assert desk.heard == [
        ToolReported("m1", ToolStatus.RUNNING, "copying", 830, 41.5, 12),
        ToolReported("m1", ToolStatus.FAILED, message="x" * 500),
    ]


def test_what_a_tool_does_not_know_is_left_as_it_is() -> None:
    desk = Desk()
    desk.say(RUNNING | {"eta": "-1", "rowscopied": "9223372036854775807", "hint": "ready_to_complete"})
    assert desk.heard == [
        ToolReported("m1", ToolStatus.RUNNING, "ready to cut over", is_ready_to_complete=True),
    ]


def test_a_dry_run_says_nothing_to_the_scheduler() -> None:
    desk = Desk()
    assert desk.say(RUNNING | {"dryrun": "true"})[0] == 200
    assert desk.heard == []


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"status": "running"}, 400, "uuid is missing"),
        ({"uuid": "m1"}, 400, "status is missing"),
        (RUNNING | {"status": "done"}, 400, "status is 'done'"),
        (RUNNING | {"progress": "much"}, 400, "progress is 'much'"),
        (RUNNING | {"progress": "101"}, 400, "0 to 100"),
        (RUNNING | {"progress": "nan"}, 400, "0 to 100"),
        (RUNNING | {"dryrun": "perhaps"}, 400, "dryrun"),
        (RUNNING | {"speed": "3"}, 400, "unknown parameter speed"),
        (RUNNING | {"uuid": "m2"}, 404, "no migration m2"),
    ],
)
def test_what_is_no_report_is_refused(given: dict[str, str], status: int, said: str) -> None:
    desk = Desk()
    found, text = desk.say(given)
    assert (found, said in text) == (status, True), text
    assert desk.heard == []


@pytest.mark.parametrize("token", ["", "x", "m1"])
def test_only_the_running_attempts_tool_is_believed(token: str) -> None:
    desk = Desk()
    status, text = desk.say(RUNNING, token)
    assert status == 403
    assert desk.token not in text
    assert desk.reports.heard(RUNNING, desk.token).status == 403, "without its scheme"
    former, desk.token = desk.token, desk.reports.issue("m1")
    assert desk.say(RUNNING, former)[0] == 403, "the token of an earlier attempt"
    assert desk.say(RUNNING)[0] == 200


@pytest.mark.parametrize(
    ("state", "ending", "said"),
    [
        (MigrationState.COMPLETE, None, "complete"),
        (MigrationState.QUEUED, None, "queued"),
        (MigrationState.RUNNING, MigrationState.CANCELLED, "ending"),
    ],
)
def test_a_report_of_what_does_not_run_is_refused(
    state: MigrationState, ending: MigrationState | None, said: str
) -> None:
    desk = Desk(state, ending)
    assert desk.say(RUNNING) == (409, f"m1 is {said}, it does not run")


def test_who_is_not_the_owner_says_who_is() -> None:
    desk = Desk()
    desk.reports.stands(None)
    status, text = desk.say(RUNNING)
    assert (status, "other-7 owns" in text) == (421, True)
    desk.reports.serve(lambda _report: True, lambda: None)
    assert desk.say(RUNNING)[0] == 503


def test_too_many_reports_are_refused() -> None:
    desk = Desk()
    desk.has_room = False
    assert desk.say(RUNNING)[0] == 503


def test_tokens_are_bounded_and_the_newest_is_kept() -> None:
    reports = ToolReports()
    tokens = {reports.issue(f"m{number}") for number in range(TOKENS_MAX + 5)}
    assert len(tokens) == TOKENS_MAX + 5
    assert len(reports._tokens) == TOKENS_MAX
    assert f"m{TOKENS_MAX + 4}" in reports._tokens


@pytest.fixture
def served() -> Iterator[tuple[Desk, int]]:
    desk = Desk()
    server = OpsServer("127.0.0.1", 0, Probes(60.0), new_registry(), desk.reports.routes())
    server.start()
    yield desk, server.port
    server.close()


def ask(port: int, query: str, headers: dict[str, str], method: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{PATH}?{query}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_it_is_served_beside_the_probes(served: tuple[Desk, int], method: str) -> None:
    desk, port = served
    headers = {"Authorization": f"Bearer {desk.token}"}
    assert ask(port, "uuid=m1&status=complete", headers, method) == (200, "noted\n")
    assert ask(port, "uuid=m1&status=complete", {}, method)[0] == 403
    assert desk.heard == [ToolReported("m1", ToolStatus.COMPLETE)]
