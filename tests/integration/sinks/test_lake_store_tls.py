"""Lake tables in an object store whose certificate a private CA has signed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from headgate.config.sink_spec import SinkSpec
from headgate.databases.key_ranges import Chunk
from headgate.records.control import Epoch
from headgate.sinks.contract import Claim, SinkRefusedError
from headgate.sinks.creating import LakeType, NewColumn, NewTable
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.registry import open_sink
from integration.sinks.contract import FEED, batch_of, delete, upsert
from integration.sinks.iceberg_bench import in_database, new_catalog
from integration.sinks.lake_stores import PLACE, Store, a_store
from integration.sinks.test_lake_in_object_store import DEFAULT, soon

pytestmark = pytest.mark.integration

TABLE: Final = "shop.orders"
COLUMNS: Final = (
    NewColumn("id", LakeType(name="bigint"), is_nullable=False),
    NewColumn("value", LakeType(name="string")),
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with a_store(tmp_path, monkeypatch, tls=True) as found:
        yield found


@pytest.fixture(params=["delta", "iceberg"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    if request.param == "iceberg":
        new_catalog(catalog, PLACE)
    return {"type": request.param, "dsn": PLACE if request.param == "delta" else in_database(catalog, PLACE)}


def opened(place: dict[str, str], store: Store, ca_file: str | None) -> LakeSink:
    options = {name: value for name, value in store.options.items() if name != "ca_file"}
    if ca_file is not None:
        options["ca_file"] = ca_file
    found = open_sink(SinkSpec.model_validate({**place, "store": options}))
    assert isinstance(found, LakeSink)
    return found


def test_a_table_is_written_read_and_maintained(place: dict[str, str], store: Store) -> None:
    sink = opened(place, store, str(store.server.ca_file))
    assert sink.create(NewTable(TABLE, COLUMNS, ("id",)))
    claim = Claim(FEED, TABLE, "shop.public.orders", Epoch(3, 1), 0, {0: 5})
    sink.claim(claim)
    for offset in range(5, 8):
        sink.writer().apply(batch_of(claim, offset, upsert(offset, offset, "a")))
    sink.writer().apply(batch_of(claim, 8, upsert(8, 5, "b"), delete(9, 6)))
    assert dict(sink.rows().rows_within(TABLE, ["value"], ["id"], Chunk(None, None))) == {"5": "b", "7": "a"}
    assert sink.maintain(claim, DEFAULT, soon()).files_after == 1


def test_a_certificate_that_is_not_trusted_is_named_as_the_cause(place: dict[str, str], store: Store) -> None:
    with pytest.raises(SinkRefusedError, match=r"certificate that is not trusted. Name .* in sink\.store\.ca_file"):
        opened(place, store, None).lacks(TABLE)


def test_a_file_without_a_certificate_is_refused(place: dict[str, str], store: Store, tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing.pem", tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(SinkRefusedError, match=r"sink\.store\.ca_file: cannot read .*missing\.pem"):
        opened(place, store, str(missing)).lacks(TABLE)
    with pytest.raises(SinkRefusedError, match=r"sink\.store\.ca_file: .*empty\.pem is not a file with a certificate"):
        opened(place, store, str(empty)).lacks(TABLE)


def test_the_libraries_errors_are_known_while_a_table_is_used(place: dict[str, str], store: Store) -> None:
    sink = opened(place, store, str(store.server.ca_file))
    sink.create(NewTable(TABLE, COLUMNS, ("id",)))
    with pytest.raises(SinkRefusedError, match="certificate that is not trusted"):
        list(opened(place, store, None).rows().rows_within(TABLE, ["value"], ["id"], Chunk(None, None)))
