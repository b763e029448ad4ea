"""Reads transaction ends beside the lanes, and computes the time up to which each span is complete.

One thread and, per transaction topic, one reader for all spans of the agent. An END is passed to the spans whose
changes it counts; for the others it shows that they wait for nothing new. What is applied is known from the spans'
progress, and, for a span that has just been opened, from the log in front of the sink's position: evidence is kept
nowhere else.

A span that is far behind is not a member: its waiting ENDs would fill the memory, and its claim would be old anyway. It
joins when it has come close, or is cut at the feed's target, from the time of its last applied change on.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from headgate.agent.core.executor import SpanId
from headgate.agent.core.span.inputs import Completed
from headgate.agent.core.span.states import Span
from headgate.eventlog.connection import KafkaConnection
from headgate.formats.change import ChangeError
from headgate.formats.transactions import End, TableEvidence
from headgate.records.control import TaskState
from headgate.records.ts import ts_of_ms
from headgate.replication.feed_parts import feed_of
from headgate.replication.span_table import SpanTable
from headgate.sources.offsets import SourceError
from headgate.sources.topic_ids import TopicReplacedError, topic_id_of, topic_ids
from headgate.sources.transactions import EndReader, collection_of, first_end, look_back, rests_at
from headgate.supervision.threads import BackgroundThread

_log = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.2
"""How long a read waits for ENDs: a claim is older by that much."""

IDLE_SECONDS: Final = 0.5
"""Between two looks for spans, while no feed has a transaction topic."""

RETRY_SECONDS: Final = 5.0
"""After a failure: ENDs are evidence only, and the tables continue without them."""

CLOSE_MS: Final = 30_000
"""A span that lags less joins; ENDs of that time and of the margin before it are what it waits for at most."""

FAR_MS: Final = 2 * CLOSE_MS
"""A span that lags more leaves: more than it takes to join, so that a span does not leave and join in turn."""

WAITING_MAX: Final = 200_000
"""ENDs that a span may wait for (about 30 MB): a table that is stuck while it is written leaves, and joins again."""


WHOLE_SECONDS: Final = 10.0
"""An END has been read that long ago: what its connector sent before is in the log, if the log can be asked at all."""

TOPIC_SECONDS: Final = 10.0
"""How often a transaction topic's id is checked, as often as those of the tables' topics (topic_watch.py)."""

LOOK_SECONDS: Final = 1.0
"""How often a table that may be in the middle of its initial snapshot is looked at."""


class TransactionEndReader:
    """A thread that serves every transaction topic of an executor's spans."""

    def __init__(self, table: SpanTable, source: KafkaConnection, is_idle: Callable[[Span], bool]) -> None:
        """``is_idle``: whether a span's lane finds nothing to read, so that it lags behind nothing."""
        self._table = table
        self._source = source
        self._is_idle = is_idle
        self._topics: dict[str, TransactionTopic] = {}
        self._stop = threading.Event()
        self._thread = BackgroundThread(self._run, name="headgate-transactions")
        self._thread.start()

    def close(self) -> None:
        """End within a turn. Idempotent."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
            except (SourceError, ChangeError) as error:
                _log.warning("no resolved ts for now, the ends of transactions cannot be read: %s", error)
                self._start_anew()
            except Exception:  # noqa: BLE001 - an internal error must not end the thread that all spans need
                _log.exception("the ends of transactions")
                self._start_anew()
        for topic in self._topics.values():
            topic.close()

    def _start_anew(self) -> None:
        while self._topics:
            self._topics.popitem()[1].close()
        self._stop.wait(RETRY_SECONDS)

    def _turn(self) -> None:
        wanted: dict[str, list[Span]] = {}
        for span in self._table.all():
            if span.claimed and span.state is TaskState.REPLICATING:
                topic = feed_of(span.task.spec).source.transaction_topic
                if topic is not None:
                    wanted.setdefault(topic, []).append(span)
        for name in sorted(self._topics.keys() - wanted.keys()):
            self._topics.pop(name).close()
        for name, spans in sorted(wanted.items()):
            if name not in self._topics:
                self._topics[name] = TransactionTopic(self._table, self._source, name, self._is_idle)
            self._topics[name].turn(spans)
        if not wanted:
            self._stop.wait(IDLE_SECONDS)


class _Member:
    """A span, its evidence, the first END it has not received, and the topic's end when it joined."""

    def __init__(self, span: Span, evidence: TableEvidence, start: int, head: int, *, is_whole: bool) -> None:
        self.span = span
        self.evidence = evidence
        self.next = start
        self.ready_at = max(start, head)
        self.is_whole = is_whole
        """Its initial snapshot is behind it: no END counts the rows of one."""
        self.look_at = 0.0

    def is_of(self, span: Span | None) -> bool:
        """Whether its evidence still is that of ``span``: it has not been opened again."""
        return span is not None and _opening(span) == _opening(self.span)

    def see(self, span: Span) -> None:
        """The span as it is now."""
        if span.progress.tail is not None and span.progress.tail != self.span.progress.tail:
            self.evidence.reached(span.progress.tail)
        self.span = span


