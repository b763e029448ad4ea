"""The brokers' time, learnt from acknowledgements, whatever this machine's clock says."""

import re

from headgate.eventlog.clock import SAMPLES_MAX, BrokerClock
from support.pages import ROOT

_READ = re.compile(r"\btime\.time(_ns)?\(")

BROKER_MS = 1_800_000_000_000


class Machine:
    """A machine whose wall clock is ``ahead_ms`` ahead of the broker's."""

    def __init__(self, ahead_ms: int) -> None:
        self.seconds = 50.0
        self.ahead_ms = ahead_ms
        self.clock = BrokerClock(lambda: self.seconds, self.wall_ms)

    def broker_ms(self) -> int:
        return BROKER_MS + round(self.seconds * 1000)

    def wall_ms(self) -> int:
        return self.broker_ms() + self.ahead_ms

    def beat(self, there: float, back: float) -> None:
        """A heartbeat that takes so many seconds to the broker and back."""
        sent_at = self.seconds
        self.seconds += there
        append_ms = self.broker_ms()
        self.seconds += back
        self.clock.acknowledged(sent_at, append_ms)


def test_without_an_acknowledgement_it_is_the_machines_own_time() -> None:
    machine = Machine(30_000)
    assert not machine.clock.is_known
    assert machine.clock.now_ms() == machine.broker_ms() + 30_000


def test_a_machine_that_is_30_seconds_ahead_learns_the_brokers_time() -> None:
    for ahead_ms in (30_000, -3_600_000):
        machine = Machine(ahead_ms)
        machine.beat(0.002, 0.002)
        machine.seconds += 100
        assert machine.clock.is_known
        assert machine.clock.now_ms() == machine.broker_ms()


def test_the_quickest_of_the_last_requests_counts() -> None:
    machine = Machine(30_000)
    machine.beat(0.001, 0.001)
    machine.beat(2.0, 0.0)
    assert machine.clock.now_ms() == machine.broker_ms()


def test_a_step_of_the_wall_clock_changes_nothing() -> None:
    machine = Machine(0)
    machine.beat(0.001, 0.001)
    machine.ahead_ms = 86_400_000
    assert machine.clock.now_ms() == machine.broker_ms()


def test_a_broker_whose_clock_was_set_is_followed_within_a_minute_of_heartbeats() -> None:
    machine = Machine(0)
    machine.beat(0.001, 0.001)
    offset_ms = machine.clock.now_ms() - machine.broker_ms()
    assert offset_ms == 0
    for _ in range(SAMPLES_MAX):
        machine.seconds += 2
        sent_at, append_ms = machine.seconds, machine.broker_ms() + 5_000
        machine.seconds += 0.004
        machine.clock.acknowledged(sent_at, append_ms)
    assert abs(machine.clock.now_ms() - machine.broker_ms() - 5_000) <= 4


def test_the_wall_clock_is_read_in_one_place() -> None:
    """Else each place chooses its own unit, and a test has no one place to set it."""
    product = ROOT / "services" / "headgate"
    reads = [path for path in product.rglob("*.py") if _READ.search(path.read_text(encoding="utf-8"))]
    assert [path.relative_to(product).as_posix() for path in reads] == ["eventlog/clock.py"]
