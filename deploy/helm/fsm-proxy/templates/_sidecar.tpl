{{/* The container. It starts before the server, and it does not end before the server has. */}}
{{- define "fsm-proxy.sidecar" -}}
name: fsm-proxy
image: {{ .Values.proxy.image.repository }}:{{ .Values.proxy.image.tag | default .Chart.AppVersion }}
{{- with .Values.proxy.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
restartPolicy: Always
args:
  - run
  - --policy=/etc/fsm-proxy/policy
  - --config=/etc/fsm-proxy/config/fsm-proxy.yaml
  - --listen=:8080
  {{- if .Values.auth.insecure }}
  - --insecure-listen
  {{- else }}
  - --bearer-file=/etc/fsm-proxy/bearer/token
  {{- end }}
  - --health=:9901
  - --drain={{ .Values.end.drain }}s
  - --audit=stderr
  - --log-format=json
  {{- with include "fsm-proxy.peerPort" . }}
  - --peer-listen=:{{ . }}
  - --advertise=$(POD_IP):{{ . }}
  {{- end }}
  {{- range .Values.proxy.args }}
  - {{ . | quote }}
  {{- end }}
env:
  - name: FSM_PROXY_UPSTREAM
    value: {{ printf "http://127.0.0.1:%d%s" (int .Values.server.port) .Values.server.path | quote }}
  - name: FSM_PROXY_ADMIN
    value: unix:/run/fsm-proxy/admin.sock
  {{- if .Values.store.claim }}
  - name: FSM_PROXY_STORE
    value: sqlite:/var/lib/fsm-proxy/runs.db
  {{- else if .Values.store.secret }}
  - name: FSM_PROXY_STORE
    valueFrom: {secretKeyRef: {name: {{ .Values.store.secret | quote }}, key: url}}
  {{- end }}
  {{- if include "fsm-proxy.peerPort" . }}
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  {{- end }}
  {{- with .Values.proxy.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.proxy.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - {name: mcp, containerPort: 8080, protocol: TCP}
  - {name: fsm-health, containerPort: 9901, protocol: TCP}
  {{- with include "fsm-proxy.peerPort" . }}
  - {name: fsm-peers, containerPort: {{ . }}, protocol: TCP}
  {{- end }}
lifecycle:
  {{- /* Run when the pod is told to end, at once. SIGTERM comes only when the server has gone, too late to finish a call. */}}
  preStop:
    exec: {command: [/ko-app/fsm-proxy, drain]}
startupProbe:
  httpGet: {path: /startupz, port: fsm-health}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: fsm-health}
  periodSeconds: 5
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /livez, port: fsm-health}
  periodSeconds: 10
  failureThreshold: 3
resources:
  {{- toYaml .Values.proxy.resources | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  {{- /* Folders, never subPath: a file mounted by subPath never changes. */}}
  - {name: fsm-proxy-policy, mountPath: /etc/fsm-proxy/policy, readOnly: true}
  - {name: fsm-proxy-config, mountPath: /etc/fsm-proxy/config, readOnly: true}
  {{- if not .Values.auth.insecure }}
  - {name: fsm-proxy-bearer, mountPath: /etc/fsm-proxy/bearer, readOnly: true}
  {{- end }}
  - {name: fsm-proxy-run, mountPath: /run/fsm-proxy}
  {{- if .Values.store.claim }}
  - {name: fsm-proxy-store, mountPath: /var/lib/fsm-proxy}
  {{- end }}
{{- end }}

{{- define "fsm-proxy.volumes" -}}
- name: fsm-proxy-policy
  configMap: {name: {{ include "fsm-proxy.policyMap" . | quote }}}
- name: fsm-proxy-config
  configMap: {name: {{ include "fsm-proxy.configMap" . | quote }}}
{{- if not .Values.auth.insecure }}
- name: fsm-proxy-bearer
  secret: {secretName: {{ .Values.auth.secret | quote }}}
{{- end }}
- name: fsm-proxy-run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- with .Values.store.claim }}
- name: fsm-proxy-store
  persistentVolumeClaim: {claimName: {{ . | quote }}}
{{- end }}
{{- end }}
