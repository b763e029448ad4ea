"""What a migration waits for: structured holds from the records of the topic, for ``headgate why``.

Each cause that keeps a migration from completing is named with its kind, since when it holds, and what to do. The
answer follows from the log and the time, so a process that is not an owner can give it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from headgate.migration.core.feed_names import feed_of
from headgate.migration.core.scheduling import STALE_SECONDS
from headgate.migration.core.spec import MigrationSpec, parse_spec
from headgate.migration.core.throttle_advice import advice_on
from headgate.migration.core.turns import Named, changing_before, held_off_by, pending_before
from headgate.records.control import OwnerAnnounced
from headgate.records.identifiers import split_table
from headgate.records.migration import MigrationRecorded, MigrationState, MigrationStrategy
from headgate.records.migration_standing import (
    AWAITING_CHANGE,
    AWAITING_LOCK,
    AWAITING_TRANSACTIONS,
    PENDING,
    STARTING_FEED,
    MigrationWait,
    seconds_to_retry,
    throttled_by,
    wait_of,
)
from headgate.records.name_lists import number_of, shown_names

QUIET_SECONDS: Final = 60.0
"""A stage without news for this long is worth a line; most ranges and batches take less."""

SILENT_LEASES: Final = 4.0
"""An owner that has not been heard for so many leases is presumed gone: its clock may differ from the reader's."""

