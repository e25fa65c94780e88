//! Fields that name the requesting user: what an admission policy of a cluster compares with `request.userInfo`.

use std::sync::Arc;

use serde_json::Value;

use super::request::ObjectRequest;
use crate::cause::Cause;
use crate::meta;
use crate::rbac::User;
use crate::resource::Resource;
use crate::status_error::StatusError;

/// Fields of a custom kind that can name only the requesting user and its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFields {
    /// API group of the kind.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name of the field in `spec` with the name of the user.
    pub user: String,
    /// Name of the field in `spec` with groups of the user.
    pub groups: String,
}

/// The check of one write.
#[derive(Debug)]
pub(super) struct UserFieldsCheck {
    fields: UserFields,
    user: User,
    resource: Arc<Resource>,
}

impl UserFieldsCheck {
    /// Returns the check of a request; `None` if its kind has no such fields.
    pub(super) fn of(request: &ObjectRequest) -> Option<Self> {
        let resource = &request.resource;
        let mut all = request.api.user_fields.iter();
        let fields = all.find(|fields| fields.group == resource.group && fields.kind == resource.kind)?;
        Some(Self {
            fields: fields.clone(),
            user: request.requester.user().into_owned(),
            resource: resource.clone(),
        })
    }

    /// Checks the fields that a write sets or changes: another user may write the rest of the object.
    pub(super) fn check(&self, old: Option<&Value>, new: &Value) -> Result<(), StatusError> {
        let is_changed = |field: &str| old.is_none_or(|old| old["spec"][field] != new["spec"][field]);
        let (user, groups) = (&*self.fields.user, &*self.fields.groups);
        let mut causes = Vec::new();
        if is_changed(user) && new["spec"][user] != self.user.name.as_str() {
            let name = new["spec"][user].as_str().unwrap_or("");
            let detail = format!("{user} must be the requesting user, {}", self.user.name);
            causes.push(Cause::invalid(format!("spec.{user}"), name, &detail));
        }
        let is_foreign = |group: &&str| self.user.groups.iter().all(|own| own != group);
        let foreign = meta::strings(&new["spec"][groups]).into_iter().find(is_foreign);
        if let Some(group) = foreign.filter(|_| is_changed(groups)) {
            let own = self.user.groups.join(", ");
            let detail = format!("{groups} must be groups of the requesting user: {own}");
            causes.push(Cause::invalid(format!("spec.{groups}"), group, &detail));
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(StatusError::invalid(&self.resource, meta::name(new), &causes))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Registry;

    #[test]
    fn a_user_writes_only_its_own_name_and_groups() {
        let check = UserFieldsCheck {
            fields: UserFields {
                group: String::new(),
                kind: "ConfigMap".to_owned(),
                user: "approver".to_owned(),
                groups: "groups".to_owned(),
            },
            user: User {
                name: "jane".to_owned(),
                groups: vec!["dev".to_owned()],
                ..User::default()
            },
            resource: Registry::builtin().by_kind("", "ConfigMap").unwrap().clone(),
        };
        let object = |name: &str, groups: &[&str]| json!({"metadata": {"name": "a"}, "spec": {"approver": name, "groups": groups}});
        assert_eq!(check.check(None, &object("jane", &["dev"])), Ok(()));
        assert_eq!(check.check(None, &object("jane", &[])), Ok(()));
        for forged in [
            object("admin", &[]),
            object("jane", &["dev", "ops"]),
            object("", &[]),
        ] {
            let error = check.check(None, &forged).unwrap_err();
            assert!(error.message().contains("the requesting user"), "{error:?}");
        }
        let mut status = object("admin", &["ops"]);
        status["status"]["accepted"] = true.into();
        let old = object("admin", &["ops"]);
        assert_eq!(
            check.check(Some(&old), &status),
            Ok(()),
            "the author was another user"
        );
        assert!(check.check(Some(&old), &object("john", &["ops"])).is_err());
    }
}
