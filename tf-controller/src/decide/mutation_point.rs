//! Names of the conditions of the decision. Mutation tests disable one at a time and show which property fails. In a production build
//! [`holds`] returns its second argument.

macro_rules! mutation_points {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One condition of the decision, of the history of runs, or of the supervision of a run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum MutationPoint {
            $($(#[$doc])* $name,)*
        }

        #[cfg(test)]
        impl MutationPoint {
            /// All points.
            pub(crate) const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];
        }
    };
}

mutation_points! {
    /// A suspended stack starts nothing.
    Suspended,
    /// A run in progress is followed, and no other is started beside it.
    Active,
    /// An unsupported field stops a stack.
    UnsupportedField,
    /// Without an artifact nothing is run.
    SourceMissing,
    /// Without inputs nothing is run.
    InputsUnknown,
    /// Inputs other than those of the last run invalidate its plan.
    InputsChanged,
    /// Switching `destroy` invalidates the plan.
    DestroySwitched,
    /// A stored plan waits for its approval.
    PlanWaits,
    /// `planOnly` withholds the pending plan.
    PlanOnlyWithholds,
    /// `approvePlan: disable` withholds the pending plan.
    DisabledWithholds,
    /// A plan that `autoApply` holds waits.
    AutoApplyHold,
    /// A plan that a user rejected is not applied.
    Rejected,
    /// A plan without approval waits.
    Unapproved,
    /// A new run applies its own plan only in `auto`.
    NotAuto,
    /// A new run of a `planOnly` stack does not apply.
    PlanOnlyPlans,
    /// Runs whose only cause is changed inputs wait for a pause.
    InputPause,
    /// A failed run is retried.
    Failure,
    /// A retry waits for its time.
    RetryDelay,
    /// Retries end at their limit.
    RetryLimit,
    /// The number of disrupted runs in a row that use up no retry is limited.
    DisruptionLimit,
    /// The number of immediate replans after stale plans is limited.
    StaleLimit,
    /// A drift detection waits for the interval.
    IntervalNotDue,
    /// A request starts a run.
    Requested,
    /// A suspended stack is not destroyed.
    DeletionSuspended,
    /// A stack that destroys on deletion is not released before the destroy.
    DestroyFirst,
    /// Only a run of the deletion counts as the destroy.
    NotDeletionRun,
    /// One successful destroy is enough.
    Destroyed,
    /// A destroy whose plan was withheld destroyed nothing.
    DestroyWithheld,
    /// A failed destroy is retried after a delay.
    DestroyDelay,
    /// An applied plan no longer waits.
    PlanApplied,
    /// A superseded run does not count.
    Superseded,
    /// A sequence number is used once.
    UniqueSequence,
    /// A request that a run has handled is done.
    RequestHandled,
    /// A claimed run is not started again.
    Claimed,
    /// A run is lost only when its process is gone.
    ProcessAlive,
    /// A run whose inputs changed before it started does not start.
    InputsOutdated,
    /// Fields that contradict each other stop a stack, and its deletion.
    ContradictingFields,
    /// A run waits for the stacks that its stack depends on.
    DependenciesFirst,
    /// A destroy or deletion waits for the stacks that depend on the stack.
    DependentsFirst,
}

/// Returns whether the condition holds.
#[cfg(not(test))]
#[inline]
pub(crate) const fn holds(_: MutationPoint, condition: bool) -> bool {
    condition
}

/// Returns whether the condition holds and no test disables it on this thread.
#[cfg(test)]
pub(crate) fn holds(point: MutationPoint, condition: bool) -> bool {
    condition && DISABLED.get() != Some(point)
}

#[cfg(test)]
thread_local! {
    static DISABLED: std::cell::Cell<Option<MutationPoint>> = const { std::cell::Cell::new(None) };
}

/// Runs `work` with this point disabled; `None`: with all conditions.
#[cfg(test)]
pub(crate) fn with_disabled<T>(point: Option<MutationPoint>, work: impl FnOnce() -> T) -> T {
    let before = DISABLED.replace(point);
    let result = work();
    DISABLED.set(before);
    result
}

/// The point that is disabled on this thread.
#[cfg(test)]
pub(crate) fn disabled_point() -> Option<MutationPoint> {
    DISABLED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_point_is_disabled_at_a_time() {
        for disabled in MutationPoint::ALL {
            for point in MutationPoint::ALL {
                let result = with_disabled(Some(disabled), || holds(point, true));
                assert_eq!(result, point != disabled, "{point:?} without {disabled:?}");
                assert!(holds(point, true) && !holds(point, false));
            }
        }
    }
}
