"""Switches of a change log under every kind of crash: per key, what is read is what was written, in order, once.

The first histories draw who dies when. The others have one death each, at each step of each who takes part: so there is
none between two steps that was not tried.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from headgate.app.exit_codes import ExitCode
from headgate.cli.main import app
from headgate.generation.changelog.core import switching
from headgate.generation.changelog.core.outbox import Outbox, Written
from headgate.generation.changelog.core.reader_progress import ReaderProgress
from headgate.generation.changelog.core.reading import Gap, Reading, StreamReading
from headgate.generation.core.effects import EndsWritten, FenceWriter, WriteEnds, WriterFenced
from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.stream_table import Gate
from headgate_lab.simulation.migrations.world import MigrationWorld
from headgate_lab.simulation.other_worlds import OtherPlayed, OtherWorld, play_all
from headgate_lab.simulation.switches.actors import SET, SimOwner, SimReader
from headgate_lab.simulation.switches.data_log import DataLog, DataRecord
from headgate_lab.simulation.switches.feed import FeedAgent
from headgate_lab.simulation.switches.world import Crash, Judge, OrderBrokenError, SwitchProfile, SwitchWorld

QUIET = SwitchProfile(
    seed=5, steps=1_000, writers=2, changes=25, partitions=10, crash_rate=0, freeze_rate=0, effect_failure_rate=0,
    switch_rate=0.02,
)  # fmt: skip
STORMY = SwitchProfile(seed=0, crash_rate=0.015, freeze_rate=0.015, switch_rate=0.03, changes=120)
STEPS = {"owner": range(1, 200, 4), "effect": range(1, 25), "writer": range(1, 200, 4), "reader": range(1, 200, 4)}


@pytest.mark.parametrize("seed", range(40, 60))
def test_whatever_dies_each_key_keeps_its_order(seed: int) -> None:
    counts = SwitchWorld(replace(STORMY, seed=seed, strict=seed % 4 == 0)).run()
    assert counts["committed"] > 0


@pytest.mark.parametrize("who", sorted(STEPS))
def test_a_death_at_each_step(who: str) -> None:
    killed = 0
    for at in STEPS[who]:
        profile = SwitchProfile(
            **{**{f: getattr(QUIET, f) for f in QUIET.__struct_fields__}, "crashes": (Crash(who, at),)}
        )
        killed += SwitchWorld(profile).run()[f"{who} killed"]
    assert killed > 10, "the steps are really come to"


@pytest.mark.parametrize("seed", range(60, 80))
def test_a_feed_applies_each_keys_changes_in_order_whoever_dies(seed: int) -> None:
    counts = SwitchWorld(replace(STORMY, seed=seed, strict=seed % 4 == 0, feed_parts=1 + seed % 3)).run()
    assert counts["committed"] > 0


@pytest.mark.parametrize("seed", range(200, 210))
def test_a_log_that_grows_and_whose_streams_are_ended_in_parts_keeps_each_keys_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.generation.changelog.core.switching.MARKERS_MAX", 2)
    world = SwitchWorld(replace(STORMY, seed=seed, strict=seed % 4 == 0, partitions=3, grow_rate=0.01))
    counts = world.run()
    assert counts["committed"] > 0
    assert world.state().sets[SET].partitions > 3


@pytest.mark.parametrize("seed", range(210, 218))
def test_a_feed_applies_each_keys_changes_in_order_while_its_log_grows(seed: int) -> None:
    """New partitions are a part of the table that begins later. Until it is read, its streams hold back others."""
    profile = replace(STORMY, seed=seed, strict=seed % 4 == 0, partitions=3, grow_rate=0.01, feed_parts=1 + seed % 2)
    world = SwitchWorld(profile)
    counts = world.run()
    assert counts["committed"] > 0
    assert len(world.sink.parts) > profile.feed_parts
    assert len(world.sink.positions) > 3


@pytest.mark.parametrize("seed", range(300, 316))
def test_a_log_that_is_deleted_and_created_again_has_what_its_sources_send_to_the_new_one(seed: int) -> None:
    """Whoever dies or stands still meanwhile: owners with effects of the old log, and writers with batches for it."""
    counts = SwitchWorld(replace(STORMY, seed=seed, strict=seed % 4 == 0, delete_at=400 + 90 * (seed - 300))).run()
    assert counts["recreated"] == 1
    assert counts["committed"] > 1


@pytest.mark.parametrize("seed", range(100, 112))
def test_readers_that_come_late_and_old_positions_miss_nothing(seed: int) -> None:
    """Partitions are used again before they begin, so two streams of one partition can be read at a time."""
    profile = replace(STORMY, seed=seed, late=True, crash_rate=0.004, freeze_rate=0.002, strict=seed % 4 == 0)
    counts = SwitchWorld(replace(profile, feed_parts=seed % 3 // 2)).run()
    assert counts["committed"] > 0


@pytest.mark.parametrize("seed", range(120, 132))
def test_what_retention_deletes_before_it_is_read_is_a_gap_and_the_rest_keeps_its_order(seed: int) -> None:
    profile = replace(STORMY, seed=seed, retention_rate=0.01, crash_rate=0.004, freeze_rate=0.002, late=seed % 2 == 0)
    counts = SwitchWorld(replace(profile, strict=seed % 4 == 0)).run()
    assert counts["committed"] > 0
    assert counts["deleted"] > 5


@pytest.mark.parametrize("who", ["agent", "coordinator"])
def test_a_feed_whose_agent_or_coordinator_dies_at_each_step(who: str) -> None:
    killed = 0
    for at in range(1, 200, 4):
        killed += SwitchWorld(replace(QUIET, crashes=(Crash(who, at),), feed_parts=2)).run()[f"{who} killed"]
    assert killed > 10, "the steps are really come to"


@pytest.fixture
def load_counts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history lasts a minute or two: reports and looks every second instead of every ten."""
    monkeypatch.setattr("headgate.generation.changelog.core.life.REPORT_SECONDS", 1.0)
    monkeypatch.setattr("headgate.generation.changelog.core.automatic.LOOK_SECONDS", 1.0)


