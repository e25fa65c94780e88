//! The requests and file reads that a hostile module attempts in the pod of its run, and their expected results.
//!
//! `$NAME` is a variable of the pod: its run has the name of its Job.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{ACCOUNT, OTHER, TENANT};
use crate::install::NAMESPACE;

const CORE: &str = "/api/v1/namespaces";
const RUNS: &str = "/apis/infra.sluice.dev/v1alpha1/namespaces";
const STACKS: &str = "/apis/infra.contrib.fluxcd.io/v1alpha2/namespaces";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
/// No pod has it.
const OTHER_UID: &str = "00000000-0000-4000-8000-000000000000";
/// A Secret with a token of the own account, which an administrator created.
pub(super) const OWN_TOKEN: &str = "own-token";
/// Files of the node, in its folder on the machine: keys of the cluster, access to the container runtime, volumes of other pods.
pub(super) const NODE_FILES: [&str; 4] = ["accounts.key", "kubelet.conf", "containerd.sock", "kubelet/pods"];

/// The beginning of a result, and a text that it contains.
type Expected = (&'static str, &'static str);

/// No role permits it.
const NO_ROLE: Expected = ("403 ", " cannot ");
/// The admission policy of the status of runs rejects it.
const NOT_ITS_RUN: Expected = ("403 ", "only by a pod of its Job");
const NOT_FOR_ITSELF: Expected = ("403 ", "only for itself");
/// That of Secrets with tokens rejects it.
const NO_TOKEN: Expected = ("403 ", "needs the right to create its tokens");
const ABSENT: Expected = ("failed ", "no such file or directory");

/// The names of the attacked objects.
pub(super) struct Targets {
    /// All Secrets of the other namespace: states, plans, keys.
    pub(super) secrets: Vec<String>,
    /// A run of the other namespace.
    pub(super) run: String,
    /// A run of another stack of the own namespace.
    pub(super) neighbour_run: String,
    /// The Secret with the plan of that run.
    pub(super) neighbour_plan: String,
    /// That Secret with other content.
    pub(super) forged_plan: Value,
    /// The folder of the node on the machine.
    pub(super) folder: PathBuf,
}

/// One attempt.
pub(super) struct Attempt {
    /// Its key in the report.
    pub(super) name: String,
    /// What the program reads.
    order: Value,
    expected: Expected,
}

impl Attempt {
    fn request(method: &str, url: &str, expected: Expected) -> Self {
        Self {
            name: format!("{method} {url}"),
            order: json!({ "method": method, "url": url }),
            expected,
        }
    }

    fn with_body(mut self, body: &Value) -> Self {
        self.order["body"] = body.clone();
        self.name = format!("{} {body}", self.name);
        self
    }

    fn impersonating(mut self, user: &str) -> Self {
        self.order["as"] = json!(user);
        self.name = format!("{} as {user}", self.name);
        self
    }

    fn anonymous(mut self) -> Self {
        self.order["anonymous"] = json!(true);
        self.name.push_str(" anonymously");
        self
    }

    /// Creates the Secret again that an earlier attempt has deleted. The name of the attempt is without the body, which is long.
    fn forgery(url: &str, secret: &Value) -> Self {
        Self {
            name: format!("POST {url} a forged plan"),
            order: json!({ "method": "POST", "url": url, "body": secret }),
            expected: ("201 ", "\"Secret\""),
        }
    }

    fn read(path: &str, expected: Expected) -> Self {
        Self {
            name: format!("read {path}"),
            order: json!({ "read": path }),
            expected,
        }
    }

    fn write(path: &str, expected: Expected) -> Self {
        Self {
            name: format!("write {path}"),
            order: json!({ "write": path }),
            expected,
        }
    }

    /// Returns why a result is not the expected one.
    pub(super) fn fault(&self, result: Option<&str>) -> Option<String> {
        let (start, text) = self.expected;
        match result {
            Some(result) if result.starts_with(start) && result.contains(text) => None,
            result => Some(format!("{}: expected {start}…{text}, got {result:?}", self.name)),
        }
    }
}

