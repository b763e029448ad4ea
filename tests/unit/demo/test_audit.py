"""The audit convicts every kind of double write, and acquits a history that only looks strange."""

from collections.abc import Iterable

import pytest

from headgate_lab.demo.audit import AuditEntry, AuditReport, FindingKind, examine

TABLE = "shop.orders"
KEY = ("7",)


def change(
    number: int, operation: str, version: int, *, epoch: str = "10.1", old: int | None = None, is_copied: bool = False
) -> AuditEntry:
    deleted = operation == "DELETE"
    return AuditEntry(
        id=number,
        label=f"headgate shop {TABLE} {epoch}",
        table=TABLE,
        operation=operation,
        key=KEY,
        old_version=version if deleted else old,
        new_version=None if deleted else version,
        is_copied=is_copied,
    )


def copied(number: int, operation: str, version: int) -> AuditEntry:
    return change(number, operation, version, is_copied=True)


def holder(number: int, operation: str, epoch: str) -> AuditEntry:
    return AuditEntry(number, epoch, TABLE, operation, (), None, None)


def kinds(
    entries: Iterable[AuditEntry], deletions: list[int] | None = None, standing: int | None = None
) -> set[FindingKind]:
    rows = [] if standing is None else [(TABLE, KEY, standing)]
    return set(report(entries, deletions, rows).counts)


def report(
    entries: Iterable[AuditEntry],
    deletions: list[int] | None = None,
    rows: Iterable[tuple[str, tuple[str, ...], int]] = (),
) -> AuditReport:
    return examine(entries, {(TABLE, KEY): deletions or []}, rows)


def test_a_life_with_deletes_skipped_versions_and_a_move_is_clean() -> None:
    found = report(
        [
            holder(1, "CLAIM", "10.1"),
            change(2, "INSERT", 3),
            change(3, "UPDATE", 8, old=3),
            change(4, "DELETE", 8),
            change(5, "INSERT", 12),
            holder(6, "SEAL", "10.1"),
            holder(7, "CLAIM", "10.2"),
            change(8, "UPDATE", 20, epoch="10.2", old=12),
        ],
        deletions=[9],
        rows=[(TABLE, KEY, 20)],
    )
    assert found.double_writes == 0
    assert (found.changes, found.claims) == (5, 3)


@pytest.mark.parametrize(
    ("entries", "deletions", "expected"),
    [
        pytest.param(
            [change(1, "INSERT", 3), change(2, "UPDATE", 3)], [], FindingKind.VERSION_REPEATED, id="applied twice"
        ),
        pytest.param([change(1, "INSERT", 3), change(2, "UPDATE", 2)], [], FindingKind.VERSION_BACK, id="applied late"),
        pytest.param(
            [change(1, "INSERT", 3), change(2, "DELETE", 3), change(3, "INSERT", 3)],
            [3],
            FindingKind.VERSION_REPEATED,
            id="an insert applied again after the delete",
        ),
        pytest.param(
            [change(1, "INSERT", 5), change(2, "DELETE", 5), change(3, "INSERT", 9)],
            [2, 9],
            FindingKind.DELETE_UNEXPLAINED,
            id="an old delete applied to the row made again",
        ),
        pytest.param(
            [change(1, "INSERT", 5), change(2, "DELETE", 5)],
            [2],
            FindingKind.DELETE_UNEXPLAINED,
            id="an old delete, and nothing after it",
        ),
        pytest.param(
            [holder(1, "CLAIM", "10.2"), change(2, "INSERT", 3, epoch="10.1")],
            [],
            FindingKind.STALE_EPOCH,
            id="a write after a higher claim that has not written yet",
        ),
        pytest.param(
            [change(1, "INSERT", 3, epoch="11.1"), change(2, "UPDATE", 4, epoch="10.9")],
            [],
            FindingKind.STALE_EPOCH,
            id="epochs are pairs: a higher n of an older term is lower",
        ),
        pytest.param(
            [holder(1, "CLAIM", "10.1"), holder(2, "SEAL", "10.1"), change(3, "INSERT", 3)],
            [],
            FindingKind.SEALED_EPOCH,
            id="a write under a sealed epoch",
        ),
    ],
)
def test_a_double_write_is_found(entries: list[AuditEntry], deletions: list[int], expected: FindingKind) -> None:
    assert expected in kinds(entries, deletions)


def test_the_log_follows_behind_copied_rows() -> None:
    found = report(
        [
            copied(1, "INSERT", 9),
            change(2, "UPDATE", 3, old=9),
            change(3, "DELETE", 3),
            change(4, "INSERT", 7),
            copied(5, "UPDATE", 9),
            change(6, "DELETE", 9),
            change(7, "INSERT", 9),
            copied(8, "UPDATE", 9),
        ],
        deletions=[4, 8],
        rows=[(TABLE, KEY, 9)],
    )
    assert found.double_writes == 0, found.findings
    assert (found.changes, found.copies) == (8, 3)


@pytest.mark.parametrize(
    ("entries", "deletions", "expected"),
    [
        pytest.param(
            [change(1, "INSERT", 3), copied(2, "UPDATE", 2)], [], FindingKind.COPIED_BACK, id="a copy of an old row"
        ),
        pytest.param(
            [change(1, "INSERT", 3), copied(2, "UPDATE", 5), change(3, "UPDATE", 3)],
            [],
            FindingKind.VERSION_REPEATED,
            id="a change applied again over a copied row",
        ),
        pytest.param(
            [change(1, "INSERT", 3), copied(2, "UPDATE", 5), change(3, "UPDATE", 2)],
            [],
            FindingKind.VERSION_BACK,
            id="a late change over a copied row",
        ),
        pytest.param(
            [change(1, "INSERT", 3), copied(2, "UPDATE", 5), change(3, "DELETE", 5)],
            [2],
            FindingKind.DELETE_UNEXPLAINED,
            id="an old delete of a copied row",
        ),
    ],
)
def test_a_copy_hides_no_double_write(entries: list[AuditEntry], deletions: list[int], expected: FindingKind) -> None:
    assert expected in kinds(entries, deletions)


@pytest.mark.parametrize("label", ["psql", "", "headgate shop shop.customers 10.1", "headgate shop shop.orders ten"])
def test_a_change_by_a_session_without_the_tables_own_label_is_found(label: str) -> None:
    entry = AuditEntry(1, label, TABLE, "INSERT", KEY, None, 3)
    assert kinds([entry]) == {FindingKind.UNLABELLED}


def test_a_row_whose_last_change_the_audit_did_not_see_convicts_the_audit() -> None:
    assert kinds([change(1, "INSERT", 3)], standing=3) == set()
    assert kinds([change(1, "INSERT", 3)], standing=4) == {FindingKind.UNSEEN}
    assert kinds([], standing=4) == {FindingKind.UNSEEN}
    assert kinds([change(1, "DELETE", 3)], [3]) == {FindingKind.UNSEEN}
    assert kinds([change(1, "INSERT", 3), change(2, "DELETE", 3)], [3], standing=3) == {FindingKind.UNSEEN}


def test_all_findings_are_counted_and_only_the_first_few_kept() -> None:
    found = report([change(1, "INSERT", 3), *(change(number, "UPDATE", 3) for number in range(2, 102))])
    assert found.double_writes == 100
    assert 0 < len(found.findings) < 100
    assert found.findings[0].entry == 2
