"""Columns are added at real sinks as real catalogues have them, whoever else adds them and whoever is killed."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fixtures.services import mariadb_execute
from fixtures.spare_databases import SpareDatabases
from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.databases.address import Target
from headgate.formats.column_schema import ColumnSchema, EventSchema
from headgate.records.control import SpanPlan
from headgate.sinks.contract import SinkError, SinkRefusedError
from headgate.sinks.known_columns import ColumnNumbers, KnownColumns
from headgate.tables.catalogues import open_catalogue
from headgate.tables.evolution import (
    NotAlteredError,
    ResyncNeededError,
    add_columns,
    fit_columns,
    numbers_now,
    restore_columns,
    shaped_numbers,
    source_numbers,
)
from headgate.tables.missing import check_alterable, no_schema
from headgate.tables.proposed_columns import proposed_columns
from support.waiting import eventually

pytestmark = pytest.mark.integration

Execute = Callable[[str], list[tuple[Any, ...]]]

WAITING: Final = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'headgate tables' AND wait_event_type = 'Lock'
"""


class Side:
    """A database with a table ``t`` in it; ``name`` is what feeds call the table."""

    def __init__(self, address: str, name: str, execute: Execute) -> None:
        self.address, self.name, self.execute = address, name, execute
        self.kind = "mysql" if address.startswith("mysql://") else "postgresql"
        execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY)")

    def columns(self) -> dict[str, str]:
        with open_catalogue(Target(self.address)) as catalogue:
            definition = catalogue.definition(self.name)
            assert definition is not None
            return {column.name: column.type for column in definition.form.columns}


def said(_topic: str) -> str | None:
    return None


class Pair:
    def __init__(self, source: Side, sink: Side) -> None:
        self.source, self.sink = source, sink
        self.plan = SpanPlan(span="t", topic=f"x.{source.name}", table=sink.name, start={0: 0})

    def feed(self, **options: Any) -> FeedSpec:
        sink = {"type": self.sink.kind, "dsn": self.sink.address, "tables": "evolve"} | options
        source = {"topics": [self.plan.topic], "database": {"dsn": self.source.address}}
        return FeedSpec.model_validate({"feed": "f", "source": source, "sink": sink})

    def add(self, *columns: str, **options: Any) -> tuple[str, ...]:
        return add_columns(self.feed(**options), self.plan, dict.fromkeys(columns, ""), said)


@pytest.fixture
def postgresql(spare_databases: SpareDatabases) -> Iterator[Callable[[], Side]]:
    """Makes databases of a PostgreSQL."""
    with ExitStack() as stack:

        def make() -> Side:
            parameters = stack.enter_context(spare_databases.database())
            address = "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**parameters)
            session = stack.enter_context(psycopg.connect(address, autocommit=True))

            def execute(statement: str) -> list[tuple[Any, ...]]:
                cursor = session.execute(statement.encode())
                return cursor.fetchall() if cursor.description else []

            return Side(address, "public.t", execute)

        yield make


@pytest.fixture
def mariadb(mariadb_url: str) -> Iterator[Callable[[], Side]]:
    """Makes databases of a MariaDB."""
    names: list[str] = []

    def make() -> Side:
        names.append(f"evolve_{uuid.uuid4().hex[:8]}")
        mariadb_execute(mariadb_url, f"CREATE DATABASE {names[-1]}")
        address = urlsplit(mariadb_url)._replace(path=f"/{names[-1]}").geturl()
        return Side(address, f"{names[-1]}.t", lambda statement: mariadb_execute(address, statement))

    yield make
    for name in names:
        mariadb_execute(mariadb_url, f"DROP DATABASE {name}")


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Pair:
    """``request.param``: the kinds of source and sink."""
    source, sink = request.param
    return Pair(request.getfixturevalue(source)(), request.getfixturevalue(sink)())


