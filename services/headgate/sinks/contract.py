"""The fence: what every sink must do, so that no table ever has two writers (docs/adr/0002).

A sink holds, per (cluster_id, feed_id, table, topic, partition), the epoch of the last claim, the next offset to
apply, and whether that epoch is closed. The rules, each one a contract test that every sink passes:

- ``claim`` raises the epoch and returns the sink's positions; it alone creates the rows, from ``start``. A claim of an
  epoch not above the sink's is refused (unless it is the very same open claim, repeated). A claimer ends sessions
  of lower epochs that block it.
- ``apply`` is one atomic step: rows below the position are dropped by the caller, the rows become visible and the
  positions move from exactly ``expected`` to ``next``, only if the epoch is the sink's and open; else nothing happens.
- ``seal`` closes an epoch, claimed or not: the rows are left at it and closed, those that are missing are created so.
  Nothing is applied under it, or a lower one, any more, and no claim that arrives late opens it. It is refused by a
  higher epoch only, and by nothing that other feeds do. A claim of a higher epoch reopens.
- ``claim`` and ``seal`` need their rows only, not the table: one that is missing, or refused, can be closed (``check``
  is what proves that a table can be written).
- ``apply`` remembers whose events a topic's are (``ChangeBatch.source_table``), or refuses those of another table, for
  as long as the incarnation lasts; ``source_table`` returns it to the next claimant.
- the sink is right and the log may be behind; a sink *ahead* of every epoch the log knows, another cluster's row, or
  a second feed on an open table is a hard error with its reason, never a guess.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from headgate.formats.change import Change
from headgate.records.control import Epoch, Positions
from headgate.records.source_tables import SourceTable

__all__ = [
    "Applied",
    "ChangeBatch",
    "ChangeRefusedError",
    "Claim",
    "ConstraintViolatedError",
    "Events",
    "FeedIdentity",
    "OfTopics",
    "OffsetRange",
    "Quarantine",
    "QuarantineFullError",
    "QuarantineUnavailableError",
    "RawEvent",
    "RegistersSchemas",
    "SelfAware",
    "Sink",
    "SinkColumnMissingError",
    "SinkConflictError",
    "SinkError",
    "SinkFencedError",
    "SinkMovedError",
    "SinkRefusedError",
    "SinkSilentError",
    "SinkUnavailableError",
    "SinkWriter",
    "TableShape",
    "TopicReplacedError",
    "ValueRefusedError",
]


class FeedIdentity(msgspec.Struct, frozen=True):
    """Who writes: the log's identity, the feed's id and, for labels and messages, its name."""

    cluster_id: str
    feed_id: str
    feed: str


class Claim(msgspec.Struct, frozen=True):
    """One assignment of one span, as the sink sees it. ``start`` names its partitions and creates missing rows only.

    A claim of a higher ``incarnation`` than the sink's is a rewind: positions go back to ``start``. ``topic_id``, where
    known, is Kafka's id of the source topic: another id at the sink means that the topic was made again
    (TopicReplacedError; a row without id takes it on, a rewind brings its own). ``span`` is the table's, or the part's,
    name in the log, for labels and messages; the table's if left out.
    """

    identity: FeedIdentity
    table: str
    topic: str
    epoch: Epoch
    incarnation: int
    start: Positions
    topic_id: str | None = None
    span: str | None = None


class OffsetRange(msgspec.Struct, frozen=True):
    """Offsets of one partition in one batch: ``expected`` is the sink's position before, ``next`` after."""

    expected: int
    next: int


class Quarantine(msgspec.Struct, frozen=True):
    """How to treat single changes that the sink refuses: they are kept elsewhere, so that the others continue.

    ``keep`` is called before the commit that moves past them, under the fence; it returns once they are safe, or raises
    and then nothing is visible. ``most`` is how many may be kept (QuarantineFullError beyond). With ``patient``, a
    change whose refusal may heal (a rule between rows, a missing column) is not kept yet: what it lacks may still come.
    ``only``: (partition, offset) of the changes that may be kept, None for any.
    """

    keep: "Callable[[Sequence[ChangeRefusedError]], None]"
    most: int
    patient: bool
    only: frozenset[tuple[int, int]] | None = None

    def takes(self, change: Change) -> bool:
        """Whether the event of that change may be kept."""
        return self.only is None or (change.partition, change.offset) in self.only


