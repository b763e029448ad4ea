"""What ``headgate cluster delete`` will remove: all that Headgate made and that can be found."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.app.sink_leftovers import Leftover, LeftoverState, SinkPlace, examine, places_once
from headgate.cli.source import target_at
from headgate.cli.waiting import OnStatus, waiting
from headgate.config.feed import parse_feed
from headgate.config.rights import group_stems
from headgate.databases.address import AddressOptions
from headgate.databases.connections import Use, connection_names, named
from headgate.databases.kinds import CONNECTED, kind_of
from headgate.eventlog.consumer_groups import groups_of_cluster
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.snapshot import Snapshot
from headgate.eventlog.topics import CONTROL_TOPICS, topic_name
from headgate.generation.changelog.shell.wire import positions_topic
from headgate.records.control import ChangeQuarantined, FeedRecorded
from headgate.records.generation import SetKey, SetRecorded
from headgate.records.keys import DeadLetterKey, FeedKey
from headgate.records.name_lists import number_of, shown_names
from headgate.sinks.registry import target_of

__all__ = ["DeletionPlan", "GivenSinks", "change_logs_of", "feeds_of", "planned"]

_USES: Final = (Use.SINK, Use.MIGRATION)

_SINK: Final = AddressOptions("--sink", "--sink-password-file", "sink")


class GivenSinks(msgspec.Struct, frozen=True):
    """Sinks that the user named: connections or addresses, and the file with the password of the addresses."""

    named: Sequence[str] = ()
    password_file: Path | None = None


class DeletionPlan(msgspec.Struct, frozen=True):
    """All there is of a cluster. ``change_logs``: name → its topics. ``sinks``: each place, and what is there."""

    topics: list[str]
    groups: list[str]
    feeds: list[str]
    change_logs: dict[str, list[str]]
    dead_letters: int
    sinks: list[tuple[SinkPlace, Leftover]]

    @property
    def is_used(self) -> bool:
        """Whether services have work to finish before the control topics can go."""
        return bool(self.feeds or self.change_logs)

    def rows(self) -> list[dict[str, str]]:
        """For people: each part with its names."""
        return [row for row in (*self._kafka_rows(), *self._sink_rows()) if row["names"]]

    def _kafka_rows(self) -> Iterator[dict[str, str]]:
        logs = [f"{name} (topics {', '.join(topics)})" for name, topics in self.change_logs.items()]
        yield _row("feeds", shown_names(self.feeds))
        yield _row("change logs", shown_names(logs))
        yield _row("consumer groups", shown_names(self.groups))
        yield _row("dead letters", number_of(self.dead_letters, "dead letter") if self.dead_letters else "")
        yield _row("control topics", shown_names(self.topics))

    def _sink_rows(self) -> Iterator[dict[str, str]]:
        for _, found in self.sinks:
            why = f": {found.why}" if found.why else ""
            yield _row(found.what or "nothing", found.place, f"{found.standing.value}{why}")

    def facts(self) -> dict[str, Any]:
        """For programs."""
        return {
            "topics": self.topics,
            "groups": self.groups,
            "deadletters": self.dead_letters,
            "feeds": self.feeds,
            "change_logs": self.change_logs,
            "sinks": [msgspec.to_builtins(found) for _, found in self.sinks],
        }

    def summary(self) -> str:
        """What a user agrees to, as a clause."""
        removable = sum(found.standing in (LeftoverState.REMOVABLE, LeftoverState.UNKNOWN) for _, found in self.sinks)
        parts = {
            "feed": len(self.feeds),
            "change log": len(self.change_logs),
            "dead letter": self.dead_letters,
            "consumer group": len(self.groups),
            "control topic": len(self.topics),
        }
        counted = [number_of(count, noun) for noun, count in parts.items() if count]
        at_sinks = f", and what Headgate made at {number_of(removable, 'sink')}" if removable else ""
        return f"delete {', '.join(counted)}{at_sinks}"


def _row(part: str, names: str, status: str = LeftoverState.REMOVABLE.value) -> dict[str, str]:
    return {"part": part, "names": names, "status": status}


def feeds_of(snapshot: Snapshot) -> dict[str, FeedRecorded]:
    """Every feed by its name."""
    return {key.feed: record for key, record in snapshot.each(FeedKey, FeedRecorded)}


def change_logs_of(snapshot: Snapshot) -> dict[str, str]:
    """The topic of every change log, by its name. One that was deleted has none."""
    return {key.set: record.topic for key, record in snapshot.each(SetKey, SetRecorded) if record.topic}


def planned(log: KafkaLog, cluster: str, snapshot: Snapshot, given: GivenSinks) -> DeletionPlan:
    """Find everything. Raises LogError, CommandError, DatabaseError for a connection that is not described."""
    feeds, logs = feeds_of(snapshot), change_logs_of(snapshot)
    places = places_once(_places(feeds, given))
    with waiting("Kafka to list consumer groups"):
        groups = groups_of_cluster(log.connection, cluster, group_stems())
    with waiting("sinks to be read") as on_status:
        sinks = [(place, _examined(place, log.cluster_id, on_status)) for place in places]
    return DeletionPlan(
        topics=[topic_name(cluster, topic.name) for topic in CONTROL_TOPICS],
        groups=groups,
        feeds=sorted(feeds),
        change_logs={name: [topic, positions_topic(topic)] for name, topic in sorted(logs.items())},
        dead_letters=sum(1 for _ in snapshot.each(DeadLetterKey, ChangeQuarantined)),
        sinks=sinks,
    )


def _examined(place: SinkPlace, cluster_id: str, on_status: OnStatus) -> Leftover:
    on_status(place.given_in)
    return examine(place, cluster_id)


def _places(feeds: dict[str, FeedRecorded], given: GivenSinks) -> Iterator[SinkPlace]:
    """Places of ``--sink``, of connections, and of feeds. Raises CommandError, DatabaseError, SinkError."""
    for name in given.named:
        yield _given(name, given.password_file)
    for use in _USES:
        for name in connection_names(use):
            connection, target = named(name, use, "HEADGATE_CONNECTIONS")
            yield SinkPlace(connection.kind, target, f"connection {name}")
    for name, record in sorted(feeds.items()):
        spec = parse_feed(record.spec).sink
        if spec.connection is None:
            yield SinkPlace(spec.type, target_of(spec), f"feed {name}")


def _given(name: str, password_file: Path | None) -> SinkPlace:
    is_address = "://" in name or "=" in name
    target = target_at(name, password_file if is_address else None, _SINK, Use.SINK)
    kind = kind_of(target.dsn, target.options, CONNECTED)
    if is_address and kind.address(target.dsn, _SINK).has_password:
        raise CommandError(
            ExitCode.SETTING,
            "--sink must not contain a password, because other users of this machine can read it. "
            "Write it into a file in HEADGATE_SECRETS_DIR, and name that in --sink-password-file",
        )
    return SinkPlace(kind.name, target, "--sink" if is_address else f"connection {name}")
