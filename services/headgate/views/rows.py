"""The current state of the control topics, as rows. The command line and the views are equal because both use it.

Rows are derived from the current records the way the machines do it: a session's word counts only under the epoch of
the role that it holds. Positions are by partition, as text, because they become JSON.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from headgate.config.times import show_ts
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import (
    AgentAnnounced,
    FeedProgressed,
    FeedRecorded,
    MemberAnnounced,
    ReplicationState,
    SpanDispatched,
    SpanPlan,
    TaskReported,
)
from headgate.records.copy_progress import read_copy_progress
from headgate.records.copy_states import CopyState, copy_state
from headgate.records.error_codes import COPYING_CODES
from headgate.records.keys import AgentKey, FeedKey, FeedProgressKey, MemberKey, SpanKey
from headgate.records.name_lists import number_of
from headgate.records.spans import paused_table, table_of

_COPY_STATES: Final = frozenset(state.value for state in CopyState)

HEARD_LEASES_MAX: Final = 2.0
"""A coordinator that is silent for so many of its leases is not a standby: its clock may be off by one."""


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """A span: a table, or a part of one. ``rows``, ``bytes``: since its agent has claimed it.

    ``applied``: offsets of its partitions applied since the feed's start, which moving the table does not change.

    ``paused_by``: the user who has paused the table, or null; ``state`` is paused once it is sealed at the sink.

    While its rows are copied from the source, ``state`` is copying, and copy_paused if its feed is stopped and it is
    sealed. This includes the time between two turns of the copy, in which its changes are applied.

    ``lag_ms``: how old its oldest change is that is not applied, if it does not get on; else as its agent reports it.

    ``rows_copied``, ``rows_to_copy``, ``copied_percent`` and ``copy_seconds_left`` are of a table that is copied as a
    whole now, as its agent reports them. All but the first are estimates. Each is null if it is unknown.
    """

    feed: str
    table: str
    span: str
    topic: str
    partitions: list[int]
    state: str
    task: str | None = None
    agent: str | None = None
    session: str | None = None
    epoch: str | None = None
    moving_to: str | None = None
    positions: dict[str, int] | None = None
    applied: int = 0
    rows: int | None = None
    bytes: int | None = None
    lag_ms: int | None = None
    passed_over: int | None = None
    passed_over_table: str | None = None
    failures: int = 0
    error: str | None = None
    paused_by: str | None = None
    paused_since_ms: int | None = None
    rows_copied: int | None = None
    rows_to_copy: int | None = None
    copied_percent: int | None = None
    copy_seconds_left: int | None = None


class FeedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A feed. ``replicating``: tables that replicate without an error; ``lag_ms``: the worst table's.

    ``copying``: tables whose rows are copied from the source, or will be when the feed is resumed.

    ``held_by``: what holds its checkpoint; ``applied``, ``rows``: the sum over its tables.
    """

    feed: str
    wanted: str
    state: str
    tables: int
    replicating: int
    copying: int
    applied: int
    rows: int
    lag_ms: int | None
    held_by: str | None
    error: str | None
    notices: list[str]


class TsShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A ts (milliseconds since 1970 << 18) and the time it lies in; ``kind``: by evidence, or for people only."""

    kind: str | None = None
    ts: int
    time: str


class FeedShown(FeedRow, frozen=True, kw_only=True):
    """A feed with its specification, to which time it has come, and each of its spans."""

    feed_id: str
    incarnation: int
    error_code: str | None
    checkpoint: TsShown | None
    target_ts: TsShown | None
    spec: Any
    passed_over: str | None
    agents_starting: list[str]
    spans: list[TableRow]


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an agent. ``state``: starting, alive, stopping, or dead for the ``reason`` given."""

    agent: str
    session: str
    state: str
    reason: str | None
    tables: int
    capacity: int
    load_bytes_per_s: float
    heartbeats: int
    announced_ms: int
    version: str
    address: str


class OwnerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A shard, who owns it as last announced, and who else could."""

    shard: int
    owner: str | None
    owner_rev: int | None
    announced_ms: int | None
    version: str | None
    standbys: list[str]


class LagPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One window of a table, all of its parts together; a window without a report is left out.

    ``lag_ms_max``: the worst batch; ``rows`` and ``bytes`` were applied within it.
    """

    from_ms: int
    to_ms: int
    lag_ms_max: int
    lag_ms_last: int
    rows: int
    bytes: int
    reports: int


def feed_rows(snapshot: Snapshot) -> list[FeedRow]:
    """All feeds, sorted by name."""
    return [_feed_row(snapshot, key.feed, record) for key, record in snapshot.each(FeedKey, FeedRecorded)]