def pairs(*params: tuple[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pair", params, indirect=True, ids=map("-".join, params))


PG, MY = "postgresql", "mariadb"
ALL: Final = ((PG, PG), (PG, MY), (MY, PG), (MY, MY))


@pairs(*ALL)
def test_a_column_is_added_with_the_sources_type_and_older_rows_have_what_they_have_there(pair: Pair) -> None:
    for side in (pair.source, pair.sink):
        side.execute(f"INSERT INTO {side.name} VALUES (1)")
    pair.source.execute(
        f"ALTER TABLE {pair.source.name} ADD COLUMN note varchar(40), ADD COLUMN amount numeric(12,2) DEFAULT 1.5 "
        "NOT NULL, ADD COLUMN word varchar(9) DEFAULT 'it''s'"
    )
    assert pair.add("note", "amount", "word") == ("note", "amount", "word")
    found = pair.sink.execute(f"SELECT note, amount, word FROM {pair.sink.name}")
    assert found == pair.source.execute(f"SELECT note, amount, word FROM {pair.source.name}")
    exact = pair.sink.columns()
    assert exact["note"] == ("character varying(40)" if pair.sink.kind == PG else "varchar(40)")
    pair.sink.execute(f"INSERT INTO {pair.sink.name} (id, amount) VALUES (2, NULL)")  # NULL is taken
    assert pair.add("note", "amount", "word") == ()


@pairs(*ALL)
def test_a_user_who_alters_the_table_gets_the_statement_with_the_type(pair: Pair) -> None:
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN c varchar(7) DEFAULT 'old' NOT NULL")
    spec = pair.feed(tables="create")
    text = proposed_columns(spec, pair.plan, {"c": "string"}, said, no_schema, KnownColumns())
    assert "Run at the sink: ALTER TABLE" in text
    _, _, statement = text.partition("Run at the sink: ")
    pair.sink.execute(statement.partition(";")[0])
    at_sink, at_source = (
        each.columns()["c"].replace("character varying", "varchar") for each in (pair.sink, pair.source)
    )
    assert at_sink == at_source
    assert proposed_columns(spec, pair.plan, {"c": "string"}, said, no_schema, KnownColumns()) == ""


@pairs((PG, PG), (MY, MY))
def test_a_user_is_warned_that_the_column_may_be_one_that_is_left_out(pair: Pair) -> None:
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN ssn int")
    spec = pair.feed(tables="create").model_copy(update={"columns": ColumnOptions(exclude=("ssn",))})
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN other int")
    text = proposed_columns(spec, pair.plan, {"other": ""}, said, no_schema, KnownColumns())
    assert ("ALTER TABLE" in text, "ssn" in text) == (True, False)
    pair.source.execute(f"ALTER TABLE {pair.source.name} RENAME COLUMN ssn TO digits")
    text = proposed_columns(spec, pair.plan, {"digits": ""}, said, no_schema, KnownColumns())
    assert "if it is the new name of ssn, which columns.exclude leaves out" in text


@pairs((PG, MY))
def test_a_column_that_was_dropped_at_the_sink_is_not_proposed_alone(pair: Pair) -> None:
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN c varchar(7)")
    text = proposed_columns(
        pair.feed(tables="create"), pair.plan, {"c": "string"}, said, no_schema, KnownColumns(applied=("c", "id"))
    )
    assert ("headgate table resync" in text, "ALTER TABLE" in text) == (True, False)


@pairs((PG, PG), (PG, MY))
def test_a_user_gets_the_statement_from_the_schema_of_events(pair: Pair) -> None:
    columns = (ColumnSchema(name="id", meaning="int64", is_optional=False),)
    columns += (ColumnSchema(name="c", meaning="io.debezium.time.Date", is_optional=True),)
    schema = EventSchema(connector="postgresql", columns=columns, key=("id",))
    spec = pair.feed(tables="existing")
    spec = spec.model_copy(update={"source": spec.source.model_copy(update={"database": None})})
    text = proposed_columns(
        spec, pair.plan, {"c": "io.debezium.time.Date"}, said, lambda _topic: schema, KnownColumns()
    )
    _, _, statement = text.partition("Run at the sink: ")
    pair.sink.execute(statement.partition(";")[0])
    assert pair.sink.columns()["c"] == "date"
    assert proposed_columns(spec, pair.plan, {"c": ""}, said, no_schema, KnownColumns()) == ""


@pairs(*ALL)
def test_only_columns_that_changes_have_are_added(pair: Pair) -> None:
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN a int, ADD COLUMN b int")
    assert pair.add("b") == ("b",)
    assert list(pair.sink.columns()) == ["id", "b"]


@pairs(*ALL)
def test_a_column_that_is_gone_again_is_an_error_that_names_the_statement(pair: Pair) -> None:
    with pytest.raises(
        NotAlteredError, match=r"does not have it any more.* Run ALTER TABLE .*ADD COLUMN .gone."
    ) as told:
        pair.add("gone")
    assert (told.value.code, told.value.retryable) == ("sink_column_missing", True)
    pair.sink.execute(f"ALTER TABLE {pair.sink.name} ADD COLUMN gone int")
    assert pair.add("gone") == ()


@pairs((PG, PG), (MY, MY))
def test_a_column_that_was_renamed_is_an_error_that_names_the_statement(pair: Pair) -> None:
    for side in (pair.source, pair.sink):
        side.execute(f"ALTER TABLE {side.name} ADD COLUMN old int")
    pair.source.execute(f"ALTER TABLE {pair.source.name} RENAME COLUMN old TO new")
    with pytest.raises(
        NotAlteredError, match=r"If it was renamed, run ALTER TABLE .* RENAME COLUMN .old. TO .new.\."
    ) as told:
        pair.add("new")
    pair.sink.execute(str(told.value).partition("If it was renamed, run ")[2].partition(". If it is new")[0])
    assert list(pair.sink.columns()) == ["id", "new"]


@pairs((PG, PG), (PG, MY))
def test_postgresql_tells_what_older_rows_have_though_the_default_is_another_one(pair: Pair) -> None:
    for side in (pair.source, pair.sink):
        side.execute(f"INSERT INTO {side.name} VALUES (1)")
    for number, type_ in enumerate(("int DEFAULT 7 NOT NULL", "boolean DEFAULT true", "text DEFAULT 'ä'")):
        pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN c{number} {type_}")
        pair.source.execute(f"ALTER TABLE {pair.source.name} ALTER COLUMN c{number} DROP DEFAULT")
    if pair.sink.kind == PG:
        assert pair.add("c0", "c1", "c2") == ("c0", "c1", "c2")
        assert pair.sink.execute(f"SELECT c0, c1, c2 FROM {pair.sink.name}") == [(7, True, "ä")]
        return
    assert pair.add("c0", "c1") == ("c0", "c1")
    assert pair.sink.execute(f"SELECT c0, c1 FROM {pair.sink.name}") == [(7, 1)]
    with pytest.raises(NotAlteredError, match="not a constant that the sink's column can have"):
        pair.add("c2")  # a longtext


@pairs((PG, PG))
def test_a_default_that_was_set_later_is_not_that_of_older_rows(pair: Pair) -> None:
    pair.sink.execute("INSERT INTO public.t VALUES (1)")
    pair.source.execute("ALTER TABLE t ADD COLUMN a int; ALTER TABLE t ALTER COLUMN a SET DEFAULT 5")
    with pytest.raises(NotAlteredError, match="does not show whether those rows have it"):
        pair.add("a")
    pair.sink.execute("DELETE FROM public.t")
    assert pair.add("a") == ("a",)


@pairs((PG, PG))
def test_an_enum_comes_before_its_column(pair: Pair) -> None:
    pair.source.execute("CREATE TYPE public.mood AS ENUM ('glad', 'so, so'); ALTER TABLE t ADD COLUMN feels mood")
    assert pair.add("feels") == ("feels",)
    assert pair.sink.columns()["feels"] == "public.mood"


@pairs(*ALL)
def test_of_many_that_add_a_column_one_does(pair: Pair) -> None:
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN a int, ADD COLUMN b int")
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(pair.add, *columns) for columns in [("a", "b"), ("b",), ("a",), ("b", "a")]]
    assert [each.exception() for each in done] == [None] * 4
    assert sorted(pair.sink.columns()) == ["a", "b", "id"]


@pairs((PG, PG))
def test_whoever_is_killed_while_it_waits_has_added_nothing(pair: Pair) -> None:
    pair.source.execute("CREATE TYPE public.mood AS ENUM ('glad'); ALTER TABLE t ADD COLUMN feels mood")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(pair.sink.address) as other:
        other.execute("LOCK TABLE public.t IN SHARE MODE")
        found = pool.submit(pair.add, "feels")
        ((pid,),) = eventually(lambda: pair.sink.execute(WAITING), "it waits for the table")
        pair.sink.execute(f"SELECT pg_terminate_backend({pid})")
        with pytest.raises(SinkError):
            found.result()
    assert pair.sink.execute("SELECT to_regtype('public.mood')") == [(None,)]
    assert pair.add("feels") == ("feels",)


@pairs((PG, PG))
def test_a_right_that_is_missing_at_postgresql_is_named_before_and_when_it_is_needed(pair: Pair) -> None:
    role = f"clerk_{uuid.uuid4().hex[:8]}"
    pair.source.execute("ALTER TABLE t ADD COLUMN a int")
    pair.sink.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'pen'; GRANT SELECT, INSERT, UPDATE, DELETE ON t TO {role}")
    spec = pair.feed(dsn=make_conninfo(pair.sink.address, user=role, password="pen"))
    try:
        statement = f"ALTER TABLE public.t OWNER TO {role}"
        with pytest.raises(SinkRefusedError, match=f"Run as an administrator: {statement}$"):
            check_alterable(spec, [pair.plan])
        with pytest.raises(SinkRefusedError, match=f"Run as an administrator: {statement}$"):
            add_columns(spec, pair.plan, {"a": ""}, said)
        pair.sink.execute(f"GRANT CREATE ON SCHEMA public TO {role}; {statement}")
        check_alterable(spec, [pair.plan])
        assert add_columns(spec, pair.plan, {"a": ""}, said) == ("a",)
    finally:
        pair.sink.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


@pairs((MY, MY))
def test_a_right_that_is_missing_at_mariadb_is_named_before_and_when_it_is_needed(pair: Pair) -> None:
    user, parts = f"clerk_{uuid.uuid4().hex[:8]}", urlsplit(pair.sink.address)
    database = parts.path.strip("/")
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN a int")
    pair.sink.execute(f"CREATE USER {user} IDENTIFIED BY 'pen'")
    pair.sink.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.* TO {user}")
    spec = pair.feed(dsn=f"mysql://{user}:pen@{parts.hostname}:{parts.port}/{database}")
    try:
        with pytest.raises(SinkRefusedError, match="no right to alter tables") as refused:
            check_alterable(spec, [pair.plan])
        with pytest.raises(SinkRefusedError, match="no right to alter table"):
            add_columns(spec, pair.plan, {"a": ""}, said)
        grant = str(refused.value).partition("Run as an administrator: ")[2]
        assert grant.startswith("GRANT ALTER ON ")
        pair.sink.execute(grant)
        check_alterable(spec, [pair.plan])
        assert add_columns(spec, pair.plan, {"a": ""}, said) == ("a",)
    finally:
        pair.sink.execute(f"DROP USER {user}")


def fit(pair: Pair) -> tuple[str, ...]:
    return fit_columns(pair.feed(), pair.plan, said).statements


@pairs(*ALL)
def test_types_are_widened_and_not_null_is_dropped_as_at_the_source(pair: Pair) -> None:
    former = "word varchar(5) NOT NULL, ADD COLUMN n int NOT NULL, ADD COLUMN amount decimal(5,2), ADD COLUMN gone int"
    pair.sink.execute(f"ALTER TABLE {pair.sink.name} ADD COLUMN {former} NOT NULL, ADD COLUMN narrow bigint")
    pair.sink.execute(f"INSERT INTO {pair.sink.name} VALUES (1, 'a', 1, 1.5, 1, 1)")
    now = "word varchar(50), ADD COLUMN n bigint NOT NULL, ADD COLUMN amount decimal(9,3), ADD COLUMN narrow int"
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN {now}")
    assert fit(pair)
    assert not fit(pair), "once"
    with open_catalogue(Target(pair.sink.address)) as catalogue:
        definition = catalogue.definition(pair.sink.name)
        assert definition is not None
    found = {column.name: (column.type, column.is_nullable) for column in definition.form.columns}
    is_postgresql = pair.sink.kind == PG
    number = "bigint" if is_postgresql else "bigint(20)"
    assert found == {
        "id": (number, False),
        "word": ("character varying(50)" if is_postgresql else "varchar(50)", True),
        "n": (number, False),
        "amount": ("numeric(9,3)" if is_postgresql else "decimal(9,3)", True),
        "gone": ("integer" if is_postgresql else "int(11)", True),
        "narrow": (number, True),
    }
    assert pair.sink.execute(f"SELECT word, n, amount, gone FROM {pair.sink.name}") == [("a", 1, Decimal("1.500"), 1)]


@pairs((PG, PG))
def test_an_enum_gets_the_labels_that_the_sources_has_got(pair: Pair) -> None:
    for side in (pair.source, pair.sink):
        side.execute("CREATE TYPE public.mood AS ENUM ('glad'); ALTER TABLE t ADD COLUMN feels mood")
    pair.source.execute("ALTER TYPE mood ADD VALUE 'sad' BEFORE 'glad'")
    pair.source.execute("ALTER TYPE mood ADD VALUE 'so, so'")
    assert len(fit(pair)) == 2
    assert pair.sink.execute("SELECT enum_range(NULL::mood)::text") == [('{sad,glad,"so, so"}',)]


@pairs((PG, PG), (MY, PG))
def test_what_hangs_on_a_column_is_named_and_does_not_hold_up_the_others(pair: Pair) -> None:
    pair.sink.execute("ALTER TABLE t ADD COLUMN a int, ADD COLUMN b int, ADD COLUMN c int, ADD COLUMN d int NOT NULL")
    pair.sink.execute(
        "CREATE VIEW seen AS SELECT a FROM t; ALTER TABLE t ADD COLUMN g int GENERATED ALWAYS AS (b) STORED"
    )
    columns = "ADD COLUMN a bigint, ADD COLUMN b bigint, ADD COLUMN c bigint, ADD COLUMN d int"
    pair.source.execute(f"ALTER TABLE {pair.source.name} {columns}")
    found = fit_columns(pair.feed(), pair.plan, said)
    types = pair.sink.columns()
    assert (types["a"], types["b"], types["c"]) == ("integer", "integer", "bigint")
    assert len(found.statements) == 2, "that of c, and that of d, which the source's rows may lack"
    a, b = (next(each for each in found.refusals if f'ALTER COLUMN "{name}"' in each) for name in "ab")
    assert "was refused by the sink, so run it yourself: altering" in a
    assert "view" in a
    assert "generated column" in b
    again = fit_columns(pair.feed(), pair.plan, said)
    assert (again.statements, len(again.refusals)) == ((), 2)

    pair.sink.execute("DROP VIEW seen; ALTER TABLE t DROP COLUMN g")
    assert fit_columns(pair.feed(), pair.plan, said).statements
    types = pair.sink.columns()
    assert (types["a"], types["b"]) == ("bigint", "bigint")


@pairs((MY, MY))
def test_what_else_mariadb_knows_of_a_column_stays(pair: Pair) -> None:
    rest = "NOT NULL DEFAULT 'x' COMMENT 'it''s NOT NULL' CHECK (a <> '')"
    pair.sink.execute(f"ALTER TABLE {pair.sink.name} ADD COLUMN a enum('x','y') {rest}")
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN a enum('x','y','z')")
    ((_, before),) = pair.sink.execute(f"SHOW CREATE TABLE {pair.sink.name}")
    assert fit(pair)
    ((_, after),) = pair.sink.execute(f"SHOW CREATE TABLE {pair.sink.name}")
    assert after == before.replace("enum('x','y')", "enum('x','y','z')").replace(
        " NOT NULL DEFAULT 'x'", " DEFAULT 'x'"
    )


@pairs(*ALL)
def test_a_column_that_was_dropped_at_the_sink_comes_back_only_before_a_copy(pair: Pair) -> None:
    for side in (pair.source, pair.sink):
        side.execute(f"ALTER TABLE {side.name} ADD COLUMN note varchar(40)")
        side.execute(f"INSERT INTO {side.name} VALUES (1, 'a')")
    pair.sink.execute(f"ALTER TABLE {pair.sink.name} DROP COLUMN note")
    kept = KnownColumns(applied=("gone", "id", "note"))
    with pytest.raises(
        ResyncNeededError, match=r"column note .*dropped at the sink.* `headgate table resync f "
    ) as told:
        add_columns(pair.feed(), pair.plan, {"note": ""}, said, kept)
    assert (told.value.code, told.value.retryable) == ("resync_needed", True)
    assert list(pair.sink.columns()) == ["id"]
    announced: list[Sequence[str]] = []
    assert restore_columns(pair.feed(), pair.plan, said, kept, announced.append) == ("note",)
    assert announced == [("note",)]
    assert pair.sink.execute(f"SELECT id, note FROM {pair.sink.name}") == [(1, None)]
    assert restore_columns(pair.feed(), pair.plan, said, kept, announced.append) == ()


@pairs((PG, PG), (PG, MY))
def test_a_column_that_postgresql_proves_to_be_renamed_is_renamed_once(pair: Pair) -> None:
    for side in (pair.source, pair.sink):
        side.execute(f"ALTER TABLE {side.name} ADD COLUMN old int")
        side.execute(f"INSERT INTO {side.name} VALUES (1, 5)")
    kept = KnownColumns(applied=("id", "old"), numbers=numbers_of(pair.feed(), pair))
    pair.source.execute(f"ALTER TABLE {pair.source.name} RENAME COLUMN old TO new")
    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(add_columns, pair.feed(), pair.plan, {"new": ""}, said, kept) for _ in range(3)]
    assert [each.exception() for each in done] == [None] * 3
    assert pair.sink.execute(f"SELECT id, new FROM {pair.sink.name}") == [(1, 5)]
    assert list(pair.sink.columns()) == ["id", "new"]


