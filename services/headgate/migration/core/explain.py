"""What a migration waits for: structured holds from the records of the topic, for ``headgate why``.

Whatever keeps a migration from completing is named with its kind, since when, and what to do. The answer follows from
the log and the time, so a process that is no owner can give it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from headgate.migration.core.feed_names import feed_of
from headgate.migration.core.scheduling import STALE_SECONDS
from headgate.migration.core.spec import MigrationSpec, parse_spec
from headgate.migration.core.throttle_reasons import OPERATOR, advice_on
from headgate.migration.core.turns import Named, held_off_by, pending_before
from headgate.records.control import OwnerAnnounced
from headgate.records.migration import MigrationRecorded, MigrationState, MigrationStrategy
from headgate.records.migration_standing import (
    AWAITING_CHANGE,
    AWAITING_LOCK,
    AWAITING_TRANSACTIONS,
    CUTTING_OVER,
    PENDING,
    STARTING_FEED,
)

QUIET_SECONDS: Final = 60.0
"""A stage without anything new for so long is worth a line; most ranges and batches take less."""

SILENT_LEASES: Final = 4.0
"""An owner that has not been heard for so many leases is taken for gone: its clock may differ from the reader's."""

NAMED_MAX: Final = 5
"""Migrations in a detail: more would hide it."""

_WAITS_OF_STAGES: Final = {
    STARTING_FEED: ("the coordinator creates feed {feed}", "a coordinator must run: `headgate serve coordinator`"),
    AWAITING_CHANGE: (
        "a change of the table must come through the topic and feed {feed} into the copy",
        "check that the connector runs and captures the table; `headgate why {feed}`. It fails after ten minutes",
    ),
    AWAITING_TRANSACTIONS: (
        "transactions that have written the table must end, and feed {feed} must stand still",
        "end the transactions that are open at the database, or wait",
    ),
}
"""Stage → what it waits for, and what to do. Stages that only wait are holds from their first moment."""


class HoldKind(StrEnum):
    """What a migration waits for, in the order in which holds are shown."""

    OWNER = "owner"
    APPROVAL = "approval"
    LAUNCH = "launch"
    TURN = "turn"
    THROTTLE = "throttle"
    LOCK = "lock"
    STAGE = "stage"
    COMPLETION = "completion"
    ENDING = "ending"
    FAILURE = "failure"
    CLEAN_UP = "clean-up"


class Hold(msgspec.Struct, frozen=True):
    """One thing that a migration waits for. ``since_ms``: since 1970, by the writer's clock; 0 where nobody knows."""

    stage: HoldKind
    since_ms: int
    detail: str
    advice: str


class MigrationExplanation(msgspec.Struct, frozen=True):
    """A migration, how far it is, and what holds it. ``feed``: the feed into its copy, empty if it has none now."""

    migration: str
    state: MigrationState
    stage: str
    table: str
    database: str
    strategy: MigrationStrategy
    message: str
    feed: str
    reasons: tuple[Hold, ...]


def explain_migration(
    migrations: Mapping[str, MigrationRecorded], name: str, owner: OwnerAnnounced | None, now_ms: int
) -> MigrationExplanation:
    """Why the migration is where it is. Raises KeyError.

    ``owner``: the owner of migrations as last announced, None if there is none or it has resigned.
    """
    record = migrations[name]
    spec = parse_spec(record.spec)
    feed = _feed(name, record, spec)
    return MigrationExplanation(
        migration=name,
        state=record.state,
        stage=record.stage,
        table=record.table,
        database=spec.database,
        strategy=spec.strategy,
        message=record.message,
        feed=feed,
        reasons=(
            *_of_owner(record, owner, now_ms),
            *_before_start(list(migrations.items()), name, record),
            *_while_running(list(migrations.items()), name, record, feed, now_ms),
            *_after(name, record),
        ),
    )


def _feed(name: str, record: MigrationRecorded, spec: MigrationSpec) -> str:
    """The feed into its copy while that is being followed."""
    is_followed = spec.strategy is MigrationStrategy.ONLINE and not record.is_immediate
    return feed_of(name, spec.reverts) if is_followed and record.state is MigrationState.RUNNING else ""


def _of_owner(record: MigrationRecorded, owner: OwnerAnnounced | None, now_ms: int) -> list[Hold]:
    if record.state not in PENDING and not record.throttle_reason:
        return []
    advice = "start one: `headgate serve migration`; it continues what is running"
    if owner is None:
        return [Hold(HoldKind.OWNER, 0, "no process owns the migrations", advice)]
    silent = (now_ms - owner.announced_ms) / 1_000
    if silent < SILENT_LEASES * owner.lease_seconds:
        return []
    detail = f"{owner.owner_id} owns the migrations, and was last heard {silent:.0f} s ago"
    return [Hold(HoldKind.OWNER, owner.announced_ms, detail, f"check that process (/readyz and its log), or {advice}")]


def _before_start(migrations: list[Named], name: str, record: MigrationRecorded) -> list[Hold]:
    match record.state:
        case MigrationState.AWAITING_APPROVAL:
            advice = f"as another user: `headgate migration show {name}`, then `headgate migration approve {name}`"
            detail = f"another user than {record.submitted_by} must approve it"
            return [Hold(HoldKind.APPROVAL, record.added_ms, detail, advice)]
        case MigrationState.QUEUED if record.launch_postponed:
            detail, advice = "it was submitted with --postpone-launch", f"`headgate migration launch {name}`"
            return [Hold(HoldKind.LAUNCH, record.added_ms, detail, advice)]
        case MigrationState.QUEUED if record.is_immediate and record.completion_postponed:
            return [_postponed(name, record.added_ms)]
        case MigrationState.QUEUED | MigrationState.READY:
            return [_turn(migrations, record)]
        case _:
            return []


