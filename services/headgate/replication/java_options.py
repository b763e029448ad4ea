"""The options of Spark's JVM: its garbage collector, by cores and heap, and its compilers.

What an operator passes in ``spark.driver.defaultJavaOptions`` comes last, so that it wins; a collector that is named
there replaces Headgate's, because a JVM refuses two.
"""

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["VARIABLES", "java_options"]

SERIAL_CORES_MAX: Final = 4
SERIAL_HEAP_BYTES_MAX: Final = 2 << 30
"""Up to here the JVM collects serially. G1 needs threads, tables and free regions of its own for heaps of many
gigabytes, which on few cores take from what works; a serial collection of all of 2 GB takes a second or two at worst, a
fifth of a lease, and the agent's heartbeats continue, because they are Python's (docs/adr/0122)."""

INITIAL_HEAP: Final = "-Xms96m"
"""Java begins with a 64th of the machine's memory, whatever the heap's limit, and hardly gives it back."""

CLASSES: Final = "-XX:MetaspaceSize=192m"
"""What Spark's classes take. From 21 MB on, its default, the JVM collects the whole heap each time that they have grown
by some more: several times in a start of Spark, which the serial collector pauses for."""

MARKING: Final = "-XX:InitiatingHeapOccupancyPercent=80 -XX:-G1UseAdaptiveIHOP"
"""From how much of the heap on G1 marks what lives. Kafka's fetches of 8 MB go straight to the heap's old part, so with
45, its default, it marks all the time, though hardly anything lives there. Other collectors ignore it."""

COMPILER_THRESHOLDS: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""How often code has run when the JVM's best compiler takes it on: ten times its defaults. What runs for each row gets
there in the first batches all the same. What Spark does once for each batch would be compiled all day, which costs a
tenth of a change's processor time (docs/benchmarks.md)."""

_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")

VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Where Java itself looks for options."""

_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def java_options(cores: int, heap: str, given: str = "", environment: Mapping[str, str] = {}) -> str:
    """Options for a JVM with so many ``cores`` and a ``heap`` such as 1g; ``given`` are the operator's own.

    ``environment``: the JVM's, which may name options too.
    """
    everywhere = " ".join((given, *(environment.get(name, "") for name in VARIABLES)))
    collector = "" if _COLLECTOR.search(everywhere) else _collector(cores, heap)
    return " ".join(filter(None, (collector, MARKING, INITIAL_HEAP, CLASSES, COMPILER_THRESHOLDS, given)))


def _collector(cores: int, heap: str) -> str:
    size = int(heap[:-1]) * _UNITS[heap[-1].lower()]
    return "-XX:+UseSerialGC" if cores <= SERIAL_CORES_MAX and size <= SERIAL_HEAP_BYTES_MAX else "-XX:+UseG1GC"
