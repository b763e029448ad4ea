"""What people do during a campaign: pause, resume, move and copy tables, drain agents, rebalance, alter the source.

While everything is under fire a request may be refused or not be settled in time; that is counted, not judged. What
must hold is that none of it loses or doubles anything, and that the feed runs when the operator has gone.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.chaos.columns import SourceColumns
from headgate_lab.demo.schema import TABLES
from headgate_lab.demo.services import Services
from headgate_lab.demo.stack import FEED
from headgate_lab.parts.commands import run_command
from headgate_lab.parts.processes import ServiceError

REST_SECONDS: Final = (2.0, 8.0)
PAUSED_SECONDS: Final = 1.5
REQUEST_SECONDS: Final = "20"
RESUME_ATTEMPTS_MAX: Final = 10

JOIN_SECONDS_MAX: Final = 150.0
"""Two commands, each at its own limit."""


class OperatorCommand(msgspec.Struct, frozen=True):
    """One command, when it was given (monotonic seconds) and what became of it."""

    what: str
    began: float
    ended: float
    outcome: str


class OperatorThread:
    """A thread with a seed of its own."""

    def __init__(self, services: Services, columns: SourceColumns, seed: int) -> None:
        self.done: list[OperatorCommand] = []
        self._services = services
        self._columns = columns
        self._random = Random(f"{seed}/operator")  # noqa: S311 - a choice, not a secret
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-operator", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what is under way. Idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(scaled_seconds(JOIN_SECONDS_MAX))

    def leave_running(self) -> None:
        """The feed's wanted state is running, whatever was asked for before. Raises ServiceError."""
        for attempt in range(1, RESUME_ATTEMPTS_MAX + 1):
            outcome = self._type("feed", "resume", FEED, "--timeout", REQUEST_SECONDS)
            # Refused means that it was not paused.
            if outcome == "done" or "refused" in outcome:
                return
            if attempt == RESUME_ATTEMPTS_MAX:
                raise ServiceError(f"the feed cannot be resumed: {outcome}")

    def outcomes(self) -> dict[str, int]:
        """How often what came to what."""
        return dict(
            sorted(Counter(f"{one.what.split()[1].rstrip(':')} {_short(one.outcome)}" for one in self.done).items())
        )

    def _run(self) -> None:
        steps: list[Callable[[], None]] = [
            self._pause, self._move, self._move, self._drain, self._rebalance, self._copy, self._copy, self._alter,
        ]  # fmt: skip
        while not self._stopping.wait(self._random.uniform(*REST_SECONDS)):
            self._random.choice(steps)()

    def _pause(self) -> None:
        self._type("feed", "pause", FEED, "--timeout", REQUEST_SECONDS)
        self._stopping.wait(PAUSED_SECONDS)
        self._type("feed", "resume", FEED, "--timeout", REQUEST_SECONDS)

    def _move(self) -> None:
        table, agent = self._random.choice(TABLES).full_name, self._random.choice(self._services.agents)
        self._type("table", "move", FEED, table, agent, "--timeout", REQUEST_SECONDS)

    def _drain(self) -> None:
        self._type("agent", "drain", self._random.choice(self._services.agents), "--timeout", REQUEST_SECONDS)

    def _rebalance(self) -> None:
        self._type("feed", "rebalance", FEED, "--timeout", REQUEST_SECONDS)

    def _copy(self) -> None:
        """Outlives the command, which may give up waiting for it."""
        table = self._random.choice(TABLES).full_name
        self._type("table", "resync", FEED, table, "--timeout", REQUEST_SECONDS)

    def _alter(self) -> None:
        began = time.monotonic()
        statement = self._columns.alter(self._random)
        if statement is not None:
            self.done.append(OperatorCommand(f"source alter: {statement}", began, time.monotonic(), "done"))

    def _type(self, *arguments: str) -> str:
        began = time.monotonic()
        try:
            answer = run_command(self._services.settings, *arguments, "-o", "json")
            outcome = str(answer.get("status", "done"))
        except ServiceError as error:
            outcome = str(error)
        self.done.append(OperatorCommand(" ".join(arguments), began, time.monotonic(), outcome))
        return outcome


def _short(outcome: str) -> str:
    if outcome == "done":
        return "done"
    return "refused" if "refused" in outcome else "not settled"
