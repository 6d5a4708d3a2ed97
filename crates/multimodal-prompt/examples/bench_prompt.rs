//! Times what becomes of one conversation, step by step, for `tests/reference/prompt/bench.py`.
//!
//! ```sh
//! cargo run --release -p prefill-multimodal-prompt --example bench_prompt -- FOLDER TEMPLATE MESSAGES ROUNDS
//! ```
//!
//! FOLDER holds `tokenizer.json`, MESSAGES is a JSON file. Prints the best of the rounds in
//! milliseconds, and the ids' number and SHA-256.
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::fmt::Write;
use std::time::Instant;

use prefill_multimodal_prompt::{
    BlockKeys, ChatTemplate, Gemma4Medium, Gemma4Rules, Gemma4Splicer, KeySpace, MediaKind,
    MessageRules, TemplateOptions, Tokens,
};
use sha2::{Digest, Sha256};

/// Soft tokens of each picture.
const SOFT_TOKENS: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, template, messages, rounds] = arguments.as_slice() else {
        return Err("FOLDER TEMPLATE MESSAGES ROUNDS".into());
    };
    let tokens = Tokens::from_folder(folder.as_ref())?;
    let template = ChatTemplate::new(&std::fs::read_to_string(template)?)?;
    let messages = std::fs::read_to_string(messages)?;
    let splicer = Gemma4Splicer::new(&tokens, Gemma4Rules::Vision);
    let options = TemplateOptions {
        add_generation_prompt: true,
        bos_token: "<bos>".to_owned(),
        ..TemplateOptions::default()
    };
    let mut best = [f64::INFINITY; 5];
    let mut ids = Vec::new();
    for _ in 0..rounds.parse::<usize>()? {
        let clock = Instant::now();
        let elapsed = || clock.elapsed().as_secs_f64() * 1e3;
        let conversation = MessageRules::default().parse(&messages)?;
        let read = elapsed();
        let text = template.render(conversation.messages(), &options)?;
        let rendered = elapsed();
        let media: Vec<_> = (0..conversation.media().len() as u8)
            .map(|medium| Gemma4Medium::Image {
                soft_tokens: SOFT_TOKENS,
                digest: [medium; 32],
            })
            .collect();
        let prompt = splicer.splice(&tokens, &text, &media)?;
        let spliced = elapsed();
        ids.clone_from(&prompt.ids);
        let space = KeySpace::new([1; 32]).encoder(MediaKind::Image, [2; 32]);
        let keys = BlockKeys::new(space, prompt)?;
        let keyed = elapsed();
        std::hint::black_box(keys.blocks());
        // The tokenizer alone, on the same text.
        let clock = Instant::now();
        std::hint::black_box(tokens.encode(&text)?);
        let encoded = clock.elapsed().as_secs_f64() * 1e3;
        for (best, time) in best.iter_mut().zip([
            read,
            rendered - read,
            spliced - rendered,
            keyed - spliced,
            encoded,
        ]) {
            *best = best.min(time);
        }
    }
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let mut digest = String::new();
    for byte in Sha256::digest(&bytes) {
        write!(digest, "{byte:02x}")?;
    }
    let [read, rendered, spliced, keys, encoded] = best;
    println!(
        "{{\"read\": {read}, \"render\": {rendered}, \"splice\": {spliced}, \"keys\": {keys}, \
         \"encode\": {encoded}, \"ids\": {}, \"sha256\": \"{digest}\"}}",
        ids.len()
    );
    Ok(())
}
