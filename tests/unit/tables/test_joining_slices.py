"""Sources that join when the table that they share with others exists already."""

import re
from contextlib import nullcontext

import pytest
from msgspec.structs import replace

from headgate.config.feed import parse_feed
from headgate.databases.catalogue import Product
from headgate.databases.mysql.catalogue import MysqlColumn
from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn, PostgresDefinition
from headgate.databases.postgresql.types import parse_type as parse_postgresql
from headgate.formats.column_schema import ColumnSchema, EventSchema
from headgate.records.control import SpanPlan
from headgate.records.slices import Slice
from headgate.sinks.misfit import MisfitError
from headgate.tables import joining_slices
from headgate.tables.alteration import AlterationContext
from headgate.tables.from_events import definition_from
from headgate.tables.joining_slices import doubts, why_misfit
from headgate.tables.mapped import LeftOut, Mapped
from headgate.tables.plan import Sink
from headgate.tables.sliced import sliced_definition, unsliced_definition
from headgate.tables.statement import Definition, outcomes_of
from support.every_type import GEOMETRIES, MARIADB, POSTGRESQL, POSTGRESQL_ONLY
from unit.tables.definitions import MOOD, mysql_column, mysql_table, postgres_column, postgres_table

PART = Slice("shop.orders", "tenant", "7")
ID = postgres_column("id", "bigint", is_nullable=False)
TENANT = postgres_column("tenant", "text", is_nullable=False)
TIMESTAMP = "io.debezium.time.MicroTimestamp"
KNOWN = AlterationContext(sink=Sink(Product.POSTGRESQL))


def source(*columns: PostgresColumn, key: tuple[str, ...] = ("id",)) -> Definition:
    return sliced_definition(postgres_table(ID, *columns, key=key), PART)


def sink(*columns: PostgresColumn, key: tuple[str, ...] = ("tenant", "id")) -> Definition:
    return postgres_table(ID, *columns, TENANT, key=key)


DOMAIN_OF_ARRAY = postgres_column("tags", "shop.tags", base="text[]")
COMPUTED = replace(postgres_column("region", "text"), number=-1)
WHAT, AT = postgres_column("what", "integer"), postgres_column("at", "date")


@pytest.mark.parametrize(
    ("mine", "there", "why"),
    [
        (source(WHAT), sink(WHAT), None),
        (source(WHAT), sink(WHAT, key=("id", "tenant")), None),
        (source(WHAT), sink(WHAT, AT), None),
        (source(WHAT), sink(postgres_column("what", "bigint")), None),
        (source(DOMAIN_OF_ARRAY), sink(DOMAIN_OF_ARRAY), None),
        (source(postgres_column("tags", "text[]")), sink(DOMAIN_OF_ARRAY), None),
        (source(DOMAIN_OF_ARRAY), sink(postgres_column("tags", "text")), "column tags is shop.tags at the source"),
        (source(COMPUTED), sink(postgres_column("region", "character varying(8)", is_nullable=False)), None),
        (source(WHAT, AT), sink(WHAT), "the table does not have its columns at (date at the source)"),
        (
            source(WHAT),
            sink(postgres_column("what", "smallint")),
            "column what is integer at the source, and here smallint, which does not hold each of its values",
        ),
        (
            source(postgres_column("what", "character varying(9)")),
            sink(postgres_column("what", "shop.short", base="character varying(5)")),
            "column what is character varying(9) at the source, and here shop.short",
        ),
        (
            source(WHAT),
            sink(WHAT, postgres_column("must", "integer", is_nullable=False)),
            "columns must of the table are NOT NULL, and the source may have no value",
        ),
    ],
)  # fmt: skip
def test_a_source_that_joins_is_compared_with_the_table(mine: Definition, there: Definition, why: str | None) -> None:
    found = why_misfit(mine, there, PART, KNOWN)
    assert found is None if why is None else why in str(found)


def test_types_that_are_not_known_to_fit_are_doubtful() -> None:
    there = sink(postgres_column("what", "date"))
    assert why_misfit(source(WHAT), there, PART, KNOWN) is None
    assert doubts(source(WHAT), there, PART, KNOWN) == "column what is integer at the source, and here date"
    assert doubts(source(WHAT), sink(WHAT), PART, KNOWN) is None


