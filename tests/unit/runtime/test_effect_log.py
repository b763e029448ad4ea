"""Every owner logs an answer once: an effect that fails again and again for the same reason is one line."""

from typing import Any

import msgspec
import pytest

from headgate.migration.core.effects import Progressed, WatchMigration
from headgate.migration.shell import service as migration
from headgate.runtime.effect_log import REMEMBERED_MAX, EffectLog
from headgate.runtime.machine import EffectFailed
from support.migration_records import recorded

AWAY, BACK = EffectFailed("no broker"), EffectFailed("no topic")


class Fence(msgspec.Struct, frozen=True):
    set: str
    writer: str


class Fenced(msgspec.Struct, frozen=True):
    position: int


class Lines:
    def __init__(self) -> None:
        self.news: list[Any] = []
        self.others: list[Any] = []

    def info(self, _event: str, **fields: Any) -> None:
        self.news.append(fields["result"])

    def debug(self, _event: str, **fields: Any) -> None:
        self.others.append(fields["result"])


def watched(log: EffectLog, monkeypatch: pytest.MonkeyPatch) -> Lines:
    lines = Lines()
    monkeypatch.setattr(log, "_log", lines)
    return lines


def test_a_reason_is_news_once_and_an_end_always(monkeypatch: pytest.MonkeyPatch) -> None:
    log = EffectLog("generation", "set", "writer")
    lines = watched(log, monkeypatch)
    for result in (AWAY, AWAY, BACK, BACK, Fenced(1), Fenced(1), AWAY):
        log.tell(0, Fence("s", "w"), result)
    assert lines.news == [
        "EffectFailed: no broker",
        "EffectFailed: no topic",
        "Fenced",
        "Fenced",
        "EffectFailed: no broker",
    ]
    assert len(lines.others) == 2


def test_effects_that_differ_in_a_detail_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    log = EffectLog("generation", "set", "writer")
    lines = watched(log, monkeypatch)
    for shard, writer in ((0, "a"), (0, "b"), (1, "a"), (0, "a")):
        log.tell(shard, Fence("s", writer), AWAY)
    assert len(lines.news) == 3


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = EffectLog("generation", "set", "writer")
    lines = watched(log, monkeypatch)
    for number in (*range(REMEMBERED_MAX + 1), 0):
        log.tell(0, Fence("s", str(number)), AWAY)
    assert len(lines.news) == REMEMBERED_MAX + 2, "the oldest was forgotten, so it is news again"


def test_a_migration_that_goes_on_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    log = migration._EffectLog("migration", "migration")
    lines = watched(log, monkeypatch)
    watch = WatchMigration("m1", recorded("{}"))
    for rows in range(3):
        log.tell(0, watch, Progressed("copying", rows_copied=rows))
    log.tell(0, watch, EffectFailed("the server is away"))
    log.tell(0, watch, EffectFailed("the server is away"))
    log.tell(0, watch, Progressed("copying", rows_copied=9))
    assert lines.news == ["EffectFailed: the server is away", "Progressed"]
