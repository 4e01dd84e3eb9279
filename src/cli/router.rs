//! `tandem router`: flags for the common static case, a file for the rest.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::exit::{Exit, fail, report};
use super::help;
use crate::config::{FlagValue, Flags, Origin};

/// Run the router
#[derive(Debug, Default, Args)]
#[command(after_help = help::ROUTER, after_long_help = help::ROUTER)]
pub(super) struct Router {
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "TANDEM_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,

    #[command(flatten)]
    service: ServiceFlags,
    #[command(flatten)]
    engine: EngineFlags,
    #[command(flatten)]
    keys: KeyFlags,
}

/// One service without a file.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "One service without a file")]
struct ServiceFlags {
    /// Engine that serves whole requests, http://HOST:PORT; may be repeated. Together with the prefill and decode
    /// engines they are one service named `default`
    #[arg(long, value_name = "URL")]
    worker: Vec<String>,
    /// Prefill engine, for SGLang with the port of its bootstrap server if that is not 8998; may be repeated
    #[arg(long, value_name = "URL[,bootstrap=PORT]")]
    prefill: Vec<String>,
    /// Decode engine, http://HOST:PORT; may be repeated
    #[arg(long, value_name = "URL")]
    decode: Vec<String>,
    /// Model name it answers to; may be repeated. None: every name
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
    /// Choice of engine, for every role: `round_robin`, `least_in_flight` (default) or `power_of_two`
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
}

/// Defines flags that set one key each, and the list that carries them to the reader.
macro_rules! key_flags {
    ($struct:ident, $heading:literal; $($field:ident, $flag:literal, $name:literal, $key:literal, $help:literal;)*) => {
        /// Each sets the key of the configuration that its help names.
        #[derive(Debug, Default, Args)]
        #[command(next_help_heading = $heading)]
        struct $struct {
            $(
                #[arg(long = $flag, value_name = $name, help = concat!($help, " [key: ", $key, "]"))]
                $field: Option<String>,
            )*
        }

        impl $struct {
            fn values(&self) -> Vec<FlagValue> {
                let given = [$((concat!("--", $flag), $key, &self.$field),)*];
                let value = |(flag, key, value): (_, _, &Option<String>)| {
                    value.clone().map(|value| FlagValue { flag, key, value })
                };
                given.into_iter().filter_map(value).collect()
            }

            #[cfg(test)]
            fn every() -> Self {
                Self { $($field: Some(String::new()),)* }
            }
        }
    };
}

key_flags! {
    EngineFlags, "One service without a file";
    engine, "engine", "KIND", "services[].engine.kind", "`plain` (default), `sglang` or `vllm`";
    connector, "connector", "NAME", "services[].engine.connector", "How vLLM hands KV over: `nixl` (default) or `store`";
    handoff_max_age, "handoff-max-age", "TIME", "services[].upstream.handoff_max_age", "Oldest KV parameters a vLLM decode is sent, such as 15s";
    kv_lease, "kv-lease", "TIME", "services[].upstream.kv_lease", "How long a vLLM prefill keeps KV that nobody asks for, such as 30s";
    cancel_decode_grace, "cancel-decode-grace", "TIME", "services[].upstream.cancel_decode_grace", "How long an SGLang pair goes on that is given up, or `auto`";
}

key_flags! {
    KeyFlags, "Keys of the configuration";
    listen, "listen", "IP:PORT", "listen", "Front door";
    admin_listen, "admin-listen", "IP:PORT", "admin.listen", "Probes, metrics and operator routes";
    admin_token_file, "admin-token-file", "FILE", "admin.token_file", "Token of operator routes that change something";
    api_keys_file, "api-keys-file", "FILE", "api_keys_file", "Front-door API keys, one a line";
    threads, "threads", "N", "threads", "Traffic threads, or `auto`";
    body_limit, "body-limit", "SIZE", "limits.body", "Largest request body, such as 64MiB";
    in_flight, "in-flight", "N", "limits.in_flight", "Most requests at once; 0: no limit";
    first_byte_timeout, "first-byte-timeout", "TIME", "timeouts.first_byte", "Wait for an engine's first byte, such as 600s";
    idle_timeout, "idle-timeout", "TIME", "timeouts.idle", "Longest silence inside an answer";
    shutdown_delay, "shutdown-delay", "TIME", "shutdown.delay", "After SIGTERM: keep accepting, unready";
    grace, "grace", "TIME", "shutdown.grace", "After that: let open requests finish";
    access_log, "access-log", "SINK", "access_log.sink", "`off`, `stdout` or a path";
    access_log_format, "access-log-format", "FORMAT", "access_log.format", "`json` or `text`";
    access_log_sample, "access-log-sample", "SHARE", "access_log.sample", "Share of successful requests logged, such as 5%";
    log_level, "log-level", "LEVEL", "log.level", "`error`, `warn`, `info`, `debug` or `trace`";
    log_format, "log-format", "FORMAT", "log.format", "Diagnostics as `json` or `text`";
}

impl Router {
    pub(super) fn run(&self, environment: Vec<(OsString, OsString)>) -> Exit {
        let origin = Origin { file: self.config.clone(), environment, flags: self.flags() };
        match origin.load() {
            Ok(config) => crate::app::run(config, origin).map_or_else(|error| fail(&error), |()| Exit::Ok),
            Err(problems) => report(&problems),
        }
    }

    fn flags(&self) -> Flags {
        Flags {
            values: [self.engine.values(), self.keys.values()].concat(),
            workers: self.service.worker.clone(),
            prefills: self.service.prefill.clone(),
            decodes: self.service.decode.clone(),
            models: self.service.model.clone(),
            policy: self.service.policy.clone(),
        }
    }

    #[cfg(test)]
    pub(super) fn every_flag() -> Flags {
        Self { keys: KeyFlags::every(), engine: EngineFlags::every(), ..Self::default() }.flags()
    }
}
