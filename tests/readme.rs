//! The README shows the example that the documentation tests.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

#[test]
fn the_readme_has_the_tested_examples() {
    let readme = include_str!("../README.md");
    for (name, example) in [
        ("example.md", include_str!("../docs/example.md")),
        ("example_reuse.md", include_str!("../docs/example_reuse.md")),
    ] {
        assert!(
            readme.contains(example.trim()),
            "README.md lacks docs/{name}"
        );
    }
}
