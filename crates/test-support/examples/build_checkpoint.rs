//! Writes a tiny checkpoint, for trying a program on it by hand.
//!
//! ```sh
//! cargo run -p prefill-test-support --example build_checkpoint -- gemma4_e2b FOLDER [bf16] [pruned] [text-only] [shards=N]
//! ```

use std::path::Path;

use prefill_test_support::{Checkpoint, DType};

const USAGE: &str = "usage: build_checkpoint MODEL FOLDER [bf16] [pruned] [text-only] [shards=N]";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, folder, options @ ..] = &arguments[..] else {
        return Err(USAGE.into());
    };
    let mut checkpoint = Checkpoint::named(model)?;
    for option in options {
        checkpoint = match option.as_str() {
            "bf16" => checkpoint.dtype(DType::Bf16),
            "pruned" => checkpoint.prune_unused(),
            "text-only" => checkpoint.text_only(),
            other => match other.strip_prefix("shards=").map(str::parse) {
                Some(Ok(count)) => checkpoint.shards(count),
                _ => return Err(format!("unknown option {other}; {USAGE}").into()),
            },
        };
    }
    checkpoint.write(Path::new(folder))?;
    Ok(())
}
