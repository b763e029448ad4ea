"""Rows as lines of LOAD DATA, from one MariaDB into a table of another that is being written."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from fixtures.services import mariadb_connect
from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.mysql.row_source import open_rows
from headgate.databases.mysql.types import line_octets
from headgate.databases.row_source import RowSourceError
from headgate.formats.change import CONNECTOR, DECIMALS
from headgate.records.control import Epoch
from headgate.sinks.contract import Claim, SinkFencedError
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.mysql.staging import MysqlStage
from headgate.sinks.relational.session import RelationalSettings
from headgate.sinks.row_copying import CopiedTexts, RowsRefusedError
from integration.sinks.copied_ends import copy_texts
from support import build

pytestmark = pytest.mark.integration

COLUMNS = {
    "id": ("bigint unsigned", ("0", "1", "2", "18446744073709551615")),
    "small": ("smallint", ("-32768", "5", "0", "32767")),
    "filled": ("int(6) unsigned zerofill", ("7", "NULL", "0", "4294967295")),
    "word": ("varchar(40)", ("''", r"'a\tb\nc'", r"'\\N'", r"'\\\\back\b\r\0\Z\"''%s'")),
    "padded": ("char(5)", ("'a'", "''", "NULL", "'é😀xyz'")),
    "body": ("text", ("NULL", "REPEAT('é', 30000)", "'x'", r"REPEAT('\\', 65535)")),
    "short": ("tinytext", ("'NULL'", "NULL", "''", r"'\\.'")),
    "latin": ("varchar(20) CHARACTER SET latin1", ("'é'", "'€'", "NULL", "'  '")),
    "amount": ("decimal(65,30)", ("-0.01", "99999999999999999999999999999999999.9", "NULL", "0")),
    "day": ("date", ("'0001-01-01'", "'9999-12-31'", "NULL", "'2024-02-29'")),
    "hour": ("time(6)", ("'-838:59:59.999999'", "'838:59:59'", "NULL", "'00:00:00.000001'")),
    "at": (
        "timestamp(3) NULL",
        ("'2038-01-19 03:14:07'", "'1970-01-01 00:00:01'", "NULL", "'2024-03-31 02:30:00'"),
    ),
    "local": ("datetime(6)", ("'0001-01-01'", "'9999-12-31 23:59:59.999999'", "NULL", "'2024-03-31 02:30:00'")),
    "harvest": ("year", ("0000", "2155", "NULL", "1901")),
}
KEYS = [", ".join(key) for key in zip(COLUMNS["id"][1], COLUMNS["small"][1], strict=True)]
AS_ROWS = [
    "bit(9)", "float", "double", "varbinary(9)", "blob", "json", "mediumtext", "enum('a')", "set('a')", "uuid", "inet6",
]  # fmt: skip


class Ends:
    """Tables ``here`` and ``there``, equal but for their rows."""

    def __init__(self, url: str) -> None:
        self.sink, self.url, self.database = MysqlSink(RelationalSettings(url)), url, urlsplit(url).path.strip("/")
        self.connection = mariadb_connect(url)
        self.run("SET SESSION sql_mode = '', time_zone = '+00:00'")
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
        self.run(f"CREATE TABLE here ({columns}, PRIMARY KEY (id, small))")
        self.run("CREATE TABLE there LIKE here")
        for row in zip(*(values for _, values in COLUMNS.values()), strict=True):
            self.run(f"INSERT INTO here VALUES ({', '.join(row)})")
        self.claim = build.claim(table=f"{self.database}.there")
        self.positions = self.sink.claim(self.claim)

    def run(self, statement: str) -> list[tuple[object, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def texts(self) -> CopiedTexts:
        table = f"{self.database}.here"
        with open_rows(Target(self.url)) as source:
            known = source.declared(table)
            lines = list(source.lines_within(table, list(known), ["id", "small"], Chunk(None, None)))
        halves = [b"".join(lines[:2]), b"".join(lines[2:])]
        return CopiedTexts(columns=tuple(known), declared=tuple(known.values()), blocks=halves, count=len(lines))

    def copy(self, texts: CopiedTexts, claim: Claim | None = None) -> None:
        copy_texts(self.sink, claim or self.claim, self.positions, {CONNECTOR: "mysql", DECIMALS: "string"}, texts)

    def are_equal(self) -> bool:
        here, there = (
            self.run(f"SELECT {', '.join(f'HEX({name})' for name in COLUMNS)} FROM {table} ORDER BY id")
            for table in ("here", "there")
        )
        return here == there

    @property
    def mark(self) -> tuple[str, ...] | None:
        return self.sink.copied(self.claim, "r").upto


@pytest.fixture
def ends(mariadb_database: str) -> Iterator[Ends]:
    made = Ends(mariadb_database)
    with closing(made.connection):
        yield made


def test_rows_are_staged_without_being_taken_apart(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MysqlStage, "_send", None)
    texts = ends.texts()
    assert texts.columns == tuple(COLUMNS)
    ends.copy(texts)
    assert ends.are_equal()
    assert ends.mark == ("2", "0")


def test_a_key_that_the_target_counts_by_itself_is_staged_as_well(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MysqlStage, "_send", None)
    ends.run("ALTER TABLE there MODIFY id bigint unsigned AUTO_INCREMENT")
    ends.copy(ends.texts())
    assert ends.are_equal()


def test_the_same_lines_as_rows_are_the_same_values(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MysqlStage, "takes_texts", lambda _stage, _texts: False)
    ends.copy(ends.texts())
    assert ends.are_equal()


@pytest.mark.parametrize("mode", ["NO_BACKSLASH_ESCAPES", "ANSI", "PIPES_AS_CONCAT,ANSI_QUOTES"])
def test_a_servers_mode_changes_no_line(ends: Ends, mode: str) -> None:
    (was,) = ends.run("SELECT @@GLOBAL.sql_mode")[0]
    ends.run(f"SET GLOBAL sql_mode = '{mode}'")
    try:
        ends.copy(ends.texts())
    finally:
        ends.run(f"SET GLOBAL sql_mode = '{was}'")
    assert ends.are_equal()


@pytest.mark.parametrize("known", [KEYS[:1], KEYS[1:3], KEYS])
def test_rows_that_the_target_has_are_overwritten(ends: Ends, known: Sequence[str]) -> None:
    for key in known:
        ends.run(f"INSERT INTO there (id, small, word) VALUES ({key}, 'older')")
    ends.copy(ends.texts())
    assert ends.are_equal()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE there MODIFY word varchar(50)",
        "ALTER TABLE there MODIFY word varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "ALTER TABLE there ADD COLUMN more int DEFAULT 7",
        "CREATE TRIGGER t BEFORE INSERT ON there FOR EACH ROW SET @seen = 1",
    ],
    ids=["another type", "another collation", "another column", "a trigger"],
)
def test_a_table_that_is_not_like_the_source_s_gets_rows(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ends.run(change)
    monkeypatch.setattr(MysqlStage, "stage_texts", None)
    ends.copy(ends.texts())
    assert ends.are_equal()


@pytest.mark.parametrize("kind", AS_ROWS)
def test_a_type_whose_text_is_not_its_value_is_in_no_line(ends: Ends, kind: str) -> None:
    ends.run(f"CREATE TABLE other (id int PRIMARY KEY, v {kind})")
    with open_rows(Target(ends.url)) as source:
        assert list(source.declared(f"{ends.database}.other")) == ["id"]


def test_there_are_no_lines_that_may_be_longer_than_a_packet(ends: Ends) -> None:
    texts = ", ".join(f"t{number} text" for number in range(150))
    ends.run(f"CREATE TABLE other (id int PRIMARY KEY, {texts})")
    with open_rows(Target(ends.url)) as source:
        assert source.declared(f"{ends.database}.other") == {}


PACKET = 127 << 10
"""Octets: fewer than a text of 64 KiB can have in a line."""


@pytest.fixture
def packet(ends: Ends) -> Iterator[int]:
    """The server's max_allowed_packet as it was. Sessions that are opened from now on have PACKET."""
    ((was,),) = ends.run("SELECT @@GLOBAL.max_allowed_packet")
    ends.run(f"SET GLOBAL max_allowed_packet = {PACKET}")
    try:
        yield int(str(was))
    finally:
        ends.run(f"SET GLOBAL max_allowed_packet = {was}")


