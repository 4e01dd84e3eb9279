//! `tandem router`: flags for the common static case, a file for the rest.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::exit::{Exit, fail, report};
use super::help;
use crate::config::{self, File, FlagValue, Flags, Source};

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
    keys: KeyFlags,
}

/// One service without a file.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "One service without a file")]
struct ServiceFlags {
    /// Engine to route to, http://HOST:PORT; may be repeated. Together they are one service named `default`
    #[arg(long, value_name = "URL")]
    worker: Vec<String>,
    /// Model name it answers to; may be repeated. None: every name
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
    /// Choice of engine: `round_robin`, `least_in_flight` (default) or `power_of_two`
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
}

/// Defines the flags that set one key each, and the list that carries them to the reader.
macro_rules! key_flags {
    ($($field:ident, $flag:literal, $name:literal, $key:literal, $help:literal;)*) => {
        /// Each sets the key of the configuration that its help names.
        #[derive(Debug, Default, Args)]
        #[command(next_help_heading = "Keys of the configuration")]
        struct KeyFlags {
            $(
                #[arg(long = $flag, value_name = $name, help = concat!($help, " [key: ", $key, "]"))]
                $field: Option<String>,
            )*
        }

        impl KeyFlags {
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
        let file = match self.config.as_deref().map(File::read).transpose() {
            Ok(file) => file,
            Err(problem) => return report(&[problem]),
        };
        match config::load(&Source { file, environment, flags: self.flags() }) {
            Ok(config) => crate::app::run(config).map_or_else(|error| fail(&error), |()| Exit::Ok),
            Err(problems) => report(&problems),
        }
    }

    fn flags(&self) -> Flags {
        Flags {
            values: self.keys.values(),
            workers: self.service.worker.clone(),
            models: self.service.model.clone(),
            policy: self.service.policy.clone(),
        }
    }

    #[cfg(test)]
    pub(super) fn every_flag() -> Flags {
        Self { keys: KeyFlags::every(), ..Self::default() }.flags()
    }
}
