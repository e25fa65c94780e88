//! The parts of a log: each command of the CLI has a line `$ tofu …` above its output. Pure.

use super::LogPhase;

/// The output of the commands of a phase, with their lines.
pub(super) struct PhaseSection {
    phase: LogPhase,
    /// Whether the last command belongs to the phase.
    is_selected: bool,
}

impl PhaseSection {
    pub(super) const fn new(phase: LogPhase) -> Self {
        Self {
            phase,
            is_selected: false,
        }
    }

    /// Returns the lines of the phase in the next lines of a log.
    #[must_use]
    pub(super) fn select(&mut self, log: &str) -> String {
        let mut shown = String::new();
        for line in log.lines() {
            if let Some(command) = command(line) {
                self.is_selected = belongs_to(command, self.phase);
            }
            if self.is_selected {
                shown.push_str(line);
                shown.push('\n');
            }
        }
        shown
    }
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

    fn of_phase(log: &str, phase: LogPhase) -> String {
        PhaseSection::new(phase).select(log)
    }

    #[test]
    fn the_output_of_a_command_goes_on_in_the_next_part() {
        let mut section = PhaseSection::new(LogPhase::Plan);
        let parts = [
            "$ tofu init\na\n$ tofu plan\nb\n",
            "c\n",
            "d\n$ tofu apply\ne\n",
            "f\n",
        ];
        let shown: String = parts.iter().map(|part| section.select(part)).collect();
        assert_eq!(shown, "$ tofu plan\nb\nc\nd\n");
    }

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
