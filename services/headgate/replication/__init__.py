"""The data plane on Spark: lanes that read many spans in one query and apply each one under its own claim."""
