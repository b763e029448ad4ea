"""Fuzz the decoders, and what writes their values, guided by coverage: the checks of test_schemas_of_events.

atheris is not among the project's dependencies, because `make lock` would have to resolve all of them again for it. Put
it beside them, and say which events to draw and for how long:

    .venv/bin/uv pip install --target /tmp/atheris atheris
    PYTHONPATH=/tmp/atheris:tests .venv/bin/python tests/fuzz/decoders.py debezium -max_total_time=600

Events are debezium, canal or avro; what follows goes to libFuzzer. It ends with the input that broke a check, in a file
`crash-…`; the same test of hypothesis then finds and shrinks it (`@example`, or more `max_examples`).
"""

import importlib.util
import sys
from pathlib import Path

import atheris

EVENTS = ("debezium", "canal", "avro")
CHECKS = Path(__file__).parents[1] / "unit" / "formats" / "test_schemas_of_events.py"


def main() -> None:
    """Fuzz until something breaks, or libFuzzer's options end it."""
    if len(sys.argv) < 2 or sys.argv[1] not in EVENTS:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(EVENTS)} [libFuzzer's options]")
    events = sys.argv.pop(1)
    with atheris.instrument_imports(include=["headgate.formats", "headgate.sinks.relational"]):
        spec = importlib.util.spec_from_file_location("checks", CHECKS)
        if spec is None or spec.loader is None:
            sys.exit(f"{CHECKS} cannot be imported")
        checks = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(checks)
    (name,) = (each for each in vars(checks) if f"_{events}_" in each and "_with_any_" in each)
    atheris.Setup(sys.argv, getattr(checks, name).hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