@pytest.mark.usefixtures("load_counts_soon")
@pytest.mark.parametrize("seed", range(80, 84))
def test_what_the_owner_splits_and_merges_by_itself_keeps_each_keys_order(seed: int) -> None:
    storm = replace(STORMY, crash_rate=0.004, switch_rate=0.005 * (seed % 2), feed_parts=seed % 3, automatic=True)
    counts = SwitchWorld(replace(storm, seed=seed, strict=seed % 4 == 0)).run()
    assert counts["automatic"] > 1


@pytest.mark.usefixtures("load_counts_soon")
@pytest.mark.parametrize("who", ["effect", "owner", "writer"])
def test_a_death_at_each_step_of_what_the_owner_wants_by_itself(who: str) -> None:
    counts: Counter[str] = Counter()
    for at in range(1, 13) if who == "effect" else range(100, 400, 10):
        quiet = replace(QUIET, switch_rate=0, changes=60, automatic=True)
        counts += SwitchWorld(replace(quiet, crashes=(Crash(who, at),))).run()
    assert counts[f"{who} killed"] > 6, "the steps are really come to"
    assert counts["automatic"] > 20


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_histories(seed: int) -> None:
    SwitchWorld(replace(STORMY, seed=seed, strict=seed % 4 == 0)).run()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4000, 4200))
def test_many_histories_of_late_readers_and_retention(seed: int) -> None:
    rate = 0.01 * (seed % 2)
    SwitchWorld(replace(STORMY, seed=seed, strict=seed % 4 == 0, late=True, retention_rate=rate)).run()


@pytest.mark.long
@pytest.mark.usefixtures("load_counts_soon")
@pytest.mark.parametrize("seed", range(3000, 3200))
def test_many_histories_of_automatic_mode(seed: int) -> None:
    SwitchWorld(replace(STORMY, seed=seed, crash_rate=0.006, feed_parts=seed % 3, automatic=True)).run()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2000, 2400))
def test_many_histories_of_a_feed(seed: int) -> None:
    SwitchWorld(replace(STORMY, seed=seed, strict=seed % 4 == 0, feed_parts=1 + seed % 3)).run()


def _nobody_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DataLog, "init", lambda log, writer: log._epochs.setdefault(writer, 1))


def _the_owner_does_not_fence(patch: pytest.MonkeyPatch) -> None:
    run = SimOwner._run

    def only_look(owner: SimOwner, effect: object) -> object:
        if isinstance(effect, FenceWriter):
            return WriterFenced(owner._data.written.get(effect.writer, Written()).ahead)
        return run(owner, effect)

    patch.setattr(SimOwner, "_run", only_look)


