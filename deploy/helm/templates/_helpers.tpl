{{- define "fencelock.name" -}}
{{- if contains "fencelock" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-fencelock" (.Release.Name | trunc 40 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "fencelock.selector" -}}
app.kubernetes.io/name: fencelock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fencelock.labels" -}}
{{ include "fencelock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "fencelock.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "fencelock.secret" -}}
{{ .Values.auth.existingSecret | default (include "fencelock.name" .) }}
{{- end }}

{{- define "fencelock.tlsSecret" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "fencelock.name" .)) }}
{{- end }}

{{- define "fencelock.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "fencelock.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- /* Every node with the address that it has for the others. */}}
{{- define "fencelock.members" -}}
{{- $name := include "fencelock.name" . -}}
{{- range $i := until (int .Values.nodes) }}{{ if $i }},{{ end }}{{ add1 $i }}={{ $name }}-{{ add1 $i }}.{{ $name }}-peers:7501{{ end }}
{{- end }}

{{- /* Each program is run as this user, with nothing but its own files. */}}
{{- define "fencelock.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "fencelock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
