"""A limited number of slots for several holders, none of which can take so many that the others wait."""


class Shares:
    """How many of ``total`` places each holder has. Not thread-safe.

    A holder has at most ``each`` places, and all holders together ``usual``. The places beyond are spare: each lets one
    holder that has none continue, whatever the others wait for. *Heavy* work takes several places. *Light* work takes
    one, does not keep heavy work from having all usual places, and has the very last place to itself.
    """

    def __init__(self, total: int, usual: int, each: int) -> None:
        """Without spare places (``total`` = ``usual``) nothing is promised to the holder that comes last."""
        self._total = total
        self._usual = usual
        self._each = each
        self._for_newcomers = max(total - usual - 1, 0)
        self._heavy: dict[str, int] = {}
        self._light: dict[str, int] = {}

    @property
    def taken(self) -> int:
        """How many places are taken."""
        return sum(self._heavy.values()) + sum(self._light.values())

    def take(self, holder: str, wanted: int, *, most: int | None = None) -> int:
        """Take up to ``wanted`` places for heavy work. Return how many it got, 0 if it has to wait.

        ``most``: how many the holder may have in total, if that is less than ``each``.
        """
        free, heavy, light = self._total - self.taken, self._heavy.get(holder, 0), self._light.get(holder, 0)
        room = min(wanted, min(self._each, most or self._each) - heavy, free - self._for_newcomers)
        granted = min(room, self._usual - sum(self._heavy.values()))
        if granted <= 0 and not (heavy or light) and free > bool(self._for_newcomers):
            granted = 1
        if granted <= 0:
            return 0
        self._heavy[holder] = heavy + granted
        return granted

    def take_light(self, holder: str) -> bool:
        """Take one place for light work. Return whether it got one."""
        free, heavy, light = self._total - self.taken, self._heavy.get(holder, 0), self._light.get(holder, 0)
        may_have_more = (heavy + light < self._each or not light) and free > self._for_newcomers
        if not free or ((heavy or light) and not may_have_more):
            return False
        self._light[holder] = light + 1
        return True

    def give_back(self, holder: str, places: int) -> None:
        """Give back places of heavy work."""
        _less(self._heavy, holder, places)

    def give_back_light(self, holder: str) -> None:
        """Give back the place of light work."""
        _less(self._light, holder, 1)


def _less(counts: dict[str, int], holder: str, places: int) -> None:
    counts[holder] -= places
    if not counts[holder]:
        del counts[holder]
