{{- define "ferrovia.selector" -}}
app.kubernetes.io/name: ferrovia
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ferrovia.labels" -}}
{{ include "ferrovia.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The modes that run the iptables tools say so by "true". */ -}}
{{- define "ferrovia.tools" -}}
{{- ne .Values.mode "nftables" -}}
{{- end }}

{{- define "ferrovia.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ if eq (include "ferrovia.tools" .) "true" }}-iptables{{ end }}
{{- end }}

{{- /* What the chart sets of the configuration; values.config goes over it. */ -}}
{{- define "ferrovia.config" -}}
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: {{ .Values.mode }}
clusterCIDR: {{ .Values.clusterCIDR | quote }}
healthzBindAddress: 0.0.0.0:10256
metricsBindAddress: {{ if .Values.metrics.serviceMonitor.enabled }}0.0.0.0{{ else }}127.0.0.1{{ end }}:10249
logging:
  verbosity: {{ .Values.logVerbosity }}
{{- end }}
