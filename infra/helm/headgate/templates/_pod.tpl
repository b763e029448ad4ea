{{- define "headgate.labels" -}}
app.kubernetes.io/name: headgate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .service }}
{{- end }}

{{- define "headgate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What every process is told. */}}
{{- define "headgate.environment" -}}
- {name: HEADGATE_BOOTSTRAP, value: {{ .Values.kafka.bootstrap | quote }}}
- {name: HEADGATE_CLUSTER, value: {{ .Values.cluster | quote }}}
- {name: HEADGATE_SHARDS, value: {{ .Values.shards | quote }}}
- {name: HEADGATE_REPLICATION_FACTOR, value: {{ .Values.replicationFactor | quote }}}
- {name: HEADGATE_LEASE_SECONDS, value: {{ .Values.leaseSeconds | quote }}}
- {name: HEADGATE_SHUTDOWN_SECONDS, value: {{ .Values.shutdownSeconds | quote }}}
- {name: HEADGATE_CLOUDEVENTS, value: {{ .Values.cloudevents | quote }}}
- {name: HEADGATE_ALLOWED_HOSTS, value: {{ .Values.allowedHosts | quote }}}
- {name: HEADGATE_CONNECTIONS, value: {{ .Values.connections | quote }}}
- {name: HEADGATE_LOG__FORMAT, value: json}
# The pod's own network: who may come in is the NetworkPolicy's.
- {name: HEADGATE_HTTP__BIND, value: 0.0.0.0}
{{- range $name, $value := .Values.kafka.properties }}
- {name: HEADGATE_KAFKA__{{ $name | upper | replace "." "_" }}, value: {{ $value | quote }}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A pod's security, files (.secrets: what values.secrets has of its service; .configMap: of feeds, or empty) and stop: non-root, nothing writable but scratch, a stop that may take its time. */}}
{{- define "headgate.pod" -}}
serviceAccountName: {{ .account | default (printf "%s-headgate" .root.Release.Name) }}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ add (ceil .root.Values.shutdownSeconds) 15 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
volumes:
  - name: scratch
    emptyDir: {{- if .root.Values.scratch.sizeLimit }} {sizeLimit: {{ .root.Values.scratch.sizeLimit }}}{{ else }} {}{{ end }}
  - {name: home, emptyDir: {}}
  {{- with .secrets.files }}
  - {name: secrets, secret: {secretName: {{ . }}, defaultMode: 0440}}
  {{- end }}
  {{- with .configMap }}
  - {name: feeds, configMap: {name: {{ . }}}}
  {{- end }}
  {{- with .root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "headgate.container" -}}
image: {{ include "headgate.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- with .secrets.kafka }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
volumeMounts:
  - {name: scratch, mountPath: /tmp}
  - {name: home, mountPath: /home/headgate}
  {{- if .secrets.files }}
  - {name: secrets, mountPath: /run/secrets, readOnly: true}
  {{- end }}
  {{- if .configMap }}
  - {name: feeds, mountPath: /feeds, readOnly: true}
  {{- end }}
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* A service as a Deployment: .service, .secrets, .replicas, .resources, .environment (a template's name, or empty), .arguments (of headgate; those of the service if empty) */}}
{{- define "headgate.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .service }}
  labels: {{- include "headgate.labels" . | nindent 4 }}
spec:
  {{- if not .scaled }}
  replicas: {{ .replicas }}
  {{- end }}
  selector:
    matchLabels: {{- include "headgate.labels" . | nindent 6 }}
  strategy:
    # One at a time: each stop moves what the process had.
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  template:
    metadata:
      labels: {{- include "headgate.labels" . | nindent 8 }}
      {{- with .root.Values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "headgate.pod" . | nindent 6 }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "headgate.labels" . | nindent 14 }}
      containers:
        - name: headgate
          {{- include "headgate.container" . | nindent 10 }}
          args: {{ .arguments | default (list "serve" .service) | toJson }}
          env:
            {{- include "headgate.environment" .root | nindent 12 }}
            {{- with .environment }}
            {{- include . $.root | nindent 12 }}
            {{- end }}
          ports:
            - {name: http, containerPort: 8420}
            {{- if eq .service "views" }}
            - {name: views, containerPort: 8421}
            {{- end }}
          # Spark takes a minute to start on a busy machine; a process that only waits for Kafka is alive.
          startupProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 5, failureThreshold: 60}
          livenessProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
          readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 5, timeoutSeconds: 5}
          resources: {{- toYaml .resources | nindent 12 }}
{{- end }}

{{- define "headgate.spark" -}}
- {name: HEADGATE_SPARK__MASTER, value: {{ .Values.agent.spark.master | quote }}}
- {name: HEADGATE_SPARK__MEMORY, value: {{ .Values.agent.spark.memory | quote }}}
{{- if hasPrefix "local" .Values.agent.spark.master }}
- {name: HEADGATE_SPARK__PROPERTIES, value: {{ .Values.agent.spark.properties | quote }}}
{{- else }}
# Executors connect to the driver: at the pod's address, since nobody else resolves its name, and at ports that the
# NetworkPolicy lets them reach.
- {name: POD_ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- name: HEADGATE_SPARK__PROPERTIES
  value: |
    spark.driver.host $(POD_ADDRESS)
    spark.driver.port {{ .Values.agent.spark.driverPort }}
    spark.driver.blockManager.port {{ .Values.agent.spark.blockManagerPort }}
    {{- .Values.agent.spark.properties | nindent 4 }}
{{- end }}
{{- end }}

{{- define "headgate.agent" -}}
{{ include "headgate.spark" . }}
- {name: HEADGATE_AGENT__CAPACITY_SPANS, value: {{ .Values.agent.capacitySpans | quote }}}
# A pod is an agent; another pod is another agent, which gets its share of the tables by itself.
- name: HEADGATE_AGENT__NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end }}

{{/* Whether anybody but the pod itself may reach the views: if the values say so, or name who may. */}}
{{- define "headgate.viewsOpen" -}}
{{- if or .Values.views.open (and .Values.networkPolicy.enabled .Values.networkPolicy.viewsFrom) }}yes{{ end }}
{{- end }}

{{- define "headgate.viewsEnvironment" -}}
- {name: HEADGATE_VIEWS__BIND, value: {{ ternary "0.0.0.0" "127.0.0.1" (eq (include "headgate.viewsOpen" .) "yes") }}}
{{- end }}
