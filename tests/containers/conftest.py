"""docker-compose.yml as a user runs it, and the engine's command."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from containers.ports import PORTS
from headgate.provisioning.time_scale import scaled_seconds
from support import waiting

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 900.0
"""For all services to be healthy: two Sparks, a broker, Connect and two databases start at once on two cores."""

OUTCOME = ("--timeout", str(scaled_seconds(DEADLINE_SECONDS)))
"""Of commands that wait for an outcome: on a busy machine it comes minutes after the request."""

ANSWER_SECONDS = scaled_seconds(60.0)
"""For one answer on a busy machine."""

eventually = partial(waiting.eventually, seconds=DEADLINE_SECONDS)


def run(*command: str, check: bool = True, environment: Mapping[str, str] | None = None) -> str:
    """A command's standard output; what it said is in the failure."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def docker(*arguments: str, check: bool = True) -> str:
    """``docker …``."""
    return run("docker", *arguments, check=check).strip()


def logs_of(container: str) -> str:
    """What a container has said so far, on both streams."""
    said = subprocess.run(
        ["docker", "logs", container], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return said.stdout


class Compose:
    """One project of docker-compose.yml, by the newer plug-in or the older program, whichever there is.

    ``files`` are further ones, laid over it; ``variables`` are those that the files ask for, beside the ports.
    """

    def __init__(self, project: str, *files: str, variables: Mapping[str, str] | None = None) -> None:
        self.project = project
        self._files = [argument for file in ("docker-compose.yml", *files) for argument in ("-f", file)]
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
        self._command = ("docker", "compose") if plugin else ("docker-compose",)
        # Without the newer builder's plug-in the older one, which every engine has, must be asked for.
        has_builder = subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode == 0
        self._environment = {} if has_builder else {"DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}
        # The older program gives up an answer of the engine after a minute, however slow the machine is.
        self._environment["COMPOSE_HTTP_TIMEOUT"] = str(round(ANSWER_SECONDS))
        self._environment |= {name: str(port) for name, port in PORTS.items()} | (variables or {})

    def __call__(self, *arguments: str, check: bool = True) -> str:
        """``docker compose …``."""
        command = (*self._command, *self._files, "-p", self.project, *arguments)
        return run(*command, check=check, environment=self._environment).strip()

    def container(self, service: str) -> str:
        """The id of a service's container."""
        return self("ps", "-q", service)

    def state(self, service: str) -> dict[str, Any]:
        """What the engine says of a service's container."""
        state: dict[str, Any] = json.loads(docker("inspect", "--format", "{{json .State}}", self.container(service)))
        return state

    def healthy(self, service: str) -> bool:
        """Whether its health check passes."""
        state = self.state(service)
        if state["Status"] == "exited":
            pytest.fail(f"{service} has ended with {state['ExitCode']}:\n{self('logs', '--tail', '40', service)}")
        return state.get("Health", {}).get("Status") == "healthy"

    def command(self, *arguments: str) -> Any:
        """``headgate … -o json`` in a container of its own."""
        return json.loads(self("run", "--rm", "-T", "cli", *arguments, "-o", "json"))


SERVICES = (
    *("kafka", "source", "target", "connect", "coordinator-1", "coordinator-2", "agent-1", "agent-2"),
    *("generation", "migration", "views"),
)
FOR_FEEDS = tuple(service for service in SERVICES if service not in ("generation", "migration"))
"""What a feed needs, and what shows it."""


def left_of(project: str) -> list[str]:
    """Containers, volumes and networks that the engine still has of a project."""
    label = f"label=com.docker.compose.project={project}"
    asked = (("ps", "-a"), ("volume", "ls"), ("network", "ls"))
    return [one for what in asked for one in docker(*what, "-q", "--filter", label).split()]


@cache
def build_images() -> None:
    """The product's image and Connect's, once for all tests: whichever file comes first finds them."""
    Compose("headgate-images")("build")


@contextmanager
def brought_up(compose: Compose, services: Sequence[str] = SERVICES) -> Iterator[Compose]:
    """These services, and the connector, up and healthy; nothing is left of them afterwards."""
    if shutil.which("docker") is None:
        pytest.fail("there is no docker command: apt-get install docker.io, and start dockerd")
    try:
        build_images()
        compose("up", "--detach", *services, "connector")
        for service in services:
            eventually(lambda name=service: compose.healthy(name), f"{service} is healthy")
        yield compose
    finally:
        compose("down", "--volumes", "--remove-orphans", check=False)


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    """docker-compose.yml as it is."""
    with brought_up(Compose(f"headgate-test-{os.getpid()}")) as compose:
        yield compose
