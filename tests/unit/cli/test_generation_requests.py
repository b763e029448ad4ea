"""Requests about change logs whose command gives up: what the owner has begun with Kafka's topics is finished."""

import pytest

from headgate.cli.exit_codes import CommandError, ExitCode
from headgate.cli.generation_requests import ask, request_of
from headgate.eventlog.log import Partition, Placed
from headgate.generation.shell.tail import GenerationTail
from headgate.records.base import Fact
from headgate.records.control import OutcomeStatus, OwnerAnnounced, RequestSettled
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationOwnerKey,
    GenerationRequestKey,
    GenerationRequestKind,
)
from headgate_lab.memory_log.log import MemoryBroker

TOPIC = Partition("generation", 0)


class Owner(MemoryBroker):
    """Accepts every request as soon as it is written, and does nothing about it."""

    def __init__(self) -> None:
        super().__init__()
        announced = OwnerAnnounced("o", None, "test", 2, 5.0, 0, 2)
        self.append(Placed(Partition("announce", 0), Fact(GenerationOwnerKey(0), announced)), 2)
        self.accepts = True
        self.on_committed = self._accept

    def _accept(self, _partition: Partition, entry: object) -> None:
        key, value = getattr(entry, "key", None), getattr(entry, "value", None)
        if self.accepts and isinstance(key, GenerationRequestKey) and value is not None:
            accepted = RequestSettled(0, OutcomeStatus.ACCEPTED, "creating topic t", 0)
            self.append(Placed(TOPIC, Fact(GenerationOutcomeKey(key.set, key.request), accepted)), 2)


@pytest.fixture
def owner() -> Owner:
    return Owner()


def left_over(owner: Owner, kind: GenerationRequestKind) -> int:
    """How many requests are on the log after a command that has given up."""
    tail = GenerationTail(owner.client(), "s", "test")
    with pytest.raises(CommandError) as refused:
        ask(tail, "s", request_of(kind, topic="t", partitions=1, streams=1), 0.3)
    assert refused.value.code is ExitCode.REQUEST_TIMED_OUT
    tail.read_to_end()
    return len(tail.state.requests)


@pytest.mark.parametrize(
    "kind", [GenerationRequestKind.CREATE, GenerationRequestKind.GROW, GenerationRequestKind.DELETE]
)
def test_a_request_about_a_whole_log_stays_once_the_owner_has_begun(owner: Owner, kind: GenerationRequestKind) -> None:
    assert left_over(owner, kind) == 1


@pytest.mark.parametrize("kind", [GenerationRequestKind.SWITCH, GenerationRequestKind.REPAIR])
def test_other_requests_are_withdrawn(owner: Owner, kind: GenerationRequestKind) -> None:
    assert left_over(owner, kind) == 0


def test_a_request_that_no_owner_has_taken_is_withdrawn(owner: Owner) -> None:
    owner.accepts = False
    assert left_over(owner, GenerationRequestKind.CREATE) == 0
