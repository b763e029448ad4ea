"""Executes the coordinator's effects: resolves new feeds at brokers and databases, and cleans up removed ones.

Every check is made before a feed is accepted, because afterwards no client waits for the result: sources exist, tables
exist with keys and rights, no two topics go to one table. Problems are refused with their reason. What only cannot be
checked now (Headgate's own broker is down) is reported as failed, and is requested again.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.config.plugs import FORMATS
from headgate.config.source_spec import no_evidence
from headgate.config.start_offsets import StartOffsets, StartOffsetsError, parse_start_offsets
from headgate.config.times import show_ts
from headgate.coordinator.core.effects import (
    DiscoverTables,
    FeedForgotten,
    FeedRefused,
    FeedResolved,
    ForgetFeed,
    ResolveFeed,
    ResolveStart,
    StartResolved,
    TablesDiscovered,
)
from headgate.coordinator.shell.joining_tables import CircleError, JoiningTables, NoRecordsError
from headgate.coordinator.shell.source_database import check_source_database
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.connection import KafkaConnection
from headgate.formats.decoding import SchemasUnavailableError
from headgate.records.control import SpanPlan
from headgate.records.identifiers import normal_table, split_table
from headgate.records.name_lists import number_of, shown_names
from headgate.records.names import InvalidNameError, check_name
from headgate.records.refusals import coded
from headgate.records.slices import slice_of, whole_table
from headgate.records.spans import plan_of, table_of, wholes
from headgate.records.stored_names import plan_today
from headgate.records.ts import physical_ms
from headgate.runtime.machine import EffectFailed
from headgate.sinks.contract import FeedIdentity, OfTopics, SelfAware, SinkError, SinkRefusedError, TableShape
from headgate.sinks.registry import open_sink, plug_of, same_sink, server_of
from headgate.sinks.triggers import trigger_warnings
from headgate.sources.change_logs import ChangeLogs, ChangeLogUnavailableError, reader_of_feed
from headgate.sources.compaction import compaction_warnings
from headgate.sources.connector_warnings import SinkTable, connector_warnings
from headgate.sources.database import same_source
from headgate.sources.discovery import added_partitions, look_again
from headgate.sources.event_schemas import event_schemas
from headgate.sources.offsets import SourceError, SourceUnreachableError, check_retention, offsets_at, start_offsets
from headgate.sources.origin import origins
from headgate.sources.preview import Seen, check_formats, preview
from headgate.sources.registry import SchemaRegistry
from headgate.sources.said import tables_said
from headgate.sources.shaped_columns import shaped_seen
from headgate.sources.skips import with_topic_ids
from headgate.sources.table_options import by_session_options, check_patterns
from headgate.sources.topic_ids import TopicReplacedError, check_given_id, ids_of_existing
from headgate.sources.topics import no_match, plan_spans, present_topics, source_tables, within_change_log
from headgate.sources.unapplied import UnappliedWatch
from headgate.tables.column_options import check_columns
from headgate.tables.joining_slices import check_joining
from headgate.tables.missing import MissingTables, check_alterable, check_created, check_types, plan_missing
from headgate.tables.named_once import check_named_once, named_twice
from headgate.tables.plan import altered_warnings
from headgate.tables.snapshots import check_snapshots, snapshot_copies
from headgate.tables.source_checks import check_source_tables

__all__ = ["FeedWork", "crashed", "server_of_effect"]


def server_of_effect(effect: Any) -> str:
    """The sink server that an effect may have to wait for; empty if its feed's description does not name one."""
    try:
        return server_of(parse_feed(effect.spec).sink)
    except (FeedSpecError, SinkRefusedError):  # running the effect reports what is wrong
        return ""


def crashed(effect: Any, reason: str) -> FeedRefused | EffectFailed:
    """The result of an effect that met a bug: the client gets an error, and only a clean-up is retried."""
    return EffectFailed(reason) if isinstance(effect, ForgetFeed) else FeedRefused(reason)


LATE_MS: Final = 10_000
"""A change that has waited for less, beyond the sink's commit interval, is on its way."""

LATE_MS_SHARED: Final = 30_000
"""The same where a table's position follows late: in a topic of several tables it may be behind others' changes for ten
seconds, in a change log behind records that no longer belong to any stream."""


