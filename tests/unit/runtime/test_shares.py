"""Nobody who waits for something can take so many places, or threads, that the others wait as well."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.provisioning.time_scale import scaled_seconds
from headgate.replication.task_slots import SPARE_SLOTS
from headgate.runtime.shared_pool import SharedPool
from headgate.runtime.shares import Shares

SECONDS = scaled_seconds(30)


def test_one_holder_alone_has_all_usual_places() -> None:
    shares = Shares(total=8, usual=4, each=4)
    assert shares.take("a", 4) == 4
    assert shares.take("a", 1) == 0


def test_places_beyond_the_usual_ones_are_one_for_each_holder() -> None:
    shares = Shares(total=8, usual=4, each=4)
    shares.take("a", 4)
    assert [shares.take(holder, 4) for holder in ("b", "b", "c")] == [1, 0, 1]


def test_heavy_work_leaves_the_last_place_for_light_work() -> None:
    shares = Shares(total=8, usual=4, each=4)
    shares.take("a", 4)
    assert [shares.take(holder, 1) for holder in "bcde"] == [1, 1, 1, 0]
    assert [shares.take_light(holder) for holder in "aef"] == [False, True, False]


def test_light_work_keeps_no_place_from_heavy_work() -> None:
    shares = Shares(total=8, usual=4, each=4)
    assert shares.take_light("a")
    assert shares.take("b", 4) == 4


def test_a_holder_may_be_given_less() -> None:
    shares = Shares(total=4, usual=4, each=4)
    assert shares.take("a", 4, most=3) == 3
    assert shares.take("b", 4) == 1
    assert shares.take_light("c") is False


def test_places_are_given_back() -> None:
    shares = Shares(total=2, usual=1, each=1)
    assert shares.take("a", 1) == 1
    assert shares.take_light("b")
    shares.give_back("a", 1)
    shares.give_back_light("b")
    assert shares.taken == 0
    assert shares.take("a", 1) == 1


@given(
    cores=st.integers(1, 16),
    asked=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.integers(1, 20)), max_size=60),
)
def test_whatever_four_holders_take_a_fifth_goes_on(cores: int, asked: list[tuple[str, bool, int]]) -> None:
    shares = Shares(total=cores + SPARE_SLOTS, usual=cores, each=cores)
    for holder, is_light, wanted in asked:
        if is_light:
            shares.take_light(holder)
        else:
            assert 0 <= shares.take(holder, wanted) <= cores
    assert shares.take_light("e")
    assert shares.taken <= cores + SPARE_SLOTS


# --- threads ---


@pytest.fixture
def pool() -> Iterator[SharedPool]:
    made = SharedPool("test", threads=6, usual=4, each=3)
    yield made
    made.shutdown()


def test_calls_that_hang_keep_no_other_holders_waiting(pool: SharedPool) -> None:
    hanging, others = threading.Event(), threading.Barrier(3)
    for _ in range(100):
        pool.submit("dead", hanging.wait)
    for holder in ("good", "well"):
        pool.submit(holder, others.wait, SECONDS)
    others.wait(SECONDS)
    hanging.set()


def test_every_call_is_run_in_order(pool: SharedPool) -> None:
    done: list[int] = []
    over = threading.Event()
    narrow = SharedPool("test", threads=4, usual=1, each=1)
    for number in range(50):
        narrow.submit("a", done.append, number)
    narrow.submit("a", over.set)
    assert over.wait(SECONDS)
    narrow.shutdown()
    assert done == list(range(50))


def test_a_call_that_fails_gives_its_place_back(pool: SharedPool) -> None:
    over = threading.Event()
    for _ in range(20):
        pool.submit("a", int, "no number")
    pool.submit("a", over.set)
    assert over.wait(SECONDS)


def test_after_the_end_nothing_is_run(pool: SharedPool) -> None:
    hanging, run = threading.Event(), threading.Event()
    for _ in range(4):
        pool.submit("a", hanging.wait)
    pool.submit("a", run.set)
    pool.shutdown()
    pool.submit("b", run.set)
    hanging.set()
    for thread in threading.enumerate():
        if thread.name == "test":
            thread.join(SECONDS)
    assert not run.is_set()
