"""What the newest events must show before a feed into topics in Avro is accepted."""

from typing import Any

import msgspec
import pytest

from headgate.config.feed import FeedSpec, parse_feed
from headgate.formats.change import is_described
from headgate.records.control import SpanPlan
from headgate.sources.described import check_described
from headgate.sources.preview import FormatMismatchError, Seen, _Looking

PLAN = SpanPlan(span="orders", topic="shop.public.orders", table="copy.orders", start={0: 0})
MEANING = {"": "postgresql", "id": "int64", "2nd name": "string", "own": "com.example.Own"}


def feed(format_: str = "avro", source: dict[str, Any] | None = None, **given: Any) -> FeedSpec:
    sink: dict[str, Any] = {"type": "kafka", "dsn": "kafka://broker:9092", "format": format_}
    if format_ == "avro":
        sink["registry"] = {"url": "https://registry:8081"}
    topics = {"topics": [PLAN.topic]}
    return parse_feed(
        msgspec.json.encode({"feed": "f", "source": topics | (source or {}), "sink": sink} | given).decode()
    )


def check(spec: FeedSpec, semantics: dict[str, str] | None, columns: frozenset[str] | None = frozenset({"id"})) -> None:
    check_described(spec, [PLAN], {PLAN.topic: Seen(columns=columns, semantics=semantics)})


SHAPED: dict[str, Any] = {
    "columns": {"exclude": ["own"], "rename": {"2nd name": "second"}, "mask": {"2nd name": {"sha256": "salt"}}}
}


def test_columns_are_checked_as_the_feed_shapes_them_and_no_salt_is_read() -> None:
    with pytest.raises(
        FormatMismatchError, match=r"^topic shop\.public\.orders, for sink\.format: avro: column '2nd name'"
    ):
        check(feed(), MEANING)
    with pytest.raises(FormatMismatchError, match=r"column own: values of type com\.example\.Own"):
        check(feed(columns={"rename": {"2nd name": "second"}}), MEANING)
    check(feed(**SHAPED), MEANING)
    check(feed(tables={"public.orders": SHAPED}), MEANING)


@pytest.mark.parametrize("told", [None, {"": "postgresql"}])
def test_events_without_schema_are_refused(told: dict[str, str] | None) -> None:
    with pytest.raises(FormatMismatchError, match=r"has no schema.*schemas\.enable=true"):
        check(feed(), told)
    with pytest.raises(FormatMismatchError, match="has no schema"):
        check(feed(source={"tables": ["public.orders", "public.items"]}), told)


def test_computed_columns_may_need_types_that_only_the_catalogue_has() -> None:
    """A decimal as a text, or a date: events show a text (decimal.handling.mode, time.precision.mode)."""
    told = {"": "postgresql", "id": "int64", "price": "string", "day": "io.debezium.time.IsoDate"}
    check(feed(columns={"set": {"twice": "price * 2", "month": "EXTRACT(month FROM day)"}}), told)
    with pytest.raises(FormatMismatchError, match="column '2nd' has a name that Avro does not allow"):
        check(feed(columns={"set": {"2nd": "price * 2"}}), told)
    own = told | {"own": "com.example.Own"}
    check(feed(columns={"exclude": ["own"], "set": {"own": "'x'"}}), own)


def test_a_mask_of_events_without_schema_describes_nothing() -> None:
    with pytest.raises(FormatMismatchError, match="has no schema"):
        check(feed(columns={"mask": {"mail": {"constant": "x"}}}), None)


def test_keys_without_schema_are_refused_because_a_tombstone_has_nothing_else() -> None:
    told = {"": "postgresql", "id": "int64"}

    def seen(key: dict[str, str] | None) -> dict[str, Seen]:
        return {PLAN.topic: Seen(columns=frozenset({"id"}), semantics=told, key=("id",), key_semantics=key)}

    with pytest.raises(FormatMismatchError, match=r"a tombstone, .*has no schema.*key\.converter\.schemas\.enable"):
        check_described(feed(), [PLAN], seen({}))
    check_described(feed(), [PLAN], seen(None))
    check_described(feed(), [PLAN], seen({"id": "int64"}))
    renamed = feed(columns={"rename": {"id": "number"}, "set": {"n": "id * 2"}})
    check_described(renamed, [PLAN], seen({"id": "int64"}))


ENVELOPE = {
    "schema": {
        "type": "struct", "name": "shop.public.orders.Envelope",
        "fields": [
            {"field": "before", "type": "struct", "optional": True, "fields": [{"field": "id", "type": "int64"}]},
            {"field": "after", "type": "struct", "optional": True, "fields": [{"field": "id", "type": "int64"}]},
            {"field": "op", "type": "string"},
        ],
    },
    "payload": {"op": "c", "after": {"id": 1}},
}  # fmt: skip
KEY_SCHEMA = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}


@pytest.mark.parametrize(
    ("key", "described"), [({"schema": KEY_SCHEMA, "payload": {"id": 1}}, True), ({"id": 1}, False)]
)
@pytest.mark.parametrize("format_", ["avro", "flat"])
def test_a_key_is_read_as_that_of_a_tombstone(key: dict[str, Any], described: bool, format_: str) -> None:
    looking = _Looking(feed(format_))
    looking(PLAN.topic, msgspec.json.encode(key), msgspec.json.encode(ENVELOPE))
    seen = looking.seen[PLAN.topic]
    assert (seen.key, seen.fitting, is_described(seen.semantics or {})) == (("id",), 1, True)
    known = seen.key_semantics
    assert known is None if format_ == "flat" else is_described(known or {}) is described


def test_what_is_not_known_is_not_refused() -> None:
    check(feed("flat"), None)
    check(feed(), None, columns=None)
    check_described(feed(), [PLAN], {})
    check(feed(source={"tables": ["public.orders", "public.items"]}), MEANING)
