//! Looks after a store: `cargo run -p prefill-kv-store --example kv -- FOLDER stats`.

#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use prefill_kv_store::{Error, Export, Kind, Listed, Namespace, Options, Result, Store};

/// Looks after a store of KV blocks: lists, verifies, collects, wipes, exports and imports.
#[derive(Parser)]
struct Cli {
    /// The store's folder.
    folder: PathBuf,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Show what is in the store, by namespace.
    List {
        /// Only this namespace.
        #[arg(long)]
        namespace: Option<String>,
        /// Show content blocks too.
        #[arg(long)]
        blocks: bool,
    },
    /// Show sizes and counts.
    Stats,
    /// Read everything and check every byte.
    Verify,
    /// Free what nobody can find.
    Collect,
    /// Remove a namespace, or everything.
    Wipe {
        /// The namespace.
        #[arg(required_unless_present = "all")]
        namespace: Option<String>,
        /// Remove all namespaces.
        #[arg(long, conflicts_with = "namespace")]
        all: bool,
        /// Remove files that this program can't read as well.
        #[arg(long)]
        foreign: bool,
    },
    /// Write a snapshot to a file.
    Export {
        /// Its namespace.
        namespace: String,
        /// Its name.
        snapshot: String,
        /// The file, which must not exist.
        file: PathBuf,
    },
    /// Read a snapshot, or records, from a file.
    Import {
        /// The namespace to put them in.
        namespace: String,
        /// The file.
        file: PathBuf,
    },
}

fn main() {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            println!("error: {error}");
            std::process::exit(2);
        }
    }
}

fn run(cli: &Cli) -> Result<bool> {
    let writable = || Store::open(&cli.folder, Options::default());
    let readable = || Store::open_read_only(&cli.folder, Options::default());
    match &cli.action {
        Action::List { namespace, blocks } => list(&readable()?, namespace.as_deref(), *blocks),
        Action::Stats => stats(&readable()?),
        Action::Verify => return verify(&readable()?),
        Action::Collect => {
            let report = writable()?.collect()?;
            let freed = HumanBytes(report.before.saturating_sub(report.after));
            println!("{} records removed, {freed} freed", report.records);
        }
        Action::Wipe {
            namespace, foreign, ..
        } => {
            let store = writable()?;
            let records = match namespace {
                Some(name) => store.wipe(&Namespace::new(name)?)?,
                None => store.wipe_all()?,
            };
            println!("{records} records removed");
            if *foreign {
                println!(
                    "{} of foreign files removed",
                    HumanBytes(store.remove_foreign()?)
                );
            }
        }
        Action::Export {
            namespace,
            snapshot,
            file,
        } => {
            let io = |source| Error::Io {
                action: "create",
                path: file.clone(),
                source,
            };
            let mut out = BufWriter::new(File::create_new(file).map_err(io)?);
            let (space, what) = (Namespace::new(namespace)?, Export::Snapshot(snapshot));
            let bytes = with_bar(|bar| readable()?.export(&space, what, &mut out, bar))?;
            println!("{} written to {}", HumanBytes(bytes), file.display());
        }
        Action::Import { namespace, file } => {
            let io = |source| Error::Io {
                action: "open",
                path: file.clone(),
                source,
            };
            let mut input = BufReader::new(File::open(file).map_err(io)?);
            let space = Namespace::new(namespace)?;
            let report = with_bar(|bar| writable()?.import(&space, &mut input, bar))?;
            let bytes = HumanBytes(report.bytes_written);
            println!(
                "{} records added ({bytes}), {} there already",
                report.written, report.skipped
            );
        }
    }
    Ok(true)
}

/// Shows a bar while something reports how far it has come.
fn with_bar<T>(run: impl FnOnce(&mut dyn FnMut(u64, u64) -> bool) -> Result<T>) -> Result<T> {
    let style = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    let result = run(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        true
    });
    bar.finish_and_clear();
    result
}

fn list(store: &Store, namespace: Option<&str>, blocks: bool) {
    let all = store.list();
    let shown = all.iter().filter(|l| {
        namespace.is_none_or(|n| n == l.record.namespace)
            && (blocks || l.record.kind != Kind::Content)
    });
    let mut current = None;
    for listed in shown {
        if current != Some(&listed.record.namespace) {
            println!("\n{:?}", listed.record.namespace);
            println!(
                "  {:<9} {:<14} {:>11} {:>8}  tensors",
                "kind", "key or name", "bytes", "cost"
            );
            current = Some(&listed.record.namespace);
        }
        println!("  {}", line(listed));
    }
}

fn line(listed: &Listed) -> String {
    let record = &listed.record;
    let mut name = record.key.to_string();
    name.truncate(12);
    let (mut bytes, mut tensors) = (record.bytes, &record.tensors[..]);
    if let Some(snapshot) = &listed.snapshot {
        name.clone_from(&snapshot.name);
        (bytes, tensors) = (snapshot.bytes, &snapshot.tensors);
    }
    let mut described: Vec<String> = tensors
        .iter()
        .take(2)
        .map(|t| format!("{} {}{:?}", t.name, t.dtype, t.shape))
        .collect();
    if tensors.len() > 2 {
        described.push(format!("and {} more", tensors.len() - 2));
    }
    let bytes = HumanBytes(bytes).to_string();
    format!(
        "{:<9} {name:<14} {bytes:>11} {:>8}  {}",
        record.kind,
        record.cost,
        described.join(", ")
    )
}

fn stats(store: &Store) {
    let stats = store.stats();
    println!("records        {:>12}", stats.records);
    println!("commits        {:>12}", stats.commits);
    println!("namespaces     {:>12}", store.namespaces().len());
    println!(
        "bytes used     {:>12}",
        HumanBytes(stats.used_bytes).to_string()
    );
    println!(
        "foreign bytes  {:>12}",
        HumanBytes(stats.foreign_bytes).to_string()
    );
    println!("foreign files  {:>12}", stats.foreign_files);
}

fn verify(store: &Store) -> Result<bool> {
    let start = std::time::Instant::now();
    let report = with_bar(|bar| store.verify(bar))?;
    let seconds = start.elapsed().max(Duration::from_millis(1)).as_secs_f64();
    let rate = HumanBytes((report.bytes as f64 / seconds) as u64);
    println!(
        "{} records sound, {} read, {rate} a second",
        report.sound,
        HumanBytes(report.bytes)
    );
    for (namespace, key, reason) in &report.damaged {
        println!("damaged: {namespace:?} {key}: {reason}");
    }
    for file in &report.foreign {
        println!("foreign: {file}");
    }
    Ok(report.is_sound())
}
