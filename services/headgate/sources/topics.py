"""The topics that a feed reads, and the sink table of each.

One source topic holds one table's changes; the table's name comes from the topic's by the template in the feed's
spec. Or it holds those of several, which the feed names (``source.tables``). Resolved when a feed is accepted: what is
found is written down with the feed. Later changes of what there is, new topics that match a feed's pattern above all,
are found by repeated checks (discovery.py).
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from string import Formatter
from typing import Final

from confluent_kafka import KafkaException

from headgate.config.feed import FeedSpec
from headgate.config.source_spec import SourceSpec
from headgate.config.table_options import Into
from headgate.config.wording import did_you_mean, nearest
from headgate.eventlog.connection import KafkaConnection
from headgate.records.control import Positions, SpanPlan
from headgate.records.identifiers import normal_table, parse_identifier, split_whole, table_spelling
from headgate.records.name_lists import shown_names
from headgate.records.slices import Slice, slice_of, why_no_value
from headgate.records.taken_tables import TakenTables
from headgate.sources.change_logs import ChangeLogs, ChangeLogUnavailableError, NotAChangeLogError
from headgate.sources.offsets import (
    REQUEST_SECONDS_MAX,
    SourceError,
    SourceUnreachableError,
    TopicMissingError,
    end_offsets,
    given_offsets,
    offsets_at,
    start_offsets,
)
from headgate.sources.topic_ids import check_given_id, ids_of_existing, topic_id_of
from headgate.sources.transactions import check_transactions

MADE_SECONDS_MAX: Final = 2.0
MADE_LOOK_SECONDS: Final = 0.1
"""A broker may report a topic that was just created as missing for a moment, even the broker that created it. Without
this wait, a script that creates the topic and then the feed would be refused. A mistyped name costs this wait."""

_NO_CHANGE_YET: Final = (
    ". A connector with snapshot.mode=no_data creates a table's topic at its first change. To have such a table copied "
    "before, create its topic with as many partitions as the connector would"
)

_BROKERS_OWN: Final = "__"
"""Kafka's own topics (``__consumer_offsets``) hold no tables; a wide pattern must not catch them."""


class TableClashError(SourceError):
    """Two topics would write one table, which then had two orders of changes."""

    code = "source_table_clash"


class TableNameError(SourceError):
    """The template makes no table name of a topic's name."""

    code = "source_table_name"


def find_topics(connection: KafkaConnection, source: SourceSpec, own_prefix: str) -> dict[str, int]:
    """Topic → number of partitions, sorted; empty where nothing matches the pattern yet.

    ``own_prefix`` are the control topics, which are not sources. Raises TopicMissingError, TransactionsUnusableError,
    SourceUnreachableError.
    """
    named = {*source.topics, *((source.transaction_topic,) if source.transaction_topic is not None else ())}
    present = present_with(connection, named)
    if source.topic_pattern is not None:
        found = matching(present, source.topic_pattern, own_prefix)
        found.pop(source.transaction_topic or "", None)
    else:
        found = _listed(present, source)
    if source.transaction_topic is not None:
        check_transactions(connection, source.transaction_topic, present, found)
    return found


def _listed(present: Mapping[str, int], source: SourceSpec) -> dict[str, int]:
    missing = sorted(set(source.topics) - set(present))
    if missing:
        raise TopicMissingError(
            f"source topic {', '.join(missing)} does not exist{_meant(missing, present)}. Create it, let its "
            "connector create it, or correct source.topics"
        )
    return {name: present[name] for name in sorted(set(source.topics))}


def _meant(missing: Iterable[str], present: Iterable[str]) -> str:
    """A hint at the topics that were perhaps meant: names that are nearly the same, or end in the same table."""
    known = [name for name in present if not name.startswith(_BROKERS_OWN)]
    near: dict[str, None] = {}
    for name in missing:
        ends = [topic for topic in sorted(known) if topic.rpartition(".")[2] == name.rpartition(".")[2]]
        meant = nearest(name, known) or next(iter(ends), None)
        near |= {} if meant is None else {meant: None}
    question = did_you_mean(*near)
    return f" ({question})" if question else ""


