"""``headgate feed init``: what it writes is accepted, and nothing is replaced unasked."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import conninfo_to_dict

from fixtures.services import mariadb_execute
from fixtures.spare_databases import SpareDatabases
from headgate.app.exit_codes import ExitCode
from headgate.config.feed import load_feed
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import headgate, make_topics

pytestmark = pytest.mark.integration

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, note text);
CREATE TABLE shop.items (id bigint PRIMARY KEY, span interval);
CREATE TABLE shop."Order Lines" (id bigint PRIMARY KEY);
CREATE TABLE shop.audit (at timestamptz);
CREATE TABLE shop.codes (code char(3) NOT NULL UNIQUE, label text, twice int);
CREATE FUNCTION shop.made(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1';
CREATE TABLE shop.sums (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED,
  made int GENERATED ALWAYS AS (shop.made(id)) STORED);
ALTER TABLE shop.codes REPLICA IDENTITY USING INDEX codes_code_key;
"""

TABLE_NAMES = ("shop.orders", "shop.items", "shop.Order Lines", "shop.audit", "shop.codes", "shop.sums")


class Databases:
    """A source and a sink, their addresses without passwords, and the options that name the passwords' files."""

    def __init__(self, source: str, sink: str, secrets: Path) -> None:
        self.source, self.sink = source, sink
        self.options: list[str] = []
        for option, dsn in (("source", source), ("sink", sink)):
            parts = conninfo_to_dict(dsn)
            (secrets / option).write_text(str(parts["password"]))
            address = "postgresql://{user}@{host}:{port}/{dbname}".format(**parts)
            self.sink_address = address
            self.options += [f"--{option}", address, f"--{option}-password-file", option]


@pytest.fixture
def databases(
    settings: Settings, spare_databases: SpareDatabases, postgres_database: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Databases]:  # fmt: skip
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(secrets))
    with psycopg.connect(postgres_database, autocommit=True) as source:
        source.execute(TABLES)
    with spare_databases.database() as parameters:
        sink = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters)
        yield Databases(postgres_database, sink, secrets)


def initialised(databases: Databases, settings: Settings, folder: Path, *more: str) -> list[Path]:
    """The files that are written: the connector, the feed, and statements."""
    folder.mkdir(exist_ok=True)
    where = ["--folder", str(folder), "-o", "json"]
    done = headgate("feed", "init", f"{settings.cluster}-shop", *databases.options, *where, *more)
    assert done.exit_code == 0, done.stderr
    return [Path(row["file"]) for row in json.loads(done.stdout)]


def test_what_it_writes_is_accepted(databases: Databases, settings: Settings, log: KafkaLog, tmp_path: Path) -> None:
    connector, feed, statements = initialised(databases, settings, tmp_path / "made")
    assert json.loads(connector.read_text())["topic.prefix"] == f"{settings.cluster}-shop"
    make_topics(log, *(NewTopic(topic, 1, 1) for topic in load_feed(feed).source.topics))
    assert tables_of(feed) == dict.fromkeys(TABLE_NAMES, "missing")
    with psycopg.connect(databases.sink, autocommit=True) as sink:
        sink.execute(statements.read_bytes())
        assert sink.execute("INSERT INTO shop.sums (id) VALUES (4) RETURNING *").fetchall() == [(4, 8)]
    assert tables_of(feed) == dict.fromkeys(TABLE_NAMES, "exists")


def test_a_column_that_the_source_computes_is_not_a_plain_one_at_the_sink(
    databases: Databases, settings: Settings, log: KafkaLog, tmp_path: Path
) -> None:
    _, feed, _ = initialised(databases, settings, tmp_path / "made", "--tables", "shop.sums")
    make_topics(log, *(NewTopic(topic, 1, 1) for topic in load_feed(feed).source.topics))
    with psycopg.connect(databases.sink, autocommit=True) as sink:
        sink.execute("CREATE SCHEMA shop; CREATE TABLE shop.sums (id int PRIMARY KEY, twice int)")
    refused = headgate("feed", "create", str(feed), "--dry-run")
    assert refused.exit_code == ExitCode.SINK_REFUSED, refused.stderr
    assert "the source computes twice" in " ".join(refused.stderr.split())
    text = feed.read_text()
    feed.write_text(text.replace("exclude: [made]", "exclude: [made, twice]"))
    assert tables_of(feed) == {"shop.sums": "exists"}


def tables_of(feed: Path) -> dict[str, str]:
    """Table → whether the sink has it, of a feed that would be accepted."""
    dry = headgate("feed", "create", str(feed), "--dry-run", "-o", "json")
    assert dry.exit_code == 0, dry.stderr
    return {span["table"]: span["at_sink"] for span in json.loads(dry.stdout)["spans"]}


def test_a_file_is_replaced_only_when_asked(databases: Databases, settings: Settings, tmp_path: Path) -> None:
    connector, feed, *_ = initialised(databases, settings, tmp_path / "made")
    feed.write_text("mine")
    again = headgate("feed", "init", f"{settings.cluster}-shop", *databases.options, "--folder", str(tmp_path / "made"))
    assert (again.exit_code, feed.read_text()) == (ExitCode.NOT_CONFIRMED, "mine")
    assert f"{connector}, {feed}" in again.stderr
    initialised(databases, settings, tmp_path / "made", "--yes")
    assert load_feed(feed).feed == f"{settings.cluster}-shop"


