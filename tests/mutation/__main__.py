"""``make mutants``: flip each guard of the pure machines in turn; something must notice every flip.

A flip that nothing notices is a missing test or a needless guard. Those that are known to change nothing anybody could
see are listed in ``needless.yaml`` with the reason; an entry whose guard is gone, or is noticed now, fails the run, so
that the list cannot rot. Exit 0 only if every flip was noticed or is listed.
"""

import argparse
import importlib.util
import json
import logging
import os
import pickle
import sys
from dataclasses import asdict
from pathlib import Path

from mutation.campaign import BrokenCodeError, campaign
from mutation.checks import Survey, survey
from mutation.guards import guards_of
from mutation.trial import Trial, Trials
from mutation.verdicts import Verdict, conclude

SERVICES = Path(__file__).parents[2].resolve() / "services"

MACHINES = (
    "headgate.coordinator",
    "headgate.agent.core.machine",
    "headgate.agent.core.state",
    "headgate.agent.core.span",
    "headgate.runtime.leases",
    "headgate.generation.core",
    "headgate.generation.owner.core",
    "headgate.generation.changelog.core",
    "headgate.generation.timestamps.core",
    "headgate.migration.core",
)
"""What is put on trial: a module, or all modules of a package but its shell."""

SHELL = "headgate.coordinator.shell."
"""No machine: what the owner does outside the log, tested on real parts."""

SEEDS = 150
"""Simulated histories a flip must survive to count as a survivor: about forty seconds of one core."""


def modules() -> dict[str, Path]:
    """The modules on trial by name, sorted."""
    found = {}
    for name in MACHINES:
        path = SERVICES / name.replace(".", "/")
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
            dotted = ".".join(file.relative_to(SERVICES).with_suffix("").parts)
            if not dotted.startswith(SHELL) and not dotted.endswith("__init__"):
                found[dotted] = file
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", action="append", default=[], help="modules whose name contains this, or another one")
    parser.add_argument("--guard", default="", help="guards whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="simulated histories each flip has to survive")
    parser.add_argument("--quick", action="store_true", help="without the search and dear tests: a first look")
    parser.add_argument("--list", action="store_true", help="print the guards, try nothing")
    parser.add_argument("--report", type=Path, help="write every verdict into this file, a JSON line each")
    parser.add_argument("--resume", action="store_true", help="what the report says already is not tried again")
    options = parser.parse_args()
    if options.resume and options.report is None:
        parser.error("--resume goes on with a report: say --report FILE")
    return options


def main() -> int:
    """The command."""
    options = _options()
    wanted = [
        Trial(name, str(file), source, guard)
        for name, file in modules().items()
        for source in [file.read_text()]
        for guard in guards_of(source)
        if (not options.only or any(part in name for part in options.only)) and options.guard in guard.name
    ]
    if options.list:
        for trial in wanted:
            print(f"{trial.module}:{trial.guard.line}: {trial.guard.name}")  # noqa: T201
        return 0
    found = importlib.util.find_spec("headgate")
    if found is None or found.origin is None or not Path(found.origin).resolve().is_relative_to(SERVICES):
        print(f"headgate is not imported from {SERVICES}: install this checkout, or set PYTHONPATH")  # noqa: T201
        return 1
    logging.getLogger("headgate").setLevel(logging.CRITICAL)
    verdicts: list[Verdict] = []
    if options.resume and options.report.exists():
        told = {(trial.module, trial.guard.name) for trial in wanted}
        lines = options.report.read_text().splitlines()
        verdicts = [verdict for line in lines if (verdict := Verdict(**json.loads(line))).key in told]
        known = {verdict.key for verdict in verdicts}
        wanted = [trial for trial in wanted if (trial.module, trial.guard.name) not in known]

    def tell(verdict: Verdict) -> None:
        verdicts.append(verdict)
        if options.report is not None:
            with options.report.open("a") as report:
                report.write(json.dumps(asdict(verdict)) + "\n")
        if verdict.noticed_by is None:
            print(f"survived: {verdict.module}:{verdict.line}: {verdict.guard}", flush=True)  # noqa: T201

    try:
        trials = Trials(_look([str(file) for file in modules().values()]), options.seeds, options.quick)
        campaign(wanted, trials, options.jobs, tell)
    except BrokenCodeError as broken:
        print(f"{broken}: does not pass as the code stands: nothing can be said of flips")  # noqa: T201
        return 1
    return conclude(verdicts, is_whole=not options.only and not options.guard)


def _look(files: list[str]) -> Survey:
    """The survey, made in a fork: this process still has imported nothing of ours. Raises BrokenCodeError."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            found = survey(files)
            with os.fdopen(theirs, "wb") as pipe:
                pickle.dump(found, pipe)
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    found = pickle.loads(said) if said else "the collection of tests"  # noqa: S301 - our own fork's
    if not isinstance(found, Survey):
        raise BrokenCodeError(found)
    return found


if __name__ == "__main__":
    sys.exit(main())
