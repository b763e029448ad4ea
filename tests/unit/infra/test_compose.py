"""docker-compose.yml: who is given what. What it does when it runs is tests/containers'."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from containers.ports import VARIABLES

ROOT = Path(__file__).parents[3]
FILES = sorted(path.name for path in ROOT.glob("docker-compose*.yml"))
CONNECTIONS = sorted(path.name for path in (ROOT / "infra/docker").glob("connections*.yaml"))

OPENS_THE_TARGET = {
    *("coordinator-1", "coordinator-2"),  # check a feed's tables before they accept it
    *("agent-1", "agent-2"),  # write them
    "migration",  # alters them
    "cli",  # `headgate verify` reads them
}
OPENS_A_DATABASE = {"source", "target", "connector"}
"""The two servers, and what tells Debezium its password."""


def _services(file: str = "docker-compose.yml") -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["services"]
    return services


def test_only_services_that_open_a_database_get_its_password() -> None:
    given = {name for name, service in _services().items() if service.get("secrets")}
    assert given == OPENS_THE_TARGET | OPENS_A_DATABASE


def test_services_that_open_databases_know_the_same_names_of_them() -> None:
    """The feed into a copy names a connection of the migration service: coordinators and agents resolve it."""
    for name in sorted(OPENS_THE_TARGET):
        service = _services()[name]
        assert service["environment"]["HEADGATE_CONNECTIONS"] == "/connections.yaml"
        assert "./infra/docker/connections.yaml:/connections.yaml:ro" in service["volumes"]


def test_views_are_opened_for_their_own_service_only() -> None:
    opened = {name for name, service in _services().items() if "HEADGATE_VIEWS__BIND" in service.get("environment", {})}
    assert opened == {"views"}


@pytest.mark.parametrize("file", FILES)
def test_every_service_has_a_limit_of_cpu_and_memory(file: str) -> None:
    base = _services()
    for name, service in _services(file).items():
        limited = {**base.get(name, {}), **service}
        assert 0 < limited.get("cpus", 0) <= 2, f"{name}: a machine of two cores must be able to start it"
        assert re.fullmatch(r"\d+[mg]", limited.get("mem_limit", "")), name


@pytest.mark.parametrize("file", FILES)
def test_every_service_starts_again_after_a_failure(file: str) -> None:
    """Such as one that needed more memory than its limit. Commands that a user repeats do not."""
    base = _services()
    policies = {name: {**base.get(name, {}), **service}.get("restart") for name, service in _services(file).items()}
    assert {name for name, policy in policies.items() if policy != "on-failure"} <= {"cli", "topics", "credentials"}


def test_an_agent_has_more_memory_than_its_spark() -> None:
    for name, service in _services().items():
        heap = service.get("environment", {}).get("HEADGATE_SPARK__MEMORY")
        if heap is not None:
            assert _mebibytes(service["mem_limit"]) >= 4 * _mebibytes(heap), name


def _mebibytes(size: str) -> int:
    return int(size[:-1]) * {"m": 1, "g": 1024}[size[-1]]


def test_no_port_is_published_beyond_this_machine() -> None:
    published = _published()
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def _published() -> list[str]:
    return [port for file in FILES for service in _services(file).values() for port in service.get("ports", ())]


def test_every_published_port_can_be_another_one() -> None:
    chosen = {}
    for port in _published():
        found = re.fullmatch(r"127\.0\.0\.1:\$\{(\w+):-(\d+)\}:\d+", port)
        assert found, f"{port}: a variable chooses it, and has a default"
        chosen[found[1]] = int(found[2])
    assert chosen == dict(zip(VARIABLES, (29092, 29093, 29094, 15432, 25432, 8421), strict=True))


@pytest.mark.parametrize("file", FILES)
def test_brokers_advertise_the_port_that_is_published(file: str) -> None:
    for name, service in _services(file).items():
        if advertised := (service.get("environment") or {}).get("KAFKA_ADVERTISED_LISTENERS"):
            number = name.removeprefix("kafka").replace("-", "_")
            assert re.search(rf"HOST://127\.0\.0\.1:\$\{{KAFKA{number}_PORT:-\d+\}}", advertised), name


@pytest.mark.parametrize("file", CONNECTIONS)
def test_no_connection_logs_in_as_the_superuser(file: str) -> None:
    found = yaml.safe_load((ROOT / "infra/docker" / file).read_text(encoding="utf-8"))["connections"]
    assert {urlsplit(each["address"]).username for each in found.values()} == {"migrator"}
    assert {each["password_file"] for each in found.values()} <= {
        *("migrator_password", "source_migrator_password", "target_migrator_password")
    }


def test_no_service_has_the_superusers_password() -> None:
    """Only the servers, which give the superuser that password."""
    given = {
        (name, secret)
        for file in FILES
        for name, service in _services(file).items()
        for secret in service.get("secrets", ())
    }
    assert {name for name, secret in given if secret == "admin_password"} == {"source", "target"}
    assert {name for name, secret in given if secret == "migrator_password"} == {"source", "target", "migration"}
    assert "/password" not in _copied_by_credentials()


def _copied_by_credentials() -> str:
    """What the script of docker-compose.secure.yml copies from the folder of one server into others'."""
    script = (ROOT / "infra/docker/secure/credentials").read_text(encoding="utf-8")
    return " ".join(re.findall(r'cp "\$folder/(?:source|target|\$database)(/\w+)"', script))
