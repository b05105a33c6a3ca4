{{/* The name of everything in the release. */}}
{{- define "fsm-proxy.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 56 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 56 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "fsm-proxy.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fsm-proxy.labels" -}}
{{ include "fsm-proxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "fsm-proxy.policyMap" -}}
{{ .Values.policy.configMap | default (printf "%s-policy" (include "fsm-proxy.name" .)) }}
{{- end }}

{{- define "fsm-proxy.configMap" -}}
{{ .Values.config.configMap | default (printf "%s-config" (include "fsm-proxy.name" .)) }}
{{- end }}
