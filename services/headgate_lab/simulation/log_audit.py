"""Guarantees 3 and 4 of docs/guarantees.md, and the full log's side of 5, as an audit kept beside the log.

It sees every record at the moment it becomes a fact, in that order, which no process of the world can see: what a
guarantee forbids is noticed at the step that does it, at a cost that does not depend on how much there is.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from headgate.coordinator.core.machine import COORDINATOR, State
from headgate.coordinator.core.span_predicates import is_open
from headgate.coordinator.core.spans.deadlines import DRAIN_CODE
from headgate.eventlog.log import Partition
from headgate.records.control import (
    Assignment,
    Epoch,
    FeedProgressed,
    FeedRecorded,
    FeedState,
    OperationKind,
    OperationRequested,
    OutcomeStatus,
    OwnerAnnounced,
    Positions,
    ReplicationState,
    RequestSettled,
    SessionEnded,
    SpanDispatched,
    SpanPlan,
    TaskReported,
    TaskState,
    WantedState,
)
from headgate.records.error_codes import PARTITIONS_GROWN
from headgate.records.keys import (
    AnswerKey,
    FeedKey,
    FeedProgressKey,
    OutcomeKey,
    OwnerKey,
    ProgressKey,
    SessionKey,
    SpanKey,
    TaskKey,
)
from headgate.records.spans import plan_of, unite, wholes
from headgate_lab.memory_log.partition import LogEntry
from headgate_lab.simulation.sink_audit import SinkAudit, Violation, end_of, ts_of

_ENDED_WITHOUT_SINK: Final = re.compile(r"its rows of feed_id (\S+) in ")
"""In the outcome of ``feed delete --abandon-sink`` (coordinator/core/spans/abandoning.py)."""

_TERMINAL: Final = (OutcomeStatus.DONE, OutcomeStatus.FAILED, OutcomeStatus.REFUSED)


class LogAudit:
    """See the module's docstring; ``states`` is, by shard, the replay of everything ever committed."""

    def __init__(
        self,
        shards: int,
        sink: SinkAudit,
        is_session_lost: Callable[[tuple[str, str]], bool],
        marks: Counter[str],
        *,
        on_level: Callable[[int], None],
    ) -> None:
        """``on_level`` gets every higher schema level that an owner announces."""
        self.states: dict[int, State] = {shard: COORDINATOR.new_state(shard) for shard in range(shards)}
        self.marks = marks
        self.records = 0
        self._sink = sink
        self._is_session_lost = is_session_lost
        self._owner_rev: dict[int, int] = {}
        self._given: dict[Epoch, tuple[SpanKey, tuple[str, str]]] = {}
        self._may_claim: set[tuple[SpanKey, str, str, Epoch]] = set()
        self._checkpoints: dict[tuple[str, int], FeedProgressed] = {}
        self._names: set[str] = set()
        self._gone: set[str] = set()
        """Feeds (by id) whose record was deleted."""
        self._without_sink: set[str] = set()
        """Feeds (by id) that were removed without their sink, by their outcome."""
        self._on_level = on_level
        self._owner_reads: dict[int, int] = {}
        self._level = 0

    def committed(self, partition: Partition, entry: LogEntry) -> None:
        """One record has become a fact: fold it, and check what it may break."""
        key, value = entry.key, entry.value
        if isinstance(key, str):
            return
        self.records += 1
        shards = self.states if partition.topic == "announce" else (partition.number,)
        for shard in shards:
            state = self.states[shard]
            match key:
                case OwnerKey() if key.shard == shard and isinstance(value, OwnerAnnounced):
                    self._owner_announced(shard, state, value, entry.offset)
                case SpanKey():
                    self._span_dispatched(shard, state, key, value)
                case SessionKey() if isinstance(value, SessionEnded):
                    self._session_ended(shard, state, key, value)
                case FeedProgressKey():
                    self._feed_progressed(shard, state, key, value)
                case FeedKey():
                    self._feed_recorded(shard, state, key, value)
                case OutcomeKey() if isinstance(value, RequestSettled):
                    self._settled(shard, state, key, value)
                case TaskKey() if isinstance(value, TaskReported):
                    self._mark_word(state, key, value)
                case ProgressKey() | AnswerKey() if (key.agent, key.session) in state.ended and value is not None:
                    self.marks["a word of a dead session"] += 1
                case _:
                    pass
            COORDINATOR.evolve(state, key, value, entry.offset)

    def check_claim(self, key: SpanKey, agent: str, session: str, epoch: Epoch) -> None:
        """An agent claims only under a record in which it is primary."""
        if (key, agent, session, epoch) not in self._may_claim:
            raise Violation(f"1: {agent}/{session} claims {key.text()} under {epoch} without ever being its primary")

    def _check_owner(self, shard: int, what: str, owner_rev: int) -> None:
        newest = self._owner_rev.get(shard, -1)
        if owner_rev != newest:
            raise Violation(f"4: {what} by owner {owner_rev} while {newest} is the owner of shard {shard}")

    def _owner_announced(self, shard: int, state: State, value: OwnerAnnounced, offset: int) -> None:
        rev = offset if value.owner_rev is None else value.owner_rev
        newest = self._owner_rev.get(shard, -1)
        if rev < newest:
            raise Violation(f"4: owner {rev} of shard {shard} announced itself after {newest}")
        if value.owner_rev is None:
            self.marks["a term began"] += 1
            feeds = self.states[shard].feeds
            if any(self._is_dividing(name, feed) for name, feed in feeds.items()):
                self.marks["a term began while a table is divided"] += 1
            if value.schema_version < self._owner_reads.get(shard, 0):
                self.marks["an old owner followed a new one"] += 1
            self._owner_reads[shard] = value.schema_version
        if value.level < state.level:
            raise Violation(f"4: the schema level of shard {shard} went back from {state.level} to {value.level}")
        if value.level > self._level:
            self._level = value.level
            self._on_level(value.level)
        self._owner_rev[shard] = rev

    def _span_dispatched(self, shard: int, state: State, key: SpanKey, value: object) -> None:
        if not isinstance(value, SpanDispatched):
            return
        old = state.spans.get(key)
        known = () if old is None else (old.primary, old.secondary)
        for role in (value.primary, value.secondary):
            if role is None or role in known:
                continue
            self._check_owner(shard, f"role of {key.text()}", value.owner_rev)
            self._role_given(state, key, role)
        if value.primary is not None:
            self._may_claim.add((key, value.primary.agent, value.primary.session, value.primary.epoch))
        if old is not None and value.owner_rev < old.owner_rev:
            raise Violation(f"4: {key.text()} dispatched by {value.owner_rev} after {old.owner_rev}")
        self._mark_step(old, value)

    def _role_given(self, state: State, key: SpanKey, role: Assignment) -> None:
        session = (role.agent, role.session)
        if role.epoch in self._given:
            raise Violation(f"1: epoch {role.epoch} given twice: {self._given[role.epoch]}, {(key, session)}")
        self._given[role.epoch] = (key, session)
        for other in state.index.overlapping(key):
            if is_open(state.spans.get(other)):
                raise Violation(f"1: {key.text()} given to {session} while {other.text()} is not sealed")
        if session in state.ended:
            raise Violation(f"4: {key.text()} given to {session}, which was written dead before")

    def _mark_step(self, old: SpanDispatched | None, new: SpanDispatched) -> None:
        before = "none" if old is None else _phase(old)
        after = _phase(new)
        if before != after:
            self.marks[f"{before} to {after}"] += 1
        if old is not None and new.failures > old.failures and (new.last_error or "").startswith(DRAIN_CODE):
            self.marks[f"passed over in {before}"] += 1
        if old is not None and old.secondary is not None and new.secondary is None and new.primary is not None:
            promoted = new.primary.session == old.secondary.session
            self.marks["secondary promoted" if promoted else "move abandoned"] += 1

    def _mark_word(self, state: State, key: TaskKey, value: TaskReported) -> None:
        session = (key.agent, key.session)
        if session in state.ended:
            self.marks["a word of a dead session"] += 1
            return
        record = state.spans.get(SpanKey(key.feed, key.span))
        roles = () if record is None else (record.primary, record.secondary)
        mine = next((role for role in roles if role is not None and (role.agent, role.session) == session), None)
        if mine is not None and mine.epoch != value.epoch:
            self.marks["a word under an old epoch"] += 1
        if mine is None and value.state in (TaskState.REPLICATING, TaskState.STOPPING):
            self.marks["an undetermined writer"] += 1

    def _session_ended(self, shard: int, state: State, key: SessionKey, value: SessionEnded) -> None:
        session = (key.agent, key.session)
        if session in state.ended:
            return
        self._check_owner(shard, f"death of {session}", value.owner_rev)
        if not self._is_session_lost(session):
            raise Violation(f"4: {session} was written dead while its own lease was running: {value.reason}")
        for span in state.index.roles[session].in_order() if session in state.index.roles else ():
            record, feed = state.spans[span], state.feeds.get(span.feed)
            if feed is not None and all(plan.span != span.span for plan in feed.spans):
                self.marks["a role lost while its table is divided"] += 1
            held = [role for role in (record.primary, record.secondary) if role is not None]
            lost = [role for role in held if self._is_session_lost((role.agent, role.session))]
            both = "both roles" if len(lost) > 1 else "a role"
            self.marks[f"{both} lost in {_phase(record)}"] += 1

    def _feed_progressed(self, shard: int, state: State, key: FeedProgressKey, value: object) -> None:
        feed = state.feeds.get(key.feed)
        if not isinstance(value, FeedProgressed):
            return
        self._check_owner(shard, f"checkpoint of {key.feed}", value.owner_rev)
        if feed is None or feed.feed_id != value.feed_id:
            raise Violation(f"3: checkpoint of {key.feed} for {value.feed_id}, the feed is {feed and feed.feed_id}")
        before = self._checkpoints.get((value.feed_id, value.incarnation))
        for whole in wholes(feed.spans):
            table, start = whole.table, whole.start
            said = value.positions.get(table, {})
            written = {**start, **self._sink.applied_to.get((feed.feed_id, table), {})}
            for partition, offset in said.items():
                if offset > written[partition]:
                    raise Violation(f"3: checkpoint of {key.feed} {table}/{partition} {offset} > {written}")
            for partition, offset in (before.positions.get(table, {}) if before else {}).items():
                if said.get(partition, -1) < offset:
                    raise Violation(f"3: checkpoint of {key.feed} {table}/{partition} back from {offset} to {said}")
            self._check_times(key.feed, value, before, whole, written)
        if before is not None and before.checkpoint_ts is not None and value.checkpoint_ts is None:
            raise Violation(f"3: checkpoint_ts of {key.feed} back from {before.checkpoint_ts} to nothing")
        if before and before.checkpoint_ts and value.checkpoint_ts and value.checkpoint_ts < before.checkpoint_ts:
            raise Violation(f"3: checkpoint_ts of {key.feed} back from {before.checkpoint_ts} to {value.checkpoint_ts}")
        if before is not None and (value.resolved_ts or 0) < (before.resolved_ts or 0):
            raise Violation(f"3: resolved_ts of {key.feed} back from {before.resolved_ts} to {value.resolved_ts}")
        self._checkpoints[value.feed_id, value.incarnation] = value

    def _check_times(
        self, feed: str, value: FeedProgressed, before: FeedProgressed | None, plan: SpanPlan, written: Positions
    ) -> None:
        # What was reported before a table joined stays until that has come as far; it must not move in the meantime.
        stood = (None, None) if before is None else (before.checkpoint_ts, before.resolved_ts)
        if value.checkpoint_ts not in (value.resolved_ts, stood[0]):
            self._check_ts(feed, value.checkpoint_ts, plan.span, written, plan.start)
        if value.resolved_ts != stood[1]:
            self._check_resolved(feed, value.resolved_ts, plan.span, written)

    def _check_ts(self, feed: str, ts: int | None, span: str, written: Positions, start: Positions) -> None:
        if ts is None or all(offset >= end_of(ts) for offset in written.values()):
            return  # complete up to there, though perhaps nothing was to be written: a table may start behind a target
        newest = max((ts_of(end - 1) for p, end in written.items() if end > start[p]), default=None)
        if newest is None or ts > newest:
            raise Violation(f"3: checkpoint_ts {ts} of {feed} beyond {newest}, all that {span} has written")

    def _check_resolved(self, feed: str, ts: int | None, span: str, written: Positions) -> None:
        if ts is not None and any(offset < end_of(ts) for offset in written.values()):
            raise Violation(f"3: resolved_ts {ts} of {feed}, but {span} is written to {written} only")

    def _check_end(self, key: FeedKey, value: FeedRecorded) -> None:
        """Finished: sealed, all changes up to the target applied, none after it."""
        for plan in value.spans:
            if self._sink.is_open(value.feed_id, plan.table):
                raise Violation(f"1: feed {key.feed} is called finished, {plan.table} is open at the sink")
            applied = self._sink.applied_to.get((value.feed_id, plan.table), plan.start)
            written = {partition: applied[partition] for partition in plan.start}
            ends = {partition: max(start, end_of(value.target_ts or 0)) for partition, start in plan.start.items()}
            if written != ends:
                raise Violation(
                    f"6: feed {key.feed} is called finished, {plan.table} is written to {written} of {ends}"
                )
        self._sink.stopped.add(value.feed_id)
        self.marks["feed finished"] += 1

    def _feed_recorded(self, shard: int, state: State, key: FeedKey, value: object) -> None:
        old = state.feeds.get(key.feed)
        if not isinstance(value, FeedRecorded):
            if old is not None:
                self._feed_gone(old.feed_id, is_abandoned=old.abandoned or old.feed_id in self._without_sink)
            return
        self._check_owner(shard, f"feed {key.feed}", value.owner_rev)
        self._check_division(key, old, value)
        if value.state is FeedState.STOPPED and value.wanted is WantedState.STOPPED:
            for plan in value.spans:
                if self._sink.is_open(value.feed_id, plan.table):
                    raise Violation(f"1: feed {key.feed} is called stopped, {plan.table} is open at the sink")
            self._sink.stopped.add(value.feed_id)
            self.marks["feed stopped"] += 1
        elif value.state is FeedState.FINISHED and value.wanted is WantedState.FINISHED:
            self._check_end(key, value)
        elif value.wanted is WantedState.RUNNING:
            self._sink.stopped.discard(value.feed_id)
        if value.abandoned and old is not None and not old.abandoned:
            self.marks[f"abandoned while wanted {old.wanted}"] += 1
        if value.state is FeedState.FAILED and (old is None or old.state is not FeedState.FAILED):
            self.marks["a feed was failed after half an hour"] += 1
        if old is not None and old.feed_id == value.feed_id and len(value.spans) > len(old.spans):
            self.marks["a table joined"] += 1
        self._mark_discovery(old, value)
        if old is None and key.feed in self._names:
            self.marks["feed made again"] += 1
        self._names.add(key.feed)

    def _feed_gone(self, feed_id: str, *, is_abandoned: bool) -> None:
        (self._sink.abandoned if is_abandoned else self._sink.stopped).add(feed_id)
        self._gone.add(feed_id)
        self.marks["abandoned feed gone" if is_abandoned else "feed gone"] += 1

    def _mark_discovery(self, old: FeedRecorded | None, new: FeedRecorded) -> None:
        if not new.spans:
            self.marks["a feed without tables"] += 1
        if old is None or old.feed_id != new.feed_id or old.wanted is not WantedState.RUNNING:
            return
        if {plan.table for plan in new.spans} - {plan.table for plan in old.spans}:
            self.marks["a table joined a feed that ran"] += 1
        if new.error_code == PARTITIONS_GROWN:
            self.marks["a feed was stopped by more partitions"] += 1
        if new.notices and not old.notices:
            self.marks["something was noticed of a source"] += 1

    def _check_division(self, key: FeedKey, old: FeedRecorded | None, new: FeedRecorded) -> None:
        """However tables are divided, every partition is wanted by one span, whose name has it."""
        for table in sorted({plan.table for plan in new.spans}):
            plans = [plan for plan in new.spans if plan.table == table]
            partitions = sorted(partition for plan in plans for partition in plan.start)
            if len(set(partitions)) != len(partitions):
                raise Violation(f"1: {key.feed}: two spans want a partition of {[plan.span for plan in plans]}")
            if any(plan_of(plans, plan.span) != plan for plan in plans):
                raise Violation(f"1: {key.feed}: a span's name is not its plan: {plans}")
            if old is None or (old.feed_id, old.incarnation) != (new.feed_id, new.incarnation):
                continue
            was = [plan for plan in old.spans if plan.table == table]
            if was and unite(was) != unite(plans):
                raise Violation(f"2: {key.feed}: {table} was {was}, is {plans}")
        if old is not None and old.wanted is not new.wanted and self._is_dividing(key.feed, old):
            self.marks[f"wanted {new.wanted} while a table is divided"] += 1

    def _is_dividing(self, name: str, feed: FeedRecorded) -> bool:
        """Whether a span that the feed does not plan any more is not sealed yet."""
        planned = {plan.span for plan in feed.spans}
        return any(
            key.feed == name and key.span not in planned for state in self.states.values() for key in state.spans
        )

    def _settled(self, shard: int, state: State, key: OutcomeKey, value: RequestSettled) -> None:
        self._check_owner(shard, f"outcome {key.request}", value.owner_rev)
        old = state.outcomes.get(key.request)
        placed = state.requests.get(key.request)
        if old is not None and old.status in _TERMINAL and old.status is not value.status:
            raise Violation(f"4: request {key.request} was {old.status}, became {value.status}")
        if placed is not None and (old is None or old.status is not value.status):
            self.marks[f"{placed.request.kind}{' of all' if _is_of_all(placed.request) else ''} {value.status}"] += 1
            if "waits for the upgrade" in value.reason:
                self.marks["something waits for an upgrade"] += 1
        ended = _ENDED_WITHOUT_SINK.search(value.reason)
        if ended is not None:
            self._ended_without_sink(ended[1])

    def _ended_without_sink(self, feed_id: str) -> None:
        """Of a feed that can go at once only its outcome shows that it is abandoned; either may be read first."""
        self._without_sink.add(feed_id)
        if feed_id in self._gone and feed_id in self._sink.stopped:
            self._sink.stopped.remove(feed_id)
            self._feed_gone(feed_id, is_abandoned=True)


def _is_of_all(requested: OperationRequested) -> bool:
    return requested.kind is OperationKind.REBALANCE_FEED and not requested.feed


def _phase(record: SpanDispatched) -> str:
    if record.state is ReplicationState.COMMIT and record.secondary is not None:
        return "handover"
    if record.state is ReplicationState.REMOVING and record.primary is None:
        return "orphaned"
    if record.state is ReplicationState.ABSENT and record.sealed:
        return "sealed"
    return record.state.value
