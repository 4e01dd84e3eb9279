//! Waiting for a state instead of sleeping for it.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use crate::types::clock::now;

const PAUSE: Duration = Duration::from_millis(5);

/// Asks until the probe says `Ok`, and returns that; panics with the last `Err` when `timeout` passes first.
/// Asks at least once more at the end, and a paused clock advances between the probes.
pub async fn eventually<T, E: Debug>(
    timeout: Duration,
    what: &str,
    mut probe: impl FnMut() -> Result<T, E>,
) -> T {
    eventually_async(timeout, what, || std::future::ready(probe())).await
}

/// [`eventually`] with an asynchronous probe.
pub async fn eventually_async<T, E: Debug, F: Future<Output = Result<T, E>>>(
    timeout: Duration,
    what: &str,
    mut probe: impl FnMut() -> F,
) -> T {
    let deadline = now() + timeout;
    loop {
        let late = now() >= deadline;
        match probe().await {
            Ok(value) => return value,
            Err(last) if late => panic!("waited {timeout:?} for {what}; last seen: {last:?}"),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Waits until the probe gives `expected`; panics with the last other value.
pub async fn eventually_eq<T: Debug + PartialEq>(
    timeout: Duration,
    what: &str,
    expected: T,
    mut probe: impl FnMut() -> T,
) {
    let what = format!("{what} = {expected:?}");
    eventually(timeout, &what, || {
        let value = probe();
        if value == expected { Ok(()) } else { Err(value) }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_returns_as_soon_as_the_probe_agrees() {
        let started = now();
        let mut asked = 0;
        let probe = || {
            asked += 1;
            if asked == 3 { Ok("there") } else { Err(asked) }
        };
        assert_eq!(eventually(Duration::from_secs(9), "three", probe).await, "there");
        assert_eq!(now() - started, PAUSE * 2);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited 1s for ready = 2; last seen: 1")]
    async fn the_last_value_is_in_the_message() {
        eventually_eq(Duration::from_secs(1), "ready", 2, || 1).await;
    }
}
