//! Reading traces.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::MultiGzDecoder;
use prefill_retention::replay::Request;
use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    input_length: u64,
    hash_ids: Vec<u64>,
}

pub(crate) fn read(path: &Path) -> Result<Vec<Request>> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let reader: Box<dyn Read> = if path.extension().is_some_and(|extension| extension == "gz") {
        Box::new(MultiGzDecoder::new(file))
    } else {
        Box::new(file)
    };
    let mut trace = Vec::new();
    for (number, line) in BufReader::new(reader).lines().enumerate() {
        let at = || format!("{} line {}", path.display(), number + 1);
        let line = line.with_context(at)?;
        if line.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(&line).with_context(at)?;
        trace.push(Request {
            blocks: line.hash_ids,
            tokens: line.input_length,
        });
    }
    Ok(trace)
}

pub(crate) fn distinct_blocks(trace: &[Request]) -> u64 {
    trace
        .iter()
        .flat_map(|request| &request.blocks)
        .collect::<HashSet<_>>()
        .len() as u64
}
