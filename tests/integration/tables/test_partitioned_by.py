"""``partition_by``: what is created, what is refused before a row is written, and tables that are altered later."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest
from pyiceberg.transforms import BucketTransform, YearTransform

from headgate.formats.change import Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.altering import AddedColumn, AltersTables, ColumnChanges
from headgate.sinks.contract import ChangeBatch, Claim, FeedIdentity, OffsetRange, SinkRefusedError
from headgate.sinks.creating import LakeType, NewColumn
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.registry import open_sink
from headgate.tables.creation import create_missing
from headgate.tables.evolution import AtLake, add_columns, fit_columns
from headgate.tables.missing import check_created, check_partitions, plan_missing
from integration.tables.lake_places import IcebergPlace, Place, plan, said

pytestmark = pytest.mark.integration

NAME: Final = "shop.orders"
PLAN: Final = plan(NAME)
SOURCE: Final = """
CREATE SCHEMA shop;
CREATE TABLE shop.orders (
    id int PRIMARY KEY, region text, part int, amount numeric(8,2), ratio real, at timestamptz, wall timestamp,
    raw bytea
);
CREATE TABLE shop.others (id int PRIMARY KEY);
"""


@pytest.fixture(params=[Place, IcebergPlace], ids=["delta", "iceberg"])
def place(postgres_database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    with psycopg.connect(postgres_database, autocommit=True) as source:
        source.execute(SOURCE)
    made: Place = request.param(postgres_database, tmp_path)
    return made


@pytest.fixture
def iceberg(place: Place) -> IcebergPlace:
    return IcebergPlace(place.source, place.folder)


def divided(place: Place, table: str = NAME) -> tuple[str, ...] | None:
    with closing(open_sink(place.feed().sink)) as sink:
        assert isinstance(sink, LakeSink)
        return sink.partitions_of(table)


def refusal(place: Place, by: object, table: str = NAME, **options: object) -> str:
    """Why the feed is refused, which is the same before and when its table is created."""
    spec = place.feed(sink={"partition_by": by}, **options)
    with pytest.raises(SinkRefusedError) as refused:
        check_created(plan_missing(spec, [plan(table)], said))
    with pytest.raises(SinkRefusedError) as again:
        create_missing(spec, plan(table), said)
    assert str(refused.value) == str(again.value)
    assert divided(place, table) is None
    return str(refused.value)


def test_a_table_is_created_as_the_dry_run_shows(place: Place) -> None:
    spec = place.feed(sink={"partition_by": ["region", "part"]})
    missing = plan_missing(spec, [PLAN], said)
    check_created(missing)
    assert f"USING {spec.sink.type.upper()}\nPARTITIONED BY (`region`, `part`)\nTBLPROPERTIES" in missing.tables.text
    assert create_missing(spec, PLAN, said)
    assert divided(place) == ("region", "part")
    check_partitions(spec, [PLAN])
    check_partitions(place.feed(), [PLAN])


def test_transforms_are_shown_as_spark_has_them(iceberg: IcebergPlace) -> None:
    spec = iceberg.feed(sink={"partition_by": "day(at), bucket(16, id), truncate(2, region)"})
    text = plan_missing(spec, [PLAN], said).tables.text
    assert "PARTITIONED BY (day(`at`), bucket(16, `id`), truncate(2, `region`))" in text
    assert create_missing(spec, PLAN, said)
    assert divided(iceberg) == ("day(at)", "bucket(16, id)", "truncate(2, region)")
    names = [field.name for field in iceberg.catalog.load_table(NAME).spec().fields]
    assert names == ["at_day", "id_bucket", "region_trunc"], "as Spark names them"


def test_a_fields_name_is_not_that_of_a_column(iceberg: IcebergPlace) -> None:
    """Iceberg's Java library refuses such tables."""
    spec = iceberg.feed(sink={"partition_by": "day(at)"}, columns={"rename": {"region": "at_day"}})
    assert create_missing(spec, PLAN, said)
    assert [field.name for field in iceberg.catalog.load_table(NAME).spec().fields] == ["at_day_1"]


