"""Executes the coordinator's effects: resolves new feeds at brokers and databases, and cleans up removed ones.

Problems are refused with their reason. What only cannot be checked now (Headgate's own broker is down) is reported as
failed, and is requested again.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from msgspec.structs import replace

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.config.null_conditions import check_null_conditions
from headgate.coordinator.core.effects import (
    DiscoverTables,
    FeedEffect,
    FeedForgotten,
    FeedRefused,
    FeedResolved,
    FeedResult,
    ForgetFeed,
    ResolveFeed,
    ResolveStart,
    TablesDiscovered,
)
from headgate.coordinator.shell.feed_checks import FeedChecks
from headgate.coordinator.shell.joining_tables import JoiningTables
from headgate.coordinator.shell.source_database import check_source_database
from headgate.coordinator.shell.start_positions import StartPositions
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.connection import KafkaConnection
from headgate.formats.decoding import SchemasUnavailableError
from headgate.formats.schema_registry import registry_of
from headgate.records.control import SpanPlan
from headgate.records.identifiers import normal_table
from headgate.records.name_lists import shown_names
from headgate.records.names import InvalidNameError, check_name
from headgate.records.refusals import coded
from headgate.records.spans import wholes
from headgate.records.stored_names import plan_today
from headgate.records.ts import physical_ms
from headgate.runtime.machine import EffectFailed
from headgate.sinks.contract import FeedIdentity, SinkError, SinkRefusedError
from headgate.sinks.registry import open_sink, server_of
from headgate.sources.change_logs import ChangeLogs, ChangeLogUnavailableError, reader_of_feed
from headgate.sources.database import same_source
from headgate.sources.discovery import added_partitions, look_again
from headgate.sources.offsets import SourceError, SourceUnreachableError
from headgate.sources.skips import with_topic_ids
from headgate.sources.table_options import check_patterns
from headgate.sources.topics import no_match, plan_spans, present_topics
from headgate.sources.unapplied import UnappliedWatch
from headgate.tables.named_once import named_twice
from headgate.tables.snapshots import snapshot_copies

__all__ = ["FeedWork", "crashed", "server_of_effect"]


def server_of_effect(effect: FeedEffect) -> str:
    """The sink server that an effect may have to wait for; empty if its feed's description does not name one."""
    try:
        return server_of(parse_feed(effect.spec).sink)
    except (FeedSpecError, SinkRefusedError):  # running the effect reports what is wrong
        return ""


def crashed(effect: FeedEffect, reason: str) -> FeedRefused | EffectFailed:
    """The result of an effect that met a bug: the client gets an error, and only a clean-up is retried."""
    return EffectFailed(reason) if isinstance(effect, ForgetFeed) else FeedRefused(reason)


_log = logging.getLogger(__name__)

LATE_MS: Final = 10_000
"""A change that has waited for less, beyond the sink's commit interval, is on its way."""

LATE_MS_SHARED: Final = 30_000
"""The same where a table's position follows late: in a topic of several tables it may be behind others' changes for ten
seconds, in a change log behind records that no longer belong to any stream."""


def late_ms(spec: FeedSpec) -> int:
    """How old a change of the feed is at least that is late."""
    follows_late = bool(spec.source.tables) or spec.source.change_log is not None
    return (LATE_MS_SHARED if follows_late else LATE_MS) + round(spec.commit_interval_seconds * 1000)


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
        self._checks = FeedChecks(connection, cluster_id)
        self._starts = StartPositions(connection, change_logs)
        self._joining = JoiningTables()

    def run(self, effect: FeedEffect) -> FeedResult:
        """The result, of a type that the effect names."""
        match effect:
            case ResolveFeed():
                return self.resolve(effect)
            case ResolveStart():
                return self._starts.resolve(effect)
            case DiscoverTables():
                return self._discover(effect)
            case ForgetFeed():
                return self._forget(effect)

    def resolve(self, effect: ResolveFeed) -> FeedResolved | FeedRefused | EffectFailed:
        """Check everything, write nothing: ``--dry-run`` calls it too."""
        try:
            spec = parse_feed(effect.spec)
            if check_name("feed", spec.feed) != effect.feed:
                return _refused(
                    "feed_spec", f"the request is for feed {effect.feed!r}, its description for {spec.feed!r}"
                )
            before = _readable(effect.before)
            check_null_conditions(spec, before)
            spans = plan_spans(self._connection, spec, self._own_prefix, self._change_logs, wholes(effect.known))
            spec = with_topic_ids(spec, spans)
            spec = same_source(spec)
            if (registry := registry_of(spec.source)) is not None:
                registry.check()
            check_source_database(self._connection, spec, {plan.topic: len(plan.start) for plan in spans})
            unmatched = check_patterns(spec, spans)
            known = {normal_table(plan.table) for plan in wholes(effect.known)}
            checked = self._checks.check(spec, spans, known, before)
            new = tuple(plan for plan in spans if normal_table(plan.table) not in known)
            warnings = self._checks.check_snapshots(checked, new)
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

    def _discover(self, effect: DiscoverTables) -> TablesDiscovered | FeedRefused | EffectFailed:
        try:
            spec = parse_feed(effect.spec)
            plans = [plan_today(effect.spec, plan) for plan in effect.spans]
            found = look_again(self._connection, spec, plans, self._own_prefix)
            joined, others = self._without_change_logs(found.joined)
            joined, twice = _named_once(spec, joined, plans)
            joined, wrong, warnings = self._joining.fit(
                effect.feed_id, joined, lambda plans: self._checks.check_joining(spec, plans)
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

    def _forget(self, effect: ForgetFeed) -> FeedForgotten | EffectFailed:
        try:
            spec = parse_feed(effect.spec)
        except FeedSpecError as error:  # trying again does not make it readable, and the feed could never be deleted
            why = "is deleted. What its sink and its change log keep for it stays, because it cannot be read"
            _log.error("feed %s %s: %s", effect.feed, why, error)
            return FeedForgotten()
        try:
            with closing(open_sink(spec.sink)) as sink:
                sink.forget(FeedIdentity(self._cluster_id, effect.feed_id, effect.feed))
            if spec.source.change_log is not None and self._change_logs is not None:
                self._change_logs.forget(spec.source.change_log, reader_of_feed(effect.feed))
        except (SinkError, SourceError) as error:
            return EffectFailed(str(error))
        return FeedForgotten()


def _readable(before: str) -> FeedSpec | None:
    """What an updated feed was so far; None if it cannot be read, so that an update can mend it."""
    try:
        return parse_feed(before) if before else None
    except FeedSpecError:
        return None


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


def _refused(code: str, reason: str) -> FeedRefused:
    return FeedRefused(coded(code, reason))
