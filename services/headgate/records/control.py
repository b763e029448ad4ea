"""Records of coordinators and agents, as frozen structs: past-tense facts, each a whole state, never a delta.

The ``schemas/*.avsc`` files define what is on the wire; these structs mirror them field by field (a test compares the
two). Positions are ``{source partition: next offset}``: the first offset *not* yet applied. Times on the wire are
milliseconds since 1970 by the writer's clock and are for people only: no decision uses them.
"""

from enum import StrEnum
from typing import Final

import msgspec

Positions = dict[int, int]
"""Source partition → next offset to apply."""


class Epoch(msgspec.Struct, frozen=True, order=True):
    """Number of one assignment of one span, the fencing token at the sink.

    ``owner_rev`` is the offset of the first announce record of the owner's term, ``n`` counts assignments within
    the term. Compared as a pair, so it grows without limit.
    """

    owner_rev: int
    n: int

    def __str__(self) -> str:
        return f"{self.owner_rev}.{self.n}"


class Liveness(StrEnum):
    """An agent is alive or on its way out; it never comes back within a session."""

    ALIVE = "alive"
    STOPPING = "stopping"


class TaskState(StrEnum):
    """A session's report about its run of a span (the agent's machine: agent/core/transitions.py)."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    REPLICATING = "replicating"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class ReplicationState(StrEnum):
    """State of a ReplicationSet, the owner's view of one span, after TiCDC's scheduler v3."""

    ABSENT = "absent"
    PREPARE = "prepare"
    COMMIT = "commit"
    REPLICATING = "replicating"
    REMOVING = "removing"


class WantedState(StrEnum):
    """The desired state of a feed; ``finished`` is the owner's own conclusion, that its target is reached."""

    RUNNING = "running"
    STOPPED = "stopped"
    REMOVED = "removed"
    FINISHED = "finished"


class FeedState(StrEnum):
    """The current state of a feed: ``normal`` runs, ``warning`` retries, ``failed`` gave up.

    ``stopped`` does not run, ``finished`` has reached its target.
    """

    NORMAL = "normal"
    WARNING = "warning"
    FAILED = "failed"
    STOPPED = "stopped"
    FINISHED = "finished"
    REMOVED = "removed"


class OperationKind(StrEnum):
    """What an operator can ask for."""

    CREATE_FEED = "create_feed"
    PAUSE_FEED = "pause_feed"
    RESUME_FEED = "resume_feed"
    REMOVE_FEED = "remove_feed"
    UPDATE_FEED = "update_feed"
    MOVE_TABLE = "move_table"
    SPLIT_TABLE = "split_table"
    MERGE_TABLE = "merge_table"
    PAUSE_TABLE = "pause_table"
    RESUME_TABLE = "resume_table"
    RESYNC_TABLE = "resync_table"
    OPTIMIZE_TABLE = "optimize_table"
    REBALANCE_FEED = "rebalance_feed"
    DRAIN_AGENT = "drain_agent"
    RESIGN_OWNER = "resign_owner"


class OutcomeStatus(StrEnum):
    """``accepted`` is under way and will be replaced by ``done`` or ``failed``; ``refused`` changed nothing."""

    ACCEPTED = "accepted"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"


# --- announce -------------------------------------------------------------------------------------------------


class OwnerAnnounced(msgspec.Struct, frozen=True):
    """``coordinator/<shard>``: an owner has taken a shard, and still has it (repeated as its heartbeat).

    ``owner_rev`` is null in the first record of a term, because it *is* that record's offset. ``schema_version`` is the
    newest schema level the owner reads and could write, ``level`` the one at which all processes write (docs/adr/0008).
    """

    owner_id: str
    owner_rev: int | None
    version: str
    schema_version: int
    lease_seconds: float
    announced_ms: int
    level: int = 1


class MemberAnnounced(msgspec.Struct, frozen=True):
    """``member/<id>``: a coordinator's process lives, and could own ``shards`` (or owns them), ascending.

    A hint for the assignment of shards (runtime/roster.py); no safety depends on it.
    """

    shards: tuple[int, ...]
    version: str
    schema_version: int
    lease_seconds: float
    announced_ms: int


class AgentAnnounced(msgspec.Struct, frozen=True):
    """``agent/<agent>/<session>``: a session lives. ``load_bytes_per_s`` is what it moves now.

    ``lease_seconds`` is its lease, by which owners judge its silence; null if the log's level does not have it yet.
    """

    version: str
    schema_version: int
    capacity_spans: int
    load_bytes_per_s: float
    liveness: Liveness
    address: str
    heartbeat: int
    announced_ms: int
    lease_seconds: float | None = None


# --- sync -----------------------------------------------------------------------------------------------------


