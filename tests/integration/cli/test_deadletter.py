"""`headgate deadletter` on a real broker: what was set aside, its bytes, and when it may be sent once more."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from headgate.cli.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.sharding import place
from headgate.records.base import Fact
from headgate.records.control import ChangeQuarantined, Epoch, FeedRecorded, FeedState, Header, WantedState
from headgate.records.keys import DeadLetterKey, FeedKey
from headgate.sources import resend as resending
from headgate.sources.records import read_stretch
from headgate.sources.resend import Original, look, resend
from integration.cli.conftest import ANSWER_SECONDS, headgate, make_topics

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
        make_topics(log, NewTopic(topic, 2, 1))
        self._producer = log.connection.client(Producer, enable_idempotence=True)
        self._log_writer = log.writer("test")
        record = FeedRecorded(
            "0-5", 1, 0, SPEC, (), WantedState.RUNNING, FeedState.NORMAL, None, None, None, changed_ms=0
        )
        self._log_writer.write([place(Fact(FeedKey("shop"), record), 0)], ANSWER_SECONDS)

    def put(self, *records: tuple[bytes | None, bytes | None]) -> None:
        """At the end of partition 1."""
        for key, value in records:
            self._producer.produce(self.topic, value, key, 1)
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def set_aside(self, offset: int, key: bytes | None, value: bytes, feed_id: str = "0-5") -> None:
        letter = ChangeQuarantined(
            feed_id=feed_id,
            incarnation=0,
            epoch=Epoch(3, 1),
            error_code="value_refused",
            error=f"out of range [offset {offset}]",
            key=key,
            value=value,
            headers=(Header("trace", b"\x01\xff"),),
            append_ms=7,
            quarantined_ms=8,
        )
        fact = Fact(DeadLetterKey("shop", "public.orders", self.topic, 1, offset), letter)
        self._log_writer.write([place(fact, 0)], ANSWER_SECONDS)

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        end = look(self.log.connection, Original(self.topic, 1, 0, b"", b"")).end
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
    assert headgate("deadletter", "replay", "other").exit_code == ExitCode.NOT_FOUND


def test_only_what_undoes_nothing_is_sent_again_and_only_when_told(shop: Shop) -> None:
    free, touched, gone, keyless = (b'{"id":%d}' % n for n in range(4))
    shop.put((free, event(0)), (touched, b"1"), (gone, b"2"), (keyless, b"3"), (b'{ "id": 1 }', b"4"), (gone, None))
    for offset, key in enumerate((free, touched, gone)):
        shop.set_aside(offset, key, event(offset))
    shop.set_aside(3, None, event(3))
    shop.set_aside(4, b'{"id":9}', b"bytes that nobody can read")
    code, rows = replayed()
    assert code == ExitCode.REQUEST_REFUSED
    assert [rows[n]["verdict"] for n in range(4)] == ["free", "touched", "touched", "unknown"]
    assert (rows[4]["verdict"], "nobody can read it" in rows[4]["detail"]) == ("unknown", True)
    assert "offset 4" in rows[1]["detail"], "the same key, written with blanks"
    assert len(shop.records()) == 6, "nothing was sent"

    code, rows = replayed("--send", f"{shop.topic}/1/0")
    assert (code, rows[0]["verdict"], rows[0]["sent_as"]) == (0, "resent", 6)
    assert shop.records()[6] == (free, event(0))
    code, rows = replayed("--send", f"{shop.topic}/1/0")
    assert (code, rows[0]["verdict"], rows[0]["sent_as"]) == (0, "resent", None)
    assert len(shop.records()) == 7, "not a second time"

    shop.set_aside(0, free, event(0), feed_id="0-1")
    assert replayed("--send", f"{shop.topic}/1/0")[1][0]["verdict"] == "unknown", "of an earlier feed of that name"


def test_a_row_written_between_the_look_and_the_send_keeps_its_last_word(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = b'{"id":1}'
    shop.put((key, b"old"))
    original = Original(shop.topic, 1, 0, key, b"old")
    end = look(shop.log.connection, original).end
    shop.put((b'{"id":2}', b"other"), (key, b"new"))
    resend(shop.log.connection, original, end)
    assert shop.records()[1:] == [(b'{"id":2}', b"other"), (key, b"new"), (key, b"old"), (key, b"new")]

    send = resending._send

    def rival(*arguments: Any) -> int:
        shop.put((key, b"newer"))
        return send(*arguments)

    monkeypatch.setattr(resending, "_send", rival)
    with pytest.raises(resending.KeyBusyError, match="written all the time"):
        resend(shop.log.connection, original, len(shop.records()))
