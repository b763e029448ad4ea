"""The rare states that a campaign must reach: what is never reached is not tested (TigerBeetle's coverage marks)."""

from collections import Counter
from typing import Final

__all__ = ["MARKS_SEEDS_MIN", "REQUIRED", "missing"]

MARKS_SEEDS_MIN: Final = 300
"""Fewer seeds than this cannot be asked for every mark: the rarest come once in about fifty seeds."""

REQUIRED: Final = (
    # What can become of a span (coordinator/replication.py), step by step.
    "none to commit",
    "commit to replicating",
    "commit to absent",
    "commit to removing",
    "replicating to prepare",
    "replicating to commit",
    "replicating to absent",
    "replicating to removing",
    "prepare to handover",
    "prepare to commit",
    "prepare to removing",
    "handover to commit",
    "handover to removing",
    "removing to sealed",
    "removing to orphaned",
    "orphaned to removing",
    "absent to commit",
    "absent to removing",
    "sealed to commit",
    "removing to commit",
    "secondary promoted",
    "move abandoned",
    # Who was lost, and when.
    "a role lost in commit",
    "a role lost in replicating",
    "a role lost in prepare",
    "a role lost in handover",
    "a role lost in removing",
    "both roles lost in prepare",
    "both roles lost in handover",
    "an undetermined writer",
    "a word under an old epoch",
    "a word of a dead session",
    # Owners.
    "fenced after deciding, at the commit",
    "killed before commit",
    "killed after commit",
    "killed before effect",
    "frozen before commit",
    "frozen after commit",
    "frozen after init",
    "a role resigned",
    "a late commit arrived",
    "an open transaction timed out",
    "live digest compared, serving",
    "live digest compared, standby",
    # Agents.
    "killed before report",
    "killed after report",
    "frozen before report",
    "frozen after report",
    "report not acknowledged",
    "suicide: lease",
    "id in use",
    "agent left empty",
    "session began before the end of the log",
    # The sink.
    "answer to claim lost",
    "answer to apply lost",
    "answer to seal lost",
    "claim refused: sink_fenced",
    "apply refused: sink_fenced",
    "apply refused: sink_moved",
    "late apply refused: sink_fenced",
    "late apply refused: sink_moved",
    "late claim refused: sink_fenced",
    # Operators.
    "create_feed done",
    "create_feed refused",
    "pause_feed done",
    "pause_feed failed",
    "resume_feed done",
    "resume_feed refused",
    "move_table done",
    "move_table failed",
    "remove_feed done",
    "rebalance_feed done",
    "rebalance_feed failed",
    "drain_agent done",
    "drain_agent failed",
    "resign_owner done",
    "feed stopped",
    "feed finished",
    "feed gone",
    "feed made again",
    "tombstones cleaned away",
    "update_feed done",
    "update_feed refused",
    "a table joined",
    "a feed was failed after half an hour",
    # What lies outside: two versions at once, time, lag, retention.
    "the level rose after an upgrade",
    "an old owner followed a new one",
    "something waits for an upgrade",
    "the wall clock stepped back",
    "the wall clock stepped on",
    "announce lagged behind the others",
    "changefeed lagged behind the others",
    "checkpoint lagged behind the others",
    "dispatch lagged behind the others",
    "sync lagged behind the others",
    "an open transaction held readers up",
    "a delayed end of a transaction found another producer",
    "a span was stopped by retention",
)


def missing(marks: Counter[str]) -> list[str]:
    """The required marks that were never reached, in their order."""
    return [name for name in REQUIRED if not marks[name]]
