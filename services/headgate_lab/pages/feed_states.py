"""The transitions of a feed, for its picture. A unit test compares them with those that the scenarios record.

A feed's record has the desired and the current state. A phase is both of them: ``stopping`` is desired to be stopped,
and not all of its tables are sealed yet.
"""

from typing import Final

from headgate.records.control import FeedState, WantedState

STATES: Final = (
    "none", "normal", "warning", "failed", "stopping", "stopped", "finishing", "finished", "removing", "deleted",
)  # fmt: skip

_STOP: Final = "pause, or a topic got partitions"

EDGES: Final = (
    ("none", "normal", "create"),
    ("normal", "warning", "a table fails"),
    ("warning", "normal", "no table fails"),
    ("warning", "failed", "30 min without progress"),
    ("failed", "normal", "resume, or no table fails"),
    ("failed", "warning", "resume, and another table fails"),
    ("normal", "stopping", _STOP),
    ("warning", "stopping", _STOP),
    ("failed", "stopping", _STOP),
    ("stopping", "stopped", "every table is sealed"),
    ("stopping", "normal", "resume"),
    ("stopped", "normal", "resume"),
    ("normal", "finishing", "every table has reached target_ts"),
    ("finishing", "finished", "every table is sealed"),
    ("finished", "normal", "resume --from"),
    ("normal", "removing", "delete"),
    ("warning", "removing", "delete"),
    ("failed", "removing", "delete"),
    ("stopping", "removing", "delete"),
    ("stopped", "removing", "delete"),
    ("finishing", "removing", "delete"),
    ("finished", "removing", "delete"),
    ("removing", "deleted", "every table is sealed, and the sink has no progress of it"),
    ("removing", "deleted", "abandoned, and no known session runs a table"),
)
"""Phase, next phase, and what leads there."""

_WHILE_ENDING: Final = {
    WantedState.STOPPED: "stopping",
    WantedState.FINISHED: "finishing",
    WantedState.REMOVED: "removing",
}


def phase_of(wanted: WantedState, state: FeedState) -> str:
    """The phase of a record."""
    if wanted is WantedState.RUNNING:
        return state.value
    if (wanted, state) in ((WantedState.STOPPED, FeedState.STOPPED), (WantedState.FINISHED, FeedState.FINISHED)):
        return state.value
    return _WHILE_ENDING[wanted]
