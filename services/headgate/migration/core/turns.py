"""Which migrations may run beside each other, and which wait for others of their context.

The scheduler goes by these rules, and ``headgate why`` explains a wait by them. They follow from the records alone.
"""

from collections.abc import Iterable

from headgate.migration.core.spec import parse_spec
from headgate.records.migration import MigrationRecorded, MigrationState
from headgate.records.migration_standing import PENDING

Named = tuple[str, MigrationRecorded]
"""A migration's id and record."""


def is_same_database(one: MigrationRecorded, other: MigrationRecorded) -> bool:
    """Whether two migrations change one database: by its identity, not by the name that it was given.

    Records of earlier versions have no identity. They are of one database if they have one name.
    """
    if one.server and other.server:
        return one.server == other.server
    first, second = parse_spec(one.spec).database, parse_spec(other.spec).database
    return first == second != ""


def held_off_by(migrations: Iterable[Named], proposed: MigrationRecorded) -> list[str]:
    """The running migrations that must end, or get farther, before ``proposed`` may start."""
    return [
        name for name, record in migrations if record.state is MigrationState.RUNNING and _conflicts(record, proposed)
    ]


def _conflicts(running: MigrationRecorded, proposed: MigrationRecorded) -> bool:
    """Two of one database: never the same table, one copy at a time, and both at once only if one of them allows it."""
    if not is_same_database(running, proposed):
        return False
    first, second = parse_spec(running.spec), parse_spec(proposed.spec)
    if running.table == proposed.table or not (first.allow_concurrent or second.allow_concurrent):
        return True
    return not proposed.is_immediate and not running.is_immediate and not running.was_ready


def changing_before(migrations: Iterable[Named], record: MigrationRecorded) -> list[str]:
    """Migrations submitted before ``record`` that change its table, or are about to.

    A declarative one reports that the table is as wanted. So it counts also those that wait for an approval, a launch
    or a completion: they would make that untrue.
    """
    states = PENDING if parse_spec(record.spec).declarative else (MigrationState.READY, MigrationState.RUNNING)
    return [
        name
        for name, other in migrations
        if (other.state in states or is_retried_by_itself(other))
        and not other.has_nothing_to_do
        and other.sequence < record.sequence
        and other.table == record.table
        and is_same_database(other, record)
    ]


def is_retried_by_itself(record: MigrationRecorded) -> bool:
    """Whether it failed with its owner and is queued again by the next one: once only."""
    return record.state is MigrationState.FAILED and record.owner_failed and record.retries == 0


def pending_before(migrations: Iterable[Named], record: MigrationRecorded) -> list[str]:
    """Migrations that must complete before ``record`` does; none unless it asked for completion in order."""
    if not parse_spec(record.spec).in_order_completion:
        return []
    return [name for name, other in _same_context(migrations, record) if other.state in PENDING]


def broken_before(migrations: Iterable[Named], record: MigrationRecorded) -> str | None:
    """One that should have completed before ``record``, and will not; None unless it asked for completion in order."""
    if not parse_spec(record.spec).in_order_completion:
        return None
    for name, other in _same_context(migrations, record):
        if other.state in (MigrationState.FAILED, MigrationState.CANCELLED) and not is_retried_by_itself(other):
            return name
    return None


def _same_context(migrations: Iterable[Named], record: MigrationRecorded) -> list[Named]:
    """Those submitted before it in its context, to its database."""
    context = parse_spec(record.spec).context
    return [
        (name, other)
        for name, other in migrations
        if other.sequence < record.sequence
        and parse_spec(other.spec).context == context
        and is_same_database(other, record)
    ]
