"""MariaDB tables as they come: rights, engines, keys, collations, unique values, foreign keys, altered columns."""

import json
from collections.abc import Iterator

import msgspec
import pytest

from fixtures.services import mariadb_execute
from headgate.formats import maxwell_json
from headgate.formats.change import ABSENT, Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.contract import (
    ChangeBatch,
    ConstraintViolatedError,
    OffsetRange,
    SinkRefusedError,
    ValueRefusedError,
)
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.session import RelationalSettings
from integration.sinks.tables_contract import TableBench, TablesContract, drop, named, put
from support import build

pytestmark = pytest.mark.integration


class Database(TableBench):
    widening = "MODIFY v int"

    def __init__(self, url: str, **settings: object) -> None:
        self.url = url
        self.name = url.rsplit("/", 1)[1]
        self.sink = MysqlSink(RelationalSettings(url, **settings))
        self.writer = self.sink.writer()

    def execute(self, statement: str) -> list[tuple]:
        return mariadb_execute(self.url, statement)

    rows = execute


@pytest.fixture
def database(mariadb_database: str) -> Iterator[Database]:
    database = Database(mariadb_database)
    yield database
    database.writer.close()


@pytest.fixture(params=["load", "insert"])
def either(mariadb_database: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    """Both ways of staging rows."""
    database = Database(mariadb_database)
    database.sink = MysqlSink(RelationalSettings(f"{mariadb_database}?bulk={request.param}"))
    database.writer = database.sink.writer()
    yield database
    database.writer.close()


class TestMysqlTables(TablesContract):
    """Every relational sink's contract."""


# --- what check refuses, and what it says to do ---


@pytest.mark.parametrize(
    ("ddl", "table", "says"),
    [
        (
            "CREATE TABLE orders (id int PRIMARY KEY)",
            "order",
            r"does not exist.*(there is test_\w+\.orders).*Create it",
        ),
        ("CREATE TABLE t (id int)", "t", "no primary key"),
        ("CREATE VIEW t AS SELECT 1 AS id", "t", "not a table at the sink but a view"),
        ("CREATE TABLE t (id int PRIMARY KEY) ENGINE=MyISAM", "t", r"no transactions.*ENGINE = InnoDB"),
        ("CREATE TABLE t (id text, PRIMARY KEY (id(5)))", "t", "covers only a prefix of id"),
    ],
)
def test_a_table_that_cannot_be_written_is_refused_with_the_way_out(
    database: Database, ddl: str, table: str, says: str
) -> None:
    database.execute(ddl)
    with pytest.raises(SinkRefusedError, match=says):
        database.sink.check([f"{database.name}.{table}"])


def test_missing_rights_are_named_at_once_as_statements_that_can_be_run(database: Database) -> None:
    name = database.name
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("CREATE OR REPLACE USER clerk IDENTIFIED BY 'pen'")
    try:
        server = database.url.rsplit("@", 1)[1].split("/")[0]
        clerk = MysqlSink(RelationalSettings(f"mysql://clerk:pen@{server}"))
        with pytest.raises(SinkRefusedError, match="no right to keep progress") as refused:
            clerk.check([f"{name}.t"])
        for grant in str(refused.value).partition("Run as an administrator: ")[2].split("; "):
            database.execute(grant)
        clerk.check([f"{name}.t"])
        database.execute(f"REVOKE INSERT, UPDATE, DELETE ON {name}.t FROM clerk")
        grant = f"GRANT INSERT, UPDATE, DELETE ON `{name}`.`t` TO 'clerk'@'%'"
        with pytest.raises(
            SinkRefusedError, match=rf"no right to INSERT, UPDATE, DELETE on table {name}\.t\. .*{grant}"
        ):
            clerk.check([f"{name}.t"])
        database.execute(grant)
        assert clerk.check([f"{name}.t"])[f"{name}.t"].key == ("id",)
        claim = build.claim(table=f"{name}.t")
        clerk.claim(claim)
        writer = clerk.writer()
        writer.apply(ChangeBatch(claim, {0: OffsetRange(0, 1)}, [put(0, id=1, v="a")]))
        writer.close()
        assert database.rows("SELECT id, v FROM t") == [(1, "a")]
        database.execute(f"REVOKE SELECT, INSERT, UPDATE, DELETE ON {name}.t FROM clerk")
        with pytest.raises(SinkRefusedError):
            clerk.check([f"{name}.t"])
        closing = build.claim(identity=claim.identity, table=claim.table, topic=claim.topic, epoch=Epoch(1, 2))
        assert (clerk.claim(closing), clerk.seal(closing)) == ({0: 1}, {0: 1})
    finally:
        database.execute("DROP USER clerk")


def test_a_wrong_password_and_a_missing_database_are_told_apart(database: Database) -> None:
    server = database.url.rsplit("@", 1)[1].split("/")[0]
    with pytest.raises(SinkRefusedError, match=r"Correct the user in sink\.dsn, or the password \(sink"):
        MysqlSink(RelationalSettings(f"mysql://root:wrong@{server}/")).check([])
    with pytest.raises(SinkRefusedError, match="Unknown database 'nowhere'"):
        MysqlSink(RelationalSettings(database.url.replace(database.name, "nowhere"))).check([])
    with pytest.raises(SinkRefusedError, match=r"table t has no database\. Name one"):
        MysqlSink(RelationalSettings(database.url.replace(database.name, ""))).check(["t"])


def test_a_server_that_refuses_load_data_local_is_told_what_to_choose(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v blob, b bit(3), s text)")
    database.execute("SET GLOBAL local_infile = 0")
    try:
        with pytest.raises(SinkRefusedError, match=r"local_infile=OFF.*bulk=insert"):
            database.sink.check(["t"])
        database.sink = MysqlSink(RelationalSettings(f"{database.url}?bulk=insert"))
        database.writer = database.sink.writer()
        claim = database.claim("t")
        database.apply(claim, put(0, id=1, v="AP8=", b=True, s="it's a \\ \n\0'"), put(1, id=2, v=None, b=None, s=None))
        assert database.rows("SELECT id, v, b + 0, s FROM t ORDER BY id") == [
            (1, b"\x00\xff", 1, "it's a \\ \n\0'"),
            (2, None, None, None),
        ]
    finally:
        database.execute("SET GLOBAL local_infile = 1")


def test_an_address_needs_no_database_where_table_names_have_one(database: Database) -> None:
    """B19: a delete named its table by an alias, which the server looks for in the session's database."""
    database.execute("CREATE TABLE t (id varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v int)")
    database.sink = MysqlSink(RelationalSettings(database.url.replace(database.name, "")))
    database.writer = database.sink.writer()
    claim = database.claim(f"{database.name}.t")
    database.apply(claim, put(0, id="a", v=1), put(1, id="b", v=2), put(2, id="c", v=3))
    database.apply(claim, put(3, id="b", v=4), drop(4, id="c"), drop(5, id="A"))
    assert database.rows("SELECT id, v FROM t ORDER BY id") == [("a", 1), ("b", 4)], "another letter is another row"


# --- columns ---


def test_shapes_skip_generated_columns_and_names_may_be_anything(either: Database) -> None:
    either.execute(
        "CREATE TABLE `Odd ``Table%s` (b int, `a b` varchar(20) COLLATE utf8mb4_bin, d decimal(8,3), "
        "g int GENERATED ALWAYS AS (b * 2) STORED, `100%` int UNIQUE, PRIMARY KEY (`a b`, b))"
    )
    name = f"{either.name}.Odd `Table%s"
    shape = either.sink.check([name])[name]
    assert shape.columns == {"b": "int(11)", "a b": "varchar(20)", "d": "decimal(8,3)", "100%": "int(11)"}
    assert shape.key == ("a b", "b")
    assert shape.secondary_unique
    claim = either.claim(name)
    key = {"b": 2, "a b": "x\"y'"}
    either.apply(claim, Change(0, 0, Operation.UPSERT, key, {**key, "d": "1.5", "100%": None, "g": 99}, None, 0))
    assert [tuple(map(str, r)) for r in either.rows("SELECT * FROM `Odd ``Table%s`")] == [
        ("2", "x\"y'", "1.500", "4", "None")
    ]
    either.apply(claim, Change(0, 1, Operation.DELETE, key, None, None, 0))
    assert either.rows("SELECT * FROM `Odd ``Table%s`") == []


def test_a_shape_names_columns_that_may_be_null_and_have_a_default(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY DEFAULT 1, a varchar(9) DEFAULT 'x', b text, c int NOT NULL DEFAULT 7, "
        "d int AS (1) STORED, e int DEFAULT NULL, f timestamp NULL DEFAULT current_timestamp())"
    )
    assert database.sink.check(["t"])["t"].defaults == ("a", "f")


def test_numbered_columns_take_the_values_of_the_source_zero_too(database: Database) -> None:
    database.execute("CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, v text)")
    claim = database.claim("t")
    database.apply(claim, put(0, id=41, v="a"), put(1, id=0, v="zero"))
    database.apply(claim, put(2, id=41, v="b"), put(3, id=7, v="c"))
    assert database.rows("SELECT id, v FROM t ORDER BY id") == [(0, "zero"), (7, "c"), (41, "b")]


def test_a_table_dropped_under_a_writer_is_refused_by_name(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    claim = database.claim("t")
    database.apply(claim, put(0, id=1, v=1))
    batch = ChangeBatch(claim, {0: OffsetRange(1, 2)}, [put(1, id=2, v=1)])
    database.execute("DROP TABLE t")
    with pytest.raises(SinkRefusedError, match=r"table test_\w+\.t does not exist at the sink"):
        database.writer.apply(batch)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    assert database.writer.apply(batch).positions == {0: 2}


# --- rows left partly alone ---


def test_absent_columns_keep_what_the_sink_has(either: Database) -> None:
    either.execute("CREATE TABLE t (id int PRIMARY KEY, v text, big text)")
    claim = either.claim("t")
    either.apply(claim, put(0, id=1, v="a", big="B1"), put(1, id=2, v="a", big="B2"))
    # The second update changes nothing, and is no orphan for that.
    applied = either.apply(
        claim, put(2, id=1, v="a", big=ABSENT), put(3, id=2, v="b", big="B3"), put(4, id=2, v=ABSENT, big=ABSENT)
    )
    assert (applied.upserts, applied.updates) == (1, 1)
    assert either.rows("SELECT * FROM t ORDER BY id") == [(1, "a", "B1"), (2, "b", "B3")]
    either.apply(claim, put(5, id=1, v=None, big=ABSENT))
    assert either.rows("SELECT * FROM t WHERE id = 1") == [(1, None, "B1")]


# --- rules between rows ---


@pytest.mark.parametrize("partitions", [1, 2], ids=["within a partition", "across partitions"])
def test_unique_values_that_are_swapped(database: Database, partitions: int) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, u varchar(9) UNIQUE)")
    claim = database.claim("t", partitions)
    database.apply(claim, put(0, id=1, u="a"), put(0 if partitions > 1 else 1, partitions - 1, id=2, u="b"))
    p = partitions - 1
    first = 1 if p else 2
    # 1 lets go of "a", 2 takes it, 1 takes what 2 had: the last words alone would collide.
    changes = [put(first, id=1, u="x"), put(1 if p else 3, p, id=2, u="a"), put(first + (1 if p else 2), id=1, u="b")]
    applied = database.apply(claim, *changes)
    assert applied.positions == ({0: 3, 1: 2} if p else {0: 5})
    assert database.rows("SELECT * FROM t ORDER BY id") == [(1, "b"), (2, "a")]


def test_a_row_that_shares_a_unique_value_is_never_taken_for_the_same_row(database: Database) -> None:
    """ON DUPLICATE KEY UPDATE would overwrite row 99, and say nothing."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, u varchar(9) UNIQUE, v int)")
    claim = database.claim("t", partitions=2)
    database.execute("INSERT INTO t VALUES (99, 'taken', 1)")
    changes = [put(offset, id=offset, u=f"u{offset}", v=0) for offset in range(20)]
    changes[13] = put(13, id=13, u="taken", v=0)
    applied = database.apply(claim, *changes, put(0, partition=1, id=500, u="other", v=0))
    assert applied.positions == {0: 13, 1: 1} == database.sink.positions(claim)
    assert applied.upserts == 14
    with pytest.raises(ConstraintViolatedError, match=r"duplicate entry, key \S+ .*partition 0, offset 13"):
        database.apply(claim, *changes[13:])
    assert database.rows("SELECT v FROM t WHERE id = 99") == [(1,)]
    database.execute("DELETE FROM t WHERE id = 99")
    assert database.apply(claim, *changes[13:]).positions == {0: 20, 1: 1}
    assert database.rows("SELECT COUNT(*) FROM t") == [(21,)]


def test_foreign_keys_wait_for_their_row_or_are_ignored_if_so_chosen(database: Database) -> None:
    database.execute("CREATE TABLE p (id int PRIMARY KEY)")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES p (id), CHECK (id < 100))")
    claim = database.claim("t")
    assert database.apply(claim, put(0, id=1, p=None), put(1, id=2, p=7)).positions == {0: 1}
    with pytest.raises(ConstraintViolatedError, match=r"foreign key.*offset 1") as refused:
        database.apply(claim, put(1, id=2, p=7))
    assert refused.value.retryable
    database.execute("INSERT INTO p VALUES (7)")
    assert database.apply(claim, put(1, id=2, p=7)).positions == {0: 2}
    with pytest.raises(ValueRefusedError, match=r"CONSTRAINT.*offset 2") as refused_for_good:
        database.apply(claim, put(2, id=100, p=7))
    assert not refused_for_good.value.retryable
    careless = MysqlSink(RelationalSettings(database.url, foreign_keys=False)).writer()
    careless.apply(ChangeBatch(claim, {0: OffsetRange(2, 3)}, [put(2, id=3, p=1234)]))
    careless.close()
    assert database.rows("SELECT p FROM t WHERE id = 3") == [(1234,)]


def test_one_bad_value_among_many_is_found_and_nothing_before_it_is_held_back(either: Database) -> None:
    either.execute("CREATE TABLE t (id int PRIMARY KEY, v smallint NOT NULL)")
    claim = either.claim("t")
    changes = [put(offset, id=offset, v=offset % 100) for offset in range(1000)]
    changes[777] = put(777, id=777, v=70000)
    changes[900] = put(900, id=900, v=None)
    assert either.apply(claim, *changes).positions == {0: 777}
    with pytest.raises(
        ValueRefusedError, match=r"t, column v: .*[Oo]ut of range.*topic shop.t, partition 0, offset 777"
    ):
        either.apply(claim, *changes[777:])
    changes[777] = put(777, id=777, v=7)
    assert either.apply(claim, *changes[777:]).positions == {0: 900}
    with pytest.raises(ValueRefusedError, match=r"'v' cannot be null.*offset 900"):
        either.apply(claim, *changes[900:])
    assert either.rows("SELECT COUNT(*), MAX(id) FROM t") == [(900, 899)]


def test_two_keys_that_a_collation_takes_for_one_are_refused_and_none_is_lost(database: Database) -> None:
    database.execute("CREATE TABLE t (id varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v int)")
    claim = database.claim("t")
    assert database.apply(claim, put(0, id="a", v=1), put(1, id="A", v=2)).positions == {0: 1}
    with pytest.raises(ValueRefusedError, match=r"collation of column id.*ends in _nopad_bin.*offset 1"):
        database.apply(claim, put(1, id="A", v=2))
    assert database.rows("SELECT * FROM t") == [("a", 1)]
    # Another's row is not deleted for it either; and a key that only changes its case is deleted, then inserted.
    database.apply(claim, drop(1, id="A"))
    assert database.rows("SELECT * FROM t") == [("a", 1)]
    database.apply(claim, drop(2, id="a"), put(3, id="A", v=3))
    assert database.rows("SELECT * FROM t") == [("A", 3)]


def test_a_trigger_of_the_sink_that_says_no_is_told_without_its_text(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute(
        "CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW "
        "IF NEW.id = 3 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not on a Sunday'; END IF"
    )
    claim = database.claim("t")
    assert database.apply(claim, put(0, id=1), put(1, id=3)).positions == {0: 1}
    with pytest.raises(ValueRefusedError, match=r"A trigger or function of the sink raised.*offset 1"):
        database.apply(claim, put(1, id=3))


def test_many_batches_of_all_sizes_leave_no_staged_row_behind(either: Database) -> None:
    either.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(20) UNIQUE)")
    either.execute("CREATE TABLE other (id int PRIMARY KEY)")
    claim, other = either.claim("t"), either.claim("other")
    offset = 0
    for size in (3, 12_000, 1, 2):
        changes = [put(offset + i, id=offset + i, v=f"v{offset + i}") for i in range(size)]
        either.apply(claim, *changes)
        either.apply(other, put(offset, id=offset))
        offset += size
        with pytest.raises(ConstraintViolatedError):
            either.apply(claim, put(offset, id=-1, v="v0"))
    assert either.rows("SELECT COUNT(*), MAX(id) FROM t") == [(offset, offset - 1)]
    assert either.rows("SELECT COUNT(*) FROM other") == [(4,)]


def test_a_wide_row_and_a_value_of_many_megabytes(either: Database) -> None:
    columns = ", ".join(f"c{n} varchar(20) CHARACTER SET latin1" for n in range(300))
    either.execute(f"CREATE TABLE t (id int PRIMARY KEY, big longtext, {columns})")
    claim = either.claim("t")
    row = {f"c{n}": f"value {n}" for n in range(300)}
    either.apply(claim, put(0, id=1, big="ü" * 3_000_000, **row), put(1, id=2, big=None, **dict.fromkeys(row)))
    assert either.rows("SELECT id, CHAR_LENGTH(big), c299 FROM t ORDER BY id") == [
        (1, 3_000_000, "value 299"),
        (2, None, None),
    ]


def test_what_maxwell_says_of_a_column_of_json_is_json_at_the_sink(either: Database) -> None:
    """MariaDB's JSON is a longtext with a check, which a text without its quotes would not pass, or change by."""
    either.execute("CREATE TABLE t (id int PRIMARY KEY, v json, w longtext)")
    claim = either.claim("t")
    values = ['"text"', '"123"', "123", "1.50", "true", '{"a": "b"}', "[1]", '"null"', '""']
    decoder = maxwell_json.MaxwellDecoder()
    keys = [b'{"database":"d","table":"t","pk.id":%d}' % n for n in range(len(values))]
    head = b'{"database":"d","table":"t","type":"insert","ts":5,"data":'
    events = [head + b'{"id":%d,"v":%s,"w":"plain"}}' % (n, value.encode()) for n, value in enumerate(values)]
    count = len(values)
    changes = decoder.decode_batch(keys, events, [0] * count, list(range(count)), [0] * count)
    either.apply(claim, *changes)
    stored = [str(row[0]) for row in either.rows("SELECT v FROM t ORDER BY id")]
    assert [json.loads(text) for text in stored] == [json.loads(value) for value in values]
    assert {str(row[0]) for row in either.rows("SELECT w FROM t")} == {"plain"}


def test_what_maxwell_leaves_out_is_null_or_refused_and_never_an_old_value(either: Database) -> None:
    """One row is new, one is sent again by a bootstrap after its column was set to NULL."""
    either.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(20) DEFAULT 'default')")
    rows = [(1, "insert", '{"id":1}'), (2, "insert", '{"id":2,"v":"old"}'), (2, "bootstrap-insert", '{"id":2}')]
    keys = [b'{"database":"d","table":"t","pk.id":%d}' % row_id for row_id, _, _ in rows]
    events = [f'{{"database":"d","table":"t","type":"{kind}","ts":5,"data":{row}}}'.encode() for _, kind, row in rows]

    def changes(*, output_nulls: bool | None) -> list[Change]:
        decoder = maxwell_json.MaxwellDecoder(output_nulls=output_nulls)
        return decoder.decode_batch(keys, events, [0] * 3, [0, 1, 2], [0] * 3)

    claim = either.claim("t")
    with pytest.raises(
        ValueRefusedError, match=r"column v: the row does not have this.*source\.output_nulls.*offset 0"
    ):
        either.apply(claim, *changes(output_nulls=None))
    assert either.rows("SELECT * FROM t") == []
    either.apply(claim, *changes(output_nulls=False))
    assert [(row[0], row[1]) for row in either.rows("SELECT id, v FROM t ORDER BY id")] == [(1, None), (2, None)]