def present_with(connection: KafkaConnection, named: AbstractSet[str]) -> dict[str, int]:
    """``present_topics``, once those ``named`` are among them, or have not come in time."""
    deadline = time.monotonic() + MADE_SECONDS_MAX
    while not named <= (present := present_topics(connection)).keys() and time.monotonic() < deadline:
        time.sleep(MADE_LOOK_SECONDS)
    return present


def present_topics(connection: KafkaConnection, seconds: float = REQUEST_SECONDS_MAX) -> dict[str, int]:
    """Every topic of the broker → number of partitions. Raises SourceUnreachableError after that time.

    All of them, because a broker with ``auto.create.topics.enable`` creates a topic that is asked for by its name.
    """
    try:
        topics = connection.admin.list_topics(timeout=seconds).topics
    except KafkaException as error:
        raise SourceUnreachableError(
            f"the source broker did not list its topics: {error.args[0].str()}. Check that it is up and reachable "
            "from here"
        ) from error
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None}


def present_topic_id(connection: KafkaConnection, topic: str) -> str | None:
    """The id of a topic that has to exist; None from a broker before 2.8, which has none.

    Raises TopicMissingError if the broker keeps reporting the topic as missing, SourceUnreachableError.
    """
    deadline = time.monotonic() + MADE_SECONDS_MAX
    while True:
        try:
            return topic_id_of(connection, topic)
        except TopicMissingError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(MADE_LOOK_SECONDS)


def matching(present: Mapping[str, int], pattern: str, own_prefix: str) -> dict[str, int]:
    """Those of ``present`` whose whole name matches, sorted, without the broker's own topics and ours."""
    wanted = re.compile(pattern)
    return {
        name: partitions
        for name, partitions in sorted(present.items())
        if wanted.fullmatch(name) and not name.startswith((_BROKERS_OWN, own_prefix))
    }


def no_match(pattern: str, present: Iterable[str]) -> str:
    """The message for an operator who sees a feed without tables."""
    return (
        f"no topic matches source.topic_pattern {pattern!r} yet (the whole name must match). Check that the "
        f"connector has created its topics. Existing topics: {_some(present)}"
    )


def _some(names: Iterable[str]) -> str:
    ours = sorted(name for name in names if not name.startswith(_BROKERS_OWN))
    return shown_names(ours) or "no topics"


_SCHEMA: Final = "\0"
_TABLE: Final = "\1"
"""Stand for {schema} and {table} while a template is divided: no name has these characters."""


def sink_table(spec: FeedSpec, topic: str, table: str | None = None) -> str:
    """The feed's sink table of ``topic``, or of one ``table`` of several that it carries.

    Raises TableNameError, and FeedSpecError where two patterns of ``tables`` claim it.
    """
    pattern = spec.pattern_of(topic, table)
    options = None if pattern is None else spec.tables[pattern]
    if options is not None and options.into is not None:
        option = f"tables.{pattern}.into"
        target = table_name(options.into.table, topic, table, f"{option}.table")
        return Slice(target, options.into.column, _discriminator(options.into, topic, table, option)).text
    if options is None or options.table is None:
        return table_name(spec.sink.table, topic, table)
    return table_name(options.table, topic, table, f"tables.{pattern}.table")


def _discriminator(into: Into, topic: str, table: str | None, option: str) -> str:
    """The value of a source's rows in the discriminator's column. Raises TableNameError."""
    option = f"{option}.discriminator.{into.column}"
    parts = topic.split(".") if table is None else parse_identifier(table)
    values = {"topic": topic, "table": parts[-1], "prefix": ".".join(topic.split(".")[:-2])}
    values |= {"schema": parts[-2]} if len(parts) > 1 else {}
    text = ""
    for literal, field in _template(into.value, option, (*_FIELDS, "prefix")):
        if field and not values.get(field):
            raise TableNameError(
                f"{option} {into.value!r} needs a {{{field}}}, which the name of topic {topic!r} does not have. Write "
                f"the value into {option}"
            )
        text += literal + (values[field] if field else "")
    why = why_no_value(text)
    if why is not None:
        raise TableNameError(
            f"{option}: {why}. It is the value for topic {topic}: write a constant in an entry of its own in `tables`"
        )
    return text


