"""``headgate table resync`` without --key: what it asks for, what it refuses, and how its copy is ended."""

import json

import pytest
from typer.testing import CliRunner, Result

from headgate.app.exit_codes import ExitCode
from headgate.cli.main import app
from headgate.eventlog.sharding import shard_of
from headgate.records.control import OperationKind, OperationRequested, OutcomeStatus, RequestSettled
from headgate.records.keys import OutcomeKey, RequestKey
from headgate.records.row_copies import RowCopy, read_row_copy, shown_row_copy
from support.answering_owners import Owners, answering_owners

NOT_COPIED = "table 'public.items' of feed 'shop' is not being copied as a whole"


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    return answering_owners(monkeypatch)


def resync(*more: str) -> Result:
    return CliRunner().invoke(app, ["table", "resync", "shop", "public.items", *more])


def said(result: Result) -> str:
    """On one line, without the frame around an error of usage."""
    return " ".join(result.output.replace("│", " ").split())


def add_copy(
    owners: Owners, request: str, status: OutcomeStatus | None, rows: RowCopy, table: str = "public.items"
) -> None:
    """A request as another command left it, and how far its owner says it is."""
    shard = shard_of("shop", owners.shards)
    record = OperationRequested(
        kind=OperationKind.RESYNC_TABLE,
        feed="shop",
        table=table,
        agent=None,
        spec=shown_row_copy(rows),
        requested_by="somebody@elsewhere",
        requested_ms=1,
    )
    owners.put(RequestKey(request), record, shard)
    if status is not None:
        owners.put(OutcomeKey(request), RequestSettled(1, status, "40 rows are copied", 1), shard)


WHOLE = RowCopy(keys=None)


def test_the_whole_table_is_asked_for_and_the_request_stays_until_it_is_done(owners: Owners) -> None:
    owners.outcome = RequestSettled(1, OutcomeStatus.ACCEPTED, "40 rows are copied", 1)
    result = resync("--max-rows-per-second", "7", "--delete", "--yes", "--timeout", "30")
    assert result.exit_code == ExitCode.REQUEST_TIMED_OUT
    assert "40 rows are copied; it continues; `headgate why shop` shows how far it is" in said(result)
    assert "`headgate table resync shop public.items --cancel` ends it" in said(result)
    (request,) = owners.requested(OperationRequested)
    assert read_row_copy(request.spec) == RowCopy(keys=None, delete=True, rows_per_second=7)
    assert owners.left_over() == 1
    owners.outcome = RequestSettled(1, OutcomeStatus.DONE, "all rows are copied", 1)
    done = resync("--yes", "-o", "json")
    assert done.exit_code == ExitCode.DONE, done.output
    assert json.loads(done.stdout)["rows"] is None


def test_rows_can_be_chosen_by_a_condition(owners: Owners) -> None:
    owners.outcome = RequestSettled(1, OutcomeStatus.DONE, "the rows are copied", 1)
    result = resync("--where", "qty > 3", "--yes", "-o", "json")
    assert result.exit_code == ExitCode.DONE, result.output
    (request,) = owners.requested(OperationRequested)
    assert read_row_copy(request.spec) == RowCopy(keys=None, where="qty > 3")
    assert json.loads(result.stdout)["where"] == "qty > 3"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--where", "qty >"), "an operand is missing"),
        (("--where", ""), "the expression is empty"),
        (("--where", "qty > 3", "--key", "1"), "Leave out --key"),
        (("--where", "qty > 3", "--delete"), "Leave out --where"),
        (("--where", "qty > 3", "--cancel"), "takes no other option"),
    ],
)
def test_a_condition_that_cannot_be_used_is_refused_at_once(
    owners: Owners, options: tuple[str, ...], words: str
) -> None:
    result = resync(*options, "--yes")
    assert result.exit_code == 2
    assert words in said(result)
    assert owners.requested(OperationRequested) == []


