"""The interface between the engine and a database: everything that differs between databases.

A dialect is a folder. ``connection`` its sessions · ``catalog`` what a table looks like, and whether it can be
written · ``progress`` the fence's statements · ``staging`` how rows are staged and merged · ``values`` how a value is
written · ``contention`` who is in the way · ``faults`` what its errors mean · ``origin`` what it knows of itself ·
``address`` where it is.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from headgate.databases.faults import Fault
from headgate.formats.reducing import Reduced
from headgate.records.control import Epoch
from headgate.sinks.contract import ChangeBatch, Claim, SinkError
from headgate.sinks.relational.grouping import Merged
from headgate.sinks.relational.progress import Progress
from headgate.sinks.relational.session import RelationalSettings, Session
from headgate.sinks.relational.staging import StagingTable
from headgate.sinks.relational.table import RelationalTable

__all__ = ["SIBLING_SECONDS", "Dialect"]

SIBLING_SECONDS: Final = 1.0
"""How long a claim lets another part of its table finish its own: milliseconds, unless that one is frozen."""

S = TypeVar("S", bound=Session)
C = TypeVar("C")
E = TypeVar("E", bound=Exception)


class Dialect(msgspec.Struct, Generic[S, C, E], frozen=True, kw_only=True):
    """One database: sessions of type S, columns described by C, errors of type E."""

    error: type[E]
    """What its driver raises."""
    connect: Callable[[RelationalSettings], S]
    """A new session, set up as everything here expects it. Raises SinkError."""
    check_database: Callable[[S], None]
    """Whether progress and stage rows may be kept here; SinkRefusedError contains what to grant or to set."""
    load_table: Callable[[S, str, bool], RelationalTable[C]]
    """The table, proven to exist, to have a key (with True: or not) and to be writable, or SinkRefusedError."""
    firing: Callable[[S, RelationalTable[C]], tuple[str, ...]]
    """Triggers and rules of the table that fire on our writes (see TableShape)."""
    progress: Callable[[S], Progress[S]]
    stage: Callable[[S, RelationalTable[C], int], StagingTable[S, C]]
    """The stage of a table; the number is the session's own."""
    columns_ignore_case: bool
    """Whether names of columns that differ only in case are one column."""
    stages_in_transaction: bool
    """Whether rows are staged in the transaction that merges them, or before it."""
    apply_at_once: Callable[[S, StagingTable[S, C], ChangeBatch, Reduced], Merged | None] | None = None
    """A shorter way for a few rows: the whole transaction. None: nothing has happened, the batch has to be staged."""
    own_id: Callable[[S], str | None]
    """See SelfAware."""
    published: Callable[[S, str, Sequence[str]], list[str]]
    """See SelfAware."""

    fault_of: Callable[[E], Fault]
    """Why a statement failed."""
    words_of: Callable[[E], tuple[str | None, str]]
    """Which column a refusal names, if any, and the database's reason, without any value of a row."""
    sink_error: Callable[[E, str], SinkError]
    """What an error that is not a refusal of rows means to the caller, and what was being done."""
    folded: str
    """What is wrong, and to be done, where key columns ``{columns}`` take two of the source's keys for one."""

    keeps_session: bool
    """Whether a claim's session may serve the next call, where the caller has many."""
    connect_watcher: Callable[[RelationalSettings], S]
    """A session that can see who is in another one's way."""
    end_blockers: Callable[[S, S, Claim, str, Callable[[Epoch], bool], float], Sequence[str]]
    """(watcher, blocked, claim, table, is_over, waited_seconds): end those whose epoch is over; all that are there."""
    unseen_blocker: str
    """What the error names as the blocker if the server does not show it."""
    cancel: Callable[[RelationalSettings, S], None]
    """Make the session's statement end now, from another thread. Never raises."""
