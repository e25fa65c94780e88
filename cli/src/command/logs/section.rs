//! The parts of a log: each command of the CLI has a line `$ tofu …` above its output. Pure.

use super::LogPhase;

/// Returns the output of the commands of a phase, with their lines.
#[must_use]
pub(super) fn of_phase(log: &str, phase: LogPhase) -> String {
    let mut shown = String::new();
    let mut is_selected = false;
    for line in log.lines() {
        if let Some(command) = command(line) {
            is_selected = belongs_to(command, phase);
        }
        if is_selected {
            shown.push_str(line);
            shown.push('\n');
        }
    }
    shown
}

/// Returns the subcommand of a line such as `$ tofu plan -out=…`; `None`: it is output.
fn command(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("$ ")?.split_whitespace();
    let program = words.next()?.rsplit('/').next()?;
    let is_cli = matches!(program, "tofu" | "terraform");
    // Global options such as -chdir come before the subcommand.
    words.find(|word| !word.starts_with('-')).filter(|_| is_cli)
}

fn belongs_to(command: &str, phase: LogPhase) -> bool {
    match phase {
        LogPhase::Init => command == "init",
        LogPhase::Plan => matches!(command, "plan" | "show"),
        LogPhase::Apply => matches!(command, "apply" | "destroy"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_has_the_output_of_its_commands() {
        let log = "$ tofu init -input=false\ninitialised\n$ tofu plan -out=x\n$ 5 is a price\nplanned\n$ /opt/tofu -chdir=a apply x\napplied\n";
        assert_eq!(
            of_phase(log, LogPhase::Init),
            "$ tofu init -input=false\ninitialised\n"
        );
        assert_eq!(
            of_phase(log, LogPhase::Plan),
            "$ tofu plan -out=x\n$ 5 is a price\nplanned\n"
        );
        assert_eq!(
            of_phase(log, LogPhase::Apply),
            "$ /opt/tofu -chdir=a apply x\napplied\n"
        );
        assert_eq!(of_phase("", LogPhase::Apply), "");
    }
}
