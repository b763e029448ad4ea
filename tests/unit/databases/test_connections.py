"""Named connections: who may use them, what is refused, and that the file is read again."""

from pathlib import Path

import msgspec
import pytest
import yaml

from headgate.config.feed import FeedSpecError, parse_feed
from headgate.config.sink_spec import SinkSpec
from headgate.databases.address import Target
from headgate.databases.connections import Approval, Use, named, named_registry
from headgate.databases.errors import DatabaseRefusedError
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec
from headgate.migration.shell.work import MigrationWork, open_strategy
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.records.migration import MigrationStrategy
from headgate.runtime.machine import EffectFailed
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.registry import open_sink, same_sink, server_of, target_of
from support.migration_records import recorded

SHOP = {"kind": "postgresql", "address": "postgresql://ann@db.example/shop", "use": ["sink", "source", "migration"]}


class File:
    """The file of connections of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **connections: object) -> None:
        self.path.write_text(yaml.safe_dump({"connections": connections}), encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> File:
    monkeypatch.setenv("HEADGATE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path))
    return File(tmp_path / "connections.yaml")


def _target(name: str = "shop", use: Use = Use.SINK) -> Target:
    return named(name, use, "sink.connection")[1]


def _refused(name: str = "shop", use: Use = Use.SINK) -> str:
    with pytest.raises(DatabaseRefusedError) as refused:
        _target(name, use)
    return str(refused.value)


def test_a_connection_has_an_address_a_password_and_tls(file: File) -> None:
    tls = {"ca_file": "/etc/ca.pem", "certificate_file": "/etc/cert.pem", "key_file": "key"}
    file.write(
        shop={**SHOP, "password_file": "shop", "tls": tls},
        items={"kind": "mysql", "address": "mysql://ann@db/items", "tls": tls, "use": ["sink"]},
    )
    shop, items = _target(), _target("items")
    assert shop.password_file == Path("shop")
    for option in (
        "sslmode=verify-full",
        "sslrootcert=/etc/ca.pem",
        "sslcert=/etc/cert.pem",
        f"sslkey={file.path.parent}/key",
    ):
        assert option in shop.dsn
    for option in ("ssl_ca=/etc/ca.pem", "ssl_cert=/etc/cert.pem", "ssl_key="):
        assert option in items.dsn


def test_a_name_that_is_unknown_is_refused_with_the_nearest(file: File) -> None:
    file.write(shop=SHOP)
    refused = _refused("shp")
    assert "sink.connection" in refused
    assert "did you mean 'shop'" in refused
    assert str(file.path) in refused


def test_a_use_that_is_not_allowed_is_refused(file: File) -> None:
    file.write(shop={**SHOP, "use": ["source"]})
    assert "may be used as source, not as sink" in _refused()
    assert _target(use=Use.SOURCE).dsn == SHOP["address"]
    with pytest.raises(SinkRefusedError, match="may be used as source, not as sink"):
        open_sink(SinkSpec(type="postgresql", connection="shop"))


def test_without_a_file_it_is_said_how_to_name_one(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"cannot read {file.path}" in _refused()
    monkeypatch.delenv("HEADGATE_CONNECTIONS")
    assert "HEADGATE_CONNECTIONS is not set" in _refused()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "mysq"}, "did you mean 'mysql'"),
        ({"kind": "mysql"}, "address is not one of kind mysql"),
        ({"address": "postgresql://ann:s3cret@db/shop"}, "name that in password_file"),
        ({"address": "postgresql://ann@db/shop?passfile=/x"}, "passfile is refused"),
        ({"tls": {"ca_file": "/ca"}, "address": "postgresql://ann@db/shop?sslmode=require"}, "sslmode beside tls"),
        ({"tls": {"key_file": "/key"}}, "give both or neither"),
        ({"tls": {"ca_file": "/ca", "certificate_file": "/c", "key_file": "/key"}}, "tls.key_file /key is not in"),
        ({"pasword_file": "x"}, "did you mean 'password_file'"),
        ({"use": ["sinks"]}, "did you mean 'sink'"),
    ],
)
def test_a_connection_that_cannot_be_is_refused_by_its_option(file: File, change: dict[str, object], says: str) -> None:
    file.write(shop={**SHOP, **change})
    refused = _refused()
    assert says in refused
    assert "s3cret" not in refused


def test_the_file_is_read_again_when_it_has_changed(file: File) -> None:
    file.write(shop=SHOP)
    assert "db.example" in _target().dsn
    file.write(shop={**SHOP, "address": "postgresql://ann@standby.example/shop", "password_file": "new"})
    assert _target() == Target("postgresql://ann@standby.example/shop", Path("new"), _target().options)


def test_a_feed_keeps_the_name_and_not_the_address(file: File) -> None:
    file.write(shop=SHOP)
    spec = parse_feed("{feed: f, source: {topics: [t]}, sink: {type: postgresql, connection: shop}}")
    assert same_sink(spec.sink) == spec.sink
    assert "db.example" not in spec.to_json()
    assert server_of(spec.sink) == "db.example:5432"
    assert target_of(spec.sink).dsn == SHOP["address"]
    with pytest.raises(SinkRefusedError, match=r"is of kind postgresql, and sink\.type is mysql"):
        open_sink(SinkSpec(type="mysql", connection="shop"))


@pytest.mark.parametrize(
    ("sink", "says"),
    [
        ("connection: shop, dsn: host=x", "either sink.dsn or sink.connection"),
        ("table: t", "either sink.dsn or sink.connection"),
        ("connection: shop, password_file: x", "Remove sink.password_file"),
    ],
)
def test_a_feed_names_its_sink_once(sink: str, says: str) -> None:
    with pytest.raises(FeedSpecError, match=says):
        parse_feed(f"{{feed: f, source: {{topics: [t]}}, sink: {{type: postgresql, {sink}}}}}")


def _change(database: str) -> MigrationSpec:
    return MigrationSpec(statement="ALTER TABLE t ADD c int", strategy=MigrationStrategy.DIRECT, database=database)


def test_a_migration_names_a_connection(file: File) -> None:
    file.write(shop=SHOP, items={**SHOP, "use": ["sink"]})
    open_strategy("m", _change("shop"), cluster_id=NO_CLUSTER).close()
    with pytest.raises(RefusedError, match=r"may be used as sink, not as migration.*Use another one \(shop\)"):
        open_strategy("m", _change("items"), cluster_id=NO_CLUSTER)
    with pytest.raises(RefusedError, match=r"--database: connection 'shp' is unknown; did you mean 'shop'"):
        open_strategy("m", _change("shp"), cluster_id=NO_CLUSTER)


def test_without_a_file_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_CONNECTIONS")
    with pytest.raises(RefusedError, match="connection 'shop' is unknown, because HEADGATE_CONNECTIONS is not set"):
        open_strategy("m", _change("shop"), cluster_id=NO_CLUSTER)


def test_replicas_are_named_connections(file: File) -> None:
    mariadb = {"kind": "mysql", "address": "mysql://ann@db/items", "use": ["migration"]}
    file.write(items=mariadb, source={**mariadb, "use": ["source"]})
    spec = msgspec.structs.replace(_change("items"), lag_seconds_max=1.0, strategy=MigrationStrategy.PT_OSC)
    open_strategy("m", msgspec.structs.replace(spec, replicas=("items",)), cluster_id=NO_CLUSTER).close()
    with pytest.raises(RefusedError, match=r"--replica: connection source may be used as source, not as migration"):
        open_strategy("m", msgspec.structs.replace(spec, replicas=("source",)), cluster_id=NO_CLUSTER)


def test_what_an_earlier_version_accepted_by_address_is_ended_where_nothing_was_begun(file: File) -> None:
    file.write(shop=SHOP)
    old = '{"statement": "DROP TABLE t", "strategy": "direct", "database": "postgresql://ann@db.example/shop"}'
    work = MigrationWork(cluster_id=NO_CLUSTER)
    refused = work.run(fx.StartMigration("m", recorded(old)))
    assert isinstance(refused, fx.Refused)
    assert "Submit it again with --database" in refused.reason
    assert isinstance(work.run(fx.StopMigration("m", recorded(old), is_forced=True)), EffectFailed)


def test_a_registry_has_a_name(file: File) -> None:
    file.path.write_text("{connections: {}, registries: {avro: {url: 'https://registry'}}}")
    assert named_registry("avro", "--registry").url == "https://registry"
    with pytest.raises(DatabaseRefusedError, match=r"--registry: registry 'avr' is unknown; did you mean 'avro'"):
        named_registry("avr", "--registry")


def test_an_approval_is_required_where_schema_changes_are_made(file: File) -> None:
    file.write(shop={**SHOP, "approval": "required"}, other=SHOP)
    assert named("shop", Use.MIGRATION, "--database")[0].approval is Approval.REQUIRED
    assert named("other", Use.MIGRATION, "--database")[0].approval is Approval.NONE
    file.write(shop={**SHOP, "use": ["sink"], "approval": "required"})
    assert "approval is about schema changes: add migration to use" in _refused()
    file.write(shop={**SHOP, "approval": "by-bob"})
    assert "connections.shop.approval" in _refused()


EVENTS = {
    "kind": "kafka",
    "address": "kafka://events:9093?sasl.mechanism=PLAIN&sasl.username=ann",
    "password_file": "events",
    "tls": {"ca_file": "/etc/ca.pem"},
    "use": ["sink"],
}


def test_a_kafka_cluster_can_be_a_sink(file: File) -> None:
    file.write(events=EVENTS)
    spec = SinkSpec(type="kafka", connection="events")
    assert "security.protocol=SASL_SSL" in target_of(spec).dsn
    assert server_of(spec) == "events:9093"
    assert same_sink(spec) == spec
    open_sink(spec).close()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"use": ["sink", "source"]}, "can be a sink only: remove source"),
        ({"address": "postgresql://ann@db/shop"}, "address is not one of kind kafka"),
        ({"address": "kafka://ann@events:9093"}, "has a user before its brokers"),
        ({"tls": None}, r"sasl\.mechanism, sasl\.username would not be used with security\.protocol=PLAINTEXT"),
    ],
)
def test_what_a_kafka_cluster_cannot_be_is_refused(file: File, changed: dict[str, object], why: str) -> None:
    file.write(events=EVENTS | changed)
    with pytest.raises(DatabaseRefusedError, match=why):
        _target("events")


def test_a_cluster_for_a_feed_into_a_database_is_refused(file: File) -> None:
    file.write(events=EVENTS)
    with pytest.raises(SinkRefusedError, match=r"events is of kind kafka, and sink\.type is postgresql"):
        open_sink(SinkSpec(type="postgresql", connection="events"))
