//! Every metric family: name, type, labels, stability and one line. `docs/metrics.md` has the same rows.
//!
//! Conventions: prefix `tandem_` (`process_` for the standard process metrics), base units, `_total` on counters.
//! `Stable` names and labels change only with a major version; `Unstable` ones may change with any release.
//! Label order matters here: bounded words first, free text last (see `vocabulary`).

/// One family.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    /// Bounded words first, free text (service, url) last.
    pub labels: &'static [&'static str],
    pub stability: Stability,
    /// Where it is scraped.
    pub page: Page,
    /// One line; the `# HELP` text.
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    Stable,
    Unstable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// `/metrics`
    Main,
    /// `/metrics/endpoints`
    Endpoints,
}

/// Declares the constants and, from the same lines, [`ALL`]: a family cannot be forgotten in the list.
macro_rules! families {
    ($($id:ident = $name:literal, $kind:ident, [$($label:literal),*], $stability:ident, $page:ident, $help:literal;)*) => {
        $(pub const $id: Family = Family {
            name: $name, kind: Kind::$kind, labels: &[$($label),*],
            stability: Stability::$stability, page: Page::$page, help: $help,
        };)*
        /// Every family, in the order of `docs/metrics.md`.
        pub const ALL: &[Family] = &[$($id),*];
    };
}