def late_ms(spec: FeedSpec) -> int:
    """How old a change of the feed is at least that is late."""
    follows_late = bool(spec.source.tables) or spec.source.change_log is not None
    return (LATE_MS_SHARED if follows_late else LATE_MS) + round(spec.commit_interval_seconds * 1000)


_Start = Literal["earliest", "latest"] | int | dict[str, StartOffsets]
"""Where a feed resumes: an end of the log, a ts, or offsets by topic."""


class StartIncompleteError(Exception):
    """The offsets given to resume from are not those of the feed's topics and partitions."""


class StartImpossibleError(Exception):
    """The feed cannot resume from the requested time."""


class _Checked(msgspec.Struct, frozen=True):
    """``spec`` has the sink's normalized address, ``sink_id`` is the sink's own identity."""

    spec: FeedSpec
    sink_id: str | None
    warnings: tuple[str, ...]
    missing: MissingTables
    shapes: dict[str, TableShape]


class FeedWork:
    """Runs ResolveFeed, ResolveStart, DiscoverTables and ForgetFeed; may be called from several threads.

    ``cluster_id`` is the log's identity, ``own_prefix`` that of the control topics, which cannot be sources.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        *,
        cluster_id: str,
        own_prefix: str,
        change_logs: ChangeLogs | None = None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        """``change_logs`` knows the generations; without it no feed can read a change log.

        ``now_ms``: the time by the broker's clock.
        """
        self._connection = connection
        self._watch = UnappliedWatch(connection)
        self._now_ms = now_ms
        self._change_logs = change_logs
        self._cluster_id = cluster_id
        self._own_prefix = own_prefix
        self._joining = JoiningTables()

    def run(self, effect: Any) -> Any:
        """The result, of a type that the effect names."""
        match effect:
            case ResolveFeed():
                return self._resolve(effect)
            case ResolveStart():
                return self._resolve_start(effect)
            case DiscoverTables():
                return self._discover(effect)
            case ForgetFeed():
                return self._forget(effect)
            case _:
                raise TypeError(f"no work is known for {effect!r}")

    def _resolve(self, effect: ResolveFeed) -> FeedResolved | FeedRefused | EffectFailed:
        try:
            spec = parse_feed(effect.spec)
            if check_name("feed", spec.feed) != effect.feed:
                return _refused(
                    "feed_spec", f"the request is for feed {effect.feed!r}, its description for {spec.feed!r}"
                )
            spans = plan_spans(self._connection, spec, self._own_prefix, self._change_logs, wholes(effect.known))
            spec = with_topic_ids(spec, spans)
            spec = same_source(spec)
            if spec.source.registry is not None:
                SchemaRegistry(spec.source.registry).check()
            check_source_database(self._connection, spec, {plan.topic: len(plan.start) for plan in spans})
            unmatched = check_patterns(spec, spans)
            known = {normal_table(plan.table) for plan in wholes(effect.known)}
            checked = self._check(spec, spans, known)
            new = tuple(plan for plan in spans if normal_table(plan.table) not in known)
            warnings = self._check_snapshots(checked, new)
            note = "" if spans else no_match(spec.source.topic_pattern or "", present_topics(self._connection))
        except (SourceUnreachableError, ChangeLogUnavailableError) as error:
            return EffectFailed(str(error))
        except (FeedSpecError, InvalidNameError) as error:
            return _refused("feed_spec", str(error))
        except (SourceError, SinkError, SchemasUnavailableError) as error:
            return _refused(error.code, str(error))
        return FeedResolved(
            checked.spec.to_json(),
            spans,
            checked.spec.source.target_ts,
            checked.sink_id,
            note,
            (*unmatched, *checked.warnings, *warnings),
            tuple(sorted(checked.missing.lacking | {name for name, at in checked.shapes.items() if at.is_missing})),
            checked.missing.tables.text,
            snapshot_copies(checked.spec, new),
        )

    def _check(self, spec: FeedSpec, spans: tuple[SpanPlan, ...], known: Collection[str]) -> _Checked:
        """Check the feed's tables before it is created or updated. ``known``: those that it has already.

        Raises FeedSpecError, SourceError, SinkError, SchemasUnavailableError.
        """
        seen = self._preview(spec, spans)
        self._check_columns(spec, spans, seen, are_all=True)
        return self._check_seen(spec, spans, seen, known)

    def _check_columns(
        self, spec: FeedSpec, spans: tuple[SpanPlan, ...], seen: Mapping[str, Seen], *, are_all: bool
    ) -> None:
        said, described = tables_said(self._connection, spec, spans), event_schemas(self._connection, spec, spans)
        check_columns(spec, spans, said, described, seen, are_all=are_all)

    def _check_joining(self, spec: FeedSpec, spans: tuple[SpanPlan, ...]) -> tuple[str, ...]:
        """The warnings of ``_check``. Raises NoRecordsError, and what ``_check`` does."""
        seen = self._preview(spec, spans)
        if empty := {plan.topic for plan in spans} - seen.keys():
            raise NoRecordsError(empty)
        try:
            self._check_columns(spec, spans, seen, are_all=False)
        except FeedSpecError as error:  # of these tables only: they join, and their agent reports it
            raise SinkRefusedError(str(error)) from error
        checked = self._check_seen(spec, spans, seen, ())
        return (*checked.warnings, *self._check_snapshots(checked, spans))

    def _check_snapshots(self, checked: _Checked, new: tuple[SpanPlan, ...]) -> tuple[str, ...]:
        """Warnings about the copies of tables that join. Raises SourceError."""
        said = tables_said(self._connection, checked.spec, new)
        return check_snapshots(checked.spec, new, checked.shapes, checked.missing, said)

    def _preview(self, spec: FeedSpec, spans: tuple[SpanPlan, ...]) -> dict[str, Seen]:
        return preview(self._connection, spec, {plan.topic: len(plan.start) for plan in spans})

    def _check_seen(
        self, spec: FeedSpec, spans: tuple[SpanPlan, ...], seen: dict[str, Seen], known: Collection[str]
    ) -> _Checked:
        unread = check_formats(spec, seen)
        checked = self._check_sink(spec, spans, seen, known)
        compacted = compaction_warnings(self._connection, spec, (plan.topic for plan in spans))
        return replace(checked, warnings=(*unread, *compacted, *checked.warnings))

    def _discover(self, effect: DiscoverTables) -> TablesDiscovered | FeedRefused | EffectFailed:
        try:
            spec = parse_feed(effect.spec)
            plans = [plan_today(effect.spec, plan) for plan in effect.spans]
            found = look_again(self._connection, spec, plans, self._own_prefix)
            joined, others = self._without_change_logs(found.joined)
            joined, twice = _named_once(spec, joined, plans)
            joined, wrong, warnings = self._joining.fit(
                effect.feed_id, joined, lambda plans: self._check_joining(spec, plans)
            )
            added = None
            if spec.source.change_log is not None and self._change_logs is not None:
                self._change_logs.report(spec.source.change_log, reader_of_feed(effect.feed), effect.positions)
                added = added_partitions(self._connection, self._change_logs, spec.source.change_log, effect.spans)
        except (SourceUnreachableError, ChangeLogUnavailableError) as error:
            return EffectFailed(f"{error.code}: {error}")
        except (FeedSpecError, SourceError) as error:
            return FeedRefused(str(error))
        notices = (*found.notices, *others, *twice, *wrong)
        copies = snapshot_copies(spec, joined)
        told = TablesDiscovered(joined, notices, found.grown, warnings=warnings, added=added, copies=copies)
        return self._with_unapplied(spec, effect, told)

    def _with_unapplied(self, spec: FeedSpec, effect: DiscoverTables, told: TablesDiscovered) -> TablesDiscovered:
        """Add the spans whose oldest change has waited for long, and those that have applied everything."""
        looked_ms = self._now_ms()
        try:
            found = self._watch.look(effect.feed_id, effect.spans, effect.reached)
        except SourceError:  # problems with the source are reported by its reader, and by the check itself
            return told
        before_ms, target_ts = self._now_ms() - late_ms(spec), spec.source.target_ts
        last_ms = before_ms if target_ts is None else min(before_ms, physical_ms(target_ts))
        unapplied = {span: append_ms for span, append_ms in found.unapplied.items() if append_ms <= last_ms}
        return replace(told, unapplied=unapplied, complete=found.complete, looked_ms=looked_ms)

    def _without_change_logs(self, joined: tuple[SpanPlan, ...]) -> tuple[tuple[SpanPlan, ...], tuple[str, ...]]:
        """The tables whose topic does not belong to a change log, and a notice for each of the others."""
        names = self._change_logs.names_by_topic() if joined and self._change_logs is not None else {}
        wrong = [plan.topic for plan in joined if plan.topic in names]
        return (
            tuple(plan for plan in joined if plan.topic not in names),
            tuple(f"topic {topic} is left out: it is of change log {names[topic]}" for topic in wrong),
        )

    def _resolve_start(self, effect: ResolveStart) -> StartResolved | FeedRefused | EffectFailed:
        try:
            start = _start_of(effect.start)
            if isinstance(start, int):
                self._check_evidence(parse_feed(effect.spec), start)
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
            return _refused(error.code, str(error))
        except FeedSpecError as error:
            return _refused("feed_spec", str(error))
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

    def _check_evidence(self, spec: FeedSpec, ts: int) -> None:
        source = spec.source
        if not source.gives_resolved_ts:
            raise StartImpossibleError(
                f"a feed of format {source.format} cannot go back to a time: {no_evidence()}; use earliest, "
                "latest, or offsets"
            )
        if source.target_ts is not None and ts >= source.target_ts:
            raise StartImpossibleError(f"{show_ts(ts)} is not before the feed's target {show_ts(source.target_ts)}")

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

    def _check_sink(
        self, spec: FeedSpec, spans: tuple[SpanPlan, ...], seen: Mapping[str, Seen], known: Collection[str]
    ) -> _Checked:
        """Check the sink, and return its findings with warnings on its tables.

        Raises SinkError, also where a running feed holds a table (under any address), and where the sink is the source;
        SourceError.
        """
        spec = spec.model_copy(update={"sink": same_sink(spec.sink)})
        check_named_once(spec, spans, known)
        missing = self._missing(spec, spans)
        sink_id, shapes, fired = self._shapes(spec, tuple(p for p in spans if p.table not in missing.lacking))
        planned = {table.name: table for table in missing.tables.created}  # by whole tables
        there = [
            SinkTable(plan.topic, plan.table, _of_source(plan, shape.columns), shape.defaults)
            for plan in spans
            if (shape := shapes.get(plan.table) or planned.get(whole_table(plan.table))) is not None
        ]
        warnings = (
            *fired,
            *connector_warnings(there, shaped_seen(spec, spans, seen)),
            *altered_warnings(missing.tables.created),
        )
        said = tables_said(self._connection, spec, spans)
        check_source_tables(spec, spans, said, seen, shapes, known=known)
        joining = [plan for plan in spans if plan.table in shapes and normal_table(plan.table) not in known]
        doubts = check_joining(spec, joining, said, event_schemas(self._connection, spec, spans))
        return _Checked(spec, sink_id, (*warnings, *doubts), missing, shapes)

    def _shapes(
        self, spec: FeedSpec, spans: tuple[SpanPlan, ...]
    ) -> tuple[str | None, dict[str, TableShape], list[str]]:
        """The sink's identity, its tables, and warnings about triggers on their rows. Raises SinkError."""
        # No row at the sink is this feed's: a new one has none, one that is updated has sealed them all.
        nobody = FeedIdentity(self._cluster_id, "", spec.feed)
        sink_id: str | None = None
        shapes: dict[str, TableShape] = {}
        fired: list[str] = []
        for number, (own, plans) in enumerate(by_session_options(spec, spans)):
            with closing(open_sink(own.sink)) as sink:
                if number == 0 and isinstance(sink, SelfAware):
                    sink_id = sink.own_id()
                    self._check_circle(spec, spans, sink)
                tables = [plan.table for plan in plans]
                if isinstance(sink, OfTopics):
                    sink.check_sources(tables, nobody, partial(_reads, spec, spans))
                found = sink.check(tables, nobody)
            fired += trigger_warnings(own.sink, found.values())
            shapes |= found
        return sink_id, shapes, fired

    def _missing(self, spec: FeedSpec, spans: tuple[SpanPlan, ...]) -> MissingTables:
        """Tables that agents will create. Raises SinkError where one of them cannot be created, SourceError."""
        check_types(spec, spans)
        said, described = tables_said(self._connection, spec, spans), event_schemas(self._connection, spec, spans)
        missing = plan_missing(spec, spans, said, described)
        check_created(missing)
        check_alterable(spec, spans)
        return missing

    def _check_circle(self, spec: FeedSpec, spans: tuple[SpanPlan, ...], sink: SelfAware) -> None:
        """Raise CircleError where the feed would write into the tables that its own changes come from.

        Detected: Debezium's events name the very database and table that the sink has, and the sink publishes that
        table to a logical replication slot. Not detected: other formats, a source without recent events, a circle over
        several feeds, a source that is not read by logical replication (a connector that polls).
        """
        if spec.sink.not_the_source or not FORMATS[spec.source.format].tells_origin:
            return
        by_topic = origins(self._connection, {plan.topic: len(plan.start) for plan in spans})
        names = source_tables(spec)
        found = {
            plan.table: msgspec.structs.replace(origin, table=names.get(normal_table(plan.table), origin.table))
            for plan in spans
            if (origin := by_topic.get(plan.topic)) is not None
        }
        named: dict[str, list[SpanPlan]] = {}
        for plan in spans:
            origin = found.get(plan.table)
            is_alike = origin is not None and origin.connector in plug_of(spec.sink.type).connectors
            if origin is not None and is_alike and _last_part(origin.table) == _last_part(plan.table):
                named.setdefault(origin.database, []).append(plan)
        for database, plans in sorted(named.items()):
            published = sink.published(database, [whole_table(plan.table) for plan in plans])
            for plan in plans:
                if found[plan.table].table in published:
                    raise CircleError(
                        f"table {plan.table} is the source of topic {plan.topic}: its events come from database "
                        f"{database}, table {found[plan.table].table}, which the sink has and publishes; every change "
                        "would come back as a new one. Name another database or table, or set sink.not_the_source: "
                        "true if the sink is a copy with the same names"
                    )

    def _forget(self, effect: ForgetFeed) -> FeedForgotten | EffectFailed:
        try:
            spec = parse_feed(effect.spec)
            with closing(open_sink(spec.sink)) as sink:
                sink.forget(FeedIdentity(self._cluster_id, effect.feed_id, effect.feed))
            if spec.source.change_log is not None and self._change_logs is not None:
                self._change_logs.forget(spec.source.change_log, reader_of_feed(effect.feed))
        except (FeedSpecError, SinkError, SourceError) as error:
            return EffectFailed(str(error))
        return FeedForgotten()