@pytest.mark.parametrize("charset", ["latin1", "utf8mb4"])
@pytest.mark.usefixtures("packet")
def test_no_lines_of_a_text_that_may_be_longer_than_a_packet(ends: Ends, charset: str) -> None:
    ends.run(f"CREATE TABLE other (id int PRIMARY KEY, body text CHARACTER SET {charset})")
    with open_rows(Target(ends.url)) as source:
        assert source.declared(f"{ends.database}.other") == {}


@pytest.mark.parametrize("charset", ["latin1", "utf8mb4"])
@pytest.mark.parametrize("value", ["€", "\\", "😀", "x"])
def test_a_line_is_never_longer_than_its_columns_are_said_to_be(ends: Ends, charset: str, value: str) -> None:
    if value.encode("cp1252", "ignore") == b"" and charset == "latin1":
        pytest.skip("latin1 has no such character")
    octets = 1 if charset == "latin1" else len(value.encode())
    kinds = {"text": 65535 // octets, "tinytext": 255 // octets, "varchar(200)": 200, "char(200)": 200}
    ends.run(
        f"CREATE TABLE other (id int PRIMARY KEY, {', '.join(f'`{kind}` {kind}' for kind in kinds)}) "
        f"CHARACTER SET {charset}"
    )
    values = ", ".join(f"REPEAT('{value * 2 if value == chr(92) else value}', {count})" for count in kinds.values())
    ends.run(f"INSERT INTO other VALUES (1, {values})")
    with open_rows(Target(ends.url)) as source:
        for kind in kinds:
            (line,) = source.lines_within(f"{ends.database}.other", [kind], ["id"], Chunk(None, None))
            said = line_octets(kind.partition("(")[0], kind)
            assert said is not None
            assert len(line) <= said


@pytest.mark.parametrize("charset", ["latin1", "utf8mb4"])
@pytest.mark.parametrize(
    ("value", "columns"), [(r"REPEAT('\\', 65535)", 1), (r"REPEAT('\\', 40000)", 2), ("REPEAT('é', 32767)", 3)],
    ids=["a field", "a line of fields that are escaped", "a line of fields that are not"],
)  # fmt: skip
def test_a_line_that_is_longer_than_a_packet_is_an_error(
    ends: Ends, request: pytest.FixtureRequest, charset: str, value: str, columns: int
) -> None:
    """The packet became smaller after the columns were asked for."""
    names = [f"t{number}" for number in range(columns)]
    texts = ", ".join(f"{name} text CHARACTER SET {charset}" for name in names)
    ends.run(f"CREATE TABLE other (id int PRIMARY KEY, {texts})")
    ends.run(f"INSERT INTO other VALUES (1{', NULL' * columns}), (2{f', {value}' * columns})")
    request.getfixturevalue("packet")
    with open_rows(Target(ends.url)) as source:
        lines = source.lines_within(f"{ends.database}.other", ["id", *names], ["id"], Chunk(None, None))
        assert next(lines) == b"1" + b"\t\\N" * columns + b"\n"
        with pytest.raises(RowSourceError, match=r"cannot be read as one text: .* because .*\. Increase max_allowed"):
            list(lines)


def test_a_zero_date_in_a_column_without_nulls_is_no_null(ends: Ends) -> None:
    """A condition of a WHERE takes it for one."""
    ends.run("CREATE TABLE other (id int PRIMARY KEY, day date NOT NULL, local datetime NOT NULL)")
    ends.run("INSERT INTO other VALUES (1, 0, 0)")
    with open_rows(Target(ends.url)) as source:
        lines = source.lines_within(f"{ends.database}.other", ["day", "local"], ["id"], Chunk(None, None))
        assert list(lines) == [b"0000-00-00\t0000-00-00 00:00:00\n"]


@pytest.mark.parametrize("value", ["'0000-00-00'", "'2024-00-10'", "'2024-02-00'"])
def test_a_zero_date_is_refused_by_its_column(ends: Ends, value: str) -> None:
    ends.run(f"UPDATE here SET day = {value} WHERE id = 2")
    with pytest.raises(RowsRefusedError, match="column day"):
        ends.copy(ends.texts())
    assert ends.run("SELECT * FROM there") == []
    assert ends.mark is None


def test_null_for_a_column_that_replaces_it_is_refused(ends: Ends) -> None:
    ends.run("ALTER TABLE there MODIFY at timestamp(3) NOT NULL DEFAULT '2000-01-01'")
    with pytest.raises(RowsRefusedError, match="column at"):
        ends.copy(ends.texts())
    assert ends.run("SELECT * FROM there") == []


@pytest.mark.parametrize("line", [b"5\t5\n", b"5\t5" + b"\t\\N" * 20 + b"\n", b"x" + b"\t1" + b"\t\\N" * 12 + b"\n"])
def test_a_line_that_is_none_of_the_tables_writes_nothing(ends: Ends, line: bytes) -> None:
    texts = ends.texts()
    wrong = CopiedTexts(columns=texts.columns, declared=texts.declared, blocks=[line], count=1)
    with pytest.raises((RowsRefusedError, ValueError)):
        ends.copy(wrong)
    assert ends.run("SELECT * FROM there") == []


def test_rows_that_are_refused_leave_nothing_behind(ends: Ends) -> None:
    ends.run("ALTER TABLE there ADD UNIQUE (short(9)), MODIFY small smallint")
    ends.run("UPDATE here SET short = 'same'")
    with pytest.raises(RowsRefusedError, match="there"):
        ends.copy(ends.texts())
    assert ends.run("SELECT * FROM there") == []
    assert ends.mark is None


def test_a_writer_whose_epoch_is_over_writes_nothing(ends: Ends) -> None:
    newer = build.claim(table=f"{ends.database}.there", epoch=Epoch(1, 2))
    ends.sink.claim(newer)
    with pytest.raises(SinkFencedError):
        ends.copy(ends.texts())
    assert ends.run("SELECT * FROM there") == []
