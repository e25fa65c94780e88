//! Bounds the size of a run's status (pure): the module defines the output names and addresses, and the API refuses an object that
//! is too large for good.

use sluice_api::run::{RunStatusLimit, TerraformRunStatus};
use sluice_api::terraform::ResourceInventory;
use sluice_tf_core::cli::text::truncate;
use sluice_tf_core::run_log::last_lines;

/// Maximum number of bytes of a status as JSON. An object may have 1.5 MB, which includes its managed fields.
const LIMIT: usize = 640 * 1024;

/// Limits of one size of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeLimits {
    /// Entries of each list.
    entries: usize,
    /// Characters of a name or an address.
    name: usize,
    /// Characters of the plan and of the message.
    text: usize,
    /// Bytes of the end of the log.
    log: usize,
}

/// From the usual limits to a size that every server accepts. The log is omitted first: it is stored elsewhere too.
const LEVELS: [SizeLimits; 5] = [
    SizeLimits {
        entries: 1000,
        name: 1024,
        text: 64 * 1024,
        log: RunStatusLimit::LOG_TAIL,
    },
    SizeLimits {
        entries: 1000,
        name: 1024,
        text: 64 * 1024,
        log: 0,
    },
    SizeLimits {
        entries: 300,
        name: 512,
        text: 16 * 1024,
        log: 0,
    },
    SizeLimits {
        entries: 30,
        name: 256,
        text: 4 * 1024,
        log: 0,
    },
    SizeLimits {
        entries: 0,
        name: 128,
        text: 1024,
        log: 0,
    },
];

/// Shrinks the status to at most [`LIMIT`] bytes, and by one more level for each refusal of the server.
pub(crate) fn shrink(mut status: TerraformRunStatus, refusals: usize) -> TerraformRunStatus {
    let last = LEVELS.len() - 1;
    for (level, limits) in LEVELS.iter().enumerate().skip(refusals.min(last)) {
        limits.apply(&mut status);
        if level == last || size(&status) <= LIMIT {
            break;
        }
    }
    status
}

/// Whether a smaller level exists after this number of refusals.
pub(crate) const fn can_shrink(refusals: usize) -> bool {
    refusals + 1 < LEVELS.len()
}

/// Whether the server, or its store, refused the object as too large.
pub(crate) fn is_too_large(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            let text = status.message.to_ascii_lowercase();
            status.code == 413
                || ["too large", "too long", "exceeds", "limit is"]
                    .iter()
                    .any(|word| text.contains(word))
        }
        _ => false,
    }
}

fn size(status: &TerraformRunStatus) -> usize {
    serde_json::to_vec(status).map_or(usize::MAX, |bytes| bytes.len())
}

impl SizeLimits {
    fn apply(self, status: &mut TerraformRunStatus) {
        let changes = &mut status.change_entries;
        let omitted = changes.len().saturating_sub(self.entries);
        changes.truncate(self.entries);
        status.changes_omitted = status
            .changes_omitted
            .saturating_add(i64::try_from(omitted).unwrap_or(i64::MAX));
        status.outputs.truncate(self.entries);
        let lists = status.inventory.iter_mut();
        let listed = lists.flat_map(|ResourceInventory { entries }| {
            entries.truncate(self.entries);
            entries
                .iter_mut()
                .flat_map(|entry| [&mut entry.name, &mut entry.kind, &mut entry.identifier])
        });
        let lock = status.lock.iter_mut();
        let holders = lock.flat_map(|lock| {
            [
                &mut lock.who,
                &mut lock.operation,
                &mut lock.created,
                &mut lock.id,
            ]
        });
        let addresses = status.change_entries.iter_mut().map(|change| &mut change.address);
        let tool = status
            .tool
            .iter_mut()
            .flat_map(|tool| [&mut tool.name, &mut tool.version]);
        let names = addresses
            .chain(&mut status.outputs)
            .chain(listed)
            .chain(holders)
            .chain(tool);
        let others = [
            &mut status.log_path,
            &mut status.log_secret,
            &mut status.lock_holder,
        ];
        for name in names.chain(others) {
            shorten(name, self.name);
        }
        for approval in &mut status.approvals {
            shorten(&mut approval.comment, self.text);
            approval.groups.truncate(self.entries);
        }
        if status.log_tail.len() > self.log {
            status.log_tail = last_lines(&status.log_tail, self.log).to_owned();
        }
        for text in [
            &mut status.human_plan,
            &mut status.message,
            &mut status.auto_apply_hold,
            &mut status.log_error,
            &mut status.state_copy_error,
            &mut status.state_mismatch,
        ] {
            shorten(text, self.text);
        }
    }
}

