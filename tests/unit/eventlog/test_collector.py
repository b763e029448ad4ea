"""The cyclic collector is told to look seldom, and still finds what leaks."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from headgate.eventlog.collector import collect_rarely


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_cycles_are_found_later_and_not_never() -> None:
    collect_rarely()
    gc.collect()
    lost = weakref.ref(Cycle())
    kept = [[number] for number in range(1_000)]  # by default a look; each list is an object it counts
    assert lost() is not None
    kept += [[number] for number in range(300_000)]
    assert lost() is None
    assert kept
