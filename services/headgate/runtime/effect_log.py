"""Logs the results of an owner's effects, without repeating those of retries that end in the same way."""

from typing import Any, Final

from headgate.observability.logs import logger
from headgate.runtime.machine import EffectFailed

__all__ = ["EffectLog"]

REMEMBERED_MAX: Final = 10_000
"""Answers that are remembered, a few bytes each: one per effect that is retried or repeated."""


class EffectLog:
    """Writes a line per answer, at debug if it is not new. May be called from several threads.

    Two threads can write the same line twice, at worst.
    """

    def __init__(self, service: str, subject: str, *details: str) -> None:
        """``subject``: the field of an effect that a line shows. Together with ``details`` it identifies the effect."""
        self._log = logger(service=service)
        self._subject, self._details = subject, details
        self._remembered: dict[tuple[Any, ...], Any] = {}

    def tell(self, shard: int, effect: Any, result: Any) -> None:
        """Log that an effect of the shard was run, with this result."""
        kind, subject = type(effect).__name__, getattr(effect, self._subject)
        which = (shard, kind, subject, *(getattr(effect, name, "") for name in self._details))
        answer = self.answer(result)
        before = self._remembered.pop(which, self.usual(effect))
        if self.is_repeated(effect) or isinstance(result, EffectFailed):
            while len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.pop(next(iter(self._remembered)), None)
            self._remembered[which] = answer
        write = self._log.info if answer != before else self._log.debug
        write("effect", shard=shard, effect=kind, **{self._subject: subject}, result=answer)

    def answer(self, result: Any) -> str:
        """The result as a line shows it, without what changes all the time."""
        name = type(result).__name__
        reason = getattr(result, "reason", "") or getattr(result, "message", "")
        return f"{name}: {reason}" if reason else name

    def is_repeated(self, effect: Any) -> bool:  # noqa: ARG002 - for services that have such effects
        """Whether the machine requests this effect again and again, whatever its answer."""
        return False

    def usual(self, effect: Any) -> str | None:  # noqa: ARG002
        """The answer that is not new even the first time."""
        return None
