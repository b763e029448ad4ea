"""Writers and readers of change logs on Kafka, and the ingest service."""
