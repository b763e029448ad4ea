"""The rights of a cluster, as they are granted: names, prefixes, and topics that only the operator knows."""

from headgate.config.rights import Grant, Resource, Topics, grants, who_has_rights


def test_names_have_the_clusters_and_a_dot_at_the_end_is_a_prefix() -> None:
    found = grants("prod", {}, ["generation"])
    assert Grant("generation", Resource.TOPIC, "prod.", True, "Read") in found
    assert Grant("generation", Resource.TOPIC, "prod.announce", False, "Write") in found
    assert Grant("generation", Resource.TRANSACTIONAL_ID, "prod.prod.generation-0", False, "Write") in found
    assert {each.who for each in found} == {"generation"}


def test_feeds_topics_are_those_that_are_named() -> None:
    found = grants("prod", {Topics.FEEDS: ["shop.", "one.public.t"]}, ["agent"])
    assert [each[2:] for each in found if each.name in ("shop.", "one.public.t")] == [
        ("shop.", True, "Describe"),
        ("shop.", True, "Read"),
        ("one.public.t", False, "Describe"),
        ("one.public.t", False, "Read"),
    ]


def test_everybody_has_some_and_none_may_write_what_others_decide() -> None:
    topics = {kind: ["t"] for kind in Topics}
    found = grants("headgate", topics)
    assert {each.who for each in found} == set(who_has_rights())
    writers = {each.who for each in found if (each.name, each.operation) == ("headgate.dispatch", "Write")}
    assert writers == {"coordinator"}