def test_it_says_what_is_still_to_be_done(databases: Databases, settings: Settings, tmp_path: Path) -> None:
    done = headgate("feed", "init", "shop", *databases.options, "--folder", str(tmp_path), "--tables", "shop.items")
    assert done.exit_code == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "the source is not ready" in said
    assert "the sink does not have shop.items, as far as its user can see. The feed creates them" in said
    assert "GRANT" not in said


def test_rights_to_create_tables_are_named(databases: Databases, tmp_path: Path) -> None:
    name = "limited_" + str(conninfo_to_dict(databases.sink)["dbname"])[-12:]
    with psycopg.connect(databases.sink, autocommit=True) as sink:
        (password,) = (tmp_path / "secrets" / "sink").read_text().splitlines()
        sink.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'".encode())
        try:
            address = re.sub("//[^@]*@", f"//{name}@", databases.sink_address)
            options = changed(databases.options, "--sink", address)
            done = headgate("feed", "init", "shop", *options, "--folder", str(tmp_path), "--tables", "shop.items")
        finally:
            sink.execute(f"DROP ROLE {name}".encode())
    assert done.exit_code == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert f"GRANT CREATE ON DATABASE {conninfo_to_dict(databases.sink)['dbname']} TO {name};" in said
    assert f"psql {address} --set=ON_ERROR_STOP=1 --single-transaction --file=" in said
    assert 'CREATE TABLE IF NOT EXISTS "shop"."items"' in (tmp_path / "shop-tables.sql").read_text()
    assert load_feed(tmp_path / "shop.yaml").source.topics == ("shop.shop.items",)


def test_a_column_without_a_type_is_named_with_its_option(databases: Databases, tmp_path: Path) -> None:
    with psycopg.connect(databases.source, autocommit=True) as source:
        source.execute("ALTER TABLE shop.items ADD COLUMN pair shop.orders")
    more = ["--folder", str(tmp_path), "--tables", "shop.items"]
    done = headgate("feed", "init", "shop", *databases.options, *more)
    assert (done.exit_code, (tmp_path / "shop-tables.sql").exists()) == (0, False), done.stderr
    assert "no statement for shop.items, column pair: shop.orders is not a type" in " ".join(done.stderr.split())
    assert "`headgate feed create` refuses the feed until then" in " ".join(done.stderr.split())
    done = headgate("feed", "init", "shop", *databases.options, *more, "--type", "shop.items.pair=jsonb", "--yes")
    assert done.exit_code == 0, done.stderr
    assert load_feed(tmp_path / "shop.yaml").sink.types == {"shop.items.pair": "jsonb"}
    assert '"pair" jsonb' in (tmp_path / "shop-tables.sql").read_text()


def changed(options: list[str], option: str, value: str) -> list[str]:
    at = options.index(option) + 1
    return [*options[:at], value, *options[at + 1 :]]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--source-password-file", "none", "--source-password-file none: cannot read"),
        ("--sink-password-file", "wrong", "cannot open a session at the sink"),
        ("--sink", "postgresql://me@127.0.0.1:1/x", "cannot open a session at the sink"),
        ("--sink", "mongodb://me@host/x", "--sink begins with mongodb://"),
        ("--source", "postgresql://me:secret@host/x", "--source has a password in it"),
    ],
)
def test_a_database_that_cannot_be_opened_leaves_no_files(
    databases: Databases, tmp_path: Path, option: str, value: str, says: str
) -> None:
    (tmp_path / "secrets" / "wrong").write_text("wrong")
    folder = tmp_path / "made"
    folder.mkdir()
    done = headgate("feed", "init", *changed(databases.options, option, value), "--folder", str(folder))
    assert (done.exit_code, says in " ".join(done.stderr.split())) == (ExitCode.DATABASE, True), done.stderr
    assert list(folder.iterdir()) == []


def test_a_mariadb_as_source(databases: Databases, mariadb_database: str, settings: Settings, tmp_path: Path) -> None:
    mariadb_execute(mariadb_database, "CREATE TABLE orders (id int PRIMARY KEY, place point)")
    login, _, place = mariadb_database.removeprefix("mysql://").rpartition("@")
    user, _, password = login.partition(":")
    (tmp_path / "secrets" / "source").write_text(password)
    options = changed(databases.options, "--source", f"mysql://{user}@{place}")
    done = headgate("feed", "init", "shop", *options, "--folder", str(tmp_path))
    assert done.exit_code == 0, done.stderr
    connector: dict[str, Any] = json.loads((tmp_path / "shop-connector.json").read_text())
    database = place.rpartition("/")[2]
    assert connector["connector.class"] == "io.debezium.connector.mariadb.MariaDbConnector"
    assert connector["schema.history.internal.kafka.bootstrap.servers"] == settings.bootstrap
    feed = load_feed(tmp_path / "shop.yaml")
    assert feed.source.topics == (f"shop.{database}.orders",)
    assert feed.for_table(f"shop.{database}.orders").columns.exclude == ("place",), "no sink of PostgreSQL can hold it"
    statements = (tmp_path / "shop-tables.sql").read_text()
    assert f'CREATE SCHEMA IF NOT EXISTS "{database}";' in statements
    assert "place" not in statements
    with psycopg.connect(databases.sink, autocommit=True) as sink:
        sink.execute(statements.encode())
        assert sink.execute(f"SELECT count(*) FROM {database}.orders".encode()).fetchall() == [(0,)]


def test_nothing_given_names_what_is_missing() -> None:
    done = headgate("feed", "init")
    assert done.exit_code == ExitCode.USAGE
    assert "Missing option '--source'" in done.stderr
