//! Tests of the metrics that scrapers and dashboards use.

use super::*;

#[test]
fn names_and_labels_are_those_that_dashboards_read() {
    let metrics = Metrics::new();
    let key = ObjectKey {
        namespace: "ns".into(),
        name: "a".into(),
    };
    metrics.set_workers("gitrepository", 2);
    let running = metrics.begin("gitrepository");
    assert!(
        metrics
            .text()
            .contains("controller_runtime_active_workers{controller=\"gitrepository\"} 1\n")
    );
    drop(running);
    metrics.end(
        "gitrepository",
        "GitRepository",
        &key,
        ReconcileResult::Error,
        Duration::from_millis(20),
    );
    let text = metrics.text();
    for line in [
        "controller_runtime_active_workers{controller=\"gitrepository\"} 0\n",
        "controller_runtime_max_concurrent_reconciles{controller=\"gitrepository\"} 2\n",
        "controller_runtime_reconcile_total{controller=\"gitrepository\",result=\"error\"} 1\n",
        "controller_runtime_reconcile_errors_total{controller=\"gitrepository\"} 1\n",
        "gotk_reconcile_duration_seconds_bucket{le=\"0.01\",kind=\"GitRepository\",name=\"a\",namespace=\"ns\"} 0\n",
        "gotk_reconcile_duration_seconds_bucket{le=\"0.038364\",kind=\"GitRepository\",name=\"a\",namespace=\"ns\"} 1\n",
        "le=\"1800.0\"",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    metrics.forget("GitRepository", &key);
    assert!(!metrics.text().contains("gotk_reconcile_duration_seconds_bucket"));
}

/// The series that Flux's dashboards (control-plane.json and cluster.json of its monitoring example) read from a controller, as
/// names and labels without those of Prometheus. (`gotk_resource_info` comes from kube-state-metrics,
/// `container_memory_working_set_bytes` from the kubelet.)
const DASHBOARDS: [(&str, &[&str]); 9] = [
    ("go_info", &[]),
    ("go_memstats_alloc_bytes", &[]),
    ("process_cpu_seconds_total", &[]),
    ("rest_client_requests_total", &["code"]),
    ("workqueue_longest_running_processor_seconds", &["name"]),
    ("workqueue_work_duration_seconds_count", &[]),
    ("controller_runtime_reconcile_total", &["controller", "result"]),
    (
        "controller_runtime_reconcile_time_seconds_bucket",
        &["controller", "le"],
    ),
    (
        "gotk_reconcile_duration_seconds_sum",
        &["kind", "name", "namespace"],
    ),
];

#[tokio::test]
async fn each_series_that_the_dashboards_of_flux_query_is_there() {
    let metrics = Metrics::new();
    metrics.set_workers("gitrepository", 2);
    let _queue = metrics.queue("gitrepository");
    let key = ObjectKey {
        namespace: "ns".into(),
        name: "a".into(),
    };
    metrics.end(
        "gitrepository",
        "GitRepository",
        &key,
        ReconcileResult::Success,
        Duration::ZERO,
    );
    let service = tower::service_fn(|_: http::Request<()>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(()))
    });
    let counted = tower::Layer::layer(&metrics.requests_to("10.0.0.1:443"), service);
    tower::ServiceExt::oneshot(counted, http::Request::new(()))
        .await
        .unwrap();
    let text = metrics.text();
    for (name, labels) in DASHBOARDS {
        let series: Vec<&str> = text
            .lines()
            .filter(|line| line.split(['{', ' ']).next() == Some(name))
            .collect();
        assert!(!series.is_empty(), "{name} is missing in\n{text}");
        for label in labels {
            let with = format!("{label}=\"");
            assert!(
                series.iter().all(|line| line.contains(&with)),
                "{label} is missing in {series:?}"
            );
        }
    }
    let request = "rest_client_requests_total{code=\"200\",host=\"10.0.0.1:443\",method=\"GET\"} 1\n";
    assert!(text.contains(request), "{text}");
    // Both panels of a controller distinguish failures by this label.
    for result in ["success", "requeue_after", "error"] {
        let line =
            format!("controller_runtime_reconcile_total{{controller=\"gitrepository\",result=\"{result}\"}}");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
}

#[test]
fn process_metrics_are_present() {
    let text = Metrics::new().text();
    let value = |name: &str| -> f64 {
        let start = format!("{name} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{name} is missing in\n{text}"))
            .parse()
            .unwrap()
    };
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
    assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") >= value("process_open_fds"));
    // After 2020, and not in the future beyond clock differences.
    let start = value("process_start_time_seconds");
    let now = jiff::Timestamp::now().as_second();
    assert!(
        start > 1_577_836_800.0 && start < f64::from(u32::try_from(now + 120).unwrap()),
        "{start}"
    );
    assert!(value("process_cpu_seconds_total") >= 0.0);
}

#[test]
fn bounds_of_histograms_are_those_of_the_original() {
    let metrics = Metrics::new();
    metrics.set_workers("gitrepository", 2);
    let _queue = metrics.queue("gitrepository");
    let text = metrics.text();
    let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    // Including the bucket for infinity.
    assert_eq!(count("controller_runtime_reconcile_time_seconds_bucket"), 41);
    assert_eq!(count("workqueue_work_duration_seconds_bucket"), 13);
    assert_eq!(count("workqueue_queue_duration_seconds_bucket"), 13);
}
