# Kafka Connect with Debezium's PostgreSQL connector, from the pinned jars: a source for docker-compose.yml.
ARG HEADGATE=headgate:0.1.0
ARG KAFKA=apache/kafka:4.3.1

FROM ${HEADGATE} AS jars
ENV HEADGATE_CACHE=/tmp/jars
RUN python -m headgate.provisioning.artifacts debezium-postgres && mv /tmp/jars/debezium-postgres-* /tmp/plugin

FROM ${KAFKA}
COPY --from=jars /tmp/plugin /opt/connect/plugins
COPY infra/docker/connect.properties /opt/connect/connect.properties
EXPOSE 8083
CMD ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", "/opt/kafka/libs/*", "org.apache.kafka.connect.cli.ConnectDistributed", "/opt/connect/connect.properties"]
