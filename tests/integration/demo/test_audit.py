"""Load, comparison and audit on real databases: a true copy is clean, and each tampering by hand is found."""

from collections.abc import Iterator
from typing import NamedTuple

import psycopg
import pytest
from psycopg import Connection
from psycopg.sql import SQL, Identifier

from headgate.records.control import Epoch
from headgate.sinks.contract import FeedIdentity
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate_lab.demo.audit import FindingKind, audit
from headgate_lab.demo.audit_triggers import install_source_audit, install_target_audit
from headgate_lab.demo.compare import compare
from headgate_lab.demo.load import ShopLoad, WriteKind, Writer, fill, write_markers
from headgate_lab.demo.schema import TABLES, ShopTable, create_source, create_target
from support import build

pytestmark = pytest.mark.integration

CUSTOMERS = TABLES[0]


class Shop(NamedTuple):
    source: Connection
    target: Connection
    source_dsn: str
    target_dsn: str


@pytest.fixture
def shop(postgres_database: str) -> Iterator[Shop]:
    """A source (the given database) and a target beside it."""
    with psycopg.connect(postgres_database, autocommit=True) as source:
        name = Identifier(f"{source.info.dbname}_target")
        source.execute(SQL("CREATE DATABASE {}").format(name))
        target_dsn = psycopg.conninfo.make_conninfo(postgres_database, dbname=f"{source.info.dbname}_target")
        try:
            with psycopg.connect(target_dsn, autocommit=True) as target:
                create_source(source)
                install_source_audit(source)
                install_target_audit(target)
                create_target(target)
                yield Shop(source, target, postgres_database, target_dsn)
        finally:
            source.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def label(shop: Shop, table: ShopTable, epoch: str = "1.1") -> None:
    shop.target.execute(
        "SELECT set_config('application_name', %s, false)", [f"headgate shop {table.full_name} {epoch}"]
    )


def copy(shop: Shop) -> None:
    """What a correct feed would have done: every row once, under a label."""
    for table in TABLES:
        label(shop, table)
        out = SQL("COPY {} TO STDOUT").format(table.identifier)
        into = SQL("COPY {} FROM STDIN").format(table.identifier)
        with (
            shop.source.cursor() as reading,
            shop.target.cursor() as writing,
            reading.copy(out) as rows,
            writing.copy(into) as sink,
        ):
            for row in rows:
                sink.write(row)


def differences(shop: Shop) -> int:
    return sum(compare(shop.source, shop.target, table).differences for table in TABLES)


def test_what_the_writers_leave_behind_is_copied_and_compared_exactly(shop: Shop) -> None:
    keys = fill(shop.source, seed=7)
    load = ShopLoad(shop.source_dsn, seed=7, writers=2, rate=500, keys=keys)
    for writer in load.writers:
        for _ in range(150):
            writer.transact(shop.source)
    assert set(load.counts()) == set(WriteKind)
    markers = write_markers(shop.source, seed=7)
    assert set(markers) == {table.name for table in TABLES}
    copy(shop)
    compared = [compare(shop.source, shop.target, table) for table in TABLES]
    assert sum(one.differences for one in compared) == 0
    assert [one.rows for one in compared] == [
        (shop.source.execute(SQL("SELECT count(*) FROM {}").format(table.identifier)).fetchone() or (0,))[0]
        for table in TABLES
    ]
    report = audit(shop.source, shop.target)
    assert report.double_writes == 0
    assert report.changes == sum(one.rows for one in compared)


def test_running_writers_write_until_they_are_stopped(shop: Shop) -> None:
    load = ShopLoad(shop.source_dsn, seed=3, writers=2, rate=2_000, keys=fill(shop.source, seed=3))
    load.start()
    try:
        while load.counts().total() < 50:
            load.check()
    finally:
        load.stop()
    stopped_at = load.counts()
    assert stopped_at.total() >= 50
    load.stop()
    assert load.counts() == stopped_at


