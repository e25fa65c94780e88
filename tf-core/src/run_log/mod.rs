//! The log of a run: the output of its commands, line by line and redacted. The end of the log is in the status of the run. A log
//! that is longer than that is stored in Secrets, compressed.

mod archive;
mod lines;
mod parts;
mod tail;

pub use archive::{Archive, MAX_PARTS, PART_LIMIT};
pub use lines::LogLines;
pub use parts::{KEY, LogPart, is_owned, secret_name, secrets};
pub use tail::{Tail, last_lines};
