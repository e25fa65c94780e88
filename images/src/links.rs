//! Links of an image without a target: those are files that a package has elsewhere, or no longer has.

use std::collections::{BTreeMap, VecDeque};

use crate::layer::{Entry, Layer};

/// Links that one path may lead through, as in Linux.
const MAX_LINKS: usize = 40;

/// Returns the first link, with its target, that leads to no file or directory of these layers.
pub(crate) fn dead_link<'a>(layers: &[&'a Layer]) -> Option<(&'a str, &'a str)> {
    let entries: BTreeMap<&str, &Entry> = layers.iter().flat_map(|layer| layer.entries()).collect();
    entries.iter().find_map(|(path, entry)| match entry {
        Entry::Link { target } if !leads_somewhere(&entries, path) => Some((*path, target.as_str())),
        _ => None,
    })
}

fn leads_somewhere(entries: &BTreeMap<&str, &Entry>, path: &str) -> bool {
    let mut rest: VecDeque<&str> = path.split('/').collect();
    let mut current: Vec<&str> = Vec::new();
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        match part {
            "" | "." => continue,
            ".." => drop(current.pop()),
            name => current.push(name),
        }
        if current.is_empty() {
            continue;
        }
        match entries.get(current.join("/").as_str()) {
            None => return false,
            Some(Entry::Link { target }) => {
                links += 1;
                if links > MAX_LINKS {
                    return false;
                }
                current.pop();
                if target.starts_with('/') {
                    current.clear();
                }
                target.rsplit('/').for_each(|part| rest.push_front(part));
            }
            Some(Entry::Directory { .. }) => {}
            Some(Entry::File { .. } | Entry::Text { .. }) => return rest.is_empty(),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(links: &[(&str, &str)]) -> Layer {
        let mut layer = Layer::default();
        for (path, target) in links {
            layer.link(path, target).unwrap();
        }
        layer
    }

    #[test]
    fn links_are_followed_through_links_parents_and_other_layers() {
        let mut base = layer(&[("/lib", "usr/lib"), ("/usr/bin/sh", "busybox")]);
        base.text("/usr/lib/x/libc.so.6", "").unwrap();
        let mut tools = layer(&[
            ("/usr/lib64/ld.so", "/lib/x/libc.so.6"),
            ("/usr/lib/git-core/git", "../../bin/busybox"),
            ("/opt/root", "/"),
            ("/opt/lib", "../opt/root/./lib"),
        ]);
        tools.text("/usr/bin/busybox", "").unwrap();
        assert_eq!(dead_link(&[&base, &tools]), None);
        assert_eq!(dead_link(&[&base]), Some(("usr/bin/sh", "busybox")));
    }

    #[test]
    fn a_circle_a_missing_target_and_a_path_below_a_file_are_dead() {
        let mut circle = layer(&[("/a", "b"), ("/b", "a")]);
        circle.text("/file", "").unwrap();
        assert_eq!(dead_link(&[&circle]), Some(("a", "b")));
        for target in ["missing", "/missing", "../../missing", "file/below"] {
            let mut layer = layer(&[("/link", target)]);
            layer.text("/file", "").unwrap();
            assert_eq!(dead_link(&[&layer]), Some(("link", target)));
        }
    }
}
