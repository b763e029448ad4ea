"""Lake tables that do not exist are created from the source's definition, whoever else creates and whoever dies."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Final

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.config.feed import FeedSpec
from headgate.formats.change import Change, Operation
from headgate.formats.column_schema import ColumnSchema, EventSchema
from headgate.records.control import Epoch
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange, SinkRefusedError
from headgate.sinks.lake.appended import OWN_COLUMNS
from headgate.sinks.registry import open_sink
from headgate.tables.creation import create_missing
from headgate.tables.missing import check_created, plan_missing
from integration.tables.lake_places import IcebergPlace, Place, fields, plan, said

pytestmark = pytest.mark.integration

SOURCE: Final = """
CREATE SCHEMA shop;
CREATE TYPE public.mood AS ENUM ('glad', 'so, so');
CREATE TABLE shop.orders (id bigint PRIMARY KEY, feels mood, total numeric(12,2) NOT NULL DEFAULT 0, at timestamptz);
CREATE TABLE shop.audit (at timestamptz);
CREATE TABLE shop.wide (id bigint PRIMARY KEY, amount numeric, much numeric(40,2));
CREATE TABLE shop.odd (id bigint PRIMARY KEY, "a b" int, "A" int, a int, _offset int);
COMMENT ON TABLE shop.orders IS 'all of ''them''';
COMMENT ON COLUMN shop.orders.total IS 'in euros';
"""


@pytest.fixture
def place(postgres_database: str, tmp_path: Path) -> Place:
    with psycopg.connect(postgres_database, autocommit=True) as source:
        source.execute(SOURCE)
    return Place(postgres_database, tmp_path)


@pytest.fixture(params=[Place, IcebergPlace], ids=["delta", "iceberg"])
def lake(place: Place, request: pytest.FixtureRequest) -> Place:
    """Each kind of lake."""
    made: Place = request.param(place.source, place.folder)
    return made


ORDERS: Final = [
    ("id", pa.int64(), False),
    ("feels", pa.string(), True),
    ("total", pa.decimal128(12, 2), True),
    ("at", pa.timestamp("us", "UTC"), True),
]


def test_a_missing_table_is_created_once_and_the_sink_takes_it(lake: Place) -> None:
    spec = lake.feed()
    assert spec.creates_tables, "because it names its source's database"
    assert create_missing(spec, plan("shop.orders"), said)
    assert lake.fields("shop.orders") == ORDERS
    assert lake.comments("shop.orders", "total") == ("all of 'them'", "in euros")
    assert not create_missing(spec, plan("shop.orders"), said)
    with closing(open_sink(spec.sink)) as sink:
        assert sink.check(["shop.orders"])["shop.orders"].key == ("id",)


def test_a_table_of_changes_has_headgates_columns_and_needs_no_key(lake: Place) -> None:
    spec = lake.feed("append")
    own = [(name, type_, True) for name, type_ in OWN_COLUMNS.items()]
    for name, columns in (("shop.orders", ORDERS), ("shop.audit", [ORDERS[3]])):
        assert create_missing(spec, plan(name), said)
        assert lake.fields(name) == [(column, type_, True) for column, type_, _ in columns] + own
    with closing(open_sink(spec.sink)) as sink:
        assert sink.check(["shop.audit"])["shop.audit"].key == ()


def test_an_iceberg_table_that_was_created_takes_rows(place: Place) -> None:
    spec = IcebergPlace(place.source, place.folder).feed()
    create_missing(spec, plan("shop.orders"), said)
    claim = Claim(FeedIdentity("c", "0-1", "f"), "shop.orders", "t.shop.orders", Epoch(1, 1), 1, {0: 0})
    row: dict[str, object] = {"id": 1, "feels": "glad", "total": "9999999999.99", "at": None}
    with closing(open_sink(spec.sink)) as sink:
        sink.claim(claim)
        change = Change(0, 0, Operation.UPSERT, {"id": 1}, row, None, 0)
        sink.writer().apply(ChangeBatch(claim, {0: OffsetRange(0, 1)}, [change]))
    found = IcebergPlace(place.source, place.folder).catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    assert found == [row | {"total": Decimal("9999999999.99")}]
    missing = plan_missing(spec, [plan("shop.audit"), plan("shop.orders")], said)
    assert "CREATE" not in missing.tables.text, "one exists, the other one has no key"


def test_a_table_without_a_key_is_refused_where_rows_are_found_by_it(place: Place) -> None:
    with pytest.raises(SinkRefusedError, match=r"shop\.audit has no primary key. Add one, or set sink.mode: append"):
        create_missing(place.feed(), plan("shop.audit"), said)
    assert not (place.folder / "shop").exists()


def test_what_no_type_holds_is_refused_with_the_option_that_helps(place: Place) -> None:
    with pytest.raises(SinkRefusedError) as refused:
        create_missing(place.feed(), plan("shop.wide"), said)
    told = str(refused.value)
    assert "column amount: a numeric without a precision has up to 147455 digits" in told
    assert 'sink.types: {"shop.wide.amount": "string"}' in told
    assert "column much: a decimal of a lake has at most 38 digits, and this one has 40" in told
    chosen = {"shop.wide.amount": "decimal(38, 9)", "shop.wide.much": "TEXT"}
    assert create_missing(place.feed(sink={"types": chosen}), plan("shop.wide"), said)
    assert [type_ for _, type_, _ in fields(place.table("shop.wide"))[1:]] == [pa.decimal128(38, 9), pa.string()]


@pytest.mark.parametrize(
    "type_", ["varchar(10)", "decimal(39,2)", "decimal(3,4)", "int(4)", "time", "timestamp(3)", ""]
)
def test_another_type_is_refused(place: Place, type_: str) -> None:
    if not type_:
        with pytest.raises(ValueError, match=r"shop\.wide\.amount has no type"):
            place.feed(sink={"types": {"shop.wide.amount": type_}})
        return
    spec = place.feed(sink={"types": {"shop.wide.amount": type_, "shop.wide.much": "string"}})
    with pytest.raises(SinkRefusedError, match=r"is not a type of a lake. Write one of boolean, tinyint"):
        create_missing(spec, plan("shop.wide"), said)


def test_a_column_that_the_table_lacks_is_no_place_for_a_type(place: Place) -> None:
    spec = place.feed(sink={"types": {"shop.orders.totl": "string"}})
    with pytest.raises(SinkRefusedError, match=r"column totl: the table does not have this column"):
        create_missing(spec, plan("shop.orders"), said)


def test_names_that_spark_refuses_and_those_that_are_taken_are_refused(place: Place) -> None:
    with pytest.raises(SinkRefusedError) as refused:
        create_missing(place.feed("append"), plan("shop.odd"), said)
    told = str(refused.value)
    assert "the name 'a b' has a character that names cannot have there: ' '. Rename it with columns.rename" in told
    assert told.count("the same name but for upper and lower case") == 2
    assert "with sink.mode: append Headgate writes a column _offset itself" in told
    renamed = {"a b": "ab", "A": "other", "_offset": "at_offset"}
    assert create_missing(place.feed("append", columns={"rename": renamed}), plan("shop.odd"), said)


def test_the_dry_run_shows_sparks_statement(place: Place) -> None:
    missing = plan_missing(place.feed(), [plan("shop.orders")], said)
    check_created(missing)
    assert missing.tables.text == (
        "-- Tables that are missing at the sink, written by Headgate.\n"
        "\n"
        f"CREATE TABLE delta.`{place.folder}/shop/orders` (\n"
        "  `id` bigint NOT NULL,\n"
        "  `feels` string,\n"
        "  `total` decimal(12,2) COMMENT 'in euros',\n"
        "  `at` timestamp\n"
        ") USING DELTA\n"
        "COMMENT 'all of \\'them\\''\n"
        "TBLPROPERTIES ('headgate.key' = '[\"id\"]');\n"
    ).replace("\n\nCREATE", "\n\n" + _notes(missing.tables.text) + "CREATE")
    assert not list(place.folder.iterdir()), "nothing was created"


def _notes(text: str) -> str:
    """The comments on the table."""
    lines = text.split("\n")[2:]
    return "".join(f"{line}\n" for line in lines if line.startswith("--"))


def test_without_a_source_database_events_define_the_table(place: Place) -> None:
    spec = FeedSpec.model_validate(
        {
            "feed": "f",
            "source": {"topics": ["t.shop.things"]},
            "sink": {"type": "delta", "dsn": f"file://{place.folder}", "tables": "create"},
        }
    )
    schema = EventSchema(
        connector="postgresql",
        columns=(
            ColumnSchema(name="id", meaning="int64", is_optional=False),
            ColumnSchema(name="at", meaning="io.debezium.time.ZonedTimestamp", is_optional=True),
        ),
        key=("id",),
    )
    assert create_missing(spec, plan("shop.things"), said, lambda _: schema)
    assert fields(place.table("shop.things")) == [ORDERS[0], ORDERS[3]]
    with pytest.raises(SinkRefusedError, match=r"no newest event of topic t\.shop\.others has a schema"):
        create_missing(spec, plan("shop.others"), said)


def test_of_creators_at_once_one_creates_and_all_find_the_table(lake: Place) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: create_missing(lake.feed(), plan("shop.orders"), said), range(8)))
    assert any(made)
    assert lake.fields("shop.orders") == ORDERS
    if type(lake) is Place:
        table = lake.table("shop.orders")
        assert (table.version(), len(table.history())) == (0, 1)


def die_while_creating(source: str, folder: str, at: str) -> None:
    """In a process of its own."""
    from headgate.sinks.delta import engine

    if at == "folder":
        engine.DeltaTable.create = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment]
    create_missing(Place(source, Path(folder)).feed(), plan("shop.orders"), said)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("at", ["folder", "table"])
def test_a_creator_that_is_killed_leaves_nothing_in_the_way(place: Place, at: str) -> None:
    run = f"import sys; from {__name__} import die_while_creating as run; run(*sys.argv[1:])"
    mortal = subprocess.run(
        [sys.executable, "-c", run, place.source, str(place.folder), at],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        check=False,
    )
    assert mortal.returncode == -signal.SIGKILL, mortal.stderr.decode()
    assert create_missing(place.feed(), plan("shop.orders"), said) == (at == "folder")
    assert fields(place.table("shop.orders")) == ORDERS


def test_a_table_that_was_written_and_dropped_is_not_created_again(lake: Place) -> None:
    spec = lake.feed()
    create_missing(spec, plan("shop.orders"), said)
    claim = Claim(FeedIdentity("c", "0-1", "f"), "shop.orders", "t.shop.orders", Epoch(1, 1), 1, {0: 0})
    with closing(open_sink(spec.sink)) as sink:
        assert sink.is_new(claim)  # type: ignore[attr-defined]
        sink.claim(claim)
        lake.drop("shop.orders")
        assert not sink.is_new(claim)  # type: ignore[attr-defined]


def test_a_table_of_another_shape_is_left_as_it_is(place: Place) -> None:
    folder = place.folder / "shop" / "orders"
    DeltaTable.create(folder, pa.schema([("other", pa.string())]))
    assert not create_missing(place.feed(), plan("shop.orders"), said)
    assert fields(place.table("shop.orders")) == [("other", pa.string(), True)]
    assert json.loads((folder / "_delta_log" / "00000000000000000000.json").read_text().splitlines()[0])
