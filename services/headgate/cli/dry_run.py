"""``--dry-run``: run all checks of a new feed from this machine, and write nothing.

It runs the owners' own code against brokers and sink, so this machine needs the password file too, and applies the
owners' rules to the current state of the control topics. Exit codes are those of the command without ``--dry-run``.
"""

from typing import Any, Final

from headgate.app.exit_codes import CommandError, ExitCode, exit_code_of_refusal
from headgate.cli.output import Output, note, show_rows, show_value
from headgate.cli.rendering import print_plain
from headgate.cli.shard_state import replayed
from headgate.cli.snapshots import read_snapshot
from headgate.cli.waiting import waiting
from headgate.config.feed import FeedSpec
from headgate.coordinator.core.effects import FeedRefused, FeedResolved, ResolveFeed
from headgate.coordinator.core.feeds.dry_run import would_refuse_create, would_refuse_name, would_refuse_update
from headgate.coordinator.shell.effect_runner import FeedWork
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.sharding import shard_of
from headgate.generation.changelog.shell.feeds import FeedChangeLogs
from headgate.records.control import FeedRecorded, OperationKind, SpanPlan
from headgate.records.keys import FeedKey
from headgate.records.name_lists import number_of, shown_names
from headgate.records.stored_names import plans_today
from headgate.runtime.machine import EffectFailed

__all__ = ["rehearse", "rehearsed"]


def rehearse(log: KafkaLog, own_prefix: str, kind: OperationKind, spec: FeedSpec, output: Output) -> None:
    """Print the outcome that a create_feed or update_feed would have. Raises CommandError if it would be refused."""
    result = rehearsed(log, own_prefix, kind, spec)
    _show(kind, spec.feed, result, output)


def rehearsed(log: KafkaLog, own_prefix: str, kind: OperationKind, spec: FeedSpec) -> FeedResolved:
    """The tables and warnings of a create_feed or update_feed. Raises CommandError where it would be refused."""
    name = spec.feed
    work = FeedWork(log.connection, cluster_id=log.cluster_id, own_prefix=own_prefix, change_logs=FeedChangeLogs(log))
    snapshot = read_snapshot(log)
    state = replayed(snapshot, shard_of(name, log.shards))
    taken = would_refuse_name(state, name) if kind is OperationKind.CREATE_FEED else None
    if taken is not None:  # before the sink is asked, which would only report that the feed's tables are taken
        raise _refused(kind, name, taken)
    feed = snapshot.get(FeedKey(name), FeedRecorded) if kind is OperationKind.UPDATE_FEED else None
    with waiting(f"the checks of feed {name}"):
        known, before = ((), "") if feed is None else (plans_today(feed), feed.spec)
        result = work.resolve(ResolveFeed("", name, spec.to_json(), known, before))
    if isinstance(result, EffectFailed):
        raise CommandError(ExitCode.REQUEST_TIMED_OUT, f"{_asked(kind, name)} would have to wait: {result.reason}")
    if isinstance(result, FeedRefused):
        raise _refused(kind, name, result.reason)
    judge = would_refuse_create if kind is OperationKind.CREATE_FEED else would_refuse_update
    reason = judge(state, name, result)
    if reason is not None:
        raise _refused(kind, name, reason)
    return result


_FOR_PEOPLE: Final = {"missing": "will be created"}


def _refused(kind: OperationKind, name: str, reason: str) -> CommandError:
    return CommandError(exit_code_of_refusal(reason), f"{_asked(kind, name)} would be refused: {reason}")


def _asked(kind: OperationKind, name: str) -> str:
    return f"the request to {'create' if kind is OperationKind.CREATE_FEED else 'update'} feed {name}"


def _show(kind: OperationKind, name: str, result: FeedResolved, output: Output) -> None:
    rows = [_row(plan, "missing" if plan.table in result.missing else "exists") for plan in result.spans]
    statements = result.statements
    if output is Output.TABLE:
        shown = [row | {"at_sink": _FOR_PEOPLE.get(row["at_sink"], row["at_sink"])} for row in rows]
        show_rows(("table", "at_sink", "topic", "partitions", "start"), shown, output)
        if statements:
            print_plain(f"\n{statements}")
        note(f"{_asked(kind, name)} would be accepted with {number_of(len(rows), 'table')}; nothing was written")
        if result.missing:
            how = " by the statements above" if statements else ""
            note(f"{name}: Headgate would create {len(result.missing)} of them{how}")
        if result.copies:
            note(f"{name}: Headgate would copy the rows of {shown_names(sorted(result.copies))}")
        if result.note:
            note(f"{name}: {result.note}")
        for warning in result.warnings:
            note(f"{name}: {warning}")
    else:
        show_value(
            output,
            {
                "feed": name,
                "operation": kind.value,
                "status": "would be done",
                "spans": rows,
                "statements": statements,
                "copies": sorted(result.copies),
                "note": result.note,
                "warnings": list(result.warnings),
            },
        )


def _row(plan: SpanPlan, at_sink: str) -> dict[str, Any]:
    start = {str(partition): offset for partition, offset in sorted(plan.start.items())}
    return {
        "table": plan.table,
        "at_sink": at_sink,
        "span": plan.span,
        "topic": plan.topic,
        "partitions": len(start),
        "start": start,
    }
