"""Why a change cannot be reverted if its strategy does not follow the table afterwards, and what to do instead.

Only ``online`` follows the changes of a table after its own, so only there the table before can be made what it would
be without the change (online/way_back.py). Everywhere else putting it back would lose what was written since. Undoing
the change is then another change, which only its author can word: only the author knows which values a dropped column
must have again.
"""

from typing import Final

from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec
from headgate.records.migration import MigrationRecorded, MigrationStrategy

_OPPOSITE: Final = (
    "submit the opposite change (or the CREATE TABLE of before, with --declarative, and the ALTER is found)"
)


def revert_refused(spec: MigrationSpec, reverted: MigrationRecorded) -> fx.ExamineRefused:
    """``spec``: the revert's; ``reverted``: the completed change that it was to undo."""
    made = f"{spec.reverts} was made by strategy {spec.strategy.value}"
    if spec.strategy is not MigrationStrategy.DIRECT:
        return fx.ExamineRefused(
            f"{made}, which does not follow table {reverted.table} after its change: {_copied(reverted)}"
        )
    match reverted.action:
        case "create":
            undone = f"table {reverted.table} was not there before: to undo it, submit DROP TABLE {reverted.table}"
        case "drop":
            undone = f"nothing of table {reverted.table} is kept: it comes back only from a backup"
        case _:
            undone = f"table {reverted.table} was altered in place, so no old table exists: {_OPPOSITE}"
    return fx.ExamineRefused(f"{made}: {undone}")


def _copied(reverted: MigrationRecorded) -> str:
    tables = " and ".join(artifact.name for artifact in reverted.artifacts if artifact.kind == "table")
    before = (
        f"the table before, {tables}, has nothing of what was written since, but can be read"
        if tables
        else ("the table before is gone (cleaned up)")
    )
    return f"{before}. To undo it, {_OPPOSITE}; a change that may have to be reverted is made by strategy online"
