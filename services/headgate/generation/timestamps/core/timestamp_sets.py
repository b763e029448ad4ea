"""Operators' requests about timestamp sets, and how their generations are published and removed.

A request with another ring makes a generation at once: its timestamp is on the log before any of its rows, so that all
writers know of it, and refuse its writes until its rows are read. The rows follow (see timestamp_publishing.py).

A check reads every row of every generation. It answers all requests that arrive while it runs. Requests for a ring that
the latest generation was made for wait for that generation: so requests at the same time make one generation.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.effects import CheckRows, RowsChecked
from headgate.generation.core.timestamp_records import removal_of
from headgate.generation.timestamps.core.rings import RingError, chunks_of_ring, owners_of, same_ring
from headgate.generation.timestamps.core.timeline import GenerationError, next_generation_ms
from headgate.generation.timestamps.core.timestamp_publishing import about, advance, heal, publish
from headgate.records.control import OutcomeStatus, is_unsettled
from headgate.records.fitting import fitted_text
from headgate.records.generation import GenerationOutcomeKey
from headgate.records.timestamps import (
    RingKey,
    RingNode,
    RingRecorded,
    TimestampGeneration,
    TimestampSetRecorded,
    TimestampsRequested,
    TimestampsRequestKey,
    TimestampsRequestKind,
)

__all__ = ["answer", "fail_check", "take_checked"]

GENERATIONS_MAX: Final = 1_000
"""Of a set that are not removed: they are stored in one record, at some hundred bytes each."""

REASON_LENGTH_MAX: Final = 200
"""Characters of the reason for a generation, limited for the same purpose: a client may send any text."""

JOINED_MAX: Final = 1_000
"""Requests that wait for one generation."""

RING_DELAY_MS_MIN: Final = 1_000
"""All writers must hear of the set several times within a ring delay. (0 is for tests: no time to hear of it.)"""

RING_DELAY_MS_MAX: Final = 3_600_000
"""An hour: an operator does not wait longer for a node to join."""

WRONG_NAMED: Final = 3
"""Rows that are named in an answer; the rest is counted."""


class _RefusedError(Exception):
    """A request that cannot be done; the message contains the reason and what to do."""


def answer(draft: GenerationDraft, key: TimestampsRequestKey, request: TimestampsRequested) -> None:
    """A request has come, or a new owner has found it."""
    outcome = GenerationOutcomeKey(key.set, key.request)
    settled = draft.outcome(outcome)
    if not is_unsettled(settled):
        return
    record = draft.timestamp_set(key.set)
    if record is not None and any(key.request in each.requests for each in record.generations):
        return  # it waits for that one to be published
    try:
        if request.kind is TimestampsRequestKind.CREATE:
            _create(draft, outcome, request, record)
        elif record is None:
            said = f"not_found: timestamp set {key.set!r} does not exist: create it first"
            draft.settle(outcome, OutcomeStatus.REFUSED, said)
        elif request.kind is TimestampsRequestKind.CLEAN:
            _clean_on_request(draft, outcome, record)
        else:
            _switch_or_repair(draft, outcome, request, record)
    except (_RefusedError, RingError, GenerationError) as error:
        draft.settle(outcome, OutcomeStatus.REFUSED, str(error))


def take_checked(draft: GenerationDraft, name: str, result: RowsChecked) -> None:
    """All rows were read: answer all requests that have arrived by now, and write wrong rows again."""
    record = draft.timestamp_set(name)
    if record is None:
        return
    known = {each.timestamp_ms: each for each in record.generations}
    lost = [ms for ms in known if draft.ring(name, ms) is None]
    for key in result.wrong:
        if key.timestamp_ms in known:
            heal(draft, name, known[key.timestamp_ms], key)
    for outcome in _waiting_for_check(draft, name, record):
        if lost:
            said = f"{name}/ring/{lost[0]} does not exist on the topic generation: switch to a ring, so that there "
            "is another"
            draft.settle(outcome, OutcomeStatus.FAILED, said)
        elif result.wrong:
            texts = ", ".join(key.text() for key in result.wrong[:WRONG_NAMED])
            said = f"{len(result.wrong)} rows were missing or wrong and are written again, the first are: {texts}"
            draft.settle(outcome, OutcomeStatus.DONE, said)
        else:
            said = f"nothing is wrong: generation {max(known)} fits the ring, and every row exists"
            draft.settle(outcome, OutcomeStatus.DONE, said)


def fail_check(draft: GenerationDraft, name: str, reason: str) -> None:
    """The rows could not be read: fail the waiting requests, which may be sent again."""
    record = draft.timestamp_set(name)
    for outcome in () if record is None else _waiting_for_check(draft, name, record):
        draft.settle(outcome, OutcomeStatus.FAILED, f"the rows could not be read: {reason}")


# --- requests ---


def _create(
    draft: GenerationDraft,
    outcome: GenerationOutcomeKey,
    request: TimestampsRequested,
    record: TimestampSetRecorded | None,
) -> None:
    owners_of(request.nodes)
    if record is not None:
        ring, asked = _latest_ring(draft, outcome.set, record), (request.ring_delay_ms, request.kept_ms)
        if not ring or not same_ring(ring, request.nodes) or asked != (record.ring_delay_ms, record.kept_ms):
            raise _RefusedError(f"timestamp set {outcome.set!r} exists with another ring or other times: update it")
        _join_latest(draft, outcome, record)
        return
    if request.ring_delay_ms and not RING_DELAY_MS_MIN <= request.ring_delay_ms <= RING_DELAY_MS_MAX:
        raise _RefusedError(
            f"a ring delay is 0 or {RING_DELAY_MS_MIN} to {RING_DELAY_MS_MAX} ms, not {request.ring_delay_ms}"
        )
    if request.kept_ms < 0:
        raise _RefusedError(f"changes are kept for 0 ms (without limit) or longer, not {request.kept_ms}")
    empty = TimestampSetRecorded(0, request.ring_delay_ms, request.kept_ms, ())
    _begin(draft, outcome, request.nodes, empty, f"created by {request.requested_by}")


def _switch_or_repair(
    draft: GenerationDraft, outcome: GenerationOutcomeKey, request: TimestampsRequested, record: TimestampSetRecorded
) -> None:
    latest = record.generations[-1]
    if request.based_on_ms not in (0, latest.timestamp_ms):
        raise _RefusedError(
            f"the ring of generation {request.based_on_ms} was changed, but {latest.timestamp_ms} is the latest now: "
            "look at its ring and ask again"
        )
    is_repair = request.kind is TimestampsRequestKind.REPAIR
    ring = _latest_ring(draft, outcome.set, record)
    if not request.nodes and not is_repair:
        raise _RefusedError("a switch needs the whole new ring")
    if request.nodes and (not ring or not same_ring(ring, request.nodes)):
        who = f"{request.kind.value} by {request.requested_by}"
        had, has = len(owners_of(ring)) if ring else 0, len(owners_of(request.nodes))
        _begin(draft, outcome, request.nodes, record, f"{who}: a ring of {has} tokens after one of {had}")
    elif is_repair and (outcome.set, latest.timestamp_ms) in draft.state.timestamps.published:
        draft.settle(outcome, OutcomeStatus.ACCEPTED, "looking at every row")
        effect = CheckRows(outcome.set, _published_rings(draft, outcome.set, record))
        draft.run(about(effect), effect)
    else:
        _join_latest(draft, outcome, record)


def _latest_ring(draft: GenerationDraft, name: str, record: TimestampSetRecorded) -> Sequence[RingNode]:
    """Of the latest generation; empty if its record was lost."""
    ring = draft.ring(name, record.generations[-1].timestamp_ms)
    return () if ring is None else ring.nodes


def _join_latest(draft: GenerationDraft, outcome: GenerationOutcomeKey, record: TimestampSetRecorded) -> None:
    """The latest generation is for this ring already: who asks waits until it is published."""
    latest = record.generations[-1]
    if (outcome.set, latest.timestamp_ms) in draft.state.timestamps.published:
        said = f"nothing to change: generation {latest.timestamp_ms} is for this ring"
        draft.settle(outcome, OutcomeStatus.DONE, said)
        return
    if len(latest.requests) >= JOINED_MAX:
        raise _RefusedError(f"{JOINED_MAX} requests wait for generation {latest.timestamp_ms} already: ask later")
    joined = replace(latest, requests=(*latest.requests, outcome.request))
    draft.put_timestamp_set(outcome.set, replace(record, generations=(*record.generations[:-1], joined)))
    draft.settle(outcome, OutcomeStatus.ACCEPTED, f"generation {latest.timestamp_ms} is being published")


def _begin(
    draft: GenerationDraft,
    outcome: GenerationOutcomeKey,
    nodes: Sequence[RingNode],
    record: TimestampSetRecorded,
    reason: str,
) -> None:
    """Another generation. Raises RingError, GenerationError: the clock has gone back."""
    if len(record.generations) >= GENERATIONS_MAX:
        raise _RefusedError(
            f"the set has {GENERATIONS_MAX} generations that cannot be removed yet: see what holds them"
        )
    before = record.generations[-1] if record.generations else None
    timestamp_ms = next_generation_ms(
        draft.now.wall_ms, None if before is None else before.timestamp_ms, ring_delay_ms=record.ring_delay_ms
    )
    chunks, why = len(chunks_of_ring(nodes)), fitted_text(reason)[:REASON_LENGTH_MAX]
    made = TimestampGeneration(timestamp_ms, chunks, None, (outcome.request,), why)
    earlier = record.generations
    draft.put_last(RingKey(outcome.set, timestamp_ms), RingRecorded(draft.term.owner_rev, tuple(nodes)))
    if before is not None:
        earlier = (*earlier[:-1], replace(before, expired_ms=timestamp_ms))
    draft.put_timestamp_set(outcome.set, replace(record, generations=(*earlier, made)))
    if before is not None and (outcome.set, before.timestamp_ms) in draft.state.timestamps.published:
        publish(draft, outcome.set, earlier[-1])
    draft.settle(outcome, OutcomeStatus.ACCEPTED, f"generation {timestamp_ms} is being published")
    advance(draft, outcome.set)


def _published_rings(
    draft: GenerationDraft, name: str, record: TimestampSetRecorded
) -> dict[int, tuple[RingNode, ...]]:
    """Of every generation that is published; the others are being written."""
    found = {}
    for generation in record.generations:
        ring = draft.ring(name, generation.timestamp_ms)
        if ring is not None and (name, generation.timestamp_ms) in draft.state.timestamps.published:
            found[generation.timestamp_ms] = ring.nodes
    return found


def _waiting_for_check(draft: GenerationDraft, name: str, record: TimestampSetRecorded) -> list[GenerationOutcomeKey]:
    taken = {request for each in record.generations for request in each.requests}
    found = []
    for key, placed in sorted(draft.state.timestamps.requests.items(), key=lambda each: each[1].offset):
        outcome = GenerationOutcomeKey(key.set, key.request)
        settled = draft.outcome(outcome)
        is_open = settled is not None and settled.status is OutcomeStatus.ACCEPTED and key.request not in taken
        if key.set == name and placed.request.kind is TimestampsRequestKind.REPAIR and is_open:
            found.append(outcome)
    return found


def _clean_on_request(draft: GenerationDraft, outcome: GenerationOutcomeKey, record: TimestampSetRecorded) -> None:
    removal = removal_of(draft.state.timestamps, outcome.set, record, draft.now.wall_ms)
    held = "; ".join(f"{ms}: {', '.join(why)}" for ms, why in removal.held.items())
    said = f"removed: {', '.join(map(str, removal.due)) or 'none'}"
    draft.settle(outcome, OutcomeStatus.DONE, f"{said}; held back: {held}" if held else said)
    advance(draft, outcome.set)
