"""Rows as lines of COPY's text format, from one PostgreSQL into a table of another that is being written."""

from collections.abc import Iterator, Sequence

import psycopg
import pytest

from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.postgresql.row_source import open_rows
from headgate.formats.change import CONNECTOR
from headgate.records.control import Epoch
from headgate.sinks.contract import Claim, SinkFencedError
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.postgresql.staging import PostgresStage
from headgate.sinks.relational.session import RelationalSettings
from headgate.sinks.row_copying import CopiedTexts, RowsRefusedError
from integration.sinks.copied_ends import copy_texts
from support import build

pytestmark = pytest.mark.integration

COLUMNS = {
    "id": ("bigint", ("-5", "1", "2", "9223372036854775807")),
    "small": ("smallint", ("-32768", "5", "0", "32767")),
    "flag": ("boolean", ("true", "false", "NULL", "true")),
    "word": ("character varying(20)", ("''", "E'a\\tb\\nc'", r"'\N'", r"E'\\\\back\b\f\r\x0b'")),
    "body": ("text", ("NULL", "repeat('é', 5000)", "'x'", r"'\.'")),
    "amount": ("numeric(12,2)", ("-0.01", "9999999999.99", "NULL", "'NaN'")),
    "any_amount": ("numeric", ("1e100", "0.000000000000000000001", "NULL", "'-Infinity'")),
    "ratio": ("double precision", ("0.1", "'-Infinity'", "NULL", "1e308")),
    "near": ("real", ("0.1", "16777216", "NULL", "3.402823e38")),
    "day": ("date", ("'0044-03-15 BC'", "'infinity'", "NULL", "'2024-02-29'")),
    "hour": ("time without time zone", ("'24:00'", "'00:00:00.000001'", "NULL", "'12:30'")),
    "at": ("timestamp with time zone", ("'2024-01-01 12:00+05:30'", "'-infinity'", "NULL", "'1900-01-01'")),
    "local": ("timestamp without time zone", ("'294276-01-01'", "'0001-01-01 BC'", "NULL", "now()::timestamp")),
    "doc": ("jsonb", (r"""'{"a": "\\t\\n\""}'""", "'[]'", "NULL", "'null'")),
    "plain": ("json", ("""'{"a":  1}'""", "'[]'", "NULL", "'null'")),
    "number": ("uuid", ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "gen_random_uuid()", "NULL", "gen_random_uuid()")),
}
TRIGGER = (
    "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; "
    "CREATE TRIGGER t BEFORE INSERT ON there FOR EACH ROW EXECUTE FUNCTION f()"
)
KEYS = [", ".join(key) for key in zip(COLUMNS["id"][1], COLUMNS["small"][1], strict=True)]


class Ends:
    """Tables ``here`` and ``there``, equal but for their rows."""

    def __init__(self, address: str) -> None:
        self.sink, self.address = PostgresSink(RelationalSettings(address)), address
        self.connection = psycopg.connect(address, autocommit=True)
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
        self.run(f"CREATE TABLE here ({columns}, PRIMARY KEY (id, small))")
        self.run("CREATE TABLE there (LIKE here INCLUDING ALL)")
        for row in zip(*(values for _, values in COLUMNS.values()), strict=True):
            self.run(f"INSERT INTO here VALUES ({', '.join(row)})")
        self.claim = build.claim(table="public.there")
        self.positions = self.sink.claim(self.claim)

    def run(self, statement: str) -> list[tuple[object, ...]]:
        cursor = self.connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def texts(self, declared: Sequence[str] = (), above: tuple[str, ...] | None = None) -> CopiedTexts:
        with open_rows(Target(self.address)) as source:
            known = source.declared("public.here")
            lines = list(source.lines_within("public.here", list(known), ["id", "small"], Chunk(above, None)))
        halves = [b"".join(lines[:2]), b"".join(lines[2:])]
        kinds = tuple(declared or known.values())
        return CopiedTexts(columns=tuple(known), declared=kinds, blocks=halves, count=len(lines))

    def copy(self, texts: CopiedTexts, claim: Claim | None = None) -> None:
        copy_texts(self.sink, claim or self.claim, self.positions, {CONNECTOR: "postgresql"}, texts)

    def are_equal(self) -> bool:
        row = f"ROW ({', '.join(COLUMNS)})::text"
        here, there = (self.run(f"SELECT {row} FROM {table} ORDER BY id") for table in ("here", "there"))
        return here == there

    @property
    def mark(self) -> tuple[str, ...] | None:
        return self.sink.copied(self.claim, "r").upto


