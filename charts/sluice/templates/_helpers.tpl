{{/* The name of an image: a dict of `image` and `root`. */}}
{{- define "sluice.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The kind of the roles of the controllers. */}}
{{- define "sluice.roleKind" -}}
{{ ternary "ClusterRole" "Role" .Values.watchAllNamespaces }}
{{- end -}}

{{/* Name and, for a Role, namespace of a role or its binding: a dict of `name` and `root`. */}}
{{- define "sluice.roleMetadata" -}}
name: {{ .name }}
{{- if not .root.Values.watchAllNamespaces }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
{{- end -}}

{{/* The labels that make a role part of the cluster's roles for users who write. */}}
{{- define "sluice.editLabels" -}}
{{- if .Values.editAggregation -}}
labels:
  rbac.authorization.k8s.io/aggregate-to-edit: "true"
  rbac.authorization.k8s.io/aggregate-to-admin: "true"
{{- end -}}
{{- end -}}

{{/* "yes" if the release has the controller of Repo objects, else nothing. Before the object with `enabled` the value was a boolean, which
`helm upgrade --reuse-values` brings back. */}}
{{- define "sluice.repoController" -}}
{{- if kindIs "bool" .Values.repoController -}}
{{- if .Values.repoController -}}
{{- fail "repoController: true is now repoController: {enabled: true}" -}}
{{- end -}}
{{- else if .Values.repoController.enabled -}}
yes
{{- end -}}
{{- end -}}

{{/* The binding of a role to a controller: a dict of `role`, `account` and `root`. */}}
{{- define "sluice.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ include "sluice.roleKind" .root }}Binding
metadata:
  {{- include "sluice.roleMetadata" (dict "name" (.name | default .role) "root" .root) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ include "sluice.roleKind" .root }}
  name: {{ .role }}
subjects:
  - {kind: ServiceAccount, name: {{ .account }}, namespace: {{ .root.Release.Namespace }}}
{{- end -}}

{{/* The Lease of a controller, which has a name of its own for each label selector: a dict of `lease` and `extraArgs`. */}}
{{- define "sluice.lease" -}}
{{- $lease := .lease -}}
{{- range .extraArgs -}}
{{- if eq . "--watch-label-selector" -}}
{{- fail "extraArgs: write --watch-label-selector=SELECTOR in one argument, so that the Role of leader election names the Lease" -}}
{{- end -}}
{{- if hasPrefix "--watch-label-selector=" . -}}
{{- $selector := trimPrefix "--watch-label-selector=" . -}}
{{- $lease = empty $selector | ternary $.lease (printf "%s-%s" $.lease (sha256sum $selector | trunc 8)) -}}
{{- end -}}
{{- end -}}
{{- $lease -}}
{{- end -}}

{{/* The Role of leader election and its binding: a dict of `account`, `lease`, `extraArgs` and `root`. */}}
{{- define "sluice.leaderElection" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: sluice-{{ .account }}-leader-election
  namespace: {{ .root.Release.Namespace }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ include "sluice.lease" . }}]
    verbs: [get, update]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: sluice-{{ .account }}-leader-election
  namespace: {{ .root.Release.Namespace }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: sluice-{{ .account }}-leader-election
subjects:
  - {kind: ServiceAccount, name: {{ .account }}, namespace: {{ .root.Release.Namespace }}}
{{- end -}}

{{/* The ServiceAccount of a controller: a dict of `account`, `annotations` and `root`. */}}
{{- define "sluice.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .account }}
  namespace: {{ .root.Release.Namespace }}
  {{- with .annotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Where the pods of a controller run: a dict of `controller` and `root`. */}}
{{- define "sluice.scheduling" -}}
{{- with .controller.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .controller.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .controller.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .controller.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- include "sluice.imagePullSecrets" .root.Values.imagePullSecrets }}
{{- end -}}

{{/* The field `imagePullSecrets` of a list of names, or of references as in a pod. */}}
{{- define "sluice.imagePullSecrets" -}}
{{- with . }}
imagePullSecrets:
  {{- range . }}
  - name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The labels of a pod; those that select it count: a dict of `account`, `labels` and `extra`. */}}
{{- define "sluice.podLabels" -}}
{{- $component := dict "app" .account "app.kubernetes.io/component" .account "app.kubernetes.io/part-of" "flux" -}}
{{- toYaml (merge $component .labels .extra) -}}
{{- end -}}

{{/* The annotations of a pod: those of the values count. */}}
{{- define "sluice.podAnnotations" -}}
{{- toYaml (merge (deepCopy .) (dict "prometheus.io/scrape" "true" "prometheus.io/port" "8080")) -}}
{{- end -}}

{{/* The security context of a container: the profile `restricted` admits it. */}}
{{- define "sluice.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The first five arguments, in the order of Flux. */}}
{{- define "sluice.arguments" -}}
- --events-addr={{ .Values.eventsAddr }}
- --watch-all-namespaces{{ if not .Values.watchAllNamespaces }}=false{{ end }}
- --log-level=info
- --log-encoding=json
- --enable-leader-election
{{- end -}}
