"""Sessions at a PostgreSQL sink: how they are opened and labelled.

A session that holds locks names its feed, table and epoch in its application name: ``headgate <feed> <table>
<epoch>``. PostgreSQL keeps 63 bytes of it, so long names are shortened (with a digest), the epoch never.
"""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

from headgate.databases.address import Address
from headgate.databases.faults import Fault
from headgate.databases.postgresql import session as database
from headgate.databases.postgresql.address import address_of
from headgate.databases.postgresql.bounded_connection import BoundedConnection
from headgate.databases.postgresql.errors import PostgresError, fault_of, message
from headgate.databases.postgresql.session import Answer
from headgate.records.control import Epoch
from headgate.records.names import encode_part
from headgate.records.spans import overlap, table_of
from headgate.sinks.contract import Claim, SinkRefusedError
from headgate.sinks.relational.postgresql.faults import sink_error
from headgate.sinks.relational.session import RelationalSettings, as_sink_errors

__all__ = ["Label", "PostgresSinkSession", "connect", "sink_address"]

WRITER_LOCK_SECONDS: Final = 3
"""If another client's session (e.g. an ALTER TABLE) holds a lock longer, the batch fails, and the table leaves the lane
whose other tables would wait with it; it retries with back-off."""

_LABEL_BYTES: Final = 63
_LABEL_WORD: Final = "headgate"


class Label(msgspec.Struct, frozen=True):
    """The owner of a session, written to and parsed from its application name.

    ``part`` is a span's partitions as its name has them, empty for a whole table, or if there was not enough room.
    """

    feed: str
    table: str
    epoch: Epoch
    part: str = ""

    @classmethod
    def of(cls, claim: Claim) -> "Label":
        """The label of a claim, its names shortened so that everything fits."""
        room = (_LABEL_BYTES - len(_LABEL_WORD) - len(str(claim.epoch)) - 3) // 2
        feed, table = _short(claim.identity.feed, room), _short(claim.table, room)
        span = claim.table if claim.span is None else claim.span
        part = span.removeprefix(table_of(span)).removeprefix("~")
        fits = len(feed) + len(table) + 1 + len(part) <= 2 * room
        return cls(feed, table, claim.epoch, part if fits else "")

    def may_meet(self, other: "Label") -> bool:
        """Whether the two, of one table, may have a partition in common."""
        return not self.part or not other.part or overlap(f"t~{self.part}", f"t~{other.part}")

    @classmethod
    def parse(cls, application_name: str) -> "Label | None":
        """The label in an application name; None if it is not one of Headgate."""
        match application_name.split(" "):
            case [word, feed, table, epoch] if word == _LABEL_WORD:
                owner_rev, _, n = epoch.partition(".")
                if owner_rev.isdecimal() and n.isdecimal():
                    whole = table_of(table)
                    part = table.removeprefix(whole).removeprefix("~")
                    return cls(feed, whole, Epoch(int(owner_rev), int(n)), part)
        return None

    def __str__(self) -> str:
        span = f"{self.table}~{self.part}" if self.part else self.table
        return f"{_LABEL_WORD} {self.feed} {span} {self.epoch}"


def _short(name: str, room: int) -> str:
    text = encode_part(name)
    return text if len(text) <= room else f"{text[: room - 9]}+{crc32(text.encode()):08x}"


class PostgresSinkSession(database.PostgresSession):
    """A session of a sink: the database's, labelled for the claim that it works for."""

    def __init__(self, connection: BoundedConnection) -> None:
        super().__init__(connection)
        self._label: Label | None = None
        self._is_labelled = True
        """Whether the label is known: a transaction that is undone takes it back."""

    def mark(self, claim: Claim | None) -> None:
        """See Session. A client that a session blocks finds its label in pg_stat_activity."""
        label = None if claim is None else Label.of(claim)
        if label == self._label and self._is_labelled:
            return
        if label is None:
            self.execute("RESET application_name")
        else:
            self.execute("SELECT set_config('application_name', %s, false)", (str(label),))
        self._label, self._is_labelled = label, True

    # --- a transaction as one text ---

    def begin_with(self, claim: Claim, statements: Sequence[str]) -> list[Answer]:
        """Begin a transaction labelled for ``claim`` and run ``statements`` in it, all sent at once.

        Of each how many rows it found, and its rows. After an error nothing behind it was run, and ``undo`` is due.
        """
        label, sent = Label.of(claim), ["BEGIN", *statements]
        if label != self._label or not self._is_labelled:
            sent.insert(0, f"SELECT set_config('application_name', {self.literal(str(label))}, false)")
        self._label, self._is_labelled = label, False
        answers = self.run_as_one(sent)
        self._is_labelled = True
        return answers[-len(statements) :]

    def undo(self) -> None:
        """Roll the transaction back, if there is one still."""
        self._is_labelled = False
        if not self.closed and self.is_in_transaction:
            self.execute("ROLLBACK")


def sink_address(dsn: str) -> Address:
    """See SinkPlug.address."""
    with as_sink_errors():
        return address_of(dsn)


def connect(settings: RelationalSettings) -> PostgresSinkSession:
    """A new session, autocommit, set up as everything here expects it. Raises SinkError."""
    with as_sink_errors():
        connection = database.open_connection(
            settings.target, application_name=_LABEL_WORD, lock_seconds=WRITER_LOCK_SECONDS
        )
    session = PostgresSinkSession(connection)
    if not settings.foreign_keys:
        try:
            session.execute("SET session_replication_role = replica")
        except PostgresError as error:
            session.close()
            if fault_of(error) is Fault.PERMISSION:
                raise SinkRefusedError(
                    "sink.foreign_keys: ignore needs a right that the sink's user does not have. Run GRANT SET ON "
                    "PARAMETER session_replication_role TO the user (PostgreSQL 15 and later; before, a superuser) "
                    f"[{message(error)}]"
                ) from error
            raise sink_error(error, "opening a session at the sink") from error
    return session
