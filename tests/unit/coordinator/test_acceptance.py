"""What an update may change: every option of a feed is on one side."""

from typing import get_args

import pydantic

from headgate.config.feed import FeedSpec
from headgate.config.maintenance_options import MaintenanceOptions
from headgate.config.registry_spec import RegistrySpec
from headgate.config.source_spec import SourceDatabase
from headgate.config.store_options import StoreOptions
from headgate.coordinator.core.effects import ResolveFeed
from headgate.coordinator.core.feeds.acceptance import FIXED, _resolve, _why_fixed
from headgate.records.control import OperationKind, OperationRequested
from support.build import feed_recorded

CHANGEABLE = {
    ("source", "topics"),
    ("source", "topic_pattern"),
    ("source", "strict_generations"),
    ("source", "unavailable_value"),
    ("source", "binary_handling_mode"),
    ("source", "decimal_handling_mode"),
    ("source", "output_nulls"),
    ("source", "topic_tables"),
    *(("source", "registry", option) for option in RegistrySpec.model_fields),
    *(("source", "database", option) for option in SourceDatabase.model_fields),
    ("source", "transaction_topic"),
    ("source", "tables"),
    ("sink", "password_file"),
    ("sink", "foreign_keys"),
    ("sink", "keyless"),
    ("sink", "rounding"),
    ("sink", "tables"),
    ("sink", "commit_interval_seconds"),
    ("sink", "types"),
    ("sink", "partition_by"),
    ("sink", "unique_keys"),
    ("sink", "not_the_source"),
    ("sink", "unique_keys"),
    *(("sink", "topic", option) for option in ("partitions", "replication_factor", "config")),
    *(("sink", "maintenance", option) for option in MaintenanceOptions.model_fields),
    *(("sink", "registry", option) for option in RegistrySpec.model_fields if option != "url"),
    *(("sink", "store", option) for option in StoreOptions.model_fields if option != "endpoint"),
    ("where",),
    ("batch_rows_max",),
    ("batch_interval_seconds",),
    ("on_bad_change",),
    ("skip",),
    ("quarantine_per_hour_max",),
    *(("columns", option) for option in ("include", "exclude", "rename", "mask", "set")),
    ("tables",),
    ("key",),  # of single tables
    ("deadletter_retention_days",),
    *(("snapshot", option) for option in ("max_rows_per_second", "existing_rows")),
    ("split",),
    ("spread",),
}
"""Topics may join: what leaves is refused by the tables that would."""


def options(model: type[pydantic.BaseModel], path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for name, field in model.model_fields.items():
        parts = [part for part in get_args(field.annotation) if part is not type(None)]
        kind = parts[0] if len(parts) == 1 else field.annotation  # of one that may be left out
        if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
            found |= options(kind, (*path, name))
        else:
            found.add((*path, name))
    return found


def test_every_option_is_fixed_or_changeable() -> None:
    assert options(FeedSpec) == CHANGEABLE | set(FIXED)
    assert not CHANGEABLE & set(FIXED)


def test_a_feed_stays_at_its_object_store_and_may_have_other_keys() -> None:
    def feed(**store: object) -> str:
        sink = {"type": "delta", "dsn": "s3://lake/tables", "store": {"endpoint": "https://a.example", **store}}
        return FeedSpec.model_validate({"feed": "f", "source": {"topics": ["s.a"]}, "sink": sink}).to_json()

    keys = {"access_key_id_file": "id", "secret_access_key_file": "secret", "region": "eu-central-1"}
    assert _why_fixed(feed(), feed(**keys)) is None
    assert "sink.store.endpoint" in str(_why_fixed(feed(), feed(endpoint="https://b.example")))


def test_a_topic_in_avro_stays_at_its_registry_whose_ids_it_has() -> None:
    def feed(**registry: object) -> str:
        given = {"url": "https://a.example", **registry}
        sink = {"type": "kafka", "dsn": "kafka://a:9092", "format": "avro", "registry": given}
        return FeedSpec.model_validate({"feed": "f", "source": {"topics": ["s.a"]}, "sink": sink}).to_json()

    assert _why_fixed(feed(), feed(user="ann", password_file="p", ca_file="ca.pem")) is None
    assert "sink.registry.url cannot be changed" in str(_why_fixed(feed(), feed(url="https://b.example")))


def test_tables_of_one_topic_cannot_swap_their_targets() -> None:
    def feed(tables: dict[str, dict[str, str]]) -> str:
        source = {"topics": ["t"], "tables": ["s.a", "s.b"]}
        sink = {"type": "postgresql", "dsn": "dbname=x"}
        return FeedSpec.model_validate({"feed": "f", "source": source, "sink": sink, "tables": tables}).to_json()

    swapped = {"s.a": {"table": "s.b"}, "s.b": {"table": "s.a"}}
    assert "target tables of a feed with source.tables cannot be changed" in str(_why_fixed(feed({}), feed(swapped)))
    assert _why_fixed(feed(swapped), feed(swapped)) is None
    assert _why_fixed(feed({}), feed({"s.a": {"keyless": "append"}})) is None


def test_sources_of_one_topic_cannot_swap_their_discriminators() -> None:
    def feed(first: str, second: str) -> str:
        source = {"topics": ["t"], "tables": ["one.t", "two.t"]}
        tables = {
            f"{schema}.t": {"into": {"table": "s.t", "discriminator": {"tenant": value}}}
            for schema, value in (("one", first), ("two", second))
        }
        sink = {"type": "postgresql", "dsn": "dbname=x"}
        return FeedSpec.model_validate({"feed": "f", "source": source, "sink": sink, "tables": tables}).to_json()

    assert "cannot be changed" in str(_why_fixed(feed("a", "b"), feed("b", "a")))
    assert _why_fixed(feed("a", "b"), feed("a", "b")) is None


def test_rows_are_copied_when_a_table_joins_and_no_later() -> None:
    def feed(tables: dict[str, dict[str, str]], snapshot: str = "never") -> str:
        source = {"topic_pattern": "t[.].*", "database": {"dsn": "dbname=x"}}
        sink = {"type": "postgresql", "dsn": "dbname=y"}
        given = {"feed": "f", "source": source, "sink": sink, "tables": tables, "snapshot": snapshot}
        return FeedSpec.model_validate(given).to_json()

    copied = {"s.a": {"snapshot": "initial"}}
    assert "snapshot.mode cannot be changed" in str(_why_fixed(feed({}), feed({}, "initial")))
    assert "because rows are copied when a table joins" in str(_why_fixed(feed({"s.a": {}}), feed(copied)))
    assert _why_fixed(feed({}), feed(copied)) is None, "it may be for a table that joins"
    assert _why_fixed(feed(copied), feed(copied)) is None


def test_an_update_is_judged_beside_what_the_feed_was() -> None:
    def resolved(kind: OperationKind) -> ResolveFeed:
        asked = OperationRequested(kind, "f", '{"new": 1}', None, None, "ann", 0)
        return _resolve("r", asked, feed_recorded(spec='{"feed": "f"}'))

    assert resolved(OperationKind.UPDATE_FEED) == ResolveFeed("r", "f", '{"new": 1}', (), '{"feed": "f"}')
    assert resolved(OperationKind.CREATE_FEED) == ResolveFeed("r", "f", '{"new": 1}')