@pairs((PG, PG), (MY, PG), (MY, MY))
def test_a_column_that_is_left_out_does_not_come_by_a_new_name(pair: Pair) -> None:
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN ssn int")
    feed = pair.feed().model_copy(update={"columns": ColumnOptions(exclude=("ssn",))})
    kept = KnownColumns().with_numbers(numbers_of(feed, pair))
    pair.source.execute(f"ALTER TABLE {pair.source.name} RENAME COLUMN ssn TO digits")
    with pytest.raises(NotAlteredError, match=r"the new name of ssn, which columns\.exclude leaves out"):
        add_columns(feed, pair.plan, {"digits": ""}, said, kept)
    assert list(pair.sink.columns()) == ["id"]

    kept = kept.with_numbers(numbers_of(feed, pair))
    with pytest.raises(NotAlteredError, match="the new name of ssn"):
        add_columns(feed, pair.plan, {"digits": ""}, said, kept)
    taken_in = feed.model_copy(update={"columns": ColumnOptions()})
    assert add_columns(taken_in, pair.plan, {"digits": ""}, said, kept)
    assert list(pair.sink.columns()) == ["id", "digits"]


def numbers_of(feed: FeedSpec, pair: Pair) -> ColumnNumbers:
    found = source_numbers(feed, pair.plan, said)
    assert found is not None
    return shaped_numbers(found, feed.columns)


