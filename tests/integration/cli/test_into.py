"""Tenants with a table each at the source and one table at the sink: changed, killed, truncated, copied, compared."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fixtures.services import mariadb_execute
from fixtures.spare_databases import SpareDatabases
from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.clock import wall_ms
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import ANSWER_SECONDS, DEADLINE_SECONDS, Service, headgate, make_topics
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.integration]

READY_SECONDS = 300.0
"""For an agent to have started its Spark."""

ROWS = 20
"""Of each tenant when it joins, with the same keys."""

Rows = dict[tuple[str, int], str]


class Tenants:
    """Schemas with a table ``orders`` at the source, a topic for each, an empty sink, and the feed between them."""

    table = "shop.orders"

    def __init__(self, settings: Settings, log: KafkaLog, source: str, folder: Path) -> None:
        self._settings, self._log, self._folder = settings, log, folder
        self._database = str(conninfo_to_dict(source)["dbname"])
        self.source = psycopg.connect(source, autocommit=True)
        self.file = folder / "shop.yaml"
        given = {name: value for name, value in conninfo_to_dict(source).items() if value is not None}
        self.spec: dict[str, Any] = {
            "feed": "shop",
            "source": {
                "topic_pattern": rf"{settings.cluster}-db\..*",
                "database": self.address(make_conninfo("", **given | {"password": None}), given.get("password", "")),
            },
            "snapshot": "initial",
            "tables": {
                "*.orders": {"into": {"table": "shop.{table}", "discriminator": {"tenant": "{schema}"}}},
                "tenant_2.orders": {"into": {"table": "shop.orders", "discriminator": {"tenant": "second"}}},
            },
        }

    def address(self, dsn: str, password: object) -> dict[str, str]:
        file = self._folder / f"password{len(list(self._folder.glob('password*')))}"
        file.write_text(str(password), encoding="utf-8")
        return {"dsn": dsn, "password_file": str(file)}

    def write(self, sink: dict[str, str], **more: Any) -> None:
        self.spec |= {"sink": sink, **more}
        self.file.write_text(yaml.safe_dump(self.spec), encoding="utf-8")

    def add(self, schema: str, what: str = "varchar(9) NOT NULL") -> None:
        self.source.execute(f'CREATE SCHEMA "{schema}"'.encode())
        self.source.execute(
            f'CREATE TABLE "{schema}".orders (id bigint PRIMARY KEY, what {what}, day date, UNIQUE (what))'.encode()
        )
        self.source.execute(
            f"INSERT INTO \"{schema}\".orders SELECT n, 'ä' || n, NULL FROM generate_series(1, {ROWS}) n".encode()
        )
        make_topics(self._log, NewTopic(self.topic(schema), 1, 1))

    def topic(self, schema: str) -> str:
        return f"{self._settings.cluster}-db.{schema}.orders"

    def change(self, schema: str, *changes: tuple[int, str | None]) -> None:
        """As a writer does, and the connector after it. None deletes the row; without changes, a TRUNCATE."""
        source: dict[str, Any] = {"connector": "postgresql", "db": self._database, "schema": schema, "table": "orders"}
        source |= {"ts_ms": wall_ms()}
        events: list[tuple[bytes | None, dict[str, Any]]] = []
        if not changes:
            self.source.execute(f'TRUNCATE "{schema}".orders'.encode())
            events.append((None, {"op": "t"}))
        for number, what in changes:
            self.source.execute(f'DELETE FROM "{schema}".orders WHERE id = {number}'.encode())
            row = None if what is None else {"id": number, "what": what, "day": None}
            if row is not None:
                self.source.execute(f'INSERT INTO "{schema}".orders VALUES (%(id)s, %(what)s)'.encode(), row)
            event = {"op": "d" if row is None else "u", "before": {"id": number}, "after": row}
            events.append((json.dumps({"id": number}).encode(), event))
        with Producer({"bootstrap.servers": self._settings.bootstrap, "enable.idempotence": True}) as producer:
            for key, event in events:
                producer.produce(self.topic(schema), json.dumps(event | {"source": source}).encode(), key)
            assert producer.flush(ANSWER_SECONDS) == 0

    def expected(self, tenants: dict[str, str]) -> Rows:
        """What the sink must have. ``tenants``: schema → discriminator."""
        return {
            (tenant, number): what
            for schema, tenant in tenants.items()
            for number, what in self.source.execute(f'SELECT id, what FROM "{schema}".orders'.encode()).fetchall()
        }

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """At the sink."""
        raise NotImplementedError

    def rows(self) -> Rows:
        found = self.rows_of("shop.orders", "tenant, id, what")
        return {(str(tenant), int(number)): str(what) for tenant, number, what in found}

    def rows_of(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        """Nothing as long as the table does not exist."""
        schema, name = table.split(".")
        there = self.run(
            f"SELECT 1 FROM information_schema.tables WHERE table_schema = '{schema}' AND table_name = '{name}'"
        )
        return self.run(f"SELECT {columns} FROM {table}") if there else []

    def make(self) -> None:
        """The table that tenants of ``add`` fit into."""
        text = "varchar(64) COLLATE utf8mb4_bin" if isinstance(self, ToMariadb) else "varchar(64)"
        self.run("CREATE SCHEMA shop")  # at MariaDB a database
        self.run(
            f"CREATE TABLE shop.orders (tenant {text}, id bigint, what varchar(9) NOT NULL, day date, "
            "PRIMARY KEY (id, tenant))"
        )

    def key(self) -> list[str]:
        found = self.run(
            "SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = 'shop' "
            "AND table_name = 'orders' AND constraint_name IN ('PRIMARY', 'orders_pkey') ORDER BY ordinal_position"
        )
        return [str(name) for (name,) in found]


class ToPostgres(Tenants):
    def into(self, dsn: str) -> None:
        self.sink = psycopg.connect(dsn, autocommit=True)
        given = {name: value for name, value in conninfo_to_dict(dsn).items() if value is not None}
        password = given.pop("password", "")
        self.write({"type": "postgresql", **self.address(make_conninfo("", **given), password)})

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self.sink.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


class ToMariadb(Tenants):
    def into(self, url: str) -> None:
        self._url, address = url, urlsplit(url)
        mariadb_execute(url, "DROP DATABASE IF EXISTS shop")
        dsn = f"mysql://{address.username}@{address.hostname}:{address.port}/{address.path.strip('/')}"
        self.write({"type": "mysql", **self.address(dsn, unquote(address.password or ""))})

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        return mariadb_execute(self._url, statement)


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.long)])
def tenants(
    request: pytest.FixtureRequest,
    settings: Settings,
    log: KafkaLog,
    postgres_database: str,
    tmp_path: Path,
) -> Iterator[Tenants]:
    if request.param == "mariadb":
        mariadb = ToMariadb(settings, log, postgres_database, tmp_path)
        mariadb.into(request.getfixturevalue("mariadb_database"))
        with mariadb.source:
            yield mariadb
        mariadb.run("DROP DATABASE IF EXISTS shop")
        return
    spare_databases: SpareDatabases = request.getfixturevalue("spare_databases")
    with spare_databases.database() as parameters:
        postgres = ToPostgres(settings, log, postgres_database, tmp_path)
        postgres.into("postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters))
        with postgres.source, postgres.sink:
            yield postgres


def done(*arguments: str) -> str:
    result = headgate(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout + result.stderr


def is_replicating(tables: int) -> bool:
    """Whether so many tables replicate, and none is being copied."""
    spans = json.loads(done("feed", "show", "shop", "-o", "json"))["spans"]
    return [row["state"] for row in spans] == ["replicating"] * tables


@pytest.mark.usefixtures("one_core_spark")
def test_tenants_are_written_to_one_table_and_never_to_each_others_rows(
    tenants: Tenants, serve: Callable[..., Service]
) -> None:
    tenants.add("tenant_1")
    tenants.add("tenant_2")
    two = {"tenant_1": "tenant_1", "tenant_2": "second"}
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready", DEADLINE_SECONDS)
    dry = json.loads(done("feed", "create", str(tenants.file), "--dry-run", "-o", "json"))
    assert [(span["table"], span["topic"]) for span in dry["spans"]] == [
        ("shop.orders@tenant=second", tenants.topic("tenant_2")),
        ("shop.orders@tenant=tenant_1", tenants.topic("tenant_1")),
    ]
    done("feed", "create", str(tenants.file))
    first = serve("a1", "agent", "--name", "a1")
    eventually(lambda: tenants.rows() == tenants.expected(two), "the rows of both are copied", READY_SECONDS)
    assert tenants.key() == ["tenant", "id"]

    tenants.change("tenant_1", (1, "one"), (2, None), (ROWS + 1, "new"))
    tenants.change("tenant_2", (1, "two"), (3, None))
    eventually(lambda: tenants.rows() == tenants.expected(two), "changes of the same keys", DEADLINE_SECONDS)
    first.process.kill()
    tenants.change("tenant_1", *((number, f"a{number}") for number in range(1, ROWS)))
    tenants.change("tenant_2", *((number, f"b{number}" if number % 2 else None) for number in range(1, ROWS)))
    tenants.change("tenant_1")
    tenants.change("tenant_1", (5, "after"))
    serve("a2", "agent", "--name", "a2")
    eventually(lambda: tenants.rows() == tenants.expected(two), "a TRUNCATE of one tenant after a kill", READY_SECONDS)
    assert len(tenants.rows()) > ROWS // 2, "the other tenant has its rows"

    # One that joins, and one that does not fit.
    tenants.add("TENANT_1")
    tenants.add("tenant_3")
    tenants.change("tenant_3", (3, "third"))  # a topic without records does not join
    three = two | {"tenant_3": "tenant_3"}
    eventually(lambda: tenants.rows() == tenants.expected(three), "a tenant joins", READY_SECONDS)
    eventually(lambda: is_replicating(3), "nothing is left to copy", DEADLINE_SECONDS)
    shown = " ".join(done("feed", "show", "shop").split())
    assert "nothing keeps their rows apart: tenant is 'TENANT_1' for one, and the other has the same value" in shown
    listed = json.loads(done("table", "list", "shop", "-o", "json"))
    assert {row["table"] for row in listed} == {f"shop.orders@tenant={tenant}" for tenant in three.values()}
    done("verify", "shop")

    # Rows that differ, in every way, are repaired in one tenant only.
    tenants.run("DELETE FROM shop.orders WHERE tenant = 'second' AND id = 1")
    tenants.run("UPDATE shop.orders SET what = 'wrong' WHERE tenant = 'second' AND id = 5")
    tenants.run("INSERT INTO shop.orders (tenant, id, what) VALUES ('second', 999, 'x'), ('tenant_3', 999, 'stays')")
    kept = tenants.expected(three) | {("tenant_3", 999): "stays"}
    found = headgate("verify", "shop", "--table", "shop.orders@tenant=second", "--settle", "0", "-o", "json")
    assert (found.exit_code, json.loads(found.stdout)["differences"]) == (ExitCode.DIFFERENCE, 3), found.stderr
    done("verify", "shop", "--table", "shop.orders@tenant=second", "--settle", "0", "--repair", "--yes")
    eventually(lambda: tenants.rows() == kept, "the rows of one tenant are repaired", DEADLINE_SECONDS)
    tenants.run("INSERT INTO shop.orders (tenant, id, what) VALUES ('second', 0, 'a'), ('second', 998, 'z')")
    done("table", "resync", "shop", "shop.orders@tenant=second", "--delete", "--yes")
    eventually(lambda: tenants.rows() == kept, "a whole tenant is copied again, with deletes", DEADLINE_SECONDS)

    # Pausing one holds up no other.
    done("table", "pause", "shop", "shop.orders@tenant=second")
    tenants.change("tenant_2", (7, "later"))
    tenants.change("tenant_1", (7, "now"))
    eventually(lambda: tenants.rows().get(("tenant_1", 7)) == "now", "the other one goes on", DEADLINE_SECONDS)
    assert tenants.rows().get(("second", 7)) != "later"
    done("table", "resume", "shop", "shop.orders@tenant=second")
    kept = tenants.expected(three) | {("tenant_3", 999): "stays"}
    eventually(lambda: tenants.rows() == kept, "and then both", DEADLINE_SECONDS)


def test_sources_that_do_not_fit_into_one_table_are_refused(tenants: Tenants, serve: Callable[..., Service]) -> None:
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready", DEADLINE_SECONDS)
    tenants.add("tenant_1")
    tenants.add("tenant_2", "text NOT NULL")

    def refused(code: ExitCode) -> str:
        tenants.write(tenants.spec["sink"])
        result = headgate("feed", "create", str(tenants.file), "--dry-run")
        assert result.exit_code == code, result.stderr
        return " ".join(result.stderr.split())

    into: dict[str, Any] = tenants.spec["tables"]
    told = refused(ExitCode.SINK_REFUSED)
    assert "does not fit into it, as another defines it: its column what is of type" in told
    if isinstance(tenants, ToPostgres):
        tenants.spec["tables"] = {"tenant_1.*": {"table": "public.orders"}, "tenant_2.*": {"table": "orders"}}
        assert "are two names of the same rows of table public.orders" in refused(ExitCode.SOURCE)
        tenants.spec["tables"] = into
    tenants.make()
    told = refused(ExitCode.SINK_REFUSED)
    assert f"topic {tenants.topic('tenant_2')} does not fit into table shop.orders, which the sink has already" in told
    assert f"topic {tenants.topic('tenant_1')} does not" not in told
    tenants.run("DROP TABLE shop.orders")
    same: dict[str, Any] = {"table": "shop.orders", "discriminator": {"tenant": "same"}}
    tenants.spec["tables"] = {"*.orders": {"into": same}}
    told = refused(ExitCode.SOURCE)
    assert "both go to table shop.orders, and nothing keeps their rows apart: tenant is 'same'" in told
    tenants.spec["tables"] = {"*.orders": {"into": same | {"discriminator": {"what": "{schema}"}}}}
    told = refused(ExitCode.FEED_SPEC)
    assert "the source's table has a column what itself" in told


@pytest.mark.long
@pytest.mark.usefixtures("one_core_spark")
@pytest.mark.parametrize("tenants", ["postgresql"], indirect=True)
def test_one_source_goes_to_several_tables_by_several_feeds(tenants: Tenants, serve: Callable[..., Service]) -> None:
    for schema in ("tenant_1", "tenant_2"):
        tenants.add(schema)
    both = {"tenant_1": "tenant_1", "tenant_2": "second"}
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready", DEADLINE_SECONDS)
    done("feed", "create", str(tenants.file))
    own = tenants.file.with_name("own.yaml")
    sink = tenants.spec["sink"] | {"table": "own.{schema}_{table}"}
    own.write_text(yaml.safe_dump(tenants.spec | {"feed": "own", "tables": {}, "sink": sink}), encoding="utf-8")
    done("feed", "create", str(own))
    # The same rows a third time, by a number, beside a feed that has other numbers of the same table.
    for feed, number in (("one", 1), ("two", 2)):
        entry = {"into": {"table": "numbers.orders", "discriminator": {"tenant": number}}}
        source = tenants.spec["source"] | {"topics": [tenants.topic(f"tenant_{number}")]}
        del source["topic_pattern"]
        spec = tenants.spec | {"feed": feed, "source": source, "tables": {"*.orders": entry}}
        own.write_text(yaml.safe_dump(spec), encoding="utf-8")
        done("feed", "create", str(own))
    serve("a1", "agent", "--name", "a1")

    def is_equal() -> bool:
        wanted = tenants.expected({schema: schema for schema in both})
        alone = {
            (schema, key): what for schema in both for key, what in tenants.rows_of(f"own.{schema}_orders", "id, what")
        }
        numbered = tenants.rows_of("numbers.orders", "tenant, id, what")
        counted = {(f"tenant_{number}", key): what for number, key, what in numbered}
        return tenants.rows() == tenants.expected(both) and alone == wanted == counted

    eventually(is_equal, "the rows of both are copied into three tables", READY_SECONDS)
    tenants.change("tenant_1", (1, "one"), (2, None))
    tenants.change("tenant_2")
    tenants.change("tenant_2", (3, "after"))
    eventually(is_equal, "changes of both, and a TRUNCATE", DEADLINE_SECONDS)
    done("verify", "one")
    done("feed", "delete", "own", "--yes")
    tenants.change("tenant_1", (4, "later"))
    eventually(lambda: tenants.rows() == tenants.expected(both), "other feeds go on", DEADLINE_SECONDS)
