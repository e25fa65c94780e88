//! The audit log of an API server and the roles of an account: compares the requests of the account with its permissions. Pure.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// The user name of a ServiceAccount begins with this; namespace and name follow.
const ACCOUNT: &str = "system:serviceaccount:";
const SECURITY_PAGE: &str = include_str!("../../docs/security.md");

/// A verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// `group/resource`, or `group/resource/subresource`; the core group is empty.
    pub resource: String,
    /// The verb.
    pub verb: String,
}

impl Permission {
    /// Returns a permission.
    #[must_use]
    pub fn new(resource: &str, verb: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            verb: verb.to_owned(),
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

/// A request in an audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The ServiceAccount that sent it, as `namespace:name`.
    pub sender: String,
    /// The ServiceAccount in whose name it was sent; otherwise the sender.
    pub account: String,
    /// What it requires.
    pub permission: Permission,
    /// Namespace and name of the object, as far as the request names them.
    pub object: String,
    /// Whether a role refused it.
    pub is_refused: bool,
}

/// Returns the requests of ServiceAccounts in a log.
///
/// # Errors
/// A line is not an event.
pub fn requests(log: &str) -> Result<Vec<Request>, serde_json::Error> {
    let lines = log.lines().filter(|line| !line.trim().is_empty());
    let events = lines.map(serde_json::from_str::<Value>);
    events
        .filter_map(|event| event.map(|event| request(&event)).transpose())
        .collect()
}

/// Returns the request of an event; `None` for one that names no resource, or of another user.
fn request(event: &Value) -> Option<Request> {
    let sender = event.pointer("/user/username")?.as_str()?.strip_prefix(ACCOUNT)?;
    let account = text(event, "/impersonatedUser/username").strip_prefix(ACCOUNT);
    let decision = event["annotations"]["authorization.k8s.io/decision"].as_str();
    let code = event.pointer("/responseStatus/code").and_then(Value::as_u64);
    let resource = event.pointer("/objectRef/resource")?.as_str()?;
    let parts = [
        text(event, "/objectRef/apiGroup"),
        resource,
        text(event, "/objectRef/subresource"),
    ];
    Some(Request {
        sender: sender.to_owned(),
        account: account.unwrap_or(sender).to_owned(),
        permission: Permission::new(parts.join("/").trim_end_matches('/'), text(event, "/verb")),
        object: format!(
            "{}/{}",
            text(event, "/objectRef/namespace"),
            text(event, "/objectRef/name")
        ),
        // An admission rule also answers 403, after a role has allowed the request.
        is_refused: decision == Some("forbid") || decision.is_none() && code == Some(403),
    })
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns what the requests show that an account needs.
#[must_use]
pub fn used(requests: &[Request], account: &str) -> BTreeSet<Permission> {
    let accepted = requests.iter().filter(|request| !request.is_refused);
    accepted
        .flat_map(|request| {
            let own = (request.account == account).then(|| request.permission.clone());
            let is_impersonator = request.sender == account && request.account != account;
            let impersonates = is_impersonator.then(|| Permission::new("/serviceaccounts", "impersonate"));
            own.into_iter().chain(impersonates)
        })
        .collect()
}

/// Returns what roles grant to an account, by the bindings that name it. `objects` are bindings and roles.
#[must_use]
pub fn granted(objects: &[Value], account: &str) -> BTreeSet<Permission> {
    let bindings = objects.iter().filter(|object| binds(object, account));
    let rules = bindings.flat_map(|binding| rules(objects, binding));
    rules.flat_map(of_rule).collect()
}

/// Returns the permissions of a table of groups, resources and verbs.
#[must_use]
pub fn permissions(rows: &[(&str, &str, &str)]) -> BTreeSet<Permission> {
    let each = |(group, resource, verbs): &(&str, &str, &str)| {
        let resource = format!("{group}/{resource}");
        let verbs: Vec<_> = verbs.split(' ').collect();
        let all = verbs.into_iter().map(|verb| Permission::new(&resource, verb));
        all.collect::<Vec<_>>()
    };
    rows.iter().flat_map(each).collect()
}

/// A permission that no scenario of an audit uses: group, resource, verbs with spaces between them, and the test that shows its use, which
/// docs/security.md names: `make test` fails if a test there does not exist, did not run or did not pass.
pub type Exception = (&'static str, &'static str, &'static str, &'static str);

const FLUX: &str = "source.toolkit.fluxcd.io";
const FOREIGN_SOURCES: &str =
    "control::foreign_sources::buckets_and_oci_repositories_are_read_in_any_served_version";
/// tf-controller reads Buckets, whose definition the audits do not install.
pub const READ_BUCKETS: Exception = (FLUX, "buckets", "get list watch", FOREIGN_SOURCES);
/// tf-controller reads `OCIRepositories`, whose definition the audits do not install.
pub const READ_OCI_REPOSITORIES: Exception = (FLUX, "ocirepositories", "get list watch", FOREIGN_SOURCES);
/// A run finds a lock that the CLI cannot release.
pub const FIND_STALE_LOCKS: Exception = (
    "coordination.k8s.io",
    "leases",
    "list",
    "run::locks::a_lock_left_by_init_is_released_by_the_next_run",
);
/// The test of a controller that reads its object again after a conflict.
pub const CONFLICTS: &str = "sluice_runtime::status::tests::a_conflict_rereads_and_retains_the_other_write";
/// source-controller reads its object again after a conflict.
pub const REREAD_SOURCES: Exception = (FLUX, "gitrepositories", "get", CONFLICTS);

/// Returns the permissions of exceptions.
#[must_use]
pub fn exceptions(rows: &[Exception]) -> BTreeSet<Permission> {
    let rows: Vec<_> = rows
        .iter()
        .map(|(group, resource, verbs, _)| (*group, *resource, *verbs))
        .collect();
    permissions(&rows)
}

/// Returns the tests of exceptions that docs/security.md does not name.
#[must_use]
pub fn unnamed_tests(rows: &[Exception]) -> Vec<&'static str> {
    let tests = rows.iter().map(|(.., test)| *test);
    tests
        .filter(|test| !SECURITY_PAGE.contains(&format!("`{test}`")))
        .collect()
}

/// Returns what is wrong with the roles of an account: permissions that it does not use, other than `unused`, and permissions of that table
/// that it does not have. `objects` are bindings and roles.
#[must_use]
pub fn faults(
    objects: &[Value],
    requests: &[Request],
    account: &str,
    unused: &BTreeSet<Permission>,
) -> Vec<String> {
    let (granted, used) = (granted(objects, account), used(requests, account));
    let superfluous = granted.difference(&used).filter(|one| !unused.contains(one));
    let superfluous = superfluous.map(|one| format!("{account} does not use {one}"));
    let outdated = unused.difference(&granted);
    let outdated = outdated.map(|one| format!("{account} does not have {one}"));
    superfluous.chain(outdated).collect()
}

/// Returns whether an object is a binding of this account.
fn binds(object: &Value, account: &str) -> bool {
    let is_binding = matches!(text(object, "/kind"), "RoleBinding" | "ClusterRoleBinding");
    let mut subjects = object["subjects"].as_array().into_iter().flatten();
    is_binding
        && subjects.any(|subject| {
            let name = format!("{}:{}", text(subject, "/namespace"), text(subject, "/name"));
            subject["kind"] == "ServiceAccount" && name == account
        })
}

/// Returns the rules of the role of a binding.
fn rules<'a>(objects: &'a [Value], binding: &Value) -> Vec<&'a Value> {
    let (kind, name) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
    let namespace = if kind == "Role" {
        text(binding, "/metadata/namespace")
    } else {
        ""
    };
    let mut roles = objects.iter().filter(|object| {
        text(object, "/kind") == kind
            && text(object, "/metadata/name") == name
            && text(object, "/metadata/namespace") == namespace
    });
    let role = roles.next().and_then(|role| role["rules"].as_array());
    role.into_iter().flatten().collect()
}

