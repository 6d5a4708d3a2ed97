//! Prefill and decode speed on a prompt of given ids, for `tests/reference/speed_rounds.py`, which
//! runs it in alternation with other implementations.
//!
//! ```text
//! speed CHECKPOINT INPUTS DECODED_TOKENS [ANSWERS]
//! ```
//!
//! `INPUTS` is a safetensors file with `ids`, i32, as `tests/reference/speed_inputs.py` writes it.
//! Writes one JSON object an answer. The first also pays for what a GPU sets up.
#![allow(clippy::print_stdout, reason = "this is a command-line tool")]

use std::env;
use std::error::Error;
use std::fs;

use prefill_engine::{CachePolicy, Engine, Event, Finished, Request, Sampling};
use safetensors::{Dtype, SafeTensors};
use serde_json::json;

/// Answers, unless the command says how many.
const ANSWERS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [model, inputs, decoded, answers @ ..] = arguments.as_slice() else {
        return Err("usage: speed CHECKPOINT INPUTS DECODED_TOKENS [ANSWERS]".into());
    };
    let decoded = decoded.parse()?;
    let answers = answers.first().map_or(Ok(ANSWERS), |n| n.parse())?;
    let ids = read_ids(&fs::read(inputs)?)?;
    let engine = Engine::builder(model).build()?;
    for _ in 0..answers {
        let request = Request::from_ids(ids.clone())
            .sampling(Sampling::greedy())
            // All of it is to be computed, every time.
            .cache(CachePolicy::Bypass)
            .max_tokens(decoded)
            .ignore_ends();
        for event in engine.generate(request)? {
            if let Event::Finished(finished) = event? {
                println!("{}", report(&finished));
            }
        }
    }
    Ok(())
}

fn read_ids(file: &[u8]) -> Result<Vec<u32>, Box<dyn Error>> {
    let tensors = SafeTensors::deserialize(file)?;
    let ids = tensors.tensor("ids")?;
    if ids.dtype() != Dtype::I32 {
        return Err(format!("ids are {:?}, not I32", ids.dtype()).into());
    }
    let (values, _) = ids.data().as_chunks();
    let ids = values
        .iter()
        .map(|&value| Ok(u32::try_from(i32::from_le_bytes(value))?));
    ids.collect()
}

fn report(finished: &Finished) -> serde_json::Value {
    let statistics = &finished.statistics;
    let tokens = statistics.generated_tokens;
    json!({
        "prompt_tokens": statistics.prompt_tokens,
        "decoded_tokens": tokens,
        // As the others count: until the first token is there.
        "prefill_rate": statistics.prompt_tokens as f64
            / statistics.time_to_first_token.as_secs_f64(),
        "decode_rate": statistics.decode_rate(),
        "peak_memory": statistics.peak_memory,
        "host_microseconds_a_token": statistics.host_time.as_secs_f64() * 1e6 / tokens as f64,
    })
}