def _turn(migrations: list[Named], record: MigrationRecorded) -> Hold:
    since_ms = record.ready_ms or record.added_ms
    before = pending_before(migrations, record) if record.is_immediate else []
    if running := held_off_by(migrations, record):
        detail = f"{_named(running)} must end, or have copied, first: they change the same database or table"
        return Hold(HoldKind.TURN, since_ms, detail, f"`headgate why {running[0]}`; or cancel that one")
    if before:
        detail = f"{_named(before)} of its context must complete first (--in-order-completion)"
        return Hold(HoldKind.TURN, since_ms, detail, f"`headgate why {before[0]}`")
    detail = "nothing runs that it would have to wait for"
    return Hold(HoldKind.TURN, since_ms, detail, "wait: the owner starts one after another, within a minute")


def _while_running(migrations: list[Named], name: str, record: MigrationRecorded, feed: str, now_ms: int) -> list[Hold]:
    if record.state is not MigrationState.RUNNING:
        return []
    if record.ending is not None:
        detail = f"all that writes for it must end, then it is {record.ending}: {record.message}"
        advice = "wait: its owner asks again every two seconds; see the owner's log if it stays"
        return [Hold(HoldKind.ENDING, record.stage_ms, detail, advice)]
    if record.throttle_reason or record.throttle_ratio > 0:
        return [_throttle(name, record)]
    if record.is_ready_to_complete and record.stage != CUTTING_OVER:
        return _before_cutover(migrations, name, record, now_ms)
    return _of_stage(record, feed, now_ms)


def _throttle(name: str, record: MigrationRecorded) -> Hold:
    if record.stage == AWAITING_LOCK:
        advice = "end the session that holds the table; it is tried again by itself"
        return Hold(HoldKind.LOCK, record.throttled_ms, record.throttle_reason, advice)
    reason = record.throttle_reason or f"{OPERATOR} ratio {record.throttle_ratio:g}"
    return Hold(HoldKind.THROTTLE, record.throttled_ms, reason, advice_on(reason, name))


def _before_cutover(migrations: list[Named], name: str, record: MigrationRecorded, now_ms: int) -> list[Hold]:
    if record.completion_postponed:
        return [_postponed(name, record.stage_ms)]
    if not record.cutover_forced and record.cutover_after_ms > now_ms:
        seconds = (record.cutover_after_ms - now_ms) / 1_000
        detail = f"{record.message}; it is tried again in {seconds:.0f} s"
        advice = f"end the sessions that hold the table, or `headgate migration force-cutover {name}`"
        return [Hold(HoldKind.LOCK, record.waiting_ms, detail, advice)]
    if before := pending_before(migrations, record):
        detail = f"{_named(before)} of its context must complete first (--in-order-completion)"
        return [Hold(HoldKind.COMPLETION, record.waiting_ms, detail, f"`headgate why {before[0]}`")]
    return []


def _of_stage(record: MigrationRecorded, feed: str, now_ms: int) -> list[Hold]:
    if record.stage in _WAITS_OF_STAGES:
        detail, advice = (text.format(feed=feed) for text in _WAITS_OF_STAGES[record.stage])
        return [Hold(HoldKind.STAGE, record.stage_ms, f"{record.stage}: {detail}", advice)]
    heard_ms = max(record.live_ms, record.stage_ms)
    if record.is_immediate or now_ms - heard_ms < QUIET_SECONDS * 1_000:
        return []
    why_feed = f"`headgate why {feed}`, and " if feed else ""
    detail = f"{record.stage}: nothing new is recorded ({record.rows_copied} rows so far)"
    advice = f"see {why_feed}the owner's log. Without progress it is ended after {STALE_SECONDS:.0f} s"
    return [Hold(HoldKind.STAGE, heard_ms, detail, advice)]


def _after(name: str, record: MigrationRecorded) -> list[Hold]:
    if record.state is MigrationState.FAILED:
        advice = f"remove the cause, then `headgate migration retry {name}`, or submit another change"
        return [Hold(HoldKind.FAILURE, record.ended_ms, record.message, advice)]
    if record.state not in PENDING and record.throttle_reason:
        reason = record.throttle_reason
        return [Hold(HoldKind.CLEAN_UP, record.throttled_ms, reason, advice_on(reason, name))]
    return []


def _postponed(name: str, since_ms: int) -> Hold:
    detail, advice = "it was submitted with --postpone-completion", f"`headgate migration complete {name}`"
    return Hold(HoldKind.COMPLETION, since_ms, detail, advice)


def _named(migrations: list[str]) -> str:
    more = len(migrations) - NAMED_MAX
    return ", ".join(migrations[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def migrations_beside(
    migrations: Mapping[str, MigrationRecorded], feed: str, topics: frozenset[str]
) -> dict[str, MigrationRecorded]:
    """The pending migrations that change a table of the feed's topics, or that the feed belongs to."""
    found = {}
    for name, record in migrations.items():
        spec = parse_spec(record.spec)
        is_its_feed = spec.strategy is MigrationStrategy.ONLINE and feed_of(name, spec.reverts) == feed
        if record.state in PENDING and (is_its_feed or spec.topic in topics):
            found[name] = record
    return found


def keeper_of(migrations: Mapping[str, MigrationRecorded], feed: str) -> str:
    """The running migration that pauses and resumes the feed; empty for a feed of anybody else."""
    for name, record in migrations.items():
        if record.state is MigrationState.RUNNING and _feed(name, record, parse_spec(record.spec)) == feed:
            return name
    return ""
