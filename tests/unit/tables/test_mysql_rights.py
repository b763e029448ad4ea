"""Whether a list of grants has the right to alter a table, as the server takes its patterns."""

from typing import Any

import pytest

from headgate.tables import mysql_rights
from headgate.tables.mysql_rights import grant_on, missing_alter

USAGE = "GRANT USAGE ON *.* TO `ann`@`%` IDENTIFIED BY PASSWORD '*63'"


class Session:
    def __init__(self, *grants: str) -> None:
        self._grants = grants

    def execute(self, _statement: str) -> list[tuple[Any, ...]]:
        return [(grant,) for grant in self._grants]


@pytest.fixture(autouse=True)
def _account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_rights, "account", lambda _session: "ann")


@pytest.mark.parametrize(
    "grant",
    [
        "GRANT ALL PRIVILEGES ON *.* TO `ann`@`%` WITH GRANT OPTION",
        "GRANT SELECT, ALTER ON `shop`.* TO `ann`@`%`",
        "GRANT ALL PRIVILEGES ON `sh%`.* TO `ann`@`%`",
        "GRANT ALTER ON `s_op`.* TO `ann`@`%`",
        "GRANT ALTER ON `shop`.`t` TO `ann`@`%`",
        "GRANT ALTER ON TABLE `shop`.`t` TO `ann`@`%`",
        "GRANT `writers` TO `ann`@`%`",
    ],
)
def test_a_grant_that_has_the_right_or_cannot_be_judged(grant: str) -> None:
    assert missing_alter(Session(USAGE, grant), [("shop", "t")]) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "grant",
    [
        USAGE,
        "GRANT SELECT, ALTER ROUTINE ON `shop`.* TO `ann`@`%`",
        "GRANT ALTER ON `shop2`.* TO `ann`@`%`",
        r"GRANT ALTER ON `s\_op`.* TO `ann`@`%`",
        "GRANT ALTER ON `shop`.`u` TO `ann`@`%`",
        "GRANT SELECT, ALTER ON `shop`.`u` TO `ann`@`%`",
    ],
)
def test_a_grant_that_has_it_not(grant: str) -> None:
    assert missing_alter(Session(USAGE, grant), [("shop", "t"), ("shop", "v")]) == [  # type: ignore[arg-type]
        "GRANT ALTER ON `shop`.* TO ann"
    ]


def test_a_grant_has_the_name_that_the_users_other_rights_have() -> None:
    """The server takes the most exact name only: another one would take SELECT away."""
    mine = "GRANT SELECT, INSERT ON `shop_a`.* TO `ann`@`%`"
    assert missing_alter(Session(USAGE, mine), [("shop_a", "t")]) == ["GRANT ALTER ON `shop_a`.* TO ann"]  # type: ignore[arg-type]
    assert grant_on(Session(USAGE, mine), "shop_a", ["CREATE"]) == "GRANT CREATE ON `shop_a`.* TO ann"  # type: ignore[arg-type]
    assert missing_alter(Session(USAGE), [("shop_a", "t")]) == [r"GRANT ALTER ON `shop\_a`.* TO ann"]  # type: ignore[arg-type]
