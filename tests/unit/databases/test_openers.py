"""Whatever opens a database has the same guards: folder for secrets, allowed hosts, TLS options, line ends.

The openers are found in the code, so that a new one cannot be forgotten here.
"""

import ast
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
import pymysql
import pytest

from headgate.capture.source import read_source
from headgate.config.sink_spec import SinkSpec
from headgate.config.source_spec import SourceDatabase
from headgate.databases.address import Target
from headgate.databases.catalogue import Product
from headgate.databases.iceberg.address import place_of
from headgate.databases.mysql.wire import WatchedConnection
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.shell.work import open_strategy
from headgate.migration.strategies.mariadb.replicas import MariadbReplicas
from headgate.migration.strategies.mariadb.sessions import MariadbSessions
from headgate.migration.strategies.postgresql.sessions import PostgresSessions
from headgate.migration.strategies.target import NO_CLUSTER, target_of
from headgate.records.migration import MigrationStrategy
from headgate.sinks.iceberg.catalog_database import open_database
from headgate.sinks.registry import open_sink
from headgate.sinks.relational.mysql import connection as mysql_sink
from headgate.sinks.relational.postgresql import connection as postgresql_sink
from headgate.sinks.relational.session import RelationalSettings
from headgate.sources.database import source_target
from headgate.tables import creation, evolution
from headgate.tables.alteration import Alteration
from headgate.tables.catalogues import open_catalogue
from headgate.tables.plan import Sink
from headgate.verify.sides import open_side

HEADGATE: Final = Path(__file__).parents[3] / "services" / "headgate"
LAB: Final = HEADGATE.with_name("headgate_lab")

Opener = Callable[[str, Path], object]
"""Opens a session at an address with a password's file."""


def _read_catalogue(dsn: str, file: Path) -> None:
    with open_catalogue(source_target(SourceDatabase(dsn=dsn, password_file=file))):
        pass


def _create_at_postgresql(dsn: str, file: Path) -> None:
    creation._create(Target(dsn, file), [], Sink(Product.POSTGRESQL))


def _open_catalog(dsn: str, file: Path) -> object:
    address = f"{dsn}{'&' if '?' in dsn else '?'}warehouse=/lake"
    return open_database(lambda: Target(address, file), place_of(address))


OPENERS: Final[dict[str, Opener]] = {
    "headgate.sinks.iceberg.catalog_database": _open_catalog,
    "headgate.capture.mysql.read": lambda dsn, file: read_source(Target(dsn, file), []),
    "headgate.sinks.relational.postgresql.connection": lambda dsn, file: postgresql_sink.connect(
        RelationalSettings(dsn, file)
    ),
    "headgate.sinks.relational.mysql.connection": lambda dsn, file: mysql_sink.connect(RelationalSettings(dsn, file)),
    "headgate.verify.postgresql": lambda dsn, file: open_side(Target(dsn, file)),
    "headgate.tables.executing": lambda dsn, file: creation._create(Target(dsn, file), [], Sink(Product.MARIADB)),
    "headgate.verify.mysql": lambda dsn, file: open_side(Target(dsn, file)),
    "headgate.migration.strategies.postgresql.sessions": lambda dsn, file: PostgresSessions(
        "m", target_of(dsn, str(file))
    ).open(),
    "headgate.migration.strategies.mariadb.sessions": lambda dsn, file: MariadbSessions(
        "m", target_of(dsn, str(file))
    ).open(),
}
"""Modules that open sessions, and how; each is tried with every guard below."""

