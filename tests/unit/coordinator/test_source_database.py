"""A source database from which a feed's changes cannot come is refused."""

from types import SimpleNamespace
from typing import Any, Final

import pytest

from headgate.coordinator.shell.source_database import why_another
from headgate.databases.address import Target
from headgate.sources.origin import Origin

AT: Final = {"postgresql": Target("postgresql://ann@db/shop"), "mysql": Target("mysql://ann@db/shop")}


def catalogue() -> Any:
    return SimpleNamespace(database=lambda: "shop", sink=lambda: SimpleNamespace(schemas={"shop"}))


@pytest.mark.parametrize(
    ("kind", "origin", "says"),
    [
        ("postgresql", Origin("postgresql", "shop", "public.t"), None),
        ("mysql", Origin("mariadb", "shop", "t"), None),
        ("mysql", Origin("mysql", "shop", "t"), None),
        ("postgresql", Origin("postgresql", "other", "public.t"), "come from database other, but source.database is"),
        ("mysql", Origin("mysql", "other", "t"), "come from database other, which the server of source.database does"),
        ("postgresql", Origin("mysql", "shop", "t"), "come from a mysql, but source.database is a postgresql"),
        ("postgresql", Origin("oracle", "shop", "a.t"), "come from a oracle, but source.database is a postgresql"),
    ],
)
def test_kind_and_database_must_be_those_of_the_events(kind: str, origin: Origin, says: str | None) -> None:
    why = why_another(catalogue(), AT[kind], "topic", origin)
    assert (why is None) if says is None else (why is not None and says in why)
