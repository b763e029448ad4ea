"""The spans of an executor: their states, and the only method that changes them.

``SpanTable.apply`` is the only entry: under one short lock it lets the machine decide (agent/core/span), keeps the
state that it returns, and has the effects performed, which only queue work for other threads. No caller waits for
anything else behind that lock. A state that was read stays as it was, because states are values.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from headgate.agent.core.executor import SpanId, SpanTask
from headgate.agent.core.span.failures import worst
from headgate.agent.core.span.inputs import Add, Close, Effect, SpanInput
from headgate.agent.core.span.machine import decide
from headgate.agent.core.span.progress import quarantined_lately
from headgate.agent.core.span.states import Span
from headgate.config.feed import FeedSpec
from headgate.records.identifiers import normal_table
from headgate.replication.feed_parts import FEEDS_MAX, feed_of
from headgate.replication.plan import SpanWork
from headgate.sinks.contract import Claim, FeedIdentity
from headgate.sources.topics import source_tables

OPTIONS_MAX: Final = 4096
"""Tables whose options are kept. Each batch needs them for each of its tables, and matching takes some 10 µs."""

FAILURES_BORNE: Final = 5
"""Failures in a row (about 8 s) after which a change that only a rule between rows refuses counts as bad. Fewer than
those after which a span is given up, so that a table that may set it aside does so before."""


class SpanTable:
    """What all threads of an executor share. ``changed`` is its lock, and the signal of every change.

    ``performers``: what performs an effect, by its type, with the lock held; ``killed``: nothing new is started.
    """

    def __init__(self, cluster_id: str) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.performers: dict[type[Effect], Callable[[Span, Any], None]] = {}
        self.killed = False
        self._cluster_id = cluster_id
        self._spans: dict[SpanId, Span] = {}
        self._order: list[SpanId] | None = []
        """The keys in their order, None if they have changed since."""
        self._lives = itertools.count(1)

    def get(self, span: SpanId) -> Span | None:
        """A span as it is now."""
        return self._spans.get(span)

    def all(self) -> list[Span]:
        """Every span as it is now, sorted."""
        with self.changed:
            if self._order is None:
                self._order = sorted(self._spans)
            return [self._spans[span] for span in self._order]

    def members(self, spans: Iterable[SpanId]) -> list[Span]:
        """Those of ``spans`` that there are, as they are now."""
        with self.changed:
            return [found for span in spans if (found := self._spans.get(span)) is not None]

    def apply(self, span: SpanId, given: SpanInput, life: int | None = None) -> Span | None:
        """The span after ``given``. An answer to another ``life`` of it changes nothing.

        Raises UnknownTransitionError, LowerEpochError.
        """
        with self.changed:
            before = self._spans.get(span)
            if life is not None and (before is None or before.life != life):
                return before
            step = decide(before, given, time.monotonic())
            if (step.span is None) != (before is None):
                self._order = None
            if step.span is None:
                self._spans.pop(span, None)
            else:
                self._spans[span] = step.span
            about = step.span or before
            if about is not None:
                for effect in step.effects:
                    self.performers[type(effect)](about, effect)
            if step.span is not before:
                self.changed.notify_all()
            return step.span

    def add(self, task: SpanTask, *, primary: bool) -> Span | None:
        """Run it. Raises LowerEpochError."""
        return self.apply(task.id, Add(task, primary, next(self._lives)))

    def close(self, task: SpanTask) -> Span | None:
        """Claim and seal it, without running it. Raises LowerEpochError."""
        return self.apply(task.id, Close(task, next(self._lives)))

    def claim_of(self, span: Span) -> Claim:
        """The assignment as the sink sees it."""
        task = span.task
        return Claim(
            identity=FeedIdentity(cluster_id=self._cluster_id, feed_id=task.feed_id, feed=task.id.feed),
            table=task.plan.table,
            topic=task.plan.topic,
            epoch=task.epoch,
            incarnation=task.incarnation,
            start=task.plan.start,
            span=task.plan.span,
        )

    def work_of(self, span: Span, *, settle: bool = False) -> SpanWork:
        """What a batch is to do with it; with ``settle`` the sink's positions follow what has been read."""
        topic, table = span.task.plan.topic, source_table_of(span.task)
        feed = feed_of(span.task.spec)
        feed = _options(span.task.spec, topic, table) if feed.tables else feed
        left = feed.quarantine_per_hour_max - quarantined_lately(span.progress, time.monotonic())
        only = None if feed.on_bad_change == "quarantine" else feed.skips(topic, span.progress.topic_id)
        return SpanWork(
            id=span.id,
            topic=topic,
            claim=self.claim_of(span),
            expected=dict(span.readable),
            quarantine_left=max(0, left) if only is None else len(only),
            patient=worst(span.failures) < FAILURES_BORNE,
            source_table=table,
            begin=dict(span.progress.read_to),
            settle=settle,
            known_table=span.progress.known_table,
            limits=dict(span.progress.limits),
            topic_id=span.progress.topic_id,
            only=only,
        )


def source_table_of(task: SpanTask) -> str | None:
    """What the feed calls a span's table among several of its topic; None where the topic has one."""
    return _source_tables(task.spec).get(normal_table(task.plan.table))


@lru_cache(maxsize=OPTIONS_MAX)
def _options(spec: str, topic: str, source_table: str | None) -> FeedSpec:
    """A feed as it is for one table."""
    return feed_of(spec).for_table(topic, source_table)


@lru_cache(maxsize=FEEDS_MAX)
def _source_tables(spec: str) -> Mapping[str, str]:
    """What a feed calls its tables among those of their topic, by their name at the sink."""
    return source_tables(feed_of(spec))
