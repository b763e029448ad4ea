"""Move: one span goes to the agent that an operator names, if that agent can take it now."""

from collections.abc import Iterable

from headgate.coordinator.schedulers.capacity import Capacity


def session_with_capacity(sessions: Iterable[tuple[str, str]], capacity: Capacity) -> tuple[str, str] | None:
    """The first of the target's sessions that has capacity left by the schedulers before; None if none has.

    An operator is refused rather than put in a queue: the request may be wrong by the time there is free capacity.
    """
    return next((session for session in sessions if capacity.has(session)), None)
