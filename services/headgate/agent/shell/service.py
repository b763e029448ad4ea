"""The agent's process: sessions one after the other (life.py), until it is asked to stop."""

import threading
from collections.abc import Callable
from typing import Final

from headgate.agent.core.executor import TableExecutor
from headgate.agent.shell.life import LOOP, AgentCounters, AgentOptions, AgentSession, End
from headgate.agent.shell.warming import Warming
from headgate.eventlog.log import Log
from headgate.observability.probes import Probes

SESSION_PAUSE_SECONDS: Final = 1.0
"""Before the next session when one could not live: a broken broker is not hammered."""


def run_agent(
    options: AgentOptions,
    log: Log,
    executor_factory: Callable[[], TableExecutor],
    stop: threading.Event,
    *,
    probes: Probes | None = None,
    counters: AgentCounters | None = None,
    warm: Callable[[], None] = lambda: None,
) -> None:
    """Run sessions until ``stop`` is set and the last one has drained.

    ``warm`` makes ready what executors run on, however long that takes; it is run on a thread of its own, before each
    session's executor is made. Raises IdInUseError, NewerSchemaError, what ``warm`` raises, and the machine's errors
    about a log that contradicts itself.
    """
    counters = counters or AgentCounters()
    probes = probes or Probes(options.lease_seconds)
    probes.expect(LOOP)
    warming = Warming(warm)
    former: str | None = None
    while not stop.is_set():
        session = AgentSession(options, log, executor_factory, probes, counters, warming=warming, former=former)
        if session.run(stop) is End.STOPPED:
            break
        former = session.key.session
        probes.unready(LOOP, "between two sessions")
        stop.wait(SESSION_PAUSE_SECONDS)
    probes.forget(LOOP)
