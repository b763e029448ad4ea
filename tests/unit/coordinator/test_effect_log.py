"""A log says what a person wants to know, once."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.coordinator.core.effects import (
    DiscoverTables,
    FeedRefused,
    FeedResolved,
    ResolveFeed,
    TablesDiscovered,
)
from headgate.coordinator.shell.effect_log import EffectLog
from headgate.observability.logs import configure_logs
from headgate.records.control import SpanPlan
from headgate.runtime.machine import EffectFailed

LOOK = DiscoverTables("shop", "0-1", "{}", ())
PLAN = SpanPlan(span="public.goods", topic="shop.public.goods", table="public.goods", start={0: 3})


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    import logging

    import structlog

    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    level = root.level
    written = io.StringIO()
    configure_logs("json", "info", written)
    yield written
    root.setLevel(level)
    structlog.reset_defaults()


def told(out: io.StringIO, *answers: tuple[Any, Any]) -> list[str]:
    log = EffectLog()
    for effect, result in answers:
        log.tell(0, effect, result)
    return [json.loads(line)["result"] for line in out.getvalue().splitlines()]


def test_a_look_that_finds_nothing_new_is_not_told(out: io.StringIO) -> None:
    assert told(out, *[(LOOK, TablesDiscovered())] * 3) == []


def test_what_a_look_finds_is_told_once_and_its_end_as_well(out: io.StringIO) -> None:
    away, odd = EffectFailed("no broker"), TablesDiscovered(notices=("t is gone",))
    answers = [away, away, TablesDiscovered(), odd, odd, TablesDiscovered(), TablesDiscovered((PLAN,), grown="t")]
    assert told(out, *[(LOOK, answer) for answer in answers]) == [
        "EffectFailed: no broker",
        "TablesDiscovered: nothing new",
        "TablesDiscovered: t is gone",
        "TablesDiscovered: nothing new",
        "TablesDiscovered: public.goods joins; t has more partitions than before",
    ]


def test_each_request_is_told_though_its_answer_is_that_of_another_but_not_each_try(out: io.StringIO) -> None:
    first, second = ResolveFeed("r1", "shop", "{}"), ResolveFeed("r2", "shop", "{}")
    away = EffectFailed("no sink")
    answers = [(first, away), (first, away), (first, FeedRefused("no key")), (second, FeedRefused("no key"))]
    assert told(out, *answers, (second, FeedResolved("{}", ()))) == [
        "EffectFailed: no sink",
        "FeedRefused: no key",
        "FeedRefused: no key",
        "FeedResolved",
    ]
