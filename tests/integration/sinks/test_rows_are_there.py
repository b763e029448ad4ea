"""What a batch reports as written is at the sink, each row under its own key, and nothing else was touched."""

from collections.abc import Iterator, Sequence

import msgspec
import psycopg
import pytest

from fixtures.services import mariadb_connect
from headgate.formats.change import ABSENT, Change, Operation
from headgate.sinks.contract import (
    ChangeBatch,
    ChangeRefusedError,
    FeedIdentity,
    OffsetRange,
    Quarantine,
    Sink,
    SinkError,
    SinkWriter,
    ValueRefusedError,
)
from headgate.sinks.relational import writer
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = pytest.mark.integration


WRITERS: list[SinkWriter] = []
"""Of the test that runs."""


class Table:
    """A claimed table, its changes numbered as they come."""

    def __init__(self, sink: Sink, name: str, key: str = "id") -> None:
        self.name = name
        self.key = key
        self.claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=name)
        sink.claim(self.claim)
        self.writer = sink.writer()
        WRITERS.append(self.writer)
        self.next = 0

    def change(self, operation: Operation, key: object, **row: object) -> Change:
        keys = {} if operation is Operation.TRUNCATE else {self.key: key}
        rows = {**keys, **row} if operation is Operation.UPSERT else None
        change = Change(0, self.next, operation, keys, rows, 0, 0)
        self.next += 1
        return change

    def apply(self, *changes: Change, quarantine: Quarantine | None = None) -> None:
        first = changes[0].offset
        self.writer.apply(ChangeBatch(self.claim, {0: OffsetRange(first, self.next)}, changes, quarantine))

    def put(self, key: object, **row: object) -> None:
        self.apply(self.change(Operation.UPSERT, key, **row))

    def delete(self, key: object) -> None:
        self.apply(self.change(Operation.DELETE, key))

    def refuse(self, *changes: Change, says: str) -> None:
        """The batch is refused as one that quarantine can take, and nothing of it is there."""
        kept: list[ChangeRefusedError] = []
        with pytest.raises(ValueRefusedError, match=says) as refused:
            self.apply(*changes)
        assert self.name in str(refused.value)
        self.apply(*changes, quarantine=Quarantine(kept.extend, len(changes), patient=True))
        assert {each.offset for each in kept} == {change.offset for change in changes}