OTHERS: Final[dict[str, Opener]] = {
    "a source that is checked, postgresql": lambda dsn, file: read_source(Target(dsn, file), []),
    "a feed's source database, postgresql": lambda dsn, file: _read_catalogue(dsn, file),  # noqa: PLW0108 - told apart by identity
    "a feed's source database, mysql": lambda dsn, file: _read_catalogue(dsn, file),  # noqa: PLW0108
    "tables that are created, postgresql": _create_at_postgresql,
    "tables that are altered, postgresql": lambda dsn, file: evolution._postgresql(
        Target(dsn, file), Alteration(name="s.t", schema="s"), Sink(Product.POSTGRESQL)
    ),
    "tables that are altered, mysql": lambda dsn, file: evolution._mysql(
        Target(dsn, file), Alteration(name="s.t", schema="s"), Sink(Product.MARIADB)
    ),
    "a migration's replicas": lambda dsn, file: MariadbReplicas("m", {"r": target_of(dsn, str(file))}).check(),
    "a feed's connection, postgresql": lambda dsn, file: open_sink(_of_connection("postgresql", dsn, file)).check([]),
    "a feed's connection, mysql": lambda dsn, file: open_sink(_of_connection("mysql", dsn, file)).check([]),
    "a migration's connection, postgresql": lambda dsn, file: _change_at(
        _of_connection("postgresql", dsn, file)
    ).open(),
    "a migration's connection, mysql": lambda dsn, file: _change_at(_of_connection("mysql", dsn, file)).open(),
    "a feed, postgresql": lambda dsn, file: open_sink(SinkSpec(type="postgresql", dsn=dsn, password_file=file)).check(
        []
    ),
    "a program that connects itself": lambda dsn, file: MariadbSessions("m", target_of(dsn, str(file))).password(),
}
"""Further ways to the same."""


def _of_connection(kind: str, dsn: str, file: Path) -> SinkSpec:
    """A feed's sink that names a connection, once that is described on this machine."""
    described = {"kind": kind, "address": dsn, "password_file": str(file), "use": ["sink", "migration"]}
    Path(os.environ["HEADGATE_CONNECTIONS"]).write_text(json.dumps({"connections": {"shop": described}}))
    return SinkSpec(type=kind, connection="shop")


def _change_at(sink: SinkSpec) -> Any:
    """Sessions of a schema change at the database of that connection."""
    spec = MigrationSpec(statement="DROP TABLE t", strategy=MigrationStrategy.DIRECT, database=sink.connection or "")
    return open_strategy("m", spec, cluster_id=NO_CLUSTER)._server.sessions


OPENING: Final = {"open_connection", "open_session", "WatchedConnection"}
DRIVERS: Final = {"connect", "Connection", "AsyncConnection"}


def _modules(package: Path = HEADGATE) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        name = ".".join((package.name, *path.relative_to(package).with_suffix("").parts))
        yield name, ast.parse(path.read_text(encoding="utf-8"))


def _called(tree: ast.Module) -> set[str]:
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {f.attr if isinstance(f, ast.Attribute) else f.id for f in called if isinstance(f, ast.Attribute | ast.Name)}


def test_every_module_that_opens_a_database_is_tried_here() -> None:
    found = {
        name for name, tree in _modules() if not name.startswith("headgate.databases.") and _called(tree) & OPENING
    }
    assert found == set(OPENERS), "add what opens a database to OPENERS, so that its guards are tried"


def test_nobody_connects_past_the_one_place() -> None:
    """The product by databases/ only; the lab, as a client of its own servers, by one module."""
    past = {name for name, tree in (*_modules(), *_modules(LAB)) if _connects_by_driver(tree)}
    assert {name for name in past if not name.startswith("headgate.databases.")} == {"headgate_lab.embedded.clients"}


def _connects_by_driver(tree: ast.Module) -> bool:
    functions = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(
        isinstance(f, ast.Attribute)
        and f.attr in DRIVERS
        and isinstance(f.value, ast.Name)
        and f.value.id in ("psycopg", "pymysql")
        for f in functions
    )


class Driver:
    """What the drivers were given, instead of a connection."""

    def __init__(self) -> None:
        self.given: list[dict[str, Any]] = []


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()

    def connect(_kind: type, conninfo: str = "", **options: Any) -> Any:
        driver.given.append(psycopg.conninfo.conninfo_to_dict(conninfo, **_of_driver(options)))
        raise psycopg.OperationalError("FATAL: none of this test")

    def made(_wire: WatchedConnection, **options: Any) -> None:
        driver.given.append(options)
        raise pymysql.OperationalError(1040, "none of this test")

    monkeypatch.setattr(BoundedConnection, "connect", classmethod(connect))
    monkeypatch.setattr(WatchedConnection, "__init__", made)
    return driver


