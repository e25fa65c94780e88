//! A minimal writer of tar archives.

use std::io::Write as _;

pub(super) fn entry(tar: &mut Vec<u8>, path: &str, kind: u8, mode: u32, content: &[u8]) {
    let divided = (1..path.len())
        .rev()
        .find(|at| path.as_bytes()[*at] == b'/' && *at <= 155);
    let (prefix, name) = match divided {
        _ if path.len() <= 100 => ("", path),
        Some(at) if path.len() - at - 1 <= 100 => (&path[..at], &path[at + 1..]),
        _ => ("", ""),
    };
    if path.is_ascii() && !name.is_empty() {
        blocking_step(tar, prefix, name, kind, mode, content.len());
    } else {
        let ascii: String = path.chars().filter(char::is_ascii).collect();
        let cut = |text: &str| text[..text.len().min(100)].trim_end_matches('/').to_owned();
        let (directory, base) = ascii.rsplit_once('/').map_or_else(
            || (String::new(), ascii.clone()),
            |(up, base)| (format!("{up}/"), base.to_owned()),
        );
        let fixed = " path=\n".len() + path.len();
        let digits = (1..9)
            .find(|digits| (fixed + digits).to_string().len() == *digits)
            .unwrap();
        let record = format!("{} path={path}\n", fixed + digits);
        blocking_step(
            tar,
            "",
            &cut(&format!("{directory}PaxHeaders.0/{base}")),
            b'x',
            0,
            record.len(),
        );
        padded(tar, record.as_bytes());
        let name = if ascii.len() > 100 { cut(&ascii) } else { ascii };
        blocking_step(tar, "", &name, kind, mode, content.len());
    }
    padded(tar, content);
}

pub(super) fn padded(tar: &mut Vec<u8>, content: &[u8]) {
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

pub(super) fn blocking_step(tar: &mut Vec<u8>, prefix: &str, name: &str, kind: u8, mode: u32, size: usize) {
    let mut text = Vec::new();
    // Extended headers have no device numbers.
    let device = if kind == b'x' {
        "\0".repeat(8)
    } else {
        "0000000\0".to_owned()
    };
    write!(
        text,
        "{name:\0<100}{mode:07o}\0{:07o}\0{:07o}\0{size:011o}\0{:011o}\0        ",
        0, 0, 0
    )
    .unwrap();
    text.push(kind);
    write!(
        text,
        "{:\0<100}ustar\x0000{:\0<64}{device}{device}{prefix:\0<155}{:\0<12}",
        "", "", ""
    )
    .unwrap();
    assert_eq!(text.len(), 512);
    let sum: u32 = text.iter().copied().map(u32::from).sum();
    text[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend(text);
}
