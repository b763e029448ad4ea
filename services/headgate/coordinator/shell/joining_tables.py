"""Checks whether new tables may join a running feed, in the same way as at its creation.

A topic in another format, one that the feed itself writes, or one whose columns or discriminator do not fit into a
table of several sources, is left out: the feed could not apply it, and its checkpoint would wait for it without limit.
A table that the sink lacks or refuses joins all the same: its agent reports the error and retries, and until then the
checkpoint does not pass the table. A topic without records shows no format, so its table waits for the first one.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from headgate.coordinator.shell.circles import CircleError
from headgate.formats.decoding import SchemasUnavailableError
from headgate.records.control import SpanPlan
from headgate.records.name_lists import shown_names
from headgate.records.refusals import WARNING
from headgate.sinks.contract import SinkError, SinkUnavailableError
from headgate.sinks.misfit import MisfitError
from headgate.sources.offsets import SourceError, SourceUnreachableError
from headgate.sources.preview import FormatMismatchError

CHECKS_MAX: Final = 50
"""Checks per pass over a feed's source. Each opens a session at the sink and reads the newest records, some 50 ms."""

LEFT_OUT_SECONDS: Final = 60.0
"""Until a topic that was left out is checked again: a stray topic in another format stays one."""

Check = Callable[[tuple[SpanPlan, ...]], tuple[str, ...]]
"""Warnings about these tables. Raises NoRecordsError, SourceError, SinkError, SchemasUnavailableError."""


class NoRecordsError(Exception):
    """Nothing could be read of some ``topics``, so their tables do not join yet. Nothing else was checked."""

    def __init__(self, topics: Collection[str]) -> None:
        super().__init__(", ".join(sorted(topics)))
        self.topics = topics


class JoiningTables:
    """Remembers which topics were left out. One feed is checked by one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_out: dict[tuple[str, str], tuple[float, str]] = {}
        """(feed id, topic) → until when, and why."""

    def fit(
        self, feed_id: str, plans: Sequence[SpanPlan], check: Check
    ) -> tuple[tuple[SpanPlan, ...], tuple[str, ...], tuple[str, ...]]:
        """Those of ``plans`` that join now, notices about the others, and warnings about those that join."""
        now = self._clock()
        for place in [place for place, (until, _) in list(self._left_out.items()) if until <= now]:
            self._left_out.pop(place, None)
        known = {plan.topic: self._left_out.get((feed_id, plan.topic)) for plan in plans}
        look = _Look(check)
        look.take(tuple(plan for plan in plans if known[plan.topic] is None))
        for topic, reason in look.left_out.items():
            self._left_out[feed_id, topic] = now + LEFT_OUT_SECONDS, reason
        notices = [reason for entry in known.values() if entry is not None for reason in (entry[1],)]
        notices += [*look.left_out.values(), *look.not_yet()]
        return tuple(look.good), tuple(notices), tuple(look.warnings)


class _Look:
    """One pass over a source: plans that fail together are halved until each failure is one table."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._checks_left = CHECKS_MAX
        self._waits_for = ""
        self._waiting: list[str] = []
        self._empty: list[str] = []
        self.good: list[SpanPlan] = []
        self.warnings: dict[str, None] = {}
        self.left_out: dict[str, str] = {}

    def take(self, plans: tuple[SpanPlan, ...]) -> None:
        if not plans:
            return
        if self._waits_for or not self._checks_left:
            self._waiting += [plan.topic for plan in plans]
            return
        self._checks_left -= 1
        try:
            self.warnings |= dict.fromkeys(self._check(plans))
            self.good += plans
        except NoRecordsError as error:
            self._empty += error.topics
            self.take(tuple(plan for plan in plans if plan.topic not in error.topics))
        except (SourceUnreachableError, SchemasUnavailableError, SinkUnavailableError) as error:
            self._waits_for = f"{error.code}: {error}"
            self._waiting += [plan.topic for plan in plans]
        except (SourceError, SinkError) as error:
            if len(plans) == 1:
                self._judge(plans[0], error)
            else:
                half = len(plans) // 2
                self.take(plans[:half])
                self.take(plans[half:])

    def _judge(self, plan: SpanPlan, error: SourceError | SinkError) -> None:
        if isinstance(error, FormatMismatchError | CircleError | MisfitError):
            self.left_out[plan.topic] = f"topic {plan.topic} is left out: {error}"
        elif isinstance(error, SourceError):
            self.left_out[plan.topic] = f"topic {plan.topic} cannot join yet: {error.code}: {error}"
        else:
            self.good.append(plan)
            self.warnings[f"{WARNING}table {plan.table} has joined, but {error.code}: {error}"] = None

    def not_yet(self) -> tuple[str, ...]:
        """Notices about topics that have no records, or could not be checked this time."""
        why = self._waits_for or f"only {CHECKS_MAX} checks are made at a time"
        told = []
        if self._empty:
            told.append(f"not joined yet, because they have no records: {shown_names(sorted(self._empty))}")
        if self._waiting:
            told.append(f"not joined yet: {shown_names(sorted(self._waiting))}: {why}")
        return tuple(told)