@pytest.mark.parametrize(
    ("mine", "theirs", "is_refused"),
    [
        ("character varying(1000)", "varchar(1000)", False),
        ("character varying(1000)", "varchar(999)", True),
        ("inet", "varchar(45)", False),
        ("interval", "varchar(100)", False),
        ("text", "varchar(1000)", True),
    ],
)
def test_a_postgresqls_column_fits_into_one_as_narrow_as_it_is(mine: str, theirs: str, *, is_refused: bool) -> None:
    there = mysql_table(
        mysql_column("id", "bigint", is_nullable=False), mysql_column("what", theirs),
        mysql_column("tenant", "varchar(40)", is_nullable=False), key=("tenant", "id"),
    )  # fmt: skip
    known = AlterationContext(sink=Sink(Product.MARIADB))
    found = why_misfit(source(postgres_column("what", mine)), there, PART, known)
    assert (found is not None) is is_refused, found


@pytest.mark.parametrize(
    ("mine", "theirs", "is_refused"),
    [
        ("year", "smallint", False),
        ("tinytext", "character varying(255)", False),
        ("varchar(20)", "character varying(20)", False),
        ("varchar(20)", "character varying(19)", True),
        ("int", "smallint", True),
    ],
)
def test_a_mariadbs_column_fits_into_one_as_narrow_as_it_is(mine: str, theirs: str, *, is_refused: bool) -> None:
    here = mysql_table(mysql_column("id", "bigint", is_nullable=False), mysql_column("what", mine), key=("id",))
    found = why_misfit(sliced_definition(here, PART), sink(postgres_column("what", theirs)), PART, KNOWN)
    assert (found is not None) is is_refused, found


def test_a_column_that_is_left_out_on_creation_may_lack() -> None:
    twice = postgres_column("twice", "integer", generated="(what * 2)")
    assert why_misfit(source(WHAT, twice), sink(WHAT), PART, KNOWN) is None


@pytest.mark.parametrize(
    ("mine", "theirs", "is_refused"),
    [
        (ColumnSchema(name="what", meaning="string", is_optional=True), "character varying(9)", False),
        (ColumnSchema(name="what", meaning="int64", is_optional=True), "integer", False),
        (ColumnSchema(name="what", meaning="string", is_optional=True, declared="TEXT"), "character varying(9)", False),
        (
            ColumnSchema(name="what", meaning="string", is_optional=True, declared="VARCHAR", length=10),
            "character varying(9)",
            True,
        ),
        (
            ColumnSchema(name="what", meaning=TIMESTAMP, is_optional=True, declared="TIMESTAMP", length=3),
            "timestamp(3) without time zone",
            False,
        ),
        (ColumnSchema(name="what", meaning="int64", is_optional=True, declared="INT8"), "integer", True),
    ],
)
def test_what_events_do_not_tell_is_not_compared(mine: ColumnSchema, theirs: str, *, is_refused: bool) -> None:
    key = ColumnSchema(name="id", meaning="int64", is_optional=False, declared="INT8" if mine.declared else None)
    described = definition_from(EventSchema(connector="postgresql", columns=(key, mine), key=("id",)), ("shop", "t"))
    assert described is not None
    found = why_misfit(sliced_definition(described, PART), sink(postgres_column("what", theirs)), PART, KNOWN)
    assert (found is not None) is is_refused


def shown(type_: str) -> str:
    """A type of ``sql`` as a server prints it."""
    return re.sub(" CHARACTER SET.*", "", type_)


@pytest.mark.parametrize("sink_product", [Product.POSTGRESQL, Product.MARIADB])
@pytest.mark.parametrize("type_", [each.declared for each in (*POSTGRESQL, *POSTGRESQL_ONLY)])
def test_a_table_that_was_created_fits_its_own_source_of_postgresql(type_: str, sink_product: Product) -> None:
    printed = getattr(parse_postgresql(type_), "sql", type_)
    column = postgres_column("what", printed, base="character varying(5)" if type_ == "short" else printed)
    enums = {"what": MOOD} if type_ == "mood" else {}
    fits_itself(postgres_table(ID, column, key=("id",), enums=enums), sink_product)


@pytest.mark.parametrize("sink_product", [Product.POSTGRESQL, Product.MARIADB])
@pytest.mark.parametrize("type_", [each.declared.removesuffix(" NULL") for each in (*MARIADB, *GEOMETRIES)])
def test_a_table_that_was_created_fits_its_own_source_of_mariadb(type_: str, sink_product: Product) -> None:
    key = mysql_column("id", "bigint(20)", is_nullable=False)
    fits_itself(mysql_table(key, mysql_column("what", type_), key=("id",)), sink_product)


