"""Inputs and effects of a span's machine, as data.

Requests come from the agent's service, answers from the pool that talks to source and sink, facts about lanes from
lanes and their placement, timers from the executor's control thread.
"""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from headgate.agent.core.executor import MaintenanceReport, SpanId, SpanTask
from headgate.agent.core.span.failures import FAILURES_MAX
from headgate.records.control import Epoch, Positions
from headgate.records.source_tables import SourceTable, Tail

__all__ = [
    "Add",
    "BatchOver",
    "CallFailed",
    "Close",
    "Completed",
    "CopiedOn",
    "CopyDue",
    "DropCopy",
    "Effect",
    "Failed",
    "Forget",
    "JoinLane",
    "LaneLost",
    "LeaveLane",
    "Limited",
    "Looked",
    "MaintainDue",
    "MaintainFor",
    "Open",
    "Opened",
    "Passed",
    "Placed",
    "Planned",
    "Remove",
    "RetryDue",
    "Seal",
    "Sealed",
    "SentBack",
    "Served",
    "Settle",
    "SettleDue",
    "Settled",
    "Slowed",
    "SpanInput",
    "SpanResult",
    "TellFailure",
    "TellRestart",
]


class SpanResult(msgspec.Struct, frozen=True):
    """What a batch did for one span: positions after it, and an error (beside which a prefix may have been written).

    ``oldest_append_ms`` and ``visible_ms`` are for the lag only, by the broker's clock (as a task gives it, the latter
    is by the worker's: replication/merging.py converts it). ``decode_cpu_us`` and ``apply_cpu_us`` are
    the task's thread's, so that the bench can show where the microseconds per row go. ``resolved`` is, per partition,
    the newest watermark all before which is at the sink. ``quarantined`` counts the changes below the positions that
    were set aside, ``wall_ms`` the time that decoding and applying took, waits at the sink included. ``tail``: the
    newest transaction that is applied up to some change; ``cut``: partitions whose next change is one after the feed's
    target. ``held`` are the partitions that the error holds up. ``known_table`` is the source's, as the sink
    has it now. Of a span whose topic carries others ``passed_over`` counts changes of tables not in the feed,
    ``passed_over_table`` is the last one's. ``is_silent``: the sink's server has given no answer at all. ``lacking``:
    columns that the sink's table does not have, by the event that stopped, and how its schema describes their values.
    """

    id: SpanId
    positions: Positions
    rows: int
    bytes: int
    oldest_append_ms: int | None
    newest_source_ms: int | None
    visible_ms: int
    error_code: str | None
    error: str | None
    retryable: bool
    decode_cpu_us: int
    apply_cpu_us: int
    resolved: dict[int, int] = {}
    quarantined: int = 0
    wall_ms: int = 0
    tail: Tail | None = None
    cut: tuple[int, ...] = ()
    passed_over: int = 0
    passed_over_table: str | None = None
    held: tuple[int, ...] = ()
    known_table: SourceTable | None = None
    is_silent: bool = False
    lacking: dict[str, str] = {}


# --- requests ---------------------------------------------------------------------------------------------------------


class Add(msgspec.Struct, frozen=True):
    """Run the span under ``task``; ``primary``: write it. ``life`` numbers the runs of an executor, none twice."""

    task: SpanTask
    primary: bool
    life: int
    failures_max: int = FAILURES_MAX


class Close(msgspec.Struct, frozen=True):
    """Seal a span whose writer is lost, under a higher epoch, without running it."""

    task: SpanTask
    life: int


class Remove(msgspec.Struct, frozen=True):
    """Stop it at a batch border; with ``seal`` close its epoch at the sink."""

    seal: bool


class DropCopy(msgspec.Struct, frozen=True):
    """The request to copy rows is over, or taken back: no more of them are copied for it."""

    request: str


class MaintainFor(msgspec.Struct, frozen=True):
    """The sink's table must be maintained once for that request."""

    request: str


class Forget(msgspec.Struct, frozen=True):
    """Its last words have been heard."""


# --- answers of calls to source and sink ------------------------------------------------------------------------------


class Opened(msgspec.Struct, frozen=True):
    """Source and sink were looked at under ``epoch``; claimed there, if ``primary``. ``backlog`` in offsets.

    ``target_ts`` is where the feed ends, if it does; ``commit_interval_seconds`` its sink's. ``firsts``, ``limits``
    and ``limits_at`` as in Limited.
    ``copying``: how far the whole table is copied that the task names, in words; None once it is.
    ``maintain_at``: when the sink's table must be maintained next (monotonic seconds), if it is; ``maintained``: how
    it was maintained in this call, if it was. ``advice``: what a user should do so that the table takes the span's last
    batch, empty if nothing is known.
    """

    epoch: Epoch
    primary: bool
    positions: Positions
    backlog: int = 0
    topic_id: str | None = None
    known_table: SourceTable | None = None
    target_ts: int | None = None
    commit_interval_seconds: float = 0.0
    firsts: Positions = {}
    limits: Positions = {}
    limits_at: int = 0
    copying: str | None = None
    maintain_at: float | None = None
    maintained: MaintenanceReport | None = None
    advice: str = ""


