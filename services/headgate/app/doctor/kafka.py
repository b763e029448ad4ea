"""The brokers: whether they answer, the control topics, this user's rights, and their clock."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection

from headgate.app.cluster import settings_for_command
from headgate.app.heartbeats import next_heartbeat
from headgate.capture.finding import CaptureFinding, FixIn, State
from headgate.config.rights import Grant, Resource, grants
from headgate.config.settings import Settings
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.connection import ADMIN_SECONDS_MAX, KafkaConnection
from headgate.eventlog.log import LogError
from headgate.eventlog.topics import CONTROL_TOPICS, NEXT_COMMAND, SET_BY, TopicMissingError, topic_name, topic_problems
from headgate.records.name_lists import number_of
from headgate.sources.offsets import SourceError

__all__ = ["kafka_findings", "lacking"]

_SKEW_MS_MAX: Final = 2_000
"""Half of what a slow heartbeat may take. Lags and times that people read are off by as much."""


def kafka_findings(flags: Mapping[str, Any], who: Sequence[str]) -> Iterator[CaptureFinding]:
    """Every check of the cluster that ``flags`` name, with the rights that services ``who`` need.

    Later checks are left out where an earlier one makes them impossible. Raises SettingsError.
    """
    try:
        settings = settings_for_command(flags)
        yield from _broker(settings)
        problems = topic_problems(settings)
    except LogError as error:
        yield CaptureFinding("broker", State.WRONG, str(error))
        return
    yield from _topics(settings, problems)
    if problems:
        return
    yield from _rights(settings, who)
    yield _clock(settings)


def _broker(settings: Settings) -> Iterator[CaptureFinding]:
    connection = KafkaConnection(settings.bootstrap, settings.kafka)
    try:
        brokers = len(connection.admin.list_topics(timeout=ADMIN_SECONDS_MAX).brokers)
    except KafkaException as error:
        raise connection.failed("listing brokers", error) from error
    finally:
        connection.close()
    yield CaptureFinding("broker", State.OK, f"{brokers} of cluster {settings.cluster} at {settings.bootstrap}")
    if brokers < settings.replication_factor:
        yield CaptureFinding(
            "replication factor",
            State.WARNING,
            f"{settings.replication_factor} copies of each control topic need as many brokers, there are {brokers}",
            fix=(f"export HEADGATE_REPLICATION_FACTOR={brokers}",),
            fix_in=FixIn.SHELL,
            then="It counts when the topics are created. One copy is lost with its broker",
        )


def _topics(settings: Settings, problems: Sequence[LogError]) -> Iterator[CaptureFinding]:
    if not problems:
        yield CaptureFinding("control topics", State.OK, f"{settings.prefix}…, {number_of(settings.shards, 'shard')}")
    missing = [problem for problem in problems if isinstance(problem, TopicMissingError)]
    if missing:
        yield CaptureFinding(
            "control topics",
            State.WRONG,
            str(missing[0]),
            fix=(f"headgate topic create --bootstrap {settings.bootstrap} --cluster {settings.cluster}",),
            fix_in=FixIn.SHELL,
        )
    for problem in problems:
        if problem not in missing:
            says, _, commands = str(problem).partition(SET_BY)
            asked = f"kafka-configs.sh --bootstrap-server {settings.bootstrap}"
            fix = tuple(each.replace("kafka-configs.sh", asked) for each in commands.split(NEXT_COMMAND) if each)
            yield CaptureFinding("control topics", State.WRONG, says, fix=fix, fix_in=FixIn.SHELL)


def _rights(settings: Settings, who: Sequence[str]) -> Iterator[CaptureFinding]:
    needed = [grant for grant in grants(settings.cluster, {}, who) if grant.resource is Resource.TOPIC]
    services = " and ".join(who)
    try:
        allowed = _allowed(settings)
    except LogError as error:
        yield CaptureFinding("Kafka rights", State.WRONG, str(error))
        return
    missing = lacking(needed, allowed)
    if not missing:
        yield CaptureFinding("Kafka rights", State.OK, f"this user may do what {services} needs on the control topics")
        return
    yield CaptureFinding(
        "Kafka rights",
        State.WRONG,
        f"this user does not have {', '.join(missing)}, which {services} needs",
        fix=(f"headgate topic grant {' '.join(who)} --principal User:NAME",),
        fix_in=FixIn.SHELL,
        then="Run it as an administrator of the brokers, with the name of this user",
    )


def lacking(needed: Sequence[Grant], allowed: Mapping[str, frozenset[str]]) -> list[str]:
    """Rights that are needed and not allowed, as ``Write on headgate.announce``. ``allowed``: topic → operations."""
    found: dict[str, None] = {}
    for grant in needed:
        for topic, operations in sorted(allowed.items()):
            is_meant = topic.startswith(grant.name) if grant.is_prefix else topic == grant.name
            # Create is a right on a name, which existing topics do not show.
            if is_meant and grant.operation != "Create" and grant.operation not in operations:
                found[f"{grant.operation} on {topic}"] = None
    return list(found)


def _allowed(settings: Settings) -> dict[str, frozenset[str]]:
    """Topic → what this user may do with it, in Kafka's words. Raises LogError."""
    connection = KafkaConnection(settings.bootstrap, settings.kafka)
    names = [topic_name(settings.cluster, topic.name) for topic in CONTROL_TOPICS]
    try:
        admin = connection.admin
        asked = admin.describe_topics(
            TopicCollection(names), include_authorized_operations=True, request_timeout=ADMIN_SECONDS_MAX
        )
        described = {name: connection.wait(f"describing topic {name}", future) for name, future in asked.items()}
    finally:
        connection.close()
    return {
        name: frozenset(_OPERATIONS.get(each.name, each.name) for each in found.authorized_operations or ())
        for name, found in described.items()
    }


_OPERATIONS: Final = {
    "ALTER": "Alter",
    "ALTER_CONFIGS": "AlterConfigs",
    "CREATE": "Create",
    "DELETE": "Delete",
    "DESCRIBE": "Describe",
    "DESCRIBE_CONFIGS": "DescribeConfigs",
    "READ": "Read",
    "WRITE": "Write",
}
"""confluent-kafka's names of operations → those of the table of rights."""


def _clock(settings: Settings) -> CaptureFinding:
    """Compare this machine's clock with the stamp of the next heartbeat of a service. Writes nothing."""
    connection = KafkaConnection(settings.bootstrap, settings.kafka)
    try:
        heard = next_heartbeat(connection, settings.cluster)
    except (LogError, SourceError) as error:
        return CaptureFinding("clock", State.WARNING, str(error))
    finally:
        connection.close()
    if heard is None:
        return CaptureFinding(
            "clock", State.OK, "not compared: no service is running, whose heartbeats the brokers stamp"
        )
    return judged_clock(wall_ms() - heard.stamped_ms)


def judged_clock(ahead_ms: int) -> CaptureFinding:
    """What it means that this machine's clock is so far ahead of the brokers', or behind if negative."""
    shown = f"{abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} the brokers'"
    if abs(ahead_ms) <= _SKEW_MS_MAX:
        return CaptureFinding("clock", State.OK, shown)
    return CaptureFinding(
        "clock",
        State.WRONG,
        shown,
        fix=("timedatectl set-ntp true",),
        fix_in=FixIn.SHELL,
        then="Guarantees do not depend on it, but times in logs and commands do",
    )
