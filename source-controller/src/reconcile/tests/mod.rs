//! Passes on the embedded API with a real Git server, judged by what a user sees: conditions and events.

mod artifacts;
mod checkout;
mod conditions;
mod dependants;
mod differential;
mod failures;
mod faults;
mod hosts;
mod https;
mod includes;
mod interruption;
mod lifecycle;
mod providers;
mod random;
mod rotation;
mod sequences;
mod sparse;
mod ssh;
mod storage;
mod submodules;
mod verification;
mod world;
