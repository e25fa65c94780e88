//! What every controller needs around a pipeline of phases.
//!
//! Read in the order in which a controller uses it: [`args`] and [`telemetry`] at start, [`client`] and [`http`] to
//! reach others, [`watch`] to be called for objects, [`pages`] to list many of them, [`failure`] and [`schedule`] to say
//! what a pass came to, [`status`], [`finalizer`] and [`event`] to report it, [`artifact`] to consume what a source
//! produced. [`leader`] lets one of several replicas work. [`semver`] judges version constraints as Flux users write them.
//! Nothing here knows a kind of ours: kinds are type parameters.

pub mod args;
pub mod artifact;
pub mod blocking;
pub mod client;
pub mod clock;
pub mod event;
pub mod failure;
pub mod finalizer;
pub mod http;
pub mod leader;
pub mod metrics;
pub mod pages;
pub mod probes;
pub mod random;
pub mod redact;
pub mod schedule;
pub mod semver;
pub mod serve;
pub mod shutdown;
pub mod status;
pub mod telemetry;
pub mod watch;