families! {
    REQUESTS = "tandem_requests_total", Counter, ["route", "outcome", "service"], Stable, Main,
        "Requests that ended, each with exactly one outcome.";
    REQUEST_DURATION = "tandem_request_duration_seconds", Histogram, ["outcome", "service"], Stable, Main,
        "From the request head read to the last response byte written.";
    TIME_TO_FIRST_BYTE = "tandem_time_to_first_byte_seconds", Histogram, ["service"], Stable, Main,
        "From the request head read to the first response body byte of an engine.";
    REQUEST_ERRORS = "tandem_request_errors_total", Counter, ["code"], Stable, Main,
        "Errors the router made itself, by code of docs/errors.md.";
    RETRIES = "tandem_retries_total", Counter, ["reason", "role", "service"], Stable, Main,
        "Further attempts after the first, by what happened to the one before.";
    RETRY_BUDGET_EXHAUSTED = "tandem_retry_budget_exhausted_total", Counter, ["service"], Stable, Main,
        "Attempts that were allowed by the retry table but not by the budget.";
    UPSTREAM_LEGS = "tandem_upstream_legs_total", Counter, ["outcome", "service"], Stable, Main,
        "Requests to engines that ended, each with exactly one outcome.";
    LEG_TTFB = "tandem_leg_time_to_first_byte_seconds", Histogram, ["role", "service"], Stable, Main,
        "Prefill and decode legs: from the choice of the endpoint to the head of its answer.";
    LEG_DURATION = "tandem_leg_duration_seconds", Histogram, ["role", "service"], Stable, Main,
        "Prefill and decode legs: from the choice of the endpoint to the end of its answer.";
    HANDOFF = "tandem_handoff_seconds", Histogram, ["service"], Stable, Main,
        "Age of a prefill's KV parameters when a decode was sent them.";
    STREAM_EVENTS = "tandem_stream_events_total", Counter, ["service"], Unstable, Main,
        "Server-sent events relayed.";
    STREAM_GAPS = "tandem_stream_gaps_total", Counter, ["service"], Unstable, Main,
        "Times between two successive events of one stream.";
    STREAM_GAP_SECONDS = "tandem_stream_gap_seconds_total", Counter, ["service"], Unstable, Main,
        "Sum of the times between two successive events of one stream.";
    TOKENS = "tandem_tokens_total", Counter, ["kind", "service"], Stable, Main,
        "Tokens as the engines state them in their usage; the kind is prompt or completion.";
    USAGE_UNREADABLE = "tandem_usage_unreadable_total", Counter, ["service"], Unstable, Main,
        "Answers whose usage was there and could not be read.";
    REQUESTS_IN_FLIGHT = "tandem_requests_in_flight", Gauge, [], Stable, Main,
        "Requests whose head was read and whose answer has not ended.";
    BUFFERED_BYTES = "tandem_buffered_bytes", Gauge, [], Stable, Main,
        "Request body bytes held in memory.";
    CONNECTIONS = "tandem_downstream_connections", Gauge, [], Stable, Main,
        "Open client connections.";
    CONNECTIONS_ACCEPTED = "tandem_downstream_connections_accepted_total", Counter, [], Stable, Main,
        "Client connections accepted.";
    ACCEPT_ERRORS = "tandem_accept_errors_total", Counter, [], Stable, Main,
        "Failures of accept, such as running out of descriptors.";
    SHUTDOWN_PHASE = "tandem_shutdown_phase", Gauge, ["phase"], Stable, Main,
        "1 for the phase the process is in, 0 for the others.";
    FORCED_REQUESTS = "tandem_forced_requests_total", Counter, [], Stable, Main,
        "Requests ended by the router because the shutdown grace was over, or a drain forced them at its deadline.";
    ACCESS_LOG_LINES = "tandem_access_log_lines_total", Counter, [], Stable, Main,
        "Access lines written to the sink.";
    ACCESS_LOG_DROPPED = "tandem_access_log_dropped_lines_total", Counter, [], Stable, Main,
        "Access lines lost because the sink was slow, full or broken.";
    ACCESS_LOG_ERRORS = "tandem_access_log_write_errors_total", Counter, [], Stable, Main,
        "Failed writes to the access log sink.";
    API_KEY_RELOADS = "tandem_api_key_reloads_total", Counter, ["result"], Stable, Main,
        "Changes of the API key file that were taken over (ok) or refused (error).";
    CONFIG_RELOADS = "tandem_config_reloads_total", Counter, ["result"], Stable, Main,
        "Times the configuration file was read again and taken over (ok) or refused (error).";
    CONFIG_OK = "tandem_config_last_reload_successful", Gauge, [], Stable, Main,
        "1 unless the configuration file was refused when it was last read; the last good one is in force.";
    CONFIG_RESTART_NEEDED = "tandem_config_restart_needed_keys", Gauge, [], Stable, Main,
        "Keys of the configuration file whose new values wait for a restart.";
    SNAPSHOT_VERSION = "tandem_snapshot_version", Gauge, [], Stable, Main,
        "Version of the endpoint set that requests are decided on; grows with each change.";
    ENDPOINTS = "tandem_endpoints", Gauge, ["reason", "service"], Stable, Main,
        "Endpoints by why they are not selectable, and `selectable`.";
    PODS_WITHOUT_ENDPOINT = "tandem_pods_without_endpoint", Gauge, ["reason", "service"], Stable, Main,
        "Known Pods that give no endpoint, by why.";
    DISCOVERY_VIEW_AGE = "tandem_discovery_view_age_seconds", Gauge, ["service"], Stable, Main,
        "Since the last complete list of Pods was applied.";
    DISCOVERY_WATCH_AGE = "tandem_discovery_watch_age_seconds", Gauge, ["service"], Stable, Main,
        "Since the last word of the watch: its opening, an event or a bookmark.";
    DISCOVERY_RELISTS = "tandem_discovery_relists_total", Counter, ["result", "service"], Stable, Main,
        "Lists of Pods that were applied (ok), older than the newest applied one (discarded), or failed (error).";
    DISCOVERY_LIST_FAILURES = "tandem_discovery_list_failures_total", Counter, ["kind", "service"], Stable, Main,
        "Failed lists of Pods by kind of failure.";
    DISCOVERY_WATCH_ENDS = "tandem_discovery_watch_ends_total", Counter, ["kind", "service"], Stable, Main,
        "Watches that ended: by the server (end), or by a failure of this kind.";
    DISCOVERY_DRIFT = "tandem_discovery_drift_total", Counter, ["service"], Stable, Main,
        "Pods that a list changed and the watch did not tell within two seconds.";
    DISCOVERY_SKIPPED = "tandem_discovery_skipped_objects_total", Counter, ["reason", "service"], Stable, Main,
        "Pods that cannot be used or read, once for each reason.";
    ELIGIBILITY_LATCHED = "tandem_eligibility_latched", Gauge, ["role", "service"], Stable, Main,
        "1 once Pods of this role need the endpoint-eligible label (eligibility mode `observed`).";
    MASS_WITHDRAWALS = "tandem_mass_withdrawals_total", Counter, ["role", "service"], Stable, Main,
        "Times more than half of a role was withdrawn within a minute through Ready Unknown.";
    COHORT_REQUESTS = "tandem_cohort_requests_total", Counter, ["cohort", "service"], Stable, Main,
        "Requests that were decided for a cohort.";
    COHORT_PASSED_ON = "tandem_cohort_passed_on_total", Counter, ["reason", "cohort", "service"], Stable, Main,
        "Requests that fell to a cohort by its weight, could not be taken there, and went to another.";
    COHORT_WEIGHT = "tandem_cohort_weight", Gauge, ["cohort", "service"], Stable, Main,
        "Weight of a cohort relative to the service's others; 0: no new request.";
    COHORT_SELECTABLE = "tandem_cohort_selectable_endpoints", Gauge, ["role", "cohort", "service"], Stable, Main,
        "Endpoints of a cohort that may be given new requests.";
    SPLIT_VERSION = "tandem_split_version", Gauge, ["service"], Stable, Main,
        "Version of the split in force; 0: none, cohorts are weighted by what they can carry.";
    REVISION_REQUESTS = "tandem_revision_requests_total", Counter, ["namespace", "inferenceservice", "component", "revision_hash"], Stable, Main,
        "Attempts of requests on engines of this revision, at its component's end: of a pair each of the two counts it.";
    REVISION_ERRORS = "tandem_revision_errors_total", Counter, ["namespace", "inferenceservice", "component", "revision_hash"], Stable, Main,
        "Those that failed or were refused as busy, by whichever engine of the pair, also where a further attempt did better.";
    REVISION_TTFB = "tandem_revision_time_to_first_byte_seconds", Histogram, ["namespace", "inferenceservice", "component", "revision_hash"], Stable, Main,
        "From the request head read to the first response body byte, of requests that engines of this revision answered.";
    SPLIT_SOURCE_SAID = "tandem_split_source_states_total", Counter, ["state", "service"], Stable, Main,
        "States of the service's InferenceService that were read, by what they say of its weights.";
    SPLIT_SOURCE_FAILURES = "tandem_split_source_failures_total", Counter, ["kind", "service"], Stable, Main,
        "Failed reads of the service's InferenceService by kind of failure.";
    SPLIT_SOURCE_AGE = "tandem_split_source_age_seconds", Gauge, ["service"], Stable, Main,
        "Since the API server answered for the service's InferenceService.";
    LANES = "tandem_probe_lanes", Gauge, [], Stable, Main,
        "Engine URLs that are being asked before their first request.";
    PROBES = "tandem_probes_total", Counter, ["result"], Stable, Main,
        "Questions to engines before their first request, by whether the answer was good.";
    ENGINE_DRIFT = "tandem_engine_drift_total", Counter, ["fact", "service"], Stable, Main,
        "Contradictions between what an engine reports and its Pod's labels, by what it reported.";
    ENDPOINT_SERIES_DROPPED = "tandem_endpoint_series_dropped_total", Counter, [], Stable, Main,
        "Endpoints that got no series of their own because of the bound on endpoint series.";
    RUNTIME_TASKS = "tandem_runtime_tasks", Gauge, ["thread"], Unstable, Main,
        "Tasks that have not ended, by the thread whose runtime they run on.";
    BUILD_INFO = "tandem_build_info", Gauge, ["version"], Stable, Main,
        "Always 1; what is running.";
    PROCESS_CPU = "process_cpu_seconds_total", Counter, [], Stable, Main,
        "User and system CPU time of the process.";
    PROCESS_RSS = "process_resident_memory_bytes", Gauge, [], Stable, Main,
        "Resident memory of the process.";
    PROCESS_VIRTUAL = "process_virtual_memory_bytes", Gauge, [], Stable, Main,
        "Virtual memory of the process.";
    PROCESS_OPEN_FDS = "process_open_fds", Gauge, [], Stable, Main,
        "Open file descriptors.";
    PROCESS_MAX_FDS = "process_max_fds", Gauge, [], Stable, Main,
        "Soft limit of open file descriptors.";
    PROCESS_THREADS = "process_threads", Gauge, [], Stable, Main,
        "Threads of the process.";
    PROCESS_START = "process_start_time_seconds", Gauge, [], Stable, Main,
        "Start of the process since the Unix epoch.";
    ENDPOINT_TTFB = "tandem_endpoint_time_to_first_byte_seconds", Histogram, ["role", "url"], Stable, Endpoints,
        "From the choice of this endpoint to the head of its answer.";
    ENDPOINT_DURATION = "tandem_endpoint_duration_seconds", Histogram, ["role", "url"], Stable, Endpoints,
        "From the choice of this endpoint to the end of its response.";
    ENDPOINT_REQUESTS = "tandem_endpoint_requests_total", Counter, ["outcome", "role", "url"], Stable, Endpoints,
        "Requests to this endpoint that ended, each with exactly one outcome.";
    ENDPOINT_DIALS = "tandem_endpoint_dials_total", Counter, ["role", "url"], Stable, Endpoints,
        "Connections opened, or tried, to this endpoint.";
    ENDPOINT_REUSED = "tandem_endpoint_connections_reused_total", Counter, ["role", "url"], Stable, Endpoints,
        "Requests that were sent on a pooled connection.";
    ENDPOINT_EJECTIONS = "tandem_endpoint_ejections_total", Counter, ["role", "url"], Stable, Endpoints,
        "Times this endpoint was put last for a while after a failure.";
    ENDPOINT_FORCED = "tandem_endpoint_forced_total", Counter, ["role", "url"], Stable, Endpoints,
        "Requests that were cut on this endpoint because a drain's deadline asked for that.";
    ENDPOINT_IN_FLIGHT = "tandem_endpoint_in_flight", Gauge, ["role", "url"], Stable, Endpoints,
        "Requests this endpoint carries now.";
    ENDPOINT_IDLE = "tandem_endpoint_idle_connections", Gauge, ["role", "url"], Stable, Endpoints,
        "Pooled connections that wait for a request.";
    ENDPOINT_SELECTABLE = "tandem_endpoint_selectable", Gauge, ["role", "url"], Stable, Endpoints,
        "1 while this endpoint may be given new requests.";
    ENDPOINT_CARRIED = "tandem_endpoint_carried", Gauge, ["kind", "role", "url"], Stable, Endpoints,
        "What this endpoint carries now, by kind, as in the in-flight report.";
    ENDPOINT_WITHDRAWN = "tandem_endpoint_withdrawn_seconds", Gauge, ["role", "url"], Stable, Endpoints,
        "For so long this endpoint has been given no new requests; 0 while it may be.";
    ENDPOINT_LAST_DISPATCH = "tandem_endpoint_last_dispatch_timestamp_seconds", Gauge, ["role", "url"], Stable, Endpoints,
        "When the last request to this endpoint began, Unix time; 0: none did.";
    ENDPOINT_QUIESCED = "tandem_endpoint_quiesced", Gauge, ["role", "url"], Stable, Endpoints,
        "1 while this endpoint is given no new requests and carries none, nor KV for a decode to pull.";
}
