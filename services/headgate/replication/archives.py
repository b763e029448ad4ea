"""Importers of zip archives, which Spark's workers would refresh before every task.

``pyspark.worker`` invalidates Python's import caches each time, and a zip importer then reads the directory of its
archive again: 70 ms a task for the sixteen that a worker has after importing pyspark, whose modules come out of one
(Python 3.11; docs/adr/0018). An importer that is not in the cache costs nothing, and is made again when it is needed.
"""

import sys
import zipimport


def forget_archives() -> None:
    """Take them out of the cache."""
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            del sys.path_importer_cache[path]
