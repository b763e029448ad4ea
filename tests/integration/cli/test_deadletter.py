"""`headgate deadletter` on a real broker: what was set aside, its bytes, and when it may be sent once more."""

import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.coordinator.shell.retention import DeadLetterRetention
from headgate.eventlog.dead_letters import read_dead_letters, remove_dead_letters
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.schema_files import schemas
from headgate.eventlog.sharding import DEADLETTER, place
from headgate.eventlog.topics import KEPT_FOR_EVER, topic_name, why_not_removable
from headgate.records.base import Fact
from headgate.records.control import WITHHELD_HEADER, ChangeQuarantined, Epoch, Header
from headgate.records.generation import SetKey, SetRecorded
from headgate.records.keys import DeadLetterKey, FeedKey
from headgate.sources import resend as resending
from headgate.sources.offsets import end_offsets
from headgate.sources.records import read_stretch
from headgate.sources.resend import Original, SearchResult, look, resend
from headgate.sources.topic_ids import TopicReplacedError, topic_id_of
from integration.cli.conftest import ANSWER_SECONDS, headgate, make_topics
from support import build
from support.topic_changes import change_settings, make_again
from support.waiting import eventually

pytestmark = pytest.mark.integration


SPEC = json.dumps(
    {"feed": "shop", "source": {"topics": ["a.b"]}, "sink": {"type": "postgresql", "dsn": "host=nowhere.invalid"}}
)


def event(number: int) -> bytes:
    return json.dumps({"op": "c", "after": {"id": number}, "source": {"schema": "s", "table": "t"}}).encode()


class Shop:
    """A feed on the log, its source topic, and what has been set aside of it."""

    def __init__(self, log: KafkaLog, topic: str) -> None:
        self.log, self.topic = log, topic
        log.level.met(schemas().level)
        make_topics(log, NewTopic(topic, 2, 1))
        self._producer = log.connection.client(Producer, enable_idempotence=True)
        self._log_writer = log.writer("test")
        self.record_feed()

    @property
    def topic_id(self) -> str | None:
        return topic_id_of(self.log.connection, self.topic)

    def write(self, *facts: Fact) -> None:
        self._log_writer.write([place(fact, 0) for fact in facts], ANSWER_SECONDS)

    def record_feed(self, incarnation: int = 0) -> None:
        """The feed's record, after so many rewinds."""
        record = build.feed_recorded(feed_id="0-5", incarnation=incarnation, spec=SPEC)
        self.write(Fact(FeedKey("shop"), record))

    def make_topic_again(self) -> None:
        """Delete the topic, and create it again under the same name."""
        make_again(self.log.connection, self.topic, 2)

    def put(self, *records: tuple[bytes | None, bytes | None]) -> None:
        """At the end of partition 1."""
        for key, value in records:
            self._producer.produce(self.topic, value, key, 1)
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def set_aside(self, offset: int, key: bytes | None, value: bytes | None, **different: Any) -> None:
        """A change that an agent has set aside, with these fields ``different``."""
        letter = ChangeQuarantined(
            feed_id="0-5",
            incarnation=0,
            epoch=Epoch(3, 1),
            error_code="value_refused",
            error=f"out of range [offset {offset}]",
            key=key,
            value=value,
            headers=(Header("trace", b"\x01\xff"),),
            append_ms=7,
            quarantined_ms=8,
            topic_id=self.topic_id,
        )
        letter = msgspec.structs.replace(letter, **different)
        self.write(Fact(DeadLetterKey("shop", "public.orders", self.topic, 1, offset), letter))

    def look(self, original: Original) -> SearchResult:
        return look(self.log.connection, original, {})

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        end = end_offsets(self.log.connection, {self.topic: 2})[self.topic][1]
        return [(m.key(), m.value()) for m in read_stretch(self.log.connection, self.topic, 1, 0, end)]

    def close(self) -> None:
        self._log_writer.close()
        self._producer.close()


@pytest.fixture
def shop(settings: Settings, log: KafkaLog) -> Iterator[Shop]:
    made = Shop(log, f"{settings.cluster}-shop.public.orders")
    yield made
    made.close()


def replayed(*arguments: str) -> tuple[int, dict[int, Any]]:
    answer = headgate("deadletter", "replay", "shop", *arguments, "-o", "json")
    rows = json.loads(answer.stdout)
    return answer.exit_code, {int(row["place"].rpartition("/")[2]): row for row in rows}