def table_name(template: str, topic: str, table: str | None = None, option: str = "sink.table") -> str:
    """The sink table that a template makes of ``topic``, or of one ``table`` of several; raises TableNameError.

    ``option``: where the feed has the template.
    ``{schema}`` and ``{table}`` are the last two parts of the table's or the topic's name, ``{topic}`` all of the
    latter. The template is divided before they are filled in, so dots and quotes in them are part of a name.
    The result is the table's one spelling (records/identifiers.py). It is never a slice's.
    """
    parts = topic.split(".") if table is None else parse_identifier(table)
    values = dict(zip((_TABLE, _SCHEMA), (*reversed(parts[-2:]),), strict=False))
    text = ""
    for literal, field in _template(template, option):
        stand_in = {"schema": _SCHEMA, "table": _TABLE}.get(field)
        if stand_in is not None and stand_in not in values:
            raise TableNameError(
                f"{option} {template!r} needs a {{{field}}}, but the topic's name {topic!r} has only one part. "
                f"Write the schema into {option}"
            )
        text += literal + (stand_in or (topic if field else ""))
    space, name = (None if part is None else _filled(part, values) for part in split_whole(text))
    return table_spelling(space, name or "")


_FIELDS: Final = ("schema", "table", "topic")


def _template(template: str, option: str, fields: Sequence[str] = _FIELDS) -> list[tuple[str, str]]:
    """(text, name of the field behind it, or empty) of a template. Raises TableNameError."""
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise TableNameError(f"{option} {template!r} is not a valid template: {error}") from error
    for _literal, field, spec, conversion in parsed:
        if field is not None and (field not in fields or spec or conversion):
            known = ", ".join(f"{{{each}}}" for each in fields)
            raise TableNameError(f"{option} {template!r}: {{{field}}} is unknown; choose from {known}")
    return [(literal, field or "") for literal, field, _, _ in parsed]


def _filled(part: str, values: Mapping[str, str]) -> str:
    return "".join(values.get(sign, sign) for sign in part)


def within_change_log(
    connection: KafkaConnection, change_logs: ChangeLogs | None, name: str, start: Positions
) -> Positions:
    """``start`` without offsets of no stream or of a retired one: the records there are in no known order."""
    topic, partitions = _need(change_logs, name).look(name).topic, len(start)
    # Before the streams are asked for: one that is opened in between begins at its own start, not at an end.
    ends = end_offsets(connection, {topic: partitions})[topic]
    first = _need(change_logs, name).look(name).starts
    return {partition: max(offset, first.get(partition, ends[partition])) for partition, offset in start.items()}


def check_no_change_log(change_logs: ChangeLogs | None, topics: Iterable[str]) -> None:
    """Raises NotAChangeLogError where one of ``topics`` is a change log's, whose keys go to other partitions."""
    names = {} if change_logs is None else change_logs.names_by_topic()
    for topic in sorted(set(topics) & set(names)):
        raise NotAChangeLogError(
            f"topic {topic} belongs to change log {names[topic]!r}. Read as a plain topic, changes of a key would "
            f"be out of order. Use source.change_log: {names[topic]}, or a pattern that does not match the topic"
        )


def _need(change_logs: ChangeLogs | None, name: str) -> ChangeLogs:
    if change_logs is None:
        raise ChangeLogUnavailableError(f"change log {name} cannot be looked up without the control topics")
    return change_logs


def source_tables(spec: FeedSpec) -> dict[str, str]:
    """Sink table → the source's, of a feed whose topic carries several; empty for all other feeds.

    In the order of the feed's own list. Raises TableNameError, TableClashError, FeedSpecError.
    """
    found: dict[str, str] = {}
    taken = TakenTables()
    for name in spec.source.tables:
        table = sink_table(spec, spec.source.topics[0], name)
        other = taken.clash(table)
        if other is not None:
            raise TableClashError(f"{other} and {name} of source.tables both go to {clash_text(table)}")
        taken.take(table, name)
        found[table] = name
    return found


