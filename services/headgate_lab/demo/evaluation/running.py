"""Broker, connector, coordinator and agents for two databases of the user's own, until it is interrupted.

The user's folder has the files, the broker's topics and the connector's position, so that the same command continues
where it was stopped. Logs and Spark's scratch files are in a temporary folder.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec
from confluent_kafka.admin import NewTopic

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.connector import topic_of
from headgate.capture.files import CaptureFiles
from headgate.capture.source import read_source
from headgate.databases.errors import DatabaseError
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.snapshot import Snapshot, read_snapshot
from headgate.eventlog.topics import create_topics
from headgate.provisioning.artifacts import ArtifactSet, ensure
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import FeedRecorded, ReplicationState, WantedState
from headgate.records.keys import FeedKey
from headgate.records.name_lists import shown_names
from headgate.views.rows import table_rows
from headgate_lab.demo.display import Display
from headgate_lab.demo.evaluation.checks import Databases, files_of
from headgate_lab.demo.evaluation.connector_file import connector_options
from headgate_lab.demo.evaluation.passwords import secrets_in, write_secret
from headgate_lab.demo.evaluation.slot import check_slot, missing_slot, slot_of
from headgate_lab.demo.folder import ClusterAt, Scratch, scratch_parts
from headgate_lab.demo.scenario import SILENCE_SECONDS_MAX
from headgate_lab.demo.services import COORDINATORS, OUTCOME_SECONDS_MAX, Services
from headgate_lab.demo.watch import Watch
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.connect import ConnectorFailedError, ConnectWorker
from headgate_lab.embedded.ports import free_ports
from headgate_lab.parts.commands import run_command
from headgate_lab.parts.processes import ServiceError, stop_all

__all__ = ["Evaluation", "EvaluationPlan", "running"]

ENVIRONMENT_FILE: Final = "env"
SECRETS: Final = "secrets"
PORT_FILE: Final = "port"
"""In the broker's folder: a connector of MariaDB has the broker's address in its file."""

READY_SECONDS_MAX: Final = 400.0
"""For an owner and for Spark in each agent."""

REPLICATING_SECONDS_MAX: Final = 400.0
"""From the feed's creation until every table replicates."""

_CREATED_SECONDS_MAX: Final = 60.0
"""For a broker that runs to create topics."""

_TOPIC_SETTINGS: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}
"""Changes stay until the folder is removed: an evaluation may pause for weeks."""


class EvaluationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to start: the feed's name, the databases with their passwords, and the folder that stays."""

    feed: str
    databases: Databases
    passwords: Mapping[str, str]
    folder: Path
    publication: str
    slot: str
    agents: int


class _Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The plan with its files, and where the passwords are."""

    plan: EvaluationPlan
    files: CaptureFiles
    secrets: Path
    kafka: EmbeddedKafka
    display: Display


class Evaluation(msgspec.Struct, frozen=True):
    """What is up."""

    scratch: Scratch
    kafka: EmbeddedKafka
    connect: ConnectWorker
    services: Services
    plan: EvaluationPlan
    connector: Path
    """The file of its configuration."""

    @property
    def feed(self) -> str:
        """Its name, and the connector's."""
        return self.plan.feed

    def gone(self) -> list[str]:
        """What has ended of the parts that the evaluation cannot continue without."""
        if self.kafka.alive():
            return []
        return [f"the Kafka broker, with Kafka Connect in its process, has ended; its log is {self.kafka.log_file}"]

    def check(self) -> None:
        """Raise EmbeddedError once the connector has failed, CommandError if that is for its slot."""
        status = self.connect.connector_status(self.feed)
        failed = [part for part in (status["connector"], *status["tasks"]) if part["state"] == "FAILED"]
        if failed:
            with _slot_explained(self.plan, self.connector):
                raise self.connect.failed(self.feed, failed[0])


