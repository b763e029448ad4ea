"""Rights that a sink's user does not have: all of them in one error, as statements that an administrator can run."""

from collections.abc import Sequence
from typing import Final

from headgate.sinks.contract import SinkRefusedError

GRANTS_SHOWN_MAX: Final = 20
"""Statements in one error. A feed of thousands of tables usually lacks the same right on all of them."""


class RightsMissingError(SinkRefusedError):
    """The sink's user lacks rights. ``grants`` are the statements that give them."""

    def __init__(self, lacks: str, grants: Sequence[str]) -> None:
        shown = "; ".join(grants[:GRANTS_SHOWN_MAX])
        more = f" (and {len(grants) - GRANTS_SHOWN_MAX} more)" if len(grants) > GRANTS_SHOWN_MAX else ""
        super().__init__(f"{lacks}. Run as an administrator: {shown}{more}")
        self.lacks = lacks
        self.grants = tuple(grants)


def all_missing(errors: Sequence[RightsMissingError]) -> RightsMissingError:
    """One error of several; never none."""
    if len(errors) == 1:
        return errors[0]
    grants = dict.fromkeys(grant for error in errors for grant in error.grants)
    more = f", and {len(errors) - 1} more like this" if len(errors) > 1 else ""
    return RightsMissingError(f"{errors[0].lacks}{more}", list(grants))
