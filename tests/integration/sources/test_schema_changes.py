"""A real connector's schema changes at MariaDB identify the columns of a table."""

import uuid
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from fixtures.capture import Sources
from fixtures.services import mariadb_execute
from headgate.config.feed import FeedSpec, parse_feed
from headgate.eventlog.connection import KafkaConnection
from headgate.formats.schema_changes import TableChange
from headgate.replication.statement_columns import numbers_after
from headgate.sources.offsets import SourceUnreachableError
from headgate.sources.schema_changes import CHANGE_BYTES, SchemaChanges, schema_topic_of
from headgate_lab.embedded.registry import EmbeddedRegistry
from support.kafka_cluster import ANSWER_SECONDS
from support.topic_changes import make_again, make_topics
from support.waiting import eventually

pytestmark = pytest.mark.integration

FEED = """
feed: f
source: {topics: [t], format: %s, database: {dsn: "mysql://u@127.0.0.1/d"}%s}
sink: {type: postgresql, dsn: dbname=y, tables: evolve}
"""
JSON = parse_feed(FEED % ("debezium-json", ""))

ALTERED = "ALTER TABLE items {}"


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_a_connector_shows_which_columns_are_others_under_the_same_names(
    sources: Sources, mariadb_source: str, encoding: str, request: pytest.FixtureRequest
) -> None:
    spec, converter = JSON, dict[str, str]()
    if encoding == "avro":
        registry: EmbeddedRegistry = request.getfixturevalue("schema_registry")
        spec = parse_feed(FEED % ("debezium-avro", f', registry: {{url: "{registry.url}"}}'))
        converter = registry.converter()
    name, database = f"c{uuid.uuid4().hex[:6]}", mariadb_source.rsplit("/", 1)[1]
    mariadb_execute(mariadb_source, "CREATE TABLE items (id int PRIMARY KEY, a int, b int, c int)")
    sources.capture_mariadb(name, database, **converter)
    topic = schema_topic_of(spec, f"{name}.{database}.items")
    assert topic == name
    changes = SchemaChanges(KafkaConnection(sources.bootstrap))

    def after(*clauses: str) -> dict[str, int]:
        """The columns' numbers once all these clauses have been captured, each in a statement."""
        for clause in clauses:
            mariadb_execute(mariadb_source, ALTERED.format(clause))
        mariadb_execute(mariadb_source, f"CREATE TABLE {(done := f'done{uuid.uuid4().hex[:6]}')} (id int PRIMARY KEY)")
        eventually(lambda: (database, done) in tables(spec, changes, topic), f"{clauses} are captured")
        numbers, unread = numbers_after({}, tables(spec, changes, topic)[database, "items"])
        assert not unread
        return numbers

    first = after()
    assert list(first) == ["id", "a", "b", "c"]
    again = after("DROP COLUMN a, ADD COLUMN a int", "ADD INDEX (b), COMMENT 'x'", "MODIFY b bigint FIRST")
    assert {name: number for name, number in again.items() if name != "a"} == {
        name: number for name, number in first.items() if name != "a"
    }
    assert again["a"] not in first.values()
    once_more = after("DROP COLUMN a, ADD COLUMN a int")
    assert once_more == again | {"a": once_more["a"]}, "the statement is not the former one, which has the same text"
    assert once_more["a"] != again["a"]
    again = once_more
    swapped = after("RENAME COLUMN a TO x", "CHANGE b a bigint", "RENAME COLUMN x TO b")
    assert (swapped["a"], swapped["b"]) == (again["b"], again["a"])
    renamed = after("DROP COLUMN c", "RENAME COLUMN b TO c")
    assert renamed == {"id": first["id"], "a": swapped["a"], "c": swapped["b"]}


def tables(
    spec: FeedSpec, changes: SchemaChanges, topic: str
) -> Mapping[tuple[str, str], Sequence[tuple[int, TableChange]]]:
    read = changes.read(spec, topic, ())
    return {} if read is None else read.tables


