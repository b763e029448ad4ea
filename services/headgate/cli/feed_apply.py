"""``headgate feed apply``: create and change the feeds of a cluster to match a folder or standard input."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from headgate.app.exit_codes import CommandError, ExitCode, exit_code_of
from headgate.cli.changes import WOULD_BE_DONE, Destruction, Permit, agreed
from headgate.cli.dry_run import rehearsed
from headgate.cli.feed_files import ask_for
from headgate.cli.feed_folder import Act, FeedStep, planned, read_folder
from headgate.cli.options import ClusterOptions, connected
from headgate.cli.output import Output, note, show_value
from headgate.cli.rendering import print_plain
from headgate.cli.requests import OutcomeOptions, ask, operation
from headgate.cli.snapshots import read_snapshot
from headgate.config.given_files import STANDARD_INPUT
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import Log
from headgate.eventlog.snapshot import Snapshot, all_partitions
from headgate.migration.core.feed_names import back_feed, forth_feed
from headgate.records.control import FeedRecorded, OperationKind
from headgate.records.keys import FeedKey
from headgate.records.migration import MigrationKey, MigrationRecorded
from headgate.records.name_lists import shown_names
from headgate.runtime.requests import RequestError

_SIGNS: Final = {Act.CREATE: "+", Act.UPDATE: "~", Act.DELETE: "-", Act.NONE: "="}

_KINDS: Final = {
    Act.CREATE: OperationKind.CREATE_FEED,
    Act.UPDATE: OperationKind.UPDATE_FEED,
    Act.DELETE: OperationKind.REMOVE_FEED,
}


class Result(msgspec.Struct, frozen=True):
    """What became of a step. ``status`` and ``reason`` are the owner's; an error has its exit code."""

    step: FeedStep
    status: str
    reason: str = ""
    code: ExitCode = ExitCode.DONE


def apply(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="a folder with a YAML file for each feed, or - for YAML documents on standard input"
        ),
    ],
    *,
    prune: Annotated[bool, typer.Option("--prune", help="delete the feeds that are not given")] = False,
    change: Destruction,
    outcome: OutcomeOptions,
    cluster: ClusterOptions,
) -> None:
    """Create and change feeds to match those in a folder or on standard input.

    Shows what differs first. A feed that runs is paused for its change and resumed; one that is paused stays paused.
    Feeds that are not given stay, unless --prune is used, which needs --yes where no terminal can be asked. If a
    feed is refused, the others are still applied.

    Example: headgate feed apply feeds/ --prune --dry-run
    """
    wanted = read_folder(folder)
    with connected(cluster) as (settings, log):
        known = _feeds_of_people(read_snapshot(log, all_partitions(log, (FeedKey.topic, MigrationKey.topic))))
        steps = planned(wanted, known, prune=prune)
        _show_steps(steps, "on standard input" if folder == STANDARD_INPUT else "in the folder", outcome.output)
        permit = _agreed(change, steps)
        if permit is None:
            results = [_rehearsed(log, settings.prefix, step) for step in steps]
        else:
            results = [_done(log, step, outcome.timeout, permit) for step in steps]
    _show_results(results, outcome.output)
    _fail_if_refused(results)


def _feeds_of_people(snapshot: Snapshot) -> dict[str, FeedRecorded]:
    """The cluster's feeds, except those of schema changes: their owner creates and deletes them."""
    migrations = [key.migration for key, _ in snapshot.each(MigrationKey, MigrationRecorded)]
    made = {name for migration in migrations for name in (forth_feed(migration), back_feed(migration))}
    return {key.feed: record for key, record in snapshot.each(FeedKey, FeedRecorded) if key.feed not in made}


def _agreed(change: Destruction, steps: Sequence[FeedStep]) -> Permit | None:
    deleted = [step.feed for step in steps if step.act is Act.DELETE]
    return agreed(change.only_if(bool(deleted)), f"delete feeds {shown_names(deleted)}")


def _done(log: Log, step: FeedStep, timeout: float, permit: Permit) -> Result:
    if step.act is Act.NONE:
        return Result(step, "unchanged")
    kind = _KINDS[step.act]
    try:
        if step.spec is None:
            outcome = ask(log, operation(kind, step.feed), timeout, permit)
        else:
            outcome = ask_for(log, kind, step.spec, timeout, permit)
    except (RequestError, CommandError) as error:
        return _failed(step, error)
    return Result(step, outcome.status.value, outcome.reason)


def _rehearsed(log: KafkaLog, own_prefix: str, step: FeedStep) -> Result:
    if step.act is Act.NONE:
        return Result(step, "unchanged")
    try:
        if step.spec is not None:
            rehearsed(log, own_prefix, _KINDS[step.act], step.spec)
    except CommandError as error:
        return _failed(step, error)
    return Result(step, WOULD_BE_DONE)


def _failed(step: FeedStep, error: RequestError | CommandError) -> Result:
    return Result(step, "failed", str(error), exit_code_of(error) or ExitCode.BUG)


def _show_steps(steps: Sequence[FeedStep], where: str, output: Output) -> None:
    """For people: a line for each feed, with what changes below it."""
    if output is not Output.TABLE:
        return
    for step in steps:
        gone = f" is not {where}" if step.spec is None else ""
        print_plain(f"{_SIGNS[step.act]} {step.feed}{gone}")
        for each in step.differences:
            before, after = (msgspec.json.encode(value).decode() for value in (each.before, each.after))
            print_plain(f"    {each.option}: {before} → {after}")


def _show_results(results: Sequence[Result], output: Output) -> None:
    if output is not Output.TABLE:
        show_value(output, [_row(result) for result in results])
        return
    for result in results:
        if result.step.act is not Act.NONE and not result.code:
            note(f"{result.step.feed}: {result.step.act}: {result.status}" + (result.reason and f": {result.reason}"))
    if all(result.step.act is Act.NONE for result in results):
        note("nothing to change")
    elif any(result.status == WOULD_BE_DONE for result in results):
        note("nothing was changed")


def _row(result: Result) -> dict[str, Any]:
    step = result.step
    return {
        "feed": step.feed,
        "act": step.act.value,
        "in_folder": step.spec is not None,
        "differences": msgspec.to_builtins(step.differences),
        "status": result.status,
        "reason": result.reason,
    }


def _fail_if_refused(results: Sequence[Result]) -> None:
    """Raises CommandError with every feed that was not applied; its code is theirs if they agree."""
    failed = [result for result in results if result.code]
    if failed:
        codes = {result.code for result in failed}
        texts = "\n".join(f"{result.step.feed}: {result.reason}" for result in failed)
        raise CommandError(
            codes.pop() if len(codes) == 1 else ExitCode.REQUEST_FAILED,
            f"{len(failed)} of {len(results)} feeds could not be applied:\n{texts}",
        )
