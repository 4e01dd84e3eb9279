//! The product's way to the server.

use crate::discovery::kube::{Connect, Connecting};

use super::front::Entry;

impl Connect for Entry {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async move { Ok(self.client()) })
    }
}
