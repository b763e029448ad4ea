"""Many records handed over in one loop: none is lost while the queue is full, and headers stay with their records."""

import time
from typing import Any

import pytest

from headgate.eventlog.producing import hand_over_all

RECORDS = [(0, b"a", b"1"), (1, b"b", None), (-1, None, b"3")]


class Queue:
    """A producer whose queue takes ``room`` records, and is empty again after a poll that ``drains`` it."""

    def __init__(self, room: int, *, drains: bool = True) -> None:
        self.room = self.left = room
        self.drains = drains
        self.taken: list[tuple[Any, ...]] = []

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        report: object,  # noqa: ARG002
        **more: Any,
    ) -> None:
        if not self.left:
            raise BufferError("Local: Queue full")
        self.left -= 1
        self.taken.append((topic, partition, key, value, more.get("headers")))

    def poll(self, _seconds: float) -> int:
        self.left = self.room if self.drains else 0
        return 0


def hand_over(queue: Queue, seconds: float, *headers: dict[str, bytes]) -> None:
    deadline = time.monotonic() + seconds
    hand_over_all(queue, deadline, "t", RECORDS, on_delivery=lambda *_: None, all_headers=headers)  # type: ignore[arg-type]


def test_a_full_queue_is_waited_for() -> None:
    queue = Queue(1)
    hand_over(queue, 60.0)
    assert [(partition, key, value) for _, partition, key, value, _ in queue.taken] == RECORDS


def test_a_queue_that_stays_full_is_given_up_at_the_deadline() -> None:
    with pytest.raises(BufferError, match="Queue full"):
        hand_over(Queue(2, drains=False), 0.0)


def test_headers_stay_with_their_records() -> None:
    queue = Queue(1)
    hand_over(queue, 60.0, {"n": b"1"}, {}, {"n": b"3"})
    assert [headers for *_, headers in queue.taken] == [{"n": b"1"}, None, {"n": b"3"}]


def test_records_without_their_headers_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        hand_over(Queue(9), 60.0, {"n": b"1"})
