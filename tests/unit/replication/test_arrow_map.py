"""pyarrow and pandas in one process: neither is imported for the other's sake, and both are there when asked for."""

import subprocess
import sys

SETTLED = """
import sys
import pyarrow as pa
from headgate.replication.arrow_map import settle_pyarrow

settle_pyarrow()
assert pa.array([b"x"], pa.binary()).to_pylist() == [b"x"]
assert "pandas" not in sys.modules, "an array imported it"
frame = pa.table({"a": [1, 2]}).to_pandas()
assert list(frame["a"]) == [1, 2], "who asks for pandas gets it"
import pandas
assert pandas.DataFrame({"a": [1]}).shape == (1, 1)
print("all well")
"""


def test_pyarrow_imports_pandas_only_when_it_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", SETTLED], capture_output=True, text=True, check=False)
    assert done.stdout == "all well\n", done.stderr
