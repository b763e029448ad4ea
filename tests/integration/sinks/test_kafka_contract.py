"""Kafka topics keep the contract of sinks that commit on the driver, and what is their own."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource, NewTopic

from headgate.eventlog.log import LogError
from headgate.sinks.contract import (
    ChangeBatch,
    OffsetRange,
    SinkConflictError,
    SinkError,
    SinkFencedError,
    SinkMovedError,
    SinkRefusedError,
    SinkWriter,
)
from headgate.sinks.kafka import parts, writing
from headgate.sinks.kafka.target import TargetProducer
from integration.sinks import contract
from integration.sinks.contract import batch_of, claim_of, delete, upsert
from integration.sinks.kafka_bench import KafkaBench, too_large
from integration.sinks.on_driver_contract import OnDriverContract
from support.topic_changes import make_topics

pytestmark = pytest.mark.integration


@pytest.fixture
def bench(
    kafka_bootstrap: str, kafka_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KafkaBench]:
    monkeypatch.setattr(contract, "unfit", too_large)
    made = KafkaBench(kafka_bootstrap, kafka_prefix, tmp_path)
    yield made
    made.close()


@pytest.fixture
def writer(bench: KafkaBench) -> Iterator[SinkWriter]:
    made = bench.sink.writer()
    yield made
    made.close()


class TestKafka(OnDriverContract):
    TRUNCATE_REFUSED = "TRUNCATE cannot be written to a topic"  # a flat record cannot express it

    @staticmethod
    def completes_rows(bench: contract.Bench) -> bool:  # noqa: ARG004
        """A record replaces the one before as a whole, and a topic has no columns."""
        return False

    @pytest.fixture
    def bench(self, bench: KafkaBench) -> KafkaBench:
        return bench


def test_every_change_is_a_record_in_its_sources_partition(bench: KafkaBench, writer: SinkWriter) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    changes = [upsert(5, 1, "a"), upsert(6, 1, "b"), delete(7, 1), upsert(0, 2, "c", partition=1)]
    writer.apply(ChangeBatch(claim, {0: OffsetRange(5, 8), 1: OffsetRange(0, 1)}, changes))
    assert bench.records() == [
        (0, b'{"id":1}', b'{"id":1,"value":"a"}'),
        (0, b'{"id":1}', b'{"id":1,"value":"b"}'),
        (0, b'{"id":1}', None),
        (1, b'{"id":2}', b'{"id":2,"value":"c"}'),
    ]


def test_tables_of_a_process_whose_producer_was_taken_for_another_table_go_on(
    bench: KafkaBench, writer: SinkWriter
) -> None:
    lost = claim_of(bench, 1)
    kept = claim_of(bench, 1, topic="shop.public.items")
    for claim in (lost, kept):
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, claim.topic)))
    bench.another().claim(claim_of(bench, 2))
    writer.apply(batch_of(kept, 6, upsert(6, 2, "goes on")))
    assert bench.sink.positions(kept) == {0: 7, 1: 0}
    with pytest.raises(SinkFencedError):
        writer.apply(batch_of(lost, 6, upsert(6, 3, "zombie")))
    assert bench.rows() == {1: "shop.public.items", 2: "goes on"}


def test_a_claim_below_one_that_this_process_has_not_heard_of_is_refused(bench: KafkaBench) -> None:
    bench.sink.claim(claim_of(bench, 1))
    other = bench.another()
    other.claim(claim_of(bench, 5))
    with pytest.raises(SinkFencedError, match=r"3\.5"):
        bench.sink.claim(claim_of(bench, 3))
    other.writer().apply(batch_of(claim_of(bench, 5), 5, upsert(5, 1, "a")))
    assert bench.rows() == {1: "a"}


def test_a_claim_that_is_refused_disturbs_nobody(bench: KafkaBench, writer: SinkWriter) -> None:
    claim = claim_of(bench, 5)
    bench.sink.claim(claim)
    held = bench.targets[0].holder.id
    with pytest.raises(SinkFencedError):
        bench.another().claim(claim_of(bench, 1))
    writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
    assert bench.targets[0].holder.id == held


def test_cloud_events_have_their_attributes_as_headers_and_the_same_ids_when_they_are_read_again(
    bench: KafkaBench,
) -> None:
    sink, claim = bench.another(format="cloudevents"), claim_of(bench, 1)
    sink.claim(claim)
    with closing(sink.writer()) as writer:
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a"), delete(6, 1)))
        again = claim_of(bench, 2, incarnation=1)
        sink.claim(again)
        writer.apply(batch_of(again, 5, upsert(5, 1, "a")))
    source = f"/headgate/{claim.identity.cluster_id.removesuffix('.')}/shop"
    common = {"ce_source": source, "ce_specversion": "1.0", "ce_subject": '{"id":1}'}
    first = common | {
        "ce_id": "shop.public.orders/0/5",
        "ce_type": "headgate.upsert",
        "content-type": "application/json",
    }
    then = common | {"ce_id": "shop.public.orders/0/6", "ce_type": "headgate.delete"}
    found = bench.messages()
    assert [
        {name: text.decode() for name, text in message.headers() or () if name != "ce_time"} for message in found
    ] == [first, then, first]
    assert [message.value() for message in found] == [b'{"id":1,"value":"a"}', None, b'{"id":1,"value":"a"}']


def test_a_topic_that_is_gone_is_named_and_not_made_again(bench: KafkaBench, writer: SinkWriter) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
    bench.drop()
    with pytest.raises(SinkRefusedError, match=rf"topic {bench.table} .*does not exist.*resume shop --from earliest"):
        bench.sink.prepare(claim_of(bench, 2), 2)
    rewind = claim_of(bench, 3, incarnation=1)
    bench.sink.prepare(rewind, 2)
    bench.sink.claim(rewind)
    writer.apply(batch_of(rewind, 5, upsert(5, 1, "again")))
    assert bench.rows() == {1: "again"}


def test_a_topic_is_created_as_its_source_and_too_few_partitions_are_refused(bench: KafkaBench) -> None:
    new = claim_of(bench, 1, table=f"{bench.table}.new")
    bench.sink.prepare(new, 5)
    bench.sink.prepare(new, 5)
    assert len(bench.admin.list_topics(new.table).topics[new.table].partitions) == 5
    with pytest.raises(SinkRefusedError, match=r"has 2 partitions, and source topic shop.public.orders has 3.*by-key"):
        bench.sink.prepare(claim_of(bench, 1), 3)


def murmur2(data: bytes) -> int:
    """As org.apache.kafka.common.utils.Utils has it, made positive."""
    mix, mask = 0x5BD1E995, 0xFFFFFFFF
    found, whole = 0x9747B28C ^ len(data), len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * mix & mask
        found = (found * mix & mask) ^ ((word ^ (word >> 24)) * mix & mask)
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * mix & mask
    found = (found ^ (found >> 13)) * mix & mask
    return (found ^ (found >> 15)) & 0x7FFFFFFF


@pytest.mark.parametrize(("text", "hashed"), [(b"21", -973932308), (b"a-little-bit-long-string", -985981536)])
def test_the_hash_here_is_that_of_kafkas_own_client(text: bytes, hashed: int) -> None:
    assert murmur2(text) == hashed & 0x7FFFFFFF


def test_by_key_a_record_is_where_a_java_client_would_have_put_it(
    kafka_bootstrap: str, kafka_prefix: str, tmp_path: Path
) -> None:
    with closing(KafkaBench(kafka_bootstrap, kafka_prefix, tmp_path, partitions=3)) as bench:
        sink, claim = bench.another(partitions="by-key"), claim_of(bench, 1)
        sink.prepare(claim, 9)
        sink.claim(claim)
        changes = [upsert(5 + number, number, "a") for number in range(30)]
        sink.writer().apply(ChangeBatch(claim, {0: OffsetRange(5, 35)}, changes))
        found = sorted((partition, key) for partition, key, _ in bench.records())
    keys = [b'{"id":%d}' % number for number in range(30)]
    assert found == sorted((murmur2(key) % 3, key) for key in keys)


def test_a_missing_topic_by_key_has_as_many_partitions_as_the_brokers_give(bench: KafkaBench) -> None:
    new = claim_of(bench, 1, table=f"{bench.table}.new")
    bench.another(partitions="by-key").prepare(new, 5)
    assert new.table in bench.admin.list_topics().topics


def test_a_reserved_topic_is_refused_when_it_is_claimed(bench: KafkaBench) -> None:
    with pytest.raises(SinkRefusedError, match="positions of Kafka sinks"):
        bench.sink.prepare(claim_of(bench, 1, table=bench.progress), 2)


def test_a_topic_into_itself_is_refused(bench: KafkaBench) -> None:
    cluster = f"{bench.sink.own_id()}/headgate."
    identity = contract.FeedIdentity(cluster, "0-7", "shop")
    with pytest.raises(SinkRefusedError, match="is one that the feed itself reads"):
        bench.sink.prepare(claim_of(bench, 1, identity=identity, topic=bench.table), 2)


def test_a_name_that_no_topic_can_have_is_refused(bench: KafkaBench) -> None:
    with pytest.raises(SinkRefusedError, match=r"not a valid name of a topic.*sink\.table"):
        bench.sink.check(['shop."Odd Name"'])


def test_records_of_others_on_the_progress_topic_are_named(bench: KafkaBench) -> None:
    from confluent_kafka import Producer

    bench.sink.claim(claim_of(bench, 1))
    other = Producer({"bootstrap.servers": bench.bootstrap})
    for partition in range(8):
        other.produce(bench.progress, b"x", b"y", partition)
    other.flush()
    with pytest.raises(SinkConflictError, match=r"is not a record of Headgate"):
        bench.sink.positions(claim_of(bench, 1))


def settings_of(bench: KafkaBench, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = bench.admin.describe_configs([resource])[resource].result(10)
    return {name: str(entry.value) for name, entry in found.items()}


def test_a_topic_is_created_as_the_feed_wants_it(bench: KafkaBench) -> None:
    new = claim_of(bench, 1, table=f"{bench.table}.new")
    options = {"partitions": 3, "replication_factor": 1, "config": {"retention.ms": 60_000, "cleanup.policy": "delete"}}
    bench.another(topic=options).prepare(new, 2)
    assert len(bench.admin.list_topics(new.table).topics[new.table].partitions) == 3
    settings = settings_of(bench, new.table)
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("60000", "delete")


@pytest.mark.parametrize(
    ("format_", "policy"), [("flat", "compact"), ("cloudevents", "compact"), ("debezium", "delete")]
)
def test_a_topic_of_flat_records_is_compacted_unless_it_is_said(bench: KafkaBench, format_: str, policy: str) -> None:
    new = claim_of(bench, 1, table=f"{bench.table}.{format_}")
    bench.another(format=format_).prepare(new, 2)
    assert settings_of(bench, new.table)["cleanup.policy"] == policy


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"config": {"retention.mss": 1}}, r"retention\.mss.*Correct sink\.topic"),
        ({"config": {"retention.ms": "soon"}}, r"soon.*Correct sink\.topic"),
        ({"replication_factor": 7}, r"7 copies need as many brokers, .* or set sink\.topic\.replication_factor to \d"),
    ],
)
def test_a_topic_that_brokers_would_not_create_is_refused_before_a_feed_is_accepted(
    bench: KafkaBench, options: dict[str, object], why: str
) -> None:
    topic = f"{bench.table}.new"
    with pytest.raises(SinkRefusedError, match=why):
        bench.another(topic=options).check([topic], contract.FeedIdentity("x/headgate.", "", "shop"))
    assert topic not in bench.admin.list_topics().topics


def test_fewer_partitions_than_the_source_has_are_refused_and_nothing_is_created(bench: KafkaBench) -> None:
    new = claim_of(bench, 1, table=f"{bench.table}.new")
    with pytest.raises(SinkRefusedError, match=r"would have 2 partitions, and source topic .* has 3.*by-key"):
        bench.another(topic={"partitions": 2}).prepare(new, 3)
    assert new.table not in bench.admin.list_topics().topics
    bench.another(topic={"partitions": 2}, partitions="by-key").prepare(new, 3)
    assert len(bench.admin.list_topics(new.table).topics[new.table].partitions) == 2


def test_a_check_tells_which_topics_are_missing_and_creates_none(bench: KafkaBench) -> None:
    topic = f"{bench.table}.new"
    shapes = bench.sink.check([topic, bench.table], contract.FeedIdentity("x/headgate.", "", "shop"))
    assert {name: shape.is_missing for name, shape in shapes.items()} == {topic: True, bench.table: False}
    assert topic not in bench.admin.list_topics().topics


def test_a_topic_that_is_re_created_between_claims_is_noticed(
    bench: KafkaBench, writer: SinkWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CHECK_SECONDS", 0.0)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
    bench.drop()
    make_topics(bench.admin, NewTopic(bench.table, 2, 1))
    with pytest.raises(SinkRefusedError, match=r"was deleted and re-created.*resume shop --from earliest"):
        writer.apply(batch_of(claim, 6, upsert(6, 2, "b")))
    assert bench.records() == []


@pytest.mark.parametrize("topic", ["copy.orders", "shop.public.orders"])
def test_a_topic_that_the_feed_reads_is_refused_in_the_same_cluster_only(bench: KafkaBench, topic: str) -> None:
    here = contract.FeedIdentity(f"{bench.sink.own_id()}/headgate.", "", "shop")
    elsewhere = contract.FeedIdentity("other/headgate.", "", "shop")

    def reads(name: str) -> bool:
        return name == "shop.public.orders"

    bench.sink.check_sources([topic], elsewhere, reads)
    if reads(topic):
        with pytest.raises(SinkRefusedError, match=r"topic shop\.public\.orders is one that the feed itself reads"):
            bench.sink.check_sources([topic], here, reads)
    else:
        bench.sink.check_sources([topic], here, reads)


def test_a_batch_is_divided_into_transactions_that_end_in_time(
    bench: KafkaBench, writer: SinkWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was committed before one of them fails is not written again."""
    monkeypatch.setattr(parts, "PART_BYTES", 100)
    bench.targets[0].pace.bytes_max = 1
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    taken = TargetProducer.commit
    sizes: list[int] = []

    def commit(self: TargetProducer, target: str, given: list[parts.Part], facts: object) -> None:
        sizes.append(sum(len(part.records) for part in given))
        if len(sizes) == 3:
            raise LogError("the target has stopped answering")
        taken(self, target, given, facts)  # type: ignore[arg-type]

    monkeypatch.setattr(TargetProducer, "commit", commit)
    changes = [upsert(5 + number, number, "x" * 30) for number in range(10)]
    with pytest.raises(SinkError, match="stopped answering"):
        writer.apply(ChangeBatch(claim, {0: OffsetRange(5, 15)}, changes))
    reached = bench.sink.positions(claim)[0]
    assert 5 < reached < 15
    assert len(bench.records()) == reached - 5
    monkeypatch.setattr(TargetProducer, "commit", taken)
    with pytest.raises(SinkMovedError):
        writer.apply(ChangeBatch(claim, {0: OffsetRange(5, 15)}, changes))
    writer.apply(ChangeBatch(claim, {0: OffsetRange(reached, 15)}, changes[reached - 5 :]))
    assert [key for _, key, _ in bench.records()] == [b'{"id":%d}' % number for number in range(10)]
