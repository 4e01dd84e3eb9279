//! The one place where the kit starts tasks: they belong to the test and end with its runtime, or with
//! the handle that owns them.

use std::future::Future;

use tokio::task::JoinHandle;

#[expect(clippy::disallowed_methods, reason = "test rig: the task ends with the test's runtime")]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future)
}