def test_rows_without_key_are_added_each_once_if_so_chosen(database: Database) -> None:
    database.execute("CREATE TABLE t (v int, w text)")
    with pytest.raises(SinkRefusedError, match=r"no primary key.*set keyless: append"):
        database.sink.check(["t"])
    database.sink = MysqlSink(RelationalSettings(database.url, keyless=True))
    database.writer = database.sink.writer()
    claim = database.claim("t")
    rows = [Change(0, n, Operation.UPSERT, {}, {"v": 1, "w": "same"}, None, 0) for n in range(3)]
    assert database.apply(claim, *rows).upserts == 3
    assert database.rows("SELECT COUNT(*) FROM t") == [(3,)]
    with pytest.raises(ValueRefusedError, match=r"key columns \(id\) are not the table's \(\)"):
        database.apply(claim, put(3, id=1, v=1))
    bad = Change(0, 4, Operation.UPSERT, {}, {"v": "x", "w": None}, None, 0)
    assert database.apply(claim, msgspec.structs.replace(rows[0], offset=3), bad).positions == {0: 4}
    truncate = Change(0, 4, Operation.TRUNCATE, {}, None, None, 0)
    database.apply(claim, truncate, msgspec.structs.replace(rows[0], offset=5))
    assert database.rows("SELECT v, w FROM t") == [(1, "same")]