def test_a_copy_that_is_over_is_withdrawn_before_the_next_one(owners: Owners) -> None:
    add_copy(owners, "over", OutcomeStatus.FAILED, WHOLE)
    owners.outcome = RequestSettled(1, OutcomeStatus.DONE, "all rows are copied", 1)
    assert resync("--yes").exit_code == ExitCode.DONE
    assert owners.left_over() == 0


@pytest.mark.parametrize("status", [None, OutcomeStatus.ACCEPTED])
def test_a_cancelled_copy_is_withdrawn_without_confirmation_and_others_stay(
    owners: Owners, status: OutcomeStatus | None
) -> None:
    add_copy(owners, "ours", status, WHOLE)
    add_copy(owners, "rows", OutcomeStatus.ACCEPTED, RowCopy(keys=(("1",),)))
    add_copy(owners, "other", OutcomeStatus.ACCEPTED, WHOLE, table="public.others")
    dry = resync("--cancel", "--dry-run")
    assert (dry.exit_code, owners.left_over()) == (ExitCode.DONE, 3)
    assert "would end the copy of table public.items of feed shop; nothing was changed" in said(dry)
    result = resync("--cancel")
    assert (result.exit_code, owners.left_over()) == (ExitCode.DONE, 2), result.output
    assert said(result) == "shop/public.items: the copy has ended; rows that are copied stay"
    again = resync("--cancel")
    assert (again.exit_code, owners.left_over()) == (ExitCode.NOT_FOUND, 2)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize("status", [None, OutcomeStatus.DONE, OutcomeStatus.FAILED, OutcomeStatus.REFUSED])
def test_nothing_to_cancel_is_not_found(owners: Owners, status: OutcomeStatus | None, more: tuple[str, ...]) -> None:
    if status is not None:
        add_copy(owners, "over", status, WHOLE)
    before = owners.written()
    result = resync("--cancel", *more)
    assert (result.exit_code, owners.written()) == (ExitCode.NOT_FOUND, before)
    assert NOT_COPIED in said(result)


@pytest.mark.parametrize("more", [("--key", "1"), ("--delete",), ("--max-rows-per-second", "5")])
def test_a_cancellation_takes_no_option_of_a_copy(owners: Owners, more: tuple[str, ...]) -> None:
    add_copy(owners, "ours", OutcomeStatus.ACCEPTED, WHOLE)
    result = resync("--cancel", *more)
    assert (result.exit_code, owners.left_over()) == (ExitCode.USAGE, 1)
    assert "--cancel ends a copy that runs, and takes no other option of a copy" in said(result)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--max-rows-per-second", "0"), "is not allowed: it must be at least 1"),
        (("--max-rows-per-second", "5", "--key", "1"), "limits the copy of a whole table. Leave out --key"),
    ],
)
def test_a_limit_that_is_not_valid_is_refused(owners: Owners, more: tuple[str, ...], why: str) -> None:
    before = owners.written()
    result = resync(*more, "--yes")
    assert (result.exit_code, owners.written()) == (ExitCode.USAGE, before)
    assert why in said(result)


@pytest.mark.parametrize(
    ("more", "would"),
    [
        ((), "overwrite all rows of table public.items of feed shop with those of the source"),
        (("--delete",), "with those of the source, and delete the others"),
    ],
)
def test_a_dry_run_of_a_whole_table_writes_no_request(owners: Owners, more: tuple[str, ...], would: str) -> None:
    add_copy(owners, "over", OutcomeStatus.FAILED, WHOLE)
    before = owners.written()
    result = resync(*more, "--dry-run")
    assert (result.exit_code, owners.written()) == (ExitCode.DONE, before), result.output
    assert f"{would}; nothing was changed" in said(result)


def test_a_whole_table_is_not_overwritten_unless_somebody_confirms_it(owners: Owners) -> None:
    before = owners.written()
    result = resync("--delete")
    assert (result.exit_code, owners.written()) == (ExitCode.NOT_CONFIRMED, before), result.output
