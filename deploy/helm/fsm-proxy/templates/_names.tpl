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

{{/* The port at which pods that share a database pass requests on to each other, or nothing. */}}
{{- define "fsm-proxy.peerPort" -}}
{{- with get .Values.store "peerPort" }}{{ int . }}{{ end }}
{{- end }}

{{/* How many pods there are: what is given, also 0, or what suits the store. */}}
{{- define "fsm-proxy.replicas" -}}
{{- $given := get .Values "replicas" | toString }}
{{- if regexMatch "^[0-9]+$" $given }}{{ $given }}{{ else }}{{ include "fsm-proxy.peerPort" . | empty | ternary 1 3 }}{{ end }}
{{- end }}

{{/* Not empty if there is a PodDisruptionBudget: if that is asked for, or, unless it is said, if there are to be many pods. */}}
{{- define "fsm-proxy.budget" -}}
{{- $given := get .Values.podDisruptionBudget "enabled" | toString }}
{{- if or (eq $given "true") (and (ne $given "false") (include "fsm-proxy.peerPort" .)) }}yes{{ end }}
{{- end }}
