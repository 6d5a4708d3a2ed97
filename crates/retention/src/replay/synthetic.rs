//! Small traces made by rule, so that tests need no foreign data.

use super::Request;

/// Tokens of a block in these traces.
pub const BLOCK_TOKENS: u64 = 512;

/// A generator of pseudo-random numbers (Steele, Lea and Flood 2014: `SplitMix64`).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `end` - 1.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// Makes traces.
#[derive(Debug)]
struct Maker {
    random: Random,
    next_block: u64,
}

/// A conversation: its blocks so far.
#[derive(Debug, Clone)]
struct Chat {
    blocks: Vec<u64>,
    turns_left: u64,
}

impl Maker {
    fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            next_block: 0,
        }
    }

    fn fresh(&mut self, count: u64) -> Vec<u64> {
        let first = self.next_block;
        self.next_block += count;
        (first..self.next_block).collect()
    }

    fn chat(&mut self, system: &[u64]) -> Chat {
        let mut blocks = system.to_vec();
        let first = self.random.below(6) + 1;
        blocks.extend(self.fresh(first));
        Chat {
            blocks,
            turns_left: self.random.below(6),
        }
    }

    /// The prompt of the chat's next turn: all its blocks and a partial last one.
    fn turn(&mut self, chat: &mut Chat) -> Request {
        let grown = self.random.below(3) + 1;
        chat.blocks.extend(self.fresh(grown));
        chat.turns_left = chat.turns_left.saturating_sub(1);
        self.request(&chat.blocks)
    }

    fn request(&mut self, blocks: &[u64]) -> Request {
        let mut blocks = blocks.to_vec();
        let partial = self.random.below(BLOCK_TOKENS - 1) + 1;
        let tokens = blocks.len() as u64 * BLOCK_TOKENS + partial;
        blocks.extend(self.fresh(1));
        Request { blocks, tokens }
    }
}

/// `requests` turns of up to `open` chats at once, which share one of three system prompts.
#[must_use]
pub fn chats(seed: u64, requests: usize, open: usize) -> Vec<Request> {
    let mut maker = Maker::new(seed);
    let systems = [maker.fresh(8), maker.fresh(3), maker.fresh(1)];
    let mut chats: Vec<Chat> = Vec::new();
    let mut trace = Vec::with_capacity(requests);
    while trace.len() < requests {
        if chats.len() < open.max(1) {
            let system = &systems[maker.random.below(3) as usize];
            let chat = maker.chat(system);
            chats.push(chat);
        }
        let index = maker.random.below(chats.len() as u64) as usize;
        trace.push(maker.turn(&mut chats[index]));
        if chats[index].turns_left == 0 {
            chats.swap_remove(index);
        }
    }
    trace
}

/// `requests` prompts of `blocks` blocks each, none of which comes again.
#[must_use]
pub fn flood(seed: u64, requests: usize, blocks: u64) -> Vec<Request> {
    let mut maker = Maker {
        random: Random(seed),
        next_block: 1 << 40,
    };
    let mut one = |_| {
        let blocks = maker.fresh(blocks);
        maker.request(&blocks)
    };
    (0..requests).map(&mut one).collect()
}

/// The same `documents` documents of `blocks` blocks each, read over and over in one order:
/// what LRU can't serve at all when it holds fewer of them.
#[must_use]
pub fn scan(requests: usize, documents: u64, blocks: u64) -> Vec<Request> {
    let documents = documents.max(1);
    let one = |document: u64| {
        let first = (1 << 41) + document * blocks;
        Request {
            blocks: (first..first + blocks).collect(),
            tokens: blocks * BLOCK_TOKENS,
        }
    };
    (0..requests as u64)
        .map(|number| one(number % documents))
        .collect()
}

/// Chats, with a flood of one-shot prompts between them and a scan in the middle.
#[must_use]
pub fn mixed(seed: u64, requests: usize) -> Vec<Request> {
    let part = requests / 2;
    let mut random = Random(seed ^ 1);
    let mut chats = chats(seed, part, 24).into_iter();
    let mut flood = flood(seed, part / 2, 9).into_iter();
    let scan = scan(requests - part - part / 2, 12, 6);
    let mut trace = Vec::with_capacity(requests);
    loop {
        let from_chats = random.below(3) > 0;
        let next = if from_chats {
            chats.next()
        } else {
            flood.next()
        };
        let Some(request) = next else { break };
        trace.push(request);
    }
    trace.extend(scan);
    trace.extend(chats);
    trace.extend(flood);
    trace
}
