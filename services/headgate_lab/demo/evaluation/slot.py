"""A replication slot that an earlier run of the evaluation has read from, and that does not exist any more."""

from pathlib import Path
from shlex import quote
from typing import Final

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.source import Capture, Postgres
from headgate_lab.demo.evaluation.connector_file import connector_options

__all__ = ["check_slot", "missing_slot", "slot_of"]

_OFFSETS_FILE: Final = Path("kafka", "connect.offsets")
"""Where Kafka Connect keeps the connector's position, once it has read something."""


def check_slot(folder: Path, connector: Path, captured: Capture, feed: str) -> None:
    """Raise CommandError if a connector would continue from a slot that does not exist.

    ``connector``: the file of its configuration, which a user may have edited.
    """
    offsets = folder / _OFFSETS_FILE
    if not offsets.exists() or not offsets.stat().st_size or not connector.exists():
        return
    name = slot_of(connector)
    if name is not None and (text := missing_slot(captured, name, folder, feed)):
        raise CommandError(ExitCode.DATABASE, text)


def slot_of(connector: Path) -> str | None:
    """The slot that a connector's configuration names; None for one without slots. Raises CommandError."""
    return connector_options(connector).get("slot.name")


def missing_slot(captured: Capture, slot: str, folder: Path, feed: str) -> str:
    """What it means that the source does not have the slot, and what to do; empty if it has it."""
    if not isinstance(captured, Postgres) or slot in {each.name for each in captured.facts.slots}:
        return ""
    return (
        f"replication slot {slot} does not exist in database {captured.facts.database} of the source, and the "
        "connector continues from a position that only this slot had. It was dropped, or the server was replaced, and "
        "changes since then are not available. Start again from nothing: run the command with --remove, and then "
        "without it. "
        f"Or keep the feed: type rm {quote(str(folder / _OFFSETS_FILE))} and run the command again, so that the "
        "connector creates the slot and sends all rows. Then type headgate table resync "
        f"{feed} TABLE --delete for each table, which removes rows that were deleted until then"
    )