def _what_is_ahead_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    begin = Outbox.begin
    patch.setattr(Outbox, "begin", lambda box, written: begin(box, Written(written.position, written.position)))


def _what_is_held_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    begin = Outbox.begin
    patch.setattr(Outbox, "begin", lambda box, written: begin(box, Written(written.ahead, written.ahead)))


def _nothing_is_held(patch: pytest.MonkeyPatch) -> None:
    take = Outbox.take
    patch.setattr(Outbox, "take", lambda box, log, _closed, *limits: take(box, log, (), *limits))


def _no_end_is_written(patch: pytest.MonkeyPatch) -> None:
    run = SimOwner._run
    patch.setattr(
        SimOwner, "_run", lambda owner, effect: EndsWritten() if isinstance(effect, WriteEnds) else run(owner, effect)
    )


def _ends_are_written_before_all_have_promised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(switching, "_promise", lambda _draft, _name, _generation, cut: cut.position or 0)


def _children_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gate, "is_open", lambda _gate, _stream: True)


MISSING_GUARDS = [
    _nobody_is_fenced,
    _the_owner_does_not_fence,
    _what_is_ahead_is_forgotten,
    _what_is_held_is_forgotten,
    _nothing_is_held,
    _no_end_is_written,
    _ends_are_written_before_all_have_promised,
    _children_do_not_wait,
]


@pytest.mark.parametrize("remove", MISSING_GUARDS, ids=lambda remove: remove.__name__.strip("_"))
def test_a_guard_that_is_missing_is_found_out(
    monkeypatch: pytest.MonkeyPatch, remove: Callable[[pytest.MonkeyPatch], None]
) -> None:
    remove(monkeypatch)

    def run_many() -> None:
        for seed in range(40, 60):
            SwitchWorld(replace(STORMY, seed=seed, strict=seed % 4 == 0)).run()

    # OrderBrokenError, PromiseBrokenError, or a gap where there can be none.
    with pytest.raises(AssertionError):
        run_many()


def _one_stream_of_a_partition_is_read(patch: pytest.MonkeyPatch) -> None:
    """The newest, as a dictionary by partition keeps it."""

    def newest(progress: ReaderProgress) -> dict[int, StreamReading]:
        progress._wanted = {each.stream.partition: each for each in progress._reading.readable()}
        return progress._wanted

    patch.setattr(ReaderProgress, "fetches", newest)


def _what_was_handed_out_is_reported(patch: pytest.MonkeyPatch) -> None:
    """Though its caller has not stored it; a slow caller."""
    patch.setattr("headgate_lab.simulation.switches.actors.STORE_TURNS", 40)
    fetch = SimReader._fetch

    def report_at_once(reader: SimReader) -> None:
        fetch(reader)
        reader.progress.commit()
        reader._report()

    patch.setattr(SimReader, "_fetch", report_at_once)


def _what_was_deleted_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reading, "passed", _passed_without_a_gap)


def _passed_without_a_gap(reading: Reading, stream: StreamId, position: int, _log_start: int) -> Gap | None:
    at = reading.streams[stream]
    at.next_offset = max(at.next_offset, position)
    return reading._missing_marker(at)


READERS_GUARDS = [
    (_one_stream_of_a_partition_is_read, replace(STORMY, late=True)),
    (_what_was_handed_out_is_reported, replace(STORMY, switch_rate=0.06)),
    (_what_was_deleted_is_passed_over, replace(STORMY, retention_rate=0.01)),
]


@pytest.mark.parametrize(
    ("remove", "profile"), READERS_GUARDS, ids=lambda given: getattr(given, "__name__", "").strip("_")
)
def test_a_guard_of_readers_that_is_missing_is_found_out(
    monkeypatch: pytest.MonkeyPatch, remove: Callable[[pytest.MonkeyPatch], None], profile: SwitchProfile
) -> None:
    remove(monkeypatch)
    monkeypatch.setattr("headgate_lab.simulation.switches.world.CALM_STEPS_MAX", 20_000)

    def run_many() -> None:
        for seed in range(200, 240):
            SwitchWorld(replace(profile, seed=seed)).run()

    with pytest.raises(AssertionError):
        run_many()


