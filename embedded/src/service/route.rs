//! Routing: parses the paths of the Kubernetes API. Pure.

use percent_encoding::percent_decode_str;

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/healthz`, `/livez` or `/readyz`, by name.
    Health(&'static str),
    /// `/` or `/index.html`.
    RootPaths,
    /// `/version`.
    Version,
    /// `/api`.
    ApiVersions,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1`, `/apis/{group}/{version}`.
    Resources { group: String, version: String },
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`.
    OpenApiIndex,
    /// `/openapi/v3/{path of a group version}`.
    OpenApiDocument { group: String, version: String },
    /// A collection, an object or a subresource.
    Objects(ObjectPath),
    /// Any other path.
    Unknown,
}

/// The path of a collection, an object, or a subresource of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectPath {
    /// API group, empty for core.
    pub(crate) group: String,
    /// Version.
    pub(crate) version: String,
    /// Resource name.
    pub(crate) plural: String,
    /// Empty: all namespaces, or cluster scope.
    pub(crate) namespace: String,
    /// Empty: the collection.
    pub(crate) name: String,
    /// Empty: the object itself.
    pub(crate) subresource: String,
}

/// Parses a path.
pub(crate) fn parse_path(path: &str) -> Target {
    let parts: Vec<String> = path
        .trim_matches('/')
        .split('/')
        .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let resources = |group: &str, version: &str| Target::Resources {
        group: group.into(),
        version: version.into(),
    };
    let openapi = |group: &str, version: &str| Target::OpenApiDocument {
        group: group.into(),
        version: version.into(),
    };
    match parts.as_slice() {
        ["healthz", ..] => Target::Health("healthz"),
        ["livez", ..] => Target::Health("livez"),
        ["readyz", ..] => Target::Health("readyz"),
        ["" | "index.html"] => Target::RootPaths,
        ["version"] => Target::Version,
        ["api"] => Target::ApiVersions,
        ["apis"] => Target::Groups,
        ["apis", group] => Target::Group((*group).into()),
        ["api", version] => resources("", version),
        ["apis", group, version] => resources(group, version),
        ["openapi", "v2"] => Target::OpenApiV2,
        ["openapi", "v3"] => Target::OpenApiIndex,
        ["openapi", "v3", "api", version] => openapi("", version),
        ["openapi", "v3", "apis", group, version] => openapi(group, version),
        ["api", version, rest @ ..] => objects("", version, rest),
        ["apis", group, version, rest @ ..] => objects(group, version, rest),
        _ => Target::Unknown,
    }
}

fn objects(group: &str, version: &str, rest: &[&str]) -> Target {
    let at = |plural: &str, namespace: &str, name: &str, subresource: &str| {
        Target::Objects(ObjectPath {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            namespace: namespace.into(),
            name: name.into(),
            subresource: subresource.into(),
        })
    };
    match rest {
        [""] | [_, ""] | [_, _, ""] => Target::Unknown,
        // The path of a namespace's subresource looks like that of a collection in the namespace.
        ["namespaces", name, sub @ ("status" | "finalize")] => at("namespaces", "", name, sub),
        ["namespaces", namespace, plural] => at(plural, namespace, "", ""),
        ["namespaces", namespace, plural, name] => at(plural, namespace, name, ""),
        ["namespaces", namespace, plural, name, sub] => at(plural, namespace, name, sub),
        [plural] => at(plural, "", "", ""),
        [plural, name] => at(plural, "", name, ""),
        [plural, name, sub] => at(plural, "", name, sub),
        _ => Target::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> (String, String, String, String, String) {
        match parse_path(path) {
            Target::Objects(o) => (
                format!("{}/{}", o.group, o.version),
                o.plural,
                o.namespace,
                o.name,
                o.subresource,
            ),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn object_paths_are_parsed() {
        let of =
            |a: &str, b: &str, c: &str, d: &str, e: &str| (a.into(), b.into(), c.into(), d.into(), e.into());
        assert_eq!(parse("/api/v1/namespaces"), of("/v1", "namespaces", "", "", ""));
        assert_eq!(
            parse("/api/v1/namespaces/a"),
            of("/v1", "namespaces", "", "a", "")
        );
        assert_eq!(
            parse("/api/v1/namespaces/a/finalize"),
            of("/v1", "namespaces", "", "a", "finalize")
        );
        assert_eq!(
            parse("/api/v1/namespaces/a/secrets"),
            of("/v1", "secrets", "a", "", "")
        );
        assert_eq!(
            parse("/api/v1/namespaces/a/secrets/b%2Ec"),
            of("/v1", "secrets", "a", "b.c", "")
        );
        assert_eq!(parse("/api/v1/secrets"), of("/v1", "secrets", "", "", ""));
        assert_eq!(
            parse("/apis/g/v1/namespaces/a/things/b/status"),
            of("g/v1", "things", "a", "b", "status")
        );
    }

    #[test]
    fn document_paths_are_parsed() {
        assert_eq!(parse_path("/apis"), Target::Groups);
        assert_eq!(parse_path("/apis/g/"), Target::Group("g".into()));
        assert_eq!(
            parse_path("/api/v1"),
            Target::Resources {
                group: String::new(),
                version: "v1".into()
            }
        );
        assert_eq!(
            parse_path("/openapi/v3/apis/g/v1"),
            Target::OpenApiDocument {
                group: "g".into(),
                version: "v1".into()
            }
        );
        assert_eq!(parse_path("/readyz/ping"), Target::Health("readyz"));
        assert_eq!(parse_path("/metrics"), Target::Unknown);
        assert_eq!(parse_path("/"), Target::RootPaths);
        assert_eq!(parse_path("/index.html"), Target::RootPaths);
        assert_eq!(parse_path("/index.html/a"), Target::Unknown);
    }
}
