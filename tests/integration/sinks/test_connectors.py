"""What a connector and its converter change before an event is written, and the settings that prevent it."""

import psycopg
import pytest

from fixtures.capture import Sources
from fixtures.registry_server import OF_SOURCE
from headgate.config.registry_spec import RegistrySpec
from headgate.formats.avro_schema import columns_with_defaults
from headgate.formats.change import ABSENT
from headgate.formats.debezium_avro import DebeziumAvroDecoder
from headgate.formats.schema_registry import SchemaRegistry
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded.registry import EmbeddedRegistry

# Connectors start in each test, on a machine that may be busy.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled_seconds(900))]

JSON_WITH_SCHEMAS = {
    f"{side}.converter{name}": value
    for side in ("key", "value")
    for name, value in (
        ("", "org.apache.kafka.connect.json.JsonConverter"),
        (".schemas.enable", "true"),
        (".replace.null.with.default", "false"),
    )
}


def test_nulls_in_columns_with_defaults_arrive_as_nulls(
    sources: Sources, postgres_schema: tuple["psycopg.Connection[tuple]", str]
) -> None:
    """From the snapshot, an insert and an update; the embedded worker's own settings, and those that the docs name."""
    source, schema = postgres_schema
    source.execute(
        "CREATE TABLE t (id int PRIMARY KEY, tier text DEFAULT 'basic', credit numeric(10,2) DEFAULT 5.00, "
        "seen timestamptz DEFAULT '2026-01-01T00:00:00Z', ok boolean DEFAULT true, n int DEFAULT 7)"
    )
    source.execute("INSERT INTO t VALUES (1, NULL, NULL, NULL, NULL, NULL), (2, 'gold', 1.5, now(), false, 1)")
    sources.capture_postgres("np", schema)
    sources.capture_postgres("ns", schema, **JSON_WITH_SCHEMAS)
    for name in ("np", "ns"):
        sources.changes(f"{name}.{schema}.t", 2)
    source.execute("INSERT INTO t VALUES (3, NULL, NULL, NULL, NULL, NULL)")
    source.execute("UPDATE t SET tier = NULL, credit = NULL, seen = NULL, ok = NULL, n = NULL WHERE id = 2")
    for name in ("np", "ns"):
        first, _, third, fourth = sources.changes(f"{name}.{schema}.t", 4)
        for change in (first, third, fourth):
            assert change.row is not None
            assert [value for column, value in change.row.items() if column != "id"] == [None] * 5, name


def test_apicurios_converter_writes_defaults_and_its_schema_shows_where(
    sources: Sources,
    schema_registry: EmbeddedRegistry,
    postgres_schema: tuple["psycopg.Connection[tuple]", str],
) -> None:
    """It has no setting against it, so a feed's creation must be able to tell."""
    source, schema = postgres_schema
    source.execute("CREATE TABLE t (id int PRIMARY KEY, tier text DEFAULT 'basic', n int DEFAULT 7, v text)")
    source.execute("INSERT INTO t VALUES (1, NULL, NULL, NULL)")
    names = {"field.name.adjustment.mode": "avro", "schema.name.adjustment.mode": "avro"}
    sources.capture_postgres("na", schema, **schema_registry.converter(), **names)
    registry = SchemaRegistry(RegistrySpec(url=schema_registry.url), OF_SOURCE)
    schemas: dict[int, str] = {}

    def remembered(schema_id: int) -> str:
        return schemas.setdefault(schema_id, registry.schema(schema_id))

    (change,) = sources.changes(f"na.{schema}.t", 1, DebeziumAvroDecoder(remembered))
    assert change.row == {"id": 1, "tier": "basic", "n": 7, "v": None}
    (envelope,) = (text for text in schemas.values() if '"after"' in text)
    assert columns_with_defaults(envelope) == {"tier", "n"}


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_large_array_that_an_update_leaves_alone_needs_replica_identity_full(
    sources: Sources, postgres_schema: tuple["psycopg.Connection[tuple]", str], identity: str
) -> None:
    """What the connector makes of arrays, bit strings and types that it does not know: docs/types.md has it."""
    source, schema = postgres_schema
    source.execute("CREATE TYPE addr AS (street text, nr int)")
    source.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric[], words text[], a addr, l pg_lsn, gaps interval[], "
        "flags bit(3)[], bits bit varying)"
    )
    for column in ("n", "words"):
        source.execute(f"ALTER TABLE t ALTER {column} SET STORAGE EXTERNAL")
    source.execute(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    source.execute(
        "INSERT INTO t SELECT 1, 'a', array_agg(g), array_agg(g::text), ROW('Elm', 5)::addr, '0/1', '{1 day}', "
        "'{101}', B'0101' FROM generate_series(1, 3000) g"
    )
    name = f"la_{identity.lower()}"  # a connector's name keeps its offsets
    sources.capture_postgres(name, schema, **JSON_WITH_SCHEMAS)
    sources.changes(f"{name}.{schema}.t", 1)
    source.execute("UPDATE t SET v = 'b'")
    created, updated = (change.row for change in sources.changes(f"{name}.{schema}.t", 2))
    assert created is not None
    assert updated is not None
    assert not {"a", "l", "gaps"} & created.keys()
    assert (created["flags"], created["bits"]) == (None, "BQ==")
    if identity == "FULL":
        assert (updated["n"], updated["words"]) == (created["n"], created["words"])
    else:
        assert (updated["n"], updated["words"]) == (None, ABSENT)