def _named_once(
    spec: FeedSpec, joined: tuple[SpanPlan, ...], known: Sequence[SpanPlan]
) -> tuple[tuple[SpanPlan, ...], tuple[str, ...]]:
    """The tables that the feed does not have under another name, and a notice for each of the others."""
    if not joined:
        return joined, ()
    try:
        twice = named_twice(spec, joined, known)
    except SinkError as error:
        topics = shown_names(sorted(plan.topic for plan in joined))
        return (), (f"not joined yet: {topics}: {error.code}: {error}",)
    return (
        tuple(plan for plan in joined if plan.table not in twice),
        tuple(f"topic {plan.topic} is left out: {twice[plan.table]}" for plan in joined if plan.table in twice),
    )


def _reads(spec: FeedSpec, spans: tuple[SpanPlan, ...], topic: str) -> bool:
    """Whether the feed reads a topic, or will once it exists."""
    pattern = spec.source.topic_pattern
    return any(plan.topic == topic for plan in spans) or (pattern is not None and bool(re.fullmatch(pattern, topic)))


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


def _of_source(plan: SpanPlan, columns: Mapping[str, str]) -> Mapping[str, str]:
    """Without the discriminator's, which no event has."""
    part = slice_of(plan.table)
    return columns if part is None else {name: type_ for name, type_ in columns.items() if name != part.column}


def _refused(code: str, reason: str) -> FeedRefused:
    return FeedRefused(coded(code, reason))


def _last_part(table: str) -> str:
    return split_table(table)[1]
