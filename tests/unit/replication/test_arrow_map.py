"""PySpark and pandas in a driver: it is not imported without need, and is there when asked for."""

import subprocess
import sys

SETTLED = """
import sys
from headgate.replication.arrow_map import settle_pyspark

settle_pyspark()
from pyspark.sql.types import NumpyArrayConverter
assert not NumpyArrayConverter().can_convert([1]), "what a call with a list asks"
assert "pandas" not in sys.modules, "it was imported for that"
import pandas
assert pandas.DataFrame({"a": [1]}).shape == (1, 1), "who asks for pandas gets it"
print("all well")
"""


def test_pyspark_imports_no_pandas_in_a_driver() -> None:
    done = subprocess.run([sys.executable, "-c", SETTLED], capture_output=True, text=True, check=False)
    assert done.stdout == "all well\n", done.stderr
