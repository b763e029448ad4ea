"""What a campaign runs on: a broker, two databases, two coordinators, three agents, and a proxy for each one's way out.

Every service reaches the broker and the target through proxies of its own. The broker has a listener per service, which
announces the proxy's port; ``targets`` describe how a service reaches the target.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import make_conninfo

from headgate.config.crash_points import ArmedPoints
from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.kafka import open_log
from headgate.eventlog.topics import create_topics
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.chaos.capture import Capture, install_outbox
from headgate_lab.chaos.columns import SourceColumns
from headgate_lab.chaos.proxy import Proxies, Proxy
from headgate_lab.chaos.targets import ChaosTarget, SinkType, make_target
from headgate_lab.demo.audit_triggers import install_source_audit
from headgate_lab.demo.display import Display
from headgate_lab.demo.folder import ClusterAt, Scratch, scratch_parts
from headgate_lab.demo.load import ShopLoad, fill
from headgate_lab.demo.roles import create_source_role
from headgate_lab.demo.schema import TABLES, create_source
from headgate_lab.demo.services import COORDINATORS, DatabaseAddress, Services, create_feed, postgresql_address
from headgate_lab.demo.stack import TOPIC_PREFIX, make_database
from headgate_lab.demo.tables import all_replicate
from headgate_lab.demo.watch import Watch
from headgate_lab.embedded.broker import EmbeddedKafka, session_within
from headgate_lab.embedded.clients import postgres_client
from headgate_lab.embedded.ports import HOST, free_ports
from headgate_lab.embedded.postgres import EmbeddedPostgres
from headgate_lab.parts.processes import stop_all

AGENTS: Final = 3
WRITERS: Final = 2

UP_SECONDS_MAX: Final = 400.0
"""Three Spark sessions at once on two cores take half a minute, on two busy ones minutes."""

TOPICS_SECONDS_MAX: Final = 60.0
"""For a broker that has just started to create topics: librdkafka's own limit."""


SNAPSHOT: Final[Mapping[str, object]] = {"mode": "initial", "max_rows_per_second": 100}
"""So slow that the first faults strike tables that are being copied: the largest takes 40 s."""


class Server(StrEnum):
    """What a service's links lead to."""

    BROKER = "broker"
    DATABASE = "database"


class ChaosOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``rate`` changes per second, ``keep`` the folder, ``minutes`` of faults (None: one of each sort).

    ``points``: instead, every crash point of the commit path under every death. ``sink``: what the feed writes to.
    """

    seed: int
    rate: float
    lease_seconds: float
    keep: bool
    minutes: float | None
    points: bool
    sink: SinkType


class CampaignParts(msgspec.Struct, frozen=True):
    """Everything that is up. ``links`` are by service and server, ``points`` by agent."""

    kafka: EmbeddedKafka
    target: ChaosTarget
    source_dsn: str
    source: DatabaseAddress
    services: Services
    watch: Watch
    load: ShopLoad
    capture: Capture
    columns: SourceColumns
    proxies: Proxies
    links: Mapping[tuple[str, Server], Proxy]
    points: Mapping[str, ArmedPoints]
    lease_seconds: float
    scratch: Scratch

    def check(self) -> None:
        """Raise the error that makes the run pointless: a service, a writer or the capture has ended by itself."""
        self.services.check()
        self.load.check()
        self.capture.check()


@contextmanager
def running_world(options: ChaosOptions, display: Display, left_over: list[str]) -> Iterator[CampaignParts]:
    """All of it up and every table replicating under load; then all of it down. As ``scratch_parts`` for the rest."""
    with scratch_parts("headgate-chaos-", display.say, left_over, keep=options.keep) as scratch:
        folder, parts = scratch.folder, scratch.parts
        target = make_target(options.sink, folder / "target")
        display.say(f"starting a PostgreSQL as the source, a {target.title} as the target, and a broker")
        parts.callback(target.stop)
        target.prepare()
        source = parts.enter_context(EmbeddedPostgres(folder / "source"))
        source_dsn = make_database(source)
        keys, reader = _fill_source(source_dsn, options.seed)
        proxies = Proxies()
        parts.callback(proxies.close)
        names = (*COORDINATORS, *(f"agent-{number}" for number in range(1, AGENTS + 1)))
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        links = {(name, Server.BROKER): proxies.open(port) for name, port in ports.items()}
        homes = _homes(folder / "homes", names)
        ways = {name: target.way(proxies, number, homes[name]) for number, name in enumerate(names, 1)}
        links |= {(name, Server.DATABASE): way.proxy for name, way in ways.items()}
        listeners = {_listener(name): (ports[name], links[name, Server.BROKER].port) for name in names}
        settings = {"num.network.threads": "1"} | session_within(options.lease_seconds)
        kafka = EmbeddedKafka(folder / "kafka", further_listeners=listeners, settings=settings)
        parts.callback(kafka.stop)
        kafka.start()
        _create_source_topics(kafka.bootstrap)
        cluster = ClusterAt(kafka.bootstrap)
        create_topics(cluster)
        log = open_log(cluster)
        parts.callback(log.close)
        watch = Watch(log, silence_seconds_max=UP_SECONDS_MAX)
        parts.callback(watch.close)
        points = {name: ArmedPoints(folder / "points" / name) for name in names}
        services = Services(
            kafka.bootstrap,
            AGENTS,
            folder / "logs",
            own={
                name: {
                    "HEADGATE_BOOTSTRAP": f"{HOST}:{links[name, Server.BROKER].port}",
                    "HEADGATE_LEASE_SECONDS": f"{options.lease_seconds:g}",
                    **ways[name].variables,
                    **points[name].variables,
                }
                for name in names
            },
            homes=homes,
        )
        parts.callback(lambda: left_over.extend(stop_all(services.all)))
        load = ShopLoad(source_dsn, seed=options.seed, writers=WRITERS, rate=options.rate, keys=keys)
        capture = Capture(source_dsn, kafka.bootstrap)
        parts.callback(capture.drain)
        parts.callback(load.stop)
        parts.enter_context(display.status(watch, load))
        world = CampaignParts(
            kafka, target, source_dsn, reader, services, watch, load, capture, SourceColumns(source_dsn, load), proxies,
            links, points, options.lease_seconds, scratch,
        )  # fmt: skip
        _begin(world, display, folder)
        yield world


def _begin(world: CampaignParts, display: Display, folder: Path) -> None:
    services = world.services
    display.say(f"starting {len(COORDINATORS)} coordinators and {AGENTS} agents; their logs are in {folder / 'logs'}")
    services.start_coordinators()
    services.start_agents()
    world.capture.start()
    world.load.start()
    what = "an owner announces itself"
    world.watch.wait_for(what, lambda seen: bool(seen.terms), UP_SECONDS_MAX, world.check)
    create_feed(world.target.sink, services, folder, source=world.source, snapshot=SNAPSHOT)
    world.watch.wait_for(
        "every agent announces itself",
        lambda seen: all(agent in seen.sessions for agent in services.agents),
        UP_SECONDS_MAX,
        world.check,
    )
    world.watch.wait_for(
        "every table replicates", lambda seen: all_replicate(seen.snapshot), UP_SECONDS_MAX, world.check
    )
    display.say("every table replicates")


def _listener(name: str) -> str:
    return name.upper().replace("-", "_")


def _homes(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """A folder for each service to run in."""
    homes = {name: folder / name for name in names}
    for home in homes.values():
        home.mkdir(parents=True)
    return homes


def _fill_source(source_dsn: str, seed: int) -> tuple[dict[str, list[tuple[object, ...]]], DatabaseAddress]:
    """Rows that no event will ever have: the feed has to copy them. Their keys, and the source for Headgate's user."""
    with postgres_client(source_dsn) as source:
        create_source(source)
        # PGHOSTADDR sends a service's libpq to its own way to the target; the source is not reached by it.
        reader = postgresql_address(make_conninfo(create_source_role(source, source_dsn), hostaddr=HOST))
        install_source_audit(source)
        keys = fill(source, seed)
        install_outbox(source)
        return keys, reader


def _create_source_topics(bootstrap: str) -> None:
    admin = KafkaConnection(bootstrap).admin
    topics = [NewTopic(f"{TOPIC_PREFIX}.{table.full_name}", num_partitions=1, replication_factor=1) for table in TABLES]
    for created in admin.create_topics(topics).values():
        created.result(scaled_seconds(TOPICS_SECONDS_MAX))
