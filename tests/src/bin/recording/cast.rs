//! The recording: texts with calm times, and its file.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use sluice_tests::BoxError;

use crate::scenario::{COLUMNS, QUESTION, ROWS, Step};

/// Time between two words of a command.
const WORD: Duration = Duration::from_millis(120);
/// Time before the first word of a command, and before the program begins to write.
const PAUSE: Duration = Duration::from_millis(600);
/// The output of a command takes at most this long: a longer time is shortened in proportion.
const OUTPUT: Duration = Duration::from_secs(3);
/// Time to read a line of output; a command gets at least [`PAUSE`], and at most [`READING`].
const LINE: Duration = Duration::from_millis(300);
/// The longest time to read the output of a command.
const READING: Duration = Duration::from_secs(4);

/// What a terminal gets at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Time since the start.
    pub(crate) time: Duration,
    /// Letters and control sequences.
    pub(crate) text: String,
}

/// The events so far.
#[derive(Default)]
pub(crate) struct Recording {
    events: Vec<Event>,
    now: Duration,
}

impl Recording {
    /// Returns the events, in the order of their times.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Types a command, word by word, below its comment.
    pub(crate) fn type_command(&mut self, step: &Step) {
        if !step.remark.is_empty() {
            self.print(format!("\x1b[2m# {}\x1b[0m\r\n", step.remark));
        }
        self.print("\x1b[34m$\x1b[0m ".to_owned());
        self.now += PAUSE;
        for word in step.command.split_inclusive(' ') {
            self.print(word.to_owned());
            self.now += WORD;
        }
        self.now += PAUSE;
        self.print("\r\n".to_owned());
    }

    /// Adds what a command printed, with calm times, and the time to read it.
    pub(crate) fn add_output(&mut self, chunks: &[(Duration, String)]) {
        let total = chunks.last().map_or(Duration::ZERO, |(time, _)| *time);
        // A division by zero is infinite, so that nothing is shortened.
        let factor = (OUTPUT.as_secs_f64() / total.as_secs_f64()).min(1.0);
        let mut before = Duration::ZERO;
        let mut unread = 0;
        for (time, text) in chunks {
            self.now += time.saturating_sub(before).mul_f64(factor);
            before = *time;
            self.print(text.clone());
            unread += text.matches('\n').count();
            if text.ends_with(QUESTION) {
                self.now += reading_time(unread);
                unread = 0;
            }
        }
        self.now += reading_time(unread);
    }

    fn print(&mut self, text: String) {
        self.events.push(Event { time: self.now, text });
    }

    /// Formats the recording as an asciicast, version 2: a line of JSON for the terminal, and one for each event.
    ///
    /// # Errors
    /// When a text cannot be formatted: a bug.
    pub(crate) fn asciicast(&self, title: &str) -> Result<String, BoxError> {
        let header = json!({"version": 2, "width": COLUMNS, "height": ROWS, "title": title, "env": {"TERM": "xterm-256color"}});
        let mut text = format!("{header}\n");
        for event in &self.events {
            let (seconds, milliseconds) = (event.time.as_secs(), event.time.subsec_millis());
            let output = serde_json::to_string(&event.text)?;
            writeln!(text, "[{seconds}.{milliseconds:03}, \"o\", {output}]")?;
        }
        Ok(text)
    }
}

fn reading_time(lines: usize) -> Duration {
    let lines = u32::try_from(lines).unwrap_or(u32::MAX);
    LINE.saturating_mul(lines).clamp(PAUSE, READING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::STEPS;

    fn times(recording: &Recording) -> Vec<u128> {
        recording
            .events()
            .iter()
            .map(|event| event.time.as_millis())
            .collect()
    }

    #[test]
    fn long_waits_are_shortened_and_short_ones_stay() {
        let chunk = |seconds, text: &str| (Duration::from_secs(seconds), text.to_owned());
        let mut recording = Recording::default();
        recording.add_output(&[chunk(20, "a"), chunk(60, "b\r\n")]);
        assert_eq!(times(&recording), [1000, 3000]);
        recording.add_output(&[chunk(1, "c"), chunk(2, "d\r\n")]);
        assert_eq!(times(&recording)[2..], [4600, 5600]);
    }

    #[test]
    fn a_question_is_read_before_it_is_answered() {
        let mut recording = Recording::default();
        let plan = format!("{}Approve? {QUESTION}", "line\r\n".repeat(5));
        recording.add_output(&[(Duration::ZERO, plan), (Duration::ZERO, "y\r\n".to_owned())]);
        assert_eq!(times(&recording), [0, 1500]);
    }

    #[test]
    fn the_file_is_an_asciicast() {
        let mut recording = Recording::default();
        recording.type_command(&STEPS[0]);
        let file = recording.asciicast("A title").unwrap();
        let lines: Vec<serde_json::Value> = file
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            (&lines[0]["version"], &lines[0]["width"]),
            (&json!(2), &json!(COLUMNS))
        );
        let typed: String = lines[1..]
            .iter()
            .map(|event| event[2].as_str().unwrap())
            .collect();
        assert!(
            typed.contains(STEPS[0].command) && typed.ends_with("\r\n"),
            "{typed}"
        );
        assert_eq!(lines.last().unwrap()[1], "o");
    }
}
