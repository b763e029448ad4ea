"""What holds a feed or a migration, as ``headgate why`` shows it.

why.py imports this when the log has answered: the machines that explain it take longer to import than a command to
begin.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headgate.cli.ages import age
from headgate.cli.lookup import find_feed
from headgate.cli.output import Output, note, show_rows
from headgate.cli.snapshots import reading_topics
from headgate.cli.why_feed import explained_feed
from headgate.config.feed import parse_feed
from headgate.coordinator.core.feeds.explain import Explanation, Reason
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
from headgate.records.stored_names import plans_today

MIGRATIONS: Final = (Partition(MigrationKey.topic, 0),)
"""Read by itself: a feed is explained to users without a right on it, too."""

COMPARED_AFTER_SECONDS: Final = 30
"""From then on the owner has compared a feed's positions with its source twice, which it does every ten seconds: a
table that makes no progress is seen by the second time (sources/unapplied.py)."""


def read_migrations(log: KafkaLog, snapshot: Snapshot) -> dict[str, MigrationRecorded]:
    """The migrations, and all that is on their topic in ``snapshot``. Raises LogError."""
    with reading_topics():
        for delivery in read_to_end(log, MIGRATIONS):
            snapshot.take(delivery)
    return {key.migration: record for key, record in snapshot.each(MigrationKey, MigrationRecorded)}


@dataclass(frozen=True, slots=True)
class FeedAnswer:
    """What holds a feed, and which migrations change its tables. ``unknown``: why that is not known."""

    feed: str
    explanation: Explanation
    migrations: Mapping[str, tuple[Beside, MigrationRecorded]]
    unknown: str

    @property
    def is_held(self) -> bool:
        """Whether anything holds one of its tables, or the feed as a whole."""
        return bool(self.explanation.feed_held_by or self.explanation.reasons)

    def document(self) -> dict[str, object]:
        """For ``-o json``."""
        return {
            **msgspec.to_builtins(self.explanation),
            "held": self.is_held,
            "migrations": [_shown_beside(name, *each) for name, each in self.migrations.items()],
            "migrations_unknown": self.unknown,
        }

    def show(self, *, named: bool = False) -> None:
        """Print it for people, with ``named`` beside other answers."""
        explanation = self.explanation
        for line in explanation.feed_held_by:
            note(f"{self.feed}: {line}")
        _show_reasons(explanation.reasons, {"feed": self.feed} if named else {})
        shown = len({reason.span for reason in explanation.reasons})
        if explanation.held_count > shown:
            note(f"and {number_of(explanation.held_count - shown, 'more table')}")
        if not self.is_held:
            note(f"{self.feed}: {_unheld(explanation, wall_ms())}")
        for name, (relation, each) in self.migrations.items():
            doing = ", ".join(filter(None, (each.stage or each.state.value, waits_for(name, each, wall_ms()))))
            changes = f"migration {name} changes {each.table}, {_RELATIONS[relation]} ({doing})"
            note(f"{self.feed}: {changes}: `headgate why {name}`")
        if self.unknown:
            note(f"{self.feed}: {self.unknown}")


def _unheld(explanation: Explanation, now_ms: int) -> str:
    """That nothing holds a feed, as far as that can be known already."""
    tables, runs = number_of(explanation.table_count, "table"), explanation.wanted is WantedState.RUNNING
    is_finished = explanation.state is FeedState.FINISHED
    since_seconds = (now_ms - explanation.changed_ms) // 1000
    if not runs or is_finished or since_seconds >= COMPARED_AFTER_SECONDS:
        return f"nothing holds it ({tables}, {'finished' if is_finished else 'replicating'})"
    return (
        f"nothing is known to hold it yet ({tables}, replicating). It was created or changed {max(0, since_seconds)} s "
        f"ago, and changes that wait are seen after {COMPARED_AFTER_SECONDS} s. Run the command again then"
    )


@dataclass(frozen=True, slots=True)
class MigrationAnswer:
    """What holds a migration, and what holds the feed that fills its copy."""

    explanation: MigrationExplanation
    of_feed: tuple[Reason, ...]

    @property
    def is_held(self) -> bool:
        """Whether anything holds it or its feed."""
        return bool(self.explanation.reasons or self.of_feed)

    def document(self) -> dict[str, object]:
        """For ``-o json``."""
        of_feed = msgspec.to_builtins(self.of_feed)
        return {**msgspec.to_builtins(self.explanation), "feed_reasons": of_feed, "held": self.is_held}

    def show(self, *, named: bool = False) -> None:
        """Print it for people, with ``named`` beside other answers."""
        explanation = self.explanation
        _show_reasons((*explanation.reasons, *self.of_feed), {"migration": explanation.migration} if named else {})
        if not self.is_held:
            doing = ": ".join(filter(None, (explanation.stage or explanation.state.value, explanation.message)))
            note(f"{explanation.migration}: nothing holds it ({doing})")


def known_migrations(log: KafkaLog, snapshot: Snapshot) -> tuple[dict[str, MigrationRecorded], str]:
    """The migrations; where they cannot be read, none, and the reason."""
    try:
        return read_migrations(log, snapshot), ""
    except LogError as error:
        return {}, f"{UNKNOWN}: {error}"


def why_feed(
    log: KafkaLog, snapshot: Snapshot, feed: str, migrations: dict[str, MigrationRecorded], unknown: str
) -> FeedAnswer:
    """What holds a feed, and which of ``migrations`` change its tables; ``unknown``: why they are not known.

    Raises what ``explained_feed`` does.
    """
    record = find_feed(snapshot, feed)
    explanation = explained_feed(log, snapshot, feed, keeper_of(migrations, feed))
    return FeedAnswer(feed, explanation, migrations_beside(migrations, feed_tables(feed, record)), unknown)


UNKNOWN: Final = "it is not known whether a migration changes its tables or has paused it"

_RELATIONS: Final[Mapping[Beside, str]] = {
    Beside.COPY: "and this feed brings its copy up to date",
    Beside.SINK: "which this feed writes",
    Beside.MAYBE_SINK: "and this feed writes a table of that name at an address, perhaps of the same database",
    Beside.SOURCE: "whose changes this feed reads",
}


def feed_tables(feed: str, record: FeedRecorded) -> FeedTables:
    """What a migration's table is compared with."""
    return FeedTables(
        feed,
        frozenset(plan.topic for plan in record.spans),
        parse_feed(record.spec).sink.connection,
        frozenset(plan.table for plan in plans_today(record)),
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
    log: KafkaLog, snapshot: Snapshot, migrations: dict[str, MigrationRecorded], name: str
) -> MigrationAnswer:
    """What holds a migration, its feed included."""
    owner = snapshot.get(MigrationOwnerKey(0), OwnerAnnounced)
    has_owner = owner is not None and owner.lease_seconds > 0
    explanation = explain_migration(migrations, name, owner if has_owner else None, wall_ms())
    return MigrationAnswer(explanation, _reasons_of_its_feed(log, snapshot, explanation))


def _reasons_of_its_feed(log: KafkaLog, snapshot: Snapshot, explanation: MigrationExplanation) -> tuple[Reason, ...]:
    """What holds the feed into the migration's copy; nothing where the migration itself has paused it."""
    record = snapshot.get(FeedKey(explanation.feed), FeedRecorded) if explanation.feed else None
    if record is None or record.wanted is not WantedState.RUNNING:
        return ()
    return explained_feed(log, snapshot, explanation.feed, explanation.migration).reasons


def _show_reasons(reasons: tuple[Reason | Hold, ...], whose: Mapping[str, str]) -> None:
    rows: list[dict[str, Any]] = [
        {**whose, **msgspec.to_builtins(reason), "since": age(wall_ms(), reason.since_ms) if reason.since_ms else None}
        for reason in reasons
    ]
    if rows:
        columns = (*whose, "span", "stage", "agent", "since", "detail", "advice")
        show_rows([name for name in columns if any(name in row for row in rows)], rows, Output.TABLE)
