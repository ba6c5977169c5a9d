{{- define "vllm-watchdog.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "vllm-watchdog.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "vllm-watchdog.selectorLabels" -}}
app.kubernetes.io/name: {{ include "vllm-watchdog.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: fleet
{{- end }}

{{- define "vllm-watchdog.labels" -}}
app.kubernetes.io/name: {{ include "vllm-watchdog.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: vllm-watchdog
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "vllm-watchdog.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "vllm-watchdog.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "vllm-watchdog.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "vllm-watchdog.configMapName" -}}
{{- default (include "vllm-watchdog.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{- define "vllm-watchdog.rulesConfigMapName" -}}
{{- default (printf "%s-rules" (include "vllm-watchdog.fullname" .)) .Values.existingRulesConfigMap }}
{{- end }}

{{/* The namespaces whose pods may be read: as set, else those of the settings, where an entry without any means ours. */}}
{{- define "vllm-watchdog.podNamespaces" -}}
{{- $namespaces := .Values.rbac.namespaces }}
{{- if not $namespaces }}
{{- range dig "discovery" "kubernetes" (list) .Values.config }}
{{- $namespaces = concat $namespaces (default (list $.Release.Namespace) .namespaces) }}
{{- end }}
{{- end }}
{{- $namespaces | uniq | toJson }}
{{- end }}

{{- define "vllm-watchdog.hasRules" -}}
{{- if or .Values.rules .Values.existingRulesConfigMap }}yes{{ end }}
{{- end }}

{{/* The port in the settings where it stands there, else web.port. */}}
{{- define "vllm-watchdog.port" -}}
{{- dig "web" "port" .Values.web.port .Values.config }}
{{- end }}

{{- define "vllm-watchdog.sidecar.port" -}}
{{- dig "web" "port" .Values.web.port .Values.sidecar.config }}
{{- end }}

{{/* What people open: as set, else the first host of the ingress or of the HTTPRoute. */}}
{{- define "vllm-watchdog.externalUrl" -}}
{{- $set := dig "web" "external_url" "" .Values.config }}
{{- if $set }}
{{- $set }}
{{- else if and .Values.ingress.enabled .Values.ingress.hosts }}
{{- printf "%s://%s" (ternary "https" "http" (not (empty .Values.ingress.tls))) (first .Values.ingress.hosts) }}
{{- else if and .Values.httpRoute.enabled .Values.httpRoute.hostnames }}
{{- printf "https://%s" (first .Values.httpRoute.hostnames) }}
{{- end }}
{{- end }}

{{/* Names that callers may use: those set, and the hosts under which it is published. */}}
{{- define "vllm-watchdog.allowedHosts" -}}
{{- $hosts := .Values.web.allowedHosts }}
{{- if .Values.ingress.enabled }}{{ $hosts = concat $hosts .Values.ingress.hosts }}{{ end }}
{{- if .Values.httpRoute.enabled }}{{ $hosts = concat $hosts .Values.httpRoute.hostnames }}{{ end }}
{{- $hosts | uniq | toJson }}
{{- end }}

{{/* OpenShift gives each project ids of its own, and refuses others. */}}
{{- define "vllm-watchdog.fixedIds" -}}
{{- $openshift := .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- if eq (toString .Values.openshift) "auto" }}{{ ternary "" "yes" $openshift }}
{{- else }}{{ ternary "" "yes" (eq (toString .Values.openshift) "true") }}
{{- end }}
{{- end }}

{{- define "vllm-watchdog.podSecurityContext" -}}
{{- $given := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- if include "vllm-watchdog.fixedIds" . }}
{{- $given = merge $given (dict "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532) }}
{{- end }}
{{- toYaml (mergeOverwrite $given (deepCopy .Values.podSecurityContext)) }}
{{- end }}

{{- define "vllm-watchdog.containerSecurityContext" -}}
{{- $given := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
{{- toYaml (mergeOverwrite $given (deepCopy .Values.securityContext)) }}
{{- end }}

{{- define "vllm-watchdog.sidecar.securityContext" -}}
{{- $given := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
{{- if include "vllm-watchdog.fixedIds" . }}
{{- $given = merge $given (dict "runAsUser" 65532 "runAsGroup" 65532) }}
{{- end }}
{{- toYaml (mergeOverwrite $given (deepCopy .Values.securityContext)) }}
{{- end }}
