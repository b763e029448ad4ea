"""Every command that asks an owner for something ends with the exit code of the outcome, and withdraws its request."""

import json
import os
import pwd
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headgate.app.exit_codes import MEANINGS, ExitCode
from headgate.cli import candidates
from headgate.cli.main import app
from headgate.cli.requests import requester
from headgate.eventlog.log import Partition, Placed
from headgate.migration.core.spec import parse_spec
from headgate.records.base import Fact
from headgate.records.control import OperationKind, OperationRequested, OutcomeStatus, RequestSettled
from headgate.records.keys import OutcomeKey, RequestKey
from headgate.records.migration import MigrationRequested
from headgate_lab.memory_log.partition import LogEntry
from support.answering_owners import ALTER, DATABASE, FEED, Owners, answering_owners, outcome_of
from support.commands import commands

RING = ("--vnodes", "2", "--shards", "1")

COMMANDS: dict[str, tuple[str, ...]] = {
    "feed create": ("{feed}",),
    "feed update": ("{feed}",),
    "feed apply": ("{folder}",),
    "feed pause": ("shop",),
    "feed resume": ("shop",),
    "feed delete": ("shop",),
    "feed skip": ("shop", "shop.public.items/0/3"),
    "feed rebalance": (),
    "table move": ("shop", "public.items", "a1"),
    "table optimize": ("lake", "public.items"),
    "table pause": ("shop", "public.items"),
    "table resume": ("shop", "public.items"),
    "table resync": ("shop", "public.items", "--key", "1", "--yes"),
    "table split": ("shop", "public.items", "--parts", "2"),
    "table merge": ("shop", "public.items"),
    "agent drain": ("a1",),
    "coordinator resign": (),
    "generation rebalance": ("s", "--split-above", "1"),
    "generation autoscale enable": ("s", "--split-above", "10"),
    "generation autoscale disable": ("s",),
    "generation create": ("new", "--partitions", "4"),
    "generation grow": ("s", "--partitions", "16"),
    "generation delete": ("s",),
    "generation resize": ("s", "--streams", "2"),
    "generation abort": ("s",),
    "generation repair": ("s",),
    "generation gc": ("s",),
    "generation timestamps create": ("new", *RING),
    "generation timestamps update": ("t", "--add-node", "b", *RING),
    "generation timestamps repair": ("t",),
    "generation timestamps gc": ("t",),
    "migration submit": (ALTER, "--database", DATABASE, "--strategy", "direct"),
    "migration approve": ("m1",),
    "migration cancel": ("m1",),
    "migration retry": ("m1",),
    "migration launch": ("m1",),
    "migration complete": ("m1",),
    "migration force-cutover": ("m1",),
    "migration cleanup": ("m1",),
    "migration throttle": ("m1",),
    "migration revert": ("m1",),
}
"""A call of each command that asks. ``{feed}`` is the path of a feed's file, ``{folder}`` has it with a change."""

STAYS = {"generation create", "generation grow", "generation delete"}
"""An accepted request of these stays: what was begun with Kafka's topics must be finished."""

ACCEPTED, FAILED, REFUSED = OutcomeStatus.ACCEPTED, OutcomeStatus.FAILED, OutcomeStatus.REFUSED

REFUSALS = {"": ExitCode.REQUEST_REFUSED} | {
    f"{each}: ": code for code, row in MEANINGS.items() for each in row.refusals
}

OUTCOMES: list[tuple[OutcomeStatus | None, str, ExitCode]] = [
    (None, "", ExitCode.REQUEST_TIMED_OUT),
    (OutcomeStatus.ACCEPTED, "it is being stopped", ExitCode.REQUEST_TIMED_OUT),
    (OutcomeStatus.DONE, "as it was asked", ExitCode.DONE),
    (OutcomeStatus.FAILED, "the disk is full", ExitCode.REQUEST_FAILED),
    *((OutcomeStatus.REFUSED, f"{code}too late", exit_code) for code, exit_code in REFUSALS.items()),
]


DESTROYING = {
    "feed delete",
    "generation grow",
    "generation delete",
    "generation gc",
    "generation timestamps gc",
    "migration submit",
    "migration approve",
    "migration force-cutover",
    "migration cleanup",
}
"""Those that destroy data, or cannot be undone, in the form in which they are called here."""


ASKS_BROKERS = {"feed create", "feed update", "feed apply", "migration submit"}
"""Whose dry run asks brokers and databases: tests/integration/cli."""


def test_every_command_that_asks_is_tried_with_every_outcome() -> None:
    asking = {name for name, command in commands() if any(each.name == "timeout" for each in command.params)}
    several = {"cluster delete"}  # asks for several things: tests/integration/cli/test_cluster_delete.py
    assert asking == set(COMMANDS) | several
    assert {status for status, _, _ in OUTCOMES} == {None, *OutcomeStatus}


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    return answering_owners(monkeypatch)


@pytest.fixture
def feed_file(tmp_path: Path) -> Path:
    file = tmp_path / "shop.yaml"
    file.write_text(FEED, encoding="utf-8")
    return file