@pytest.mark.parametrize(
    ("sink_product", "chosen", "printed"),
    [
        (Product.POSTGRESQL, "numeric(10)", "numeric(10,0)"),
        (Product.POSTGRESQL, "char", "character(1)"),
        (Product.POSTGRESQL, "bit", "bit(1)"),
        (Product.POSTGRESQL, "timestamp", "timestamp without time zone"),
        (Product.MARIADB, "decimal(10)", "decimal(10,0)"),
        (Product.MARIADB, "decimal", "decimal(10,0)"),
        (Product.MARIADB, "numeric(8)", "decimal(8,0)"),
        (Product.MARIADB, "char", "char(1)"),
        (Product.MARIADB, "bit", "bit(1)"),
        (Product.MARIADB, "binary", "binary(1)"),
        (Product.MARIADB, "datetime(0)", "datetime"),
    ],
)
def test_a_chosen_type_fits_as_a_server_prints_it(sink_product: Product, chosen: str, printed: str) -> None:
    fits_itself(postgres_table(ID, WHAT, key=("id",)), sink_product, {"what": chosen}, printed)


def test_an_array_with_a_collation_is_an_array() -> None:
    words = postgres_column("what", "text[]", collation='pg_catalog."C"')
    fits_itself(postgres_table(ID, words, key=("id",)), Product.POSTGRESQL, printed="text[]")


def fits_itself(
    table: Definition, product: Product, chosen: dict[str, str] | None = None, printed: str | None = None
) -> None:
    """Also with a column that is left out."""
    known = AlterationContext(sink=Sink(product), types=chosen or {})
    outcome = outcomes_of(table, product, chosen or {})["what"]
    source = sliced_definition(table, PART)
    enums = {"what": MOOD} if isinstance(table, PostgresDefinition) and table.enums else {}
    type_ = printed or (shown(outcome.type.sql) if isinstance(outcome, Mapped) else "")
    if product is Product.POSTGRESQL:
        made = [] if isinstance(outcome, LeftOut) else [postgres_column("what", type_)]
        there: Definition = postgres_table(ID, *made, key=("id",), enums=enums)
    else:
        key = mysql_column("id", "bigint(20)", is_nullable=False)
        there = mysql_table(key, *([] if isinstance(outcome, LeftOut) else [mysql_column("what", type_)]), key=("id",))
    there = sliced_definition(there, PART)
    if isinstance(outcome, Mapped):
        assert doubts(source, there, PART, known) is None
    if not isinstance(outcome, LeftOut) or not outcome.arrives:
        assert why_misfit(source, there, PART, known) is None


def test_keys_are_compared_without_the_discriminator_in_any_order() -> None:
    line = postgres_column("line", "integer", is_nullable=False)
    two = source(line, key=("id", "line"))
    assert why_misfit(two, sink(line, key=("line", "tenant", "id")), PART, KNOWN) is None
    assert "primary key is (id, line), the sink's (id)" in str(why_misfit(two, sink(line), PART, KNOWN))


def test_a_source_of_another_kind_is_compared_by_the_types_that_it_gets() -> None:
    def joins(what: MysqlColumn) -> str | None:
        key = mysql_column("id", "bigint(20)", is_nullable=False)
        return why_misfit(sliced_definition(mysql_table(key, what, key=("id",)), PART), sink(WHAT), PART, KNOWN)

    assert joins(mysql_column("what", "int(11)")) is None
    assert "created as bigint, and here integer, which does not hold" in str(joins(mysql_column("what", "bigint(20)")))


def test_a_column_whose_type_the_feed_chooses_has_that_type() -> None:
    chosen = AlterationContext(sink=Sink(Product.POSTGRESQL), types={"what": "smallint"})
    there = sink(postgres_column("what", "smallint"))
    assert why_misfit(source(WHAT), there, PART, KNOWN) is not None
    assert why_misfit(source(WHAT), there, PART, chosen) is None


@pytest.mark.parametrize(
    ("theirs", "why"),
    [
        (("glad", "so"), None),
        (("so", "glad", "sad"), None),
        (("so",), "created as"),
        (("glad", "sad"), "which does not hold each of its values"),
    ],
)
def test_enums_of_two_schemas_are_compared_by_their_labels(theirs: tuple[str, ...], why: str | None) -> None:
    def table(enum: EnumType, *more: PostgresColumn, key: tuple[str, ...]) -> Definition:
        column = postgres_column("feels", f"{enum.schema}.mood")
        return postgres_table(ID, column, *more, key=key, enums={"feels": enum})

    joining = sliced_definition(table(EnumType("two", "mood", ("glad", "so")), key=("id",)), PART)
    there = table(EnumType("one", "mood", theirs), TENANT, key=("tenant", "id"))
    found = why_misfit(joining, there, PART, KNOWN)
    assert found is None if why is None else why in str(found)


def test_a_slices_column_is_taken_out_as_it_was_put_in() -> None:
    for table in (postgres_table(ID, WHAT, key=("id",)), mysql_table(mysql_column("id", "int(11)"), key=("id",))):
        assert unsliced_definition(sliced_definition(table, PART), PART) == table