/// Returns each permission of a rule.
fn of_rule(rule: &Value) -> Vec<Permission> {
    let words = |field: &str| -> Vec<&str> {
        let words = rule[field].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).collect()
    };
    let (groups, resources, verbs) = (words("apiGroups"), words("resources"), words("verbs"));
    let names = groups.iter().flat_map(|group| {
        resources
            .iter()
            .map(move |resource| format!("{group}/{resource}"))
    });
    names
        .flat_map(|name| verbs.iter().map(move |verb| Permission::new(&name, verb)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CONTROLLER: &str = "sluice-system:tf-controller";

    fn event(verb: &str, resource: &Value, more: &Value) -> String {
        let mut event = json!({ "kind": "Event", "verb": verb, "objectRef": resource,
            "user": { "username": "system:serviceaccount:sluice-system:tf-controller" },
            "responseStatus": { "code": 200 }, "annotations": { "authorization.k8s.io/decision": "allow" } });
        let more = more.as_object().unwrap().clone();
        event.as_object_mut().unwrap().extend(more);
        event.to_string()
    }

    fn lines(permissions: &BTreeSet<Permission>) -> Vec<String> {
        permissions.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn requests_have_sender_account_permission_and_decision() {
        let secret = json!({ "resource": "secrets", "namespace": "team", "name": "vars" });
        let status =
            json!({ "apiGroup": "infra.sluice.dev", "resource": "terraformruns", "subresource": "status" });
        let log = [
            event(
                "get",
                &secret,
                &json!({ "impersonatedUser": { "username": "system:serviceaccount:team:own" } }),
            ),
            event("patch", &status, &json!({})),
            event(
                "list",
                &secret,
                &json!({ "annotations": { "authorization.k8s.io/decision": "forbid" } }),
            ),
            event("create", &secret, &json!({ "responseStatus": { "code": 403 } })),
            event(
                "watch",
                &secret,
                &json!({ "responseStatus": { "code": 403 }, "annotations": {} }),
            ),
            event("get", &secret, &json!({ "user": { "username": "admin" } })),
            event("get", &json!(null), &json!({})),
        ];
        let requests = requests(&log.join("\n")).unwrap();
        let text = |request: &Request| {
            let Request {
                sender,
                account,
                permission,
                object,
                is_refused,
            } = request;
            format!("{sender} as {account}: {permission} {object} {is_refused}")
        };
        assert_eq!(
            requests.iter().map(text).collect::<Vec<_>>(),
            [
                "sluice-system:tf-controller as team:own: get /secrets team/vars false",
                "sluice-system:tf-controller as sluice-system:tf-controller: patch infra.sluice.dev/terraformruns/status / false",
                "sluice-system:tf-controller as sluice-system:tf-controller: list /secrets team/vars true",
                "sluice-system:tf-controller as sluice-system:tf-controller: create /secrets team/vars false",
                "sluice-system:tf-controller as sluice-system:tf-controller: watch /secrets team/vars true",
            ]
        );
        assert_eq!(
            lines(&used(&requests, CONTROLLER)),
            [
                "create /secrets",
                "impersonate /serviceaccounts",
                "patch infra.sluice.dev/terraformruns/status"
            ]
        );
        assert_eq!(lines(&used(&requests, "team:own")), ["get /secrets"]);
        assert!(super::requests("no event").is_err());
    }

    #[test]
    fn an_account_has_the_permissions_of_the_roles_that_bindings_name() {
        let role = |kind: &str, namespace: &str, name: &str, resource: &str, verbs: &[&str]| {
            json!({ "kind": kind, "metadata": { "name": name, "namespace": namespace },
                "rules": [{ "apiGroups": ["", "apps"], "resources": [resource], "verbs": verbs }] })
        };
        let binding = |kind: &str, namespace: &str, role_kind: &str, role: &str, account: &str| {
            let (of, name) = account.split_once(':').unwrap();
            json!({ "kind": kind, "metadata": { "name": "b", "namespace": namespace },
                "roleRef": { "kind": role_kind, "name": role },
                "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": of }] })
        };
        let mut cluster_role = role("ClusterRole", "", "read", "pods", &["get", "list"]);
        cluster_role["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("namespace");
        let objects = [
            cluster_role,
            role("Role", "team", "lead", "leases", &["update"]),
            role("Role", "other", "lead", "secrets", &["delete"]),
            binding("ClusterRoleBinding", "", "ClusterRole", "read", CONTROLLER),
            binding("RoleBinding", "team", "Role", "lead", CONTROLLER),
            binding("RoleBinding", "other", "Role", "lead", "other:tf-controller"),
        ];
        assert_eq!(
            lines(&granted(&objects, CONTROLLER)),
            [
                "update /leases",
                "get /pods",
                "list /pods",
                "update apps/leases",
                "get apps/pods",
                "list apps/pods"
            ]
        );
    }

    #[test]
    fn an_exception_names_a_test_of_the_page() {
        let of = |test| [("infra.sluice.dev", "terraformruns", "get list", test)];
        let table = exceptions(&of("none"));
        assert_eq!(
            lines(&table),
            [
                "get infra.sluice.dev/terraformruns",
                "list infra.sluice.dev/terraformruns"
            ]
        );
        assert_eq!(unnamed_tests(&of("node::audit::none")), ["node::audit::none"]);
        let known = "node::audit::controllers_and_runs_use_every_verb_of_their_roles";
        assert!(unnamed_tests(&of(known)).is_empty());
    }

    #[test]
    fn a_role_has_a_fault_for_each_unused_verb_and_each_outdated_row() {
        let role = json!({ "kind": "ClusterRole", "metadata": { "name": "own" },
            "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"] }] });
        let binding = json!({ "kind": "ClusterRoleBinding", "metadata": { "name": "own" },
            "roleRef": { "kind": "ClusterRole", "name": "own" },
            "subjects": [{ "kind": "ServiceAccount", "name": "tf-controller", "namespace": "sluice-system" }] });
        let requests = requests(&event("get", &json!({ "resource": "pods" }), &json!({}))).unwrap();
        let table = permissions(&[("", "pods", "list"), ("", "secrets", "get")]);
        assert_eq!(
            faults(&[role, binding], &requests, CONTROLLER, &table),
            [
                "sluice-system:tf-controller does not use watch /pods",
                "sluice-system:tf-controller does not have get /secrets"
            ]
        );
    }
}