@pairs((PG, PG), (MY, PG))
def test_postgresql_alone_tells_that_a_column_was_dropped_and_added_again(pair: Pair) -> None:
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN a int")
    numbers = numbers_of(pair.feed(), pair)
    pair.source.execute(f"ALTER TABLE {pair.source.name} DROP COLUMN a, ADD COLUMN a int")
    now = numbers_of(pair.feed(), pair)
    if pair.source.kind != PG:
        assert now == numbers
        assert not now.columns
        return
    assert KnownColumns(applied=("a", "id"), numbers=numbers).replaced(now) == ["a"]


@pairs((PG, PG))
def test_the_numbers_of_open_tables_show_names_that_are_others_by_now(pair: Pair) -> None:
    table, feed = pair.source.name, pair.feed()
    pair.source.execute(f"ALTER TABLE {table} ADD COLUMN a int, ADD COLUMN b int, ADD COLUMN c int")
    opened = numbers_of(feed, pair)
    assert numbers_now(feed, {opened.table, "1"}) == {opened.table: opened}
    pair.source.execute(f"ALTER TABLE {table} RENAME COLUMN a TO x")
    pair.source.execute(f"ALTER TABLE {table} RENAME COLUMN b TO a")
    pair.source.execute(f"ALTER TABLE {table} RENAME COLUMN x TO b")
    pair.source.execute(f"ALTER TABLE {table} DROP COLUMN c, ADD COLUMN c int")
    before, now = opened.columns, numbers_now(feed, [opened.table])[opened.table].columns
    assert (now["a"], now["b"]) == (before["b"], before["a"])
    assert now["c"] > max(before.values())
    pair.source.execute(f"DROP TABLE {table}")
    assert numbers_now(feed, [opened.table]) == {}


