"""Settings of control topics that an earlier version created."""

from headgate.eventlog.topics import CONTROL_TOPICS, KEPT_FOR_EVER

BY_NAME = {topic.name: topic for topic in CONTROL_TOPICS}


def test_a_topic_that_is_as_it_is_created_needs_no_change() -> None:
    for topic in CONTROL_TOPICS:
        assert topic.changed_since(topic.settings(3)) == {}
        assert not topic.is_kept_for_ever(topic.settings(3))


def test_dead_letters_that_are_kept_for_ever_are_compacted() -> None:
    topic = BY_NAME["deadletter"]
    changed = topic.changed_since(KEPT_FOR_EVER)
    assert changed == topic.compaction
    assert not topic.is_kept_for_ever({**KEPT_FOR_EVER, **changed})


def test_no_other_policy_is_taken_for_that_of_an_earlier_version() -> None:
    by_age = {**KEPT_FOR_EVER, "retention.ms": "604800000"}
    assert not BY_NAME["deadletter"].is_kept_for_ever(by_age), "its records disappear by themselves"
    assert not BY_NAME["dispatch"].is_kept_for_ever(KEPT_FOR_EVER)
    assert BY_NAME["announce"].changed_since({}) == {"message.timestamp.type": "LogAppendTime"}
