"""Temporary tables of a writer: a table that is written keeps its own, one that is not written any more loses it."""

import pytest

from headgate.formats.change import Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.contract import ChangeBatch, OffsetRange
from headgate.sinks.relational import writer
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.relational.session import RelationalSettings
from headgate.sinks.relational.writer import RelationalWriter
from support import build

pytestmark = pytest.mark.integration

TABLES = 5


def written(sink: PostgresSink, to: RelationalWriter, name: str, offset: int) -> None:  # type: ignore[type-arg]
    """A batch of one row for a table, claimed for it."""
    epoch = Epoch(1, offset + 1)
    claim = build.claim(table=f"public.{name}", topic=name, epoch=epoch)
    sink.claim(claim)
    change = Change(0, offset, Operation.UPSERT, {"id": offset}, {"id": offset}, None, 0)
    to.apply(ChangeBatch(claim, {0: OffsetRange(offset, offset + 1)}, [change]))


def stages(to: RelationalWriter) -> int:  # type: ignore[type-arg]
    """Temporary tables of the writer's session, which the server tells."""
    assert to._session is not None
    found = to._session.execute("SELECT count(*) FROM pg_catalog.pg_class WHERE relname LIKE 'headgate_stage_%'")
    return int(found[0][0])


def test_stages_of_tables_that_are_not_written_any_more_are_dropped(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = PostgresSink(RelationalSettings(postgres_database))
    to = sink.writer()
    names = [f"t{number}" for number in range(TABLES)]
    for name in (*names, "last"):
        with sink._session("making a table") as session:
            session.execute(f"CREATE TABLE public.{name} (id integer PRIMARY KEY)")
    for name in names:
        written(sink, to, name, 0)
    assert stages(to) == TABLES
    monkeypatch.setattr(writer, "STAGE_SECONDS", -1.0)
    written(sink, to, "last", 0)
    assert stages(to) == 1
    written(sink, to, names[0], 1)
    assert stages(to) == 1, "a table that is written again has a new one"
    to.close()
    sink.close()
