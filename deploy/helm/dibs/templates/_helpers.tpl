{{/* One part of it, "serve" or "worker": what both have. */}}
{{- define "dibs.labels" -}}
app.kubernetes.io/name: dibs
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "dibs.deployment" -}}
{{- $root := .root }}
{{- $values := index $root.Values .part }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $root.Release.Name }}-{{ .part }}
  labels: {{- include "dibs.labels" . | nindent 4 }}
spec:
  replicas: {{ $values.replicas }}
  selector:
    matchLabels: {{- include "dibs.labels" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "dibs.labels" . | nindent 8 }}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {{ $root.Values.terminationGracePeriodSeconds }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      containers:
        - name: dibs
          image: "{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [{{ .part }}]
          env:
            {{- range $name, $value := $root.Values.settings }}
            - {name: DIBS_{{ upper $name }}, value: {{ $value | quote }}}
            {{- end }}
            {{- range $name, $key := $root.Values.secrets.keys }}
            {{- if $key }}
            - {name: DIBS_{{ upper $name }}_FILE, value: /run/secrets/dibs/{{ $name }}}
            {{- end }}
            {{- end }}
            {{- if eq .part "serve" }}
            - {name: DIBS_LISTEN, value: "0.0.0.0:8080"}
            - {name: DIBS_METRICS_LISTEN, value: "0.0.0.0:9090"}
            {{- else }}
            - {name: DIBS_WORKER_LISTEN, value: "0.0.0.0:9090"}
            {{- end }}
          ports:
            {{- if eq .part "serve" }}
            - {name: http, containerPort: 8080}
            {{- end }}
            - {name: metrics, containerPort: 9090}
          # It listens once Redis and the database are there, for which it waits start_timeout.
          startupProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 2, failureThreshold: 60}
          livenessProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 10, timeoutSeconds: 5}
          readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 2}
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: secrets, mountPath: /run/secrets/dibs, readOnly: true}
      volumes:
        - name: secrets
          secret:
            secretName: {{ required "secrets.name: a Secret with at least the admin token" $root.Values.secrets.name }}
            defaultMode: 0440
            items:
              {{- range $name, $key := $root.Values.secrets.keys }}
              {{- if $key }}
              - {key: {{ $key }}, path: {{ $name }}}
              {{- end }}
              {{- end }}
      {{- with $root.Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $root.Release.Name }}-{{ .part }}
spec:
  {{- toYaml $root.Values.podDisruptionBudget | nindent 2 }}
  selector:
    matchLabels: {{- include "dibs.labels" . | nindent 6 }}
{{- end }}
