"""Definitions of tables as a catalogue gives them, for tests of what is made of them."""

import re

from headgate.databases.catalogue import Product, TableForm
from headgate.databases.mysql.catalogue import MysqlColumn, MysqlDefinition, MysqlKey
from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn, PostgresDefinition, PostgresKey

DATABASES = tuple(product for product in Product if product is not Product.LAKE)
"""Sinks that take statements."""

MOOD = EnumType("public", "mood", ("glad", "so, so"))


def postgres_column(
    name: str, declared: str, *, base: str | None = None, default: str | None = None, is_nullable: bool = True,
    generated: str | None = None, collation: str | None = None, kind: str = "", needs: tuple[str, ...] | None = None,
) -> PostgresColumn:  # fmt: skip
    return PostgresColumn(
        number=1, name=name, type=declared, kind=kind, is_nullable=is_nullable, default=default, generated=generated,
        is_identity=False, collation=collation, base=base or declared, is_enum=False, identity="", generation="",
        collation_number=0, is_deterministic=True, needs=needs,
    )  # fmt: skip


def postgres_table(*columns: PostgresColumn, key: tuple[str, ...] = (), table: str = "t", comment: str | None = None,
                   enums: dict[str, EnumType] | None = None, comments: dict[str, str] | None = None,
                   ) -> PostgresDefinition:  # fmt: skip
    keys = PostgresKey(
        name="k", columns=key, is_primary=True, finds_rows=True, is_valid=True, is_immediate=True,
        has_own_operators=False,
    )  # fmt: skip
    return PostgresDefinition(
        product=Product.POSTGRESQL, schema="shop", table=table, form=TableForm(columns, (keys,) if key else ()),
        enums=enums or {}, comment=comment, comments=comments or {},
    )  # fmt: skip


def mysql_column(
    name: str, declared: str, *, kind: str | None = None, default: str | None = None, is_nullable: bool = True,
    collation: str | None = None, generated: str | None = None,
) -> MysqlColumn:  # fmt: skip
    return MysqlColumn(
        number=1, name=name, type=declared, kind=kind or re.split("[( ]", declared)[0],
        is_nullable=is_nullable, default=default, generated=generated, is_identity=False, collation=collation,
        charset=collation.split("_")[0] if collation else None,
    )  # fmt: skip


def mysql_table(*columns: MysqlColumn, key: tuple[str, ...] = (), product: Product = Product.MARIADB,
                prefixed: tuple[str, ...] = (), comment: str | None = None,
                comments: dict[str, str] | None = None) -> MysqlDefinition:  # fmt: skip
    keys = MysqlKey(name="PRIMARY", columns=key, is_primary=True, finds_rows=not prefixed, prefixed=prefixed)
    return MysqlDefinition(
        product=product, schema="shop", table="t", form=TableForm(columns, (keys,) if key else ()), comment=comment,
        comments=comments or {},
    )  # fmt: skip