def test_the_sink_says_who_it_is_and_what_others_read_of_it(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    (uid, name) = (mariadb_execute(database.url, "SELECT @@server_uid")[0][0], database.name)
    assert database.sink.own_id() == f"mysql/{uid}/{name}"
    assert database.sink.published("elsewhere", ["t"]) == []
    database.execute("CREATE TABLE keyless (v int)")
    assert database.sink.published("elsewhere", ["keyless"]) == []
    readers = database.rows("SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
    assert database.sink.published(name, ["t", f"{name}.t"]) == (["t"] if readers != [(0,)] else [])


# --- keys that the sink's collation takes for one, and tables that are altered meanwhile ---


@pytest.mark.parametrize("declared", ["varchar(9) COLLATE utf8mb4_bin", "varchar(9) COLLATE utf8mb4_general_ci"])
@pytest.mark.parametrize("together", [True, False])
def test_keys_that_differ_in_spaces_at_their_end_are_refused_where_the_collation_ignores_them(
    either: Database, declared: str, *, together: bool
) -> None:
    either.execute(f"CREATE TABLE t (k {declared} PRIMARY KEY, v int)")
    claim = either.claim("t")
    first, second = named(0, "a", v=1), named(1, "a ", v=2)
    if together:
        assert either.apply(claim, first, second).positions == {0: 1}
    else:
        either.apply(claim, first)
    with pytest.raises(ValueRefusedError, match=r"treats as equal.*_nopad_bin"):
        either.apply(claim, second)
    assert either.apply(claim, Change(0, 1, Operation.DELETE, {"k": "a "}, None, None, 0)).deletes == 0
    assert either.rows("SELECT k, v FROM t") == [("a", 1)]


def test_keys_that_differ_in_spaces_at_their_end_are_two_where_the_collation_pads_nothing(
    either: Database,
) -> None:
    either.execute("CREATE TABLE t (k varchar(9) COLLATE utf8mb4_nopad_bin PRIMARY KEY, v int)")
    claim = either.claim("t")
    either.apply(claim, named(0, "a", v=1), named(1, "a ", v=2), named(2, "A", v=3))
    assert either.rows("SELECT k, v FROM t ORDER BY v") == [("a", 1), ("a ", 2), ("A", 3)]


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [("char(5) COLLATE utf8mb4_nopad_bin", ["a", "a    "], "a "), ("binary(3)", ["YQ==", "YQAA"], "YQA=")],
)
def test_a_key_that_a_column_of_fixed_width_would_pad_is_refused(
    either: Database, declared: str, good: list[str], bad: str
) -> None:
    """Whose source has the same type comes without padding or with all of it; anything else is another row's key."""
    either.execute(f"CREATE TABLE t (k {declared} PRIMARY KEY, v int)")
    claim = either.claim("t")
    for number, key in enumerate(good):
        either.apply(claim, named(number, key, v=number))
    with pytest.raises(ValueRefusedError, match=r"fixed width"):
        either.apply(claim, named(len(good), bad, v=9))
    assert either.rows("SELECT v FROM t") == [(1,)]


def test_a_unique_value_that_became_one_after_the_first_batch_overwrites_no_other_row(either: Database) -> None:
    either.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    claim = either.claim("t")
    either.apply(claim, put(0, id=1, v=1))
    either.execute("CREATE UNIQUE INDEX only ON t (v)")
    with pytest.raises(ConstraintViolatedError, match="duplicate entry"):
        either.apply(claim, put(1, id=2, v=1))
    assert either.rows("SELECT id, v FROM t") == [(1, 1)]
    either.execute("DROP INDEX only ON t")
    either.apply(claim, put(1, id=2, v=1))
    assert either.rows("SELECT id, v FROM t") == [(1, 1), (2, 1)]


def test_a_column_that_became_narrower_refuses_what_it_would_round(either: Database) -> None:
    either.execute("CREATE TABLE t (id int PRIMARY KEY, v double)")
    claim = either.claim("t")
    either.apply(claim, put(0, id=1, v=1.5))
    either.execute("UPDATE t SET v = 2")
    either.execute("ALTER TABLE t MODIFY v int")
    fresh = MysqlSink(either.sink._settings).writer()
    batch = ChangeBatch(claim, {0: OffsetRange(1, 2)}, [put(1, id=1, v="1.5x")])
    with pytest.raises(ValueRefusedError) as new:
        fresh.apply(batch)
    fresh.close()
    with pytest.raises(ValueRefusedError) as kept:
        either.apply(claim, put(1, id=1, v="1.5x"))
    assert str(kept.value) == str(new.value)
    before = either.writer._stages["t"].table.version
    either.execute("ALTER TABLE t MODIFY v bigint")
    either.apply(claim, put(1, id=1, v=5_000_000_000))
    assert either.writer._stages["t"].table.version != before
    assert either.rows("SELECT v FROM t") == [(5_000_000_000,)]
