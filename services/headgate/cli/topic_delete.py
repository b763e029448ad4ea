"""``headgate topic delete``: the end of a cluster."""

from collections.abc import Iterator, Sequence
from typing import Final

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.app.heartbeats import HEARTBEAT_SECONDS, next_heartbeat
from headgate.cli.changes import Destruction, Permit, permitted
from headgate.cli.options import ClusterOptions, Format, connected
from headgate.cli.output import Output, note, show_value
from headgate.cli.snapshots import read_snapshot
from headgate.cli.waiting import waiting
from headgate.config.rights import group_stems
from headgate.eventlog.consumer_groups import delete_groups, groups_of_cluster
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.snapshot import Snapshot, all_partitions
from headgate.eventlog.topics import CONTROL_TOPICS, delete_topics, topic_name
from headgate.migration.core.state import PENDING
from headgate.records.control import AgentAnnounced, ChangeQuarantined, FeedRecorded, MemberAnnounced
from headgate.records.generation import SetKey, SetRecorded
from headgate.records.keys import AgentKey, DeadLetterKey, FeedKey, MemberKey
from headgate.records.migration import MigrationKey, MigrationRecorded
from headgate.records.name_lists import number_of, shown_names
from headgate.records.registry import KEY_FORMS


def delete(*, change: Destruction, output: Format = Output.TABLE, cluster: ClusterOptions) -> None:
    """Delete the control topics and the consumer groups of a cluster, and with them all that Headgate knows.

    Refused while there are feeds, change logs or pending schema changes, and while a service runs. Their commands
    delete the positions in sinks and the topics of change logs. Target tables keep their rows. At its end the command
    lists what it leaves, and how to remove that. It fails if consumer groups are left.

    Example: headgate topic delete --dry-run
    """
    with connected(cluster) as (settings, log):
        snapshot = read_snapshot(log, all_partitions(log, KEY_FORMS))
        refuse_if_needed(snapshot)
        _refuse_if_served(log, settings.cluster, _lease_seconds(snapshot))
        topics = [topic_name(settings.cluster, topic.name) for topic in CONTROL_TOPICS]
        groups = _groups(log, settings.cluster)
        letters = sum(1 for _ in snapshot.each(DeadLetterKey, ChangeQuarantined))
        facts = {"topics": topics, "groups": groups, "deadletters": letters}
        lost = f" with {number_of(letters, 'dead letter')}" if letters else ""
        also = f" and {number_of(len(groups), 'consumer group')}" if groups else ""
        permit = permitted(change, f"delete the control topics {settings.prefix}…{lost}{also}", output, facts)
        if permit is None:
            return
        left = _deleted(log, settings.cluster, groups, permit)
    deleted = [group for group in groups if group not in left]
    if output is Output.TABLE:
        also = f" and {number_of(len(deleted), 'consumer group')}" if deleted else ""
        note(f"the {len(topics)} control topics {settings.prefix}…{also} are deleted")
        note(_LEFT)
    else:
        status = "incomplete" if left else "done"
        show_value(output, {**facts, "groups": deleted, "status": status, "left": list(left.values())})
    if left:
        raise CommandError(
            ExitCode.REQUEST_FAILED,
            f"{number_of(len(left), 'consumer group')} {'is' if len(left) == 1 else 'are'} left. Delete with "
            "kafka-consumer-groups --delete --group GROUP:\n" + "\n".join(left.values()),
        )


_LEFT: Final = """\
The rest is yours to remove, because Headgate no longer knows its places (docs/howto/remove.md):
  if no other cluster writes to a sink: DROP SCHEMA headgate CASCADE there (MariaDB, MySQL: DROP DATABASE headgate);
  at a Kafka sink delete the topic headgate-sink-progress
  the same schema where schemas were changed, if no other cluster changes them there
  at each source: the connector, its publication and its replication slot, which retains WAL
  in Kafka: the rights (ACLs) of Headgate's users"""


def _groups(log: KafkaLog, cluster: str) -> list[str]:
    with waiting("Kafka to list consumer groups"):
        return groups_of_cluster(log.connection, cluster, group_stems())


def _deleted(log: KafkaLog, cluster: str, groups: Sequence[str], _permit: Permit) -> dict[str, str]:
    """Delete both. Returns groups that are left, and why.

    The groups first: without the topics the command cannot be repeated.
    """
    with waiting("the consumer groups and control topics to be deleted"):
        left = delete_groups(log.connection, groups)
        delete_topics(log.connection, cluster)
    return left


def refuse_if_needed(snapshot: Snapshot) -> None:
    """Raises CommandError with everything that has to be ended first, and how."""
    problems = [f"{what} {shown_names(sorted(names))}: {how}" for what, names, how in _needing(snapshot) if names]
    if problems:
        raise CommandError(
            ExitCode.REQUEST_REFUSED,
            "the control topics are still in use. First end what uses them:\n" + "\n".join(problems),
        )


def _needing(snapshot: Snapshot) -> Iterator[tuple[str, list[str], str]]:
    feeds = [key.feed for key, _ in snapshot.each(FeedKey, FeedRecorded)]
    yield "feeds", feeds, "`headgate feed delete FEED`, which also deletes the positions in the sink"
    logs = [key.set for key, record in snapshot.each(SetKey, SetRecorded) if record.topic]
    yield "change logs", logs, "`headgate generation delete NAME`"
    pending = [
        key.migration for key, record in snapshot.each(MigrationKey, MigrationRecorded) if record.state in PENDING
    ]
    yield "schema changes", pending, "wait for them, or `headgate migration cancel ID`"


def _lease_seconds(snapshot: Snapshot) -> float:
    """The longest lease of any process that was ever heard of: within it a living one writes a heartbeat."""
    members = [record.lease_seconds for _, record in snapshot.each(MemberKey, MemberAnnounced)]
    agents = [record.lease_seconds or 0.0 for _, record in snapshot.each(AgentKey, AgentAnnounced)]
    return max((HEARTBEAT_SECONDS, *members, *agents))


def _refuse_if_served(log: KafkaLog, cluster: str, seconds: float) -> None:
    with waiting(f"heartbeats of services, for {seconds:g} s"):
        heard = next_heartbeat(log.connection, cluster, seconds)
    if heard is not None:
        raise CommandError(
            ExitCode.REQUEST_REFUSED,
            f"a service of this cluster is running: {heard.key} has just written a heartbeat. Stop all services first "
            "(`headgate agent list`, `headgate coordinator list`)",
        )
