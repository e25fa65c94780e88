//! Types and pure rules of Sluice: no client, no async runtime.
