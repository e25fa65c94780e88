//! A trace as it is written in a test, and whether what was heard is that trace.
//!
//! A step is a line about `Ready`, with what else is new in lines that begin with `  +` or `  -`. `? ` before a step: it lies
//! between two writes of one run, or of a source, with nothing between them that could wait, so it is told or passed over, but
//! never told in another place. Lines that begin with `#` are for the reader.

/// A step that is expected.
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

/// The expected step that the first step out of place stands against: none when all fit.
fn first_wrong(expected: &[Expected], heard: &[String]) -> Option<(usize, usize)> {
    let (mut at, mut of) = (0, 0);
    loop {
        match (expected.get(at), heard.get(of)) {
            (None, None) => return None,
            (Some(step), Some(told)) if step.text == *told => (at, of) = (at + 1, of + 1),
            (Some(step), _) if step.may_lack => at += 1,
            _ => return Some((at, of)),
        }
    }
}

/// Fails, with both texts, unless they are one trace.
pub(super) fn compare(golden: &str, heard: &[String]) {
    let expected = read(golden);
    let Some((at, of)) = first_wrong(&expected, heard) else {
        return;
    };
    let wanted = expected.get(at).map_or("the end", |step| &step.text);
    let told = heard.get(of).map_or("the end", String::as_str);
    panic!(
        "step {} was to be\n{wanted}\nand is\n{told}\n\nAll that was told:\n{}\n",
        of + 1,
        heard.join("\n")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(golden: &str, heard: &[&str]) -> Option<(usize, usize)> {
        let heard: Vec<_> = heard.iter().map(|step| (*step).to_owned()).collect();
        first_wrong(&read(golden), &heard)
    }

    #[test]
    fn a_trace_fits_as_a_whole_or_not_at_all() {
        let golden = "# why\nReady A\n  + Plan B\n? Ready C\nReady D\n";
        for (heard, found) in [
            (&["Ready A\n  + Plan B", "Ready C", "Ready D"][..], None),
            (&["Ready A\n  + Plan B", "Ready D"], None),
            (&["Ready A\n  + Plan B", "Ready C"], Some((2, 2))),
            (&["Ready A", "Ready D"], Some((0, 0))),
            (&["Ready A\n  + Plan B", "Ready D", "Ready C"], Some((3, 2))),
            (&["Ready A\n  + Plan B", "Ready E", "Ready D"], Some((2, 1))),
            (&[], Some((0, 0))),
        ] {
            assert_eq!(wrong(golden, heard), found, "{heard:?}");
        }
    }
}