def call(command: str, feed_file: Path, *more: str) -> Result:
    folder = feed_file.parent / "changed"
    folder.mkdir(exist_ok=True)
    (folder / "shop.yaml").write_text(json.dumps({**json.loads(FEED), "batch_rows_max": 7}), encoding="utf-8")
    given = (word.format(feed=feed_file, folder=folder) for word in COMMANDS[command])
    agreed = ("--yes",) if command in DESTROYING and not {"--dry-run", "-o"} & set(more) else ()
    return CliRunner().invoke(app, [*command.split(), *given, "--timeout", "30", *agreed, *more])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_exit_code_is_that_of_the_outcome(command: str, owners: Owners, feed_file: Path) -> None:
    for status, reason, code in OUTCOMES:
        owners.outcome = None if status is None else RequestSettled(1, status, reason, 1)
        before = owners.left_over()
        result = call(command, feed_file)
        assert (result.exit_code, result.exception is None or isinstance(result.exception, SystemExit)) == (
            int(code),
            True,
        ), (status, reason, result.output, result.exception)
        said = " ".join(result.output.split())
        assert reason in said
        assert ("was withdrawn" in said) == (status is None)
        is_kept = command in STAYS and status is OutcomeStatus.ACCEPTED
        assert owners.left_over() - before == is_kept, (status, "requests on the log afterwards")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_utf_8_cannot_encode_is_not_found(command: str, owners: Owners, feed_file: Path) -> None:
    """Nothing is called so, and a request that names it could not be written."""
    names = [word for word in COMMANDS[command] if word in {"shop", "s", "t", "m1", "a1"}]
    for name in names:
        given = ["\udcff" if word == name else word for word in COMMANDS[command]]
        agreed = ("--yes",) if command in DESTROYING else ()
        result = CliRunner().invoke(app, [*command.split(), *given, "--timeout", "30", *agreed])
        assert result.exit_code == ExitCode.NOT_FOUND, (name, result.output, result.exception)
    assert owners.left_over() == 0


NAMES = {"shop", "lake", "s", "t", "m1", "a1", "public.items"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_does_not_exist_is_refused_with_the_nearest_one(
    command: str, owners: Owners, feed_file: Path
) -> None:
    owners.outcome = RequestSettled(1, OutcomeStatus.REFUSED, "not_found: it does not exist", 1)
    for number, name in enumerate(COMMANDS[command]):
        if name not in NAMES:
            continue
        given = [*COMMANDS[command][:number], f"{name}x", *COMMANDS[command][number + 1 :]]
        agreed = ("--yes",) if command in DESTROYING else ()
        result = CliRunner().invoke(app, [*command.split(), *given, "--timeout", "30", *agreed])
        said = " ".join(result.output.split())
        assert (result.exit_code, f"Did you mean '{name}'?" in said) == (ExitCode.NOT_FOUND, True), said


@pytest.mark.parametrize("shards_done", [0, 1])
def test_a_request_to_several_shards_is_refused_only_if_nothing_was_changed(
    shards_done: int, owners: Owners, feed_file: Path
) -> None:
    refused = RequestSettled(1, OutcomeStatus.REFUSED, "not_found: agent 'a1' does not exist", 1)
    answers = iter([RequestSettled(1, OutcomeStatus.DONE, "empty", 1)] * shards_done + [refused] * (2 - shards_done))
    owners.on_committed = lambda partition, entry: (
        None
        if entry.value is None or (outcome := outcome_of(entry.key)) is None
        else (owners.append(Placed(partition, Fact(outcome, next(answers))), 2), None)[1]
    )
    result = call("agent drain", feed_file, "-o", "json")
    error = json.loads(result.stderr)["error"]
    assert error["code"] == result.exit_code == (ExitCode.REQUEST_FAILED if shards_done else ExitCode.NOT_FOUND)
    assert ("shard 0: done: empty" in error["message"]) == bool(shards_done)


@pytest.mark.parametrize(
    ("answers", "code", "asked", "says"),
    [
        ({}, ExitCode.DONE, "pause update resume", ""),
        ({"update": REFUSED}, ExitCode.REQUEST_REFUSED, "pause update resume", "to update feed shop was refused"),
        ({"pause": ACCEPTED}, ExitCode.REQUEST_TIMED_OUT, "pause resume", "to pause feed shop was accepted, but"),
        ({"pause": FAILED}, ExitCode.REQUEST_FAILED, "pause resume", "to pause feed shop failed"),
        ({"pause": REFUSED}, ExitCode.REQUEST_REFUSED, "pause", "to pause feed shop was refused, nothing was changed"),
        ({"resume": FAILED}, ExitCode.REQUEST_FAILED, "pause update resume", "run `headgate feed resume shop`"),
        # A feed that was not paused in the end runs already.
        ({"pause": ACCEPTED, "resume": REFUSED}, ExitCode.REQUEST_TIMED_OUT, "pause resume", "to pause feed shop was"),
        (
            {"update": REFUSED, "resume": ACCEPTED},
            ExitCode.REQUEST_TIMED_OUT,
            "pause update resume",
            "to update feed shop was refused, nothing was changed: so it is. Then the request to resume feed shop was",
        ),
    ],
)
@pytest.mark.parametrize("command", ["feed update", "feed apply"])
def test_a_feed_that_was_paused_for_its_change_is_resumed_whatever_comes_of_it(
    command: str,
    answers: dict[str, OutcomeStatus],
    code: ExitCode,
    asked: str,
    says: str,
    *,
    owners: Owners,
    feed_file: Path,
) -> None:
    kinds = {
        OperationKind.PAUSE_FEED: "pause",
        OperationKind.UPDATE_FEED: "update",
        OperationKind.RESUME_FEED: "resume",
    }
    seen = []

    def answer(partition: Partition, entry: LogEntry) -> None:
        if isinstance(entry.value, OperationRequested) and isinstance(entry.key, RequestKey):
            seen.append(kinds[entry.value.kind])
            settled = RequestSettled(1, answers.get(seen[-1], OutcomeStatus.DONE), "so it is", 1)
            owners.append(Placed(partition, Fact(OutcomeKey(entry.key.request), settled)), 2)

    owners.on_committed = answer
    result = call(command, feed_file)
    said = " ".join(result.stderr.split())
    assert (result.exit_code, " ".join(seen)) == (code, asked), said
    assert says in said
    is_perhaps_paused = answers.get("resume") in (ACCEPTED, FAILED)
    assert ("Feed 'shop' may stay paused" in said) == is_perhaps_paused


def test_the_names_are_read_once_for_all_shards(
    owners: Owners, feed_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[object] = []
    read = candidates.read_snapshot
    monkeypatch.setattr(candidates, "read_snapshot", lambda *given: (reads.append(given), read(*given))[1])
    owners.outcome = RequestSettled(1, OutcomeStatus.REFUSED, "not_found: agent 'a1x' does not exist", 1)
    result = CliRunner().invoke(app, ["agent", "drain", "a1x", "--timeout", "30"])
    assert ("Did you mean 'a1'?" in " ".join(result.output.split()), len(reads)) == (True, 1), result.output


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    unknown = max(each.pw_uid for each in pwd.getpwall() if each.pw_uid < 60_000) + 1
    monkeypatch.setattr(os, "getuid", lambda: unknown)
    assert requester().startswith(f"{unknown}@")


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - ASKS_BROKERS))
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_dry_run_says_what_would_be_done_and_writes_nothing(
    command: str, output: str, owners: Owners, feed_file: Path
) -> None:
    before = owners.written()
    result = call(command, feed_file, "--dry-run", "-o", output)
    assert (result.exit_code, owners.written()) == (ExitCode.DONE, before), result.output
    if output == "json":
        told = json.loads(result.stdout)
        assert (told["status"], bool(told["would"])) == ("would be done", True)
    else:
        assert "would " in result.stderr