@pytest.mark.parametrize(
    ("mine", "theirs", "is_fit"),
    [
        ("int(11)", "int(10)", True),
        ("int(11)", "int(10) unsigned", False),
        ("enum('a','b')", "enum('a','b','c')", True),
        ("enum('a','b')", "enum('a','c')", False),
    ],
)
def test_what_a_type_of_mysql_holds_is_compared_and_not_how_it_is_shown(
    mine: str, theirs: str, *, is_fit: bool
) -> None:
    key = mysql_column("id", "bigint(20)", is_nullable=False)
    tenant = mysql_column("tenant", "varchar(64)", is_nullable=False)
    there = mysql_table(key, mysql_column("what", theirs), tenant, key=("tenant", "id"))
    joining = sliced_definition(mysql_table(key, mysql_column("what", mine), key=("id",)), PART)
    assert (why_misfit(joining, there, PART, AlterationContext(sink=Sink(Product.MARIADB))) is None) is is_fit


def test_a_source_in_postgresql_fits_into_the_table_that_a_mariadb_shows_with_widths() -> None:
    known = AlterationContext(sink=Sink(Product.MARIADB))
    made = (mysql_column("id", "bigint(20)", is_nullable=False), mysql_column("what", "int(11)"))
    there = mysql_table(*made, mysql_column("tenant", "varchar(64)", is_nullable=False), key=("tenant", "id"))
    assert why_misfit(source(WHAT), there, PART, known) is None
    short = mysql_table(*made[:1], mysql_column("what", "smallint(6)"), key=("id",))
    assert "which does not hold each of its values" in str(why_misfit(source(WHAT), short, PART, known))


class AtSink:
    """A sink that has one table."""

    def __init__(self, table: Definition) -> None:
        self.table = table

    def definition(self, _name: str) -> Definition:
        return self.table

    def place(self, _name: str) -> tuple[str, str]:
        return "shop", "t"

    def sink(self) -> Sink:
        return Sink(Product.POSTGRESQL)

    def shown(self, name: str) -> str:
        return name


def test_a_misfit_is_an_error_and_a_doubt_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_feed(
        "feed: f\nsource: {topic_pattern: 't.*', database: {dsn: 'postgresql://u@h/d'}}\n"
        "sink: {type: postgresql, dsn: dbname=x}\n"
        "tables: {'*.orders': {into: {table: shop.orders, discriminator: {tenant: '{schema}'}}}}"
    )
    plan = SpanPlan(PART.text, "t.a.orders", PART.text, {0: 0})

    def warnings(what: PostgresColumn) -> tuple[str, ...]:
        monkeypatch.setattr(joining_slices, "open_catalogue", lambda _target: nullcontext(AtSink(sink(what))))
        monkeypatch.setattr(joining_slices, "source_definitions", lambda *_: ({PART.text: source(WHAT)}, []))
        return joining_slices.check_joining(spec, [plan], lambda _: None, lambda _: None)

    assert warnings(WHAT) == ()
    (doubt,) = warnings(postgres_column("what", "date"))
    assert doubt == (
        "warning: topic t.a.orders may not fit into table shop.orders, which the sink has already: column what is "
        "integer at the source, and here date. Compare the two types"
    )
    with pytest.raises(
        MisfitError, match=r"topic t\.a\.orders does not fit into table shop\.orders, which the sink has"
    ):
        warnings(postgres_column("what", "smallint"))


def test_each_source_is_compared_by_its_own_types(monkeypatch: pytest.MonkeyPatch) -> None:
    into = "into: {table: shop.orders, discriminator: {tenant: '{schema}'}}"
    spec = parse_feed(
        "feed: f\nsource: {topic_pattern: 't.*', database: {dsn: 'postgresql://u@h/d'}}\n"
        "sink: {type: postgresql, dsn: dbname=x}\n"
        f"tables: {{a.orders: {{{into}, types: {{what: smallint}}}}, b.orders: {{{into}}}}}"
    )
    plans = [
        SpanPlan(name, f"t.{name[-1]}.orders", name, {0: 0}) for name in (f"{PART.table}@tenant={x}" for x in "ab")
    ]
    there = sink(postgres_column("what", "smallint"))
    monkeypatch.setattr(joining_slices, "open_catalogue", lambda _target: nullcontext(AtSink(there)))
    monkeypatch.setattr(joining_slices, "source_definitions", lambda *_: ({p.table: source(WHAT) for p in plans}, []))
    with pytest.raises(MisfitError) as refused:
        joining_slices.check_joining(spec, plans, lambda _: None, lambda _: None)
    assert "topic t.b.orders does not fit" in str(refused.value)
    assert "topic t.a.orders" not in str(refused.value)
