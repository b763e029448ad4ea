"""``python -m headgate_lab.simulation.exhaustive``: search some bounds, or the usual ones, and print the findings.

The exit code is 0 only if no guarantee was broken.
"""

import argparse
import sys

import msgspec

from headgate_lab.simulation.exhaustive.bounds import COMMANDS, SearchBounds
from headgate_lab.simulation.exhaustive.scopes import DEEP, QUICK, Scope
from headgate_lab.simulation.exhaustive.search import Result, search


def told(scope: Scope, result: Result) -> str:
    """One line for people."""
    bounds = scope.bounds
    extent = "all states" if result.is_complete else f"all states within {result.depth} steps"
    verdict = "no violation" if result.finding is None else f"VIOLATION: {result.finding.message}"
    return (
        f"{bounds.spans} spans, {bounds.faults} faults, commands {','.join(bounds.commands) or 'none'}"
        f"{', housekeeping' if bounds.housekeeping else ''}: {extent}: {result.states} states, {result.steps} steps, "
        f"depth {result.depth}, {result.good} with a good end in reach: {verdict}"
    )


def main() -> int:
    """Read the command line, search, print."""
    parser = argparse.ArgumentParser(prog="headgate_lab.simulation.exhaustive", description=__doc__)
    parser.add_argument("--spans", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=1, help="source partitions of each table")
    parser.add_argument("--events", type=int, default=1, help="changes in each partition")
    parser.add_argument("--faults", type=int)
    parser.add_argument("--commands", default="", help=f"in order, comma-separated: {', '.join(COMMANDS)}")
    parser.add_argument("--housekeeping", action="store_true", help="progress, checkpoints and sweeps at any time")
    parser.add_argument("--depth", type=int, help="most steps from the beginning; all if left out")
    parser.add_argument("--states", type=int, help="stop after the level that reaches this many")
    parser.add_argument("--quick", action="store_true", help="the bounds of make test, not the deep ones")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    scopes: tuple[Scope, ...] = QUICK if given.quick else DEEP
    if given.faults is not None:
        commands = tuple(name for name in given.commands.split(",") if name)
        bounds = SearchBounds(given.spans, given.events, commands, given.faults, given.housekeeping, given.partitions)
        scopes = (Scope(bounds, given.depth, given.states),)
    elif given.depth is not None or given.states is not None:
        scopes = tuple(Scope(scope.bounds, given.depth or scope.depth, given.states) for scope in scopes)
    is_clean = True
    for scope in scopes:
        result = search(scope.bounds, depth=scope.depth, states_max=scope.states_max)
        is_clean = is_clean and result.finding is None
        line = msgspec.json.encode(result).decode() if given.output == "json" else told(scope, result)
        sys.stdout.write(line + "\n")
        if given.output != "json" and result.finding is not None:
            sys.stdout.write("".join(f"    {label}\n" for label in result.finding.path))
        sys.stdout.flush()
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
