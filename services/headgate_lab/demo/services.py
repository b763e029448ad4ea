"""Headgate as the demo runs it: two coordinators and some agents, each a process, found again by what they announce.

Also the one command that people would type to set it going (``headgate feed create``), typed for them.
"""

import os
import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.demo.schema import TABLES
from headgate_lab.demo.stack import FEED, TOPIC_PREFIX
from headgate_lab.embedded.ports import HOST, free_ports
from headgate_lab.parts.commands import run_command
from headgate_lab.parts.connections import NamedDatabase, password_file_of, write_connections
from headgate_lab.parts.processes import Fate, ServiceError, ServiceProcess, interrupts_deferred
from headgate_lab.parts.settings import service_settings

COORDINATORS: Final = ("coordinator-1", "coordinator-2")

LEASE_SECONDS: Final = 5.0
"""Headgate's default."""

SHUTDOWN_SECONDS: Final = 6.0
"""All agents are stopped at once, so no agent is left that tables could be moved to before."""

SPARK_MEMORY: Final = "512m"
"""Three agents, a broker and two databases fit beside each other in 6 GB; the demo's batches are small."""

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For agents that live for minutes: a start costs 8 s of CPU rather than 13, the first jobs 4 rather than 9."""

OUTCOME_SECONDS_MAX: Final = 240.0
"""For an owner to look at topics and sink and to answer: a second, on a quiet machine."""


CONNECTION: Final = "target"
SOURCE_CONNECTION: Final = "source"
"""Their names in the file of connections, which feeds use."""

PASSWORD_FILE: Final = password_file_of(CONNECTION)
"""The target's, in the folder for secrets."""

SESSIONS_LOST: Final = re.compile(r"^headgate_agent_sessions_lost_total (\S+)$", re.MULTILINE)

METRICS_SECONDS_MAX: Final = 5.0


class Services:
    """The processes, by name. Every one ever started is kept until the end."""

    def __init__(
        self,
        bootstrap: str,
        agents: int,
        log_folder: Path,
        *,
        lease_seconds: float = LEASE_SECONDS,
        own: Mapping[str, Mapping[str, str]] | None = None,
        homes: Mapping[str, Path] | None = None,
    ) -> None:
        """Per service's name: ``own`` are further settings, ``homes`` the folders to run in (ours if not named)."""
        self.log_folder = log_folder
        self.lease_seconds = lease_seconds
        self.settings = _settings(bootstrap, log_folder.parent / "spark", log_folder.parent, lease_seconds)
        self._own = dict(own or {})
        self._homes = dict(homes or {})
        self.running: dict[str, ServiceProcess] = {}
        self.all: list[ServiceProcess] = []
        self.agents = tuple(f"agent-{number}" for number in range(1, agents + 1))
        names = (*COORDINATORS, *self.agents)
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))

    def address(self, name: str) -> str:
        """Where the service's HTTP answers, also after it was started again."""
        return f"http://{HOST}:{self._ports[name]}"

    def start_coordinators(self) -> None:
        """Start both; one becomes the owner, the other tails the topics. They create the control topics."""
        for name in COORDINATORS:
            self.start_coordinator(name)

    def start_coordinator(self, name: str) -> ServiceProcess:
        """Start one coordinator."""
        return self._start(name, "serve", "coordinator", "--create-topics")

    def start_agents(self) -> None:
        """Start all agents."""
        for name in self.agents:
            self.start_agent(name)

    def start_agent(self, name: str) -> ServiceProcess:
        """Start one agent, as a machine's supervisor would."""
        return self._start(name, "serve", "agent", "--name", name)

    def check(self) -> None:
        """Raise ServiceError if a service has ended that nothing was done to."""
        for service in self.running.values():
            service.check()

    def owner_process(self, owner_id: str) -> ServiceProcess:
        """The coordinator that announces itself under this id (host and process id)."""
        for name in COORDINATORS:
            if owner_id.endswith(f"-{self.running[name].pid}"):
                return self.running[name]
        raise ServiceError(f"the owner {owner_id} is none of the coordinators that the demo has started")

    def ended_by_themselves(self) -> list[str]:
        """Services that ended though nothing was done to them."""
        return [service.name for service in self.all if service.fate is Fate.RUNNING and service.exit_code is not None]

    def _start(self, name: str, *arguments: str) -> ServiceProcess:
        with interrupts_deferred():
            settings = self.settings | {"HEADGATE_HTTP__PORT": str(self._ports[name])} | dict(self._own.get(name, {}))
            service = ServiceProcess(name, arguments, settings, self.log_folder, home=self._homes.get(name))
            self.running[name] = service
            self.all.append(service)
        return service


