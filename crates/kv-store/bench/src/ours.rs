//! The store's side, and the data that all subjects write: the K and V of 28 layers with 8 heads
//! of 128 in bf16, in buffers with room for 256-token steps, as a KV cache lies in memory.

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use prefill_kv_store::{
    Batch, DType, Key, Kind, Layout, Namespace, Options, Placement, Record, Snapshot, Store, View,
};

const TENSORS: usize = 56;
const HEADS: usize = 8;
const DIM: usize = 128;
const BLOCK_TOKENS: usize = 256;

pub struct Cache {
    tokens: usize,
    capacity: usize,
    bytes: Vec<u8>,
    names: Vec<String>,
    /// What the seeds' scheme wrote.
    pub(crate) written: RefCell<Vec<String>>,
}

impl Cache {
    pub fn new(tokens: usize) -> Self {
        let capacity = tokens.next_multiple_of(BLOCK_TOKENS);
        let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ tokens as u64;
        let len = TENSORS * HEADS * capacity * DIM * 2;
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        let names = (0..TENSORS)
            .map(|t| format!("{}.{}", t / 2, t % 2))
            .collect();
        Self {
            tokens,
            capacity,
            bytes,
            names,
            written: RefCell::default(),
        }
    }

    pub fn bytes(&self) -> usize {
        TENSORS * HEADS * self.tokens * DIM * 2
    }

    pub fn capacity_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Where each head of each tensor lies.
    pub fn head_ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (stride, len) = (self.capacity * DIM * 2, self.tokens * DIM * 2);
        (0..TENSORS * HEADS).map(move |head| head * stride..head * stride + len)
    }

    pub fn head_rows(&self) -> impl Iterator<Item = &[u8]> {
        self.head_ranges().map(|range| &self.bytes[range])
    }

    pub fn memcpy(&self, memory: &mut [u8]) {
        for range in self.head_ranges() {
            memory[range.clone()].copy_from_slice(&self.bytes[range]);
        }
    }

    pub fn check(&self, memory: &[u8]) {
        assert!(
            self.head_ranges()
                .all(|r| memory[r.clone()] == self.bytes[r]),
            "wrong bytes"
        );
    }

    fn tensor(&self, t: usize) -> Layout {
        let all = Layout::contiguous(&[TENSORS, HEADS, self.capacity, DIM]).unwrap();
        all.narrow(0, t, 1)
            .unwrap()
            .narrow(2, 0, self.tokens)
            .unwrap()
    }

    fn rows(&self, t: usize, block: &Range<usize>) -> Layout {
        self.tensor(t).narrow(2, block.start, block.len()).unwrap()
    }

    fn blocks(&self) -> Vec<Range<usize>> {
        (0..self.tokens)
            .step_by(BLOCK_TOKENS)
            .map(|t| t..(t + BLOCK_TOKENS).min(self.tokens))
            .collect()
    }

    fn view(&self, layout: Layout) -> View<'_> {
        View::new(&self.bytes, DType::Bf16, layout).unwrap()
    }
}

fn key(n: usize) -> Key {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&(n as u64).to_le_bytes());
    Key::new(bytes)
}

fn space() -> Namespace {
    Namespace::new("bench").unwrap()
}

pub fn open(folder: &Path, threads: usize) -> Store {
    Store::open(
        folder,
        Options {
            threads,
            ..Default::default()
        },
    )
    .unwrap()
}

pub fn put(folder: &Path, cache: &Cache, threads: usize) {
    put_in(&open(folder, threads), cache);
}

pub fn put_in(store: &Store, cache: &Cache) {
    let mut batch = Batch::new();
    for (i, block) in cache.blocks().into_iter().enumerate() {
        let mut record = Record::new(key(i), Kind::Rows).cost(block.len() as f64);
        for t in 0..TENSORS {
            record = record.tensor(&cache.names[t], cache.view(cache.rows(t, &block)));
        }
        batch.push(record);
    }
    store.put(&space(), &batch).unwrap();
}

pub fn save(folder: &Path, cache: &Cache, threads: usize) {
    let mut snapshot = Snapshot::new("s");
    for t in 0..TENSORS {
        snapshot = snapshot.growing(
            &cache.names[t],
            cache.view(cache.tensor(t)),
            2,
            BLOCK_TOKENS,
        );
    }
    open(folder, threads).save(&space(), &snapshot).unwrap();
}