@contextmanager
def running(plan: EvaluationPlan, display: Display) -> Iterator[Evaluation]:
    """All of it up and every table replicating; then all of it down, but for what is in the plan's folder.

    Raises EmbeddedError, ServiceError, WatchError, CommandError.
    """
    secrets = plan.folder.absolute() / SECRETS
    kafka = EmbeddedKafka(plan.folder / "kafka", port=_port(plan.folder / "kafka"), settings=CALM)
    try:
        secrets.mkdir(mode=0o700, exist_ok=True)
        for name, password in plan.passwords.items():
            write_secret(secrets / name, password)
        bootstrap = f"127.0.0.1:{(plan.folder / 'kafka' / PORT_FILE).read_text()}"
        files = files_of(plan.databases, plan.feed, bootstrap, secrets, publication=plan.publication, slot=plan.slot)
        _write(plan.folder, files, display)
        check_slot(plan.folder, plan.folder / files.connector.name, plan.databases.captured, plan.feed)
        with scratch_parts("headgate-up-", display.say, [], keep=False) as scratch:
            setup = _Setup(plan=plan, files=files, secrets=secrets, kafka=kafka, display=display)
            yield _start(setup, scratch)
    finally:
        for name in plan.passwords:
            (secrets / name).unlink(missing_ok=True)


@contextmanager
def _slot_explained(plan: EvaluationPlan, connector: Path) -> Iterator[None]:
    """Raise CommandError, instead of ConnectorFailedError, if the connector's slot does not exist."""
    try:
        yield
    except ConnectorFailedError as error:
        slot = slot_of(connector)
        if slot is None:
            raise
        try:
            with secrets_in(plan.folder.absolute() / SECRETS):
                captured = read_source(plan.databases.source, [])
        except DatabaseError:  # why the connector failed is known already
            raise error from None
        if text := missing_slot(captured, slot, plan.folder, plan.feed):
            raise CommandError(ExitCode.DATABASE, text) from error
        raise


