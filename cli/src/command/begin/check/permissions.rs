//! Whether the user may install: what the API server says to a `SelfSubjectAccessReview` of each kind.

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

use super::finding::{Finding, Outcome};
use super::{CONCURRENCY, api_error};
use crate::CliError;
use crate::cluster::Cluster;

/// The namespace of the overlays without Flux.
const NAMESPACE: &str = "sluice-system";
/// What an installation writes in the whole cluster: group and resource.
const CLUSTER_WIDE: [(&str, &str); 4] = [
    ("", "namespaces"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
];
/// What an installation writes in its namespace.
const NAMESPACED: [(&str, &str); 7] = [
    ("", "serviceaccounts"),
    ("", "services"),
    ("", "resourcequotas"),
    ("apps", "deployments"),
    ("networking.k8s.io", "networkpolicies"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
];
/// The verbs of a server-side apply.
const VERBS: [&str; 2] = ["create", "patch"];

/// Asks who the user is, and what the user may write.
pub(super) async fn findings(cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<Finding>, CliError> {
    let namespace = namespace.unwrap_or(NAMESPACE);
    let answers: Vec<(ResourceAttributes, bool)> = stream::iter(questions(namespace))
        .map(|question| ask(cluster, question))
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    Ok(vec![who_am_i(cluster).await?, of_answers(&answers, namespace)])
}

async fn who_am_i(cluster: &Cluster) -> Result<Finding, CliError> {
    let reviews: Api<SelfSubjectReview> = Api::all(cluster.client());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .map_err(|source| api_error("create", "selfsubjectreviews", source))?;
    let user = review
        .status
        .and_then(|status| status.user_info)
        .unwrap_or_default();
    let name = user.username.unwrap_or_default();
    let groups = user.groups.unwrap_or_default();
    let detail = if groups.is_empty() {
        name
    } else {
        format!("{name} of {}", groups.join(", "))
    };
    Ok(Finding::new("user", Outcome::Passed, detail))
}

/// Returns one question for each kind and verb.
fn questions(namespace: &str) -> Vec<ResourceAttributes> {
    let kinds = CLUSTER_WIDE.iter().map(|kind| (kind, None));
    let kinds = kinds.chain(NAMESPACED.iter().map(|kind| (kind, Some(namespace.to_owned()))));
    let mut questions = Vec::new();
    for ((group, resource), namespace) in kinds {
        for verb in VERBS {
            questions.push(ResourceAttributes {
                group: Some((*group).to_owned()),
                resource: Some((*resource).to_owned()),
                verb: Some(verb.to_owned()),
                namespace: namespace.clone(),
                ..ResourceAttributes::default()
            });
        }
    }
    questions
}

async fn ask(
    cluster: &Cluster,
    question: ResourceAttributes,
) -> Result<(ResourceAttributes, bool), CliError> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(question.clone()),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = reviews
        .create(&PostParams::default(), &review)
        .await
        .map_err(|source| api_error("create", "selfsubjectaccessreviews", source))?;
    let is_allowed = answer.status.is_some_and(|status| status.allowed);
    Ok((question, is_allowed))
}

/// Names what the user may not write.
fn of_answers(answers: &[(ResourceAttributes, bool)], namespace: &str) -> Finding {
    let refused: BTreeSet<&str> = answers
        .iter()
        .filter(|(_, is_allowed)| !is_allowed)
        .filter_map(|(question, _)| question.resource.as_deref())
        .collect();
    if refused.is_empty() {
        let detail = format!("may install into {namespace}");
        return Finding::new("permissions", Outcome::Passed, detail);
    }
    let names = refused.into_iter().collect::<Vec<_>>().join(", ");
    Finding::new("permissions", Outcome::Failed, format!("may not write {names}"))
        .next("ask an administrator of the cluster for the installation")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_named_once() {
        let answers: Vec<_> = questions("team")
            .into_iter()
            .map(|question| {
                let is_allowed = question.resource.as_deref() != Some("clusterroles");
                (question, is_allowed)
            })
            .collect();
        assert_eq!(of_answers(&answers, "team").detail, "may not write clusterroles");
        let all: Vec<_> = answers
            .into_iter()
            .map(|(question, _)| (question, true))
            .collect();
        assert_eq!(of_answers(&all, "team").result, Outcome::Passed);
    }

    #[test]
    fn only_namespaced_kinds_are_asked_for_in_a_namespace() {
        for question in questions("team") {
            let resource = question.resource.as_deref().unwrap();
            let is_wide = CLUSTER_WIDE.iter().any(|(_, wide)| *wide == resource);
            assert_eq!(question.namespace.is_none(), is_wide, "{resource}");
        }
    }
}
