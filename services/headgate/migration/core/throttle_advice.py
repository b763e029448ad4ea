"""Advice for an operator whose copy waits, by the kind of the reason."""

from typing import Final

from headgate.records.throttle_reasons import CLEAN_UP, DATABASE, FEED, OPERATOR, REPLICA

_LIMITS: Final = "limits belong to the submission: cancel it, and submit it with others"

_ADVICE: Final = (
    (OPERATOR, "`headgate migration throttle {name} --ratio 0` ends the throttle"),
    (DATABASE, f"wait until fewer sessions are at work; {_LIMITS}"),
    (REPLICA, f"check the replica that is behind; {_LIMITS}"),
    (FEED, "`headgate why` with that feed shows what holds it back, and what to do"),
    (CLEAN_UP, "remove the cause; the owner tries it again every minute"),
)

_OTHER_ADVICE: Final = "remove the cause; the owner tries it again by itself"


def advice_on(reason: str, migration: str) -> str:
    """Advice for a reason; the owner retries everything except an operator's limits."""
    found = next((text for beginning, text in _ADVICE if reason.startswith(beginning)), _OTHER_ADVICE)
    return found.format(name=migration)
