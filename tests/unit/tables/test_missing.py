"""Which tables of a feed are planned, and when a type that the feed chooses is refused."""

import pytest

from headgate.config.feed import FeedSpec
from headgate.databases.catalogue import Product
from headgate.records.control import SpanPlan
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.relational.rights import RightsMissingError
from headgate.tables.missing import MissingTables, check_created, check_types, plan_missing
from headgate.tables.mysql_rights import every_table
from headgate.tables.plan import Sink, target_tables
from unit.tables.definitions import postgres_column, postgres_table

ORDERS = SpanPlan(span="shop.orders", topic="t.shop.orders", table="shop.orders", start={0: 0})


def feed(**sink: object) -> FeedSpec:
    return FeedSpec.model_validate(
        {
            "feed": "f",
            "source": {"topics": ["t.shop.orders"], "database": {"dsn": "dbname=x"}},
            "sink": {"type": "postgresql", "dsn": "dbname=y"} | sink,
        }
    )


def never(_topic: str) -> str | None:
    raise AssertionError("nobody is asked")


def test_a_feed_that_does_not_create_tables_asks_no_database() -> None:
    assert plan_missing(feed(tables="existing"), [ORDERS], never) == MissingTables()


def test_a_type_of_a_table_that_the_feed_does_not_write_is_refused() -> None:
    check_types(feed(types={'shop."orders".total': "text"}), [ORDERS])
    with pytest.raises(SinkRefusedError, match=r"does not write table shop\.order\. Its tables are shop\.orders"):
        check_types(feed(types={"shop.order.total": "text"}), [ORDERS])


def test_a_refused_column_names_the_option_of_the_feed() -> None:
    table = postgres_table(postgres_column("n", "numeric"), table="orders")
    missing = MissingTables(tables=target_tables([table], Sink(Product.MARIADB), {}))
    with pytest.raises(SinkRefusedError, match=r'type for it: sink\.types: \{"shop\.orders\.n": "decimal\(65,30\)"\}'):
        check_created(missing)


def test_a_missing_right_is_named_with_its_grant() -> None:
    table = postgres_table(postgres_column("n", "integer"), table="orders")
    tables = target_tables([table], Sink(Product.POSTGRESQL), {})
    with pytest.raises(RightsMissingError, match="Run as an administrator: GRANT CREATE ON DATABASE shop TO ann"):
        check_created(MissingTables(tables=tables, grants=("GRANT CREATE ON DATABASE shop TO ann",)))


def test_a_database_is_named_exactly_where_grant_takes_a_pattern() -> None:
    assert every_table("a_b%`c") == r"`a\_b\%``c`.*"
