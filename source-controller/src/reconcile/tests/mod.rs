//! Tests of reconciliations with the embedded API and a real Git server, judged by conditions and events.

mod artifacts;
mod checkout;
mod conditions;
mod dependents;
mod differential;
mod environment;
mod failures;
mod faults;
mod hosts;
mod https;
mod includes;
mod incremental;
mod interruption;
mod lifecycle;
mod lookups;
mod providers;
mod random;
mod requests;
mod rotation;
mod sequences;
mod sparse;
mod ssh;
mod storage;
mod submodules;
mod verification;
