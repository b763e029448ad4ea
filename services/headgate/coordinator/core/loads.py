"""The load of each span, from its agents' reports, at a cost per report and none per idle span.

A report says how many bytes its role has moved since its claim. The difference to the role's report before is added to
the present *round*; a round that is over gives bytes per second of the spans that moved any. This is memory of one term
(state.py): a new owner measures again. Time is given in, in monotonic seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.coordinator.schedulers.contract import Heat
from headgate.records.control import Epoch
from headgate.records.keys import SpanKey


@dataclass(slots=True)
class Loads:
    """Bytes of the round under way, and what earlier rounds have shown; see the module's docstring."""

    is_running: bool = False
    """A round is under way: its timer is set."""
    is_due: bool = False
    """The round's time is over, but nobody has looked at it yet."""
    streak: int = 0
    """Rounds in a row in which the same session was out of the band."""
    hottest: tuple[str, str] | None = None
    heats: dict[tuple[str, str], tuple[Heat, int]] = field(default_factory=dict)
    """(feed, table) → what it was in the last round, and in how many in a row."""
    _begun_at: float = 0.0
    _moved: dict[SpanKey, int] = field(default_factory=dict)
    _last: dict[SpanKey, tuple[Epoch, int]] = field(default_factory=dict)

    def note(self, key: SpanKey, epoch: Epoch, bytes_total: int) -> bool:
        """A role's report; whether it has moved anything since its last one (its first one tells nothing)."""
        last = self._last.get(key)
        self._last[key] = (epoch, bytes_total)
        if last is None or last[0] != epoch or bytes_total <= last[1]:
            return False
        self._moved[key] = self._moved.get(key, 0) + bytes_total - last[1]
        return True

    def begin(self, now: float) -> None:
        """A round begins; what was noted before it and after the last one counts for it."""
        self.is_running, self.is_due, self._begun_at = True, False, now

    def end(self, now: float) -> dict[SpanKey, float]:
        """The round is over: bytes per second of every span that moved any. The next one has to be begun."""
        seconds = max(now - self._begun_at, 1.0)
        moved, self._moved = self._moved, {}
        self.is_running = self.is_due = False
        return {key: count / seconds for key, count in sorted(moved.items())}

    def judge(self, hottest: tuple[str, str] | None) -> int:
        """Who was out of the band in this round, None if nobody; for how many rounds in a row now."""
        self.streak = 0 if hottest is None else self.streak + 1 if hottest == self.hottest else 1
        self.hottest = hottest
        return self.streak

    def note_heat(self, heats: Mapping[tuple[str, str], Heat]) -> dict[tuple[str, str], tuple[Heat, int]]:
        """What tables were in this round; in how many in a row, now. Those that are not named are forgotten."""
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
