"""The object store of a test, as a feed and other engines name it, and the contract of tables there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from fixtures.object_store import BUCKET, REGION, Key, ObjectStore, running_store
from headgate.config.secrets import ALLOWED_FOLDERS
from headgate.sinks.lake import store as lake_store
from headgate.sinks.lake.store_trials import PassedTrials
from integration.sinks.lake_contract import LakeContract
from integration.sinks.lake_copy_contract import LakeCopyContract

PLACE: Final = f"s3://{BUCKET}/tables_of/this-1.test"
"""With all that a place may have in its name."""


class Store:
    """``secrets``: the folder that the files with the keys are written to."""

    def __init__(self, server: ObjectStore, secrets: Path) -> None:
        self.server = server
        self._secrets = secrets
        secrets.mkdir(exist_ok=True)
        self.give(server.key)

    def give(self, key: Key) -> None:
        """Write the files with the keys."""
        given = {"id": key.id, "secret": key.secret} | ({} if key.token is None else {"token": key.token})
        for name, text in given.items():
            (self._secrets / name).write_text(f"{text}\n")

    @property
    def options(self) -> dict[str, Any]:
        """A feed's ``sink.store``."""
        files = {"access_key_id_file": "id", "secret_access_key_file": "secret"}
        if self.server.key.token is not None:
            files["session_token_file"] = "token"
        return {
            "endpoint": self.server.url,
            "region": REGION,
            **({"allow_plain_http": True} if self.server.ca_file is None else {"ca_file": str(self.server.ca_file)}),
            **{option: str(self._secrets / name) for option, name in files.items()},
        }

    @property
    def delta(self) -> dict[str, str]:
        """As delta-rs and Polars take it."""
        key = self.server.key
        return {
            "aws_endpoint": self.server.url,
            "aws_region": REGION,
            "aws_allow_http": "true",
            "aws_access_key_id": key.id,
            "aws_secret_access_key": key.secret,
            **({} if key.token is None else {"aws_session_token": key.token}),
        }

    @property
    def iceberg(self) -> dict[str, str]:
        """As pyiceberg takes it."""
        key = self.server.key
        return {
            "s3.endpoint": self.server.url,
            "s3.region": REGION,
            "s3.access-key-id": key.id,
            "s3.secret-access-key": key.secret,
        }

    def remove(self, place: str) -> None:
        """Remove all below a place."""
        self.server.remove(place.removeprefix(f"s3://{BUCKET}/") + "/")


@contextmanager
def a_store(folder: Path, monkeypatch: pytest.MonkeyPatch, *, tls: bool = False) -> Iterator[Store]:
    """A server that this process and those that it starts may use."""
    monkeypatch.setenv(ALLOWED_FOLDERS, f"{folder},{PLACE}")
    monkeypatch.setattr(lake_store, "_PASSED", PassedTrials())  # of a server that had the same port
    with running_store(folder if tls else None) as server:
        yield Store(server, folder / "secrets")


FENCE: Final = frozenset(
    {
        "test_an_epoch_the_log_does_not_know_stops_the_writer",
        "test_a_late_attempt_of_the_same_epoch_changes_nothing",
        "test_a_zombie_of_a_lower_epoch_changes_nothing",
        "test_a_reads_b_claims_and_writes_a_commits",
        "test_of_attempts_that_race_one_applies",
        "test_nothing_of_a_busy_writer_comes_after_the_next_claim",
        "test_after_a_seal_nothing_is_applied_under_its_epoch",
        "test_of_a_claim_and_a_seal_of_one_epoch_at_once_nothing_stays_open",
        "test_an_open_table_belongs_to_one_feed_of_one_cluster",
        "test_a_feed_is_forgotten_once_it_is_sealed",
        "test_a_claim_that_arrives_after_its_feed_was_forgotten_is_refused",
        "test_a_process_that_was_overtaken_while_frozen_finds_out_and_nothing_is_doubled",
        "test_of_two_claimers_at_once_the_lower_one_writes_nothing",
        "test_a_lost_answer_is_found_out_by_the_next_batch",
        "test_a_table_that_is_gone_can_be_closed",
        "test_a_users_own_job_in_the_middle_of_a_commit_does_not_stop_the_feed",
        "test_a_table_that_was_set_back_is_not_written_until_the_feed_begins_again",
        "test_a_table_that_is_reached_by_two_places_is_written_through_one",
        "test_a_ledger_that_was_deleted_is_not_replaced_in_silence",
        "test_rows_are_copied_between_changes_and_the_request_continues_where_it_was",
        "test_rows_of_another_position_or_a_former_claim_are_not_written",
    }
)


class Fenced(LakeContract, LakeCopyContract):
    """The sentences of the contract of lake tables that are about the fence and the ledgers. Give ``bench``.

    The others are about rows, which libraries write in the same way everywhere. ``test_lake_in_object_store`` has what
    differs.
    """

    def __init_subclass__(cls, also: frozenset[str] = frozenset()) -> None:
        for name in dir(cls):
            if name.startswith("test_") and name not in FENCE | also:
                setattr(cls, name, None)