def test_each_table_may_have_partitions_of_its_own(place: Place) -> None:
    tables = {NAME: {"partition_by": ["part"]}, "shop.others": {"partition_by": []}}
    spec = place.feed(sink={"partition_by": ["region"]}, tables=tables)
    for name, by in ((NAME, ("part",)), ("shop.others", ())):
        assert create_missing(spec, plan(name), said)
        assert divided(place, name) == by
    check_partitions(spec, [PLAN, plan("shop.others")])


def test_what_cannot_divide_the_table_is_refused(place: Place) -> None:
    told = refusal(place, ["regio"])
    assert "column regio: partition_by has regio: Did you mean 'region'? The table does not have this column" in told
    assert "Give the table partition_by of its own in `tables`, [] for none" in refusal(
        place, ["region"], "shop.others"
    )
    assert "partitions of " in refusal(place, ["ratio"])
    assert "tables cannot be of type float. They take" in refusal(place, ["ratio"])
    masked = refusal(place, ["region"], columns={"mask": {"region": {"null": True}}})
    assert "the column is masked (columns.mask). Partition by another one" in masked
    assert "columns leaves the column out" in refusal(place, ["region"], columns={"exclude": ["region"]})
    assert "columns leaves the column out" in refusal(place, ["region"], columns={"include": ["id"]})
    assert "Did you mean 'area'?" in refusal(place, ["aera"], columns={"rename": {"region": "area"}})


@pytest.mark.parametrize(
    ("by", "type_"),
    [
        ("hour(wall_day)", "date"),
        ("day(region)", "string"),
        ("truncate(3, raw)", "binary"),
        ("bucket(4, ratio)", "float"),
    ],
)
def test_types_that_a_transform_does_not_take_are_refused(iceberg: IcebergPlace, by: str, type_: str) -> None:
    told = refusal(iceberg, by, columns={"set": {"wall_day": "CAST(wall AS DATE)"}})
    assert f"partition_by has {by}: " in told
    assert f"of Iceberg tables cannot be of type {type_}. They take " in told


@pytest.mark.parametrize("column", ["amount", "at", "raw"])
def test_columns_whose_texts_readers_take_for_others_are_no_partitions_of_delta(place: Place, column: str) -> None:
    if place.sink["type"] == "delta":
        assert "partitions of Delta tables cannot be of type" in refusal(place, [column])
    else:
        assert create_missing(place.feed(sink={"partition_by": [column]}), PLAN, said)
        assert divided(place) == (column,)


def test_a_delta_table_needs_a_column_that_is_no_partition(place: Place) -> None:
    spec = place.feed(sink={"partition_by": ["id"]})
    if place.sink["type"] == "iceberg":
        assert create_missing(spec, plan("shop.others"), said)
    else:
        assert "names every column" in refusal(place, ["id"], "shop.others")


def test_a_computed_column_takes_the_place_of_a_transform(place: Place) -> None:
    """As the error of a Delta feed advises."""
    spec = place.feed(sink={"partition_by": ["wall_day"]}, columns={"set": {"wall_day": "CAST(wall AS DATE)"}})
    assert create_missing(spec, PLAN, said)
    assert divided(place) == ("wall_day",)


@pytest.mark.parametrize("by", [["part"], []])
def test_a_table_that_is_divided_in_another_way_is_refused(place: Place, by: list[str]) -> None:
    assert create_missing(place.feed(sink={"partition_by": ["region"]}), PLAN, said)
    spec = place.feed(sink={"partition_by": by})
    told = rf"table shop\.orders has the partitions \[region\], and the feed has partition_by: \[{', '.join(by)}\]"
    with pytest.raises(SinkRefusedError, match=rf'{told}.* Write partition_by: \["region"\] for it in `tables`'):
        check_partitions(spec, [PLAN])
    check_partitions(place.feed(sink={"partition_by": by}, tables={NAME: {"partition_by": "region"}}), [PLAN])


