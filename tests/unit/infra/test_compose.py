"""docker-compose.yml: who is given what. What it does when it runs is tests/containers'."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]

OPENS_THE_TARGET = {
    *("coordinator-1", "coordinator-2"),  # check a feed's tables before they accept it
    *("agent-1", "agent-2"),  # write them
    "migration",  # alters them
    "cli",  # `headgate verify` reads them
}
OPENS_A_DATABASE = {"source", "target", "connector"}
"""The two servers, and what tells Debezium its password."""


def _services() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
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


def test_no_port_is_published_beyond_this_machine() -> None:
    published = [port for service in _services().values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
