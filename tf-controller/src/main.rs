//! Program entry.
fn main() {}
