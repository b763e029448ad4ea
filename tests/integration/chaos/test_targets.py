"""The judge of a campaign on MariaDB: what the real sink wrote is clean, and each tampering by hand is found."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psycopg
import pytest
from psycopg import Connection

from fixtures.services import mariadb_connect, mariadb_execute
from headgate.databases.mysql.address import parse_address
from headgate.formats.change import Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange, SinkUnavailableError
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.mysql.connection import connect
from headgate.sinks.relational.mysql.progress import MysqlProgress
from headgate.sinks.relational.session import RelationalSettings
from headgate.sinks.row_copying import CopiedRows, CopyMark
from headgate_lab.chaos.capture import install_outbox
from headgate_lab.chaos.proxy import Link, Proxies
from headgate_lab.chaos.targets import mysql_audit, mysql_schema
from headgate_lab.chaos.targets.mysql import MysqlTarget, audit_shop, compare_shop, make_shop
from headgate_lab.chaos.targets.mysql_audit import AuditError, commit_times, read_entries, unnoted_commits
from headgate_lab.demo.audit import AuditEntry, FindingKind
from headgate_lab.demo.audit_triggers import install_source_audit
from headgate_lab.demo.load import Writer
from headgate_lab.demo.schema import TABLES, ShopColumn, ShopTable, create_source
from support import build

pytestmark = pytest.mark.integration

CUSTOMERS = TABLES[0]
FIRST, SECOND = Epoch(1, 1), Epoch(1, 2)
DATABASES = ("shop", "audit", "headgate")
PARTS = 3
"""Batches per table: a row is inserted in one and changed or deleted in another."""


class Shop:
    """A source whose history the real sink has applied to a target, under the FIRST epoch."""

    def __init__(self, source: Connection, source_dsn: str, target_url: str) -> None:
        self.source = source
        self.source_dsn = source_dsn
        self.target_url = target_url
        self.sink = MysqlSink(RelationalSettings(target_url))
        self.applied: Counter[str] = Counter()

    def claim(self, epoch: Epoch, table: ShopTable = CUSTOMERS) -> Claim:
        identity = FeedIdentity(cluster_id="c", feed_id="0-1", feed="shop")
        claim = build.claim(
            identity=identity, table=table.full_name, topic=f"shop.{table.full_name}", epoch=epoch, incarnation=1
        )
        self.sink.claim(claim)
        return claim

    def apply(self, claim: Claim, changes: Sequence[Change], expected: int | None = None) -> None:
        begin = self.applied[claim.table] if expected is None else expected
        with closing(self.sink.writer()) as applying:
            applying.apply(ChangeBatch(claim, {0: OffsetRange(begin, begin + len(changes))}, changes))
        self.applied[claim.table] = begin + len(changes)

    def apply_all(self) -> None:
        rows = self.source.execute('SELECT "table", key::text, row::text FROM capture.outbox ORDER BY id').fetchall()
        for table in TABLES:
            changes = [change(place, key, row) for place, (_, key, row) in enumerate(of(table, rows))]
            claim = self.claim(FIRST, table)
            size = len(changes) // PARTS + 1
            for begin in range(0, len(changes), size):
                self.apply(claim, changes[begin : begin + size])

    def write(self, statement: str, epoch: Epoch = FIRST) -> None:
        """By a session that says that it works for the customers under an epoch."""
        with closing(mariadb_connect(self.target_url)) as target, target.cursor() as cursor:
            cursor.execute(f"SET @audit_label = 'headgate shop {CUSTOMERS.full_name} {epoch}'")
            cursor.execute(statement)

    def renewed(self, name: str) -> tuple[int, int]:
        """A customer whom the source has changed: id, version."""
        row = self.source.execute(
            "UPDATE shop.customers SET name = %s WHERE id = (SELECT min(id) FROM shop.customers) RETURNING id, version",
            [name],
        ).fetchone()
        assert row is not None
        return row

    def differences(self) -> int:
        return sum(one.differences for one in compare_shop(self.source_dsn, self.target_url))

    def findings(self) -> dict[FindingKind, int]:
        return audit_shop(self.source_dsn, self.target_url).counts


def of(table: ShopTable, rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    return [row for row in rows if row[0] == table.full_name]


def change(offset: int, key: str, row: str | None) -> Change:
    values = None if row is None else msgspec.json.decode(row)
    operation = Operation.DELETE if row is None else Operation.UPSERT
    return Change(0, offset, operation, msgspec.json.decode(key), values, None, 0)


@pytest.fixture
def shop(postgres_database: str, mariadb_url: str) -> Iterator[Shop]:
    try:
        with psycopg.connect(postgres_database, autocommit=True) as source:
            create_source(source)
            install_source_audit(source)
            install_outbox(source)
            load = Writer(postgres_database, seed=2, number=0, writers=1, rate=1)
            for _ in range(150):
                load.transact(source)
            make_shop(mariadb_url)
            made = Shop(source, postgres_database, mariadb_url)
            made.apply_all()
            yield made
    finally:
        for database in DATABASES:
            mariadb_execute(mariadb_url, f"DROP DATABASE IF EXISTS {database}")


def test_what_the_sink_has_applied_is_equal_and_seen_once(shop: Shop) -> None:
    compared = compare_shop(shop.source_dsn, shop.target_url)
    audited = audit_shop(shop.source_dsn, shop.target_url)
    assert [one.differences for one in compared] == [0] * len(TABLES), compared
    rows = [shop.source.execute(f"SELECT count(*) FROM {table.full_name}").fetchone() for table in TABLES]
    assert [(one.rows,) for one in compared] == rows
    assert audited.counts == {}, audited.findings
    assert (audited.claims, audited.changes > sum(one.rows for one in compared)) == (len(TABLES), True)
    with closing(mariadb_connect(shop.target_url)) as target:
        times = commit_times(target)
    assert all(len(moments) == PARTS and moments == sorted(moments) for moments in times.values())


TAMPERINGS = (
    ("UPDATE shop.customers SET credit = credit + 0.01 WHERE id = {}", 1),
    ("UPDATE shop.customers SET name = CONCAT(name, ' ') WHERE id = {}", 1),
    ("UPDATE shop.customers SET joined = joined + INTERVAL 1 MICROSECOND WHERE id = {}", 1),
    ("UPDATE shop.customers SET active = IF(active IS NULL, 0, NULL) WHERE id = {}", 1),
    ("DELETE FROM shop.customers WHERE id = {}", 1),
    ("UPDATE shop.customers SET id = 987654321 WHERE id = {}", 2),
    ("UPDATE shop.products SET `after` = '' WHERE `after` IS NULL ORDER BY sku LIMIT 1", 1),
    ("UPDATE shop.products SET rating = rating + 1e-7 WHERE rating IS NOT NULL ORDER BY sku DESC LIMIT 1", 1),
    ("UPDATE shop.orders SET payload = JSON_SET(payload, '$.n', 0) WHERE payload <> '' ORDER BY id LIMIT 1", 1),
    ("UPDATE shop.order_lines SET price = NULL WHERE price IS NOT NULL ORDER BY order_no LIMIT 1", 1),
    ("UPDATE shop.stock SET label = CONCAT(label, x'00') WHERE label IS NOT NULL ORDER BY sku LIMIT 1", 1),
    ("ALTER TABLE shop.order_lines DROP COLUMN comment", 1),
)
"""What is done to the target by hand, and how many rows (or columns) it makes different."""


def test_the_comparison_can_fail(shop: Shop) -> None:
    ids = [row[0] for row in shop.source.execute("SELECT id FROM shop.customers ORDER BY id").fetchall()]
    found = [shop.differences()]
    for tampering, _ in TAMPERINGS:
        mariadb_execute(shop.target_url, tampering.format(ids.pop()) if "{}" in tampering else tampering)
        found.append(shop.differences())
    assert [later - earlier for earlier, later in pairwise(found)] == [more for _, more in TAMPERINGS]
    assert found[0] == 0


def test_a_double_write_is_found_though_it_changes_nothing(shop: Shop) -> None:
    shop.write("UPDATE shop.customers SET name = name ORDER BY id LIMIT 1")
    assert shop.findings() == {FindingKind.VERSION_REPEATED: 1}
    one = "SELECT * FROM shop.customers ORDER BY id LIMIT 1"
    shop.write(f"INSERT INTO shop.customers {one} ON DUPLICATE KEY UPDATE name = VALUES(name)")
    assert shop.findings() == {FindingKind.VERSION_REPEATED: 2}
    assert shop.differences() == 0


def test_a_former_holder_is_found_even_before_its_successor_writes(shop: Shop) -> None:
    shop.claim(SECOND)
    number, version = shop.renewed("late")
    shop.write(f"UPDATE shop.customers SET name = 'late', version = {version} WHERE id = {number}")
    assert shop.differences() == 0
    assert shop.findings() == {FindingKind.STALE_EPOCH: 1}


def test_a_transaction_that_commits_after_its_successors_claim_is_found(shop: Shop) -> None:
    number, version = shop.renewed("frozen")
    with closing(mariadb_connect(shop.target_url)) as frozen, frozen.cursor() as cursor:
        cursor.execute(f"SET @audit_label = 'headgate shop {CUSTOMERS.full_name} {FIRST}'")
        cursor.execute("START TRANSACTION")
        cursor.execute(f"UPDATE shop.customers SET name = 'frozen', version = {version} WHERE id = {number}")
        shop.claim(SECOND)
        cursor.execute("COMMIT")
    assert shop.differences() == 0
    assert shop.findings() == {FindingKind.STALE_EPOCH: 1}


def test_rows_that_were_copied_are_seen_as_such(shop: Shop) -> None:
    claim = shop.claim(FIRST)
    rows = shop.source.execute(
        "SELECT DISTINCT ON (key) o.row::text FROM capture.outbox o "
        "JOIN shop.customers c ON (o.key->>'id')::bigint = c.id "
        "WHERE o.row IS NOT NULL AND o.\"table\" = 'shop.customers' ORDER BY key, o.id DESC LIMIT 5"
    ).fetchall()
    upserts = [msgspec.json.decode(row) for (row,) in rows]
    before = len(list(entries(shop)))
    with closing(shop.sink.writer()) as writer:
        for request in ("r1", "r2"):
            for row in upserts:
                row["name"] = f"copied by {request}"
            writer.copy(
                CopiedRows(
                    claim=claim,
                    positions=shop.sink.claim(claim),
                    key=("id",),
                    upserts=upserts,
                    deletes=[],
                    mark=CopyMark(request=request, upto=("9",)),
                )
            )
    assert [one.is_copied for one in list(entries(shop))[before:]] == [True] * 10
    assert shop.findings() == {}


def test_the_commit_of_a_batch_that_is_tried_in_parts_is_noted(shop: Shop) -> None:
    """MariaDB forgets what a transaction wrote before it was rolled back to a savepoint."""
    claim = shop.claim(FIRST)
    shop.renewed("good")
    last = shop.source.execute("SELECT key::text, row::text FROM capture.outbox ORDER BY id DESC LIMIT 1").fetchone()
    assert last is not None
    begin = shop.applied[CUSTOMERS.full_name]
    good, bad = change(begin, *last), change(begin + 1, *last)
    assert bad.row is not None
    bad.row["credit"] = "much"
    with closing(shop.sink.writer()) as writer:
        applied = writer.apply(ChangeBatch(claim, {0: OffsetRange(begin, begin + 2)}, [good, bad]))
    assert applied.positions == {0: begin + 1}, "it was tried in parts"
    with closing(mariadb_connect(shop.target_url)) as target:
        assert unnoted_commits(target)[1] == 0
    assert shop.findings() == {}


def test_the_commit_of_what_is_kept_beside_the_rows_is_noted(shop: Shop) -> None:
    """MariaDB forgets the same when a key exists, as ON DUPLICATE KEY UPDATE finds it."""
    claim = shop.claim(FIRST)
    positions = shop.sink.claim(claim)
    for _ in range(2):
        shop.sink.change_known_columns(claim, positions, lambda known: known.with_applied(["extra"]))
    with closing(mariadb_connect(shop.target_url)) as target:
        assert unnoted_commits(target)[1] == 0
    assert shop.findings() == {}


def entries(shop: Shop) -> Iterator[AuditEntry]:
    with closing(mariadb_connect(shop.target_url)) as target:
        yield from read_entries(target)


def test_a_writer_that_does_not_ask_the_fence_gives_itself_away(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink broken on purpose: whom a session works for is what it says itself, not what the row says."""

    def unfenced(self: MysqlProgress, claim: Claim, table: str, _ranges: object) -> None:
        holder = f"{self.session.prove_life()}|0-1|{claim.epoch}"
        self.session.execute("UPDATE headgate.progress SET holder = %s WHERE table_name = %s", (holder, table))

    former = shop.claim(FIRST)
    shop.claim(SECOND)
    shop.renewed("unfenced")
    last = shop.source.execute("SELECT key::text, row::text FROM capture.outbox ORDER BY id DESC LIMIT 1").fetchone()
    assert last is not None
    monkeypatch.setattr(MysqlProgress, "advance", unfenced)
    shop.apply(former, [change(shop.applied[CUSTOMERS.full_name], *last)])
    assert shop.differences() == 0
    assert shop.findings() == {FindingKind.STALE_EPOCH: 1}


