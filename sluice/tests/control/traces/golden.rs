//! The text form of a trace, and its comparison with a recorded trace.
//!
//! A step is a line about `Ready`, followed by other changes in lines that begin with `  +` or `  -`. `? ` before a step marks it as
//! optional: it lies between two writes of one run or source without a wait, so a watch may miss it. Lines that begin with `#` are
//! comments.

/// An expected step.
#[derive(Debug, PartialEq)]
struct Expected {
    text: String,
    may_lack: bool,
}

fn read(golden: &str) -> Vec<Expected> {
    let mut steps: Vec<Expected> = Vec::new();
    for line in golden.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with("+ ") || line.starts_with("- ") {
            let step = steps.last_mut().expect("a step before what belongs to it");
            step.text.push_str("\n  ");
            step.text.push_str(line);
            continue;
        }
        let (text, may_lack) = line.strip_prefix("? ").map_or((line, false), |rest| (rest, true));
        steps.push(Expected {
            text: text.to_owned(),
            may_lack,
        });
    }
    steps
}

/// Returns the positions of the first mismatch; `None` if all steps match.
fn first_mismatch(expected: &[Expected], recorded: &[String]) -> Option<(usize, usize)> {
    let (mut at, mut of) = (0, 0);
    loop {
        match (expected.get(at), recorded.get(of)) {
            (None, None) => return None,
            (Some(step), Some(recorded_step)) if step.text == *recorded_step => (at, of) = (at + 1, of + 1),
            (Some(step), _) if step.may_lack => at += 1,
            _ => return Some((at, of)),
        }
    }
}

/// Panics with both texts unless the traces match.
pub(super) fn compare(golden: &str, recorded: &[String]) {
    let expected = read(golden);
    let Some((at, of)) = first_mismatch(&expected, recorded) else {
        return;
    };
    let expected_step = expected.get(at).map_or("the end", |step| &step.text);
    let recorded_step = recorded.get(of).map_or("the end", String::as_str);
    panic!(
        "step {}: expected\n{expected_step}\nbut recorded\n{recorded_step}\n\nAll recorded steps:\n{}\n",
        of + 1,
        recorded.join("\n")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mismatch(golden: &str, recorded: &[&str]) -> Option<(usize, usize)> {
        let recorded: Vec<_> = recorded.iter().map(|step| (*step).to_owned()).collect();
        first_mismatch(&read(golden), &recorded)
    }

    #[test]
    fn a_trace_matches_as_a_whole_or_not_at_all() {
        let golden = "# why\nReady A\n  + Plan B\n? Ready C\nReady D\n";
        for (recorded, found) in [
            (&["Ready A\n  + Plan B", "Ready C", "Ready D"][..], None),
            (&["Ready A\n  + Plan B", "Ready D"], None),
            (&["Ready A\n  + Plan B", "Ready C"], Some((2, 2))),
            (&["Ready A", "Ready D"], Some((0, 0))),
            (&["Ready A\n  + Plan B", "Ready D", "Ready C"], Some((3, 2))),
            (&["Ready A\n  + Plan B", "Ready E", "Ready D"], Some((2, 1))),
            (&[], Some((0, 0))),
        ] {
            assert_eq!(mismatch(golden, recorded), found, "{recorded:?}");
        }
    }
}
