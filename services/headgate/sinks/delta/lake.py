"""One folder of Delta tables: each table, its ledger, and the ledger of feeds."""

from pathlib import Path
from typing import Final

from headgate.records.control import Positions
from headgate.sinks.contract import Claim
from headgate.sinks.delta.engine import Table, read
from headgate.sinks.delta.ledger import Feeds, Holdings, Ledger
from headgate.sinks.delta.names import LEDGERS, path_of

__all__ = ["FENCE", "Lake", "feed_key", "position_key", "positions_in"]

FENCE: Final = "headgate/fence"
"""The application transaction of a table that has the version of its ledger which no earlier writer may write under."""


class Lake:
    """Paths below one folder, and reading what is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, table: str) -> Path:
        """A table's folder. Raises SinkRefusedError."""
        return self.folder / path_of(table)

    def table(self, table: str) -> Table | None:
        """A table at its newest version. Raises SinkError."""
        return read(self.path(table))

    def ledger(self, table: str) -> Ledger[Holdings]:
        """A table's ledger. Raises SinkRefusedError."""
        return Ledger(self.folder / LEDGERS / "tables" / path_of(table), Holdings())

    @property
    def feeds(self) -> Ledger[Feeds]:
        """The ledger of feeds."""
        return Ledger(self.folder / LEDGERS / "feeds", Feeds())


POSITIONS: Final = "headgate.positions"
"""The entry that a commit of changes has in the table's history."""


def feed_key(cluster: str, feed_id: str) -> str:
    """A feed as one text."""
    return f"{cluster}/{feed_id}"


def position_key(claim: Claim, incarnation: int, partition: int) -> str:
    """The application transaction whose version is the next offset of a partition."""
    identity = claim.identity
    return f"headgate/{identity.cluster_id}/{identity.feed_id}/{incarnation}/{claim.topic}/{partition}"


def positions_in(table: Table | None, claim: Claim, incarnations: dict[int, int]) -> Positions:
    """The next offsets that the table has. ``incarnations``: of each partition."""
    if table is None:
        return {}
    found = {p: table.transaction(position_key(claim, number, p)) for p, number in incarnations.items()}
    return {partition: offset for partition, offset in found.items() if offset is not None}