@pytest.mark.parametrize("command", sorted(DESTROYING))
def test_what_destroys_is_not_done_unless_somebody_confirms_it(command: str, owners: Owners, feed_file: Path) -> None:
    before = owners.written()
    result = call(command, feed_file, "-o", "table")
    assert (result.exit_code, owners.written()) == (ExitCode.NOT_CONFIRMED, before), result.output
    assert "Confirm it with --yes, or preview it with --dry-run" in result.stderr


@pytest.mark.parametrize("agreed", [False, True])
def test_an_online_change_must_be_revertible_unless_its_author_has_agreed(agreed: bool, owners: Owners) -> None:
    """Only the owner can find that out, so nothing is asked before the submission."""
    owners.outcome = RequestSettled(1, OutcomeStatus.DONE, "queued", 1)
    submitted = (
        "migration",
        "submit",
        ALTER,
        "--database",
        DATABASE,
        "--topic",
        "shop.public.items",
        "--timeout",
        "30",
    )
    result = CliRunner().invoke(app, [*submitted, *(("--yes",) if agreed else ())])
    assert result.exit_code == ExitCode.DONE, result.output
    (spec,) = [parse_spec(each.spec) for each in owners.requested(MigrationRequested)]
    assert spec.must_be_revertible == (not agreed)


def test_a_change_that_the_server_may_make_at_once_is_confirmed_before_it_is_submitted(owners: Owners) -> None:
    submitted = ("migration", "submit", ALTER, "--database", DATABASE, "--topic", "t", "--prefer-instant")
    before = owners.written()
    result = CliRunner().invoke(app, submitted)
    assert (result.exit_code, owners.written()) == (ExitCode.NOT_CONFIRMED, before), result.output
    assert "change a table at once where the server can" in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["feed pause", "feed delete", "table move", "agent drain", "migration cancel"])
def test_a_dry_run_of_what_does_not_exist_is_not_found(command: str, owners: Owners, feed_file: Path) -> None:
    given = [{"shop": "shp", "a1": "a2", "m1": "m2"}.get(word, word) for word in COMMANDS[command]]
    result = CliRunner().invoke(app, [*command.split(), *given, "--dry-run"])
    assert result.exit_code == ExitCode.NOT_FOUND, result.output
