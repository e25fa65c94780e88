//! The status in the files of the objects.

use super::*;

/// The tests of this folder whose repository has the same content with the status in the files.
const TESTS: [&[fn()]; 7] = [
    super::TESTS,
    foreign::TESTS,
    definitions::TESTS,
    definitions::WRITE_TESTS,
    moves::TESTS,
    remote::TESTS,
    starts::TESTS,
];

#[test]
fn the_other_tests_hold_with_the_status_in_the_files() {
    STATUS.set(StatusLocation::File);
    for test in TESTS.into_iter().flatten() {
        test();
    }
}
