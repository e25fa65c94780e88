//! Keys, known hosts and algorithms for ssh. Pure: no socket, no clock, no disk.

pub mod algorithms;
pub mod credentials;
pub mod identity;
pub mod known_hosts;

pub use algorithms::{Algorithms, HostKeyAlgorithm, KeyExchange, UnknownAlgorithm};
pub use credentials::SshCredentials;
pub use identity::IdentityError;
pub use known_hosts::{HostKeyError, KnownHosts, KnownHostsError};
