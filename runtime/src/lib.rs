//! The infrastructure of a controller.
//!
//! In the order in which a controller uses it: [`args`] and [`telemetry`] at start, [`client`] and [`http`] for connections,
//! [`watch`] for reconciliations, [`paging`] for long lists, [`failure`] and [`schedule`] for their results, [`status`],
//! [`finalizer`], [`event`] and [`trace`] for reports, [`artifact`] to consume the artifacts of sources, [`definition`] to check
//! what is installed. [`leader`] elects one of several replicas, [`manager`] wires these parts into a program, and [`semver`]
//! evaluates version constraints.
//! The crate depends on no kind of Sluice: kinds are type parameters.

pub mod args;
pub mod artifact;
pub mod blocking;
pub mod client;
pub mod clock;
pub mod definition;
pub mod event;
pub mod failure;
pub mod finalizer;
pub mod http;
pub mod leader;
pub mod manager;
pub mod metrics;
pub mod paging;
pub mod probes;
pub mod random;
pub mod redact;
pub mod schedule;
pub mod semver;
pub mod serve;
pub mod shutdown;
pub mod status;
pub mod sync;
pub mod telemetry;
pub mod trace;
pub mod watch;
