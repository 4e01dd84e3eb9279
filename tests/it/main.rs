//! Integration tests: whole conversations over real sockets. See `tests/README.md` for what belongs here.

mod architecture;
mod budgets;
mod config;
mod openai_sdk;
mod no_body;
mod relay;
mod upstream;
