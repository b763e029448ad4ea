"""A replica of MariaDB is asked for its lag itself; a copy stands still while it is behind."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fixtures.services import mariadb_connect, mariadb_execute
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.mariadb.server import MariadbServer
from headgate.migration.strategies.target import NO_CLUSTER, target_of
from headgate_lab.embedded.mariadb import EmbeddedMariadb
from support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedMariadb, EmbeddedMariadb]]:
    """A primary and its replica, with one user and password."""
    folder = tmp_path_factory.mktemp("pair")
    with (
        EmbeddedMariadb(folder / "primary", captured=True) as primary,
        EmbeddedMariadb(folder / "replica", settings={"server_id": "2"}) as replica,
    ):
        mariadb_execute(primary.dsn(), "CREATE DATABASE shop")
        for server in (primary, replica):
            mariadb_execute(server.dsn(), "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'secret'")
            mariadb_execute(server.dsn(), "GRANT ALL ON *.* TO app@'127.0.0.1'")
        with closing(mariadb_connect(primary.dsn())) as session, session.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            file, place = cursor.fetchone()[:2]
        mariadb_execute(
            replica.dsn(),
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, MASTER_USER='app', "
            f"MASTER_PASSWORD='secret', MASTER_LOG_FILE='{file}', MASTER_LOG_POS={place}",
        )
        mariadb_execute(replica.dsn(), "START SLAVE")
        yield primary, replica


def test_a_replica_that_is_late_or_does_not_replicate_is_seen(
    pair: tuple[EmbeddedMariadb, EmbeddedMariadb], tmp_path: Path
) -> None:
    primary, replica = pair
    (tmp_path / "password").write_text("secret", encoding="utf-8")
    addresses = [f"mysql://app@127.0.0.1:{server.port}" for server in pair]
    with closing(
        MariadbServer("m", target_of(f"{addresses[0]}/shop", str(tmp_path / "password")), cluster_id=NO_CLUSTER)
    ) as server:
        with pytest.raises(RefusedError, match="name them with --replica"):
            server.check_load(with_lag=True)
        server.watch_replicas({"r": target_of(addresses[0], str(tmp_path / "password"))})
        with pytest.raises(RefusedError, match="not a replica of any server"):
            server.check_load(with_lag=True)
        server.close()
        server.watch_replicas({"r": target_of(addresses[1], str(tmp_path / "password"))})
        server.check_load(with_lag=True)
        server.take_over(1)
        eventually(lambda: server.load().lag_seconds == 0.0, "it has caught up")
        mariadb_execute(replica.dsn(), "STOP SLAVE SQL_THREAD")
        eventually(lambda: server.load().lag_seconds == float("inf"), "it does not replicate")
        mariadb_execute(primary.dsn("shop"), "CREATE TABLE late (id int)")
        mariadb_execute(replica.dsn(), "STOP SLAVE")
        mariadb_execute(replica.dsn(), "CHANGE MASTER TO MASTER_DELAY = 3600")
        mariadb_execute(replica.dsn(), "START SLAVE")
        eventually(lambda: 1 < server.load().lag_seconds < float("inf"), "it is late")
        replica.kill()
        eventually(lambda: server.load().lag_seconds == float("inf"), "it cannot be asked")
