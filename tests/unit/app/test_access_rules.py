"""Every right of the table can be granted."""

from headgate.app.access_rules import access_rule
from headgate.config.rights import Topics, grants


def test_there_is_an_access_rule_for_every_right() -> None:
    found = grants("headgate", {topics: ["some.topic"] for topics in Topics})
    assert {access_rule(grant, "User:x").operation.name for grant in found} >= {"ALTER", "CREATE", "DELETE", "WRITE"}
