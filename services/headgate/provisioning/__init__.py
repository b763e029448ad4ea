"""The Java and the pinned jars that Spark needs: what the machine has, or fetched once and verified."""
