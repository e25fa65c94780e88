//! The conditions that keep the decision right, each with a name, so that the tests can leave out one at a time and show
//! which property notices. In a production build [`guard`] is its second argument.

macro_rules! guards {
    ($($(#[$told:meta])* $name:ident,)*) => {
        /// One condition of the decision, of what the runs amount to, or of how a run is looked after.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Guard {
            $($(#[$told])* $name,)*
        }

        #[cfg(test)]
        impl Guard {
            /// Each of them.
            pub(crate) const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];
        }
    };
}

guards! {
    /// A suspended stack starts nothing.
    Suspended,
    /// A run in progress is followed, and no other is started beside it.
    Active,
    /// A refused field stops a stack.
    Refused,
    /// Without an artifact nothing is run.
    SourceMissing,
    /// Without inputs nothing is run.
    InputsUnknown,
    /// Other inputs than those of the last run void what it planned.
    InputsChanged,
    /// `destroy` switched on or off voids what was planned.
    DestroySwitched,
    /// A stored plan waits for its approval.
    PlanWaits,
    /// `planOnly` withholds the plan that waits.
    PlanOnlyWithholds,
    /// `approvePlan: disable` withholds the plan that waits.
    DisabledWithholds,
    /// What `autoApply` holds of a plan makes it wait.
    Held,
    /// A plan without approval waits.
    Unapproved,
    /// A fresh run applies at once only in `auto`.
    NotAuto,
    /// A fresh run of a `planOnly` stack does not apply.
    PlanOnlyPlans,
    /// Runs that nothing but changed inputs causes keep a pause.
    InputPause,
    /// What failed is tried again.
    Failure,
    /// A retry waits for its time.
    RetryDelay,
    /// Retries end at their limit.
    RetryLimit,
    /// Only so many stale plans in a row are made again without a wait.
    StaleLimit,
    /// A check waits for the interval.
    NotDue,
    /// A request starts a run.
    Requested,
    /// A suspended stack is not destroyed.
    DeletionSuspended,
    /// A stack that destroys on deletion is not let go before.
    DestroyFirst,
    /// Only a run of the deletion counts as the destroy.
    OtherRun,
    /// One destroy that succeeded is enough.
    Destroyed,
    /// A destroy whose plan was withheld has destroyed nothing.
    Withheld,
    /// A destroy that failed is tried again after a while.
    DestroyDelay,
    /// A plan that was applied does not wait any more.
    PlanUsed,
    /// A run that never began counts for nothing.
    Superseded,
    /// A number is never given twice.
    Numbered,
    /// A request that a run has taken up is none any more.
    TakenUp,
    /// A run that somebody has claimed is not started again.
    Claimed,
    /// A run is lost only when its process is gone.
    Alive,
    /// A run whose inputs changed before it began does not begin.
    Outdated,
    /// Fields that contradict each other stop a stack, and its deletion.
    Contradiction,
    /// What is made waits for what it builds on.
    DependenciesFirst,
    /// What is destroyed or deleted waits for what builds on it.
    DependantsFirst,
}

/// Whether the guard's condition holds.
#[cfg(not(test))]
#[inline]
pub(crate) const fn guard(_: Guard, holds: bool) -> bool {
    holds
}

/// Whether the guard's condition holds, and no test leaves it out on this thread.
#[cfg(test)]
pub(crate) fn guard(guard: Guard, holds: bool) -> bool {
    holds && LEFT_OUT.get() != Some(guard)
}

#[cfg(test)]
thread_local! {
    static LEFT_OUT: std::cell::Cell<Option<Guard>> = const { std::cell::Cell::new(None) };
}

/// What `work` gives when this guard is left out (none: the decision as it is).
#[cfg(test)]
pub(crate) fn without<T>(guard: Option<Guard>, work: impl FnOnce() -> T) -> T {
    let before = LEFT_OUT.replace(guard);
    let result = work();
    LEFT_OUT.set(before);
    result
}

/// The guard that is left out on this thread.
#[cfg(test)]
pub(crate) fn left_out() -> Option<Guard> {
    LEFT_OUT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_guard_is_left_out_at_a_time() {
        for left_out in Guard::ALL {
            for asked in Guard::ALL {
                let holds = without(Some(left_out), || guard(asked, true));
                assert_eq!(holds, asked != left_out, "{asked:?} without {left_out:?}");
                assert!(guard(asked, true) && !guard(asked, false));
            }
        }
    }
}
