//! The Scale of a custom resource: the view of autoscaling/v1 that `kubectl scale` and autoscalers read and write, as
//! apiextensions-apiserver's `ScaleREST` and `ValidateScaleSpec`. Pure.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceSubresourceScale;
use serde_json::{Map, Value, json};

use crate::cause::Cause;
use crate::meta;

/// Kind of a Scale.
pub(crate) const SCALE_KIND: &str = "Scale";
/// `apiVersion` of a Scale.
pub(crate) const SCALE_API_VERSION: &str = "autoscaling/v1";

/// The paths of the `scale` subresource of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// Path of the desired number of replicas.
    spec_replicas: String,
    /// Path of the present number of replicas.
    status_replicas: String,
    /// Path of the label selector as text.
    label_selector: Option<String>,
}

impl From<&CustomResourceSubresourceScale> for ScalePaths {
    fn from(scale: &CustomResourceSubresourceScale) -> Self {
        Self {
            spec_replicas: scale.spec_replicas_path.clone(),
            status_replicas: scale.status_replicas_path.clone(),
            label_selector: scale.label_selector_path.clone().filter(|path| !path.is_empty()),
        }
    }
}

impl ScalePaths {
    /// Returns the path of the desired number of replicas, as the definition has it.
    pub(crate) fn spec_replicas(&self) -> &str {
        &self.spec_replicas
    }

    /// Returns the Scale of an object, and whether the object has a desired number of replicas. The error is a field of another type.
    pub(crate) fn scale_of(&self, object: &Value) -> Result<(Value, bool), String> {
        let wanted = number(object, &self.spec_replicas)?;
        let present = number(object, &self.status_replicas)?.unwrap_or(0);
        let mut metadata = json!({});
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(text) = object["metadata"][field].as_str() {
                metadata[field] = text.into();
            }
        }
        let mut scale = json!({
            "kind": SCALE_KIND, "apiVersion": SCALE_API_VERSION, "metadata": metadata, "spec": {}, "status": { "replicas": present },
        });
        // As the Go type, a Scale omits zero in its spec only.
        if let Some(wanted) = wanted.filter(|wanted| *wanted != 0) {
            scale["spec"]["replicas"] = wanted.into();
        }
        let selector = self.selector(object)?.filter(|selector| !selector.is_empty());
        if let Some(selector) = selector {
            scale["status"]["selector"] = selector.into();
        }
        Ok((scale, wanted.is_some()))
    }

    /// Sets the desired number of replicas. The error is a parent of the field that is not a map.
    pub(crate) fn set_replicas(&self, object: &mut Value, replicas: i32) -> Result<(), String> {
        let fields = fields(&self.spec_replicas);
        let mut value = object;
        for (at, field) in fields.iter().enumerate() {
            let Value::Object(map) = value else {
                return Err(format!(
                    "value cannot be set because .{} is not a map[string]interface{{}}",
                    fields[..at].join(".")
                ));
            };
            value = map
                .entry((*field).to_owned())
                .or_insert_with(|| Value::Object(Map::new()));
        }
        *value = replicas.into();
        Ok(())
    }

    /// Validates what the paths of an object point to.
    pub(crate) fn validate(&self, object: &Value) -> Vec<Cause> {
        let numbers = [&self.spec_replicas, &self.status_replicas].into_iter();
        let mut causes: Vec<Cause> = numbers
            .filter_map(|path| validate_number(path, number(object, path)))
            .collect();
        if let (Err(detail), Some(path)) = (self.selector(object), &self.label_selector) {
            causes.push(Cause::invalid(path, "", &detail));
        }
        causes
    }

    fn selector<'a>(&self, object: &'a Value) -> Result<Option<&'a str>, String> {
        let Some(path) = &self.label_selector else {
            return Ok(None);
        };
        match value_at(object, path)? {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(other) => Err(type_error(&fields(path), other, "string")),
        }
    }
}

fn validate_number(path: &str, found: Result<Option<i64>, String>) -> Option<Cause> {
    let invalid = |value: i64, detail: &str| Some(Cause::invalid_json(path, value, detail));
    match found {
        Err(detail) => invalid(0, &detail),
        Ok(Some(number)) if number < 0 => invalid(number, "should be a non-negative integer"),
        Ok(Some(number)) if number > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            invalid(number, &detail)
        }
        Ok(_) => None,
    }
}

fn number(object: &Value, path: &str) -> Result<Option<i64>, String> {
    let Some(value) = value_at(object, path)? else {
        return Ok(None);
    };
    let number = value.as_i64();
    number
        .map(Some)
        .ok_or_else(|| type_error(&fields(path), value, "int64"))
}

/// Returns the value at a path; `None` if there is none. The error is a parent that is not a map.
fn value_at<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let fields = fields(path);
    let mut value = object;
    for (at, field) in fields.iter().enumerate() {
        match value {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(*field) {
                Some(next) => value = next,
                None => return Ok(None),
            },
            other => return Err(type_error(&fields[..=at], other, "map[string]interface{}")),
        }
    }
    Ok(Some(value))
}

fn fields(path: &str) -> Vec<&str> {
    path.strip_prefix('.').unwrap_or(path).split('.').collect()
}