class RawEvent(NamedTuple):
    """A record as it came from the log. ``head`` is what was cut off the value (formats/debezium_schema.with_head)."""

    key: bytes | None
    value: bytes | None
    head: bytes | None


class Events(msgspec.Struct, frozen=True):
    """What a batch's changes came as. ``of``: (partition, offset) → the event.

    ``are_shaped``: the feed's options (columns, where) have made other changes of them, so an event may hold what must
    not go to the sink.
    """

    of: "Callable[[int, int], RawEvent]"
    are_shaped: bool


class ChangeBatch(msgspec.Struct, frozen=True):
    """Changes of one table in log order per partition, with the offset ranges they cover (empty ranges count).

    Without ``quarantine`` the batch ends before the first change that is refused.

    ``source_table``: the table that the topic's events are of, where the sink is not known to have it. It is stored in
    the batch's transaction; if the sink has another one by then, from another partition, SinkMovedError.

    ``events``: for a feed whose sink writes them (``SinkSpec.writes_events``).
    """

    claim: Claim
    ranges: Mapping[int, OffsetRange]
    changes: Sequence[Change]
    quarantine: Quarantine | None = None
    source_table: SourceTable | None = None
    events: Events | None = None


class Applied(msgspec.Struct, frozen=True):
    """What became visible: positions now at the sink and rows written after reducing.

    ``positions`` below the batch's ``next`` mean that the sink refused a later change and took the longest prefix per
    partition that it could: apply the rest as a new batch from these positions. If that gets nowhere, it raises.
    ``kept`` counts the changes below them that were given to the batch's ``quarantine`` instead.
    """

    positions: Positions
    upserts: int
    updates: int
    deletes: int
    kept: int = 0


class TableShape(msgspec.Struct, frozen=True):
    """A sink table: column → type as the sink names it, key columns, whether other unique keys exist.

    ``fires``: what the sink does by itself on our writes and may make of a row another one, as ``trigger NAME``.
    ``defaults``: columns that may be NULL and have a default. ``is_missing``: it does not exist, and the sink creates
    it when an agent takes it (``Preparing``). ``generated``: columns that the sink computes; none of ``columns``.
    ``filled``: columns that have a value where none is given.
    """

    table: str
    columns: dict[str, str]
    key: tuple[str, ...]
    secondary_unique: bool
    fires: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    is_missing: bool = False
    generated: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()


class SinkError(Exception):
    """Base: ``code`` is stable and documented, ``retryable`` is whether a retry can help."""

    code = "sink"
    retryable = False


class SinkFencedError(SinkError):
    """A higher epoch has claimed or this one is sealed: this assignment is over. Nothing was written."""

    code = "sink_fenced"


class SinkMovedError(SinkError):
    """The sink's position (late attempt, restored sink), or source table, is not the expected one: take its own."""

    code = "sink_moved"
    retryable = True


class SinkConflictError(SinkError):
    """Another cluster, a second feed or an epoch unknown to the log holds the table: an operator must look."""

    code = "sink_conflict"


class TopicReplacedError(SinkError):
    """The source topic is not the one that the sink's positions are of: the name was deleted and made again."""

    code = "source_topic_replaced"


class SinkRefusedError(SinkError):
    """The sink cannot take this table: missing, without key, without rights, no login. The text contains what to do.

    ``retryable`` is False: the agent gives the table back. Its owner then tries again once a minute, by another agent
    first (coordinator/core/spans/span_lifecycle.py), because a password, a right or a table may change at any time.
    """

    code = "sink_refused"


class SinkUnavailableError(SinkError):
    """The sink does not answer, or ended the session: try again later.

    ``spoils_session``: the session is not to be used any more.
    """

    code = "sink_unavailable"
    retryable = True
    spoils_session = True


class SinkSilentError(SinkUnavailableError):
    """The sink's server has given no answer, not even an error of its own.

    If that took long, other calls to the server fail at once for a while (replication/silent_sinks.py). A lock that is
    not granted, or a server that refuses sessions, is an answer.
    """