def _a_batch_is_applied_by_what_was_known_before(patch: pytest.MonkeyPatch) -> None:
    # It hears of what is new every hundredth batch.
    heard: Counter[FeedAgent] = Counter()
    catch_up = FeedAgent.catch_up

    def seldom(agent: FeedAgent) -> None:
        heard[agent] += 1
        if heard[agent] % 100 == 0:
            catch_up(agent)

    patch.setattr(FeedAgent, "catch_up", seldom)


def _neighbours_are_seen_as_read(patch: pytest.MonkeyPatch) -> None:
    positions = FeedAgent._positions

    def all_read(agent: FeedAgent) -> dict[int, int]:
        return {p: at if p in agent._own else 10**6 for p, at in positions(agent).items()}

    patch.setattr(FeedAgent, "_positions", all_read)


def _what_is_reported_is_ahead_of_the_sink(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("headgate_lab.simulation.switches.feed.read_epoch_of", lambda *_: 10**6)


def _parts_that_came_later_are_seen_as_read(patch: pytest.MonkeyPatch) -> None:
    positions = FeedAgent._positions

    def later_ones_read(agent: FeedAgent) -> dict[int, int]:
        return {p: at if p in agent._own or p < GROWING.partitions else 10**6 for p, at in positions(agent).items()}

    patch.setattr(FeedAgent, "_positions", later_ones_read)


GROWING = replace(STORMY, partitions=3, grow_rate=0.01)

FEEDS_GUARDS = [
    (_children_do_not_wait, STORMY),
    (_a_batch_is_applied_by_what_was_known_before, STORMY),
    (_neighbours_are_seen_as_read, STORMY),
    (_what_is_reported_is_ahead_of_the_sink, STORMY),
    (_parts_that_came_later_are_seen_as_read, GROWING),
]


@pytest.mark.parametrize(
    ("remove", "profile"), FEEDS_GUARDS, ids=lambda given: getattr(given, "__name__", "").strip("_")
)
def test_a_guard_of_feeds_that_is_missing_is_found_out(
    monkeypatch: pytest.MonkeyPatch, remove: Callable[[pytest.MonkeyPatch], None], profile: SwitchProfile
) -> None:
    remove(monkeypatch)

    def run_many() -> None:
        for seed in range(60, 100):
            SwitchWorld(replace(profile, seed=seed, strict=seed % 4 == 0, feed_parts=1 + seed % 3)).run()

    with pytest.raises(AssertionError):
        run_many()


def test_the_judge_notices_what_is_lost_repeated_or_reordered() -> None:
    def record(position: int) -> DataRecord:
        return DataRecord(0, "w", 1, position, "k")

    for given in ([0, 0], [1], [0, 2], [0, 1, 2, 2]):
        judge = Judge({"w": ["k", "k", "k"]})
        for position in given[:-1]:
            judge.deliver(record(position))
        with pytest.raises(OrderBrokenError):
            judge.deliver(record(given[-1]))
    judge = Judge({"w": ["k", "k", "k"]})
    judge.deliver(record(0))
    assert judge.missing() == 2


@pytest.mark.parametrize("world", OtherWorld)
def test_the_command_plays_it(world: OtherWorld) -> None:
    told: list[OtherPlayed] = []
    campaign = play_all(world, range(3, 5), told.append)
    assert (campaign.seeds, campaign.findings, len(told)) == (2, [], 2)
    again = play_all(world, [4], told.append)
    assert told[2] == told[1], "a history is its seed"
    assert again.steps < campaign.steps


@pytest.mark.parametrize("world", OtherWorld)
def test_the_command_tells_what_a_history_finds(world: OtherWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for broken in (SwitchWorld, MigrationWorld):
        monkeypatch.setattr(broken, "_step" if broken is SwitchWorld else "step", None)
    level = logging.getLogger("headgate").level
    result = CliRunner().invoke(app, ["sim", "--world", world.value, "--seeds", "2", "-o", "json"])
    assert logging.getLogger("headgate").level == level, "what runs in this process later is still logged"
    assert result.exit_code == ExitCode.DIFFERENCE
    found = json.loads(result.stdout)
    assert found["violations"] == 2
    assert "TypeError" in found["findings"][0]["finding"]
    refused = CliRunner().invoke(app, ["sim", "--world", world.value, "--ticks", "5"])
    assert refused.exit_code == ExitCode.USAGE
    assert "--ticks and --shrink are for --world tables" in refused.stderr
