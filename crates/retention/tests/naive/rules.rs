//! The policies over plain vectors.

use std::collections::BTreeMap;

use super::{Entry, Rules};

/// Least recently used.
#[derive(Debug, Default)]
pub(crate) struct NaiveLru;

impl Rules for NaiveLru {
    fn touched(&mut self, _: &Entry) {}
    fn choose(&mut self, candidates: &[Entry]) -> Option<u8> {
        candidates
            .iter()
            .min_by_key(|entry| entry.last_used)
            .map(|entry| entry.key)
    }
}

/// The `CostSizeRetention` of prefill's predecessor, frequency capped, over all entries each time.
#[derive(Debug)]
pub(crate) struct NaiveGreedyDual {
    pub(crate) max_frequency: u32,
    pub(crate) age: f64,
    pub(crate) base: BTreeMap<u8, f64>,
}

impl NaiveGreedyDual {
    pub(crate) fn new(max_frequency: u32) -> Self {
        Self {
            max_frequency,
            age: 0.0,
            base: BTreeMap::new(),
        }
    }

    fn priority(&self, entry: &Entry) -> f64 {
        let cost = if entry.cost > 0.0 {
            entry.cost.min(f64::MAX)
        } else {
            0.0
        };
        let frequency = f64::from(entry.uses.min(self.max_frequency));
        (self.base[&entry.key] + cost * frequency / entry.bytes.max(1) as f64).min(f64::MAX)
    }
}

impl Rules for NaiveGreedyDual {
    fn touched(&mut self, entry: &Entry) {
        self.base.insert(entry.key, self.age);
    }

    fn left(&mut self, entry: &Entry, evicted: bool) {
        if evicted {
            self.age = self.age.max(self.priority(entry));
        }
    }

    fn choose(&mut self, candidates: &[Entry]) -> Option<u8> {
        let least = candidates.iter().reduce(|a, b| {
            let (x, y) = (self.priority(a), self.priority(b));
            if x < y || (x.total_cmp(&y).is_eq() && a.last_used < b.last_used) {
                a
            } else {
                b
            }
        });
        least.map(|entry| entry.key)
    }
}

/// Removes `key` from the list that has it; says which.
fn remove_from(lists: &mut [Vec<u8>], key: u8) -> Option<usize> {
    let list = lists.iter().position(|list| list.contains(&key))?;
    lists[list].retain(|other| *other != key);
    Some(list)
}

fn sum(list: &[u8], bytes: &BTreeMap<u8, u64>) -> u64 {
    list.iter().map(|key| bytes[key]).sum()
}

fn first(list: &[u8], candidates: &[Entry]) -> Option<u8> {
    let may_go = |key: &&u8| candidates.iter().any(|entry| entry.key == **key);
    list.iter().find(may_go).copied()
}

fn ghost_bytes(ghosts: &[(u8, u64)]) -> u64 {
    ghosts.iter().map(|(_, bytes)| bytes).sum()
}

fn trim(ghosts: &mut Vec<(u8, u64)>, bytes: u64) {
    while ghost_bytes(ghosts) > bytes {
        ghosts.remove(0);
    }
}

/// ARC: lists and ghosts of entries used once (0) and often (1), the coldest first.
#[derive(Debug, Default)]
pub(crate) struct NaiveArc {
    limit: u64,
    target: u64,
    lists: [Vec<u8>; 2],
    ghosts: [Vec<(u8, u64)>; 2],
    bytes: BTreeMap<u8, u64>,
    /// The list whose ghost the newcomer is.
    returning: Option<usize>,
}

impl Rules for NaiveArc {
    fn limit(&mut self, limit: u64) {
        self.limit = limit;
        self.target = self.target.min(limit);
    }

    fn newcomer(&mut self, key: u8, bytes: u64) {
        let known = |ghosts: &Vec<(u8, u64)>| ghosts.iter().any(|(ghost, _)| *ghost == key);
        self.returning = self.ghosts.iter().position(known);
        let Some(side) = self.returning else { return };
        let [own, other] = [side, 1 - side].map(|side| ghost_bytes(&self.ghosts[side]));
        let step = bytes * (other / own.max(1)).max(1);
        self.target = match side {
            0 => (self.target + step).min(self.limit),
            _ => self.target.saturating_sub(step),
        };
        self.ghosts[side].retain(|(ghost, _)| *ghost != key);
    }

    fn touched(&mut self, entry: &Entry) {
        let was_there = remove_from(&mut self.lists, entry.key).is_some();
        let often = was_there || self.returning.take().is_some();
        self.lists[usize::from(often)].push(entry.key);
        self.bytes.insert(entry.key, entry.bytes);
    }

    fn updated(&mut self, entry: &Entry) {
        self.bytes.insert(entry.key, entry.bytes);
    }

    fn left(&mut self, entry: &Entry, evicted: bool) {
        let list = remove_from(&mut self.lists, entry.key).expect("it was there");
        if evicted {
            self.ghosts[list].retain(|(ghost, _)| *ghost != entry.key);
            self.ghosts[list].push((entry.key, entry.bytes));
            let [once, often] = [0, 1].map(|list| sum(&self.lists[list], &self.bytes));
            trim(&mut self.ghosts[0], self.limit.saturating_sub(once));
            let taken = once + often + ghost_bytes(&self.ghosts[0]);
            trim(&mut self.ghosts[1], (2 * self.limit).saturating_sub(taken));
        }
    }

