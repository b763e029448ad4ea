"""When a topic that a broker does not know counts as deleted."""

from headgate.sources.topic_ids import MissingTopics

WATCHED = ("a", "b")


def test_a_topic_is_gone_when_two_looks_in_a_row_miss_it() -> None:
    topics = MissingTopics()
    assert topics.gone(WATCHED, {"a": "1"}) == frozenset()
    assert topics.gone(WATCHED, {"a": "1"}) == {"b"}
    assert topics.gone(WATCHED, {"a": "1"}) == {"b"}


def test_a_topic_that_comes_back_in_between_is_not_gone() -> None:
    topics = MissingTopics()
    for found in ({"a"}, {"a", "b"}, {"a"}, {"b"}):
        assert topics.gone(WATCHED, found) == frozenset()


def test_a_topic_that_is_watched_only_now_was_not_missing_before() -> None:
    topics = MissingTopics()
    assert topics.gone(["a"], set()) == frozenset()
    assert topics.gone(["b"], set()) == frozenset()