class SyncAnswered(msgspec.Struct, frozen=True):
    """``agent/<agent>/<session>/<shard>``: answer to an announce (or, ``owner_rev`` null, a new session's own report).

    ``schema_version`` and ``task_count`` are for people who read the topic. The announcement of a session determines
    what it reads (runtime/levels.py): every process sees that, while only the owner of its shard sees this record.
    """

    owner_rev: int | None
    schema_version: int
    task_count: int
    answered_ms: int


class TaskReported(msgspec.Struct, frozen=True):
    """``<feed>/<span>/<agent>/<session>`` on sync: the state of that session's task of the span.

    It counts only if session *and* epoch are those of the assigned role. ``positions`` are final in ``stopped`` (the
    seal), those of the claim in ``replicating``. ``error`` and ``retryable`` belong to ``failed``. ``maintained`` is
    the optimize_table request for which it has maintained the sink's table last, ``maintenance`` what it did, or, if it
    failed, why.
    """

    feed_id: str
    epoch: Epoch
    state: TaskState
    positions: Positions
    error_code: str | None
    error: str | None
    retryable: bool
    reported_ms: int
    maintained: str | None = None
    maintenance: str | None = None
    maintenance_failed: bool = False


# --- dispatch -------------------------------------------------------------------------------------------------


class Assignment(msgspec.Struct, frozen=True):
    """A role assigned to a session: its statuses count only under the epoch of the assignment."""

    agent: str
    session: str
    epoch: Epoch


class SpanPlan(msgspec.Struct, frozen=True):
    """One span of a feed: which source partitions go to which sink table (records/spans.py has the names' grammar).

    ``start`` are the offsets a sink row is created with if there is none yet; never used again afterwards. ``topic_id``
    is Kafka's id of their topic, because a re-created topic is another one; null if it was never looked up.
    """

    span: str
    topic: str
    table: str
    start: Positions
    topic_id: str | None = None


class SpanDispatched(msgspec.Struct, frozen=True):
    """``<feed>/<span>`` on dispatch: the ReplicationSet. The whole truth about which session may write the span.

    An agent claims only under a record in which it is ``primary``. ``commit`` with a secondary asks the primary to
    drain, seal and report; so does ``removing``, without a successor. ``moving_request`` is the operator's request for
    this move, if any. ``failures`` counts failures in a row and is reset by progress. ``revision`` is that of the
    feed's spec under which the roles were assigned: an agent waits for the feed's record of the same incarnation and
    revision, because records of different topics have no order. ``copy`` is the resync_table request whose rows the
    primary copies before it replicates (docs/adr/0110); the agent waits for that request's record. ``maintain`` is the
    optimize_table request for which the primary maintains the sink's table between two batches (docs/adr/0135).
    """

    feed_id: str
    incarnation: int
    owner_rev: int
    state: ReplicationState
    primary: Assignment | None
    secondary: Assignment | None
    sealed: bool
    moving_request: str | None
    failures: int
    last_error: str | None
    revision: int = 0
    copy: str | None = None
    maintain: str | None = None


SESSION_LEFT: Final = "left: "
"""Start of the reason if the session has reported its end itself, its tables being elsewhere."""


class SessionEnded(msgspec.Struct, frozen=True):
    """``session/<agent>/<session>`` on dispatch: dead, final. What it writes afterwards is ignored."""

    owner_rev: int
    reason: str
    ended_ms: int


# --- checkpoint -----------------------------------------------------------------------------------------------


class SpanProgressed(msgspec.Struct, frozen=True):
    """``<feed>/<span>/<agent>/<session>`` on checkpoint: what that session has applied under ``epoch``.

    ``seen_ts`` is the newest source time applied, for people; ``resolved_ts`` is claimed only from evidence in
    the log (formats/decoding.py). ``rows`` and ``bytes`` count since the claim. ``lag_ms`` is now minus the append time
    of the oldest change of the last batch, at the moment it became visible. ``passed_over`` counts changes of tables
    that a feed with ``source.tables`` does not name, since the claim; ``passed_over_table`` is the last one's.
    """

    feed_id: str
    epoch: Epoch
    positions: Positions
    seen_ts: int | None
    resolved_ts: int | None
    rows: int
    bytes: int
    lag_ms: int
    progressed_ms: int
    passed_over: int = 0
    passed_over_table: str | None = None


class HeldBy(msgspec.Struct, frozen=True):
    """What holds a feed's checkpoint: which span, in which stage, on which agent, since when."""

    span: str
    stage: str
    agent: str | None
    since_ms: int
    detail: str


