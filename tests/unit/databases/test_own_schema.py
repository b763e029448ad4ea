"""What the schema ``headgate`` holds, and for whom. At real databases: tests/integration/cli/test_cluster_delete.py."""

from typing import Any

import pytest

from headgate.databases.own_schema import SchemaInUseError, read_contents, refuse_others

ROWS = {
    "progress": [("k1/headgate.",), ("k1/prod.",)],
    "removed": [("k2/headgate.",)],
    "migration": [("m1@aa",), ("m2@bb",)],
    "migration_owner": [("m3@aa",)],
}


def execute(statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    rows = ROWS[statement.partition("headgate.")[2].split()[0]]
    return [row for row in rows if parameters is None or row[0] != parameters["cluster"]]


def test_all_that_others_have_is_found_and_refused() -> None:
    names = ["removed", "progress", "migration", "migration_owner", "tables", "mine"]
    found = read_contents(execute, names, "k1/headgate.", "@aa")
    assert found.tables == ("progress", "removed", "migration", "migration_owner", "tables")
    assert found.clusters == ("k1/prod.", "k2/headgate.")
    assert (found.migrations, found.foreign) == (("m2@bb",), ("mine",))
    with pytest.raises(SchemaInUseError) as refused:
        refuse_others(found)
    assert str(refused.value) == (
        "it is used by cluster k1/prod., cluster k2/headgate., schema change of another cluster: m2@bb, "
        "table or view that Headgate did not make: mine"
    )


def test_what_one_cluster_alone_uses_can_go() -> None:
    found = read_contents(execute, ["migration_owner", "tables"], "k1/headgate.", "@aa")
    assert found.why_kept == ""
    refuse_others(found)
