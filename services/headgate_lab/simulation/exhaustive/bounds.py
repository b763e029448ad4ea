"""How much may happen in a searched world, and what a state of it looks like: a few numbers (freezing.py)."""

from typing import Final, NamedTuple

import msgspec

from headgate.records.control import OperationKind, OperationRequested

AGENTS: Final = ("a1", "a2")
NOBODY: Final = -1
FEED: Final = "f"
FEED_ID: Final = "0-1"
COMMANDS: Final = {
    "move": OperationRequested(OperationKind.MOVE_TABLE, FEED, None, "t1", "a2", "operator", 0),
    "split": OperationRequested(OperationKind.SPLIT_TABLE, FEED, None, "t1", None, "operator", 0, 2),
    "merge": OperationRequested(OperationKind.MERGE_TABLE, FEED, None, "t1", None, "operator", 0),
    "pause_table": OperationRequested(OperationKind.PAUSE_TABLE, FEED, None, "t1", None, "operator", 0),
    "resume_table": OperationRequested(OperationKind.RESUME_TABLE, FEED, None, "t1", None, "operator", 0),
    "resync_table": OperationRequested(
        OperationKind.RESYNC_TABLE, FEED, '{"keys": [["1"]]}', "t1", None, "operator", 0
    ),
    "pause": OperationRequested(OperationKind.PAUSE_FEED, FEED, None, None, None, "operator", 0),
    "resume": OperationRequested(OperationKind.RESUME_FEED, FEED, None, None, None, "operator", 0),
    "remove": OperationRequested(OperationKind.REMOVE_FEED, FEED, None, None, None, "operator", 0),
}


class SearchBounds(msgspec.Struct, frozen=True):
    """How much may happen: tables, source partitions and changes in each, an operator's commands, faults in all.

    With ``housekeeping`` progress is reported, checkpoints are written and dead sessions' reports swept, at any time.
    """

    spans: int = 1
    events: int = 1
    commands: tuple[str, ...] = ()
    faults: int = 1
    housekeeping: bool = False
    partitions: int = 1


class Frame(NamedTuple):
    """A state of the world.

    - ``owner`` what the serving coordinator knows, and ``unread`` what it has not read yet;
    - ``log``   what a replay of the log gives now, and ``sink`` the sink with its books;
    - ``first``, ``second`` the agents: the session's part, what it has not read yet, how many sessions there have been;
    - ``wire``  requests on their way to the sink, whose callers no longer wait;
    - budgets: terms so far, faults left, commands given.
    """

    owner: int
    unread: int
    effects: int
    log: int
    first: int
    second: int
    wire: int
    sink: int
    terms: int
    faults: int
    commands: int


Step = tuple[str, bool, Frame]
"""Label, whether it is of the outside (a fault, or an operator's command), and the state after it."""
