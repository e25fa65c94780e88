//! Tests of the whole controller: from a push to the bytes behind the URL in a status.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod churn;
mod consumers;
mod events;
mod fixture;
mod hostile;
mod memory;
mod program;
mod pushes;
mod stops;
mod volumes;
mod watches;
