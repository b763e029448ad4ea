"""Finds the offsets that a stopped feed resumes from: an end of the log, a time, or offsets that are given."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.config.source_spec import no_evidence
from headgate.config.start_offsets import StartOffsets, StartOffsetsError, parse_start_offsets
from headgate.config.times import show_ts
from headgate.coordinator.core.effects import FeedRefused, ResolveStart, StartResolved
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import SpanPlan
from headgate.records.name_lists import number_of
from headgate.records.refusals import coded
from headgate.records.spans import plan_of, table_of, wholes
from headgate.runtime.machine import EffectFailed
from headgate.sources.change_logs import ChangeLogs, ChangeLogUnavailableError
from headgate.sources.offsets import SourceError, SourceUnreachableError, check_retention, offsets_at, start_offsets
from headgate.sources.topic_ids import TopicReplacedError, check_given_id, ids_of_existing
from headgate.sources.topics import present_topics, within_change_log

_Start = Literal["earliest", "latest"] | int | dict[str, StartOffsets]
"""Where a feed resumes: an end of the log, a ts, or offsets by topic."""


class StartIncompleteError(Exception):
    """The offsets given to resume from are not those of the feed's topics and partitions."""


class StartImpossibleError(Exception):
    """The feed cannot resume from the requested time."""


class StartPositions:
    """Runs ResolveStart; may be called from several threads."""

    def __init__(self, connection: KafkaConnection, change_logs: ChangeLogs | None) -> None:
        """``change_logs`` knows the generations; without it no feed can read a change log."""
        self._connection = connection
        self._change_logs = change_logs

    def resolve(self, effect: ResolveStart) -> StartResolved | FeedRefused | EffectFailed:
        """The plan with the offsets of the requested position, all of which the log still has."""
        try:
            start = _start_of(effect.start)
            if isinstance(start, int):
                _check_evidence(parse_feed(effect.spec), start)
            known = self._as_they_are(effect.spans)
            if isinstance(start, dict):
                _check_topics_of(start, known)
            name = parse_feed(effect.spec).source.change_log
            tables = [self._from(whole, start, name) for whole in known]
            spans = tuple(plan for old in effect.spans if (plan := plan_of(tables, old.span)) is not None)
        except (SourceUnreachableError, ChangeLogUnavailableError) as error:
            return EffectFailed(str(error))
        except (msgspec.MsgspecError, StartOffsetsError) as error:
            return FeedRefused(
                f"the position to resume from is not valid: {error}. Give earliest, latest, a ts, or offsets by topic "
                "and partition"
            )
        except SourceError as error:
            return FeedRefused(coded(error.code, str(error)))
        except FeedSpecError as error:
            return FeedRefused(coded("feed_spec", str(error)))
        except (StartIncompleteError, StartImpossibleError) as error:
            return FeedRefused(str(error))
        return StartResolved(spans)

    def _as_they_are(self, spans: tuple[SpanPlan, ...]) -> tuple[SpanPlan, ...]:
        """The plans of whole tables with the ids of the topics as they are now.

        A topic that was re-created may have another number of partitions, which is its table's from now on: nothing of
        it has been applied, so no order is lost. Raises TopicReplacedError if the table is divided, and
        TopicMissingError.
        """
        plans = wholes(spans)
        ids = ids_of_existing(self._connection, (plan.topic for plan in plans))
        known = {plan.topic: plan.topic_id for plan in plans if plan.topic_id is not None}
        replaced = {topic for topic, before in known.items() if ids[topic] not in (None, before)}
        present = present_topics(self._connection) if replaced else {}
        divided = {plan.table for plan in spans if plan.span != table_of(plan.span)}
        found = []
        for plan in plans:
            count = present.get(plan.topic, 0) if plan.topic in replaced else len(plan.start)
            if count != len(plan.start) and plan.table in divided:
                raise TopicReplacedError(
                    f"topic {plan.topic} was re-created with {number_of(count, 'partition')} instead of "
                    f"{len(plan.start)}, by which table {plan.table} is divided: remove the feed and make it again"
                )
            start = plan.start if count == len(plan.start) else dict.fromkeys(range(count), 0)
            found.append(replace(plan, start=start, topic_id=ids[plan.topic]))
        return tuple(found)

    def _from(self, plan: SpanPlan, start: _Start, change_log: str | None) -> SpanPlan:
        """The plan of a whole table with other start offsets. Raises StartIncompleteError, SourceError."""
        found = self._offsets_from(plan, start)
        if change_log is None:
            return found
        within = within_change_log(self._connection, self._change_logs, change_log, found.start)
        return replace(found, start=within)

    def _offsets_from(self, plan: SpanPlan, start: _Start) -> SpanPlan:
        topic, partitions = plan.topic, sorted(plan.start)
        if isinstance(start, int):
            return replace(plan, start=offsets_at(self._connection, {topic: len(partitions)}, start)[topic])
        if isinstance(start, str):
            where: Literal["earliest", "latest"] = "earliest" if start == "earliest" else "latest"
            listed = start_offsets(self._connection, {topic: len(partitions)}, where)
            return replace(plan, start=listed[topic])
        given = start.get(topic, StartOffsets(offsets={}))
        if sorted(given.offsets) != partitions:
            raise StartIncompleteError(
                f"topic {topic}: offsets were given for partitions {sorted(given.offsets)}, but the feed reads "
                f"{partitions}. Give an offset for each of them: a feed resumes all of its partitions"
            )
        check_given_id(topic, given.topic_id, plan.topic_id)
        check_retention(self._connection, topic, given.offsets)
        return replace(plan, start=given.offsets)


def _check_evidence(spec: FeedSpec, ts: int) -> None:
    source = spec.source
    if not source.gives_resolved_ts:
        raise StartImpossibleError(
            f"a feed of format {source.format} cannot go back to a time: {no_evidence()}; use earliest, "
            "latest, or offsets"
        )
    if source.target_ts is not None and ts >= source.target_ts:
        raise StartImpossibleError(f"{show_ts(ts)} is not before the feed's target {show_ts(source.target_ts)}")


def _start_of(text: str) -> _Start:
    """The request's position. Raises msgspec.MsgspecError, StartOffsetsError."""
    if text.lstrip().startswith("{"):
        return parse_start_offsets(text)
    where: Literal["earliest", "latest"] | int = msgspec.json.decode(text, type=Literal["earliest", "latest"] | int)
    return where


def _check_topics_of(start: Mapping[str, StartOffsets], plans: Iterable[SpanPlan]) -> None:
    """Raise StartIncompleteError for offsets of a topic that the feed does not read."""
    topics = {plan.topic for plan in plans}
    if others := sorted(start.keys() - topics):
        raise StartIncompleteError(
            f"offsets were given for {', '.join(others)}, which the feed does not read. It reads "
            f"{', '.join(sorted(topics))}: correct the names, or remove these topics"
        )
