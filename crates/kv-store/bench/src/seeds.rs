//! The seeds' block layout, re-created from what it does: rows are cut into blocks of at most
//! 1 MiB, each hashed with SHA-256, written to a temporary file, synced and renamed; a JSON
//! table comes last. Reading opens, reads and hashes block by block.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::ours::Cache;

const BLOCK: usize = 1 << 20;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn write(folder: &Path, cache: &Cache, salt: usize) {
    let blocks = folder.join("blocks");
    fs::create_dir_all(&blocks).unwrap();
    let mut table = format!("{{\"salt\":{salt},\"blocks\":[");
    for row in cache.head_rows() {
        for block in row.chunks(BLOCK) {
            let name = hex(&Sha256::digest(block));
            let path = blocks.join(&name);
            table.push_str(&format!(
                "{{\"hash\":\"{name}\",\"bytes\":{}}},",
                block.len()
            ));
            if path.exists() {
                continue;
            }
            let temporary = path.with_extension("tmp");
            let mut file = File::create(&temporary).unwrap();
            file.write_all(block).unwrap();
            file.sync_all().unwrap();
            drop(file);
            fs::rename(temporary, path).unwrap();
        }
    }
    table.push_str("]}");
    let temporary = folder.join("table.tmp");
    let mut file = File::create(&temporary).unwrap();
    file.write_all(table.as_bytes()).unwrap();
    file.sync_all().unwrap();
    fs::rename(temporary, folder.join("table.mlxkv")).unwrap();
    *cache.written.borrow_mut() = table
        .split("\"hash\":\"")
        .skip(1)
        .map(|part| part[..64].to_owned())
        .collect();
}

pub fn read(folder: &Path, cache: &Cache, memory: &mut [u8]) {
    let names = cache.written.borrow();
    let blocks = folder.join("blocks");
    let mut names = names.iter();
    for range in cache.head_ranges() {
        for block in memory[range].chunks_mut(BLOCK) {
            let name = names.next().unwrap();
            let file = File::open(blocks.join(name)).unwrap();
            file.read_exact_at(block, 0).unwrap();
            assert_eq!(hex(&Sha256::digest(&*block)), *name);
        }
    }
}
