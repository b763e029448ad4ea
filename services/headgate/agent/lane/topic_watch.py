"""Looking from time to time whether the topics that an agent reads are still there, and still the same.

Nobody tells a reader that its topic was deleted, or that a name stands for another topic by now, whose offsets mean
something else. The owner looks as often (coordinator/discovery.py), but only an agent stops a span at once.
"""

import logging
from typing import TYPE_CHECKING, Final

from headgate.agent.lane.span import SpanRun
from headgate.sources.offsets import SourceUnreachableError
from headgate.sources.topic_ids import TopicReplacedError, check_topic_id

if TYPE_CHECKING:
    from headgate.agent.lane.keeper import Board, SpanKeeper

__all__ = ["TopicWatch"]

_log = logging.getLogger(__name__)

TOPICS_SECONDS: Final = 10.0
"""Between two looks. What a topic that was made again holds beyond the old one's position may be applied meanwhile; who
goes on from its beginning, which the error asks for, applies it again in its order."""


class TopicWatch:
    """For all spans of an executor; ``look`` is the pool's, all else the control thread's."""

    def __init__(self, board: "Board", keeper: "SpanKeeper", now: float) -> None:
        self._board = board
        self._keeper = keeper
        self._looked_at = now
        self._missing: frozenset[str] = frozenset()

    def is_due(self, now: float) -> bool:
        """Whether it is time for a look, which then counts as begun."""
        if now - self._looked_at < TOPICS_SECONDS or not self._watched():
            return False
        self._looked_at = now
        return True

    def _watched(self) -> list[SpanRun]:
        """Spans that are open: who is opening, or has failed, asks at its door anyway."""
        runs = (run for _, run in sorted(self._board.runs.items()))
        return [run for run in runs if run.is_open and not run.busy and run.retry_at is None]

    def look(self) -> None:
        """Send spans back whose topic is missing at two looks in a row; fail those whose topic is another one."""
        with self._board.changed:
            topics = {run.task.plan.topic for run in self._watched()}
        try:
            present = self._keeper.topic_ids(topics)
        except SourceUnreachableError as error:
            _log.info("looking for the topics of spans: %s", error)
            return
        with self._board.changed:
            # At one look only it may be so new that this broker has not heard of it yet.
            missing = topics.difference(present)
            for run in self._watched():
                topic = run.task.plan.topic
                if run.busy:  # sent back with a neighbour, in this look
                    continue
                if topic in missing & self._missing:
                    # Its neighbours too: their query asks for that topic, and waits for an answer that does not come.
                    for member in (run,) if run.lane is None else tuple(run.lane.members):
                        self._keeper.restart(member, f"its lane reads {topic}, which is not there any more")
                elif topic in present:
                    try:
                        check_topic_id(topic, run.topic_id, present[topic])
                    except TopicReplacedError as error:
                        self._keeper.fail(run, error.code, str(error), retryable=error.retryable)
            self._missing = frozenset(missing)
