"""Detects rows that the sink accepted but did not write, because a trigger or rule skipped them.

So what a statement did is compared with what it was given: rows inserted or updated by their number, a deleted row by
its absence. Where something fires on our writes, it may also write a row under another key: then each row is looked up
under its own key after the merge.
"""


class PassedOverError(Exception):
    """A ``statement`` of the merge (INSERT, UPDATE, DELETE) left rows as they were. Its text is for people."""

    def __init__(self, statement: str, fires: tuple[str, ...]) -> None:
        suspects = f" ({', '.join(fires)})" if fires else ""
        super().__init__(
            f"the database accepted the {statement} but did not execute it. A trigger or a rule{suspects} can cause "
            "this. Change it so that it does not skip Headgate's rows, or drop it"
        )
