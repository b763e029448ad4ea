"""The columns of spans in tables for people."""

from collections.abc import Iterable, Mapping

from headgate.records.slices import slice_of

__all__ = ["span_columns"]


def span_columns(rows: Iterable[Mapping[str, object]], *whose: str) -> tuple[str, ...]:
    """Behind ``whose``. With the source's topic if several sources go to one table: a span's name is the target's."""
    is_shared = any(slice_of(str(row["table"])) is not None for row in rows)
    source = ("topic",) if is_shared else ()
    return (*whose, "span", *source, "state", "agent", "epoch", "applied", "lag_ms", "error")
