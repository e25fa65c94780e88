//! Any applied configuration and any `managedFields` are accepted or rejected, and the server keeps running.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_embedded_fuzz::send;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/one";

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else { return };
    let manager = ["one", "two", "kubectl"][usize::from(*kind) % 3];
    let force = kind & 0x40 != 0;
    if kind & 0x80 != 0 {
        // The managers of an object, and an apply that reads them.
        let fields = String::from_utf8_lossy(body);
        let patch = format!(r#"{{"metadata":{{"managedFields":{fields}}}}}"#);
        send("POST", MAPS, "application/json", br#"{"metadata":{"name":"one"},"data":{"a":"b"}}"#);
        let map = format!("{MAPS}/one");
        send("PATCH", &map, "application/merge-patch+json", patch.as_bytes());
        let config = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"c"}}"#;
        let path = format!("{map}?fieldManager={manager}&force={force}");
        send("PATCH", &path, "application/apply-patch+yaml", config);
    } else {
        let path = format!("{ACCOUNT}?fieldManager={manager}&force={force}");
        send("PATCH", &path, "application/apply-patch+yaml", body);
    }
});
