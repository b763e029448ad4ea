"""The table that several sources are written to, made of the first one's definition, and the others that do not fit."""

import pytest

from headgate.databases.catalogue import Product
from headgate.records.slices import slice_of
from headgate.tables.keyed import keyed_definition
from headgate.tables.plan import Sink, target_tables
from headgate.tables.sliced import sliced_definition, why_other_table, why_taken
from headgate.tables.statement import CreateTable, Definition, table_statement

from .definitions import DATABASES, mysql_column, mysql_table, postgres_column, postgres_table

PART = slice_of("public.orders@tenant=1")


def postgres(**columns: str) -> Definition:
    found = [postgres_column("id", "bigint", is_nullable=False)]
    found += [postgres_column(name, type_) for name, type_ in columns.items()]
    return postgres_table(*found, key=("id",))


def mysql() -> Definition:
    return mysql_table(
        mysql_column("id", "bigint(20)", is_nullable=False), mysql_column("what", "int(11)"), key=("id",)
    )


@pytest.mark.parametrize("sink", DATABASES)
@pytest.mark.parametrize("source", [postgres(what="integer"), mysql()], ids=["postgresql", "mysql"])
def test_the_discriminator_is_first_in_the_table_and_its_key(source: Definition, sink: Product) -> None:
    made = table_statement(sliced_definition(source, PART), sink)
    assert isinstance(made, CreateTable)
    assert made.key == ("tenant", "id")
    assert list(made.columns) == ["tenant", "id", "what"]
    assert made.types["tenant"] == ("character varying" if sink is Product.POSTGRESQL else "varchar")
    statement = " ".join(made.statements[0].split())
    column = statement[statement.index("(") : statement.index(", ")]
    assert "(64)" in column
    assert column.endswith("NOT NULL")
    assert sink is Product.POSTGRESQL or "_bin" in column


@pytest.mark.parametrize("sink", DATABASES)
@pytest.mark.parametrize("source", [postgres(what="integer"), mysql()], ids=["postgresql", "mysql"])
def test_a_discriminator_that_is_a_number_is_an_integer_in_the_table(source: Definition, sink: Product) -> None:
    made = table_statement(sliced_definition(source, PART, is_integer=True), sink)
    assert isinstance(made, CreateTable)
    assert (made.key, made.types["tenant"]) == (("tenant", "id"), made.types["id"])


def test_every_unique_key_gets_the_discriminator() -> None:
    source = postgres_table(
        postgres_column("id", "bigint", is_nullable=False),
        postgres_column("mail", "text", is_nullable=False),
        key=("id",),
    )
    sliced = sliced_definition(keyed_definition(source, ("mail",)), PART)
    made = target_tables([sliced], Sink(Product.POSTGRESQL), {}, unique_keys={(sliced.schema, sliced.table)})
    assert [" ".join(table.statements[0].split()).rpartition("NOT NULL, ")[2] for table in made.created] == [
        'PRIMARY KEY ("tenant", "mail"), UNIQUE ("tenant", "id") )'
    ]


def test_a_whole_table_stays_as_it_is() -> None:
    source = postgres(what="integer")
    assert sliced_definition(source, None) is source
    assert why_taken(postgres(tenant="text"), None) is None


def test_a_source_with_the_discriminators_column_is_refused() -> None:
    assert "the source's table has a column tenant itself" in (why_taken(postgres(tenant="text"), PART) or "")
    assert why_taken(postgres(tenants="text"), PART) is None


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (postgres(what="integer"), None),
        (postgres(), None),
        (postgres(what="integer", more="text"), "columns that the other table does not have (more)"),
        (postgres(what="bigint"), "its column what is of type bigint, in the other table of type integer"),
        (postgres_table(postgres_column("id", "bigint"), key=("id",)), "its column id may be NULL"),
        (
            postgres_table(
                postgres_column("id", "bigint", is_nullable=False), postgres_column("what", "integer"), key=("what",)
            ),
            "its key is (what), and that of the other table (id)",
        ),
        (postgres_table(postgres_column("what", "integer"), key=("what",)), "lacks columns that are NOT NULL"),
    ],
)
def test_a_source_that_does_not_fit_is_told_why(other: Definition, why: str | None) -> None:
    found = why_other_table(postgres(what="integer"), other, ())
    assert (found is None) if why is None else (why in (found or ""))


def test_a_type_that_is_chosen_is_not_compared() -> None:
    assert why_other_table(postgres(what="integer"), postgres(what="bigint"), {"what"}) is None
