//! The README shows the example that the documentation tests.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

#[test]
fn the_readme_has_the_tested_example() {
    let readme = include_str!("../README.md");
    let example = include_str!("../docs/example.md").trim();
    assert!(readme.contains(example), "README.md lacks docs/example.md");
}