/// Returns the message of apimachinery's accessors.
fn type_error(fields: &[&str], value: &Value, expected: &str) -> String {
    let (shown, found) = match value {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Number(number) if number.is_i64() => (number.to_string(), "int64"),
        Value::Number(number) => (number.to_string(), "float64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(_) => (value.to_string(), "[]interface {}"),
        Value::Object(_) => (value.to_string(), "map[string]interface {}"),
    };
    format!(
        ".{} accessor error: {shown} is of the type {found}, expected {expected}",
        fields.join(".")
    )
}

/// Returns the desired number of replicas of a Scale. The error is that of Go's decoder.
pub(crate) fn desired_replicas(scale: &Value) -> Result<i32, String> {
    let value = &scale["spec"]["replicas"];
    let type_ = match value {
        Value::Null => return Ok(0),
        Value::Number(number) => match number.as_i64().and_then(|number| i32::try_from(number).ok()) {
            Some(replicas) => return Ok(replicas),
            None => format!("number {number}"),
        },
        Value::String(_) => "string".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    Err(format!(
        "json: cannot unmarshal {type_} into Go struct field ScaleSpec.spec.replicas of type int32"
    ))
}

/// Returns uid and resourceVersion of a Scale: preconditions of a write.
pub(crate) fn preconditions(scale: &Value) -> [(&'static str, &str); 2] {
    ["uid", "resourceVersion"].map(|field| (field, meta::text(scale, field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> ScalePaths {
        ScalePaths {
            spec_replicas: ".spec.pool.size".into(),
            status_replicas: ".status.size".into(),
            label_selector: Some(".status.selector".into()),
        }
    }

    #[test]
    fn a_scale_shows_what_the_paths_point_to() {
        let object = json!({
            "metadata": {"name": "a", "uid": "u", "labels": {"k": "v"}}, "spec": {"pool": {"size": 3}},
            "status": {"size": 2, "selector": "k=v"},
        });
        let expected = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a", "uid": "u"}, "spec": {"replicas": 3},
            "status": {"replicas": 2, "selector": "k=v"},
        });
        assert_eq!(paths().scale_of(&object), Ok((expected, true)));
        let (empty, has_replicas) = paths().scale_of(&json!({"metadata": {}})).unwrap();
        assert_eq!(
            (&empty["spec"], &empty["status"]),
            (&json!({}), &json!({"replicas": 0}))
        );
        assert!(!has_replicas);
        let (zero, has_replicas) = paths().scale_of(&json!({"spec": {"pool": {"size": 0}}})).unwrap();
        assert!(zero["spec"]["replicas"].is_null() && has_replicas);
        for (object, reason) in [
            (
                json!({"spec": {"pool": {"size": "x"}}}),
                ".spec.pool.size accessor error: x is of the type string, expected int64",
            ),
            (
                json!({"spec": {"pool": 1}}),
                ".spec.pool.size accessor error: 1 is of the type int64, expected map[string]interface{}",
            ),
            (
                json!({"status": {"selector": {}}}),
                ".status.selector accessor error: {} is of the type map[string]interface {}, expected string",
            ),
        ] {
            assert_eq!(paths().scale_of(&object), Err(reason.to_owned()));
            let causes = paths().validate(&object);
            assert!(
                matches!(causes.as_slice(), [one] if one.message.ends_with(reason)),
                "{causes:?}"
            );
        }
    }

    #[test]
    fn replicas_are_set_at_their_path() {
        let set = |mut object: Value| paths().set_replicas(&mut object, 4).map(|()| object);
        assert_eq!(set(json!({})), Ok(json!({"spec": {"pool": {"size": 4}}})));
        assert_eq!(
            set(json!({"spec": {"pool": {"size": 1, "other": 2}}})),
            Ok(json!({"spec": {"pool": {"size": 4, "other": 2}}}))
        );
        let refused = "value cannot be set because .spec.pool is not a map[string]interface{}";
        assert_eq!(set(json!({"spec": {"pool": 1}})), Err(refused.to_owned()));
    }

    #[test]
    fn replicas_are_integers_of_32_bits_that_are_not_negative() {
        let message = |size: i64| {
            let causes = paths().validate(&json!({"spec": {"pool": {"size": size}}}));
            causes
                .into_iter()
                .map(|cause| (cause.field, cause.message))
                .next()
        };
        assert_eq!(message(0), None);
        assert_eq!(message(i64::from(i32::MAX)), None);
        let at = |text: &str| Some((".spec.pool.size".to_owned(), text.to_owned()));
        assert_eq!(
            message(-1),
            at("Invalid value: -1: should be a non-negative integer")
        );
        assert_eq!(
            message(1 << 31),
            at("Invalid value: 2147483648: should be less than or equal to 2147483647")
        );
        assert_eq!(desired_replicas(&json!({"spec": {"replicas": 3}})), Ok(3));
        assert_eq!(desired_replicas(&json!({})), Ok(0));
        for wrong in [json!("3"), json!(1_i64 << 31), json!(1.5), json!([]), json!(true)] {
            assert!(
                desired_replicas(&json!({"spec": {"replicas": wrong}})).is_err(),
                "{wrong}"
            );
        }
    }
}
