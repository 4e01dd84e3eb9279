//! 2. Bytes to what we need to know.
