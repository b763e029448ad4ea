"""What the newest events must show before a feed into topics in Avro is accepted."""

from typing import Any

import msgspec
import pytest

from headgate.config.feed import FeedSpec, parse_feed
from headgate.records.control import SpanPlan
from headgate.sources.described import check_described
from headgate.sources.preview import FormatMismatchError, Seen

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


def test_what_is_not_known_is_not_refused() -> None:
    check(feed("flat"), None)
    check(feed(), None, columns=None)
    check_described(feed(), [PLAN], {})
    check(feed(source={"tables": ["public.orders", "public.items"]}), MEANING)
