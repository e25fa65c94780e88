//! What a user who may not do something can ask for. Pure.

/// Returns what to ask for, from the text with which RBAC refuses a request (`authorization/rbac` of kube-apiserver): `User "anna" cannot
/// patch resource "terraforms" in API group "infra.contrib.fluxcd.io" in the namespace "team"`, or `… at the cluster scope`. `None` for
/// other texts, such as those of admission policies: another role does not help there.
#[must_use]
pub(crate) fn advice(message: &str) -> Option<String> {
    let (verb, rest) = refused_verb(message)?;
    let (resource, rest) = rest.split_once('"')?;
    let quoted_after = |words: &str| {
        let (_, rest) = rest.split_once(words)?;
        Some(rest.split_once('"')?.0)
    };
    let group = quoted_after("in API group \"")?;
    let scope = match quoted_after("in the namespace \"") {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in all namespaces".to_owned(),
    };
    Some(format!(
        "you may not {verb} {resource} {scope}: ask for {}",
        permission(group, resource, verb)
    ))
}

/// Returns whether the text refuses the creation of an object, as [`advice`] reads it. An admission policy and a quota have other texts.
#[must_use]
pub(crate) fn is_refused_create(message: &str) -> bool {
    refused_verb(message).is_some_and(|(verb, _)| verb == "create")
}

/// Returns whether the text says that the user lacks a permission, as [`advice`] reads it.
#[must_use]
pub(crate) fn is_missing(message: &str) -> bool {
    refused_verb(message).is_some()
}

/// Returns the verb, and the text after the quotation mark before the resource.
fn refused_verb(message: &str) -> Option<(&str, &str)> {
    // From the end: the name of the user is free text.
    let (_, rest) = message.rsplit_once("\" cannot ")?;
    rest.split_once(" resource \"")
}

/// Returns the role of `config/roles` that permits a request, or of Kubernetes where none of them does.
fn permission(group: &str, resource: &str, verb: &str) -> String {
    let is_read = matches!(verb, "get" | "list" | "watch");
    let role = match (group, resource) {
        ("infra.sluice.dev" | "infra.contrib.fluxcd.io" | "source.toolkit.fluxcd.io", _) if is_read => {
            "sluice-view"
        }
        ("infra.sluice.dev", "planapprovals") => "sluice-approve",
        ("infra.sluice.dev", "terraformruns") if verb == "patch" => "sluice-cancel",
        ("infra.contrib.fluxcd.io" | "source.toolkit.fluxcd.io", _) => "sluice-edit",
        ("", "events" | "pods" | "pods/log") if is_read => "view",
        _ => return format!("a role with {verb} on {resource}"),
    };
    format!("the role {role}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_role_to_ask_for() {
        let refusal = |verb: &str, resource: &str, group: &str, scope: &str| {
            format!(
                "{resource}.{group} \"app\" is forbidden: User \"anna\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}"
            )
        };
        let team = "in the namespace \"team\"";
        for (verb, resource, group, scope, expected) in [
            (
                "patch",
                "terraforms",
                "infra.contrib.fluxcd.io",
                team,
                "you may not patch terraforms in namespace team: ask for the role sluice-edit",
            ),
            (
                "create",
                "planapprovals",
                "infra.sluice.dev",
                team,
                "you may not create planapprovals in namespace team: ask for the role sluice-approve",
            ),
            (
                "patch",
                "terraformruns",
                "infra.sluice.dev",
                team,
                "you may not patch terraformruns in namespace team: ask for the role sluice-cancel",
            ),
            (
                "list",
                "gitrepositories",
                "source.toolkit.fluxcd.io",
                "at the cluster scope",
                "you may not list gitrepositories in all namespaces: ask for the role sluice-view",
            ),
            (
                "list",
                "events",
                "",
                team,
                "you may not list events in namespace team: ask for the role view",
            ),
            (
                "get",
                "secrets",
                "",
                team,
                "you may not get secrets in namespace team: ask for a role with get on secrets",
            ),
        ] {
            let message = refusal(verb, resource, group, scope);
            assert_eq!(advice(&message).as_deref(), Some(expected), "{message}");
            assert_eq!(is_refused_create(&message), verb == "create", "{message}");
        }
    }

    #[test]
    fn the_name_of_a_user_and_other_texts_name_no_role() {
        let named = "x is forbidden: User \"a\\\" cannot get resource \\\"b\" cannot delete resource \"terraforms\" in API group \
                     \"infra.contrib.fluxcd.io\" in the namespace \"team\"";
        assert_eq!(
            advice(named).as_deref(),
            Some("you may not delete terraforms in namespace team: ask for the role sluice-edit")
        );
        let policy = "planapprovals.infra.sluice.dev \"a\" is forbidden: ValidatingAdmissionPolicy 'sluice-plan-approval' denied request: \
                      approver must be the requesting user, anna";
        assert_eq!(advice(policy), None);
        let quota = "planapprovals.infra.sluice.dev \"a\" is forbidden: exceeded quota: objects, requested: \
                     count/planapprovals.infra.sluice.dev=1, used: count/planapprovals.infra.sluice.dev=5, limited: \
                     count/planapprovals.infra.sluice.dev=5";
        assert!(!is_refused_create(policy) && !is_refused_create(quota));
        assert_eq!(advice(""), None);
    }
}