/// Returns the file that the program reads.
pub(super) fn file(attempts: &[Attempt]) -> String {
    let entry = |attempt: &Attempt| {
        let mut entry = attempt.order.clone();
        entry["name"] = json!(attempt.name);
        entry
    };
    Value::Array(attempts.iter().map(entry).collect()).to_string()
}

/// Returns the request for the rules of the own account in a namespace.
pub(super) fn rules(namespace: &str) -> Attempt {
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": { "namespace": namespace } });
    Attempt::request("POST", REVIEWS, ("201 ", "resourceRules")).with_body(&review)
}

/// Returns all attempts. Those that must succeed show that the program can do what it tries.
pub(super) fn all(targets: &Targets) -> Vec<Attempt> {
    [
        permitted(targets),
        reads(targets),
        writes(targets),
        approvals(targets),
        identities(),
        statuses(targets),
        node(),
        files(targets),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What the account of runs may do: stacks of a namespace can read and replace each other's plans and states (docs/security.md).
fn permitted(targets: &Targets) -> Vec<Attempt> {
    let own_run = format!("{RUNS}/{TENANT}/terraformruns/$JOB_NAME");
    let secrets = format!("{CORE}/{TENANT}/secrets");
    let plan = format!("{secrets}/{}", targets.neighbour_plan);
    let own_claim = json!({ "status": { "claim": { "podUid": "$POD_UID" } } });
    // The API server ignores it: `check_objects` checks that.
    let other_stack = json!({ "spec": { "terraform": { "name": "neighbour" } } });
    let status = format!("{own_run}/status");
    let run: Expected = ("200 ", "\"TerraformRun\"");
    vec![
        Attempt::request("GET", &secrets, ("200 ", "SecretList")),
        Attempt::request("GET", &plan, ("200 ", "\"Secret\"")),
        Attempt::request("PATCH", &plan, ("422 ", "immutable"))
            .with_body(&json!({ "data": { "planted": "eWVz" } })),
        Attempt::request("DELETE", &plan, ("200 ", "Success")),
        Attempt::forgery(&secrets, &targets.forged_plan),
        Attempt::request("GET", &own_run, run),
        Attempt::request("PATCH", &status, run).with_body(&own_claim),
        Attempt::request("PATCH", &status, run).with_body(&other_stack),
        rules(OTHER),
        rules(NAMESPACE),
        rules("kube-system"),
    ]
}

/// Reads in other namespaces and in the whole cluster.
fn reads(targets: &Targets) -> Vec<Attempt> {
    let secrets = targets.secrets.iter();
    let secrets = secrets.map(|name| format!("{CORE}/{OTHER}/secrets/{name}"));
    let others = [
        format!("{CORE}/{OTHER}/secrets"),
        format!("{CORE}/{OTHER}/configmaps"),
        format!("{CORE}/{OTHER}/pods"),
        format!("{CORE}/{NAMESPACE}/secrets"),
        format!("{CORE}/kube-system/secrets"),
        format!("{RUNS}/{OTHER}/terraformruns"),
        format!("{RUNS}/{OTHER}/terraformruns/{}", targets.run),
        format!("{STACKS}/{OTHER}/terraforms/waiting"),
        format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"),
        "/api/v1/secrets".to_owned(),
        "/api/v1/configmaps".to_owned(),
        "/api/v1/nodes".to_owned(),
        "/api/v1/nodes/node-1/proxy/pods".to_owned(),
        "/apis/infra.sluice.dev/v1alpha1/terraformruns".to_owned(),
    ];
    let urls = secrets.chain(others);
    urls.map(|url| Attempt::request("GET", &url, NO_ROLE)).collect()
}

/// Returns a Secret into which Kubernetes puts a token of an account.
pub(super) fn token_secret(name: &str, account: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": { "name": name, "namespace": TENANT, "annotations": token_of(account) } })
}

fn token_of(account: &str) -> Value {
    json!({ "kubernetes.io/service-account.name": account })
}

/// New objects, and changes of those of others. A request that a role permitted would be answered with another status than 403.
fn writes(targets: &Targets) -> Vec<Attempt> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces";
    let created = [
        format!("{CORE}/{OTHER}/pods"),
        format!("{CORE}/{TENANT}/pods"),
        format!("/apis/batch/v1/namespaces/{OTHER}/jobs"),
        format!("/apis/batch/v1/namespaces/{TENANT}/jobs"),
        format!("{CORE}/{OTHER}/secrets"),
        format!("{CORE}/{TENANT}/serviceaccounts"),
        format!("{rbac}/{TENANT}/rolebindings"),
        format!("{RUNS}/{TENANT}/terraformruns"),
        format!("{RUNS}/{TENANT}/planapprovals"),
        format!("{STACKS}/{TENANT}/terraforms"),
    ];
    let created = created.iter();
    let created = created.map(|url| Attempt::request("POST", url, NO_ROLE).with_body(&json!({})));
    let deleted = [
        format!("{CORE}/{OTHER}/secrets/tfstate-default-applied"),
        format!("{RUNS}/{TENANT}/terraformruns/$JOB_NAME"),
        format!("{RUNS}/{TENANT}/terraformruns/{}", targets.neighbour_run),
        format!("{STACKS}/{TENANT}/terraforms/neighbour"),
    ];
    let deleted = deleted.iter().map(|url| Attempt::request("DELETE", url, NO_ROLE));
    let labels = json!({ "metadata": { "labels": { "planted": "yes" } } });
    let patched = [
        format!("{CORE}/{OTHER}/secrets/tfstate-default-applied"),
        format!("{RUNS}/{TENANT}/terraformruns/$JOB_NAME"),
        format!("/api/v1/namespaces/{TENANT}"),
    ];
    let patched = patched.iter();
    let patched = patched.map(|url| Attempt::request("PATCH", url, NO_ROLE).with_body(&labels));
    created.chain(deleted).chain(patched).collect()
}

/// Approvals of plans, and a status that says that they were applied.
fn approvals(targets: &Targets) -> Vec<Attempt> {
    let auto = json!({ "spec": { "approvePlan": "auto" } });
    let approved = [(TENANT, "attack"), (TENANT, "neighbour"), (OTHER, "waiting")];
    let approved = approved.map(|(namespace, stack)| {
        let url = format!("{STACKS}/{namespace}/terraforms/{stack}");
        Attempt::request("PATCH", &url, NO_ROLE).with_body(&auto)
    });
    let applied = json!({ "status": { "lastAppliedRevision": "main@sha1:0", "plan": { "pending": "" } } });
    let statuses = ["attack", "neighbour"].map(|stack| {
        let url = format!("{STACKS}/{TENANT}/terraforms/{stack}/status");
        Attempt::request("PATCH", &url, NO_ROLE).with_body(&applied)
    });
    let of_other = format!("{RUNS}/{OTHER}/terraformruns/{}/status", targets.run);
    let of_other =
        Attempt::request("PATCH", &of_other, NO_ROLE).with_body(&json!({ "status": { "applied": true } }));
    approved.into_iter().chain(statuses).chain([of_other]).collect()
}

/// The identity of the controller, and of other accounts.
fn identities() -> Vec<Attempt> {
    let controller = format!("system:serviceaccount:{NAMESPACE}:tf-controller");
    let neighbour = format!("system:serviceaccount:{TENANT}:neighbour");
    let as_others = [controller.as_str(), &neighbour, "admin"].map(|user| {
        Attempt::request("GET", &format!("{CORE}/{NAMESPACE}/secrets"), NO_ROLE).impersonating(user)
    });
    let tokens = [
        (NAMESPACE, "tf-controller"),
        (OTHER, ACCOUNT),
        (TENANT, "neighbour"),
    ];
    let tokens = tokens.map(|(namespace, account)| {
        let url = format!("{CORE}/{namespace}/serviceaccounts/{account}/token");
        Attempt::request("POST", &url, NO_ROLE).with_body(&json!({}))
    });
    let secrets = format!("{CORE}/{TENANT}/secrets");
    let token_secrets = ["neighbour", ACCOUNT].map(|account| {
        let secret = token_secret(&format!("token-of-{account}"), account);
        Attempt::request("POST", &secrets, NO_TOKEN).with_body(&secret)
    });
    let other_account = json!({ "metadata": { "annotations": token_of("neighbour") } });
    let changed =
        Attempt::request("PATCH", &format!("{secrets}/{OWN_TOKEN}"), NO_TOKEN).with_body(&other_account);
    let all = as_others.into_iter().chain(tokens);
    all.chain(token_secrets).chain([changed]).collect()
}

/// The status of runs, which the role of runs may patch: the admission policy binds it to the pod of the run.
fn statuses(targets: &Targets) -> Vec<Attempt> {
    let neighbour = format!("{RUNS}/{TENANT}/terraformruns/{}/status", targets.neighbour_run);
    let own = format!("{RUNS}/{TENANT}/terraformruns/$JOB_NAME/status");
    let failed = json!({ "status": { "phase": "Failed" } });
    let planned = json!({ "status": { "planDigest": "sha256:0" } });
    let other_pod = json!({ "status": { "claim": { "podUid": OTHER_UID } } });
    let no_claim = json!({ "status": { "claim": null } });
    vec![
        Attempt::request("PATCH", &neighbour, NOT_ITS_RUN).with_body(&failed),
        Attempt::request("PATCH", &neighbour, NOT_ITS_RUN).with_body(&planned),
        Attempt::request("PATCH", &own, NOT_FOR_ITSELF).with_body(&other_pod),
        Attempt::request("PATCH", &own, NOT_FOR_ITSELF).with_body(&no_claim),
    ]
}

/// The kubelet. It answers: 401 without a token, 403 with that of the pod.
fn node() -> Vec<Attempt> {
    let forbidden = [
        "pods",
        "metrics",
        "logs/",
        "containerLogs/sluice-system/none/manager",
    ]
    .map(|path| {
        let url = format!("https://$NODE:10250/{path}");
        Attempt::request("GET", &url, ("403 ", "system:serviceaccount:team-a:tf-runner"))
    });
    let others = [
        Attempt::request("GET", "https://$NODE:10250/pods", ("401 ", "")).anonymous(),
        Attempt::request("GET", "http://$NODE:10255/pods", ("failed ", "refused")),
    ];
    forbidden.into_iter().chain(others).collect()
}

fn files(targets: &Targets) -> Vec<Attempt> {
    let of_node = NODE_FILES.map(|name| {
        let path = targets.folder.join(name).display().to_string();
        [
            Attempt::read(&path, ABSENT),
            // Through the root directory of the first process, which is that of the pod: that of the node would be forbidden, not empty.
            Attempt::read(&format!("/proc/1/root{path}"), ABSENT),
        ]
    });
    let absent = ["/var/lib/kubelet", "/run/containerd", "/etc/kubernetes", "/data"];
    let absent = absent.map(|path| Attempt::read(path, ABSENT));
    let own = [
        Attempt::read(
            "/var/run/secrets/kubernetes.io/serviceaccount/namespace",
            ("done ", TENANT),
        ),
        Attempt::write("/tmp/planted", ("done ", "")),
        Attempt::write("/usr/local/bin/planted", ("failed ", "")),
        Attempt::write("/planted", ("failed ", "")),
    ];
    of_node.into_iter().flatten().chain(absent).chain(own).collect()
}
