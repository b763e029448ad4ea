"""What a submission reports of the schema registry that ``--registry`` names."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fixtures.registry_server import RegistryServer

from headgate.config.secrets import CONNECTIONS
from headgate.migration.shell.feeds import ChangeFeeds
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.online.lane_plan import ChangeTopic
from headgate.sources.origin import Origin


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


def test_a_registry_that_refuses_access_is_named_once_by_its_own_option(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "connections.yaml"
    file.write_text(f"connections: {{}}\nregistries: {{avro: {{url: '{server.url}'}}}}\n", encoding="utf-8")
    monkeypatch.setenv(CONNECTIONS, str(file))
    server.answer = (401, '{"error_code": 401, "message": "Unauthorized"}')
    log: Any = SimpleNamespace(connection=None)  # the registry is asked before the broker
    with pytest.raises(RefusedError) as caught:
        ChangeFeeds(log).check_topic(
            ChangeTopic("shop.public.items", "avro"), [Origin("postgresql", "shop", "public.items")]
        )
    whole = f"{CONNECTIONS}: registries.avro"
    assert str(caught.value) == (
        f"{whole}: the schema registry at {server.url} cannot be used: it refuses access (401: Unauthorized). "
        f"Correct {whole}.user and {whole}.password_file, or give the user the right"
    )
