//! Passes on the embedded API with a real Git server, judged by what a user sees: conditions and events.

mod artifacts;
mod failures;
mod lifecycle;
mod storage;
mod world;
