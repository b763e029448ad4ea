"""A feed into topics in Avro asks the registry about the schemas of the newest events, and names those it rejects."""

from contextlib import closing
from typing import Any

import msgspec

from fixtures.registry_server import Registering, RegistryServer
from headgate.config.feed import parse_feed
from headgate.coordinator.shell.feed_checks import _schema_warnings
from headgate.records.control import SpanPlan
from headgate.sinks.contract import RegistersSchemas
from headgate.sinks.registry import open_sink
from headgate.sources.preview import Seen

PLAN = SpanPlan(span="orders", topic="shop.public.orders", table="copy.orders", start={0: 0})
MEANING = {"": "postgresql", "id": "int64", "note": "string", "hidden": "string"}
SEEN = {PLAN.topic: Seen(columns=frozenset({"id"}), key=("id",), semantics=MEANING)}


def warnings(registry: RegistryServer, **options: Any) -> list[str]:
    sink = {"type": "kafka", "dsn": "kafka://broker:9092", "format": "avro", "registry": {"url": registry.url}}
    given = {"feed": "f", "source": {"topics": [PLAN.topic]}, "sink": sink} | options
    spec = parse_feed(msgspec.json.encode(given).decode())
    with closing(open_sink(spec.sink)) as opened:
        assert isinstance(opened, RegistersSchemas)
        return list(_schema_warnings(spec, [PLAN], SEEN, opened))


def test_subjects_that_would_reject_a_schema_are_named_and_nothing_is_registered() -> None:
    with RegistryServer() as registry:
        registry.answer = Registering()
        assert warnings(registry) == []
        assert registry.answer.compared == ["copy.orders-key", "copy.orders-value"]
        registry.answer.subjects["copy.orders-value"] = [1]
        registry.answer.refused["copy.orders-value"] = 409, "reader type STRING"
        (warning,) = warnings(registry, columns={"exclude": ["hidden"], "rename": {"note": "remark"}})
        assert "warning: table copy.orders: the schema registry at" in warning
        assert "subject copy.orders-value: reader type STRING" in warning
        assert registry.answer.by_id == {}


def test_tables_whose_columns_are_not_known_from_an_event_are_not_compared() -> None:
    with RegistryServer() as registry:
        registry.answer = Registering()
        assert warnings(registry, columns={"set": {"twice": "id * 2"}}) == []
        assert registry.answer.compared == []
