"""``make mutants``: flip each guard of the coordinator and agent machines in turn; something must notice every flip.

A flip that nothing notices is a missing test or a needless guard. Those that are known to change nothing anybody could
see are listed in ``needless.yaml`` with the reason; an entry whose guard is gone, or is noticed now, fails the run, so
that the list cannot rot. Exit 0 only if every flip was noticed or is listed.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import yaml

from mutation.guards import Guard, flipped, guards_of
from mutation.trial import SEEDS, run_checks, warm_up, with_module

SERVICES = Path(__file__).parents[2] / "services"
NEEDLESS = Path(__file__).with_name("needless.yaml")

MACHINES = ("headgate.coordinator", "headgate.agent.machine")
"""What is put on trial: a module, or all modules of a package but its shell."""

SHELLS = ("headgate.coordinator.service",)
"""No machines: tested on real parts."""

TRIAL_SECONDS_MAX = 900
"""A flip may make a loop endless: a trial longer than this has been noticed. Ten times a survivor's on an idle core."""

HANGS = "time limit"

Checks = Callable[[], str | None]
"""What a trial runs once its flip is in place."""


@dataclass(frozen=True)
class Verdict:
    """What became of one flip: ``noticed_by`` is the check, None for a survivor."""

    module: str
    guard: str
    line: int
    noticed_by: str | None
    seconds: float


def modules() -> dict[str, Path]:
    """The modules on trial by name, sorted."""
    found = {}
    for name in MACHINES:
        path = SERVICES / name.replace(".", "/")
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
            dotted = ".".join(file.relative_to(SERVICES).with_suffix("").parts)
            if dotted not in SHELLS and not dotted.endswith("__init__"):
                found[dotted] = file
    return found


def campaign(wanted: list[tuple[str, str, Guard]], jobs: int, checks: Checks) -> Iterator[Verdict]:
    """Try (module, source, guard) one by one, ``jobs`` at a time; verdicts in the order in which they come."""
    waiting = list(reversed(wanted))
    running: dict[int, tuple[str, Guard, float, int]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            module, source, guard = waiting.pop()
            pid, answer = _start(module, source, guard, checks)
            running[pid] = (module, guard, time.monotonic(), answer)
        pid, _status = os.wait()
        module, guard, began, answer = running.pop(pid)
        with os.fdopen(answer) as pipe:
            said = pipe.read()
        noticed_by = HANGS if said == "" else (json.loads(said) or None)
        yield Verdict(module, guard.name, guard.line, noticed_by, round(time.monotonic() - began, 1))


def _start(module: str, source: str, guard: Guard, checks: Checks) -> tuple[int, int]:
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, ours
    # The alarm's default action ends the process without a word: the parent reads an empty answer.
    signal.alarm(TRIAL_SECONDS_MAX)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    noticed_by: str | None = "import"
    try:
        with_module(module, flipped(source, guard))
        noticed_by = checks()
    finally:
        os.write(theirs, json.dumps(noticed_by).encode())
        os._exit(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", default="", help="modules whose name contains this")
    parser.add_argument("--guard", default="", help="guards whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="simulated histories each flip has to survive")
    parser.add_argument("--quick", action="store_true", help="without the exhaustive search")
    parser.add_argument("--list", action="store_true", help="print the guards, try nothing")
    parser.add_argument("--report", type=Path, help="write every verdict into this file, a JSON line each")
    return parser.parse_args()


def main() -> int:
    """The command."""
    options = _options()
    sources = {name: path.read_text() for name, path in modules().items()}
    wanted = [
        (name, source, guard)
        for name, source in sources.items()
        for guard in guards_of(source)
        if options.only in name and options.guard in guard.name
    ]
    if options.list:
        for name, _source, guard in wanted:
            print(f"{name}:{guard.line}: {guard.name}")  # noqa: T201
        return 0
    warm_up()
    checks = partial(run_checks, options.seeds, is_quick=options.quick)
    if (failed := run_in_a_fork(checks)) is not None:
        print(f"{failed}: does not pass as the code stands: nothing can be said of flips")  # noqa: T201
        return 1
    verdicts = []
    for verdict in campaign(wanted, options.jobs, checks):
        verdicts.append(verdict)
        if options.report is not None:
            with options.report.open("a") as report:
                report.write(json.dumps(asdict(verdict)) + "\n")
        if verdict.noticed_by is None:
            print(f"survived: {verdict.module}:{verdict.line}: {verdict.guard}", flush=True)  # noqa: T201
    return conclude(verdicts, is_whole=not options.only and not options.guard)


def run_in_a_fork(checks: Checks) -> str | None:
    """The checks on the code as it stands, in a process of their own: what failed, None if nothing."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        failed: str | None = "start"
        try:
            failed = checks()
        finally:
            os.write(theirs, json.dumps(failed).encode())
            os._exit(0)
    os.close(theirs)
    os.waitpid(pid, 0)
    with os.fdopen(ours) as pipe:
        return json.loads(pipe.read() or '"start"') or None


def conclude(verdicts: list[Verdict], *, is_whole: bool) -> int:
    """Print the count and compare the survivors with the list; the exit code."""
    needless: dict[str, dict[str, str]] = yaml.safe_load(NEEDLESS.read_text()) or {}
    listed = {(module, guard) for module, guards in needless.items() for guard in guards}
    survived = {(v.module, v.guard) for v in verdicts if v.noticed_by is None}
    counts = Counter(verdict.noticed_by or "nothing" for verdict in verdicts)
    print(f"{len(verdicts)} flips; noticed by " + ", ".join(f"{k}: {n}" for k, n in counts.most_common()))  # noqa: T201
    unknown = sorted(survived - listed)
    tried = {(v.module, v.guard) for v in verdicts}
    stale = sorted(listed - survived if is_whole else (listed & tried) - survived)
    for module, guard in unknown:
        print(f"SURVIVED, not listed: {module}: {guard}")  # noqa: T201
    for module, guard in stale:
        print(f"LISTED in {NEEDLESS.name}, but gone or noticed: {module}: {guard}")  # noqa: T201
    print(f"{len(survived & listed)} listed survivors, {len(unknown)} unlisted, {len(stale)} stale entries")  # noqa: T201
    return 1 if unknown or stale else 0


if __name__ == "__main__":
    sys.exit(main())
