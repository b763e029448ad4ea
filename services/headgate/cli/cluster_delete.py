"""``headgate cluster delete``: the end of a cluster."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from headgate.app.cluster import clusters_there
from headgate.app.exit_codes import CommandError, ExitCode, exit_code_of
from headgate.app.heartbeats import HEARTBEAT_SECONDS, next_heartbeat
from headgate.app.sink_leftovers import NO_ADDRESS, Leftover, LeftoverState, remove_leftover
from headgate.cli import generation_requests
from headgate.cli.changes import Destruction, Permit, permitted
from headgate.cli.cluster_plan import DeletionPlan, GivenSinks, change_logs_of, feeds_of, planned
from headgate.cli.connection_names import complete_sinks
from headgate.cli.options import ClusterOptions, cluster_flags, connected
from headgate.cli.output import Output, note, show_rows, show_value
from headgate.cli.requests import MovesOptions, ask, operation
from headgate.cli.snapshots import read_snapshot
from headgate.cli.waiting import waiting
from headgate.config.settings import Settings, load_settings
from headgate.config.wording import known_names
from headgate.eventlog.consumer_groups import delete_groups
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.snapshot import Snapshot, all_partitions
from headgate.eventlog.topics import TopicMissingError, delete_topics
from headgate.migration.core.state import PENDING
from headgate.records.control import AgentAnnounced, MemberAnnounced, OperationKind
from headgate.records.generation import GenerationRequestKind
from headgate.records.keys import AgentKey, MemberKey
from headgate.records.migration import MigrationKey, MigrationRecorded
from headgate.records.name_lists import number_of, shown_names
from headgate.records.registry import KEY_FORMS
from headgate.runtime.requests import RequestError

_COLUMNS: Final = ("part", "names", "status")


def delete(
    *,
    with_feeds: Annotated[
        bool,
        typer.Option(
            "--with-feeds",
            help="delete feeds and change logs first, by the services that run, and then wait until these are stopped",
        ),
    ] = False,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            "--sink",
            metavar="NAME|ADDRESS",
            help="a sink of feeds that were deleted: a connection, or an address without a password; may be repeated",
            autocompletion=complete_sinks,
        ),
    ] = None,
    sink_password_file: Annotated[
        Path | None, typer.Option("--sink-password-file", help="a file in HEADGATE_SECRETS_DIR, for --sink ADDRESS")
    ] = None,
    change: Destruction,
    outcome: MovesOptions,
    cluster: ClusterOptions,
) -> None:
    """Delete everything that Headgate made for a cluster.

    These are the control topics with all that Headgate knows, the services' consumer groups, and at sinks and changed
    databases the schema headgate or the topic of positions, if no other cluster uses it. Sinks are those of feeds, of
    HEADGATE_CONNECTIONS and of --sink. With --with-feeds also feeds, and change logs with their topics.

    Refused while services run, and while there are pending schema changes, feeds or change logs (see --with-feeds).
    Target tables keep their rows. What fails does not keep the rest from being deleted; the command names it with what
    to type, and fails. At its end it lists what is yours to remove.

    Example: headgate cluster delete --dry-run
    """
    with _existing(cluster) as (settings, log):
        snapshot = read_snapshot(log, all_partitions(log, KEY_FORMS))
        _refuse_if_needed(snapshot, with_feeds=with_feeds)
        plan = planned(log, settings.cluster, snapshot, GivenSinks(sink or (), sink_password_file))
        needs_services = plan.is_used
        lease_seconds = _lease_seconds(snapshot)
        if not needs_services:
            _refuse_if_served(log, settings.cluster, lease_seconds)
        if outcome.output is Output.TABLE and not change.yes:
            show_rows(_COLUMNS, plan.rows(), outcome.output)
        permit = permitted(change, plan.summary(), outcome.output, {**plan.facts(), "yours": _yours()})
        if permit is None:
            if outcome.output is Output.TABLE:
                note(_yours_as_text("Yours to remove afterwards:"))
            return
        if needs_services:
            _end_feeds(log, plan, outcome.timeout, permit)
            _await_end(log, settings.cluster, lease_seconds, outcome.timeout, plan)
        sinks, groups = _deleted(log, settings.cluster, plan, permit)
    _report(plan, sinks, groups, outcome.output)


@contextmanager
def _existing(cluster: ClusterOptions) -> Iterator[tuple[Settings, KafkaLog]]:
    """See ``connected``. Of a cluster that does not exist the error names those that do."""
    with ExitStack() as until_the_end:
        try:
            opened = until_the_end.enter_context(connected(cluster))
        except TopicMissingError as error:
            raise _missing(cluster, error) from error
        yield opened


def _missing(cluster: ClusterOptions, error: TopicMissingError) -> CommandError:
    flags = cluster_flags(cluster)
    name, bootstrap = load_settings(flags).cluster, load_settings(flags).bootstrap
    there = clusters_there(flags)
    if left := there.pop(name, None):
        return CommandError(
            ExitCode.TOPICS_MISSING,
            f"some control topics of cluster {name!r} do not exist: {error}. If it was deleted in part, delete the "
            f"rest with: kafka-topics --bootstrap-server {bootstrap} --delete --topic '{'|'.join(left)}'",
        )
    known = known_names(name, sorted(there)) if there else "No cluster has control topics there"
    return CommandError(
        ExitCode.TOPICS_MISSING,
        f"cluster {name!r} has no control topics on Kafka at {bootstrap}, or this user may not see them: nothing to "
        f"delete. {known}",
    )


def _refuse_if_needed(snapshot: Snapshot, *, with_feeds: bool) -> None:
    """Raises CommandError with everything that has to be ended first, and how."""
    problems = [f"{what} {shown_names(names)}: {how}" for what, names, how in _needing(snapshot, with_feeds) if names]
    if problems:
        raise CommandError(
            ExitCode.REQUEST_REFUSED,
            "the control topics are still in use. First end what uses them:\n" + "\n".join(problems),
        )


def _needing(snapshot: Snapshot, with_feeds: bool) -> Iterator[tuple[str, Sequence[str], str]]:
    if not with_feeds:
        yield "feeds", sorted(feeds_of(snapshot)), "`headgate feed delete FEED`, or --with-feeds"
        yield "change logs", sorted(change_logs_of(snapshot)), "`headgate generation delete NAME`, or --with-feeds"
    pending = [
        key.migration for key, record in snapshot.each(MigrationKey, MigrationRecorded) if record.state in PENDING
    ]
    yield "schema changes", sorted(pending), "wait for them, or `headgate migration cancel ID`"


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


def _end_feeds(log: KafkaLog, plan: DeletionPlan, timeout: float, permit: Permit) -> None:
    """Have the services delete feeds and change logs. Raises CommandError with those that are left, and why."""
    failed: dict[str, Exception] = {}
    for feed in plan.feeds:
        request = operation(OperationKind.REMOVE_FEED, feed)
        _try(f"feed {feed}", failed, partial(ask, log, request, timeout, permit))
    wanted = generation_requests.request_of(GenerationRequestKind.DELETE)
    for name in plan.change_logs:
        _try(f"change log {name}", failed, partial(generation_requests.ask, log, name, wanted, timeout, permit))
    if failed:
        reasons = "\n".join(f"{what}: {error}" for what, error in failed.items())
        codes = {exit_code_of(error) or ExitCode.BUG for error in failed.values()}
        raise CommandError(
            codes.pop() if len(codes) == 1 else ExitCode.REQUEST_FAILED,
            f"{number_of(len(failed), 'feed or change log')} could not be deleted, so the control topics, the consumer "
            f"groups and the schemas at sinks stay:\n{reasons}",
        )


def _try(what: str, failed: dict[str, Exception], act: Callable[[], object]) -> None:
    try:
        act()
    except (CommandError, RequestError) as error:
        failed[what] = error


def _await_end(log: KafkaLog, cluster: str, lease_seconds: float, timeout: float, plan: DeletionPlan) -> None:
    """Return once no service writes heartbeats. Raises CommandError after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    note("the feeds and change logs are deleted. Stop all services of this cluster now; the rest is deleted then")
    with waiting("services to be stopped"):
        while (heard := next_heartbeat(log.connection, cluster, lease_seconds)) is not None:
            if time.monotonic() >= deadline:
                raise CommandError(
                    ExitCode.REQUEST_TIMED_OUT,
                    f"feeds and change logs are deleted, but a service still runs after {timeout:g} s ({heard.key}), "
                    "so the rest stays. Stop all services, then run `headgate cluster delete` again"
                    + "".join(f" --sink {word}" for word in _sinks_of_feeds(plan)),
                )