    fn choose(&mut self, candidates: &[Entry]) -> Option<u8> {
        let once = sum(&self.lists[0], &self.bytes);
        let tie = self.returning == Some(1) && once == self.target && once > 0;
        let preferred = usize::from(once <= self.target && !tie);
        first(&self.lists[preferred], candidates)
            .or_else(|| first(&self.lists[1 - preferred], candidates))
    }
}

/// S3-FIFO: the small (0) and the main (1) queue, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct NaiveS3Fifo {
    limit: u64,
    lists: [Vec<u8>; 2],
    ghosts: Vec<(u8, u64)>,
    bytes: BTreeMap<u8, u64>,
    frequency: BTreeMap<u8, u8>,
}

impl NaiveS3Fifo {
    fn reinsert(&mut self, key: u8, frequency: u8) {
        remove_from(&mut self.lists, key);
        self.lists[1].push(key);
        self.frequency.insert(key, frequency);
    }
}

impl NaiveS3Fifo {
    fn small_victim(&mut self, share: u64, candidates: &[Entry]) -> Option<u8> {
        for key in self.lists[0].clone() {
            if share > 0 && sum(&self.lists[0], &self.bytes) <= share {
                break;
            }
            if self.frequency[&key] > 0 {
                self.reinsert(key, 0);
            } else if candidates.iter().any(|entry| entry.key == key) {
                return Some(key);
            }
        }
        None
    }

    fn main_victim(&mut self, candidates: &[Entry]) -> Option<u8> {
        while let Some(key) = first(&self.lists[1], candidates) {
            match self.frequency[&key] {
                0 => return Some(key),
                frequency => self.reinsert(key, frequency - 1),
            }
        }
        None
    }
}

impl Rules for NaiveS3Fifo {
    fn limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    fn touched(&mut self, entry: &Entry) {
        if entry.uses > 1 {
            let frequency = self.frequency.get_mut(&entry.key).expect("it was inserted");
            *frequency = (*frequency + 1).min(3);
            return;
        }
        let known = self.ghosts.iter().any(|(ghost, _)| *ghost == entry.key);
        self.ghosts.retain(|(ghost, _)| *ghost != entry.key);
        self.lists[usize::from(known)].push(entry.key);
        self.bytes.insert(entry.key, entry.bytes);
        self.frequency.insert(entry.key, 0);
    }

    fn updated(&mut self, entry: &Entry) {
        self.bytes.insert(entry.key, entry.bytes);
    }

    fn left(&mut self, entry: &Entry, evicted: bool) {
        if remove_from(&mut self.lists, entry.key) == Some(0) && evicted {
            self.ghosts.push((entry.key, entry.bytes));
            trim(&mut self.ghosts, self.limit - self.limit / 10);
        }
    }

    fn choose(&mut self, candidates: &[Entry]) -> Option<u8> {
        self.small_victim(self.limit / 10, candidates)
            .or_else(|| self.main_victim(candidates))
            .or_else(|| self.small_victim(0, candidates))
            .or_else(|| self.main_victim(candidates))
    }
}

/// W-TinyLFU: window (0), probation (1) and protected (2), the coldest first; exact counts.
#[derive(Debug, Default)]
pub(crate) struct NaiveWTinyLfu {
    limit: u64,
    lists: [Vec<u8>; 3],
    bytes: BTreeMap<u8, u64>,
    seen: BTreeMap<u8, u32>,
}

impl NaiveWTinyLfu {
    fn seen(&self, key: u8) -> u32 {
        self.seen[&key].min(15)
    }

    fn total(&self, list: usize) -> u64 {
        sum(&self.lists[list], &self.bytes)
    }
}

impl Rules for NaiveWTinyLfu {
    fn limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    fn touched(&mut self, entry: &Entry) {
        *self.seen.entry(entry.key).or_default() += 1;
        self.bytes.insert(entry.key, entry.bytes);
        let list = match remove_from(&mut self.lists, entry.key) {
            None | Some(0) => 0,
            Some(_) => 2,
        };
        self.lists[list].push(entry.key);
    }

    fn updated(&mut self, entry: &Entry) {
        self.bytes.insert(entry.key, entry.bytes);
    }

    fn left(&mut self, entry: &Entry, _: bool) {
        remove_from(&mut self.lists, entry.key);
    }

    fn choose(&mut self, candidates: &[Entry]) -> Option<u8> {
        let (window, may_go) = (self.limit / 100, |key: u8| {
            candidates.iter().any(|entry| entry.key == key)
        });
        while self.total(2) > (self.limit - window) / 5 * 4 {
            let demoted = self.lists[2].remove(0);
            self.lists[1].push(demoted);
        }
        loop {
            let main = first(&self.lists[1], candidates);
            let main = main.or_else(|| first(&self.lists[2], candidates));
            if self.total(0) <= window || self.lists[0].is_empty() {
                let window = first(&self.lists[0], candidates);
                return main.or(window);
            }
            let oldest = self.lists[0][0];
            let fits = self.total(1) + self.total(2) + self.bytes[&oldest] <= self.limit - window;
            if !fits && may_go(oldest) {
                let wins = main.is_some_and(|main| self.seen(oldest) > self.seen(main));
                if !wins {
                    return Some(oldest);
                }
            }
            self.lists[0].remove(0);
            self.lists[1].push(oldest);
            if let Some(main) = main.filter(|_| !fits) {
                return Some(main);
            }
        }
    }
}
