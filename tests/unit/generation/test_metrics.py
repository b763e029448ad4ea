"""What the owner of generations shows of its change logs."""

import random
import time

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from headgate.generation.changelog.core.planning import first_map
from headgate.generation.core.state import GenerationState, chunks_of, evolve, new_state
from headgate.generation.owner.shell.metrics import GenerationMetrics
from headgate.records.base import Fact
from headgate.records.generation import (
    AutomaticKey,
    AutomaticRecorded,
    ChunkKey,
    GenerationPhase,
    GenerationRecorded,
    LoadPolicy,
    SetKey,
    SetRecorded,
    StreamLoad,
    WriterAdmitted,
    WriterKey,
    WriterReported,
)
from headgate.records.timestamps import (
    TimestampGeneration,
    TimestampKey,
    TimestampPublished,
    TimestampSetKey,
    TimestampSetRecorded,
)

LOG = first_map(8, 2, random.Random(3).getrandbits)  # noqa: S311 (ids, not secrets)
FIRST = GenerationRecorded(1, GenerationPhase.COMMITTED, 1, 0, (), {}, ("r1",), "", 0)
SET = SetRecorded(0, "t", None, 8, 1, (FIRST,), (WriterAdmitted("a", 1, False), WriterAdmitted("b", 1, True)))
POLICY = LoadPolicy(100.0, 40.0, 6, 1, 0.0, 8, 20.0)


def standing() -> GenerationState:
    state = new_state(0)
    evolve(state, SetKey("s"), SET, 0)
    evolve(state, ChunkKey("s", 1, 0), chunks_of(LOG, 0)[0], 1)
    loads = (StreamLoad(str(LOG.streams[0].id), 70, 10.0, ()), StreamLoad(str(LOG.streams[1].id), 50, 10.0, ()))
    evolve(state, WriterKey("s", "a", 1), WriterReported(1, 0, -1, False, loads, time.time_ns() // 10**6), 2)
    evolve(state, AutomaticKey("s"), AutomaticRecorded(0, POLICY, "me", 0, ""), 3)
    return state


def shown(registry: CollectorRegistry) -> dict[str, float]:
    return {
        sample.name.removeprefix("headgate_generation_"): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.labels == {"set": "s"}
    }


def test_a_log_is_shown_while_it_is_owned_here() -> None:
    registry = CollectorRegistry()
    metrics = GenerationMetrics(registry)
    metrics.stands(0, standing())
    assert shown(registry) == {
        "epoch": 1,
        "streams": 2,
        "free_partitions": 6,
        "writers": 1,
        "unread_generations": 0,
        "automatic": 1,
        "unknown_writers": 0,
        "refused_reports": 0,
        "changes_per_second": 12.0,
        "hottest_stream_changes_per_second": 7.0,
    }
    metrics.stands(0, None)
    assert shown(registry) == {}


def test_a_log_whose_chunks_are_missing_is_shown_without_streams() -> None:
    registry = CollectorRegistry()
    metrics = GenerationMetrics(registry)
    state = standing()
    evolve(state, ChunkKey("s", 1, 0), None, 4)
    metrics.stands(0, state)
    assert (shown(registry)["epoch"], shown(registry)["streams"]) == (1, 0)


def test_switches_are_counted_once_by_result_and_by_who_asked() -> None:
    registry = CollectorRegistry()
    metrics = GenerationMetrics(registry)

    def commit(*generations: GenerationRecorded) -> None:
        metrics.committed(0, [Fact(SetKey("s"), replace(SET, generations=generations))])

    commit(FIRST)
    fourth = replace(FIRST, epoch=4, follows=1, requests=("r1",), changed_ms=5)
    metrics.stands(0, None)
    commit(fourth)  # What the owner before this one has done.
    second = replace(FIRST, epoch=2, phase=GenerationPhase.PREPARED, follows=1, requests=(), changed_ms=2**50)
    commit(FIRST, second)
    closing = replace(FIRST, phase=GenerationPhase.CLOSING)
    commit(closing, replace(second, phase=GenerationPhase.COMMITTED))
    commit(closing, replace(second, phase=GenerationPhase.COMMITTED))
    commit(replace(second, phase=GenerationPhase.COMMITTED))
    third = replace(second, epoch=3, requests=("r2",))
    commit(replace(second, phase=GenerationPhase.COMMITTED), third)
    commit(replace(second, phase=GenerationPhase.COMMITTED), replace(third, phase=GenerationPhase.ABORTED))

    def count(asked_by: str, result: str) -> float | None:
        labels = {"set": "s", "asked_by": asked_by, "result": result}
        return registry.get_sample_value("headgate_generation_switches_total", labels)

    assert count("operator", "committed") is None, "the first generation is no switch"
    assert [count("automatic", "committed"), count("operator", "aborted")] == [1, 1]
    assert registry.get_sample_value("headgate_generation_switch_seconds_count", {"set": "s"}) == 1


def test_a_timestamp_set_shows_what_is_not_published_yet() -> None:
    registry = CollectorRegistry()
    metrics, state = GenerationMetrics(registry), new_state(0)
    generations = (TimestampGeneration(5, 1, 9, (), ""), TimestampGeneration(9, 1, None, (), ""))
    evolve(state, TimestampSetKey("t"), TimestampSetRecorded(0, 1_000, 0, generations), 0)
    evolve(state, TimestampKey("t", 5), TimestampPublished(0, 1, 9), 1)
    metrics.stands(0, state)
    assert registry.get_sample_value("headgate_timestamps_generations", {"set": "t"}) == 2
    assert registry.get_sample_value("headgate_timestamps_unpublished", {"set": "t"}) == 1
    metrics.stands(0, None)
    assert registry.get_sample_value("headgate_timestamps_generations", {"set": "t"}) is None
