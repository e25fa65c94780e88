//! The connection to the API, and which objects a command is about.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use kube::api::ListParams;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use sluice_runtime::client::{self, RetryPolicy, Settings};

use crate::{CliError, wait};

/// Objects per page of a list, as in `kubectl`.
pub(crate) const PAGE: u32 = 500;

/// Which API a command talks to. Flags as in `kubectl` and `flux`.
#[derive(clap::Args, Clone, Debug)]
pub struct ConnectionArgs {
    /// Kubeconfig of the API. Default: KUBECONFIG, ~/.kube/config, or the ServiceAccount of the pod.
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig. Default: the current one.
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    pub context: Option<String>,
    /// Namespace of the objects. Default: that of the context.
    #[arg(short = 'n', long, value_name = "NAME", help_heading = "Connection")]
    pub namespace: Option<String>,
    /// Timeout of one request, with its retries.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = sluice_runtime::args::duration, help_heading = "Connection")]
    pub request_timeout: Duration,
    /// Print without colours, as with the environment variable `NO_COLOR`.
    #[arg(long, help_heading = "Connection")]
    pub no_color: bool,
}

/// Which of the objects of a kind a command is about.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SelectionArgs {
    /// Objects of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Objects with these labels, for example `team=net,env!=prod`.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
}

/// The API, and the namespace of objects whose namespace is not named.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespace: String,
    /// Whether standard error is this command's, for what it waits for.
    shows_waiting: bool,
}

impl Cluster {
    /// Creates the client; sends no request.
    ///
    /// # Errors
    /// There is no kubeconfig, or it is not valid.
    pub async fn connect(args: &ConnectionArgs) -> Result<Self, CliError> {
        let settings = Settings {
            kubeconfig: args.kubeconfig.clone(),
            context: args.context.clone(),
            policy: RetryPolicy {
                total: args.request_timeout,
                retries: 2,
                ..RetryPolicy::default()
            },
            ..Settings::default()
        };
        let client = client::build(&settings).await?;
        let namespace = args.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        Ok(Self {
            client,
            namespace,
            shows_waiting: true,
        })
    }

    /// Creates it from a client, for programs that have one, and a screen of their own.
    #[must_use]
    pub fn new(client: Client, namespace: impl Into<String>) -> Self {
        Self {
            client,
            namespace: namespace.into(),
            shows_waiting: false,
        }
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the namespace of objects whose namespace is not named.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the objects of one kind in the namespace.
    #[must_use]
    pub fn objects<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Returns the objects of one kind in another namespace.
    #[must_use]
    pub fn objects_in<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Returns the objects of one kind in the selected namespaces.
    #[must_use]
    pub fn selected<K>(&self, selection: &SelectionArgs) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        if selection.all_namespaces {
            Api::all(self.client.clone())
        } else {
            self.objects()
        }
    }

    /// Waits for the answer to a request about an object. After a second, a terminal shows which object it is.
    pub(crate) async fn answer<T>(&self, object: &str, request: impl Future<Output = T>) -> T {
        // On the heap: a command has several requests at once.
        let request = Box::pin(request);
        if self.shows_waiting {
            Box::pin(wait::request(object, request)).await
        } else {
            request.await
        }
    }

    /// Reads one object.
    ///
    /// # Errors
    /// It does not exist, or the API rejects the request.
    pub async fn get<K>(&self, name: &str) -> Result<K, CliError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let object = describe::<K>(&self.namespace, name);
        let objects = self.objects::<K>();
        let found = self.answer(&object, objects.get_opt(name)).await;
        let found = found.map_err(|source| CliError::Api {
            action: "get",
            object: object.clone(),
            source: Box::new(source),
        })?;
        found.ok_or_else(|| not_found::<K>(&self.namespace, name))
    }

    /// Reads the selected objects as they are now.
    ///
    /// # Errors
    /// The API rejects the request.
    pub async fn list<K>(&self, selection: &SelectionArgs) -> Result<Vec<K>, CliError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let mut params = ListParams::default();
        params.label_selector.clone_from(&selection.selector);
        self.list_with(&self.selected(selection), params).await
    }

    /// Reads the selected objects to show them, with one request. A kube-apiserver answers it from its cache, so that the answer may
    /// be a moment old: a command that changes something uses [`Self::list`].
    ///
    /// # Errors
    /// The API rejects the request.
    pub async fn view<K>(&self, selection: &SelectionArgs) -> Result<Vec<K>, CliError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let params = params_of_view(selection);
        let api = self.selected::<K>(selection);
        let listed = self.answer(&list_name::<K>(), api.list(&params)).await;
        Ok(listed.map_err(list_error::<K>)?.items)
    }

    /// Reads the metadata of the selected objects to show it, as [`Self::view`] reads the objects.
    ///
    /// # Errors
    /// The API rejects the request.
    pub async fn view_metadata<K>(
        &self,
        selection: &SelectionArgs,
    ) -> Result<Vec<PartialObjectMeta<K>>, CliError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let params = params_of_view(selection);
        let api = self.selected::<K>(selection);
        let listed = self.answer(&list_name::<K>(), api.list_metadata(&params)).await;
        Ok(listed.map_err(list_error::<K>)?.items)
    }

    /// Reads a list: page by page, or with one request if it has a selector. With a limit, a kube-apiserver before 1.34 reads all objects
    /// of the kind from etcd and then selects; without one it selects in its cache, and waits until that is current.
    ///
    /// # Errors
    /// The API rejects the request.
    pub async fn list_with<K>(&self, api: &Api<K>, params: ListParams) -> Result<Vec<K>, CliError>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let is_selected = params.label_selector.is_some() || params.field_selector.is_some();
        let mut params = if is_selected { params } else { params.limit(PAGE) };
        let mut objects = Vec::new();
        let name = list_name::<K>();
        loop {
            let page = self
                .answer(&name, api.list(&params))
                .await
                .map_err(list_error::<K>)?;
            objects.extend(page.items);
            let Some(next) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
                return Ok(objects);
            };
            params = params.continue_token(&next);
        }
    }
}

/// Returns kind, namespace and name for messages: `terraform default/app`.
#[must_use]
pub fn describe<K>(namespace: &str, name: &str) -> String
where
    K: Resource,
    K::DynamicType: Default,
{
    let kind = K::kind(&K::DynamicType::default()).to_lowercase();
    format!("{kind} {namespace}/{name}")
}

/// Returns the error of an object that does not exist, with the command that lists what exists.
pub(crate) fn not_found<K>(namespace: &str, name: &str) -> CliError
where
    K: Resource,
    K::DynamicType: Default,
{
    CliError::NotFound {
        object: describe::<K>(namespace, name),
        list_command: format!("sluice get {} -n {namespace}", list_name::<K>()),
    }
}

/// Returns the parameters of a list that a kube-apiserver may answer from its cache.
pub(crate) fn params_of_view(selection: &SelectionArgs) -> ListParams {
    let mut params = ListParams::default().match_any();
    params.label_selector.clone_from(&selection.selector);
    params
}

/// Returns the error of a list that the API rejects.
pub(crate) fn list_error<K>(source: kube::Error) -> CliError
where
    K: Resource,
    K::DynamicType: Default,
{
    CliError::Api {
        action: "list",
        object: list_name::<K>(),
        source: Box::new(source),
    }
}

/// Returns the resource of a kind for messages: `terraforms`.
pub(crate) fn list_name<K>() -> String
where
    K: Resource,
    K::DynamicType: Default,
{
    K::plural(&K::DynamicType::default()).into_owned()
}