def test_what_was_set_aside_is_listed_once_and_shown_with_its_bytes(shop: Shop) -> None:
    shop.set_aside(4, b'{"id":1}', b'{"op":"c"}')
    shop.set_aside(4, b'{"id":1}', b'{"op":"c"}')
    shop.set_aside(9, b"\xff", b"\x00bytes")
    rows = json.loads(headgate("deadletter", "list", "-o", "json").stdout)
    assert [(row["table"], row["place"], row["code"]) for row in rows] == [
        ("public.orders", f"{shop.topic}/1/4", "value_refused"),
        ("public.orders", f"{shop.topic}/1/9", "value_refused"),
    ]
    assert json.loads(headgate("deadletter", "list", "shop", "--code", "sink", "-o", "json").stdout) == []
    text = json.loads(headgate("deadletter", "show", "shop", f"{shop.topic}/1/4", "-o", "json").stdout)
    assert (text["key"], text["value"], text["value_bytes"]) == ({"id": 1}, {"op": "c"}, '{"op":"c"}')
    assert text["headers"] == [{"name": "trace", "bytes": {"hex": "01ff"}}]
    raw = json.loads(headgate("deadletter", "show", "shop", f"{shop.topic}/1/9", "-o", "json").stdout)
    assert (raw["value"], raw["value_bytes"], raw["key_bytes"]) == (None, {"hex": "006279746573"}, {"hex": "ff"})
    unknown = headgate("deadletter", "show", "shop", "nowhere/0/0")
    assert unknown.exit_code == ExitCode.NOT_FOUND
    assert headgate("deadletter", "replay", "other", "--yes").exit_code == ExitCode.NOT_FOUND


def test_only_what_undoes_nothing_is_sent_again_and_only_when_told(shop: Shop) -> None:
    free, touched, gone, keyless = (b'{"id":%d}' % n for n in range(4))
    shop.put((free, event(0)), (touched, b"1"), (gone, b"2"), (keyless, b"3"), (b'{ "id": 1 }', b"4"), (gone, None))
    for offset, key in enumerate((free, touched, gone)):
        shop.set_aside(offset, key, event(offset))
    shop.set_aside(3, None, event(3))
    shop.set_aside(4, b'{"id":9}', b"bytes that nobody can read")
    code, rows = replayed("--dry-run")
    assert code == ExitCode.REQUEST_REFUSED
    assert [rows[n]["verdict"] for n in range(4)] == ["free", "touched", "touched", "unknown"]
    assert (rows[4]["verdict"], "it cannot be read" in rows[4]["detail"]) == ("unknown", True)
    assert "offset 4" in rows[1]["detail"], "the same key, written with blanks"
    assert len(shop.records()) == 6, "nothing was sent"

    code, rows = replayed("--yes", f"{shop.topic}/1/0")
    assert (code, rows[0]["verdict"], rows[0]["sent_as"]) == (0, "resent", 6)
    assert shop.records()[6] == (free, event(0))
    code, rows = replayed("--yes", f"{shop.topic}/1/0")
    assert (code, rows[0]["verdict"], rows[0]["sent_as"]) == (0, "resent", None)
    assert len(shop.records()) == 7, "not a second time"

    shop.set_aside(0, free, event(0), feed_id="0-1")
    assert replayed("--yes", f"{shop.topic}/1/0")[1][0]["verdict"] == "unknown", (
        "belongs to an earlier feed of that name"
    )


