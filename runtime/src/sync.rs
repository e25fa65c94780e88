//! Mutexes without poisoning: every critical section of the workspace leaves its data consistent, even when it panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, whether or not another holder panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