class TransactionTopic:
    """One transaction topic and the spans it reports on. Times are ms, and never go back (formats/transactions.py)."""

    def __init__(self, table: SpanTable, source: KafkaConnection, topic: str, is_idle: Callable[[Span], bool]) -> None:
        self._table = table
        self._source = source
        self._is_idle = is_idle
        self._topic = topic
        self._topic_id = topic_id_of(source, topic)
        """ENDs of another topic of this name would be missing some, and evidence without them is wrong."""
        self._checked_at = time.monotonic()
        self._reader: EndReader | None = None
        self._members: dict[SpanId, _Member] = {}
        self._head = 0
        """The highest offset read + 1. A newcomer makes the reader go back; it alone receives what is read again."""
        self._head_ms: int | None = None
        self._told_at: float | None = None
        """When the first END was read."""
        self._reading_ms = 0

    def close(self) -> None:
        """Let go."""
        if self._reader is not None:
            self._reader.close()

    def turn(self, spans: Sequence[Span]) -> None:
        """Read on, and report to which time each of ``spans`` is complete. Raises SourceError, ChangeError."""
        self._check_topic()
        self._part(spans)
        for span in spans:
            if span.id not in self._members and (span.progress.cut or self._lag_ms(span) < CLOSE_MS):
                self._join(span)
        if self._reader is None:
            return
        self._look_for_whole()
        ends = self._reader.read(TURN_SECONDS)
        self._refresh()
        self._tell(ends, self._reader.next)
        self._claim(self._reader.next)

    def _check_topic(self) -> None:
        """Raises TopicReplacedError. The topic is then read again by a new TransactionTopic."""
        now = time.monotonic()
        if now - self._checked_at < TOPIC_SECONDS:
            return
        self._checked_at = now
        seen = topic_ids(self._source, (self._topic,)).get(self._topic)  # None, too, while a broker does not know it
        if None not in (seen, self._topic_id) and seen != self._topic_id:
            raise TopicReplacedError(
                f"source.transaction_topic {self._topic} was deleted and re-created: its id was {self._topic_id} and "
                f"is {seen} now. It is read again, no action is needed"
            )

    def _lag_ms(self, span: Span) -> int:
        return 0 if self._is_idle(span) else span.batch_lag_ms

    def _part(self, spans: Sequence[Span]) -> None:
        present = {span.id for span in spans}
        self._refresh()
        for name, member in list(self._members.items()):
            is_too_far = self._lag_ms(member.span) > FAR_MS or len(member.evidence) > WAITING_MAX
            if name not in present or (is_too_far and not member.span.progress.cut):
                del self._members[name]

    def _refresh(self) -> None:
        """What has become of the members since."""
        for name, member in list(self._members.items()):
            span = self._table.get(name)
            if span is not None and member.is_of(span):
                member.see(span)
            else:
                del self._members[name]

    def _join(self, span: Span) -> None:
        standing, appended_ms = look_back(self._source, span.task.plan.topic, span.positions[0])
        start = first_end(self._source, self._topic, appended_ms)
        if self._reader is None:
            self._reader = EndReader(self._source, self._topic, start)
            self._head = start
        elif start < self._reader.next:
            self._reader.go_to(start)
            self._reading_ms = 0
        now_is = self._table.get(span.id)
        if now_is is not None and _opening(now_is) == _opening(span):
            evidence = TableEvidence(now_is.progress.tail or standing.tail)
            self._members[span.id] = _Member(now_is, evidence, start, self._head, is_whole=standing.is_whole)

    def _look_for_whole(self) -> None:
        """Tables that may be in the middle of their initial snapshot: by its last row, a change, or their log's end."""
        now = time.monotonic()
        for _, member in sorted(self._members.items()):
            member.is_whole |= member.span.progress.tail is not None
            if member.is_whole or member.look_at > now:
                continue
            member.look_at = now + LOOK_SECONDS
            topic, position = member.span.task.plan.topic, member.span.positions[0]
            standing, _ = look_back(self._source, topic, position)
            is_settled = self._told_at is not None and now - self._told_at >= WHOLE_SECONDS
            member.is_whole = standing.is_whole or (is_settled and rests_at(self._source, topic, position))

    def _tell(self, ends: Sequence[tuple[int, End]], reached: int) -> None:
        told: dict[str, list[_Member]] = {}
        for _, member in sorted(self._members.items()):
            name = collection_of(self._topic, member.span.task.plan.topic)
            if name is not None:
                told.setdefault(name, []).append(member)
        if ends and self._told_at is None:
            self._told_at = time.monotonic()
        for offset, end in ends:
            self._reading_ms = max(self._reading_ms, end.ts_ms)
            if offset >= self._head:
                self._reading_ms = self._head_ms = max(self._reading_ms, self._head_ms or 0)
            for name, count in end.counts.items():
                for member in told.get(name, ()):
                    if offset >= member.next and count:
                        member.evidence.ended(end.transaction, self._reading_ms, count)
        self._head = max(self._head, reached)
        for member in self._members.values():
            member.next = max(member.next, reached)

    def _claim(self, reached: int) -> None:
        for name, member in sorted(self._members.items()):
            if reached < member.ready_at or not member.is_whole:
                continue
            waits_for_ms = member.evidence.waits_for_ms
            complete_ms = self._head_ms if waits_for_ms is None else waits_for_ms
            if complete_ms is not None:
                # Another transaction may have the same millisecond.
                ts = ts_of_ms(complete_ms) - 1
                self._table.apply(name, Completed(member.span.progress.opening, ts), member.span.life)


def _opening(span: Span) -> tuple[int, int]:
    return span.life, span.progress.opening