def test_two_writers_of_the_same_seed_do_the_same(shop: Shop) -> None:
    fill(shop.source, seed=1)
    states = []
    for _ in range(2):
        with shop.source.transaction(force_rollback=True):
            writer = Writer(shop.source_dsn, seed=4, number=0, writers=1, rate=1)
            for _ in range(40):
                writer.transact(shop.source)
            query = "SELECT md5(string_agg((to_jsonb(c) - 'version')::text, '|' ORDER BY id)) FROM shop.customers c"
            row = shop.source.execute(query).fetchone()
            states.append((row, writer.counts))
    assert states[0] == states[1]


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE shop.customers SET credit = credit + 0.01 WHERE id = 5",
        "UPDATE shop.customers SET born = NULL WHERE id = (SELECT min(id) FROM shop.customers WHERE born IS NOT NULL)",
        "UPDATE shop.customers SET joined = joined + interval '1 microsecond' WHERE id = 5",
        "DELETE FROM shop.customers WHERE id = 5",
        "UPDATE shop.customers SET id = 987654321 WHERE id = 5",
        """UPDATE shop.products SET "after" = ''
           WHERE sku = (SELECT min(sku) FROM shop.products WHERE "after" IS NULL)""",
        "UPDATE shop.products SET price = price * 1.0 WHERE sku = (SELECT min(sku) FROM shop.products)",
    ],
)
def test_the_comparison_can_fail(shop: Shop, tampering: str) -> None:
    fill(shop.source, seed=2)
    copy(shop)
    assert differences(shop) == 0
    changed = shop.target.execute(tampering).rowcount
    assert changed == 1
    assert differences(shop) == (2 if "SET id" in tampering else 1)


def test_a_double_write_by_hand_is_found(shop: Shop) -> None:
    fill(shop.source, seed=2)
    copy(shop)
    label(shop, CUSTOMERS, "2.1")
    shop.target.execute("UPDATE shop.customers SET name = name WHERE id = 5")
    assert differences(shop) == 0, "a double write need not leave a trace in the rows"
    assert set(audit(shop.source, shop.target).counts) == {FindingKind.VERSION_REPEATED}


def test_a_former_holder_is_found_even_before_its_successor_writes(shop: Shop) -> None:
    fill(shop.source, seed=2)
    copy(shop)
    the_sink_claims(shop, Epoch(1, 1))
    the_sink_claims(shop, Epoch(1, 2))
    shop.source.execute("UPDATE shop.customers SET name = 'late' WHERE id = 5")
    label(shop, CUSTOMERS, "1.1")
    shop.target.execute(
        "UPDATE shop.customers SET name = 'late', version = %s WHERE id = 5",
        shop.source.execute("SELECT version FROM shop.customers WHERE id = 5").fetchone(),
    )
    assert differences(shop) == 0
    report = audit(shop.source, shop.target)
    assert report.claims == 2
    assert set(report.counts) == {FindingKind.STALE_EPOCH}


def test_a_transaction_that_commits_after_its_successors_claim_is_found(shop: Shop) -> None:
    fill(shop.source, seed=2)
    copy(shop)
    the_sink_claims(shop, Epoch(1, 1))
    shop.source.execute("UPDATE shop.customers SET name = 'frozen' WHERE id = 5")
    version = shop.source.execute("SELECT version FROM shop.customers WHERE id = 5").fetchone()
    label = f"headgate shop {CUSTOMERS.full_name} 1.1"
    with psycopg.connect(shop.target_dsn, application_name=label) as frozen:
        frozen.execute("UPDATE shop.customers SET name = 'frozen', version = %s WHERE id = 5", version)
        the_sink_claims(shop, Epoch(1, 2))
    assert differences(shop) == 0
    assert set(audit(shop.source, shop.target).counts) == {FindingKind.STALE_EPOCH}


def test_no_session_gets_round_the_audit(shop: Shop) -> None:
    fill(shop.source, seed=2)
    copy(shop)
    shop.target.execute("SET session_replication_role = replica")
    shop.target.execute("UPDATE shop.customers SET name = name WHERE id = 5")
    assert audit(shop.source, shop.target).double_writes == 2
    shop.target.execute("ALTER TABLE shop.customers DISABLE TRIGGER note_change")
    shop.target.execute("UPDATE shop.customers SET version = 999999 WHERE id = 6")
    shop.target.execute("ALTER TABLE shop.customers ENABLE ALWAYS TRIGGER note_change")
    assert audit(shop.source, shop.target).counts[FindingKind.UNSEEN] == 1


def the_sink_claims(shop: Shop, epoch: Epoch) -> None:
    """As the real sink does it, creating its bookkeeping on the way."""
    sink = PostgresSink(RelationalSettings(dsn=shop.target_dsn))
    try:
        identity = FeedIdentity(cluster_id="c", feed_id="0-1", feed="shop")
        sink.claim(
            build.claim(
                identity=identity, table=CUSTOMERS.full_name, topic="shop.shop.customers", epoch=epoch, incarnation=1
            )
        )
    finally:
        sink.close()
