"""``headgate generation list``: a change log in the list of all."""

from msgspec.structs import replace

from headgate.cli.generations import change_log_row
from headgate.records.generation import GenerationPhase, GenerationRecorded, SetRecorded

FIRST = GenerationRecorded(1, GenerationPhase.COMMITTED, 1, 0, (), {}, (), "", 0)
RECORD = SetRecorded(0, "shop.orders", None, 8, 1, (FIRST,), ())


def test_the_generation_in_force_and_a_switch_are_told() -> None:
    assert change_log_row("orders", RECORD) == {
        "set": "orders",
        "topic": "shop.orders",
        "partitions": 8,
        "generation": 1,
        "generations": 1,
        "writers": 0,
        "switching": False,
    }
    prepared = replace(FIRST, epoch=2, follows=1, phase=GenerationPhase.PREPARED)
    row = change_log_row("orders", replace(RECORD, generations=(FIRST, prepared)))
    assert (row["generation"], row["generations"], row["switching"]) == (1, 2, True)
    assert change_log_row("orders", replace(RECORD, generations=()))["generation"] is None