def test_whoever_writes_what_was_sealed_is_found(shop: Shop) -> None:
    shop.sink.seal(shop.claim(FIRST))
    number, version = shop.renewed("sealed")
    shop.write(f"UPDATE shop.customers SET name = 'sealed', version = {version} WHERE id = {number}")
    assert shop.findings() == {FindingKind.SEALED_EPOCH: 1}


def test_nobody_gets_round_the_audit(shop: Shop) -> None:
    number, version = shop.renewed("nobody")
    statement = f"UPDATE shop.customers SET name = 'nobody', version = {version} WHERE id = {number}"
    mariadb_execute(shop.target_url, statement)
    assert shop.findings() == {FindingKind.UNLABELLED: 1}
    mariadb_execute(shop.target_url, "DROP TRIGGER shop.note_update_customers")
    shop.write("UPDATE shop.customers SET version = 999999 ORDER BY id DESC LIMIT 1")
    assert shop.findings() == {FindingKind.UNLABELLED: 1, FindingKind.UNSEEN: 1}


def test_each_service_comes_to_the_one_address_by_a_link_of_its_own(
    mariadb_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = parse_address(mariadb_url)
    target = MysqlTarget(tmp_path / "data")
    target._server = SimpleNamespace(port=server.port, password=server.password)  # type: ignore[assignment]
    password = tmp_path / "password"
    password.write_text(server.password or "")
    dsn = target.sink.dsn.replace("/shop?", "/?").replace("headgate@", "root@")
    address = RelationalSettings(dsn, password_file=password)
    with closing(Proxies()) as proxies:
        homes = [tmp_path / name for name in ("agent-1", "agent-2")]
        for number, home in enumerate(homes, 1):
            home.mkdir()
            way = target.way(proxies, number, home)
            assert way.variables == {}
            if number == 1:
                proxies.change(way.proxy, Link.CUT)
        monkeypatch.chdir(homes[1])
        with connect(address) as session:
            assert session.execute("SELECT 1") == [(1,)]
        monkeypatch.chdir(homes[0])
        with pytest.raises(SinkUnavailableError):
            connect(address)


@pytest.mark.parametrize(("unnoted", "is_taken"), [(None, True), (1, True), (2, False), (100, False)])
def test_a_record_whose_commits_are_not_noted_is_no_record(
    monkeypatch: pytest.MonkeyPatch, unnoted: int | None, *, is_taken: bool
) -> None:
    noted = (1, "1.1", "shop.customers", "CLAIM", "[]", None, None, 0)
    answers = iter([[(100, unnoted)], [noted]])
    monkeypatch.setattr(mysql_audit, "_stream", lambda *_: iter(next(answers)))
    if is_taken:
        assert [one.id for one in read_entries(None)] == [1]  # type: ignore[arg-type]
        return
    with pytest.raises(AuditError, match="transaction_registry does not know"):
        list(read_entries(None))  # type: ignore[arg-type]


def test_a_type_that_nobody_has_thought_of_is_refused() -> None:
    column = ShopColumn("where", "point", lambda *_: None)
    with pytest.raises(KeyError, match="point"):
        mysql_schema._type(ShopTable("t", ("id",), (column,), 0), column)