_WAITS_OF_STAGES: Final = {
    STARTING_FEED: ("the coordinator creates feed {feed}", "a coordinator must run: `headgate serve coordinator`"),
    AWAITING_CHANGE: (
        "a change of the table must come through the topic and feed {feed} into the copy",
        "check that the connector runs and captures the table; `headgate why {feed}`. It fails after ten minutes",
    ),
    AWAITING_TRANSACTIONS: (
        "transactions that have written the table must end, and feed {feed} must be paused",
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
    """One thing that a migration waits for. ``since_ms``: since 1970, by the writer's clock; 0 if unknown."""

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
            *_of_failure(name, record),
            *_of_wait(list(migrations.items()), name, record, now_ms),
            *_of_stage(record, feed, now_ms),
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


_HOLDS: Final[Mapping[MigrationWait, tuple[HoldKind, str, str]]] = {
    MigrationWait.APPROVAL: (
        HoldKind.APPROVAL,
        "another user than {record.submitted_by} must approve it",
        "as another user: `headgate migration show {name}`, then `headgate migration approve {name}`",
    ),
    MigrationWait.LAUNCH: (
        HoldKind.LAUNCH,
        "it was submitted with --postpone-launch",
        "`headgate migration launch {name}`",
    ),
    MigrationWait.COMPLETION: (
        HoldKind.COMPLETION,
        "it was submitted with --postpone-completion",
        "`headgate migration complete {name}`",
    ),
    MigrationWait.ENDING: (
        HoldKind.ENDING,
        "all that writes for it must end, then it is {record.ending}: {record.message}",
        "wait: its owner asks again every two seconds; see the owner's log if it stays",
    ),
    MigrationWait.RETRY: (
        HoldKind.LOCK,
        "{record.message}; it is retried in {retry_seconds:.0f} s",
        "end the sessions that hold the table, or `headgate migration force-cutover {name}`",
    ),
}
"""Wait → its kind, what is the case, what to do, for waits that the migration's own record describes completely."""


def _of_wait(migrations: list[Named], name: str, record: MigrationRecorded, now_ms: int) -> list[Hold]:
    match wait := wait_of(record, now_ms):
        case MigrationWait.TURN:
            found = [_turn(migrations, record)]
        case MigrationWait.CUTOVER:
            found = _in_order(migrations, record)
        case MigrationWait.THROTTLE | MigrationWait.CLEAN_UP:
            found = [_throttle(name, record, HoldKind(wait.value))]
        case None:
            found = []
        case _:
            found = [_by_itself(wait, name, record, now_ms)]
    return found


def _by_itself(wait: MigrationWait, name: str, record: MigrationRecorded, now_ms: int) -> Hold:
    kind, detail, advice = _HOLDS[wait]
    since_ms = record.stage_ms if record.state is MigrationState.RUNNING else record.added_ms
    said = detail.format(record=record, retry_seconds=seconds_to_retry(record, now_ms))
    return Hold(kind, record.waiting_ms if wait is MigrationWait.RETRY else since_ms, said, advice.format(name=name))


def _turn(migrations: list[Named], record: MigrationRecorded) -> Hold:
    since_ms = record.ready_ms or record.added_ms
    before = pending_before(migrations, record) if record.is_immediate else []
    if running := held_off_by(migrations, record):
        detail = f"{shown_names(running)} must end, or have copied, first: they change the same database or table"
        return Hold(HoldKind.TURN, since_ms, detail, f"`headgate why {running[0]}`; or cancel that one")
    if before:
        return _behind(before, HoldKind.TURN, since_ms)
    is_about_state = record.has_nothing_to_do or parse_spec(record.spec).declarative
    if earlier := changing_before(migrations, record) if is_about_state else []:
        detail = f"{shown_names(earlier)} of an earlier submission must end first: they change the same table"
        return Hold(HoldKind.TURN, since_ms, detail, f"`headgate why {earlier[0]}`; or cancel that one")
    detail = "nothing runs that it would have to wait for"
    return Hold(HoldKind.TURN, since_ms, detail, "wait: the owner starts one after another, within a minute")


def _in_order(migrations: list[Named], record: MigrationRecorded) -> list[Hold]:
    before = pending_before(migrations, record)
    return [_behind(before, HoldKind.COMPLETION, record.waiting_ms)] if before else []


def _behind(before: list[str], kind: HoldKind, since_ms: int) -> Hold:
    detail = f"{shown_names(before)} of its context must complete first (--in-order-completion)"
    return Hold(kind, since_ms, detail, f"`headgate why {before[0]}`")


def _throttle(name: str, record: MigrationRecorded, kind: HoldKind) -> Hold:
    reason = throttled_by(record)
    if record.stage == AWAITING_LOCK:
        advice = "end the session that holds the table; it is retried by itself"
        return Hold(HoldKind.LOCK, record.throttled_ms, reason, advice)
    return Hold(kind, record.throttled_ms, reason, advice_on(reason, name))


def _of_stage(record: MigrationRecorded, feed: str, now_ms: int) -> list[Hold]:
    """What a stage waits for, or that it has been quiet for too long, unless the migration waits for something else."""
    if record.state is not MigrationState.RUNNING or wait_of(record, now_ms) is not None:
        return []
    if record.stage in _WAITS_OF_STAGES:
        detail, advice = (text.format(feed=feed) for text in _WAITS_OF_STAGES[record.stage])
        return [Hold(HoldKind.STAGE, record.stage_ms, f"{record.stage}: {detail}", advice)]
    heard_ms = max(record.live_ms, record.stage_ms)
    if record.is_immediate or now_ms - heard_ms < QUIET_SECONDS * 1_000:
        return []
    why_feed = f"`headgate why {feed}`, and " if feed else ""
    detail = f"{record.stage}: nothing new is recorded ({number_of(record.rows_copied, 'row')} so far)"
    advice = f"see {why_feed}the owner's log. Without progress it is ended after {STALE_SECONDS:.0f} s"
    return [Hold(HoldKind.STAGE, heard_ms, detail, advice)]


def _of_failure(name: str, record: MigrationRecorded) -> list[Hold]:
    if record.state is not MigrationState.FAILED:
        return []
    advice = f"remove the cause, then `headgate migration retry {name}`, or submit another change"
    return [Hold(HoldKind.FAILURE, record.ended_ms, record.message, advice)]


class Beside(StrEnum):
    """How a feed is related to a pending migration's table."""

    COPY = "copy"
    """The feed is the migration's own: it brings its copy up to date."""
    SINK = "sink"
    """The feed writes the table."""
    MAYBE_SINK = "maybe-sink"
    """The feed writes a table of that name at an address, and the migration names a connection."""
    SOURCE = "source"
    """The feed reads the table's changes."""


class FeedTables(msgspec.Struct, frozen=True):
    """The parts of a feed that a migration may share: the topics that it reads, and the tables that it writes.

    ``connection`` is the sink's name in the owners' files, None for a sink that is given by its address.
    """

    feed: str
    topics: frozenset[str]
    connection: str | None
    tables: frozenset[str]


def migrations_beside(
    migrations: Mapping[str, MigrationRecorded], feed: FeedTables
) -> dict[str, tuple[Beside, MigrationRecorded]]:
    """The pending migrations that the feed belongs to, or whose table it writes or reads the changes of."""
    found = {}
    for name, record in migrations.items():
        beside = _beside(name, record, feed) if record.state in PENDING else None
        if beside is not None:
            found[name] = (beside, record)
    return found


def _beside(name: str, record: MigrationRecorded, feed: FeedTables) -> Beside | None:
    spec = parse_spec(record.spec)
    if spec.strategy is MigrationStrategy.ONLINE and feed_of(name, spec.reverts) == feed.feed:
        return Beside.COPY
    if feed.connection in (None, spec.database) and any(_may_be_same(table, record.table) for table in feed.tables):
        return Beside.MAYBE_SINK if feed.connection is None else Beside.SINK
    return Beside.SOURCE if spec.topic in feed.topics else None


def _may_be_same(one: str, other: str) -> bool:
    """Whether two tables of one database have the same name; one without a schema may be in any."""
    (space, table), (other_space, other_table) = split_table(one), split_table(other)
    return table == other_table and (space == other_space or None in (space, other_space))


def keeper_of(migrations: Mapping[str, MigrationRecorded], feed: str) -> str:
    """The running migration that pauses and resumes the feed; empty for any other feed."""
    for name, record in migrations.items():
        if _feed(name, record, parse_spec(record.spec)) == feed:
            return name
    return ""
