{{- define "holdfast.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* What an object's selector has: call it with (list . "gateway"). */ -}}
{{- define "holdfast.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "holdfast.labels" -}}
{{- $root := index . 0 -}}
{{ include "holdfast.selector" . }}
app.kubernetes.io/version: {{ include "holdfast.tag" $root | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{- define "holdfast.tag" -}}
{{- default .Chart.AppVersion .Values.image.tag -}}
{{- end -}}

{{- define "holdfast.image" -}}
{{- printf "%s:%s" .Values.image.repository (include "holdfast.tag" .) -}}
{{- end -}}

{{- define "holdfast.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The services of Holdfast, in the order of their names. */ -}}
{{- define "holdfast.services" -}}
gateway,policy,projector,runner,session,workload
{{- end -}}

{{- /* Names of Secrets: those that are given, or the chart's own. */ -}}
{{- define "holdfast.secret.nats" -}}
{{- default (printf "%s-nats" (include "holdfast.fullname" .)) .Values.nats.existingSecret -}}
{{- end -}}
{{- define "holdfast.secret.postgres" -}}
{{- default (printf "%s-postgres" (include "holdfast.fullname" .)) .Values.postgres.existingSecret -}}
{{- end -}}
{{- define "holdfast.secret.key" -}}
{{- default (printf "%s-sandbox-key" (include "holdfast.fullname" .)) .Values.sandboxKey.existingSecret -}}
{{- end -}}
{{- define "holdfast.secret.tokens" -}}
{{- default (printf "%s-tokens" (include "holdfast.fullname" .)) .Values.tokens.existingSecret -}}
{{- end -}}

{{- define "holdfast.nats.url" -}}
{{- if .Values.nats.external.url -}}
{{- .Values.nats.external.url -}}
{{- else -}}
{{- $name := printf "%s-nats" (include "holdfast.fullname" .) -}}
{{- $urls := list -}}
{{- range until (int .Values.nats.replicas) -}}
{{- $urls = append $urls (printf "nats://%s-%d.%s:4222" $name . $name) -}}
{{- end -}}
{{- join "," $urls -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.postgres.tryout" -}}
{{- if not .Values.postgres.existingSecret }}yes{{ end -}}
{{- end -}}

{{- /* What browsers call the console, comma separated. */ -}}
{{- define "holdfast.origins" -}}
{{- if .Values.gateway.origins -}}
{{- join "," .Values.gateway.origins -}}
{{- else if .Values.ingress.enabled -}}
{{- if contains "*" .Values.ingress.host -}}
{{- fail (printf "ingress.host %s stands for many hosts: say in gateway.origins which of them browsers use" .Values.ingress.host) -}}
{{- end -}}
{{- printf "%s://%s" (ternary "https" "http" (not (empty .Values.ingress.tlsSecret))) .Values.ingress.host -}}
{{- end -}}
{{- end -}}
