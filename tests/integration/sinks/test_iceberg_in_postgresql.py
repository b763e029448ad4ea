"""An Iceberg catalog in PostgreSQL: what its user must be allowed, and a server that is gone for a while."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import yaml

from fixtures.servers import reachable_folder
from headgate.config.sink_spec import SinkSpec
from headgate.sinks.contract import SinkError, SinkRefusedError
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.registry import open_sink
from headgate_lab.embedded.postgres import EmbeddedPostgres
from integration.sinks.contract import batch_of, claim_of, upsert
from integration.sinks.iceberg_bench import IcebergBench

pytestmark = pytest.mark.integration

SECRET = "not in any text"
OTHER = (
    "CREATE SCHEMA other; GRANT USAGE ON SCHEMA other TO lake; "
    "ALTER TABLE iceberg_namespace_properties SET SCHEMA other"
)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with reachable_folder() as folder, EmbeddedPostgres(folder / "postgres") as server:
        yield server


@pytest.fixture
def bench(server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IcebergBench]:
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path / "secrets"))
    monkeypatch.setenv("HEADGATE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "lake").write_text(SECRET, encoding="utf-8")
    run(server.dsn(), "CREATE DATABASE lake")
    bench = IcebergBench(tmp_path, appends=False, database=server.dsn("lake"))
    run(server.dsn("lake"), f"CREATE USER lake PASSWORD '{SECRET}'")
    yield bench
    run(server.dsn(), "DROP DATABASE lake WITH (FORCE)", "DROP USER lake")


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def granted(server: EmbeddedPostgres) -> None:
    run(server.dsn("lake"), "GRANT SELECT, INSERT, UPDATE ON iceberg_tables, iceberg_namespace_properties TO lake")


def opened(server: EmbeddedPostgres, bench: IcebergBench, **changed: object) -> LakeSink:
    """By a user of its own, whose password is in a file."""
    dsn = f"postgresql://lake@127.0.0.1:{server.port}/lake?warehouse={bench.folder}"
    sink = open_sink(SinkSpec.model_validate({"type": "iceberg", "dsn": dsn, "password_file": "lake", **changed}))
    assert isinstance(sink, LakeSink)
    return sink


def test_rights_that_the_user_lacks_are_named_as_statements_that_help(
    server: EmbeddedPostgres, bench: IcebergBench
) -> None:
    with pytest.raises(SinkRefusedError, match="user lake lacks rights on the Iceberg catalog") as refused:
        opened(server, bench).check([bench.table])
    _, _, statements = str(refused.value).partition("Run ")
    run(server.dsn("lake"), *statements.split("; "))
    sink = opened(server, bench)
    claim = claim_of(bench, 1)
    sink.claim(claim)
    sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    assert bench.rows() == {1: "a"}


def test_a_wrong_password_is_refused_and_never_shown_and_a_corrected_one_is_read(
    server: EmbeddedPostgres, bench: IcebergBench, tmp_path: Path
) -> None:
    granted(server)
    sink, file = opened(server, bench), tmp_path / "secrets" / "lake"
    claim = claim_of(bench, 1)
    sink.claim(claim)
    file.write_text("a wrong secret", encoding="utf-8")
    for refused_by in (sink, opened(server, bench)):
        with pytest.raises(SinkRefusedError, match="password authentication failed") as refused:
            refused_by.positions(claim)
        assert "secret" not in str(refused.value)
    file.write_text(SECRET, encoding="utf-8")
    sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    assert bench.rows() == {1: "a"}


def test_a_server_that_is_gone_is_tried_again_and_nothing_is_lost_or_doubled(
    server: EmbeddedPostgres, bench: IcebergBench
) -> None:
    granted(server)
    sink = opened(server, bench)
    claim, writer = claim_of(bench, 1), sink.writer()
    sink.claim(claim)
    writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
    server.stop()
    try:
        for _ in range(2):
            with pytest.raises(SinkError) as gone:
                writer.apply(batch_of(claim, 6, upsert(6, 2, "b")))
            assert gone.value.retryable
    finally:
        server.start()
    writer.apply(batch_of(claim, 6, upsert(6, 2, "b")))
    assert (bench.rows(), bench.size(), sink.positions(claim)) == ({1: "a", 2: "b"}, 2, {0: 7, 1: 0})


def test_a_named_connection_has_address_and_password(
    server: EmbeddedPostgres, bench: IcebergBench, tmp_path: Path
) -> None:
    granted(server)
    address = f"postgresql://lake@127.0.0.1:{server.port}/lake?warehouse={bench.folder}"
    connection = {"kind": "iceberg", "address": address, "password_file": "lake", "use": ["sink"]}
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump({"connections": {"lake": connection}}), encoding="utf-8")
    sink = open_sink(SinkSpec(type="iceberg", connection="lake"))
    assert set(sink.check([bench.table])) == {bench.table}


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DROP TABLE iceberg_tables", "is not an Iceberg catalog: no schema on the search path"),
        ("REVOKE USAGE ON SCHEMA public FROM PUBLIC", "grant lake USAGE on its schema"),
        (
            f"{OTHER}; ALTER USER lake SET search_path = public, other",
            "are in different schemas, public and other",
        ),
    ],
)
def test_a_database_that_is_not_a_catalog_is_refused(
    server: EmbeddedPostgres, bench: IcebergBench, statement: str, why: str
) -> None:
    granted(server)
    run(server.dsn("lake"), statement)
    with pytest.raises(SinkRefusedError, match=why):
        opened(server, bench).check([bench.table])


def test_a_catalog_in_a_schema_of_its_own_is_found_by_the_users_search_path(
    server: EmbeddedPostgres, bench: IcebergBench
) -> None:
    granted(server)
    moved = "; ".join(
        f"ALTER TABLE {table} SET SCHEMA own" for table in ("iceberg_tables", "iceberg_namespace_properties")
    )
    run(server.dsn("lake"), f"CREATE SCHEMA own; GRANT USAGE ON SCHEMA own TO lake; {moved}")
    run(server.dsn("lake"), "ALTER USER lake SET search_path = own")
    claim = claim_of(bench, 1)
    sink = opened(server, bench)
    assert sink.claim(claim) == {0: 5, 1: 0}


def test_a_warehouse_that_is_not_mounted_here_is_refused(server: EmbeddedPostgres, bench: IcebergBench) -> None:
    """A commit would put files where no other agent sees them."""
    granted(server)
    dsn = f"postgresql://lake@127.0.0.1:{server.port}/lake?warehouse={bench.root}/not_mounted"
    with pytest.raises(SinkRefusedError, match=r"not_mounted .* is not a folder on this machine"):
        opened(server, bench, dsn=dsn).check([bench.table])