def _of_driver(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("autocommit", "row_factory")}


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (tmp_path / "elsewhere").write_text("root:x:0:0", encoding="utf-8")
    (folder / "password").write_text("right", encoding="utf-8")
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(folder))
    monkeypatch.delenv("HEADGATE_ALLOWED_HOSTS", raising=False)
    monkeypatch.setenv("HEADGATE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    return folder


ALL: Final = sorted((OPENERS | OTHERS).items())
each_opener = pytest.mark.parametrize("opener", [way for _, way in ALL], ids=[name for name, _ in ALL])


def _address(opener: Opener, host: str = "db.example", tls: Path | None = None) -> str:
    is_postgresql = any(way is opener and ("postgresql" in name or "iceberg" in name) for name, way in ALL)
    if is_postgresql:
        more = f"?sslmode=verify-full&sslrootcert={tls}/ca&sslcert={tls}/cert&sslkey={tls}/key" if tls else ""
        return f"postgresql://ann@{host}/shop{more}"
    more = f"?ssl_ca={tls}/ca&ssl_cert={tls}/cert&ssl_key={tls}/key" if tls else ""
    return f"mysql://ann@{host}/shop{more}"


def _refused(opener: Opener, address: str, file: Path) -> str:
    with pytest.raises(Exception, match="HEADGATE_") as refused:
        opener(address, file)
    return str(refused.value)


@each_opener
@pytest.mark.parametrize("name", ["../elsewhere", "{}/../elsewhere", "/etc/passwd", "kubernetes.io/token"])
def test_a_file_outside_the_folder_for_secrets_is_neither_read_nor_sent(
    opener: Opener, name: str, secrets: Path, driver: Driver
) -> None:
    refused = _refused(opener, _address(opener), Path(name.format(secrets)))
    assert "HEADGATE_SECRETS_DIR" in refused
    assert driver.given == []


@each_opener
def test_a_private_key_outside_of_it_is_refused(opener: Opener, secrets: Path, tmp_path: Path, driver: Driver) -> None:
    assert "private key" in _refused(opener, _address(opener, tls=tmp_path), secrets / "password")
    assert driver.given == []


@each_opener
def test_a_host_that_is_not_allowed_is_not_connected_to(
    opener: Opener, secrets: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_ALLOWED_HOSTS", "db.example")
    refused = _refused(opener, _address(opener, "evil.example"), secrets / "password")
    assert "evil.example" in refused
    assert "HEADGATE_ALLOWED_HOSTS" in refused
    assert driver.given == []


@each_opener
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_line_ends_of_a_password_file_are_left_out_and_it_is_read_each_time(
    opener: Opener, end: str, secrets: Path, driver: Driver
) -> None:
    for password in (" s3cret ", "rotated"):
        (secrets / "password").write_bytes(f"{password}{end}".encode())
        given = _given(opener, _address(opener), Path("password"), driver)
        assert given["password"] in (password, password.encode())


@each_opener
def test_every_tls_option_of_the_address_reaches_the_driver(opener: Opener, secrets: Path, driver: Driver) -> None:
    given = _given(opener, _address(opener, tls=secrets), Path("password"), driver)
    files = {str(secrets / name) for name in ("ca", "cert", "key")}
    if not files <= set(map(str, given.values())):
        assert given == {"password": "right"}, "only a program that connects itself gets no more than the password"
        return
    assert given.get("sslmode") == "verify-full" or (given["ssl_verify_cert"] and given["ssl_verify_identity"])


@each_opener
def test_an_option_that_is_unknown_is_refused(opener: Opener, secrets: Path, driver: Driver) -> None:
    with pytest.raises(Exception, match=r"ssl_caa|invalid"):
        opener(_address(opener) + "?ssl_caa=/etc/ca.pem", secrets / "password")
    assert driver.given == []


def _given(opener: Opener, address: str, file: Path, driver: Driver) -> dict[str, Any]:
    """What the driver was given; the password alone where a program connects."""
    driver.given.clear()
    found: object = None
    with suppress(Exception):
        found = opener(address, file)
        with closing(found):  # type: ignore[type-var]
            pass
    if isinstance(found, str):
        return {"password": found}
    return driver.given[0]
