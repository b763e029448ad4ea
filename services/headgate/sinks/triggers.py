"""What is said at a feed's creation of target tables that do more than store what they are given."""

from collections.abc import Iterable
from typing import Final

from headgate.config.feed import SinkSpec
from headgate.sinks.contract import TableShape
from headgate.sinks.registry import plug_of

TABLES_SHOWN_MAX: Final = 5
"""The warning is one line of the command's answer. Whoever has more such tables knows the kind by then."""


def trigger_warnings(sink: SinkSpec, shapes: Iterable[TableShape]) -> tuple[str, ...]:
    """A sentence that names the tables' triggers and rules that fire on the sink's writes; nothing without any."""
    found = [f"{shape.table}: {', '.join(shape.fires)}" for shape in shapes if shape.fires]
    if not found:
        return ()
    more = len(found) - TABLES_SHOWN_MAX
    named = "; ".join(found[:TABLES_SHOWN_MAX]) + (f"; and {more} more tables" if more > 0 else "")
    warning = (
        "warning: rows may differ from the source's, because triggers and rules of the target fire on what Headgate "
        f"writes ({named}). {plug_of(sink.type).trigger_advice}"
    )
    return (warning,)