class FeedProgressed(msgspec.Struct, frozen=True):
    """``<feed>`` on checkpoint: the global checkpoint, least over all wanted spans, never backwards.

    ``checkpoint_ts`` is for people: a span without evidence counts with its newest time seen. ``resolved_ts`` is a
    claim: every change up to it is at the sink; null until every span has evidence. ``positions`` are by table, so that
    dividing it changes nothing about them. ``unapplied``: span → append time (ms since 1970, from the source topic) of
    its oldest change that is not applied, for spans that make no progress; null if all do. The owner measures it at the
    source, whatever agents report.
    """

    feed_id: str
    incarnation: int
    owner_rev: int
    positions: dict[str, Positions]
    checkpoint_ts: int | None
    held_by: HeldBy | None
    progressed_ms: int
    resolved_ts: int | None = None
    unapplied: dict[str, int] | None = None


# --- changefeed -----------------------------------------------------------------------------------------------


class OperationRequested(msgspec.Struct, frozen=True):
    """``request/<id>``: an operator's request.

    ``spec`` is the feed's JSON, for create_feed and update_feed; for resume_feed the position to resume from, as JSON,
    null for its checkpoint: ``"earliest"``, ``"latest"``, a ts, or topic → partition → offset; for resync_table which
    rows to copy, as JSON (records/row_copies.py). ``feed`` is empty if the request is not about a particular feed
    (drain_agent, resign_owner, rebalance_feed of all): it then goes to every shard concerned, under an id each.
    ``parts`` is for split_table: into how many, null to leave the table to the split scheduler. ``abandon_sink`` is for
    remove_feed: end it without its sink (coordinator/core/spans/abandoning.py).
    """

    kind: OperationKind
    feed: str
    spec: str | None
    table: str | None
    agent: str | None
    requested_by: str
    requested_ms: int
    parts: int | None = None
    abandon_sink: bool = False


class RequestSettled(msgspec.Struct, frozen=True):
    """``outcome/<id>``: the outcome of a request."""

    owner_rev: int
    status: OutcomeStatus
    reason: str
    settled_ms: int


def is_unsettled(outcome: RequestSettled | None) -> bool:
    """Whether a request with this outcome is still to be settled."""
    return outcome is None or outcome.status is OutcomeStatus.ACCEPTED


class PausedTable(msgspec.Struct, frozen=True):
    """A table of a running feed that an operator has paused. ``by`` and ``since_ms`` are for people.

    ``copy``: the resync_table request that it is sealed for, which resumes it; null if an operator has paused it.
    """

    table: str
    by: str
    since_ms: int
    copy: str | None = None


class FeedRecorded(msgspec.Struct, frozen=True):
    """``<feed>`` on changefeed: the feed as accepted, its desired state and its current one.

    ``feed_id`` is ``<shard>-<offset of its create request>``: a feed re-created under an old name is another one.
    ``request`` is the operator's request that last changed ``wanted``. ``incarnation`` counts rewinds, ``revision``
    updates of the spec. ``target_ts`` is the spec's. ``sink_id`` is the sink's own identity, the same under every
    address; null if it has none. ``spans`` is how its tables are divided now; ``pinned`` names the tables that an
    operator has divided, or made whole: the split scheduler leaves them alone. ``notices`` is what the last check of
    the source found that no table can report: topics that cannot join, or no longer exist. ``abandoned``: it is removed
    without being sealed at its sink, which an operator has given up. ``paused`` are its paused tables, sorted.
    """

    feed_id: str
    owner_rev: int
    incarnation: int
    spec: str
    spans: tuple[SpanPlan, ...]
    wanted: WantedState
    state: FeedState
    error_code: str | None
    error: str | None
    request: str | None
    changed_ms: int
    revision: int = 0
    target_ts: int | None = None
    sink_id: str | None = None
    pinned: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    abandoned: bool = False
    paused: tuple[PausedTable, ...] = ()


# --- deadletter -----------------------------------------------------------------------------------------------


WITHHELD_HEADER: Final = "headgate.withheld"
"""The only header of a record that was set aside without its content, because the feed hides columns of its table."""


class Header(msgspec.Struct, frozen=True):
    """One header of a source record, with its original bytes."""

    name: str
    value: bytes | None


class ChangeQuarantined(msgspec.Struct, frozen=True):
    """``<feed>/<table>/<topic>/<partition>/<offset>`` on deadletter: a change was set aside instead of applied.

    Written and acknowledged before the sink's position moves past the change, so after a crash it may be there twice,
    under the same key. ``key``, ``value`` and ``headers`` are the source record's own bytes, ``append_ms`` its time.
    If the feed hides columns of the table, they are withheld: null, null and WITHHELD_HEADER.
    ``topic_id`` is Kafka's id of the topic that the key's offset is of, null where it is not known.
    """

    feed_id: str
    incarnation: int
    epoch: Epoch
    error_code: str
    error: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    append_ms: int
    quarantined_ms: int
    topic_id: str | None = None


Announced = OwnerAnnounced | MemberAnnounced | AgentAnnounced
"""The records on announce: each contains up to which schema level its writer reads."""
