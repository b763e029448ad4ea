"""What a PostgreSQL's catalogue shows of who reads its changes."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headgate.databases.postgresql.capturing import why_not_captured


def server(*plugins: str, unlogged: Sequence[int] = (), published: Sequence[int] = ()) -> Callable[[str, Any], Any]:
    """A catalogue that has slots of these plugins, and answers about tables by their numbers."""

    def execute(query: str, _given: Any) -> list[tuple[Any, ...]]:
        answer = plugins if "pg_replication_slots" in query else unlogged if "relpersistence" in query else published
        return [(each,) for each in answer]

    return execute


@pytest.mark.parametrize("plugins", [("decoderbufs",), ("pgoutput", "decoderbufs")])
def test_a_plugin_that_reads_no_publications_may_capture_every_table_that_is_logged(plugins: tuple[str, ...]) -> None:
    assert why_not_captured(server(*plugins), {1: "a"}) == []
    (why,) = why_not_captured(server(*plugins, unlogged=[1]), {1: "a", 2: "b"})
    assert why.startswith("changes of a are not logged")


def test_each_reason_names_its_tables() -> None:
    unlogged, unpublished = why_not_captured(server("pgoutput", unlogged=[2], published=[3]), {1: "a", 2: "b", 3: "c"})
    assert "of b are" in unlogged
    assert "deletes of a, so" in unpublished


def test_a_database_without_a_slot_is_one_reason() -> None:
    (why,) = why_not_captured(server(unlogged=[1]), {1: "a"})
    assert "no logical replication slot" in why
