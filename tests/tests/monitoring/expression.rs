//! The names of metrics in an expression of Prometheus.

use std::collections::BTreeSet;

/// Words before a list of labels, which is not a list of metrics.
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words between two expressions.
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// Returns the names of the metrics in an expression: the words that are not functions, labels or operators.
pub(crate) fn metric_names(expression: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = without_selectors(expression);
    loop {
        let start = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_');
        let Some(start) = start else { return names };
        rest.drain(..start);
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let word: String = rest.drain(..end).collect();
        let next = rest.trim_start();
        // `sum by (x) (y)` is a call too.
        let is_call = next.starts_with('(') || GROUPINGS.iter().any(|word| next.starts_with(word));
        if GROUPINGS.contains(&word.as_str()) {
            let list = next.find(')').map_or(0, |end| rest.len() - next.len() + end);
            rest.drain(..list);
        } else if !is_call && !OPERATORS.contains(&word.as_str()) {
            names.insert(word);
        }
    }
}

/// Removes selectors, ranges and numbers with their units.
fn without_selectors(expression: &str) -> String {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut text, mut depth, mut quoted, mut number) = (String::new(), 0, false, false);
    for c in expression.chars() {
        let begins = c.is_ascii_digit() && !text.ends_with(is_of_word);
        number = (number || begins) && is_of_word(c);
        match c {
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => depth += 1,
            '}' | ']' if !quoted => depth -= 1,
            _ if !quoted && depth == 0 && !number => text.push(c),
            _ => {}
        }
    }
    text
}

#[test]
fn names_of_metrics_are_found_among_functions_labels_and_operators() {
    let names = |text| metric_names(text).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(names("absent(a_b{c=\"}d\"})"), "a_b");
    assert_eq!(
        names("topk(10, sum by (x, y) (rate(a_sum{x=~\"b|c\"}[5m])) / sum without(z) (a_count)) > 0.25"),
        "a_count a_sum"
    );
    assert_eq!(names("a and on (x) b unless c2 offset 5"), "a b c2");
    assert_eq!(
        names("a offset 1h or max_over_time(b[2h] offset 1h30m) > 3"),
        "a b"
    );
    assert_eq!(
        names("histogram_quantile(0.95, sum by (le) (rate(a_bucket[$__rate_interval])))"),
        "a_bucket"
    );
    assert_eq!(names("vector(1) > 0"), "");
}