def feed_shown(snapshot: Snapshot, feed: str) -> FeedShown | None:
    """All about one feed; None if there is none of that name."""
    record = snapshot.get(FeedKey(feed), FeedRecorded)
    if record is None:
        return None
    tables = table_rows(snapshot, feed)
    target = None if record.target_ts is None else TsShown(ts=record.target_ts, time=show_ts(record.target_ts))
    return FeedShown(
        **msgspec.structs.asdict(_feed_row(snapshot, feed, record)),
        feed_id=record.feed_id,
        incarnation=record.incarnation,
        error_code=record.error_code,
        checkpoint=_checkpoint(snapshot, feed, record),
        target_ts=target,
        spec=msgspec.json.decode(record.spec),
        passed_over=_passed_over(tables),
        agents_starting=sorted({key.agent for key in snapshot.starting()}),
        spans=tables,
    )


def table_rows(snapshot: Snapshot, feed: str) -> list[TableRow]:
    """One row per span of a feed, sorted: the owner's word, and that of who has the role."""
    record = snapshot.get(FeedKey(feed), FeedRecorded)
    if record is None:
        return []
    said = _progress_of(snapshot, feed, record)
    unapplied = {} if said is None else said.unapplied or {}
    now_ms = wall_ms()
    rows = []
    for plan in sorted(record.spans, key=lambda plan: plan.span):
        row, since_ms = _table_row(snapshot, feed, plan), unapplied.get(plan.span)
        row = msgspec.structs.replace(row, applied=_applied(plan, row, {} if said is None else said.positions))
        row = _copying(_paused(row, record), snapshot, record)
        if since_ms is not None:
            row = msgspec.structs.replace(row, lag_ms=max(row.lag_ms or 0, now_ms - since_ms))
        rows.append(row)
    return rows


def _paused(row: TableRow, record: FeedRecorded) -> TableRow:
    """The row, with the user who paused its table. A table without an agent is no longer written."""
    paused = paused_table(record, row.span)
    if paused is None:
        return row
    state = "paused" if row.state == ReplicationState.ABSENT.value else row.state
    return msgspec.structs.replace(row, state=state, paused_by=paused.by, paused_since_ms=paused.since_ms)


def _copying(row: TableRow, snapshot: Snapshot, record: FeedRecorded) -> TableRow:
    """The row, with the state of its copy. A stopped feed's table is shown as it is until it is sealed."""
    found = copy_state(record, row.span, snapshot.dispatched(row.feed, row.span), snapshot.is_requested)
    if found is None or (found is CopyState.PAUSED and row.state != ReplicationState.ABSENT.value):
        return row
    return msgspec.structs.replace(row, state=found.value)


def _applied(plan: SpanPlan, row: TableRow, by_table: dict[str, dict[int, int]]) -> int:
    """Offsets of the span's partitions that are behind it, as far as the feed's checkpoint and its agent report."""
    merged, told = by_table.get(table_of(plan.span), {}), row.positions or {}
    at = {p: max(start, merged.get(p, 0), told.get(str(p), 0)) for p, start in plan.start.items()}
    return sum(at[p] - start for p, start in plan.start.items())


def _progress_of(snapshot: Snapshot, feed: str, record: FeedRecorded) -> FeedProgressed | None:
    said = snapshot.get(FeedProgressKey(feed), FeedProgressed)
    is_of_it = said is not None and (said.feed_id, said.incarnation) == (record.feed_id, record.incarnation)
    return said if is_of_it else None


def agent_rows(snapshot: Snapshot) -> list[AgentRow]:
    """All sessions on the topics, dead ones too, sorted by agent."""
    tables = Counter(
        (record.primary.agent, record.primary.session)
        for _, record in snapshot.each(SpanKey, SpanDispatched)
        if record.primary is not None
    )
    starting = set(snapshot.starting())
    rows = []
    for key, record in snapshot.each(AgentKey, AgentAnnounced):
        ended = snapshot.ended(key.agent, key.session)
        rows.append(
            AgentRow(
                agent=key.agent,
                session=key.session,
                state="dead" if ended else "starting" if key in starting else record.liveness.value,
                reason=ended.reason if ended else None,
                tables=tables[key.agent, key.session],
                capacity=record.capacity_spans,
                load_bytes_per_s=record.load_bytes_per_s,
                heartbeats=record.heartbeat,
                announced_ms=record.announced_ms,
                version=record.version,
                address=record.address,
            )
        )
    return rows


def owner_rows(snapshot: Snapshot, shards: int, now_ms: int) -> list[OwnerRow]:
    """One row per shard. A standby killed lately is left out by its own clock: this only shows."""
    return [_owner_row(snapshot, shard, now_ms) for shard in range(shards)]


