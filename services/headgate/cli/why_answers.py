"""What ``headgate why`` prints of a feed and of a migration.

why.py imports this when the log has answered: the machines that explain it take longer to import than a command to
begin.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.cli.ages import age
from headgate.cli.lookup import find_feed
from headgate.cli.output import Output, note, show_rows, show_value
from headgate.cli.why_feed import explained_feed
from headgate.config.feed import parse_feed
from headgate.coordinator.core.feeds.explain import Reason
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError, Partition
from headgate.eventlog.replay import read_to_end
from headgate.eventlog.snapshot import Snapshot
from headgate.migration.core.explain import (
    Beside,
    FeedTables,
    Hold,
    MigrationExplanation,
    explain_migration,
    keeper_of,
    migrations_beside,
)
from headgate.records.control import FeedRecorded, FeedState, OwnerAnnounced, WantedState
from headgate.records.keys import FeedKey
from headgate.records.migration import MigrationKey, MigrationOwnerKey, MigrationRecorded
from headgate.records.migration_standing import waits_for
from headgate.records.name_lists import number_of

MIGRATIONS: Final = (Partition(MigrationKey.topic, 0),)
"""Read by itself: a feed is explained to users without a right on it, too."""


def read_migrations(log: KafkaLog, snapshot: Snapshot) -> dict[str, MigrationRecorded]:
    """The migrations, and all that is on their topic in ``snapshot``. Raises LogError."""
    for delivery in read_to_end(log, MIGRATIONS):
        snapshot.take(delivery)
    return {key.migration: record for key, record in snapshot.each(MigrationKey, MigrationRecorded)}


def why_feed(log: KafkaLog, snapshot: Snapshot, feed: str, output: Output) -> bool:
    """Print what holds a feed, and which migrations change its tables; whether anything holds it."""
    record = find_feed(snapshot, feed)
    migrations: dict[str, MigrationRecorded] = {}
    unknown = ""
    try:
        migrations = read_migrations(log, snapshot)
    except LogError as error:
        unknown = f"{UNKNOWN}: {error}"
    explanation = explained_feed(log, snapshot, feed, keeper_of(migrations, feed))
    held = bool(explanation.feed_held_by or explanation.reasons)
    beside = migrations_beside(migrations, _tables_of(feed, record))
    if output is not Output.TABLE:
        found = [_shown_beside(name, *each) for name, each in beside.items()]
        document = msgspec.to_builtins(explanation)
        show_value(output, {**document, "held": held, "migrations": found, "migrations_unknown": unknown})
        return held
    for line in explanation.feed_held_by:
        note(f"{feed}: {line}")
    _show_reasons(explanation.reasons, output)
    shown = len({reason.span for reason in explanation.reasons})
    if explanation.held_count > shown:
        note(f"and {number_of(explanation.held_count - shown, 'more table')}")
    if not held:
        doing = "finished" if explanation.state is FeedState.FINISHED else "replicating"
        note(f"{feed}: nothing holds it ({number_of(explanation.table_count, 'table')}, {doing})")
    for name, (relation, each) in beside.items():
        doing = ", ".join(filter(None, (each.stage or each.state.value, waits_for(name, each, wall_ms()))))
        note(f"{feed}: migration {name} changes {each.table}, {_RELATIONS[relation]} ({doing}): `headgate why {name}`")
    if unknown:
        note(f"{feed}: {unknown}")
    return held


UNKNOWN: Final = "it is not known whether a migration changes its tables or has paused it"

_RELATIONS: Final[Mapping[Beside, str]] = {
    Beside.COPY: "and this feed brings its copy up to date",
    Beside.SINK: "which this feed writes",
    Beside.MAYBE_SINK: "and this feed writes a table of that name at an address, perhaps of the same database",
    Beside.SOURCE: "whose changes this feed reads",
}


def _tables_of(feed: str, record: FeedRecorded) -> FeedTables:
    return FeedTables(
        feed,
        frozenset(plan.topic for plan in record.spans),
        parse_feed(record.spec).sink.connection,
        frozenset(plan.table for plan in record.spans),
    )


def _shown_beside(name: str, relation: Beside, record: MigrationRecorded) -> dict[str, str]:
    return {
        "id": name,
        "table": record.table,
        "relation": relation.value,
        "state": record.state.value,
        "stage": record.stage,
    }


def why_migration(
    log: KafkaLog, snapshot: Snapshot, migrations: dict[str, MigrationRecorded], name: str, output: Output
) -> bool:
    """Print what holds a migration, its feed included; whether anything does."""
    owner = snapshot.get(MigrationOwnerKey(0), OwnerAnnounced)
    has_owner = owner is not None and owner.lease_seconds > 0
    explanation = explain_migration(migrations, name, owner if has_owner else None, wall_ms())
    of_feed = _reasons_of_its_feed(log, snapshot, explanation)
    held = bool(explanation.reasons or of_feed)
    if output is not Output.TABLE:
        document = {**msgspec.to_builtins(explanation), "feed_reasons": msgspec.to_builtins(of_feed)}
        show_value(output, {**document, "held": held})
        return held
    _show_reasons((*explanation.reasons, *of_feed), output)
    if not held:
        doing = ": ".join(filter(None, (explanation.stage or explanation.state.value, explanation.message)))
        note(f"{name}: nothing holds it ({doing})")
    return held


def _reasons_of_its_feed(log: KafkaLog, snapshot: Snapshot, explanation: MigrationExplanation) -> tuple[Reason, ...]:
    """What holds the feed into the migration's copy; nothing where the migration itself has paused it."""
    record = snapshot.get(FeedKey(explanation.feed), FeedRecorded) if explanation.feed else None
    if record is None or record.wanted is not WantedState.RUNNING:
        return ()
    return explained_feed(log, snapshot, explanation.feed, explanation.migration).reasons


def _show_reasons(reasons: tuple[Reason | Hold, ...], output: Output) -> None:
    rows: list[dict[str, Any]] = [
        {**msgspec.to_builtins(reason), "since": age(wall_ms(), reason.since_ms) if reason.since_ms else None}
        for reason in reasons
    ]
    if rows:
        columns = ("span", "stage", "agent", "since", "detail", "advice")
        show_rows([name for name in columns if any(name in row for row in rows)], rows, output)
