"""Headgate as the demo runs it: two coordinators and some agents, each a process, found again by what they announce.

Also the one command that people would type to set it going (``headgate feed create``), typed for them.
"""

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.provisioning.java import java_home_for_spark
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.demo.processes import (
    HEADGATE,
    Fate,
    ServiceError,
    ServiceProcess,
    environment,
    interrupts_deferred,
)
from headgate_lab.demo.schema import TABLES
from headgate_lab.demo.stack import FEED, TOPIC_PREFIX
from headgate_lab.embedded.ports import HOST, free_ports

COORDINATORS: Final = ("coordinator-1", "coordinator-2")

LEASE_SECONDS: Final = 5.0
"""Headgate's default; the goals of the take-overs are counted from it."""

SHUTDOWN_SECONDS: Final = 6.0
"""All agents are stopped at once, so there is nobody to whom tables could be moved before."""

SPARK_MEMORY: Final = "512m"
"""Three agents, a broker and two databases fit beside each other in 6 GB; the demo's batches are small."""

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For agents that live for minutes: a start costs 8 s of CPU rather than 13, the first jobs 4 rather than 9."""

COMMAND_SECONDS_MAX: Final = 600.0
"""For one command, however slow its own start is."""

OUTCOME_SECONDS_MAX: Final = 240.0
"""For an owner to look at topics and sink and to answer: a second, on a quiet machine."""


PASSWORD_FILE: Final = "target.password"  # noqa: S105 - the name of a file
"""In the folder for secrets."""

CONNECTIONS_FILE: Final = "connections.yaml"
CONNECTION: Final = "target"
"""The target's name in it, which feeds use."""

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
        own: Mapping[str, Mapping[str, str]] | None = None,
        homes: Mapping[str, Path] | None = None,
    ) -> None:
        """Per service's name: ``own`` are further settings, ``homes`` the folders to run in (ours if not named)."""
        self.log_folder = log_folder
        self.settings = _settings(bootstrap, log_folder.parent / "spark", log_folder.parent)
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


def _settings(bootstrap: str, scratch: Path, secrets_dir: Path) -> dict[str, str]:
    # A killed agent cannot remove its scratch folder: it goes with the demo's.
    scratch.mkdir()
    return {
        "HEADGATE_BOOTSTRAP": bootstrap,
        "HEADGATE_SHARDS": "1",
        "HEADGATE_REPLICATION_FACTOR": "1",
        "HEADGATE_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
        "HEADGATE_SHUTDOWN_SECONDS": f"{SHUTDOWN_SECONDS:g}",
        "HEADGATE_LOG__FORMAT": "console",
        "HEADGATE_SPARK__MASTER": "local[2]",
        "HEADGATE_SPARK__MEMORY": SPARK_MEMORY,
        "HEADGATE_SPARK__SCRATCH": str(scratch),
        "HEADGATE_SECRETS_DIR": str(secrets_dir),
        "HEADGATE_CONNECTIONS": str(secrets_dir / CONNECTIONS_FILE),
        "JAVA_HOME": str(java_home_for_spark()),
        "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {JAVA_OPTIONS}".strip(),
    }


class SinkAddress(msgspec.Struct, frozen=True):
    """A feed's sink: its ``type`` and ``dsn`` as feeds have them, without the ``password``."""

    type: str
    dsn: str
    password: str


def postgresql_sink(target_dsn: str) -> SinkAddress:
    """A PostgreSQL as a sink."""
    target = conninfo_to_dict(target_dsn)
    dsn = make_conninfo("", **{name: value for name, value in target.items() if name != "password"})
    return SinkAddress("postgresql", dsn, str(target["password"]))


def connections_text(sink: SinkAddress) -> str:
    """The file with the target as a named connection, as an operator would write it."""
    target = {"kind": sink.type, "address": sink.dsn, "password_file": PASSWORD_FILE, "use": ["sink"]}
    return yaml.safe_dump({"connections": {CONNECTION: target}}, sort_keys=False)


def feed_text(sink: SinkAddress) -> str:
    """The feed over all tables, as a user would write it: it names the target's connection."""
    return yaml.safe_dump(
        {
            "feed": FEED,
            "source": {"topics": [f"{TOPIC_PREFIX}.{table.full_name}" for table in TABLES], "format": "debezium-json"},
            "sink": {"type": sink.type, "connection": CONNECTION},
        },
        sort_keys=False,
    )


def create_feed(sink: SinkAddress, services: Services, folder: Path) -> Path:
    """Write the feed's file and run ``headgate feed create`` on it; the file. Raises ServiceError."""
    password_file = folder / PASSWORD_FILE
    password_file.touch(mode=0o600)
    password_file.write_text(sink.password, encoding="utf-8")
    file = folder / f"{FEED}.yaml"
    (folder / CONNECTIONS_FILE).write_text(connections_text(sink), encoding="utf-8")
    file.write_text(feed_text(sink), encoding="utf-8")
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


def run_command(settings: Mapping[str, str], *arguments: str) -> dict[str, object]:
    """Run a ``headgate … -o json`` command; its answer. Raises ServiceError with what it said."""
    command = [*HEADGATE, *arguments]
    seconds = scaled_seconds(COMMAND_SECONDS_MAX)
    typed = f"headgate {' '.join(arguments)}"
    try:
        done = subprocess.run(
            command, env=environment(settings), capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"{typed} did not end within {seconds:.0f} s") from error
    if done.returncode != 0:
        raise ServiceError(f"{typed} ended with exit code {done.returncode}: {done.stderr.strip()}")
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def sessions_lost(address: str) -> int | None:
    """How many sessions the agent at ``address`` has lost so far, by its own metrics; None if it does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/metrics", timeout=METRICS_SECONDS_MAX) as answer:  # noqa: S310
            found = SESSIONS_LOST.search(answer.read().decode())
    except OSError:
        return None
    return None if found is None else int(float(found[1]))