def _port(folder: Path) -> int:
    """The broker's, the same each time."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / PORT_FILE
    if not file.exists():
        (port,) = free_ports(1)
        file.write_text(str(port), encoding="ascii")
    return int(file.read_text(encoding="ascii"))


def _write(folder: Path, files: CaptureFiles, display: Display) -> None:
    """Write the files that do not exist. The others may have been edited."""
    for each in files.all:
        file = folder / each.name
        if file.exists():
            display.say(f"{file} exists and is used as it is")
        else:
            file.write_text(each.text, encoding="utf-8")
            display.say(f"wrote {file}, for {each.what}")


def _start(setup: _Setup, scratch: Scratch) -> Evaluation:
    plan, kafka, parts = setup.plan, setup.kafka, scratch.parts
    connect = _start_broker(setup, scratch)
    cluster = ClusterAt(kafka.bootstrap)
    create_topics(cluster)
    log = open_log(cluster)
    parts.callback(log.close)
    watch = Watch(log, silence_seconds_max=scaled_seconds(SILENCE_SECONDS_MAX))
    parts.callback(watch.close)
    services = Services(kafka.bootstrap, plan.agents, scratch.folder / "logs")
    services.settings["HEADGATE_SECRETS_DIR"] = str(setup.secrets)
    del services.settings["HEADGATE_CONNECTIONS"]
    parts.callback(lambda: stop_all(services.all))
    services.start_coordinator(COORDINATORS[0])
    services.start_agents()
    _write_environment(plan.folder, services)
    _capture(setup, log, connect)
    with setup.display.stage("waiting for the coordinator, and for Spark in each agent"):
        watch.wait_for(
            "every agent is ready",
            lambda seen: all(seen.is_ready(name) for name in services.agents),
            READY_SECONDS_MAX,
            services.check,
        )
    _create_feed(setup, log, services)
    with setup.display.stage("waiting until every table replicates, or reports an error"):
        watch.wait_for(
            "every table replicates, or reports an error",
            lambda seen: held_tables(seen.snapshot, plan.feed) is not None,
            REPLICATING_SECONDS_MAX,
            services.check,
        )
    with watch.condition:
        held = held_tables(watch.seen.snapshot, plan.feed)
    if held:
        setup.display.say(f"{shown_names(held)}: not replicating. `headgate why {plan.feed}` explains it")
        scratch.failed = True
    return Evaluation(scratch, kafka, connect, services, plan, plan.folder / setup.files.connector.name)


def _start_broker(setup: _Setup, scratch: Scratch) -> ConnectWorker:
    plugin: ArtifactSet = "debezium-mariadb" if setup.plan.databases.is_mysql else "debezium-postgres"
    needed: tuple[ArtifactSet, ...] = ("kafka", plugin, "spark-kafka")
    with setup.display.stage("fetching jars that are not there yet, each checked against its pinned sha256") as tell:
        for artifacts in needed:
            ensure(artifacts, lambda name, done, total: tell(f"{name} {done} of {total}"))
    with setup.display.stage("starting a Kafka broker, and Kafka Connect with Debezium, in one JVM"):
        scratch.parts.enter_context(setup.kafka)
        return setup.kafka.start_connect(plugin)


def _write_environment(folder: Path, services: Services) -> None:
    """What commands in another terminal need, and the process ids of the services."""
    names = ("HEADGATE_BOOTSTRAP", "HEADGATE_SHARDS", "HEADGATE_SECRETS_DIR")
    lines = [f"export {name}={quote(services.settings[name])}\n" for name in names]
    (folder / ENVIRONMENT_FILE).write_text("".join(lines), encoding="utf-8")
    for service in services.all:
        (folder / f"{service.name}.pid").write_text(f"{service.pid}\n", encoding="ascii")


def _capture(setup: _Setup, log: KafkaLog, connect: ConnectWorker) -> None:
    """Register the connector. Topics are created before, because Debezium creates one with its first change."""
    plan = setup.plan
    admin = log.connection.admin
    topics = {topic_of(plan.feed, table) for table in plan.databases.captured.tables}
    missing = sorted(topics - admin.list_topics(timeout=_CREATED_SECONDS_MAX).topics.keys())
    if missing:
        created = admin.create_topics([NewTopic(topic, 1, 1, config=_TOPIC_SETTINGS) for topic in missing])
        for future in created.values():
            future.result(_CREATED_SECONDS_MAX)
    config = connector_options(plan.folder / setup.files.connector.name)
    with setup.display.stage(
        f"registering connector {plan.feed}: it sends all rows first, the first time, then changes"
    ):
        connect.put_connector(plan.feed, config)
        with _slot_explained(plan, plan.folder / setup.files.connector.name):
            connect.wait_until_running(plan.feed)


def _create_feed(setup: _Setup, log: KafkaLog, services: Services) -> None:
    plan = setup.plan
    if read_snapshot(log).get(FeedKey(plan.feed), FeedRecorded) is not None:
        setup.display.say(f"feed {plan.feed} continues")
        return
    timeout = f"{scaled_seconds(OUTCOME_SECONDS_MAX):g}"
    path = str(plan.folder / setup.files.feed.name)
    with setup.display.stage(f"headgate feed create {path}"):
        answer = run_command(services.settings, "feed", "create", path, "-o", "json", "--timeout", timeout)
    if answer.get("status") != "done":
        raise ServiceError(f"headgate feed create {path} did not do it: {answer}")


def held_tables(snapshot: Snapshot, feed: str) -> list[str] | None:
    """The tables that do not replicate, because they are paused or have failed; None while others still start.

    A feed that was paused, in an earlier run, stays as it is.
    """
    record = snapshot.get(FeedKey(feed), FeedRecorded)
    if record is None or record.wanted is not WantedState.RUNNING:
        return []
    waiting = [row for row in table_rows(snapshot, feed) if row.state != ReplicationState.REPLICATING.value]
    is_settled = all(row.error or row.paused_by for row in waiting)
    return [row.span for row in waiting] if is_settled else None
