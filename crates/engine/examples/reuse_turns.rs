//! What is reused, kept and written in each turn of a conversation about pictures, and what a
//! picture costs that is known already: tables for docs/performance/reuse.md.
//!
//! ```sh
//! cargo run --release -p prefill-engine --example reuse_turns -- MODEL FOLDER PICTURE [PICTURE...]
//! ```
//!
//! Each turn shows the next picture and asks about it, and what is kept is written after it. Then
//! a question about the first picture is asked under other system prompts, so that no prefix holds
//! it: with nothing kept, with the picture's features in memory, and with them on disk.
#![allow(clippy::print_stdout, reason = "this is a command-line tool")]

use std::error::Error;
use std::time::{Duration, UNIX_EPOCH};

use prefill_engine::{
    CacheOptions, CachePolicy, Conversation, DiskOptions, Engine, Event, Gate, Message, Request,
    Sampling, Statistics,
};

const ROUNDS: usize = 5;
const ANSWER: usize = 16;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(model), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: reuse_turns MODEL FOLDER PICTURE [PICTURE...]".into());
    };
    let pictures: Vec<String> = arguments.collect();
    // It is written when this program says so.
    let disk = DiskOptions::new(folder).write_after(Duration::from_secs(1 << 20));
    let cache = CacheOptions::default().gate(Gate::Open).disk(disk);
    let engine = Engine::builder(model).cache(cache).build()?;
    turns(&engine, &pictures)?;
    let Some(picture) = pictures.first() else {
        return Ok(());
    };
    known_picture(&engine, picture)
}

fn turns(engine: &Engine, pictures: &[String]) -> Result<()> {
    println!("| turn | prompt | from memory | fed | first token, s | kept, MB | written, MB |");
    println!("|---|---|---|---|---|---|---|");
    let mut conversation = Conversation::default();
    conversation.push(Message::system().text("You are asked about pictures. ".repeat(100)));
    for (turn, picture) in pictures.iter().enumerate() {
        let message = Message::user().image(picture.clone());
        conversation.push(message.text("What is in this picture?"));
        let before = engine.cache_stats().written_bytes;
        let (text, statistics) = ask(engine, &conversation, CachePolicy::ReadWrite)?;
        engine.flush_cache()?;
        println!(
            "| {} | {} | {} | {} | {:.4} | {:.1} | {:.1} |",
            turn + 1,
            statistics.prompt_tokens,
            statistics.reused.ram_tokens,
            statistics.computed_tokens(),
            statistics.time_to_first_token.as_secs_f64(),
            statistics.reused.kept_bytes as f64 / 1e6,
            (engine.cache_stats().written_bytes - before) as f64 / 1e6,
        );
        conversation.push(Message::assistant().text(text));
    }
    Ok(())
}

fn known_picture(engine: &Engine, picture: &str) -> Result<()> {
    println!("\n| features | tower, ms | first token, ms |");
    println!("|---|---|---|");
    let mut rows = Vec::new();
    for round in 0..=ROUNDS {
        // Another system prompt each time, also than those of an earlier run in this folder.
        let show = |policy| -> Result<Statistics> {
            let stamp = UNIX_EPOCH.elapsed()?.as_nanos();
            let mut conversation = Conversation::default();
            conversation.push(Message::system().text(format!("Number {stamp}.")));
            let message = Message::user().image(picture.to_owned());
            conversation.push(message.text("What is in this picture?"));
            Ok(ask(engine, &conversation, policy)?.1)
        };
        let computed = show(CachePolicy::Bypass)?;
        // In memory from here on, if it was not.
        show(CachePolicy::ReadWrite)?;
        let memory = show(CachePolicy::ReadWrite)?;
        engine.flush_cache()?;
        engine.clear_memory_cache()?;
        let disk = show(CachePolicy::ReadWrite)?;
        let found = (memory.reused.ram_media, disk.reused.disk_media);
        if found != (1, 1) {
            return Err(format!("the picture was not found: {found:?}").into());
        }
        if round > 0 {
            rows.push([computed, memory, disk]);
        }
    }
    for (index, name) in ["computed", "in memory", "on disk"].into_iter().enumerate() {
        let median = |time: fn(&Statistics) -> Duration| {
            let mut times: Vec<_> = rows.iter().map(|row| time(&row[index])).collect();
            times.sort();
            times[times.len() / 2].as_secs_f64() * 1e3
        };
        println!(
            "| {name} | {:.2} | {:.2} |",
            median(|s| s.encode_time),
            median(|s| s.time_to_first_token),
        );
    }
    Ok(())
}

fn ask(
    engine: &Engine,
    conversation: &Conversation,
    policy: CachePolicy,
) -> Result<(String, Statistics)> {
    let request = Request::new(conversation.clone())
        .cache(policy)
        .max_tokens(ANSWER)
        .sampling(Sampling::greedy());
    let mut text = String::new();
    for event in engine.generate(request)? {
        match event? {
            Event::Text(part) => text.push_str(&part),
            Event::Finished(end) => return Ok((text, end.statistics)),
            _ => {}
        }
    }
    Err("no end".into())
}