class ChangeRefusedError(SinkError):
    """One change that the sink does not take; the message names table, topic, partition and offset, too."""

    may_heal = False
    """Whether what the change lacks may still come: a patient quarantine does not set it aside yet."""

    def __init__(self, message: str, partition: int, offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class ValueRefusedError(ChangeRefusedError):
    """A value the sink cannot hold: names table, column, topic, partition and offset."""

    code = "value_refused"


class ConstraintViolatedError(ChangeRefusedError):
    """A rule over several rows or tables (unique, foreign key) refuses a change, and no prefix could be applied.

    Another partition's or table's change may be what is missing: try again; if it stays, the sink has rows or rules the
    source has not. So it is with a partial update of a row that is not there, whose delete may follow.
    """

    code = "constraint_violated"
    retryable = True
    may_heal = True


class SinkColumnMissingError(ChangeRefusedError):
    """A change has a column that the sink table does not have. The table waits for it, and then continues by itself.

    A schema change often reaches the source first, and no user should have to inform the feed of the second one.
    """

    code = "sink_column_missing"
    retryable = True
    may_heal = True


class QuarantineFullError(SinkError):
    """More changes are bad than the feed may set aside: the table, not the changes, is what is wrong."""

    code = "quarantine_full"


class QuarantineUnavailableError(SinkError):
    """A bad change cannot be set aside now, so nothing may move past it: try again later."""

    code = "quarantine_unavailable"
    retryable = True


@runtime_checkable
class SelfAware(Protocol):
    """What a sink may know of itself beyond the contract; asked before a feed is accepted."""

    def own_id(self) -> str | None:
        """The server's own name, the same under every address and alias; None if not permitted. Raises SinkError."""
        ...

    def published(self, database: str, tables: Sequence[str]) -> list[str]:
        """Those of ``tables`` that it publishes changes of, if it is the database of that name. Raises SinkError."""
        ...


@runtime_checkable
class OfTopics(Protocol):
    """A sink whose tables are topics, which a feed may read as well; asked before a feed is accepted."""

    def check_sources(self, tables: Sequence[str], identity: FeedIdentity, reads: "Callable[[str], bool]") -> None:
        """Raise SinkRefusedError for one of ``tables`` that the feed reads: its records would come back as changes."""
        ...


@runtime_checkable
class RegistersSchemas(Protocol):
    """A sink that registers schemas of its rows; asked before a feed is accepted."""

    def schema_warnings(self, table: str, semantics: dict[str, str], key_columns: tuple[str, ...]) -> Iterable[str]:
        """What would keep the schemas of such rows from being registered, or why that is not known.

        ``semantics``: as in Change. ``key_columns``: none where they are not known.
        """
        ...


class SinkWriter(Protocol):
    """Applies batches; lives inside a Spark task, or wherever the batch is."""

    def apply(self, batch: ChangeBatch) -> Applied:
        """Make the batch, or a prefix of it per partition (see Applied), visible in one step under its claim.

        A batch without changes moves the positions. Raises SinkError, and then nothing is visible; except that after
        SinkUnavailableError the outcome is unknown (the answer to a commit may be lost): read ``positions`` again.
        """
        ...

    def close(self) -> None:
        """Let go. Idempotent."""
        ...


class Sink(Protocol):
    """A sink as coordinator and agent see it."""

    def check(self, tables: Sequence[str], identity: FeedIdentity | None = None) -> dict[str, TableShape]:
        """Shapes of the tables, once each is proven to exist, have a key and be writable. Raises SinkError.

        With ``identity``: and to be held open by no other feed. (A claim looks at that again, under a lock.)
        """
        ...

    def claim(self, claim: Claim) -> Positions:
        """Take the span under ``claim.epoch``; the positions to resume from. Raises SinkError."""
        ...

    def seal(self, claim: Claim) -> Positions:
        """Close ``claim.epoch``, claimed or not; the final positions. Sealed under it already: the same answer.

        Raises SinkFencedError after a higher epoch, or once the feed was forgotten.
        """
        ...

    def positions(self, claim: Claim) -> Positions:
        """The positions a claim would resume from (``start`` if this incarnation has no row yet). Read-only."""
        ...

    def source_table(self, claim: Claim) -> SourceTable | None:
        """The table that the topic's events are of, from any partition; None if none recorded it, or after a rewind.

        To be asked under the claim, which is at the sink.
        """
        ...

    def forget(self, identity: FeedIdentity) -> None:
        """Remove what Headgate keeps in the sink for this feed, whose spans are all sealed.

        But for the fact that it was there: its claims and seals, however late, are refused (SinkFencedError).
        """
        ...

    def writer(self) -> SinkWriter:
        """A new writer with a connection of its own."""
        ...

    def close(self) -> None:
        """Let go of every connection. Idempotent."""
        ...
