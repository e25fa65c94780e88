use std::fs;
use std::io::Read as _;

use serde_json::Value;

use super::*;
use crate::layer::Layer;

fn config() -> ImageConfig {
    ImageConfig {
        user: 65534,
        entrypoint: "/usr/local/bin/source-controller".to_owned(),
        environment: BTreeMap::from([("PATH".to_owned(), "/usr/local/bin".to_owned())]),
        labels: BTreeMap::new(),
    }
}

fn written(folder: &Path, seconds: i64) -> WrittenImage {
    let mut layers = Vec::new();
    for name in ["base", "program"] {
        let mut layer = Layer::default();
        layer.text(&format!("/{name}"), name).unwrap();
        layers.push(layer.write(&folder.join(format!("{name}.tar"))).unwrap());
    }
    let reference = Reference::new("registry.example.com:5000/sluice/source-controller", "0.1.0").unwrap();
    let created = Timestamp::from_second(seconds).unwrap();
    let layers: Vec<_> = layers.iter().collect();
    write(&reference, &config(), &layers, created, &folder.join("image.tar")).unwrap()
}

fn entries(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(File::open(archive).unwrap());
    let read = |entry: io::Result<tar::Entry<'_, File>>| {
        let mut entry = entry.unwrap();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        (entry.path().unwrap().display().to_string(), contents)
    };
    archive.entries().unwrap().map(read).collect()
}

#[test]
fn equal_layers_give_equal_bytes_in_two_folders_and_the_time_is_only_in_the_configuration() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [one, other, later] = [(0, 7), (1, 7), (2, 8)].map(|(folder, seconds): (usize, i64)| {
        let image = written(folders[folder].path(), seconds);
        (image.digest, fs::read(&image.archive).unwrap())
    });
    assert!(one == other);
    assert_ne!(one.0, later.0);
}

#[test]
fn every_digest_of_the_archive_leads_to_its_blob() {
    let folder = tempfile::tempdir().unwrap();
    let image = written(folder.path(), 7);
    let entries = entries(&image.archive);
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
        let contents = &entries[&format!("blobs/{digest}")];
        assert_eq!(descriptor["size"], contents.len());
        assert_eq!(hex::encode(Sha256::digest(contents)), digest["sha256/".len()..]);
        contents.clone()
    };
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let index = json(&entries["index.json"]);
    let described = &index["manifests"][0];
    assert_eq!(described["digest"], prefixed(&image.digest));
    assert_eq!(
        described["annotations"][NAME_ANNOTATION],
        image.reference.to_string()
    );
    let manifest = json(&blob(described));
    let configuration = json(&blob(&manifest["config"]));
    let layers: Vec<_> = manifest["layers"].as_array().unwrap().iter().map(blob).collect();
    assert_eq!(layers.iter().map(Vec::len).sum::<usize>() as u64, image.size);
    let diff_ids: Vec<_> = layers
        .iter()
        .map(|layer| prefixed(&hex::encode(Sha256::digest(layer))))
        .collect();
    assert_eq!(configuration["rootfs"]["diff_ids"], serde_json::json!(diff_ids));
    assert_eq!(configuration["architecture"], architecture());
    assert_eq!(configuration["created"], "1970-01-01T00:00:07Z");
    assert_eq!(configuration["config"]["User"], "65534:65534");
    assert_eq!(
        configuration["config"]["Entrypoint"],
        serde_json::json!(["/usr/local/bin/source-controller"])
    );
    let docker = json(&entries["manifest.json"]);
    assert_eq!(
        docker[0]["RepoTags"][0],
        "registry.example.com:5000/sluice/source-controller:0.1.0"
    );
    let config_digest = manifest["config"]["digest"].as_str().unwrap().replace(':', "/");
    assert_eq!(docker[0]["Config"], format!("blobs/{config_digest}"));
    assert_eq!(docker[0]["Layers"].as_array().unwrap().len(), layers.len());
    assert_eq!(entries.len(), 3 + 2 + layers.len());
}

#[test]
fn a_name_that_is_not_one_of_an_image_is_refused() {
    for (name, tag) in [
        ("", "1"),
        ("a//b", "1"),
        ("A", "1"),
        ("a:1", "2"),
        ("a", ""),
        ("a", "x/y"),
        ("a b", "1"),
    ] {
        assert!(Reference::new(name, tag).is_err(), "{name}:{tag}");
    }
    assert!(Reference::new("localhost:5000/pause", "1.0_X").is_ok());
}