def _sinks_of_feeds(plan: DeletionPlan) -> Iterator[str]:
    """Addresses that no record has any more, once the feeds are deleted."""
    for place, found in plan.sinks:
        if place.given_in.startswith("feed ") and found.by_hand:
            try:
                yield f"'{place.address.text}'"
            except NO_ADDRESS:
                continue


def _deleted(log: KafkaLog, cluster: str, plan: DeletionPlan, _permit: Permit) -> tuple[list[Leftover], dict[str, str]]:
    """Delete it all. Returns what became of the sinks, and groups that are left, and why.

    The topics last: without them the command cannot be repeated.
    """
    sinks = []
    with waiting("sinks") as on_status:
        for place, found in plan.sinks:
            on_status(place.given_in)
            to_remove = found.standing in (LeftoverState.REMOVABLE, LeftoverState.UNKNOWN)
            sinks.append(remove_leftover(place, log.cluster_id) if to_remove else found)
    with waiting("the consumer groups and control topics to be deleted"):
        groups = delete_groups(log.connection, plan.groups)
        delete_topics(log.connection, cluster)
    return sinks, groups


def _report(plan: DeletionPlan, sinks: Sequence[Leftover], groups: dict[str, str], output: Output) -> None:
    """Show what was deleted. Raises CommandError if something is left that should not be."""
    left = [
        *(f"{why}. Delete it with `kafka-consumer-groups --delete --group {group}`" for group, why in groups.items()),
        *(
            f"{each.what} at {each.place}: {each.why}. Delete it with: {each.by_hand}"
            for each in sinks
            if each.standing is LeftoverState.FAILED
        ),
    ]
    deleted = [group for group in plan.groups if group not in groups]
    if output is Output.TABLE:
        also = f" and {number_of(len(deleted), 'consumer group')}" if deleted else ""
        note(f"the {number_of(len(plan.topics), 'control topic')}{also} are deleted")
        for each in sinks:
            if each.what:
                note(f"{each.what} at {each.place}: {each.standing.value}{': ' if each.why else ''}{each.why}")
        note(_yours_as_text("Yours to remove:"))
    else:
        facts = {**plan.facts(), "groups": deleted, "sinks": [msgspec.to_builtins(each) for each in sinks]}
        show_value(output, {**facts, "yours": _yours(), "status": "incomplete" if left else "done", "left": left})
    if left:
        raise CommandError(
            ExitCode.REQUEST_FAILED, f"{number_of(len(left), 'part')} could not be deleted:\n" + "\n".join(left)
        )


