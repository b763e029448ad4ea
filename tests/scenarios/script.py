"""Scripts with golden traces, after etcd raft's datadriven tests: the real owner over the in-memory log.

A script is blocks of commands, a line ``----``, and what happened. A command is ``name word … option=value …``, which
calls ``do_name`` of the script's class; after each line every process has turns until nothing more happens. At the end
the full log, the compacted log and the owners' live states must agree. Regenerate traces with ``pytest tests/scenarios
--rewrite-scenarios`` and read the diff: it is the behaviour.
"""

from pathlib import Path
from typing import Any, TypeVar

import pytest

from headgate.runtime.machine import Decision, Machine, Now
from headgate_lab.worlds.kernel import OwnerWorld

StateT = TypeVar("StateT")

TURNS_MAX = 1_000


class Script(OwnerWorld[StateT]):
    """A world that plays a script: only owners are real, the script plays everybody else."""

    tick_seconds = 0.25
    nothing: tuple[str, ...] = ()
    """The trace of a block in which nothing happens."""

    output: list[str]

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.output = []

    # --- what a kind of script adds ---

    def trace(self, name: str, given: Any, decision: Decision) -> None:
        """Add to ``output`` what a decision shows."""
        raise NotImplementedError

    def others_act(self) -> None:
        """Whatever acts besides the owners, once in each round."""

    def pending(self) -> Any:
        """What, besides the log, the trace and the roles, changes while something happens."""
        return sum(len(owner.effects) for owner in self.owners.values())

    def check(self) -> None:
        """What must hold at the end."""
        self.check_replay()

    # --- commands ---

    def run(self, line: str) -> None:
        for command in line.split(" & "):
            words = command.split()
            plain = [word for word in words if "=" not in word]
            self.command(plain, dict(word.split("=", 1) for word in words if "=" in word))
        self.settle()

    def command(self, words: list[str], options: dict[str, str]) -> None:
        getattr(self, f"do_{words[0]}")(*words[1:], **options)

    def do_advance(self, text: str) -> None:
        """``advance 3s``."""
        for step in range(round(float(text.removesuffix("s")) / self.tick_seconds)):
            self.now += self.tick_seconds
            self.ticked(step)
            self.settle()

    def ticked(self, step: int) -> None:
        """One more tick of an ``advance``, the first being 0."""

    def settle(self) -> None:
        """Turn every owner and let the others act, until nothing more happens."""
        for _ in range(TURNS_MAX):
            before = self.seen()
            for _, owner in sorted(self.owners.items()):
                owner.role.turn(self.time())
            self.others_act()
            if self.seen() == before:
                return
        raise AssertionError("the script never settles")

    def seen(self) -> tuple[Any, ...]:
        ends = tuple(self.broker.end_offset(partition) for partition in self.broker.partitions())
        states = [owner.role.status.state for _, owner in sorted(self.owners.items())]
        return ends, len(self.output), states, self.pending()

    def machine_of(self, name: str) -> Machine[StateT]:
        def decide(state: StateT, given: Any, now: Now) -> Decision:
            decision = self.machine.decide(state, given, now)
            self.trace(name, given, decision)
            return decision

        return Machine(self.machine.new_state, self.machine.evolve, decide, self.machine.digest)

    # --- the whole script ---

    def perform(self, path: Path) -> str:
        """The script with the trace that it has now."""
        blocks = []
        for block in path.read_text(encoding="utf-8").strip("\n").split("\n\n"):
            commands = block.split("\n----")[0].strip("\n")
            lines = [line for line in commands.splitlines() if line.strip() and not line.startswith("#")]
            self.output = []
            for line in lines:
                self.run(line)
            trace = [*self.output, *self.shown()] or [*self.nothing]
            blocks.append("\n".join([commands, "----", *trace]) if lines else commands)
        return "\n\n".join(blocks) + "\n"

    def shown(self) -> list[str]:
        """More lines at the end of each block."""
        return []

    def play(self, path: Path) -> str:
        played = self.perform(path)
        self.check()
        return played


def compare(path: Path, played: str, request: pytest.FixtureRequest) -> None:
    """The trace of now against the golden one; with ``--rewrite-scenarios`` it becomes the golden one."""
    if request.config.getoption("--rewrite-scenarios", default=False):
        path.write_text(played, encoding="utf-8")
    assert played == path.read_text(encoding="utf-8")
