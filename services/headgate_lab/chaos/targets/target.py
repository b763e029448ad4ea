"""What a campaign needs of the database its feed writes to: a server that dies, a way there per service, a judgement.

Every service reaches the server through a proxy of its own, though all of them read one feed with one address. How
that is done without a word of it in the services is each database's own matter (``Way``).
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

import msgspec

from headgate_lab.chaos.proxy import Proxies, Proxy
from headgate_lab.demo.audit import AuditReport
from headgate_lab.demo.compare import Comparison
from headgate_lab.demo.schema import Row, ShopTable
from headgate_lab.demo.services import DatabaseAddress

NO_VARIABLES: Final[Mapping[str, str]] = {}

Span = tuple[float, float]
"""Begin and end, in seconds since 1970."""


class SinkType(StrEnum):
    """Where the feed writes to, in the feed's own word."""

    POSTGRESQL = "postgresql"
    MYSQL = "mysql"


class Way(msgspec.Struct, frozen=True):
    """One service's way to the server: through ``proxy``, found by environment ``variables`` or in its home."""

    proxy: Proxy
    variables: Mapping[str, str]


class ChaosTarget(Protocol):
    """A server with the shop's tables and the audit's triggers in it. Raises the driver's errors, and EmbeddedError."""

    title: str
    """What people call it."""

    def prepare(self) -> None:
        """Start it the first time, with the audit, and with empty tables unless the feed can make them there."""
        ...

    def start(self) -> object:
        """Start it again after a kill."""
        ...

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        ...

    def step_down(self) -> None:
        """Take no more writes, as a primary that a fail-over has made a standby."""
        ...

    def step_up(self) -> None:
        """Take writes again, as a standby that is promoted."""
        ...

    def rotate_password(self) -> str:
        """Give the user by which Headgate writes another password, and return it. Its sessions stay open."""
        ...

    def end_sessions(self) -> None:
        """End the sessions of Headgate's user."""
        ...

    def sessions(self) -> int:
        """Number of sessions that Headgate's user has open at the server."""
        ...

    def is_hijacked(self) -> bool:
        """Whether Headgate has run anything of a schema that others have put in its way."""
        ...

    def stop(self) -> None:
        """Stop it in order. Idempotent."""
        ...

    @property
    def sink(self) -> DatabaseAddress:
        """For the feed: the same for every service."""
        ...

    def way(self, proxies: Proxies, number: int, home: Path) -> Way:
        """The way of the service that is the ``number``-th (from 1) and runs in the folder ``home``."""
        ...

    def stands(self, table: ShopTable, key: Row) -> bool:
        """Whether the table has a row of this key."""
        ...

    def examine(self, source_dsn: str, tables: Sequence[ShopTable]) -> tuple[tuple[Comparison, ...], AuditReport]:
        """Every table compared with the source's, row by row, and the audit's record examined. Both must be at rest.

        ``tables`` as they are at the source now.
        """
        ...

    def longest_pauses(self, spans: Sequence[Span]) -> list[dict[str, float]]:
        """For each span: table → longest pause in seconds that overlaps it, by the audit's clock (``demo.pauses``)."""
        ...
