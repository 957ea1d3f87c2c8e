{{- /* What every Pod of Holdfast is: nobody's root, and it keeps nothing. */ -}}
{{- define "holdfast.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "holdfast.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "holdfast.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Spread over nodes: (list . "nats" "ScheduleAnyway"). */ -}}
{{- define "holdfast.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ index . 2 }}
    labelSelector:
      matchLabels: {{- include "holdfast.selector" . | nindent 8 }}
{{- end -}}

{{- /* How a user of NATS gets there, and to Postgres: (list . "session"). */ -}}
{{- define "holdfast.env.stores" -}}
{{- $root := index . 0 -}}
{{- $password := printf "HOLDFAST_NATS_PASSWORD_%s" (upper (index . 1)) -}}
- name: HOLDFAST_NATS_URL
  value: {{ include "holdfast.nats.url" $root | quote }}
- name: {{ $password }}
  valueFrom:
    secretKeyRef: {name: {{ include "holdfast.secret.nats" $root }}, key: {{ $password }}}
- name: HOLDFAST_POSTGRES_URL
  valueFrom:
    secretKeyRef: {name: {{ include "holdfast.secret.postgres" $root }}, key: url}
{{- end -}}

{{- /* What only the workload service is told. */ -}}
{{- define "holdfast.env.workload" -}}
- name: HOLDFAST_KEY_FILE
  value: /etc/holdfast/key/sandbox.pem
- name: HOLDFAST_CLUSTER_FILE
  value: /etc/holdfast/cluster/cluster.yaml
- name: HOLDFAST_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end -}}
