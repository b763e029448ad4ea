"""Checks regularly whether the topics that an agent reads still exist and have the same ids.

A reader is not notified if its topic is deleted, or if the name means another topic by now, whose offsets mean
something else. The owner checks as often (coordinator/core/feeds/discovery.py), but only an agent stops a span at once.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from headgate.agent.core.span.inputs import Failed, SentBack
from headgate.agent.core.span.states import Span, TaskPhase
from headgate.replication.span_table import SpanTable
from headgate.sources.offsets import SourceUnreachableError
from headgate.sources.topic_ids import MissingTopics, TopicReplacedError, check_topic_id

_log = logging.getLogger(__name__)

TOPICS_SECONDS: Final = 10.0
"""Between two checks. What a re-created topic holds beyond the old one's position may be applied until then; a span
that resumes from its beginning, which the error asks for, applies it again in its order."""


OPEN: Final = frozenset({TaskPhase.WAITING, TaskPhase.READING, TaskPhase.CLAIMED, TaskPhase.WRITING})
"""Who is opening, being called, or has failed, asks at source and sink anyway."""


class TopicWatch:
    """For all spans of an executor; ``look`` is the pool's, all else the control thread's."""

    def __init__(
        self, table: SpanTable, topic_ids: Callable[[Iterable[str]], Mapping[str, str | None]], now: float
    ) -> None:
        """``topic_ids``: see sources/topic_ids.py."""
        self._table = table
        self._topic_ids = topic_ids
        self._looked_at = now
        self._missing = MissingTopics()

    def is_due(self, now: float) -> bool:
        """Whether a check is due, which then counts as started."""
        if now - self._looked_at < TOPICS_SECONDS or not self._watched():
            return False
        self._looked_at = now
        return True

    def _watched(self) -> list[Span]:
        return [span for span in self._table.all() if span.phase in OPEN]

    def look(self) -> None:
        """Send spans back whose topic is missing at two looks in a row; fail those whose topic is another one."""
        topics = {span.task.plan.topic for span in self._watched()}
        try:
            present = self._topic_ids(topics)
        except SourceUnreachableError as error:
            _log.info("looking for the topics of spans: %s", error)
            return
        with self._table.changed:
            gone = self._missing.gone(topics, present)
            lanes = {span.lane: span.task.plan.topic for span in self._watched() if span.task.plan.topic in gone}
            for span in self._table.all():
                topic = span.task.plan.topic
                # Neighbours too: their query asks for that topic, and waits for an answer that does not come.
                lost = lanes.get(span.lane) if span.lane is not None or topic in gone else None
                if lost is not None and (span.lane is not None or span.phase in OPEN):
                    self._table.apply(span.id, SentBack(f"its lane reads {lost}, which is not there any more"))
                elif span.phase in OPEN and topic in present:
                    self._check(span, present[topic])

    def _check(self, span: Span, seen: str | None) -> None:
        try:
            check_topic_id(span.task.plan.topic, span.progress.topic_id, seen)
        except TopicReplacedError as error:
            self._table.apply(span.id, Failed(error.code, str(error), error.retryable))