def clash_text(table: str) -> str:
    """The rest of a sentence on two sources that go to ``table``: which rows, and what to do."""
    part = slice_of(table)
    if part is None:
        return (
            f"table {table}. Put {{schema}}, {{table}} or {{topic}} into sink.table, or keep their rows apart by a "
            "discriminator (`into` in `tables`)"
        )
    return (
        f"table {part.table}, and nothing keeps their rows apart: {part.column} is {part.value!r} for one, and the "
        "other has the same value (upper and lower case do not count), another column, or none. Correct `into`"
    )


def plan_spans(
    connection: KafkaConnection,
    spec: FeedSpec,
    own_prefix: str,
    change_logs: ChangeLogs | None = None,
    known: Iterable[SpanPlan] = (),
) -> tuple[SpanPlan, ...]:
    """One span per table, with its topic and its start offsets, sorted by table. Raises SourceError.

    ``known``: plans of whole tables that the feed has already. They are kept as they are, because their start offsets
    were used once and retention may have deleted them since.
    """
    name = spec.source.change_log
    if name is not None:
        seen = _need(change_logs, name).look(name)
        topics = {seen.topic: seen.partitions}
    else:
        try:
            topics = find_topics(connection, spec.source, own_prefix)
        except TopicMissingError as error:
            raise TopicMissingError(f"{error}{_NO_CHANGE_YET if spec.snapshot.is_initial else ''}") from error
        check_no_change_log(change_logs, topics)
    tables = dict.fromkeys(source_tables(spec), next(iter(topics), ""))
    taken = TakenTables()
    for topic in topics if not tables else ():
        table = sink_table(spec, topic)
        other = taken.clash(table)
        if other is not None:
            raise TableClashError(f"topics {other} and {topic} both go to {clash_text(table)}")
        taken.take(table, topic)
        tables[table] = topic
    kept = {table: plan for plan in known if tables.get(table := normal_table(plan.table)) == plan.topic}
    new = {table: topic for table, topic in tables.items() if table not in kept}
    counts = {topic: topics[topic] for topic in new.values()}
    ids = ids_of_existing(connection, counts)
    starts = _starts(connection, spec.source, counts, ids)
    copied = _copied(spec, new)
    ends = start_offsets(connection, {topic: topics[topic] for topic in copied.values()}, "latest") if copied else {}
    if name is not None:
        starts = {topic: within_change_log(connection, change_logs, name, start) for topic, start in starts.items()}
    plans = {table: (topic, (ends if table in copied else starts)[topic], ids[topic]) for table, topic in new.items()}
    plans |= {table: (plan.topic, plan.start, plan.topic_id) for table, plan in kept.items()}
    return tuple(
        SpanPlan(span=table, topic=topic, table=table, start=start, topic_id=topic_id)
        for table, (topic, start, topic_id) in sorted(plans.items())
    )


def _copied(spec: FeedSpec, tables: Mapping[str, str]) -> dict[str, str]:
    """Those of these tables (sink table → topic) whose rows are copied: they start at the end of their topics.

    Everything committed before that is visible to the SELECT that copies it. Raises FeedSpecError.
    """
    named = source_tables(spec)
    return {
        table: topic for table, topic in tables.items() if spec.for_table(topic, named.get(table)).snapshot.is_initial
    }


def _starts(
    connection: KafkaConnection, source: SourceSpec, topics: Mapping[str, int], ids: Mapping[str, str | None]
) -> dict[str, Positions]:
    """Topic → {partition: first offset to apply}, according to the feed. ``topics``: topic → number of partitions."""
    if source.start_ts is not None:
        return offsets_at(connection, topics, source.start_ts)
    if not source.start_offsets:
        return start_offsets(connection, topics, source.start)
    given = {topic: start for topic, start in source.start_offsets.items() if topic in topics}
    for topic, start in sorted(given.items()):
        check_given_id(topic, start.topic_id, ids[topic])
    return given_offsets(connection, topics, {topic: start.offsets for topic, start in given.items()})
