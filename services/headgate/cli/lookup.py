"""Lookups in a snapshot of the log: things by their names."""

from collections.abc import Sequence

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.config.wording import known_names
from headgate.eventlog.snapshot import Snapshot
from headgate.records.control import FeedRecorded
from headgate.records.generation import SetKey
from headgate.records.keys import DeadLetterKey, FeedKey
from headgate.records.migration import MigrationKey, MigrationRecorded
from headgate.records.name_lists import shown_names
from headgate.records.spans import table_of
from headgate.records.timestamps import TimestampSetKey
from headgate.views.rows import agent_rows


def not_found(what: str, known: Sequence[str], how: str, is_not: str = "does not exist") -> CommandError:
    """That ``what`` (``feed 'shp'``) does not exist, with the nearest name, the known ones, and ``how`` to continue."""
    name = what.rpartition(" ")[2].strip("'")
    told = known_names(name, known) if known else f"There are none yet: {how}"
    return CommandError(ExitCode.NOT_FOUND, f"{what} {is_not}. {told}")


def find_feed(snapshot: Snapshot, feed: str) -> FeedRecorded:
    """The feed's record; raises CommandError with the names there are."""
    record = snapshot.get(FeedKey(feed), FeedRecorded)
    if record is None:
        names = [key.feed for key, _ in snapshot.each(FeedKey, FeedRecorded)]
        raise not_found(f"feed {feed!r}", names, "`headgate feed create FILE`")
    return record


def parts_of(snapshot: Snapshot, feed: str) -> list[str]:
    """The tables of a feed as they run: a table that is split by its parts. Raises CommandError."""
    return [plan.span for plan in find_feed(snapshot, feed).spans]


def tables_of(snapshot: Snapshot, feed: str) -> list[str]:
    """The whole tables of a feed, sorted. Raises CommandError."""
    return sorted({table_of(part) for part in parts_of(snapshot, feed)})


def find_table(snapshot: Snapshot, feed: str, table: str) -> None:
    """Raises CommandError if the feed, or its table of this name, does not exist."""
    parts = parts_of(snapshot, feed)
    if table not in parts and table not in map(table_of, parts):
        raise not_found(f"table {table!r}", parts, f"`headgate table list {feed}`")


def place_of(key: DeadLetterKey) -> str:
    """Where in its source topic a change that was set aside is: ``topic/partition/offset``."""
    return f"{key.source_topic}/{key.partition}/{key.offset}"


def live_agents(snapshot: Snapshot) -> list[str]:
    """Names of agents that have a session that is alive, sorted."""
    return sorted({row.agent for row in agent_rows(snapshot) if row.state != "dead"})


def find_agent(snapshot: Snapshot, agent: str) -> None:
    """Raises CommandError if no session of an agent of this name is alive."""
    alive = live_agents(snapshot)
    if agent not in alive:
        raise not_found(f"agent {agent!r}", alive, "`headgate serve agent`", "is not alive")


def find_migration(snapshot: Snapshot, migration: str) -> MigrationRecorded:
    """The migration's record. Raises CommandError with the names there are."""
    record = snapshot.get(MigrationKey(migration), MigrationRecorded)
    if record is None:
        known = sorted(key.migration for key in snapshot.keys(MigrationKey))
        raise not_found(f"migration {migration!r}", known, "`headgate migration submit`")
    return record


def find_set(snapshot: Snapshot, key: SetKey | TimestampSetKey) -> None:
    """Raises CommandError if the change log, or the set of timestamps, does not exist."""
    known = sorted(each.set for each in snapshot.keys(type(key)))
    if key.set not in known:
        raise not_found_set(key, known)


def not_found_set(key: SetKey | TimestampSetKey, known: Sequence[str]) -> CommandError:
    """That a change log, or a set of timestamps, does not exist."""
    is_log = isinstance(key, SetKey)
    what, how = ("change log", "create") if is_log else ("timestamp set", "timestamps create")
    return not_found(f"{what} {key.set!r}", known, f"`headgate generation {how}`")


def not_found_generation(of: str, generation: int, known: Sequence[int], gone: str) -> CommandError:
    """That a change log, or a set of timestamps, does not have that generation. ``gone``: what old ones are."""
    there = f"It has {shown_names(list(map(str, known)))}" if known else "It has none yet"
    return CommandError(ExitCode.NOT_FOUND, f"{of} has no generation {generation}, or it is {gone}. {there}")
