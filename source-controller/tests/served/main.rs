//! The whole controller, started as programs start it: a push becomes bytes behind the URL in a status.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod churn;
mod consumers;
mod events;
mod hostile;
mod memory;
mod program;
mod pushes;
mod volumes;
mod watches;
mod world;