@pytest.fixture
def ends(postgres_database: str) -> Iterator[Ends]:
    made = Ends(postgres_database)
    yield made
    made.connection.close()


def test_rows_of_which_the_target_has_none_are_not_staged(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresStage, "_send", None)
    ends.copy(ends.texts())
    assert ends.are_equal()
    assert ends.mark == ("2", "0")


@pytest.mark.parametrize("known", [KEYS[:1], KEYS[1:3], KEYS])
def test_rows_that_the_target_has_are_overwritten(ends: Ends, known: Sequence[str]) -> None:
    for key in known:
        ends.run(f"INSERT INTO there (id, small, word) VALUES ({key}, 'older')")
    ends.copy(ends.texts())
    assert ends.are_equal()


def test_a_row_that_somebody_adds_in_between_is_overwritten(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresStage, "_known_keys", lambda _stage, _texts: set())
    ends.run("INSERT INTO there (id, small, word) VALUES (1, 5, 'older')")
    ends.copy(ends.texts())
    assert ends.are_equal()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE there ALTER COLUMN word TYPE varchar(30)",
        "ALTER TABLE there ADD COLUMN more int DEFAULT 7",
        TRIGGER,
    ],
    ids=["another type", "another column", "a trigger"],
)
def test_a_table_that_is_not_like_the_source_s_gets_its_rows_through_the_stage(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ends.run(change)
    monkeypatch.setattr(PostgresStage, "write_texts", None)
    ends.copy(ends.texts())
    assert ends.are_equal()


def test_rows_that_are_refused_leave_nothing_behind(ends: Ends) -> None:
    ends.run("CREATE UNIQUE INDEX ON there (flag)")
    with pytest.raises(RowsRefusedError, match="there"):
        ends.copy(ends.texts())
    assert ends.run("TABLE there") == []
    assert ends.mark is None


SCANS = "SELECT relname::text, seq_scan FROM pg_stat_user_tables WHERE relname IN ('here', 'there') ORDER BY relname"


def test_the_target_is_not_scanned_for_keys_that_it_does_not_have(ends: Ends) -> None:
    for table in ("here", "there"):
        ends.run(f"TRUNCATE {table}")
        ends.run(f"INSERT INTO {table} (id, small) SELECT n % 3, n / 3 FROM generate_series(1, 60000) n")
    ends.run("DELETE FROM there WHERE id = 2 AND small > 19990")
    ends.run("ANALYZE")
    given = ends.texts(above=("2", "19990"))
    ends.run("SELECT pg_stat_force_next_flush()")
    before = ends.run(SCANS)
    ends.copy(given)
    ends.sink.close()
    assert ends.run(SCANS) == before


def test_the_source_is_read_along_its_key_whatever_the_server_takes_that_to_cost(ends: Ends) -> None:
    ends.run("INSERT INTO here (id, small) SELECT 10, n FROM generate_series(1, 1000) n")
    ends.run(f"ALTER DATABASE {ends.connection.info.dbname} SET random_page_cost = 10000")
    ends.run("SELECT pg_stat_force_next_flush()")
    before = ends.run(SCANS)
    assert ends.texts().count == 1004
    assert ends.run(SCANS) == before


def test_a_value_that_breaks_a_domains_function_is_named(ends: Ends) -> None:
    ends.run(
        "CREATE FUNCTION known(text) RETURNS bool LANGUAGE plpgsql AS "
        "'BEGIN RAISE EXCEPTION USING ERRCODE = ''XX000''; END'"
    )
    ends.run("CREATE DOMAIN known_body AS text CHECK (known(VALUE))")
    ends.run("ALTER TABLE there ALTER COLUMN body TYPE known_body")
    with pytest.raises(RowsRefusedError, match="column body"):
        ends.copy(ends.texts())


def test_a_writer_whose_epoch_is_over_writes_nothing(ends: Ends) -> None:
    newer = build.claim(table="public.there", epoch=Epoch(1, 2))
    ends.sink.claim(newer)
    with pytest.raises(SinkFencedError):
        ends.copy(ends.texts())
    assert ends.run("TABLE there") == []


def test_a_reader_that_has_enough_leaves_a_session_that_reads_on(ends: Ends) -> None:
    with open_rows(Target(ends.address)) as source:
        lines = source.lines_within("public.here", ["id"], ["id", "small"], Chunk(None, None))
        assert next(lines) == b"-5\n"
        lines.close()  # type: ignore[attr-defined]
        assert list(source.lines_within("public.here", ["small"], ["id", "small"], Chunk(("1", "5"), None))) == [
            b"0\n",
            b"32767\n",
        ]
