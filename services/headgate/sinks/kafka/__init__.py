"""Topics of a Kafka cluster as a sink: records and progress in one transaction of the agent's only producer there.

Transactions are the driver's, so this is a sink that commits on the driver (sinks/on_driver.py, docs/adr/0119).
"""