@pytest.fixture(params=["at once", "staged"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A batch of few rows goes either way to the same end."""
    if request.param == "staged":
        monkeypatch.setattr(writer, "CHANGES_AT_ONCE_MAX", -1)
    yield str(request.param)
    while WRITERS:
        WRITERS.pop().close()


@pytest.fixture
def server(postgres_database: str) -> Iterator["psycopg.Connection[tuple]"]:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def postgres(postgres_database: str) -> PostgresSink:
    return PostgresSink(RelationalSettings(postgres_database))


SKIP = "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"


def rows(server: "psycopg.Connection[tuple]", query: str) -> Sequence[tuple]:
    return server.execute(query).fetchall()  # type: ignore[arg-type]


# --- rows that triggers and rules pass over ---


def test_rows_that_a_trigger_skips_are_refused_and_it_is_named(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink
) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    server.execute(SKIP)
    table = Table(postgres, "public.t")
    table.put(1, v="before the trigger")
    server.execute("CREATE TRIGGER no_inserts BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION skip()")
    table.refuse(table.change(Operation.UPSERT, 2, v="b"), says="did not execute it.*trigger no_inserts")
    many = [table.change(Operation.UPSERT, key, v="x") for key in range(100, 400)]
    table.refuse(*many, says="INSERT.*trigger no_inserts")
    assert rows(server, "SELECT count(*) FROM t") == [(1,)]


@pytest.mark.parametrize("event", ["UPDATE", "DELETE"])
def test_updates_and_deletes_that_a_trigger_skips_are_refused(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink, event: str
) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text, w text)")
    server.execute(SKIP)
    table = Table(postgres, "public.t")
    table.put(1, v="a", w="a")
    server.execute(f"CREATE TRIGGER stays BEFORE {event} ON t FOR EACH ROW EXECUTE FUNCTION skip()")
    if event == "DELETE":
        table.refuse(table.change(Operation.DELETE, 1), says="DELETE.*trigger stays")
        table.refuse(table.change(Operation.TRUNCATE, None), says="DELETE.*trigger stays")
        table.delete(2)  # a row that is not there is no row that was skipped
    else:
        table.refuse(table.change(Operation.UPSERT, 1, v="b", w="b"), says="trigger stays")
        table.refuse(table.change(Operation.UPSERT, 1, v="b", w=ABSENT), says="UPDATE.*trigger stays")
    assert rows(server, "SELECT * FROM t") == [(1, "a", "a")]


@pytest.mark.parametrize("action", ["NOTHING", "DELETE FROM other WHERE id = OLD.id"])
def test_a_delete_that_a_rule_takes_elsewhere_is_refused_and_it_is_named(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink, action: str
) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    server.execute("CREATE TABLE other (id int PRIMARY KEY)")
    server.execute("INSERT INTO other VALUES (1)")
    table = Table(postgres, "public.t")
    table.put(1, v="a")
    server.execute(f"CREATE RULE kept AS ON DELETE TO t DO INSTEAD {action}")
    table.refuse(table.change(Operation.DELETE, 1), says="DELETE.*rule kept")
    assert rows(server, "SELECT id FROM t") == [(1,)]


def test_a_row_that_a_trigger_gives_another_key_is_refused(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink
) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    server.execute(
        "CREATE FUNCTION moved() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.id := NEW.id + 100; RETURN NEW; END $$"
    )
    server.execute("CREATE TRIGGER moves BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION moved()")
    table = Table(postgres, "public.t")
    table.refuse(table.change(Operation.UPSERT, 1, v="a"), says="trigger moves")
    assert rows(server, "SELECT * FROM t") == []


def test_a_table_of_keys_alone_takes_a_row_twice(server: "psycopg.Connection[tuple]", postgres: PostgresSink) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = Table(postgres, "public.t")
    table.put(1)
    table.apply(*(table.change(Operation.UPSERT, key) for key in (1, 2)))
    assert rows(server, "SELECT * FROM t ORDER BY 1") == [(1,), (2,)]


def test_triggers_that_let_rows_pass_are_no_trouble(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink
) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text, w text)")
    server.execute(
        "CREATE FUNCTION upper_case() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.w := upper(NEW.v); RETURN NEW; END $$"
    )
    server.execute("CREATE TRIGGER u BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION upper_case()")
    table = Table(postgres, "public.t")
    table.put(1, v="a")
    table.put(1, v="b")
    table.apply(*(table.change(Operation.UPSERT, key, v="x") for key in range(2, 200)))
    table.delete(2)
    assert rows(server, "SELECT count(*), min(w) FROM t") == [(198, "B")]


# --- tables that inherit from the target, and partitions of it ---


def test_tables_that_inherit_from_the_target_are_not_touched(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink
) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text, w text)")
    server.execute("CREATE TABLE child () INHERITS (t)")
    server.execute("INSERT INTO child VALUES (1, 'its own', 'row')")
    table = Table(postgres, "public.t")
    table.put(1, v="a", w="a")
    table.apply(table.change(Operation.UPSERT, 1, v="b", w=ABSENT))
    table.delete(1)
    table.put(2, v="a", w="a")
    table.apply(table.change(Operation.TRUNCATE, None))
    assert rows(server, "SELECT * FROM ONLY t") == []
    assert rows(server, "SELECT * FROM child") == [(1, "its own", "row")]


def test_partitions_of_the_target_are_written(server: "psycopg.Connection[tuple]", postgres: PostgresSink) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text, w text) PARTITION BY RANGE (id)")
    server.execute("CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)")
    server.execute("CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (1000)")
    table = Table(postgres, "public.t")
    table.apply(*(table.change(Operation.UPSERT, key, v="a", w="a") for key in range(200)))
    table.apply(table.change(Operation.UPSERT, 1, v="b", w=ABSENT))
    table.delete(150)
    assert rows(server, "SELECT count(*) FROM low") == [(10,)]
    assert rows(server, "SELECT count(*) FROM high") == [(189,)]
    assert rows(server, "SELECT v, w FROM t WHERE id = 1") == [("b", "a")]
    server.execute(SKIP)
    server.execute("CREATE TRIGGER of_a_part BEFORE INSERT ON low FOR EACH ROW EXECUTE FUNCTION skip()")
    table.refuse(table.change(Operation.UPSERT, 7, v="z", w="z"), says="INSERT")
    table.apply(table.change(Operation.TRUNCATE, None))
    assert rows(server, "SELECT * FROM t") == []


# --- keys that the sink's type takes for one ---

UPPER, LOWER = "5E045C13-0000-4000-8000-00000000000A", "5e045c13-0000-4000-8000-00000000000a"

POSTGRESQL_KEYS: list[tuple[str, object, object]] = [
    ("uuid", LOWER, UPPER),
    ("uuid", LOWER, "{" + LOWER + "}"),
    ("varchar(3)", "abc", "abc  "),
    ("char(4)", "ab", "ab "),
    ("name", "k" * 63, "k" * 64),
    ("int", "1", "01"),
    ("int", 1, "+1"),
    ("bigint", "-1", "-01"),
    ("numeric(5,2)", "1.00", "1.004"),
    ("numeric(5,2)", 1, 1.001),
    ("numeric(5,-2)", 100, 101),
    ("real", 0.5, 0.50000000001),
    ("timestamp(0)", "2026-01-01 00:00:00", "2026-01-01 00:00:00.1"),
    ("timestamp(0)", 1_767_225_600_000, 1_767_225_600_100),
    ("timestamptz(3)", "2026-01-01T00:00:00.001Z", "2026-01-01T00:00:00.0014Z"),
    ("time(0)", "10:00:00", "10:00:00.4"),
    ("date", "2026-01-01", "2026-01-01T10:00:00Z"),
    ("boolean", True, "t"),
    ("money", "1.50", "1.504"),
    ("oid", 7, "007"),
    ("macaddr", "08:00:2b:01:02:03", "08-00-2b-01-02-03"),
    ("inet", "10.0.0.1", "10.0.0.1/32"),
    ("inet", "::1", "0:0::1"),
    ("cidr", "10.0.0.0/8", "10.0.0.0/08"),
    ("int4range", "[1,5)", "[1,4]"),
    ("small", "1", "01"),
    ("jsonb", '{"a": 1}', '{"a":1}'),
]


@pytest.mark.parametrize(("declared", "key", "other"), POSTGRESQL_KEYS, ids=[f"{c[0]}-{c[2]}" for c in POSTGRESQL_KEYS])
def test_two_keys_that_the_type_takes_for_one_are_never_one_row(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink, declared: str, key: object, other: object
) -> None:
    server.execute("CREATE DOMAIN small AS smallint")
    server.execute(f"CREATE TABLE t (id {declared} PRIMARY KEY, v text)")
    check_keys(postgres, "public.t", key, other)
    assert rows(server, "SELECT v FROM t") == [("first",)]


MARIADB_KEYS: list[tuple[str, object, object]] = [
    ("uuid", LOWER, UPPER),
    ("varchar(3) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", "abc", "abc  "),
    ("char(4)", "ab", "ab "),
    ("int", "1", "01"),
    ("int", 1, 1.4),
    ("decimal(5,2)", "1.00", "1.004"),
    ("float", 0.5, 0.50000000001),
    ("datetime", "2026-01-01 00:00:00", "2026-01-01 00:00:00.1"),
    ("datetime(3)", 1_767_225_600_001, "2026-01-01 00:00:00.0014"),
    ("time", "10:00:00", "10:00:00.4"),
    ("date", "2026-01-01", "2026-01-01 10:00:00"),
    ("year", 2026, "26"),
    ("set('a','b')", "a,b", "b,a"),
    ("enum('a','b')", "a", "1"),
    ("inet6", "::a", "::A"),
]


@pytest.mark.parametrize(("declared", "key", "other"), MARIADB_KEYS, ids=[f"{c[0]}-{c[2]}" for c in MARIADB_KEYS])
def test_two_keys_that_a_type_of_mariadb_takes_for_one_are_never_one_row(
    mariadb_database: str, declared: str, key: object, other: object, way: str
) -> None:
    if way == "at once":
        pytest.skip("MariaDB has one way")
    connection = mariadb_connect(mariadb_database)
    with connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE t (id {declared} PRIMARY KEY, v varchar(20))")
        sink = MysqlSink(RelationalSettings(mariadb_database))
        check_keys(sink, f"{mariadb_database.rsplit('/', 1)[1]}.t", key, other)
        cursor.execute("SELECT v FROM t")
        assert list(cursor.fetchall()) == [("first",)]


def check_keys(sink: Sink, name: str, key: object, other: object) -> None:
    """The second key is refused, in a batch of its own, with the first, and as a delete; the first stays as it is."""
    table = Table(sink, name)
    table.put(key, v="first")
    table.refuse(table.change(Operation.UPSERT, other, v="second"), says="key|takes|label")
    both = [table.change(Operation.UPSERT, key, v="first"), table.change(Operation.UPSERT, other, v="second")]
    kept: list[ChangeRefusedError] = []
    table.apply(*both, quarantine=Quarantine(kept.extend, 1, patient=True))
    assert [each.offset for each in kept] == [both[1].offset]
    gone = table.change(Operation.DELETE, other)
    try:
        table.apply(gone)
    except SinkError:
        table.apply(gone, quarantine=Quarantine(kept.extend, 2, patient=True))


def test_decimal_keys_are_compared_as_numbers(server: "psycopg.Connection[tuple]", postgres: PostgresSink) -> None:
    server.execute("CREATE TABLE t (id numeric PRIMARY KEY, v text)")
    table = Table(postgres, "public.t")
    table.put("1.0", v="a")
    table.put("1.00", v="b")
    assert rows(server, "SELECT v FROM t") == [("b",)]
    table.delete("1e0")
    assert rows(server, "SELECT v FROM t") == []


def test_columns_may_have_the_names_of_the_stages_own(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink
) -> None:
    server.execute('CREATE TABLE t (id inet PRIMARY KEY, "headgate group" text, "headgate key 0" text)')
    table = Table(postgres, "public.t")
    row = {"headgate group": "g", "headgate key 0": "k"}
    table.apply(msgspec.structs.replace(table.change(Operation.UPSERT, "10.0.0.1"), row={"id": "10.0.0.1", **row}))
    assert rows(server, "SELECT host(id), * FROM t") != []


# --- types whose input function raises what it likes ---


@pytest.fixture
def odd_type(server: "psycopg.Connection[tuple]") -> str:
    """A type of an extension, as far as its errors go: a domain whose check raises a state that is not PostgreSQL's."""
    server.execute(
        "CREATE FUNCTION is_even(v int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN IF v % 2 = 1 THEN "
        "RAISE 'odd one out' USING ERRCODE = 'XX000'; END IF; RETURN true; END $$"
    )
    server.execute("CREATE DOMAIN even AS int CHECK (is_even(VALUE))")
    return "even"


def test_whatever_an_input_function_raises_is_a_refusal_of_the_value(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink, odd_type: str
) -> None:
    server.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {odd_type})")
    table = Table(postgres, "public.t")
    table.put(1, v=2)
    table.refuse(table.change(Operation.UPSERT, 2, v=3), says="column v: .*SQLSTATE XX000.*Give the column")
    server.execute("ALTER TABLE t ALTER COLUMN v TYPE int")
    table.put(2, v=3)
    assert rows(server, "SELECT * FROM t ORDER BY id") == [(1, 2), (2, 3)]


def test_a_stage_that_an_alteration_has_outdated_is_made_again(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink, odd_type: str
) -> None:
    """Also by a worker that has not met a refusal before: its stage is of the table as it was."""
    server.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {odd_type})")
    table = Table(postgres, "public.t")
    table.put(1, v=2)
    server.execute("ALTER TABLE t ALTER COLUMN v TYPE int")
    table.apply(table.change(Operation.UPSERT, 2, v=3), table.change(Operation.DELETE, 1))
    assert rows(server, "SELECT * FROM t") == [(2, 3)]


def test_an_error_of_the_sinks_own_trigger_can_be_set_aside(
    server: "psycopg.Connection[tuple]", postgres: PostgresSink
) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    server.execute(
        "CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'not here' USING ERRCODE = 'SHOP1'; END $$"
    )
    server.execute("CREATE TRIGGER never BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION never()")
    table = Table(postgres, "public.t")
    table.put(1, v="a")
    table.refuse(table.change(Operation.UPSERT, 2, v="b"), says="A trigger or function of the sink")
