"""Rows are found by another key than the source's only where changes of a row come to it, and in their order."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.databases.postgresql.catalogue import PostgresDefinition, PostgresKey
from headgate.records.control import SpanPlan
from headgate.sinks.contract import SinkRefusedError, TableShape
from headgate.sources.preview import Seen
from headgate.tables import source_checks
from headgate.tables.keyed import keyed_definition
from headgate.tables.source_checks import check_source_tables

from .definitions import mysql_column, mysql_table, postgres_column, postgres_table

EVERYTHING = None


def unique(*columns: str, finds_rows: bool = True) -> PostgresKey:
    return PostgresKey(
        name="u", columns=columns, is_primary=False, finds_rows=finds_rows, is_valid=True, is_immediate=True,
        has_own_operators=False,
    )  # fmt: skip


def table(*keys: PostgresKey) -> PostgresDefinition:
    columns = (
        postgres_column("id", "bigint", is_nullable=False),
        postgres_column("mail", "text", kind="text", is_nullable=False),
        postgres_column("note", "text", kind="text"),
    )
    made = postgres_table(*columns, key=("id",))
    return msgspec.structs.replace(made, form=msgspec.structs.replace(made.form, keys=(*made.form.keys, *keys)))


class Case:
    """A table of a source, what its records and the sink have, and what the feed says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.logged = table(unique("mail")), EVERYTHING
        self.records: tuple[str, ...] = ("mail",)
        self.sink: tuple[str, ...] | None = None
        self.options: dict[str, Any] = {"key": ["mail"]}

        @contextmanager
        def opened(_target: object) -> Iterator[Any]:
            yield SimpleNamespace(
                has=lambda _: True, definition=lambda _: self.source, logged_columns=lambda _: self.logged
            )

        monkeypatch.setattr(source_checks, "open_catalogue", opened)

    def check(self, *known: str) -> None:
        spec = FeedSpec.model_validate(
            {"feed": "f", "source": {"topics": ["t.shop.a"], "database": {"dsn": "postgresql://ann@db/shop"}},
             "sink": {"type": "postgresql", "dsn": "dbname=x"}, "tables": {"shop.a": self.options}}
        )  # fmt: skip
        plan = SpanPlan("shop.a", "t.shop.a", "shop.a", {0: 0})
        sink = None if self.sink is None else TableShape("shop.a", {"mail": "text"}, self.sink, secondary_unique=False)
        seen = {"t.shop.a": Seen(key=self.records)}
        shapes = {} if sink is None else {"shop.a": sink}
        check_source_tables(spec, [plan], lambda _: None, seen, shapes, known=known)

    def refused(self, why: str) -> None:
        with pytest.raises(SinkRefusedError, match=why):
            self.check()


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(monkeypatch)


def test_a_key_that_records_have_and_that_identifies_rows_is_taken(case: Case) -> None:
    case.check()
    case.sink = ("mail",)
    case.check()
    case.records = ()  # no record yet
    case.check()
    case.options = {"key": ["mail", "id"]}
    case.records, case.sink = ("id", "mail"), None
    case.check()


def test_what_the_source_computes_is_judged_before_the_table_is_the_feeds(case: Case) -> None:
    computed = postgres_column("made", "text", generated="public.made(id)")
    form = msgspec.structs.replace(case.source.form, columns=(*case.source.form.columns, computed))
    case.source, case.sink = msgspec.structs.replace(case.source, form=form), ("mail",)
    case.refused("table shop.a: the source computes made")
    case.check("shop.a")


def test_records_of_another_key_are_refused_with_the_connectors_option(case: Case) -> None:
    case.records = ("id",)
    case.refused(
        r"tables\.shop\.a\.key: table shop\.a: the records of topic t\.shop\.a have the key \(id\), so a change of "
        r"\(mail\).* Set message\.key\.columns=.*:mail at the connector"
    )