class Bed:
    """A table that is divided and altered."""

    def __init__(self, place: Place, *by: str) -> None:
        self.place = place
        self.spec = place.feed(sink={"tables": "evolve", "partition_by": list(by)})
        create_missing(self.spec, PLAN, said)
        found = open_sink(self.spec.sink)
        assert isinstance(found, LakeSink)
        assert isinstance(found, AltersTables)
        self.sink, self.at = found, 0
        self.claim = Claim(FeedIdentity("c", "0-1", "f"), NAME, PLAN.topic, Epoch(1, 1), 1, {0: 0})
        self.sink.claim(self.claim)

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.place.source, autocommit=True) as source:
            source.execute(statement.encode())

    def apply(self, *rows: dict[str, object]) -> None:
        changes = [
            Change(0, self.at + number, Operation.UPSERT, {"id": row["id"]}, row, None, 0)
            for number, row in enumerate(rows)
        ]
        end = self.at + len(rows)
        self.sink.writer().apply(ChangeBatch(self.claim, {0: OffsetRange(self.at, end)}, changes))
        self.at = end

    @property
    def lake(self) -> AtLake:
        return AtLake(self.sink, self.claim, {0: self.at})

    def rows(self, *columns: str) -> list[tuple[object, ...]]:
        found = self.sink.lake().table(NAME)
        assert found is not None
        read = (each for batch in found.scan(columns, None) for each in batch.to_pylist())
        return sorted((tuple(each[name] for name in columns) for each in read), key=lambda row: row[0])


@pytest.fixture(params=[("region", "part"), ("part",)])
def bed(place: Place, request: pytest.FixtureRequest) -> Iterator[Bed]:
    made = Bed(place, *request.param)
    with closing(made.sink):
        made.apply(*({"id": n, "region": f"{n % 2}=/é", "part": n % 2, "amount": f"{n}.50"} for n in range(4)))
        yield made


def test_a_column_with_a_default_is_added_in_all_partitions(bed: Bed) -> None:
    bed.execute("ALTER TABLE shop.orders ADD COLUMN note text DEFAULT 'none'")
    assert add_columns(bed.spec, PLAN, {"note": ""}, said, lake=bed.lake) == ("note",)
    assert bed.rows("id", "region", "part", "note") == [(n, f"{n % 2}=/é", n % 2, "none") for n in range(4)]
    bed.apply({"id": 1, "region": "new", "part": 7, "amount": None, "note": "x"})
    assert bed.rows("id", "part", "note") == [(0, 0, "none"), (1, 7, "x"), (2, 0, "none"), (3, 1, "none")]
    assert divided(bed.place) == bed.spec.sink.partition_by


def test_a_partitions_type_is_widened_and_its_rows_are_found(bed: Bed) -> None:
    bed.execute("ALTER TABLE shop.orders ALTER part TYPE bigint")
    assert fit_columns(bed.spec, PLAN, said, bed.lake).columns == ("part",)
    bed.apply({"id": 1, "region": "new", "part": 2**40, "amount": None})
    assert bed.rows("id", "part") == [(0, 0), (1, 2**40), (2, 0), (3, 1)]
    bed.apply({"id": 1, "region": "new", "part": 0, "amount": None})
    assert bed.rows("id", "part") == [(0, 0), (1, 0), (2, 0), (3, 1)]
    assert divided(bed.place) == bed.spec.sink.partition_by


def test_a_partitions_column_that_the_source_drops_stays(bed: Bed) -> None:
    bed.execute("ALTER TABLE shop.orders DROP COLUMN part")
    bed.apply({"id": 1, "region": "new", "amount": None}, {"id": 9, "region": "new", "amount": None})
    assert bed.rows("id", "part") == [(0, 0), (1, 1), (2, 0), (3, 1), (9, None)]


