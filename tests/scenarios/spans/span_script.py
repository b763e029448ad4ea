"""A script about one span: each line tells its machine something, and below it stands what became of it.

A line is ``<seconds since the last one, if any> <input> <words>``; positions and ends are ``partition=offset``. The
trace is indented: the state behind the input, then the effects, in order. Comments and empty lines stay.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from headgate.agent.core.executor import CopyOrder, MaintenanceReport, SpanId, SpanTask
from headgate.agent.core.span import inputs as given
from headgate.agent.core.span.machine import decide
from headgate.agent.core.span.states import Span, Stop
from headgate.agent.core.span.transitions import LowerEpochError
from headgate.records.control import Epoch, Positions, SpanPlan
from headgate.runtime.table import UnknownTransitionError

__all__ = ["play"]

SPAN = SpanId("shop", "t")
PLAN = SpanPlan(span="t", topic="t", table="public.t", start={0: 0, 1: 0})


Named: TypeAlias = dict[str, str]


class _Player:
    def __init__(self) -> None:
        self._span: Span | None = None
        self._now = 0.0
        self._lives = 0

    def tell(self, line: str) -> Iterator[str]:
        words = line.split()
        if words[0].replace(".", "").isdigit():
            self._now += float(words.pop(0))
        try:
            step = decide(self._span, self._input(words[0], words[1:]), self._now)
        except (LowerEpochError, UnknownTransitionError) as error:
            yield f"  ! {type(error).__name__}"
            return
        self._span = step.span
        yield f"  {self._state()}"
        yield from (f"  * {_effect(effect)}" for effect in step.effects)

    def _state(self) -> str:
        span = self._span
        if span is None:
            return "nothing is left"
        told = "" if span.state.value == span.phase.value else f", {span.state}"
        parts = [f"{span.phase}{told} under {_epoch(span.task.epoch)}"]
        if span.lane is not None:
            parts.append(f"on {span.lane}")
        if span.stop is not Stop.NOT and span.phase.value != "stopped":
            parts.append(f"to end: {span.stop}")
        if span.positions:
            parts.append("at " + _pairs(span.positions))
        if span.progress.read_to and span.progress.rests_since is not None:
            parts.append("read to " + _pairs(span.progress.read_to))
        status = span.status(0, 0.0)
        if status.rows:
            parts.append(f"{status.rows} rows")
        if status.resolved_ts is not None:
            parts.append(f"complete up to {status.resolved_ts}" + (", its target" if span.is_at_target else ""))
        if span.error is not None:
            parts.append(f"error {span.error[0]}")
        if span.copying is not None:
            parts.append(f"tells {status.error_code}: {status.error}")
        parts += _upkeep(span)
        if span.retry_at is not None:
            parts.append(f"again in {span.retry_at - self._now:g} s")
        return ", ".join(parts)

    def _input(self, name: str, words: Sequence[str]) -> given.SpanInput:
        pairs = {int(key): int(value) for key, _, value in (word.partition("=") for word in words) if key.isdigit()}
        named = {key: value for key, _, value in (word.partition("=") for word in words) if not key.isdigit()}
        if name in ("add", "close"):
            self._lives += 1
            copy = CopyOrder(named["copy"], "{}") if "copy" in named else None
            task = SpanTask(SPAN, "0-1", 1, _epoch_of(words[0]), PLAN, "{}", copy)
            is_primary = "primary" in named
            return given.Add(task, is_primary, self._lives) if name == "add" else given.Close(task, self._lives)
        if name == "slowed":
            return given.Slowed(self._now + float(named["until"]))
        return INPUTS[name](self._span, pairs, named)


def _upkeep(span: Span) -> Iterator[str]:
    if span.is_maintained:
        yield f"tells {span.status(0, 0.0).error_code}"
    if span.maintain_for is not None:
        yield f"to be maintained for {span.maintain_for}"
    if span.maintained is not None:
        yield f"maintained for {span.maintained.request}"


def _opened(span: Span | None, positions: Positions, named: Named) -> given.Opened:
    assert span is not None
    epoch = _epoch_of(named["under"]) if "under" in named else span.task.epoch
    is_primary = named["as"] == "primary" if "as" in named else span.primary
    target_ts = int(named["target"]) if "target" in named else None
    done = None
    if "maintained" in named:
        done = MaintenanceReport(named["maintained"] or None, "done", "unable" in named, 1)
    return given.Opened(
        epoch, is_primary, positions,
        target_ts=target_ts, copying=named.get("copying"), maintain_at=_seconds(named.get("next")), maintained=done,
    )  # fmt: skip


def _seconds(text: str | None) -> float | None:
    return None if text is None else float(text)


def _opening(span: Span | None, named: Named) -> int:
    assert span is not None
    return int(named.get("opening", span.progress.opening))


def _code(named: Named) -> str:
    return next(key for key in named if key != "final")


def _result(positions: Positions, named: Named) -> given.SpanResult | None:
    if "nothing" in named:
        return None
    held = tuple(int(each) for each in named["held"].split(",")) if "held" in named else ()
    resolved = dict.fromkeys((0, 1), int(named["resolved"])) if "resolved" in named else {}
    rows, code = int(named.get("rows", 0)), named.get("error")
    is_retryable = code is not None and "final" not in named
    return given.SpanResult(
        SPAN, positions, rows, rows, None, None, 0, code, code and "why", is_retryable, 0, 0,
        resolved=resolved, held=held,
    )  # fmt: skip


def _ends(named: Named) -> dict[tuple[str, int], int]:
    """``ends=9``: the batch went so far in both partitions."""
    return dict.fromkeys((("t", 0), ("t", 1)), int(named["ends"])) if "ends" in named else {}


INPUTS: dict[str, Callable[[Span | None, Positions, Named], given.SpanInput]] = {
    "remove": lambda _, __, named: given.Remove("seal" in named),
    "forget": lambda *_: given.Forget(),
    "opened": _opened,
    "settled": lambda _, positions, __: given.Settled(positions),
    "sealed": lambda _, positions, __: given.Sealed(positions),
    "call_failed": lambda _, __, named: given.CallFailed(_code(named), "why", "final" not in named),
    "looked": lambda span, positions, named: given.Looked(_opening(span, named), positions),
    "placed": lambda _, __, named: given.Placed(next(iter(named))),
    "served": lambda *_: given.Served(),
    "planned": lambda *_: given.Planned(),
    "batch": lambda _, positions, named: given.BatchOver(_result(positions, named), _ends(named)),
    "read": lambda _, positions, __: given.Passed({("t", partition): end for partition, end in positions.items()}),
    "sent_back": lambda *_: given.SentBack("why"),
    "lane_lost": lambda _, __, named: given.LaneLost("gone", "alone" in named),
    "failed": lambda _, __, named: given.Failed(_code(named), "why", "final" not in named),
    "retry_due": lambda *_: given.RetryDue(),
    "copy_due": lambda *_: given.CopyDue(),
    "drop_copy": lambda _, __, named: given.DropCopy(next(iter(named))),
    "maintain_for": lambda _, __, named: given.MaintainFor(next(iter(named))),
    "maintain_due": lambda *_: given.MaintainDue(),
    "settle_due": lambda *_: given.SettleDue(),
    "completed": lambda span, _, named: given.Completed(_opening(span, named), int(named["ts"])),
}


def _epoch_of(word: str) -> Epoch:
    rev, _, number = word.partition(".")
    return Epoch(int(rev), int(number))


def _epoch(epoch: Epoch) -> str:
    return f"{epoch.owner_rev}.{epoch.n}"


def _pairs(positions: Positions) -> str:
    return " ".join(f"{partition}={offset}" for partition, offset in sorted(positions.items()))


def _effect(effect: given.Effect) -> str:
    text = "tell: it starts again"
    match effect:
        case given.Open(primary=primary):
            text = "open, claiming it" if primary else "open"
        case given.Settle():
            text = "move the sink's positions"
        case given.Seal():
            text = "seal"
        case given.JoinLane(lane=lane):
            text = f"join {lane}"
        case given.LeaveLane(lane=lane):
            text = f"leave {lane}"
        case given.TellFailure(code=code, retry_seconds=seconds):
            text = f"tell: {code}, " + ("not tried again" if seconds is None else f"again in {seconds:g} s")
    return text


def play(path: Path) -> str:
    """The script with its traces made anew."""
    player, lines = _Player(), []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines.extend(player.tell(line))
    return "\n".join(lines) + "\n"
