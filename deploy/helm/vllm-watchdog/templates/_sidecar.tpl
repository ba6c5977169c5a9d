{{/*
The watchdog beside vLLM. In a chart that depends on this one:

  initContainers:
    {{- include "vllm-watchdog.sidecar.container" (index .Subcharts "vllm-watchdog") | nindent 4 }}

docs/quickstart-sidecar.md has the whole of it.
*/}}
{{- define "vllm-watchdog.sidecar.container" -}}
- name: vllm-watchdog
  image: {{ include "vllm-watchdog.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  # A native sidecar: starts before vLLM, so that it sees the start; stops after it, so that it sees the end.
  restartPolicy: Always
  # Not the image's own entry point: a pod is ready only while each sidecar runs. This one keeps the container
  # up and restarts the watchdog inside it, so that no fault of ours takes vLLM out of service. For the same
  # reason there is no probe here.
  command: [serve-beside]
  env:
    - name: POD_NAME
      valueFrom:
        fieldRef:
          fieldPath: metadata.name
    - name: POD_NAMESPACE
      valueFrom:
        fieldRef:
          fieldPath: metadata.namespace
    - name: WATCHDOG_CONFIG
      value: /etc/vllm-watchdog/config/watchdog.yaml
    - name: WATCHDOG_WEB__HOST
      value: 0.0.0.0
    {{- $port := include "vllm-watchdog.sidecar.port" . }}
    {{- if ne $port "9847" }}
    - name: WATCHDOG_WEB__PORT
      value: {{ $port | quote }}
    {{- end }}
    {{- with .Values.web.allowedHosts }}
    - name: WATCHDOG_WEB__ALLOWED_HOSTS
      value: {{ join "," . }}
    {{- end }}
    # Named after the pod, so that no two servers of a cluster are taken for one.
    {{- $url := printf "http://127.0.0.1:%v/metrics" .Values.sidecar.vllmPort }}
    - name: WATCHDOG_TARGETS
      value: {{ list (merge (dict "name" "$(POD_NAME)" "url" $url) .Values.sidecar.target) | toJson | squote }}
    # For routes and silences by namespace, as for other alerts of a cluster.
    - name: WATCHDOG_ALERTMANAGER__EXTERNAL_LABELS
      value: pod=$(POD_NAME),namespace=$(POD_NAMESPACE)
    {{- if include "vllm-watchdog.hasRules" . }}
    - name: WATCHDOG_RULES__DIRECTORIES
      value: /etc/vllm-watchdog/rules
    {{- end }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: watchdog
      containerPort: {{ include "vllm-watchdog.sidecar.port" . }}
  resources:
    {{- toYaml .Values.sidecar.resources | nindent 4 }}
  securityContext:
    {{- include "vllm-watchdog.sidecar.securityContext" . | nindent 4 }}
  volumeMounts:
    - name: vllm-watchdog-config
      mountPath: /etc/vllm-watchdog/config
      readOnly: true
    - name: vllm-watchdog-state
      mountPath: /var/lib/vllm-watchdog
    {{- if include "vllm-watchdog.hasRules" . }}
    - name: vllm-watchdog-rules
      mountPath: /etc/vllm-watchdog/rules
      readOnly: true
    {{- end }}
    {{- if .Values.existingSecret }}
    - name: vllm-watchdog-secrets
      mountPath: /etc/vllm-watchdog/secrets
      readOnly: true
    {{- end }}
{{- end }}

{{- define "vllm-watchdog.sidecar.volumes" -}}
- name: vllm-watchdog-config
  configMap:
    name: {{ include "vllm-watchdog.fullname" . }}-sidecar
    # What is missing of ours must not keep vLLM from starting: here and below.
    optional: true
- name: vllm-watchdog-state
  emptyDir:
    sizeLimit: {{ .Values.persistence.emptyDirSizeLimit }}
{{- if include "vllm-watchdog.hasRules" . }}
- name: vllm-watchdog-rules
  configMap:
    name: {{ include "vllm-watchdog.rulesConfigMapName" . }}
    optional: true
{{- end }}
{{- if .Values.existingSecret }}
- name: vllm-watchdog-secrets
  secret:
    secretName: {{ .Values.existingSecret }}
    optional: true
{{- end }}
{{- end }}

{{- define "vllm-watchdog.sidecar.config" -}}
{{- toYaml (mergeOverwrite (dict "log" .Values.config.log) (deepCopy .Values.sidecar.config)) }}
{{- end }}