def test_a_key_that_does_not_identify_a_row_is_refused(case: Case) -> None:
    case.source = table()
    case.refused(r"\(mail\) is not unique at the source")
    case.source = table(unique("mail", finds_rows=False))
    case.refused("is not unique at the source")
    case.source = table(unique("mail", "note"))
    case.refused("is not unique at the source")
    case.source, case.options, case.records = table(unique("note")), {"key": ["note"]}, ("note",)
    case.refused("key column note may be NULL at the source")
    case.options = {"key": ["male"]}
    case.refused("does not have the columns male. Its columns are id, mail, note")
    case.source, case.options, case.records = table(unique("mail")), {"key": ["mail"]}, ("mail",)
    case.options["columns"] = {"mask": {"mail": None}}
    case.refused("mail is part of the key and is masked")


def test_a_log_without_the_former_key_is_refused_with_the_statement(case: Case) -> None:
    case.logged = frozenset({"id"})
    case.refused(r"does not have the former mail of a row.* REPLICA IDENTITY FULL")
    case.logged = frozenset({"mail"})
    case.check()


def test_a_table_of_the_sink_with_another_key_is_refused(case: Case) -> None:
    case.sink = ("id",)
    case.refused(r"finds rows by \(id\), not by \(mail\)")
    case.options["columns"] = {"rename": {"mail": "email"}, "exclude": ["id"]}
    case.sink = ("email",)
    case.check()


def test_without_the_option_the_records_say_whether_rows_would_be_found(case: Case) -> None:
    case.options = {}
    case.refused(r"records of topic t\.shop\.a have the key \(mail\), and the source's primary key is \(id\).* "
                 r"key: \[mail\]")  # fmt: skip
    case.sink = ("mail",)
    case.check()
    case.logged = frozenset({"id"})
    case.refused("REPLICA IDENTITY FULL")
    case.sink = ("id",)
    case.check()  # each change is refused, with both keys
    case.records, case.sink = ("id",), None
    case.check()
    case.records = ("__dbz__key",)
    case.check()


@pytest.mark.parametrize(
    ("options", "source", "sink", "why"),
    [
        ({"key": []}, {}, {}, "at least one column"),
        ({"key": ["a", "a"]}, {}, {}, "each of them once"),
        ({"key": ["a"]}, {"database": None}, {}, "key needs source.database"),
        ({"key": ["a"], "keyless": "append"}, {}, {}, "contradicts keyless"),
        ({"key": ["a"]}, {}, {"type": "kafka", "dsn": "kafka://b:9092"}, "does not find rows by a key"),
    ],
)
def test_a_key_that_cannot_be_is_refused_when_the_feed_is_read(
    options: dict[str, Any], source: dict[str, Any], sink: dict[str, Any], why: str
) -> None:
    spec = {
        "feed": "f",
        "source": {"topics": ["t.shop.a"], "database": {"dsn": "postgresql://ann@db/shop"}} | source,
        "sink": sink or {"type": "postgresql", "dsn": "dbname=x"},
        "tables": {"shop.a": options},
    }
    with pytest.raises(FeedSpecError, match=why):
        parse_feed(msgspec.json.encode(spec).decode())


def test_a_feed_has_no_key_of_its_own() -> None:
    with pytest.raises(FeedSpecError, match="option of single tables"):
        parse_feed("{feed: f, key: [a], source: {topics: [t]}, sink: {type: postgresql, dsn: dbname=x}}")


def test_a_created_table_has_the_key() -> None:
    made = keyed_definition(table(unique("mail")), ("mail",))
    assert made.form.primary is not None
    assert made.form.primary.columns == ("mail",)
    assert [(key.name, key.columns) for key in made.form.keys[1:]] == [("source_primary_key", ("id",))]
    assert keyed_definition(table(), ("id",)) == table()
    assert keyed_definition(table(), None) == table()
    of_mysql = mysql_table(mysql_column("id", "int(11)"), mysql_column("mail", "varchar(9)"), key=("id",))
    found = keyed_definition(of_mysql, ("mail",)).form.primary
    assert found is not None
    assert found.columns == ("mail",)