@pairs((PG, PG), (MY, PG))
def test_types_of_open_tables_are_read_with_their_numbers(pair: Pair) -> None:
    table, feed = pair.source.name, pair.feed()
    pair.source.execute(f"ALTER TABLE {table} ADD COLUMN a decimal(6,2)")
    before = numbers_of(feed, pair)
    pair.source.execute(
        f"ALTER TABLE {table} " + ("ALTER a TYPE decimal(6,1)" if pair.source.kind == PG else "MODIFY a decimal(6,1)")
    )
    now = numbers_now(feed, [before.table])[before.table]
    name = "numeric" if pair.source.kind == PG else "decimal"
    kept = KnownColumns(applied=("a", "id")).with_numbers(before)
    assert kept.retyped(now) == {"a": (f"{name}(6,2)", f"{name}(6,1)")}
    assert KnownColumns(applied=("id",)).with_numbers(before).retyped(now) == {}, "the sink never had it"
    assert kept.with_numbers(now).retyped(now) == {}


TYPES: Final = {
    "numeric(6,2)": "numeric(8,4)",
    "timestamp(0)": "timestamp(6)",
    "time(3)": "time(6)",
    "decimal(6,2)": "decimal(8,4)",
    "datetime": "datetime(6)",
}


@pairs(*ALL)
@pytest.mark.parametrize(("narrow", "wide"), TYPES.items())
def test_more_digits_at_the_source_are_more_digits_at_the_sink(pair: Pair, narrow: str, wide: str) -> None:
    if ("datetime" in narrow) != (pair.source.kind == "mysql") and "time" in narrow and narrow != "time(3)":
        pytest.skip("a type of the other database")
    if (narrow, pair.source.kind, pair.sink.kind) == ("time(3)", "mysql", PG):
        pytest.skip("it becomes an interval, which keeps microseconds")
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN a {narrow}")
    assert pair.add("a") == ("a",)
    before = pair.sink.columns()["a"]
    pair.source.execute(
        f"ALTER TABLE {pair.source.name} "
        + (f"ALTER COLUMN a TYPE {wide}" if pair.source.kind == PG else f"MODIFY COLUMN a {wide}")
    )
    assert fit(pair)
    assert pair.sink.columns()["a"] != before
    assert not fit(pair)


@pairs((PG, PG), (MY, MY))
def test_a_decimal_whose_digits_have_moved_is_named_with_its_statement(pair: Pair) -> None:
    pair.source.execute(f"ALTER TABLE {pair.source.name} ADD COLUMN a decimal(6,4)")
    pair.sink.execute(f"ALTER TABLE {pair.sink.name} ADD COLUMN a decimal(6,2)")
    found = fit_columns(pair.feed(), pair.plan, said)
    assert found.statements == ()
    verb = "ALTER COLUMN" if pair.sink.kind == PG else "MODIFY COLUMN"
    assert any(f"{verb} " in reason and "(6,4)" in reason for reason in found.refusals), found.refusals
