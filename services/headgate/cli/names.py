"""Names that the TAB key completes: of feeds, tables, agents, migrations, change logs and timestamp sets.

They are read from the cluster that the line names so far, in a bounded time. If nothing answers, or the settings are
wrong, nothing is offered and nothing is printed: the command itself explains that when it is run.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Final

import msgspec
import typer

from headgate.app.cluster import topics_of_others
from headgate.cli.lookup import live_agents, parts_of, place_of, tables_of
from headgate.cli.options import ClusterOptions, cluster_flags, connected
from headgate.eventlog.sharding import DEADLETTER
from headgate.eventlog.snapshot import Snapshot, all_partitions, read_snapshot
from headgate.records.control import ChangeQuarantined, FeedRecorded
from headgate.records.generation import ReaderKey, SetKey, SetRecorded
from headgate.records.keys import DeadLetterKey, FeedKey
from headgate.records.migration import MigrationKey
from headgate.records.timestamps import (
    RingKey,
    RingRecorded,
    TimestampReaderKey,
    TimestampSetKey,
    TimestampSetRecorded,
)
from headgate.supervision.threads import BackgroundThread

NAMES_SECONDS_MAX: Final = 2.0
"""How long the TAB key may take beside the start of the command. A cluster answers in some tenths of a second."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~/:@%+,=-]+\Z")
"""Names that mean the same to every shell. Shells evaluate what completion offers, and names are written by others."""

Complete = Callable[[typer.Context, str], list[str]]
"""The function that typer calls for the names that fit at a place."""

Given = Mapping[str, object]
"""The values of the command's parameters that are typed already."""


def within_bounds(find: Callable[[], Iterable[str]]) -> list[str]:
    """The names that ``find`` returns, sorted; none if it fails. If it takes too long, the process ends, silently."""
    found: list[list[str]] = []

    def search() -> None:
        with suppress(Exception):  # the command itself reports the error when it is run
            found.append(sorted({name for name in find() if _PLAIN.match(name)}))

    before = logging.root.manager.disable
    logging.disable()
    try:
        thread = BackgroundThread(search, name="completion")
        thread.start()
        thread.join(NAMES_SECONDS_MAX)
        if thread.is_alive():
            # There is nothing to offer, and the interpreter's own end would abort the process loudly: librdkafka
            # does not survive that a thread which is in one of its calls is ended.
            os._exit(0)
    finally:
        logging.disable(before)
    return found[0] if found else []