def test_a_row_written_between_the_look_and_the_send_keeps_its_last_word(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = b'{"id":1}'
    shop.put((key, b"old"))
    original = Original(shop.topic, 1, 0, key, b"old", topic_id=shop.topic_id)
    end = shop.look(original).end
    shop.put((b'{"id":2}', b"other"), (key, b"new"))
    resend(shop.log.connection, original, end)
    assert shop.records()[1:] == [(b'{"id":2}', b"other"), (key, b"new"), (key, b"old"), (key, b"new")]

    send = resending._send

    def rival(*arguments: Any) -> int:
        shop.put((key, b"newer"))
        return send(*arguments)

    monkeypatch.setattr(resending, "_send", rival)
    with pytest.raises(resending.KeyBusyError, match="written continuously"):
        resend(shop.log.connection, original, len(shop.records()))


def test_nothing_is_sent_to_a_topic_that_was_created_again(shop: Shop) -> None:
    key = b'{"id":5}'
    shop.put(*[(b'{"id":1}', event(1))] * 3, (key, event(5)))
    original = Original(shop.topic, 1, 3, key, event(5), topic_id=shop.topic_id)
    shop.set_aside(3, key, event(5))
    assert replayed("--dry-run")[1][3]["verdict"] == "free", "as long as the topic is the same"
    end = shop.look(original).end
    shop.make_topic_again()
    shop.put((key, event(6)))
    code, rows = replayed("--yes")
    assert (code, rows[3]["verdict"]) == (ExitCode.REQUEST_REFUSED, "unknown")
    assert "deleted and created again" in rows[3]["detail"]
    with pytest.raises(TopicReplacedError, match="nothing was sent"):
        resend(shop.log.connection, original, end)
    assert shop.records() == [(key, event(6))]


def test_a_change_of_another_incarnation_or_of_an_unknown_topic_is_refused(shop: Shop) -> None:
    for number in range(3):
        shop.put((b'{"id":%d}' % number, event(number)))
    shop.set_aside(0, b'{"id":0}', event(0), topic_id=None, incarnation=1)
    shop.set_aside(1, b'{"id":1}', event(1))
    shop.set_aside(2, b'{"id":2}', event(2), incarnation=1)
    shop.record_feed(incarnation=1)
    code, rows = replayed("--yes")
    assert code == ExitCode.REQUEST_REFUSED
    assert [rows[number]["verdict"] for number in range(3)] == ["unknown", "unknown", "resent"]
    assert "does not have the id of the topic" in rows[0]["detail"]
    assert "incarnation 0, this is incarnation 1" in rows[1]["detail"]
    assert len(shop.records()) == 4


def test_a_change_whose_content_was_withheld_is_not_sent(shop: Shop) -> None:
    shop.record_feed()
    shop.put((b'{"id":0}', event(0)))
    shop.set_aside(0, None, None, headers=(Header(WITHHELD_HEADER, None),))
    code, rows = replayed("--yes")
    assert (code, rows[0]["verdict"]) == (ExitCode.REQUEST_REFUSED, "unknown")
    assert "the feed excludes or masks columns of the table" in rows[0]["detail"]
    assert shop.records() == [(b'{"id":0}', event(0))]
    shown = json.loads(headgate("deadletter", "show", "shop", rows[0]["place"], "-o", "json").stdout)
    assert (shown["key"], shown["value"], shown["headers"]) == (None, None, [{"name": WITHHELD_HEADER, "bytes": None}])


def test_nothing_is_sent_to_a_change_log(shop: Shop) -> None:
    shop.put((b'{"id":0}', event(0)), (b'{"id":1}', event(1)))
    shop.set_aside(0, b'{"id":0}', event(0))
    copied = (Header("headgate-writer", b"w"), Header("headgate-position", b"7"))
    shop.set_aside(1, b'{"id":1}', event(1), headers=copied)
    assert [row["verdict"] for row in replayed("--dry-run")[1].values()] == ["free", "unknown"], "its headers tell"
    shop.write(Fact(SetKey("orders"), SetRecorded(0, shop.topic, shop.topic_id, 2, 0, (), ())))
    code, rows = replayed("--yes")
    assert code == ExitCode.REQUEST_REFUSED
    assert [row["verdict"] for row in rows.values()] == ["unknown", "unknown"]
    assert "belongs to change log orders" in rows[0]["detail"]
    assert len(shop.records()) == 2


def set_aside_places(*arguments: str) -> list[int]:
    """Offsets of the dead letters that are listed."""
    rows = json.loads(headgate("deadletter", "list", *arguments, "-o", "json").stdout)
    return [int(row["place"].rpartition("/")[2]) for row in rows]


def stored(log: KafkaLog) -> list[bytes | None]:
    """The values of every record in the topic of dead letters, tombstones included."""
    topic = topic_name(log.cluster, DEADLETTER)
    end = end_offsets(log.connection, {topic: 1})[topic][0]
    return [message.value() for message in read_stretch(log.connection, topic, 0, 0, end)]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_dead_letters_are_purged_by_what_is_named_and_only_when_agreed(shop: Shop) -> None:
    shop.set_aside(1, b"1", b"one", quarantined_ms=now_ms())
    shop.set_aside(2, b"2", b"two")
    shop.set_aside(3, b"3", b"three", error_code="sink")
    preview = headgate("deadletter", "purge", "shop", "--older-than", "1d", "--dry-run")
    assert preview.exit_code == 0
    assert "would remove 2 dead letters of feed shop; nothing was changed" in preview.stderr
    assert headgate("deadletter", "purge", "shop").exit_code == ExitCode.NOT_CONFIRMED
    assert headgate("deadletter", "purge", "shop", "--older-than", "soon", "--yes").exit_code == ExitCode.USAGE
    assert headgate("deadletter", "purge", "shp", "--yes").exit_code == ExitCode.NOT_FOUND
    assert set_aside_places("shop") == [1, 2, 3]

    done = headgate("deadletter", "purge", "shop", "--code", "sink", "--yes", "-o", "json")
    assert [(row["place"], row["removed"]) for row in json.loads(done.stdout)] == [(f"{shop.topic}/1/3", True)]
    assert set_aside_places("shop") == [1, 2]
    assert headgate("deadletter", "purge", "shop", "--older-than", "1d", "--yes").exit_code == 0
    assert set_aside_places("shop") == [1]
    assert headgate("deadletter", "purge", "shop", f"{shop.topic}/1/1", "--yes").exit_code == 0
    assert set_aside_places("shop") == []
    assert [value is None for value in stored(shop.log)] == [False, False, False, True, True, True]
    nothing = headgate("deadletter", "purge", "shop", "--yes")
    assert "has no matching dead letters" in nothing.stderr


def test_what_is_set_aside_while_a_purge_runs_is_kept(shop: Shop) -> None:
    shop.set_aside(1, b"1", b"old")
    shop.set_aside(2, b"2", b"old")
    found = read_dead_letters(shop.log, 0)
    shop.set_aside(1, b"1", b"new", quarantined_ms=9)
    remove_dead_letters(shop.log, found, found.current, "test")
    left = read_dead_letters(shop.log, 0)
    assert [(key.offset, letter.value) for key, letter in left.current.items()] == [(1, b"new")]


def test_the_coordinator_removes_what_has_expired_and_repeats_it_until_the_bytes_are_gone(shop: Shop) -> None:
    shop.set_aside(1, b"1", b"one", quarantined_ms=now_ms())
    shop.set_aside(2, b"2", b"two")
    retention = DeadLetterRetention(shop.log, lambda: [0], lambda: None, now_ms)
    retention.sweep(0)
    assert set_aside_places("shop") == [1]
    before = len(stored(shop.log))
    retention.sweep(0)
    assert stored(shop.log)[before:] == [None], "this closes the segment of the first tombstone"


def test_nothing_is_removed_where_it_cannot_be_known_how_long_it_is_kept(shop: Shop) -> None:
    shop.set_aside(2, b"2", b"two")
    producer = shop.log.connection.client(Producer)
    producer.produce(topic_name(shop.log.cluster, "changefeed"), b"not one of ours", b"shop", 0)
    assert producer.flush(ANSWER_SECONDS) == 0
    producer.close()
    DeadLetterRetention(shop.log, lambda: [0], lambda: None, now_ms).sweep(0)
    assert set_aside_places("shop") == [2]


def test_a_topic_of_version_0_1_0_is_accepted_and_made_to_forget(shop: Shop, settings: Settings) -> None:
    topic = topic_name(shop.log.cluster, DEADLETTER)
    change_settings(shop.log.connection.admin, topic, KEPT_FOR_EVER)
    shop.set_aside(2, b"2", b"two")
    refused = headgate("deadletter", "purge", "shop", "--yes")
    assert refused.exit_code == ExitCode.TOPICS_WRONG
    assert "headgate topic create" in refused.stderr
    DeadLetterRetention(
        shop.log, lambda: [0], lambda: why_not_removable(shop.log.connection, shop.log.cluster), now_ms
    ).sweep(0)
    assert set_aside_places("shop") == [2], "a tombstone would hide it and remove nothing"
    assert headgate("topic", "create", "--shards", "1").exit_code == 0
    eventually(
        lambda: why_not_removable(shop.log.connection, shop.log.cluster) is None, "the brokers tell of the new setting"
    )
    assert headgate("deadletter", "purge", "shop", "--yes").exit_code == 0
    assert set_aside_places("shop") == []
