"""Source topics on a real broker: found, planned, checked against retention."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import NewTopic

from headgate.config.feed import FeedSpec
from headgate.config.sink_spec import SinkSpec
from headgate.config.source_spec import SourceSpec
from headgate.config.start_offsets import StartOffsets
from headgate.config.times import parse_ts
from headgate.eventlog.connection import KafkaConnection
from headgate.records.ts import ts_of_ms
from headgate.sources import topics as source_topics
from headgate.sources.discovery import Discovery, look_again
from headgate.sources.offsets import (
    RECORD_TIME_MARGIN_MS,
    OffsetExpiredError,
    StartInFutureError,
    StartPartitionsError,
    TopicMissingError,
    check_retention,
    end_offsets,
    offsets_at,
    start_offsets,
)
from headgate.sources.preview import FormatMismatchError, check_formats, preview
from headgate.sources.topics import TableClashError, find_topics, plan_spans, present_topics
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import add_partitions, delete_topics, make_topics

pytestmark = pytest.mark.integration

ASKED = 20


class _Source:
    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.connection = KafkaConnection(bootstrap)
        self.admin = self.connection.admin
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self.prefix = prefix

    def make(self, name: str, partitions: int = 1) -> str:
        topic = f"{self.prefix}{name}"
        make_topics(self.admin, NewTopic(topic, partitions, 1))
        return topic

    def fill(self, topic: str, partition: int, count: int) -> None:
        for number in range(count):
            self._producer.produce(topic, value=str(number).encode(), partition=partition)
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def fill_at(self, topic: str, partition: int, times_ms: list[int]) -> None:
        for at in times_ms:
            self._producer.produce(topic, value=b"x", partition=partition, timestamp=at)
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def write(self, topic: str, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        for key, value in records:
            self._producer.produce(topic, key=key, value=value, partition=partition)
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def close(self) -> None:
        self._producer.close()
        self.connection.close()

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        for future in self.admin.delete_records([KafkaPartition(topic, partition, offset)]).values():
            future.result(ANSWER_SECONDS)


@pytest.fixture
def source(kafka_bootstrap: str, kafka_prefix: str) -> Iterator[_Source]:
    with closing(_Source(kafka_bootstrap, kafka_prefix)) as source:
        yield source


def _spec(source: SourceSpec, table: str = "{schema}.{table}") -> FeedSpec:
    return FeedSpec(feed="f", source=source, sink=SinkSpec(type="postgresql", dsn="host=nowhere", table=table))


def test_pattern_matches_whole_names_and_no_topics_of_ours(source: _Source) -> None:
    wanted = source.make("src.public.a", 3)
    source.make("src.public.a.extra")
    source.make("ctl.announce")
    pattern = f"{source.prefix}(src[.]public[.]a|ctl[.].*)"
    found = find_topics(source.connection, SourceSpec(topic_pattern=pattern), own_prefix=f"{source.prefix}ctl.")
    assert found == {wanted: 3}


def test_nothing_found_is_said(source: _Source) -> None:
    assert find_topics(source.connection, SourceSpec(topic_pattern="no-such-topic-.*"), "x.") == {}
    there = source.make("there.x")
    with pytest.raises(TopicMissingError, match=f"{source.prefix}gone.x does not exist"):
        find_topics(source.connection, SourceSpec(topics=(there, f"{source.prefix}gone.x")), "x.")


def test_a_topic_that_the_broker_still_denies_is_looked_for_again(
    source: _Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def late(connection: KafkaConnection) -> dict[str, int]:
        present = present_topics(connection)
        if not made:
            made.append(source.make("late.x"))
        return present

    monkeypatch.setattr(source_topics, "present_topics", late)
    wanted = f"{source.prefix}late.x"
    assert find_topics(source.connection, SourceSpec(topics=(wanted,)), "x.") == {wanted: 1}


def test_plan_has_tables_sorted_with_where_to_begin(source: _Source) -> None:
    second, first = source.make("s.public.b", 2), source.make("s.public.a")
    source.fill(second, 1, 5)
    source.fill(first, 0, 3)
    source.delete_below(first, 0, 2)
    earliest = plan_spans(source.connection, _spec(SourceSpec(topics=(second, first))), "x.")
    assert [(plan.span, plan.topic, plan.start) for plan in earliest] == [
        ("public.a", first, {0: 2}),
        ("public.b", second, {0: 0, 1: 0}),
    ]
    latest = plan_spans(source.connection, _spec(SourceSpec(topics=(second, first), start="latest")), "x.")
    assert [plan.start for plan in latest] == [{0: 3}, {0: 0, 1: 5}]


def test_two_topics_to_one_table_are_refused(source: _Source) -> None:
    one, two = source.make("x.public.a"), source.make("y.public.a")
    with pytest.raises(TableClashError, match=r"both go to table public\.a"):
        plan_spans(source.connection, _spec(SourceSpec(topics=(one, two))), "z.")
    assert len(plan_spans(source.connection, _spec(SourceSpec(topics=(one, two)), "{topic}"), "z.")) == 2


def test_deleted_changes_are_an_error_and_never_a_skip(source: _Source) -> None:
    topic = source.make("r.public.a", 2)
    source.fill(topic, 1, 10)
    assert start_offsets(source.connection, {topic: 2}, "earliest") == {topic: {0: 0, 1: 0}}
    assert end_offsets(source.connection, {topic: 2}) == {topic: {0: 0, 1: 10}}
    source.delete_below(topic, 1, 4)
    assert check_retention(source.connection, topic, {0: 0, 1: 4}) == {0: 0, 1: 10}
    check_retention(source.connection, topic, {1: 10})
    with pytest.raises(OffsetExpiredError, match=r"\[1\]: offset 3 is the next to apply, .* 1 offsets are lost"):
        check_retention(source.connection, topic, {0: 0, 1: 3})
    with pytest.raises(OffsetExpiredError, match="deleted and re-created"):
        check_retention(source.connection, topic, {0: 1})
    with pytest.raises(TopicMissingError, match=r"has the topic been deleted, or re-created with fewer partitions\?"):
        check_retention(source.connection, topic, {2: 0})
    with pytest.raises(TopicMissingError, match=r"public[.]none"):
        check_retention(source.connection, f"{source.prefix}r.public.none", {0: 0})


def test_an_answer_comes_though_somebody_else_lets_go_of_the_client(source: _Source) -> None:
    topic = source.make("c.public.a", 4)
    over = threading.Event()

    def let_go() -> None:
        while not over.wait(0.001):
            source.connection.close()

    other = threading.Thread(target=let_go, daemon=True)
    other.start()
    try:
        for _ in range(ASKED):
            assert end_offsets(source.connection, {topic: 4}) == {topic: dict.fromkeys(range(4), 0)}
    finally:
        over.set()
        other.join()


def test_a_second_look_finds_what_is_new_gone_and_grown(source: _Source) -> None:
    first = source.make("d.public.a", 2)
    spec = _spec(SourceSpec(topic_pattern=f"{source.prefix}d[.].*", start="latest"))
    known = plan_spans(source.connection, spec, "x.")
    assert look_again(source.connection, spec, known, "x.") == Discovery((), (), None)

    second = source.make("d.public.b", 1)
    source.fill(second, 0, 5)
    source.delete_below(second, 0, 2)
    clash = source.make("d.other.public.a")
    found = look_again(source.connection, spec, known, "x.")
    assert [(plan.table, plan.topic, plan.start) for plan in found.joined] == [("public.b", second, {0: 2})]
    (notice,) = found.notices
    assert f"topic {clash} is left out, because topic {first} already goes to table public.a" in notice

    add_partitions(source.admin, first, 3)
    delete_topics(source.admin, second, clash)
    after = look_again(source.connection, spec, (*known, *found.joined), "x.")
    assert after.grown == f"{first} has 3 partitions, the feed started with 2"
    assert after.notices == (f"source topic {second} no longer exists, so table public.b gets no changes",)
    fixed = _spec(SourceSpec(topics=(first,)))
    assert look_again(source.connection, fixed, known, "x.").grown == after.grown


NOON_MS = 1_795_262_400_000 - 86_400_000 * 365
MARGIN = RECORD_TIME_MARGIN_MS


def test_a_time_is_found_by_the_records_times_less_a_margin(source: _Source) -> None:
    topic = source.make("t.public.a", 3)
    source.fill_at(topic, 0, [NOON_MS - 2 * MARGIN, NOON_MS - MARGIN - 1, NOON_MS - MARGIN, NOON_MS])
    source.fill_at(topic, 1, [NOON_MS - 2 * MARGIN, NOON_MS - 3 * MARGIN])
    at = ts_of_ms(NOON_MS)
    assert offsets_at(source.connection, {topic: 3}, at) == {topic: {0: 2, 1: 2, 2: 0}}
    (plan,) = plan_spans(source.connection, _spec(SourceSpec(topics=(topic,), start_ts=at)), "x.")
    assert plan.start == {0: 2, 1: 2, 2: 0}


def test_a_feed_begins_at_the_offsets_that_it_names_if_they_can_be_read(source: _Source) -> None:
    topic = source.make("t.public.o", 2)
    source.fill_at(topic, 0, [NOON_MS, NOON_MS, NOON_MS])
    source.delete_below(topic, 0, 1)

    def planned(offsets: dict[int, int]) -> Any:
        given = {topic: StartOffsets(offsets=offsets)}
        return plan_spans(source.connection, _spec(SourceSpec(topics=(topic,), start_offsets=given)), "x.")

    assert planned({0: 2, 1: 0})[0].start == {0: 2, 1: 0}
    with pytest.raises(OffsetExpiredError, match="offset 0 is the next to apply"):
        planned({0: 0, 1: 0})
    with pytest.raises(OffsetExpiredError, match="ends at 3"):
        planned({0: 4, 1: 0})
    with pytest.raises(StartPartitionsError, match=r"names 1 partition of topic .*, which has 2"):
        planned({0: 2})


def test_a_time_that_the_log_does_not_reach_back_to_is_refused_with_what_it_has(source: _Source) -> None:
    topic = source.make("t.public.b", 2)
    source.fill_at(topic, 1, [NOON_MS - 3 * MARGIN, NOON_MS - 2 * MARGIN, NOON_MS])
    source.delete_below(topic, 1, 1)
    at = ts_of_ms(NOON_MS)
    assert offsets_at(source.connection, {topic: 2}, at) == {topic: {0: 0, 1: 2}}, "an older record is still there"
    source.delete_below(topic, 1, 2)
    with pytest.raises(
        OffsetExpiredError, match=r"b\[1\]: .*below offset 2, and the earliest left is of 2025-11-21T12:00:00"
    ):
        offsets_at(source.connection, {topic: 2}, at)
    assert offsets_at(source.connection, {topic: 2}, ts_of_ms(NOON_MS + MARGIN)) == {topic: {0: 0, 1: 2}}
    source.delete_below(topic, 1, 3)
    with pytest.raises(OffsetExpiredError, match=r"b\[1\]: .*below offset 3, and it is empty"):
        offsets_at(source.connection, {topic: 2}, at)


def test_a_time_to_come_is_refused(source: _Source) -> None:
    with pytest.raises(StartInFutureError, match="2199-01-01T00:00:00"):
        offsets_at(source.connection, {}, parse_ts("2199-01-01T00:00:00Z"))


# --- what the newest records tell before a feed is accepted ---

RECORDS = {
    "debezium-json": (
        b'{"id":1}',
        (
            b'{"schema":{"type":"struct","fields":[{"type":"struct","field":"after","fields":[{"field":"id","type":"int32"},'
            b'{"field":"tier","type":"string","optional":true,"default":"basic"}]},{"type":"struct","field":"source",'
            b'"name":"io.debezium.connector.postgresql.Source"}]},'
            b'"payload":{"op":"c","after":{"id":1,"tier":"basic"},"source":{"schema":"public","table":"t"}}}'
        ),
    ),
    "canal-json": (
        None,
        (
            b'{"type":"INSERT","database":"shop","table":"t","pkNames":["id"],"mysqlType":{"id":"int"},'
            b'"data":[{"id":"1"}]}'
        ),
    ),
    "maxwell-json": (
        b'{"database":"shop","table":"t","pk.id":1}',
        b'{"database":"shop","table":"t","type":"insert","ts":1,"data":{"id":1}}',
    ),
    "debezium-avro": (b"\x00\x00\x00\x00\x01\x02", b"\x00\x00\x00\x00\x02\x02c"),
}


@pytest.mark.parametrize("told", ["debezium-json", "canal-json", "maxwell-json"])
@pytest.mark.parametrize("written", RECORDS)
def test_records_of_another_format_are_refused_with_the_one_that_fits(source: _Source, written: str, told: str) -> None:
    topic = source.make("public.t", 2)
    source.write(topic, 1, [RECORDS[written], (RECORDS[written][0], None)])
    spec = _spec(SourceSpec(topics=(topic,), format=told))
    seen = preview(source.connection, spec, {topic: 2})
    if written == told:
        assert check_formats(spec, seen) == ()
        assert (seen[topic].records, seen[topic].fitting) == (1, 1)
        return
    with pytest.raises(FormatMismatchError, match=rf"topic {topic} is {told}: .*set source\.format: {written}"):
        check_formats(spec, seen)


def test_one_good_record_among_bad_ones_is_enough_and_none_is_a_warning(source: _Source) -> None:
    good, bad = source.make("public.good"), source.make("public.bad")
    poison = (b'{"id":1}', b'{"id":1,"v":"flattened"}')
    source.write(good, 0, [RECORDS["debezium-json"], *[poison] * 5])
    source.write(bad, 0, [poison] * 5)
    empty = source.make("public.empty")
    spec = _spec(SourceSpec(topics=(good, bad, empty)))
    seen = preview(source.connection, spec, {good: 1, bad: 1, empty: 1})
    (warning,) = check_formats(spec, seen)
    assert f"none of the 5 newest records of topic {bad} is debezium-json" in warning
    assert "unwrapping transforms are not supported" in warning
    assert empty not in seen


def test_only_the_newest_records_are_read(source: _Source) -> None:
    topic = source.make("public.t")
    source.write(topic, 0, [(b"x", b"x")] * 50 + [RECORDS["debezium-json"]] * 10)
    spec = _spec(SourceSpec(topics=(topic,)))
    assert (preview(source.connection, spec, {topic: 1})[topic]).records == 10


@pytest.mark.parametrize(("value", "nulls"), [(b'"basic"', False), (b"null", True)])
def test_columns_that_may_be_null_and_have_a_default_are_seen(source: _Source, value: bytes, nulls: bool) -> None:
    topic = source.make("public.t")
    key, event = RECORDS["debezium-json"]
    source.write(topic, 0, [(key, event), (key, event.replace(b'"tier":"basic"', b'"tier":' + value))])
    spec = _spec(SourceSpec(topics=(topic,)))
    seen = preview(source.connection, spec, {topic: 1})[topic]
    assert (seen.defaults, "tier" in seen.nulls) == (frozenset({"tier"}), nulls)
    assert (seen.columns, seen.connector) == (frozenset({"id", "tier"}), "postgresql")


def test_a_topic_that_does_not_exist_has_a_likely_name(source: _Source) -> None:
    topic = source.make("shop.public.orders")
    for name in (topic.replace("orders", "order"), "orders", "other.orders"):
        with pytest.raises(TopicMissingError, match=rf"{name} does not exist \(did you mean .*orders'\?\)"):
            plan_spans(source.connection, _spec(SourceSpec(topics=(name,))), "x.")
    with pytest.raises(TopicMissingError, match=r"zzzzzz does not exist\. Create it"):
        plan_spans(source.connection, _spec(SourceSpec(topics=("zzzzzz",))), "x.")