def text_column(name: str) -> AddedColumn:
    return AddedColumn(NewColumn(name, LakeType(name="string")))


@pytest.fixture
def renaming(iceberg: IcebergPlace) -> Iterator[Callable[..., Bed]]:
    made: list[Bed] = []

    def make(*by: str) -> Bed:
        bed = Bed(iceberg, *by)
        made.append(bed)
        bed.apply({"id": 1, "region": "eu", "part": 1, "at": "2020-01-01T00:00:00Z", "amount": None})
        return bed

    yield make
    for bed in made:
        bed.sink.close()


@pytest.mark.parametrize(
    ("by", "before", "changes", "column"),
    [
        ("day(at)", {}, ColumnChanges(added=(text_column("at_day"),)), "at_day"),
        ("bucket(4, id)", {}, ColumnChanges(renamed={"raw": "id_bucket"}), "id_bucket"),
        ("region", {"region": "area"}, ColumnChanges(added=(text_column("region"),)), "region"),
        ("region", {}, ColumnChanges(added=(text_column("region"),), renamed={"region": "area"}), "region"),
    ],
)
def test_a_column_with_the_name_of_a_field_is_refused_before_anything_is_changed(
    renaming: Callable[..., Bed], by: str, before: dict[str, str], changes: ColumnChanges, column: str
) -> None:
    bed = renaming(by)
    if before:
        assert altered(bed, ColumnChanges(renamed=before))
    known, version = bed.sink.known_columns(bed.claim), current(bed)
    with pytest.raises(
        SinkRefusedError,
        match=rf"table shop\.orders cannot have a column {column}: a partition field .* this name.*columns\.rename",
    ):
        altered(bed, changes)
    assert bed.sink.known_columns(bed.claim) == known
    assert current(bed) == version
    bed.apply({"id": 2, before.get("region", "region"): "us", "part": 1, "amount": None})
    assert len(bed.rows("id")) == 2


def test_a_partitions_column_is_renamed_and_gets_its_name_back(renaming: Callable[..., Bed]) -> None:
    bed = renaming("region")
    assert altered(bed, ColumnChanges(renamed={"region": "area"}))
    assert divided(bed.place) == ("area",)
    bed.apply({"id": 2, "area": "us", "part": 1, "amount": None})
    with pytest.raises(SinkRefusedError, match=r'a column was renamed since\. Write partition_by: \["area"\] for it'):
        check_partitions(bed.spec, [PLAN])
    check_partitions(bed.place.feed(tables={NAME: {"partition_by": ["area"]}}), [PLAN])
    assert altered(bed, ColumnChanges(renamed={"area": "region"}))
    check_partitions(bed.spec, [PLAN])
    assert bed.rows("id", "region") == [(1, "eu"), (2, "us")]


def altered(bed: Bed, changes: ColumnChanges) -> bool:
    present = bed.sink.present_table(NAME)
    assert present is not None
    return bed.sink.alter(bed.claim, {0: bed.at}, present, changes)


def current(bed: Bed) -> str:
    assert isinstance(bed.place, IcebergPlace)
    return bed.place.catalog.load_table(NAME).metadata_location


def test_partitions_that_no_feed_can_name_are_not_advised(iceberg: IcebergPlace) -> None:
    spec = iceberg.feed(sink={"partition_by": "day(at)"})
    assert create_missing(spec, PLAN, said)
    with iceberg.catalog.load_table(NAME).update_spec() as update:
        update.add_field("at", YearTransform(), "at_year")
        update.remove_field("at_day")
        update.add_field("at", BucketTransform(4), "at_bucket")
    with pytest.raises(SinkRefusedError, match="Remove partition_by, for the feed and for the table"):
        check_partitions(spec, [PLAN])
