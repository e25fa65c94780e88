//! The pages with commands, which tests run, and the repository of the samples.

/// The address in the samples.
pub const SAMPLE_ADDRESS: &str = "https://github.com/flux-iac/helloworld";

/// What the repository of the samples contains.
pub const SAMPLE_MODULE: &str = "variable \"subject\" { type = string }
variable \"secret_subject\" {
  type      = string
  sensitive = true
}
output \"hello_world\" {
  value     = \"Hello, ${var.subject} and ${var.secret_subject}!\"
  sensitive = true
}
";

/// Returns the command blocks of a text in order. Blocks with a prompt (`$ `) show output and are skipped.
#[must_use]
pub fn command_blocks(text: &str) -> Vec<String> {
    let blocks = text.split("```console\n").skip(1);
    blocks
        .filter_map(|block| block.split("```").next())
        .filter(|block| !block.trim_start().starts_with("$ "))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_console_blocks_without_a_prompt_are_commands() {
        let text = "a\n```console\none\ntwo\n```\n```text\nthree\n```\n```console\n$ four\n```\n```console\nfive\n```\n";
        assert_eq!(command_blocks(text), ["one\ntwo\n", "five\n"]);
    }
}
