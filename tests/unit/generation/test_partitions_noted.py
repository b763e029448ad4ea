"""What ``serve ingest`` asks its group for at the start: a coordinator that moves or loads is asked again."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headgate.eventlog.connection import GROUP_PASSING_CODES, KafkaConnection
from headgate.eventlog.log import LogError
from headgate.generation.changelog.shell import ingest
from headgate.generation.changelog.shell.ingest import PartitionsNoted


class Member:
    """A consumer that is refused with each of ``codes`` in turn, and then answered."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes

    def committed(self, asked: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return [TopicPartition(each.topic, 0, 0, metadata="id-1 3") for each in asked]

    def poll(self, _seconds: float) -> None:
        return None

    def list_topics(self, _topic: str, _seconds: float) -> Any:
        raise AssertionError("nobody asks")


def noted(member: Member) -> PartitionsNoted:
    return PartitionsNoted(KafkaConnection("127.0.0.1:1"), member, {"shop": "id-1"})


def test_a_coordinator_that_moves_or_loads_is_asked_again() -> None:
    member = Member(sorted(GROUP_PASSING_CODES))
    group = noted(member)
    group.read()
    assert member.codes == []
    assert group._known == {"shop": 3}


@pytest.mark.parametrize("code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.INVALID_GROUP_ID])
def test_what_does_not_pass_ends_it_at_once(code: int) -> None:
    member = Member([code, code])
    with pytest.raises(LogError, match="sharing the topics in a group"):
        noted(member).read()
    assert member.codes == [code]


def test_a_coordinator_that_is_never_found_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "ADMIN_SECONDS_MAX", 0.0)
    with pytest.raises(LogError, match="NOT_COORDINATOR"):
        noted(Member([KafkaError.NOT_COORDINATOR, KafkaError.NOT_COORDINATOR])).read()
