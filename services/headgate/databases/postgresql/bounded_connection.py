"""A session that waits only while the server is at work (see network_timeouts)."""

from collections.abc import Callable, Generator
from time import monotonic
from typing import Any, NoReturn

import psycopg

from headgate.databases import network_timeouts as limits


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """Until ``is_at_work`` is set a silent server is given up at once; it shows whether the server works for us."""

    is_at_work: Callable[[], bool] | None = None
    path: tuple[str, ...] = ()
    """The schemas of its user's own search path, in order: where tables without a schema are looked for."""

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """Consume a generator of psycopg's, as its own method does."""
        return super().wait(self._bounded(gen), *args, **options)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        try:
            wanted = next(gen)
            limit, is_last_look = monotonic() + limits.SILENCE_SECONDS, False
            while True:
                ready = yield wanted
                if ready:
                    limit, is_last_look = monotonic() + limits.SILENCE_SECONDS, False
                elif monotonic() > limit:
                    if is_last_look:
                        self._give_up()
                    is_last_look = self.is_at_work is None or not self.is_at_work()
                    limit = monotonic() + (limits.LAST_LOOK_SECONDS if is_last_look else limits.SILENCE_SECONDS)
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _give_up(self) -> NoReturn:
        self.close()
        raise psycopg.OperationalError(
            f"nothing from the server for {limits.SILENCE_SECONDS} s, and it is not working on our statement any more"
        )