pub struct Reader {
    store: Store,
    placements: Vec<Placement>,
}

impl Reader {
    pub fn new(folder: &Path, cache: &Cache, threads: usize) -> Self {
        let mut placements = Vec::new();
        for (i, block) in cache.blocks().into_iter().enumerate() {
            for tensor in 0..TENSORS {
                let layout = cache.rows(tensor, &block);
                placements.push(Placement {
                    key: key(i),
                    tensor,
                    buffer: 0,
                    layout,
                });
            }
        }
        Self {
            store: open(folder, threads),
            placements,
        }
    }

    pub fn read(&self, memory: &mut [u8]) {
        self.store
            .read_into(&space(), &self.placements, &mut [memory])
            .unwrap();
    }
}

/// Eight turns of 300 to 1,200 tokens, each saved as it ends.
pub fn turns(folder: &Path) {
    let cache = Cache::new(8192);
    let per_token = TENSORS * HEADS * DIM * 2;
    for continued in [false, true] {
        let path = folder.join(if continued { "continued" } else { "by-content" });
        let store = open(&path, 2);
        let (mut tokens, mut previous): (usize, Option<String>) = (0, None);
        let (mut ratios, mut hashed) = (Vec::new(), Vec::new());
        for (turn, new) in [1200, 300, 700, 450, 1100, 380, 910, 640]
            .into_iter()
            .enumerate()
        {
            let name = format!("turn {turn}");
            let before = tokens;
            tokens += new;
            let mut snapshot = Snapshot::new(&name);
            for t in 0..TENSORS {
                let view = cache.view(cache.tensor(t)).narrow(2, 0, tokens).unwrap();
                snapshot = snapshot.growing(&cache.names[t], view, 2, BLOCK_TOKENS);
            }
            if let (true, Some(previous)) = (continued, &previous) {
                snapshot = snapshot.continues(previous, before);
            }
            let start = Instant::now();
            let report = store.save(&space(), &snapshot).unwrap();
            ratios.push(report.bytes_written as f64 / (new * per_token) as f64);
            hashed.push(start.elapsed().as_millis());
            previous = Some(name);
        }
        let label = if continued {
            "continues(previous)"
        } else {
            "found by content only"
        };
        println!("{label}: each turn {ratios:.3?}, {hashed:?} ms");
    }
}

/// Time of each tenth of the puts, of opening, and of look-ups.
pub fn many(folder: &Path, blocks: usize, per_batch: usize) {
    let store = Store::open(
        folder,
        Options {
            threads: 2,
            ..Default::default()
        },
    )
    .unwrap();
    let data = vec![7u8; 4096];
    let view = View::contiguous(&data, DType::Bf16, &[8, 256]).unwrap();
    let mut tenths = Vec::new();
    let mut start = Instant::now();
    for (done, first) in (0..blocks).step_by(per_batch).enumerate() {
        let mut batch = Batch::new();
        for n in first..(first + per_batch).min(blocks) {
            let record = Record::new(key(n), Kind::Rows)
                .cost(1.0)
                .tensor("k", view.clone());
            batch.push(if n > first {
                record.parent(key(n - 1))
            } else {
                record
            });
        }
        store.put(&space(), &batch).unwrap();
        if (done + 1) % (blocks / per_batch / 10) == 0 {
            tenths.push(start.elapsed().as_secs_f64());
            start = Instant::now();
        }
    }
    drop(store);
    let start = Instant::now();
    let store = Store::open(
        folder,
        Options {
            threads: 2,
            ..Default::default()
        },
    )
    .unwrap();
    let opened = start.elapsed().as_secs_f64();
    let keys: Vec<Key> = (0..blocks).map(key).collect();
    let start = Instant::now();
    assert_eq!(store.longest_prefix(&space(), &keys), blocks);
    let looked = start.elapsed().as_secs_f64() / blocks as f64;
    println!(
        "{blocks} blocks in batches of {per_batch}: seconds for each tenth {tenths:.2?}; open {opened:.3} s, \
         {:.0} ns for each look-up",
        looked * 1e9
    );
}
