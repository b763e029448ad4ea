"""Repeated checks of a running feed's source: new topics, missing topics, added partitions.

A topic that has matched the feed's pattern since the last check is read from its earliest record on, wherever the feed
itself began: all that it holds is new. One topic's problem is reported, and no other topic waits for it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.config.feed import FeedSpec, FeedSpecError
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import Positions, SpanPlan
from headgate.records.identifiers import normal_table
from headgate.records.name_lists import number_of
from headgate.records.spans import SpanName, wholes
from headgate.records.taken_tables import TakenTables
from headgate.sources.change_logs import ChangeLogs
from headgate.sources.offsets import SourceError, start_offsets
from headgate.sources.topic_ids import topic_ids
from headgate.sources.topics import (
    TableNameError,
    clash_text,
    matching,
    no_match,
    present_topics,
    sink_table,
    within_change_log,
)
from headgate.sources.transactions import unusable

__all__ = ["Discovery", "added_partitions", "look_again"]

NOTICES_MAX: Final = 20
"""Topics that are reported one by one: a pattern that is wrong can match thousands."""


class Discovery(msgspec.Struct, frozen=True):
    """What a look has found.

    ``joined``: plans of whole tables that the feed has not yet. ``notices``: what is wrong with a topic, a sentence
    each. ``grown``: topics with more partitions than planned, and how many; None if there are none.
    """

    joined: tuple[SpanPlan, ...]
    notices: tuple[str, ...]
    grown: str | None


def look_again(connection: KafkaConnection, spec: FeedSpec, spans: Sequence[SpanPlan], own_prefix: str) -> Discovery:
    """What has become of the source of a feed with the plan ``spans``. Raises SourceUnreachableError."""
    present = present_topics(connection)
    known = {plan.topic: plan for plan in wholes(spans)}
    replaced = _replaced(connection, known)
    is_fixed = spec.source.change_log is None  # streams of a change log define their own order
    grown = [
        f"{topic} has {number_of(present[topic], 'partition')}, the feed started with {len(plan.start)}"
        for topic, plan in sorted(known.items())
        if is_fixed and present.get(topic, 0) > len(plan.start) and topic not in replaced
    ]
    notices = [
        f"source topic {plan.topic} no longer exists, so table {plan.table} gets no changes"
        for plan in sorted(wholes(spans), key=lambda plan: (plan.topic, plan.table))
        if plan.topic not in present
    ]
    notices += [f"source topic {topic} was deleted and re-created, so its table stops" for topic in replaced]
    if spec.source.transaction_topic is not None and spec.source.transaction_topic not in present:
        notices.append(
            f"transaction topic {spec.source.transaction_topic} no longer exists, so it is not known up to which "
            "time the feed is complete"
        )
    joined: tuple[SpanPlan, ...] = ()
    if spec.source.topic_pattern is not None:
        found = matching(present, spec.source.topic_pattern, own_prefix)
        if not found and not known:
            notices.append(no_match(spec.source.topic_pattern, present))
        new = {topic: count for topic, count in found.items() if topic not in known}
        new, untold = _told(spec.source.transaction_topic, new)
        tables, wrong = _named(spec, new, {normal_table(plan.table): topic for topic, plan in known.items()})
        ids = topic_ids(connection, tables.values())
        # A topic that has no answer yet is so new that this broker has not heard of it: it joins at the next look.
        starts, missing = _starts(connection, {topic: new[topic] for topic in tables.values() if topic in ids})
        joined = tuple(
            SpanPlan(span=table, topic=topic, table=table, start=starts[topic], topic_id=ids[topic])
            for table, topic in sorted(tables.items())
            if topic in starts
        )
        notices += untold + wrong + missing
    return Discovery(joined, _shortened(notices), "; ".join(_shortened(grown)) or None)


def added_partitions(
    connection: KafkaConnection, change_logs: ChangeLogs, name: str, spans: Sequence[SpanPlan]
) -> SpanPlan | None:
    """The part of partitions that a change log has gained since its feed was planned, None if there are none.

    It begins where the oldest stream on each of them does. Raises SourceError.
    """
    whole, seen = wholes(spans)[0], change_logs.look(name)
    new = [partition for partition in range(seen.partitions) if partition not in whole.start]
    if not new or seen.topic != whole.topic or _replaced(connection, {whole.topic: whole}):
        return None
    earliest = start_offsets(connection, {seen.topic: seen.partitions}, "earliest")[seen.topic]
    start = within_change_log(connection, change_logs, name, earliest)
    span = SpanName(whole.span, tuple(new)).text()
    return replace(whole, span=span, start={partition: start[partition] for partition in new})


def _replaced(connection: KafkaConnection, known: Mapping[str, SpanPlan]) -> list[str]:
    """Topics that are not those of the plans any more, if the plans have ids; each table's agent reports them too."""
    ids = topic_ids(connection, (topic for topic, plan in known.items() if plan.topic_id is not None))
    return sorted(topic for topic, found in ids.items() if found not in (None, known[topic].topic_id))


def _told(transaction_topic: str | None, topics: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """Those of ``topics`` that the ends of transactions cover, and what is wrong with the others."""
    if transaction_topic is None:
        return dict(topics), []
    tables = {topic: count for topic, count in sorted(topics.items()) if topic != transaction_topic}
    wrong = {topic: why for topic, count in tables.items() if (why := unusable(transaction_topic, topic, count))}
    good = {topic: count for topic, count in tables.items() if topic not in wrong}
    return good, [f"left out: {why}" for why in wrong.values()]


def _named(spec: FeedSpec, new: Mapping[str, int], taken: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Table → topic of those that can have one, and what is wrong with the others. ``taken``: table → topic."""
    tables: dict[str, str] = {}
    claimed = TakenTables(taken.items())
    wrong = []
    for topic in sorted(new):
        try:
            table = sink_table(spec, topic)
        except (TableNameError, FeedSpecError) as error:
            wrong.append(f"topic {topic} is left out: {error}")
            continue
        other = claimed.clash(table)
        if other is None:
            tables[table] = topic
            claimed.take(table, topic)
        else:
            wrong.append(f"topic {topic} is left out, because topic {other} already goes to {clash_text(table)}")
    return tables, wrong


def _starts(connection: KafkaConnection, topics: Mapping[str, int]) -> tuple[dict[str, Positions], list[str]]:
    """Where each topic begins: asked together, and one by one where that fails, so that none waits for another."""
    try:
        return start_offsets(connection, topics, "earliest"), []
    except SourceError:
        starts: dict[str, Positions] = {}
        missing = []
        for topic, count in sorted(topics.items()):
            try:
                starts |= start_offsets(connection, {topic: count}, "earliest")
            except SourceError as error:
                missing.append(f"topic {topic} cannot join yet: {error}")
        return starts, missing


def _shortened(texts: Sequence[str]) -> tuple[str, ...]:
    more = len(texts) - NOTICES_MAX
    return (*texts[:NOTICES_MAX], f"and {more} more") if more > 0 else tuple(texts)