_YOURS: Final = (
    (
        "sinks of feeds that were deleted before, if no other cluster writes there",
        "psql SINK --command='DROP SCHEMA headgate CASCADE'",
        "mariadb SINK --execute='DROP DATABASE headgate'",
        "kafka-topics --bootstrap-server BROKERS --delete --topic headgate-sink-progress",
        "in a lake, the tables or folders below _headgate",
    ),
    ("connectors at Kafka Connect", "curl -X DELETE http://CONNECT:8083/connectors/NAME"),
    (
        "replication slots, which retain WAL, and publications at PostgreSQL sources",
        "psql SOURCE --command=\"SELECT pg_drop_replication_slot('SLOT')\"",
        "psql SOURCE --command='DROP PUBLICATION NAME'",
    ),
    (
        "rights (ACLs) of Headgate's users in Kafka",
        "kafka-acls --bootstrap-server BROKERS --remove --principal User:NAME …",
    ),
    (
        "schemas of `headgate topic register`, if no other cluster needs them",
        "curl -X DELETE http://REGISTRY:8081/subjects/SUBJECT",
    ),
    (
        "files on each machine: jars, and folders lane-… and copy-… that killed agents left in HEADGATE_SPARK__SCRATCH",
        "rm -r ~/.cache/headgate",
    ),
)
"""What the command cannot know or must not touch, and the commands that remove it."""


def _yours() -> list[str]:
    return [f"{what}: {'; '.join(commands)}" for what, *commands in _YOURS]


def _yours_as_text(title: str) -> str:
    lines = (f"  {what}:\n    " + "\n    ".join(commands) for what, *commands in _YOURS)
    return "\n".join([title, *lines])