class Settled(msgspec.Struct, frozen=True):
    """The sink's positions have followed what was read without rows."""

    positions: Positions


class Sealed(msgspec.Struct, frozen=True):
    """The epoch is closed at the sink."""

    positions: Positions


class CallFailed(msgspec.Struct, frozen=True):
    """The call under way ended in an error."""

    code: str
    text: str
    retryable: bool


class CopiedOn(msgspec.Struct, frozen=True):
    """The call under way copies a whole table, and this is how far it is, in words."""

    copying: str


class Looked(msgspec.Struct, frozen=True):
    """Where the present writer of a warm span is; ``opening`` is the span's when it was asked."""

    opening: int
    positions: Positions


# --- lanes ------------------------------------------------------------------------------------------------------------


class Placed(msgspec.Struct, frozen=True):
    """It goes to that lane: its first one, or one that takes it over from another between two batches."""

    lane: str


class Served(msgspec.Struct, frozen=True):
    """Its lane reads."""


class Planned(msgspec.Struct, frozen=True):
    """Tasks of a batch of its lane write it from now on."""


class BatchOver(msgspec.Struct, frozen=True):
    """That batch is over; None: no task had anything of it. Everything below ``ends`` has been read."""

    result: SpanResult | None
    ends: Mapping[tuple[str, int], int]


class Passed(msgspec.Struct, frozen=True):
    """A batch of its lane is over in which it had no rows."""

    ends: Mapping[tuple[str, int], int]


class SentBack(msgspec.Struct, frozen=True):
    """Its lane is not the right one: it is to start again from the sink's position."""

    why: str


class LaneLost(msgspec.Struct, frozen=True):
    """Its lane is over. If the span was ``alone`` on it, that is its own failure; else it may be a neighbour's."""

    why: str
    alone: bool


class Failed(msgspec.Struct, frozen=True):
    """Its lane could not be started, or its topic is another one."""

    code: str
    text: str
    retryable: bool


class Limited(msgspec.Struct, frozen=True):
    """Of a change log's partitions, what may be applied: offsets from ``firsts`` on, below ``limits``, where named.

    ``opening`` is that of the span concerned; ``limits_at`` the offset up to which the topic generation was read.
    """

    opening: int
    firsts: Positions
    limits: Positions
    limits_at: int


class Slowed(msgspec.Struct, frozen=True):
    """Its neighbours have waited for it: it shares no lane until then (monotonic seconds)."""

    until: float


# --- time, and evidence of it -----------------------------------------------------------------------------------------


class RetryDue(msgspec.Struct, frozen=True):
    """It has waited long enough."""


class CopyDue(msgspec.Struct, frozen=True):
    """It has caught up, or has had time for it: more of its rows can be copied."""


class MaintainDue(msgspec.Struct, frozen=True):
    """It is time to maintain the sink's table, and no other table is maintained here."""


class SettleDue(msgspec.Struct, frozen=True):
    """The sink's positions are to follow what has been read."""


class Completed(msgspec.Struct, frozen=True):
    """Everything up to ``ts`` is at the sink; ``opening`` is that of the span that this applies to."""

    opening: int
    ts: int


SpanInput: TypeAlias = (
    Add | Close | Remove | DropCopy | MaintainFor | Forget
    | Opened | Settled | Sealed | CallFailed | CopiedOn | Looked
    | Placed | Served | Planned | BatchOver | Passed | SentBack | LaneLost | Failed | Slowed | Limited
    | RetryDue | SettleDue | CopyDue | MaintainDue | Completed
)  # fmt: skip


# --- effects ----------------------------------------------------------------------------------------------------------


class Open(msgspec.Struct, frozen=True):
    """Look at source and sink; claim, if ``primary``. Answered by Opened or CallFailed."""

    primary: bool


class Settle(msgspec.Struct, frozen=True):
    """Move the sink's positions to what has been read. Answered by Settled or CallFailed."""


class Seal(msgspec.Struct, frozen=True):
    """Close the epoch at the sink, claimed or not. Answered by Sealed or CallFailed."""


class JoinLane(msgspec.Struct, frozen=True):
    """It is a member of the lane."""

    lane: str


class LeaveLane(msgspec.Struct, frozen=True):
    """It is a member of the lane no more."""

    lane: str


class TellFailure(msgspec.Struct, frozen=True):
    """A failure, for people; ``retry_seconds`` None: it is not retried."""

    code: str
    text: str
    retry_seconds: float | None


class TellRestart(msgspec.Struct, frozen=True):
    """For people: why it starts again."""

    why: str


Effect: TypeAlias = Open | Settle | Seal | JoinLane | LeaveLane | TellFailure | TellRestart
