"""The databases of `headgate chaos --migrations`: a broker that was killed is captured from again."""

from pathlib import Path
from typing import cast

import pytest

from fixtures.servers import reachable_folder
from headgate_lab.chaos.migration_parts import _Postgres
from headgate_lab.embedded.connect import ConnectWorker
from headgate_lab.embedded.postgres import EmbeddedPostgres

pytestmark = pytest.mark.integration


class Worker:
    """A Connect whose connectors run at once."""

    def __init__(self) -> None:
        self.connectors: list[str] = []

    def put_connector(self, name: str, config: dict[str, str]) -> None:
        assert config["publication.autocreate.mode"] == "disabled"
        self.connectors.append(name)

    def wait_until_running(self, name: str) -> None:
        assert name in self.connectors


def test_capturing_again_finds_the_publication_of_the_first_time() -> None:
    with reachable_folder() as folder, EmbeddedPostgres(Path(folder, "postgres"), logical=True) as server:
        database, worker = _Postgres(server), Worker()
        database.run("public", "CREATE SCHEMA r0", "CREATE TABLE r0.items (id int PRIMARY KEY)")
        for _ in range(2):
            database.capture(cast("ConnectWorker", worker), "127.0.0.1:1")
        assert worker.connectors == ["postgresql"] * 2
        published = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = 'rounds'"
        assert database.run("public", published) == [("r0", "items")]
        assert database.run("public", "SELECT FROM pg_publication") == [()], "a row without columns is a row"
