//! Commands of this workspace.
fn main() {}