fn shorten(text: &mut String, limit: usize) {
    if text.len() > limit {
        *text = truncate(text, limit);
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn huge() -> TerraformRunStatus {
        let name = "\u{1F4A5}".repeat(20_000);
        let entries: Vec<_> = (0..1000)
            .map(|_| json!({ "id": name, "n": name, "t": name }))
            .collect();
        let changes: Vec<_> = (0..200)
            .map(|_| json!({ "action": "create", "address": name }))
            .collect();
        serde_json::from_value(json!({ "phase": "Succeeded", "reason": "TerraformAppliedSucceed", "changes": "+200 ~0 -0",
            "planId": "plan-main-1", "outputs": vec![name.clone(); 5000], "changeEntries": changes, "message": name,
            "changesOmitted": 7, "humanPlan": name, "inventory": { "entries": entries },
            "lock": { "id": "1", "who": name }, "logTail": name }))
        .unwrap()
    }

    #[test]
    fn any_status_fits_and_smaller_ones_after_each_refusal() {
        let sizes: Vec<_> = (0..LEVELS.len())
            .map(|refusals| size(&shrink(huge(), refusals)))
            .collect();
        assert!(
            sizes[0] <= LIMIT && sizes.is_sorted_by(|one, next| one >= next),
            "{sizes:?}"
        );
        assert!(sizes[LEVELS.len() - 1] < 16 * 1024, "{sizes:?}");
        let least = shrink(huge(), LEVELS.len() - 1);
        assert_eq!(
            (least.phase.as_str(), least.plan_id.as_str()),
            ("Succeeded", "plan-main-1")
        );
        assert_eq!(least.changes_omitted, 207, "what is left out is counted");
        assert!(can_shrink(0) && can_shrink(LEVELS.len() - 2) && !can_shrink(LEVELS.len() - 1));
    }

    #[test]
    fn the_log_is_omitted_before_anything_else() {
        let text = "a line of the log\n".repeat(10_000);
        let status = TerraformRunStatus {
            outputs: vec!["cidr".into(); 1000],
            message: "m".repeat(60_000),
            log_tail: text.clone(),
            ..TerraformRunStatus::default()
        };
        let first = shrink(status.clone(), 0);
        assert!(text.ends_with(&first.log_tail) && first.log_tail.starts_with("a line"));
        assert!((1..=RunStatusLimit::LOG_TAIL).contains(&first.log_tail.len()));
        let second = shrink(status.clone(), 1);
        assert_eq!(
            second,
            TerraformRunStatus {
                log_tail: String::new(),
                ..status
            }
        );
    }

    #[test]
    fn an_ordinary_status_stays_as_it_is() {
        let mut status = shrink(huge(), LEVELS.len() - 1);
        status.outputs = vec!["cidr".into(); 1000];
        assert_eq!(shrink(status.clone(), 0), status);
    }

    #[test]
    fn a_rejection_for_size_is_recognized_with_any_code() {
        let error = |code, text: &str| kube::Error::Api(Status::failure(text, "x").with_code(code).boxed());
        for (code, text) in [
            (413, "Request entity too large: limit is 3145728"),
            (500, "etcdserver: request is too large"),
            (
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max: exceeds",
            ),
            (422, "status: Too long: may not be more than 1048576 bytes"),
        ] {
            assert!(is_too_large(&error(code, text)), "{text}");
        }
        assert!(!is_too_large(&error(500, "internal error")) && !is_too_large(&error(409, "conflict")));
    }
}
