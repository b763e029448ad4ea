"""Keys of a collation of ICU that is not deterministic, on a real server that has ICU.

The wheel that the other tests take their server from was built without ICU. Debian's was built with it, and containers
have it: if the server of the tests has none, one that the machine has is started. Two keys that such a collation takes
for one are refused, and no row is overwritten.
"""

import uuid
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from fixtures.installed_postgres import postgres_with_icu
from headgate.formats.change import ABSENT, Change, Operation
from headgate.sinks.contract import (
    Applied,
    ChangeBatch,
    ConstraintViolatedError,
    OffsetRange,
    ValueRefusedError,
)
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from support import build

pytestmark = pytest.mark.integration

SAYS = r"treats as equal.*not deterministic.*Make it text with a deterministic collation"

COLLATIONS = """
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION no_accent (provider = icu, locale = 'und-u-ks-level1-kc-true', deterministic = false);
CREATE COLLATION normal (provider = icu, locale = 'und', deterministic = false);
CREATE COLLATION punctuation (provider = icu, locale = 'und-u-ka-shifted', deterministic = false);
CREATE DOMAIN label AS varchar(20) COLLATE no_case;
"""
"""What differs in case; in accents; in how one letter is composed; in spaces and punctuation: is the same."""


@pytest.fixture(scope="module")
def icu_dsn(postgres_dsn: str) -> Iterator[str]:
    with postgres_with_icu(postgres_dsn) as dsn:
        yield dsn


class Table:
    """public.t with a key column of one type, claimed by a sink."""

    def __init__(self, sink: PostgresSink, connection: psycopg.Connection) -> None:
        self._sink, self._writer, self._connection = sink, sink.writer(), connection
        self._claim = build.claim(topic="shop.t")
        sink.claim(self._claim)

    def apply(self, *changes: Change) -> Applied:
        begin = self._sink.positions(self._claim)[0]
        return self._writer.apply(ChangeBatch(self._claim, {0: OffsetRange(begin, changes[-1].offset + 1)}, changes))

    def rows(self) -> list[tuple[object, ...]]:
        return self._connection.execute("SELECT * FROM t ORDER BY v").fetchall()

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def table(icu_dsn: str, request: pytest.FixtureRequest) -> Iterator[Table]:
    """The parameter is the definition of t."""
    name = f"icu_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(icu_dsn, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    dsn = psycopg.conninfo.make_conninfo(icu_dsn, dbname=name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(COLLATIONS)
        connection.execute(f"CREATE TABLE t ({request.param})")
        with closing(Table(PostgresSink(RelationalSettings(dsn)), connection)) as table:
            yield table
    with psycopg.connect(icu_dsn, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def put(offset: int, k: str, v: object) -> Change:
    return Change(0, offset, Operation.UPSERT, {"k": k}, {"k": k, "v": v, "w": "w"}, None, 0)


def drop(offset: int, k: str) -> Change:
    return Change(0, offset, Operation.DELETE, {"k": k}, None, None, 0)


ONE_FOR_THE_COLLATION = [
    pytest.param("k text COLLATE no_case PRIMARY KEY, v int, w text", "a", "A", id="case"),
    pytest.param("k varchar(9) COLLATE no_accent PRIMARY KEY, v int, w text", "resume", "résumé", id="accents"),
    pytest.param("k text COLLATE normal PRIMARY KEY, v int, w text", "\u00e9", "e\u0301", id="composition"),
    pytest.param("k text COLLATE punctuation PRIMARY KEY, v int, w text", "ab", "a-b ", id="punctuation"),
    pytest.param("k label PRIMARY KEY, v int, w text", "a", "A", id="domain"),
]


@pytest.mark.parametrize(("table", "first", "second"), ONE_FOR_THE_COLLATION, indirect=["table"])
@pytest.mark.parametrize("together", [True, False])
def test_keys_that_the_collation_takes_for_one_are_refused_and_overwrite_nothing(
    table: Table, first: str, second: str, *, together: bool
) -> None:
    if together:
        assert table.apply(put(0, first, 1), put(1, second, 2)).positions == {0: 1}
    else:
        table.apply(put(0, first, 1))
    with pytest.raises(ValueRefusedError, match=SAYS):
        table.apply(put(1, second, 2))
    with pytest.raises(ConstraintViolatedError, match="the sink does not have the row"):
        table.apply(put(1, second, ABSENT))
    assert table.apply(drop(1, second)).deletes == 0
    assert table.rows() == [(first, 1, "w")]
    table.apply(put(2, first, ABSENT))
    table.apply(put(3, first, 3))
    assert table.rows() == [(first, 3, "w")]


@pytest.mark.parametrize(("table", "first", "second"), ONE_FOR_THE_COLLATION, indirect=["table"])
def test_a_row_takes_the_place_of_one_that_was_deleted_before(table: Table, first: str, second: str) -> None:
    """The source's key was changed to one that the collation takes for the same: a delete, then an insert."""
    table.apply(put(0, first, 1))
    table.apply(drop(1, first), put(2, second, 2))
    assert table.rows() == [(second, 2, "w")]


@pytest.mark.parametrize("table", ["k text COLLATE no_case PRIMARY KEY, v int, w text"], indirect=True)
def test_keys_that_differ_for_the_collation_too_are_written(table: Table) -> None:
    rows = [put(offset, f"Key {offset}", offset) for offset in range(200)]
    assert table.apply(*rows).upserts == 200
    assert table.apply(*(drop(200 + offset, f"Key {offset}") for offset in range(1, 200))).deletes == 199
    assert table.rows() == [("Key 0", 0, "w")]
