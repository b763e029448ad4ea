"""Why a lease was lost: by a fault that touched its holder, or by none, and then it is a bug."""

from collections.abc import Iterable
from typing import Final

import msgspec

from headgate_lab.chaos.faults import EVERYBODY
from headgate_lab.demo.watch import Chronicle

AFTER_LEASES: Final = 3.0
"""A lease runs out up to a lease after its cause is over; a process that wakes up takes another to see it."""


class _Touch(msgspec.Struct):
    names: frozenset[str]
    began: float
    holds_up: bool
    ended: float | None = None


class Blame:
    """When which services were touched, in monotonic seconds."""

    def __init__(self, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._after_seconds = AFTER_LEASES * lease_seconds
        self._touches: list[_Touch] = []

    def begin(self, names: Iterable[str], now: float, *, holds_up: bool = False) -> _Touch:
        """From now on these may lose their leases. ``holds_up``: their records arrive only when the fault is over."""
        self._touches.append(_Touch(frozenset(names), now, holds_up))
        return self._touches[-1]

    def explains(self, name: str, heard_at: float, lost_at: float) -> bool:
        """Whether a fault touched ``name`` when its lease ran out, a lease after it was last heard, or shortly before.

        ``lost_at`` is when the loss was written down. That may be much later: the coordinator that must write it may
        first have to find a broker, and win an election.
        """
        ran_out_at = min(lost_at, heard_at + self.lease_seconds)
        return any(
            touch.began <= lost_at and (touch.ended is None or ran_out_at <= touch.ended + self._after_seconds)
            for touch in self._touches
            if name in touch.names or EVERYBODY in touch.names
        )

    def explains_fall(self, name: str, heard_at: float) -> bool:
        """Whether ``name`` fell silent when what a fault had held up of another coordinator came through.

        That may be its campaign: ``init`` fences the current owner of the shard, and Kafka cannot know that it is old.
        """
        return any(
            touch.holds_up
            and name not in touch.names
            and touch.ended is not None
            and abs(heard_at - touch.ended) <= self.lease_seconds
            for touch in self._touches
        )


def false_losses(seen: Chronicle, blame: Blame, names_of_owners: dict[str, str], first_term: int) -> list[str]:
    """Sessions and terms lost without a fault that explains it, one line each.

    ``names_of_owners``: owner_id → service. Terms before the ``first_term``-th were part of finding an owner.
    """
    lost = []
    died_at = {death.session: (death.seen_at, death.reason) for death in seen.deaths}
    for agent, sessions in sorted(seen.sessions.items()):
        for place, session in enumerate(sessions):
            successor = sessions[place + 1] if place + 1 < len(sessions) else None
            if session in died_at:
                at, why = died_at[session]
            elif successor is not None:
                at, why = seen.announced_at[successor], "gave it up by itself"
            else:
                continue
            if not blame.explains(agent, seen.heard_at[session], at):
                lost.append(f"session {session} of {agent}: {why}")
    for former, term in zip(seen.terms[first_term - 1 :], seen.terms[first_term:], strict=False):
        name = names_of_owners.get(former.owner_id, former.owner_id)
        heard_at = seen.heard_at[former.owner_rev]
        if not (blame.explains(name, heard_at, term.announced_at) or blame.explains_fall(name, heard_at)):
            lost.append(f"term {former.owner_rev} of {name}: {term.owner_id} took over without a reason")
    return lost
