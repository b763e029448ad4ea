"""Why a copy waits: how each kind of reason in a record begins, and what an operator can do about it.

Who writes a reason begins it with one of these, so that ``headgate why`` knows which kind it is.
"""

from typing import Final

OPERATOR: Final = "an operator:"
DATABASE: Final = "the database:"
REPLICA: Final = "a replica"
FEED: Final = "feed "
CLEAN_UP: Final = "clean-up:"

_LIMITS: Final = "limits belong to the submission: cancel it, and submit it with others"

_ADVICE: Final = (
    (OPERATOR, "`headgate migration throttle {name} --ratio 0` ends the throttle"),
    (DATABASE, f"wait until fewer sessions are at work; {_LIMITS}"),
    (REPLICA, f"check the replica that is behind; {_LIMITS}"),
    (FEED, "`headgate why` with that feed says what holds it, and what to do"),
    (CLEAN_UP, "remove the cause; the owner tries it again every minute"),
)

_OTHER_ADVICE: Final = "remove the cause; the owner tries it again by itself"


def advice_on(reason: str, migration: str) -> str:
    """What to do about a reason; the owner retries what is no limit of an operator."""
    found = next((text for beginning, text in _ADVICE if reason.startswith(beginning)), _OTHER_ADVICE)
    return found.format(name=migration)