def _on(topics: tuple[str, ...], names: Callable[[Snapshot, Given], Iterable[str]]) -> Complete:
    """Names as the records on these control topics have them; all topics with current state if none is given."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        def find() -> Iterable[str]:
            given = _typed(ctx)
            cluster = msgspec.convert(given, ClusterOptions)
            with connected(cluster) as (_, log):
                return list(names(read_snapshot(log, all_partitions(log, topics) if topics else None), given))

        return [name for name in within_bounds(find) if name.startswith(incomplete)]

    return complete


def _typed(ctx: typer.Context) -> Given:
    """What is typed already. Click does not read arguments behind an option without a value."""
    arguments = [each.name for each in ctx.command.params if each.param_type_name == "argument" and each.name]
    unread = dict(zip([name for name in arguments if ctx.params.get(name) is None], ctx.args, strict=False))
    return {**ctx.params, **unread}


def _feeds(snapshot: Snapshot, _given: Given) -> Iterable[str]:
    return (key.feed for key in snapshot.keys(FeedKey))


def _of_feed(names: Callable[[Snapshot, str], Iterable[str]]) -> Callable[[Snapshot, Given], Iterable[str]]:
    """Names within the feed that is typed already, or within all feeds."""

    def found(snapshot: Snapshot, given: Given) -> Iterable[str]:
        feeds = [key.feed for key in snapshot.keys(FeedKey) if given.get("feed") in (None, key.feed)]
        return (name for feed in feeds for name in names(snapshot, feed))

    return found


def _topics(snapshot: Snapshot, feed: str) -> Iterable[str]:
    record = snapshot.get(FeedKey(feed), FeedRecorded)
    return (plan.topic for plan in (() if record is None else record.spans))


def _letters(name_of: Callable[[DeadLetterKey, ChangeQuarantined], str]) -> Callable[[Snapshot, Given], Iterable[str]]:
    """Names that changes set aside have, within the feed that is typed already, or within all feeds."""

    def found(snapshot: Snapshot, given: Given) -> Iterable[str]:
        letters = snapshot.each(DeadLetterKey, ChangeQuarantined)
        return (name_of(key, letter) for key, letter in letters if given.get("feed") in (None, key.feed))

    return found


def _migrations(snapshot: Snapshot, _given: Given) -> Iterable[str]:
    return (key.migration for key in snapshot.keys(MigrationKey))


def _change_logs(snapshot: Snapshot, _given: Given) -> Iterable[str]:
    return (key.set for key, record in snapshot.each(SetKey, SetRecorded) if record.topic)


def _generations(snapshot: Snapshot, given: Given) -> Iterable[str]:
    record = snapshot.get(SetKey(str(given.get("name"))), SetRecorded)
    return (str(each.epoch) for each in (() if record is None else record.generations))


def _readers(snapshot: Snapshot, given: Given) -> Iterable[str]:
    return (key.reader for key in snapshot.keys(ReaderKey) if key.set == given.get("name"))


def _timestamp_sets(snapshot: Snapshot, _given: Given) -> Iterable[str]:
    return (key.set for key in snapshot.keys(TimestampSetKey))


def _timestamps(snapshot: Snapshot, given: Given) -> Iterable[str]:
    record = snapshot.get(TimestampSetKey(str(given.get("name"))), TimestampSetRecorded)
    return (str(each.timestamp_ms) for each in (() if record is None else record.generations))


def _nodes(snapshot: Snapshot, given: Given) -> Iterable[str]:
    """The nodes of the newest ring, which is the one that an update begins from."""
    *_, newest = ("", *_timestamps(snapshot, given))
    ring = snapshot.get(RingKey(str(given.get("name")), int(newest)), RingRecorded) if newest else None
    return (node.name for node in (() if ring is None else ring.nodes))


def _timestamp_readers(snapshot: Snapshot, given: Given) -> Iterable[str]:
    return (key.reader for key in snapshot.keys(TimestampReaderKey) if key.set == given.get("name"))


def complete_broker_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that a cluster of Headgate need not know yet."""

    def find() -> Iterable[str]:
        return topics_of_others(cluster_flags(msgspec.convert(_typed(ctx), ClusterOptions)))

    return [name for name in within_bounds(find) if name.startswith(incomplete)]


def _change_log_topics(snapshot: Snapshot, _given: Given) -> Iterable[str]:
    return (record.topic for _, record in snapshot.each(SetKey, SetRecorded) if record.topic)


complete_feeds: Final = _on(("changefeed",), _feeds)
complete_feed_limits: Final = _on(("changefeed",), lambda snapshot, given: (f"{x}=" for x in _feeds(snapshot, given)))
complete_tables: Final = _on(("changefeed",), _of_feed(tables_of))
complete_parts: Final = _on(("changefeed",), _of_feed(parts_of))
complete_agents: Final = _on((), lambda snapshot, _given: live_agents(snapshot))
complete_topics_of_feeds: Final = _on(("changefeed",), _of_feed(_topics))
complete_places: Final = _on((DEADLETTER,), _letters(lambda key, _letter: place_of(key)))
complete_topics_set_aside: Final = _on((DEADLETTER,), _letters(lambda key, _letter: key.source_topic))
complete_codes_set_aside: Final = _on((DEADLETTER,), _letters(lambda _key, letter: letter.error_code))
complete_migrations: Final = _on(("migration",), _migrations)
complete_migrations_or_all: Final = _on(("migration",), lambda snapshot, given: ["all", *_migrations(snapshot, given)])
complete_feeds_and_migrations: Final = _on(
    ("changefeed", "migration"), lambda snapshot, given: [*_feeds(snapshot, given), *_migrations(snapshot, given)]
)
complete_change_logs: Final = _on(("generation",), _change_logs)
complete_change_log_topics: Final = _on(("generation",), _change_log_topics)
complete_generations: Final = _on(("generation",), _generations)
complete_readers: Final = _on(("generation",), _readers)
complete_timestamp_sets: Final = _on(("generation",), _timestamp_sets)
complete_timestamps: Final = _on(("generation",), _timestamps)
complete_nodes: Final = _on(("generation",), _nodes)
complete_timestamp_readers: Final = _on(("generation",), _timestamp_readers)

FeedName = Annotated[str, typer.Argument(metavar="FEED", help="name of the feed", autocompletion=complete_feeds)]
