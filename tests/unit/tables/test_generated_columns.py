"""Columns that a PostgreSQL source computes: its log does not have them, and a connector's snapshot does."""

from typing import Any

import pytest

from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.databases.catalogue import Product
from headgate.sinks.contract import TableShape
from headgate.tables.generated_columns import why_stale
from headgate.tables.shaped import shaped_definition
from headgate.tables.statement import CreateTable, Definition, table_statement
from unit.tables.definitions import mysql_column, mysql_table, postgres_column, postgres_table

OWN = postgres_column("twice", "bigint", generated="(id * 2)", needs=("id",))
WORDS = postgres_column("words", "tsvector", generated="to_tsvector('simple'::regconfig, note)", needs=("note",))
OTHER = postgres_column("made", "text", generated="public.made(id)")
ID, NOTE = postgres_column("id", "bigint", is_nullable=False), postgres_column("note", "text")
DATABASES = {"postgresql": "dbname=x", "mysql": "mysql://me@db/shop", "delta": "file:///lake"}


def table(*columns: Any) -> Definition:
    return postgres_table(ID, NOTE, *columns, key=("id",))


def statement(source: Definition, **columns: Any) -> str:
    found = table_statement(shaped_definition(source, ColumnOptions(**columns)), Product.POSTGRESQL)
    assert isinstance(found, CreateTable)
    assert not found.columns.keys() & {"twice", "words", "made"}, "no event has to have them"
    return found.statements[0]


def why(source: Definition, sink: TableShape | None = None, kind: str = "postgresql", **columns: Any) -> str | None:
    end = {"type": kind, "dsn": DATABASES[kind]}
    spec = FeedSpec.model_validate(
        {"feed": "f", "source": {"topics": ["t.shop.t"]}, "sink": end, **({"columns": columns} if columns else {})}
    )
    return why_stale(spec, "shop.t", source, sink)


def at_sink(*columns: str, generated: frozenset[str] = frozenset()) -> TableShape:
    types = dict.fromkeys(("id", "note", *columns), "text")
    return TableShape("shop.t", types, ("id",), secondary_unique=False, generated=generated)


def test_the_sink_computes_what_it_can() -> None:
    created = statement(table(OWN, WORDS, OTHER))
    assert '"twice" bigint GENERATED ALWAYS AS ((id * 2)) STORED' in created
    assert """"words" tsvector GENERATED ALWAYS AS (to_tsvector('simple'::regconfig, note)) STORED""" in created
    assert '"made"' not in created, "its function may not exist at the sink"
    assert "twice" not in statement(table(OWN), rename={"id": "number"}), "its expression names another column"
    assert "words" not in statement(table(WORDS), mask={"note": {"null": True}}), "it would be of other values"
    masked = statement(table(OWN), mask={"twice": {"null": True}})
    assert "twice" not in masked, "the sink would compute what is masked"
    assert "computes twice" in str(why(table(OWN), mask={"twice": {"null": True}}))
    assert "words" in statement(table(WORDS, OTHER), rename={"id": "number"}, exclude=["made"])


def test_a_table_that_is_created_is_refused_for_what_the_sink_cannot_compute() -> None:
    assert why(table(OWN, WORDS)) is None
    assert "computes made" in str(why(table(OWN, OTHER)))
    assert "columns: {exclude: [twice]}" in str(why(table(OWN), kind="mysql"))
    assert "GENERATED" in str(why(table(OWN), kind="mysql"))
    assert "GENERATED" not in str(why(table(OWN), kind="delta")), "a lake computes nothing"
    assert why(table(OWN), kind="mysql", exclude=["twice"]) is None
    assert "computes twice" in str(why(table(OWN), rename={"id": "number"}))
    assert why(table(OWN, OTHER), exclude=["made"]) is None


@pytest.mark.parametrize("sink", [at_sink("twice"), at_sink()])
def test_a_table_of_the_sink_is_refused_unless_it_computes_the_column_too(sink: TableShape) -> None:
    assert "former" in str(why(table(OWN), sink))
    assert why(table(OWN), sink, exclude=["twice"]) is None
    assert why(table(OWN), sink, include=["id", "note"]) is None
    assert why(table(OWN), at_sink(generated=frozenset({"twice"}))) is None
    renamed = at_sink(generated=frozenset({"double"}))
    assert why(table(OWN), renamed, rename={"twice": "double"}) is None


def test_other_sources_and_sinks_have_the_values_in_each_event() -> None:
    assert why(mysql_table(mysql_column("id", "int"), mysql_column("twice", "int", generated="id * 2"))) is None
    assert why(table(OWN), TableShape("topic", {}, (), secondary_unique=False)) is None, "a topic has no columns"
