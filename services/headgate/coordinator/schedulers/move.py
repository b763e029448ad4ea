"""Move: one span goes where an operator says, if that agent can take it just now."""

from collections.abc import Iterable

from headgate.coordinator.schedulers.capacity import Seats

__all__ = ["seat_of"]


def seat_of(sessions: Iterable[tuple[str, str]], seats: Seats) -> tuple[str, str] | None:
    """The first of the target's sessions that has a seat left by the schedulers before; None if none has.

    An operator is refused rather than put in a queue: what is asked now may be wrong by the time a seat is free.
    """
    return next((session for session in sessions if seats.has(session)), None)
