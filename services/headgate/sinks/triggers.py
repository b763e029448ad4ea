"""Warnings at a feed's creation about target tables with triggers or rules that fire on Headgate's writes."""

from collections.abc import Iterable

from headgate.config.sink_spec import SinkSpec
from headgate.records.name_lists import shown_names
from headgate.sinks.contract import TableShape
from headgate.sinks.registry import plug_of


def trigger_warnings(sink: SinkSpec, shapes: Iterable[TableShape]) -> tuple[str, ...]:
    """A sentence that names the tables' triggers and rules that fire on the sink's writes; nothing without any."""
    found = [f"{shape.table}: {', '.join(shape.fires)}" for shape in shapes if shape.fires]
    if not found:
        return ()
    warning = (
        "warning: rows may differ from the source's, because triggers and rules of the target fire on Headgate's "
        f"writes ({shown_names(found, '; ')}). {plug_of(sink.type).trigger_advice}"
    )
    return (warning,)
