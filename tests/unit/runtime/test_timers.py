"""Timers fire once, in order, late but never early, and never for ever within a turn."""

from headgate.runtime.timers import Timers


def due(timers: Timers, now: float) -> list[str]:
    mark, names = timers.mark(), []
    while (name := timers.take_due(now, mark)) is not None:
        names.append(name)
    return names


def test_timers_fire_in_order_of_their_deadlines_and_once() -> None:
    timers = Timers()
    timers.set("b", 2.0)
    timers.set("a", 1.0)
    timers.set("c", 3.0)
    assert due(timers, 0.99) == []
    assert due(timers, 2.0) == ["a", "b"]
    assert due(timers, 2.0) == []
    assert timers.next_deadline() == 3.0


def test_setting_again_replaces_and_cancelling_forgets() -> None:
    timers = Timers()
    timers.set("a", 1.0)
    timers.set("a", 5.0)
    timers.set("b", 2.0)
    timers.cancel("b")
    timers.cancel("never set")
    assert timers.next_deadline() == 5.0
    assert due(timers, 4.0) == []
    assert due(timers, 5.0) == ["a"]
    assert timers.next_deadline() is None


def test_a_timer_set_while_others_fire_waits_for_the_next_turn() -> None:
    timers = Timers()
    timers.set("a", 1.0)
    mark = timers.mark()
    assert timers.take_due(1.0, mark) == "a"
    timers.set("a", 1.0)
    assert timers.take_due(1.0, mark) is None
    assert due(timers, 1.0) == ["a"]
