"""What ends a hanging transaction must change nothing for anybody who reads it."""

import pytest

from headgate.agent.core import state as agent
from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.coordinator.core.machine import COORDINATOR
from headgate.eventlog.sharding import SHARDED_TOPICS
from headgate.records.base import Key
from headgate.records.registry import KEY_FORMS, parse_key

HARMLESS = COORDINATOR_KIND.harmless


def test_every_topic_that_owners_write_to_has_one() -> None:
    written = {topic for topic in ("announce", *SHARDED_TOPICS) if any(form.by_owner for form in KEY_FORMS[topic])}
    assert set(HARMLESS) == written


@pytest.mark.parametrize(("topic", "key"), sorted(HARMLESS.items()))
def test_it_is_of_its_topic_and_changes_no_state(topic: str, key: Key) -> None:
    assert parse_key(topic, key.text()) == key
    state = COORDINATOR.new_state(0)
    before = COORDINATOR.digest(state)
    COORDINATOR.evolve(state, key, None, 7)
    assert COORDINATOR.digest(state) == before
    session, untouched = (agent.new_state("a1", "s1", 2) for _ in range(2))
    agent.evolve(session, key, None, 7)
    assert session == untouched