def _owner_row(snapshot: Snapshot, shard: int, now_ms: int) -> OwnerRow:
    owner = snapshot.owner(shard)
    could = [
        key.member
        for key, record in snapshot.each(MemberKey, MemberAnnounced)
        if shard in record.shards and now_ms - record.announced_ms <= HEARD_LEASES_MAX * record.lease_seconds * 1000
    ]
    return OwnerRow(
        shard=shard,
        owner=None if owner is None else owner.owner_id,
        owner_rev=None if owner is None else owner.owner_rev,
        announced_ms=None if owner is None else owner.announced_ms,
        version=None if owner is None else owner.version,
        standbys=[name for name in could if owner is None or name != owner.owner_id],
    )


def _feed_row(snapshot: Snapshot, feed: str, record: FeedRecorded) -> FeedRow:
    progress = snapshot.get(FeedProgressKey(feed), FeedProgressed)
    held = progress.held_by if progress is not None and progress.feed_id == record.feed_id else None
    tables = table_rows(snapshot, feed)
    names = {plan.table for plan in record.spans}
    held_back = {row.table for row in tables if row.error or row.state != ReplicationState.REPLICATING.value}
    return FeedRow(
        feed=feed,
        wanted=record.wanted.value,
        state=record.state.value,
        tables=len(names),
        replicating=len(names - held_back),
        copying=len({row.table for row in tables if row.state in _COPY_STATES}),
        applied=sum(row.applied for row in tables),
        rows=sum(row.rows or 0 for row in tables),
        lag_ms=max((row.lag_ms for row in tables if row.lag_ms is not None), default=None),
        held_by=f"{held.span} ({held.stage})" if held else None,
        error=record.error,
        notices=list(record.notices),
    )


def _checkpoint(snapshot: Snapshot, feed: str, record: FeedRecorded) -> TsShown | None:
    """The time that the feed has come to: ``resolved`` by evidence in the log, ``seen`` for people; None if unknown."""
    progress = _progress_of(snapshot, feed, record)
    if progress is None:
        return None
    ts = progress.checkpoint_ts if progress.resolved_ts is None else progress.resolved_ts
    if ts is None:
        return None
    return TsShown(kind="seen" if progress.resolved_ts is None else "resolved", ts=ts, time=show_ts(ts))


def _passed_over(tables: list[TableRow]) -> str | None:
    """Changes in a topic of several tables that are of none which the feed names; every table's agent meets all."""
    most = max(tables, key=lambda row: row.passed_over or 0, default=None)
    if most is None or not most.passed_over:
        return None
    return (
        f"{number_of(most.passed_over, 'change')} of tables not in source.tables, the last of {most.passed_over_table}"
    )


def _table_row(snapshot: Snapshot, feed: str, plan: SpanPlan) -> TableRow:
    partitions = sorted(plan.start)
    names: dict[str, Any] = {"feed": feed, "table": plan.table, "span": plan.span, "topic": plan.topic}
    dispatched = snapshot.dispatched(feed, plan.span)
    if dispatched is None:
        return TableRow(**names, partitions=partitions, state=ReplicationState.ABSENT.value)
    said: dict[str, Any] = {
        "state": dispatched.state.value,
        "failures": dispatched.failures,
        "error": dispatched.last_error,
        "moving_to": dispatched.secondary.agent if dispatched.secondary else None,
    }
    role = dispatched.primary
    if role is not None:
        said |= {"agent": role.agent, "session": role.session, "epoch": str(role.epoch)}
        task = snapshot.reported(feed, plan.span, role)
        if task is not None:
            error = said["error"] if task.error is None else f"{task.error_code}: {task.error}"
            said |= {"task": task.state.value, "positions": _text_keys(task.positions), "error": error}
            said |= _copied(task)
        progress = snapshot.progressed(feed, plan.span, role)
        if progress is not None:
            said |= {
                "positions": _text_keys(progress.positions),
                "rows": progress.rows,
                "bytes": progress.bytes,
                "lag_ms": progress.lag_ms,
                "passed_over": progress.passed_over,
                "passed_over_table": progress.passed_over_table,
            }
    return TableRow(**names, partitions=partitions, **said)


def _copied(task: TaskReported) -> dict[str, int | None]:
    """How far the table is copied as a whole; empty if it is not copied."""
    progress = read_copy_progress(task.error or "") if task.error_code in COPYING_CODES else None
    if progress is None:
        return {}
    return {
        "rows_copied": progress.rows,
        "rows_to_copy": progress.rows_about,
        "copied_percent": progress.percent,
        "copy_seconds_left": progress.seconds_left,
    }


def _text_keys(positions: dict[int, int]) -> dict[str, int]:
    return {str(partition): position for partition, position in sorted(positions.items())}
