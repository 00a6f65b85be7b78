{{- /* How a client in another pod finds the nodes and proves itself: environment, mounts and volumes. */}}
{{- define "fencelock.clientEnv" -}}
- {name: FENCELOCK_NODES, value: "{{ include "fencelock.name" . }}:{{ .Values.tls.enabled | ternary 7402 7401 }}"}
{{- if .Values.auth.password }}
- {name: FENCELOCK_USER, value: default}
- name: FENCELOCK_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ include "fencelock.secret" . }}, key: password}
{{- end }}
{{- if .Values.tls.enabled }}
- {name: FENCELOCK_TLS, value: "yes"}
- {name: FENCELOCK_CACERT, value: /etc/fencelock-tls/ca.crt}
- {name: FENCELOCK_CERT, value: /etc/fencelock-tls/tls.crt}
- {name: FENCELOCK_KEY, value: /etc/fencelock-tls/tls.key}
{{- end }}
{{- end }}
