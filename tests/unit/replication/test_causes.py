"""Errors of Spark as PySpark hands them over, in a line."""

import pytest

from headgate.replication.causes import LENGTH_MAX, OUT_OF_MEMORY, cause_of

LOST_WORKER = """An error occurred while calling o385.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 6.0 failed 1 times: \
Python worker exited (crashed)
\tat org.apache.spark.scheduler.Task.run(Task.scala:147)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2)
Caused by: org.apache.spark.SparkException: Python worker exited (crashed)
Caused by: java.io.EOFException
\t... 21 more
"""

NO_KEY = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Failed to construct kafka consumer

JVM stacktrace:
org.apache.kafka.common.KafkaException: Failed to construct kafka consumer
\tat org.apache.kafka.clients.consumer.KafkaConsumer.<init>(KafkaConsumer.java:1)
Caused by: org.apache.kafka.common.KafkaException: Failed to load SSL keystore
\t... 7 more
Caused by: org.apache.kafka.common.errors.InvalidConfigurationException: Invalid PEM keystore configs
"""

NO_MEMORY = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 129.0 failed 1 times, most recent failure: Lost task 0.0 in stage 129.0 (TID 189) (localhost executor \
driver): java.lang.OutOfMemoryError: Java heap space
"""

PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "./headgate-4de9.zip/headgate/replication/task.py", line 7, in <module>
    import msgspec
ModuleNotFoundError: No module named 'msgspec'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
Driver stacktrace:
"""


OTHER_VERSION = """Traceback (most recent call last):
  File "worker_util.py", line 77, in check_python_version
    raise PySparkRuntimeError(
pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.
"""

MISMATCH = "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12"
STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Failed to construct kafka consumer"
LOAD = "org.apache.kafka.common.KafkaException: Failed to load SSL keystore"
KEYSTORE = "org.apache.kafka.common.errors.InvalidConfigurationException: Invalid PEM keystore configs"
JOB = "Job aborted due to stage failure: Task 0 in stage 6.0 failed 1 times: Python worker exited (crashed)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOST_WORKER, f"{JOB}; caused by java.io.EOFException"),
        (NO_KEY, f"{STREAM}; caused by {LOAD}; caused by {KEYSTORE}"),
        (PYTHON, "a Python worker of Spark ended with ModuleNotFoundError: No module named 'msgspec'"),
        (OTHER_VERSION, f"a Python worker of Spark ended with pyspark.errors.{MISMATCH}"),
        (NO_MEMORY, OUT_OF_MEMORY),
        ("connection refused", "connection refused"),
        ("", "RuntimeError"),
    ],
)
def test_the_beginning_and_the_cause_are_said(text: str, said: str) -> None:
    assert cause_of(RuntimeError(text)) == said


def test_it_is_a_line_however_long_the_message_is() -> None:
    assert len(cause_of(RuntimeError("x" * 9_999))) == LENGTH_MAX


class CapturedError(Exception):
    """As pyspark.errors.exceptions.captured.CapturedException keeps what it has of Java's."""

    def __init__(self, text: str, cause: "CapturedError | None" = None) -> None:
        super().__init__(text)
        self._desc, self._cause = text, cause


def test_a_chain_that_pyspark_keeps_and_does_not_show_is_said() -> None:
    bottom = CapturedError("java.io.FileNotFoundException: /ca.pem\n at x")
    error = CapturedError("Failed to create new KafkaAdminClient", CapturedError("Failed to load keystore", bottom))
    assert cause_of(error) == (
        "Failed to create new KafkaAdminClient; caused by Failed to load keystore; "
        "caused by java.io.FileNotFoundException: /ca.pem"
    )


def test_memory_that_ran_out_at_the_bottom_of_a_chain_is_said_with_what_to_do() -> None:
    error = CapturedError("Job aborted", CapturedError("java.lang.OutOfMemoryError: Java heap space"))
    assert cause_of(error) == OUT_OF_MEMORY
