//! The generated backend. Rules: tofu-controller's "custom backend" page; `in_cluster_config` only where there is one.

/// Where the CLI runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a pod: the backend uses the pod's identity.
    Pod,
    /// Anywhere else: the backend uses `KUBE_CONFIG_PATH`.
    Outside,
}

/// The text of `backend_override.tf` for a stack without `backendConfig`: state lies in the Secret
/// `tfstate-<workspace>-<name>` of the stack's namespace.
#[must_use]
pub fn kubernetes_backend(name: &str, namespace: &str, place: Place) -> String {
    let in_cluster = place == Place::Pod;
    format!(
        "terraform {{\n  backend \"kubernetes\" {{\n    secret_suffix     = {}\n    in_cluster_config = {in_cluster}\n    \
         namespace         = {}\n  }}\n}}\n",
        quoted(name),
        quoted(namespace),
    )
}

/// A string literal of HCL: quotes, backslashes and the beginnings of templates are escaped.
fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{}\"", escaped.replace("${", "$${").replace("%{", "%%{"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_outside_a_cluster_asks_for_no_pod_identity() {
        insta::assert_snapshot!(kubernetes_backend("app", "team", Place::Outside), @r#"
        terraform {
          backend "kubernetes" {
            secret_suffix     = "app"
            in_cluster_config = false
            namespace         = "team"
          }
        }
        "#);
        assert!(kubernetes_backend("app", "team", Place::Pod).contains("in_cluster_config = true"));
    }

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(quoted("a\"${x}\\"), "\"a\\\"$${x}\\\\\"");
    }
}