def _settings(bootstrap: str, scratch: Path, secrets_dir: Path, lease_seconds: float) -> dict[str, str]:
    # A killed agent cannot remove its scratch folder: it goes with the demo's.
    scratch.mkdir()
    return service_settings(
        bootstrap,
        secrets_dir,
        master="local[2]",
        HEADGATE_LEASE_SECONDS=f"{lease_seconds:g}",
        HEADGATE_SHUTDOWN_SECONDS=f"{SHUTDOWN_SECONDS:g}",
        HEADGATE_LOG__FORMAT="console",
        HEADGATE_SPARK__MEMORY=SPARK_MEMORY,
        HEADGATE_SPARK__SCRATCH=str(scratch),
        # A feed of a user at `headgate up` may write to the folders that the user allows.
        HEADGATE_ALLOWED_FOLDERS=os.environ.get("HEADGATE_ALLOWED_FOLDERS", ""),
        JAVA_TOOL_OPTIONS=f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {JAVA_OPTIONS}".strip(),
    )


class DatabaseAddress(msgspec.Struct, frozen=True):
    """A database as feeds name it: its ``type``, and its ``dsn`` without the ``password``."""

    type: str
    dsn: str
    password: str


def postgresql_address(dsn: str) -> DatabaseAddress:
    """A PostgreSQL, from an address with a password."""
    parts = conninfo_to_dict(dsn)
    without = make_conninfo("", **{name: value for name, value in parts.items() if name != "password"})
    return DatabaseAddress("postgresql", without, str(parts["password"]))


def feed_text(
    sink: DatabaseAddress, source: DatabaseAddress | None, snapshot: Mapping[str, object] | None = None
) -> str:
    """The feed over all tables, as a user would write it: it names connections. With a source it makes the tables."""
    topics = [f"{TOPIC_PREFIX}.{table.full_name}" for table in TABLES]
    read: dict[str, object] = {"topics": topics, "format": "debezium-json"}
    written: dict[str, object] = {"type": sink.type, "connection": CONNECTION}
    if source is not None:
        read["database"] = {"connection": SOURCE_CONNECTION}
        written |= {"tables": "evolve", "unique_keys": "create"}
    copied = {} if snapshot is None else {"snapshot": dict(snapshot)}
    return yaml.safe_dump({"feed": FEED, "source": read, "sink": written, **copied}, sort_keys=False)


def create_feed(
    sink: DatabaseAddress,
    services: Services,
    folder: Path,
    *,
    source: DatabaseAddress | None = None,
    snapshot: Mapping[str, object] | None = None,
) -> Path:
    """Write the feed's file and run ``headgate feed create`` on it; the file. Raises ServiceError."""
    databases = {CONNECTION: sink} if source is None else {CONNECTION: sink, SOURCE_CONNECTION: source}
    write_connections(
        folder,
        {
            name: NamedDatabase(known.type, known.dsn, known.password, ["sink" if name == CONNECTION else "source"])
            for name, known in databases.items()
        },
    )
    file = folder / f"{FEED}.yaml"
    file.write_text(feed_text(sink, source, snapshot), encoding="utf-8")
    try:
        timeout = f"{scaled_seconds(OUTCOME_SECONDS_MAX):g}"
        answer = run_command(services.settings, "feed", "create", str(file), "-o", "json", "--timeout", timeout)
    except ServiceError:
        # A service that has crashed is the better explanation.
        services.check()
        raise
    if answer.get("status") != "done":
        raise ServiceError(f"headgate feed create did not do it: {answer}; logs are in {services.log_folder}")
    return file


def sessions_lost(address: str) -> int | None:
    """How many sessions the agent at ``address`` has lost so far, by its own metrics; None if it does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/metrics", timeout=METRICS_SECONDS_MAX) as answer:  # noqa: S310
            found = SESSIONS_LOST.search(answer.read().decode())
    except OSError:
        return None
    return None if found is None else int(float(found[1]))