def test_a_topic_is_read_on_and_what_it_has_lost_is_known(kafka_bootstrap: str, kafka_prefix: str) -> None:
    connection, producer = KafkaConnection(kafka_bootstrap), Producer({"bootstrap.servers": kafka_bootstrap})
    topic, changes = f"{kafka_prefix}shop", SchemaChanges(connection)
    assert changes.read(JSON, topic, ()) is None, "there is no such topic"
    make_topics(connection.admin, NewTopic(topic, 1, 1))

    def write(*columns: str, at: int | None = None) -> None:
        table = {"id": '"d"."t"', "table": {"columns": [{"name": name} for name in columns]}}
        source = {"server_id": 1, "file": None if at is None else "bin.1", "pos": at}
        value = {"ddl": ",".join(columns), "tableChanges": [table], "source": source}
        producer.produce(topic, msgspec.json.encode(value))
        assert producer.flush(ANSWER_SECONDS) == 0

    def read() -> tuple[int, int, list[tuple[int, tuple[str, ...]]]]:
        found = changes.read(JSON, topic, ())
        assert found is not None
        shown = [(offset, change.columns) for offset, change in found.tables.get(("d", "t"), ())]
        return found.since, found.until, shown

    assert read() == (0, 0, [])
    write("id")
    producer.produce(topic, b"no schema change")
    write("id", "a")
    assert read() == (0, 3, [(0, ("id",)), (2, ("id", "a"))])
    for future in connection.admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        future.result(ANSWER_SECONDS)
    write("id", "b")
    known = [(0, ("id",)), (2, ("id", "a")), (3, ("id", "b"))]
    assert read() == (0, 4, known), "what was deleted had been read"
    write("id", "gone")
    for future in connection.admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        future.result(ANSWER_SECONDS)
    assert read() == (5, 5, known)
    before = changes.read(JSON, topic, ())
    make_again(connection, topic, 1)
    write("id")
    assert read() == (0, 1, [(0, ("id",))])
    for at in (10, 20, 10, 20, 30):  # the connector has crashed after the second one
        write("id", "a", at=at)
        assert changes.read(JSON, topic, ()) is not None
    assert read() == (0, 6, [(0, ("id",)), *((offset, ("id", "a")) for offset in (1, 2, 5))])
    after = changes.read(JSON, topic, ())
    assert before is not None
    assert after is not None
    assert after.topic_id != before.topic_id

    divided = f"{kafka_prefix}divided"
    make_topics(connection.admin, NewTopic(divided, 2, 1))
    assert changes.read(JSON, divided, ()) is None, "several partitions have no order"
    producer.close()
    connection.close()


def test_of_many_tables_those_are_kept_that_are_asked_for(kafka_bootstrap: str, kafka_prefix: str) -> None:
    connection, producer = KafkaConnection(kafka_bootstrap), Producer({"bootstrap.servers": kafka_bootstrap})
    topic = f"{kafka_prefix}shop"
    make_topics(connection.admin, NewTopic(topic, 1, 1))

    def write(table: str, statement: str, *columns: str) -> None:
        change = {"id": f'"d"."{table}"', "table": {"columns": [{"name": name} for name in columns]}}
        producer.produce(topic, msgspec.json.encode({"ddl": statement, "tableChanges": [change]}))
        assert producer.flush(ANSWER_SECONDS) == 0

    for number in range(20):
        write(f"t{number}", "CREATE TABLE " + "x" * 5000, "id", "a")
    write("t7", "ALTER TABLE t7 DROP a", "id")
    whole = SchemaChanges(connection).read(JSON, topic, [("d", "t3")])
    assert whole is not None
    assert (len(whole.tables), whole.lacks_tables) == (20, False), "the texts of CREATE TABLE do not count"

    changes = SchemaChanges(connection, bytes_max=20 * CHANGE_BYTES)

    def read(*tables: str, spec: FeedSpec = JSON) -> dict[str, list[int]]:
        found = changes.read(spec, topic, [("d", table) for table in tables])
        assert found is not None
        assert found.lacks_tables
        return {table: [offset for offset, _ in each] for (_, table), each in found.tables.items()}

    assert read("t3") == {"t3": [3]}
    assert read("t7", "none") == {"t3": [3], "t7": [7, 20], "none": []}
    write("t3", "ALTER TABLE t3 DROP a", "id")
    write("t4", "ALTER TABLE t4 DROP a", "id")
    write("none", "CREATE TABLE none", "id")
    assert read("t7") == {"t3": [3, 21], "t7": [7, 20], "none": [23]}
    assert read("t4") == {"t3": [3, 21], "t4": [4, 22], "t7": [7, 20], "none": [23]}
    named = JSON.model_copy(update={"source": JSON.source.model_copy(update={"topics": (f"{topic}.d.t8",)})})
    assert read("t9", spec=named).keys() == {"t3", "t4", "t7", "t8", "t9", "none"}
    few = SchemaChanges(connection, bytes_max=CHANGE_BYTES)
    with pytest.raises(SourceUnreachableError, match=r"more than 100 bytes of statements on 1 tables"):
        few.read(JSON, topic, [("d", "t7")])
    producer.close()
    connection.close()
