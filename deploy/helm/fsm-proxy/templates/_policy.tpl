{{/* One of the three ways to give a policy, and no other. What Helm has misread is no policy. */}}
{{- define "fsm-proxy.onePolicy" -}}
{{- $given := list }}
{{- range $key := list "content" "text" "configMap" }}
{{- if get $.Values.policy $key }}{{ $given = append $given (print "policy." $key) }}{{ end }}
{{- end }}
{{- range $key := regexFindAll "(?m)^ *(- )?\"?(true|false)\"?:" (toYaml .Values.policy.content) -1 }}
{{- fail (printf "policy.content: the name %s Helm reads an unquoted yes, no, on, off, y or n as true or false: quote it" (trim $key)) }}
{{- end }}
{{- range $name, $part := .Values.policy.parts }}
{{- range $key := regexFindAll "(?m)^ *(- )?\"?(true|false)\"?:" (kindIs "string" $part | ternary "" (toYaml $part)) -1 }}
{{- fail (printf "policy.parts: the name %s in %s: Helm reads an unquoted yes, no, on, off, y or n as true or false: quote it" (trim $key) $name) }}
{{- end }}
{{- end }}
{{- if and .Values.policy.parts .Values.policy.configMap }}
{{- fail "policy: policy.parts stands beside policy.configMap; put the parts into that ConfigMap" }}
{{- end }}
{{- if ne (len $given) 1 }}
{{- fail (printf "policy: give one of policy.content, policy.text and policy.configMap; there is %s" (join " and " $given | default "none")) }}
{{- end }}
{{- end }}

{{/*
What no schema can say of a policy: that it begins in a state, and that its edges lead to states. A policy with such a
mistake would not load. `fsm-proxy check` finds more, and says where.
*/}}
{{- define "fsm-proxy.checkPolicy" -}}
{{- with get . "Error" }}{{ fail (print "policy: " .) }}{{ end }}
{{- range $key := list "version" "initial" "states" }}
{{- if not (get $ $key) }}{{ fail (printf "policy: no %s" $key) }}{{ end }}
{{- end }}
{{- $states := .states }}
{{- include "fsm-proxy.checkEdge" (dict "at" "initial" "to" .initial "states" $states) }}
{{- include "fsm-proxy.checkPlace" (dict "at" "everywhere" "place" (get . "everywhere") "states" $states) }}
{{- range $name, $state := $states }}
{{- include "fsm-proxy.checkPlace" (dict "at" (print "states." $name) "place" $state "states" $states) }}
{{- end }}
{{- end }}

{{/* A state, or everywhere: the bindings of each kind, signals, and the edge of a clock. A list binds names that stay. */}}
{{- define "fsm-proxy.checkPlace" -}}
{{- range $kind := list "tools" "resources" "prompts" }}
{{- $bound := get ($.place | default dict) $kind }}
{{- if kindIs "map" $bound }}
{{- range $name, $value := $bound }}
{{- include "fsm-proxy.checkBinding" (dict "at" (printf "%s.%s.%s" $.at $kind $name) "value" $value "states" $.states) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $key := list "signals" "after" }}
{{- range $name, $to := get ($.place | default dict) $key | default dict }}
{{- if ne (toString $to) "none" }}{{ include "fsm-proxy.checkEdge" (dict "at" (printf "%s.%s.%s" $.at $key $name) "to" $to "states" $.states) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What a name or a case is bound to: a state, a mapping of edges, or of cases, or a list of alternatives. */}}
{{- define "fsm-proxy.checkBinding" -}}
{{- if kindIs "slice" .value }}
{{- range $i, $value := .value }}
{{- include "fsm-proxy.checkBinding" (dict "at" (printf "%s[%d]" $.at $i) "value" $value "states" $.states) }}
{{- end }}
{{- else if not (kindIs "map" .value) }}
{{- if ne (toString .value) "none" }}{{ include "fsm-proxy.checkEdge" (dict "at" .at "to" .value "states" .states) }}{{ end }}
{{- else }}
{{- range $key, $to := .value }}
{{- if hasPrefix "on_" $key }}{{ include "fsm-proxy.checkEdge" (dict "at" (print $.at "." $key) "to" $to "states" $.states) }}{{ end }}
{{- end }}
{{- range $case, $value := get .value "cases" | default dict }}
{{- include "fsm-proxy.checkBinding" (dict "at" (printf "%s.cases.%s" $.at $case) "value" $value "states" $.states) }}
{{- end }}
{{- end }}
{{- end }}

{{/* An edge: a state, stay, or a mapping with to. */}}
{{- define "fsm-proxy.checkEdge" -}}
{{- $to := .to }}
{{- if kindIs "map" $to }}{{ $to = get $to "to" }}{{ end }}
{{- $to = toString ($to | default "stay") }}
{{- if not (or (hasKey .states $to) (and (eq $to "stay") (ne .at "initial"))) }}
{{- fail (printf "policy: %s: there is no state %q" .at $to) }}
{{- end }}
{{- end }}
