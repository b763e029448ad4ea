"""Every right of the table can be granted."""

from headgate.cli.rights import access_rule
from headgate.config.rights import Topics, grants


def test_there_is_an_access_rule_for_every_right() -> None:
    found = grants("headgate", {topics: ["some.topic"] for topics in Topics})
    assert len({str(access_rule(grant, "User:x")) for grant in found}) > 50
