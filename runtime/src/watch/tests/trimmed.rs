//! What the cache omits of objects.

use super::*;

#[tokio::test]
async fn the_cache_omits_what_the_reconciler_does_not_read() {
    let api = Arc::new(FakeApi::default());
    let fields = json!([{ "manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": { "f:data": {} } }]);
    api.put("listed", &json!({ "metadata": { "managedFields": fields } }));
    let running = RunningWatch::start(&api);
    running.until_seen("listed", 1).await;
    api.until(|api| !lock(&api.watchers).is_empty()).await;
    api.put("watched", &json!({ "metadata": { "managedFields": fields } }));
    running.until_seen("watched", 1).await;
    for name in ["listed", "watched"] {
        let cached = running.objects.get(&key(name)).unwrap();
        assert_eq!(cached.metadata.managed_fields, None, "{name}");
        assert_eq!(cached.metadata.resource_version.as_deref(), Some("2"), "{name}");
    }
    running.end().await;
}
