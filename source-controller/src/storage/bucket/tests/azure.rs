//! Azure Blob Storage on loopback: Azurite, which the harness installs from npm.

use http::{Request, StatusCode};
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential, MicrosoftAzureBuilder};
use object_store::client::{HttpRequestBody, HttpService as _};
use sluice_harness::azurite::Azurite;

use super::super::connect::{azure, connector};
use super::{BUCKET, Bucket, options};
use crate::options::StorageBackend;

/// The account that every Azurite has, and its key, which is not secret.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const ANOTHER_KEY: &str = "QW5vdGhlciBrZXksIHdoaWNoIG5vIGFjY291bnQgaGFz";

/// The server with an empty container.
pub(super) struct AzureServer(Azurite);

impl AzureServer {
    /// Starts Azurite, which needs Node.js.
    pub(super) async fn start() -> Self {
        let started = tokio::task::spawn_blocking(Azurite::start);
        let server = Self(started.await.unwrap().unwrap());
        server.create_container().await;
        server
    }

    /// `object_store` creates no containers.
    async fn create_container(&self) {
        let url = format!("{}/{BUCKET}?restype=container", self.url());
        let mut request = Request::put(url).body(HttpRequestBody::empty()).unwrap();
        let credential = AzureCredential::AccessKey(AzureAccessKey::try_new(KEY).unwrap());
        let authorizer = AzureAuthorizer::new(&credential, ACCOUNT);
        authorizer.try_authorize(&mut request).unwrap();
        let response = connector().unwrap().call(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
    }

    /// Returns what `--storage-bucket-endpoint` is: for a server without a host for each account, the account is in the path.
    fn url(&self) -> String {
        format!("http://{}/{ACCOUNT}", self.0.address())
    }

    /// Opens the container with the right key.
    pub(super) fn bucket(&self) -> Bucket {
        self.open(KEY, BUCKET)
    }

    /// Opens the container with a wrong key.
    pub(super) fn bucket_with_wrong_key(&self) -> Bucket {
        self.open(ANOTHER_KEY, BUCKET)
    }

    /// Opens a container that does not exist.
    pub(super) fn missing_bucket(&self) -> Bucket {
        self.open(KEY, "missing")
    }

    fn open(&self, key: &str, container: &str) -> Bucket {
        let mut options = options(StorageBackend::Azure, format!("{}/", self.url()));
        container.clone_into(&mut options.storage_bucket);
        let builder = MicrosoftAzureBuilder::new()
            .with_account(ACCOUNT)
            .with_access_key(key);
        let store = azure(builder, &options, connector().unwrap()).unwrap();
        Bucket::new(store, container, "below/this")
    }
}
