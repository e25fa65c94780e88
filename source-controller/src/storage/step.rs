//! The steps by which files of the local directory come and go. In tests the process is killed at one of them; in any other
//! build a step is nothing.

/// What was just done, by name.
#[cfg(not(test))]
#[inline]
pub(super) const fn reached(_: &'static str) {}

#[cfg(test)]
pub(super) use orders::{Orders, reached};

#[cfg(test)]
mod orders {
    use std::fs::File;
    use std::io::Write as _;
    use std::sync::{Mutex, OnceLock};

    use rustix::process::{Signal, getpid, kill_process};

    /// What this process does at its steps.
    pub(in crate::storage) struct Orders {
        /// Takes a line for each step.
        pub(in crate::storage) log: File,
        /// The step after which the process ends, and which of that name it is, from 1.
        pub(in crate::storage) end: Option<(String, usize)>,
        /// The steps so far.
        pub(in crate::storage) made: Vec<&'static str>,
    }

    static ORDERS: OnceLock<Mutex<Orders>> = OnceLock::new();

    impl Orders {
        /// Gives this process its orders, once.
        pub(in crate::storage) fn give(self) {
            assert!(ORDERS.set(Mutex::new(self)).is_ok(), "orders are given once");
        }
    }

    /// Notes the step, and ends the process if it is the last one. Without orders nothing happens.
    pub(in crate::storage) fn reached(step: &'static str) {
        let Some(orders) = ORDERS.get() else { return };
        let mut orders = orders.lock().unwrap();
        orders.made.push(step);
        writeln!(orders.log, "{step}").unwrap();
        let number = orders.made.iter().filter(|made| **made == step).count();
        if orders
            .end
            .as_ref()
            .is_some_and(|(name, which)| name == step && *which == number)
        {
            kill_process(getpid(), Signal::KILL).unwrap();
            // No thread makes another step, not even this one.
            loop {
                std::thread::park();
            }
        }
    }
}
