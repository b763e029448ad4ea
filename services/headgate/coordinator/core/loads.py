"""The load of each span, from its agents' reports, at a cost per report and none per idle span.

A report contains how many bytes its role has moved since its claim. The difference from the role's previous report is
added to the current *round*. When a round ends, it gives bytes per second for each span that moved any. This is memory
of one term (state.py): a new owner measures again. Times are passed in, in monotonic seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.coordinator.schedulers.contract import Heat
from headgate.records.control import Epoch
from headgate.records.keys import SpanKey


@dataclass(slots=True)
class Loads:
    """Bytes of the current round, and the results of earlier rounds; see the module's docstring."""

    is_running: bool = False
    """A round is under way: its timer is set."""
    is_due: bool = False
    """The round's time is over, but the round has not been evaluated yet."""
    streak: int = 0
    """Rounds in a row in which the same session was out of the band."""
    hottest: tuple[str, str] | None = None
    heats: dict[tuple[str, str], tuple[Heat, int]] = field(default_factory=dict)
    """(feed, table) → its heat in the last round, and for how many rounds in a row."""
    _begun_at: float = 0.0
    _moved: dict[SpanKey, int] = field(default_factory=dict)
    _last: dict[SpanKey, tuple[Epoch, int]] = field(default_factory=dict)

    def note(self, key: SpanKey, epoch: Epoch, bytes_total: int) -> bool:
        """Record a role's report. Return whether it has moved anything since its last one (the first shows nothing)."""
        last = self._last.get(key)
        self._last[key] = (epoch, bytes_total)
        if last is None or last[0] != epoch or bytes_total <= last[1]:
            return False
        self._moved[key] = self._moved.get(key, 0) + bytes_total - last[1]
        return True

    def begin(self, now: float) -> None:
        """Start a round; what was recorded between the last one and this one counts for it."""
        self.is_running, self.is_due, self._begun_at = True, False, now

    def end(self, now: float) -> dict[SpanKey, float]:
        """End the round: bytes per second of every span that moved any. The next one has to be started."""
        seconds = max(now - self._begun_at, 1.0)
        moved, self._moved = self._moved, {}
        self.is_running = self.is_due = False
        return {key: count / seconds for key, count in sorted(moved.items())}

    def judge(self, hottest: tuple[str, str] | None) -> int:
        """Record who was out of the band in this round, None if no session. Return for how many rounds in a row now."""
        self.streak = 0 if hottest is None else self.streak + 1 if hottest == self.hottest else 1
        self.hottest = hottest
        return self.streak

    def note_heat(self, heats: Mapping[tuple[str, str], Heat]) -> dict[tuple[str, str], tuple[Heat, int]]:
        """Record the tables' heat in this round. Return for how many in a row, now. Tables not named are forgotten."""
        before = self.heats
        self.heats = {}
        for place, heat in heats.items():
            last, count = before.get(place, (heat, 0))
            self.heats[place] = (heat, count + 1 if last is heat else 1)
        return self.heats

    def forget(self, key: SpanKey) -> None:
        """The span is gone."""
        self._moved.pop(key, None)
        self._last.pop(key, None)
