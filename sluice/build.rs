//! Passes the linker arguments of `images/build.sh` to the program alone: flags of the compiler would be those of all build scripts too.

/// The arguments, separated by spaces.
const VARIABLE: &str = "SLUICE_LINK_ARGS";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-changed=build.rs");
    let arguments = std::env::var(VARIABLE).unwrap_or_default();
    for argument in arguments.split_whitespace() {
        println!("cargo::rustc-link-arg-bin=sluice={argument}");
    }
}
