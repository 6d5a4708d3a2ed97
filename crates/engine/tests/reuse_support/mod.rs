//! What the tests of reuse share: a tiny model, conversations of several turns, and runs of
//! them with and without a cache.
#![allow(dead_code, reason = "each test uses a part")]

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;

use prefill_engine::{
    CacheOptions, CachePolicy, Checkpoint, Conversation, LoadOptions, MediaKind, MlxThread, Model,
    Mrope, Positions, PrefixCache, PreparedPrompt, Preparer, Progress, Prompt, Reused, Sequence,
    TemplateOptions, WorkingType,
};
use prefill_multimodal_prompt::Attention;
use prefill_test_support::{Golden, reference_dir};
use tempfile::TempDir;

pub(crate) const BLOCK: usize = 16;

/// The tokens of a forward call: small, so that prompts of tests take several.
pub(crate) const CHUNK: NonZeroUsize = NonZeroUsize::new(48).unwrap();

pub(crate) fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Everything in memory, in blocks that suit short prompts.
pub(crate) fn small_blocks() -> CacheOptions {
    CacheOptions::default()
        .block_size(BLOCK)
        .checkpoint_every(4)
}

/// A numbers' source that gives every run of a test the same.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Knuth's linear congruential generator (MMIX), of which the upper bits are used.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// A tiny checkpoint with random weights, loaded.
pub(crate) struct Loaded {
    pub(crate) name: &'static str,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) preparer: Preparer,
    pub(crate) model: Model,
    folder: TempDir,
}

pub(crate) fn load(thread: &MlxThread, name: &'static str, options: LoadOptions) -> Loaded {
    let folder = Golden::read(name, "text")
        .unwrap()
        .checkpoint()
        .unwrap()
        .build()
        .unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let options = options.working_type(WorkingType::F32).prefill_chunk(CHUNK);
    let model = Model::load_with(thread, &checkpoint, options, &mut |_| {}).unwrap();
    let preparer = Preparer::open(&checkpoint).unwrap();
    Loaded {
        name,
        checkpoint,
        preparer,
        model,
        folder,
    }
}

/// A file of the reference's media.
pub(crate) fn medium(name: &str) -> PathBuf {
    reference_dir().join("media").join(name)
}

impl Loaded {
    pub(crate) fn open(&self, options: CacheOptions) -> PrefixCache {
        PrefixCache::open(&self.checkpoint, &self.preparer, &self.model, options).unwrap()
    }

    /// A user's turn.
    pub(crate) fn turn(&self, text: &str, media: &[(MediaKind, &str)]) -> PreparedPrompt {
        let media = media
            .iter()
            .map(|&(kind, name)| (kind, medium(name).into()));
        let conversation = Conversation::user(text, media);
        self.preparer
            .prepare(&conversation, &TemplateOptions::default())
            .unwrap()
    }

    /// Media that the model takes.
    pub(crate) fn media(&self) -> &'static [(MediaKind, &'static str)] {
        match self.name {
            "gemma4_e2b" => &[
                (MediaKind::Image, "small.png"),
                (MediaKind::Image, "photo.png"),
                (MediaKind::Audio, "short.wav"),
                (MediaKind::Video, "clip.png"),
            ],
            "gemma4_26b" | "gemma4_unified" => &[
                (MediaKind::Image, "small.png"),
                (MediaKind::Image, "photo.png"),
            ],
            "gemma3_text" | "qwen3" => &[],
            _ => &[
                (MediaKind::Image, "small.png"),
                (MediaKind::Image, "exact.png"),
                (MediaKind::Video, "clip.png"),
            ],
        }
    }

    /// Turns of random words, media and answers, each prompt with all before it.
    pub(crate) fn conversation(&self, turns: usize, random: &mut Random) -> Vec<Turn> {
        let words = [
            "red", "what", "is", "the", "house", "two", "and", "of", "say",
        ];
        let mut prompt: Option<PreparedPrompt> = None;
        let mut all = Vec::new();
        for _ in 0..turns {
            let count = 3 + random.below(30);
            let text: Vec<&str> = (0..count)
                .map(|_| words[random.below(words.len())])
                .collect();
            let media = self.media();
            let media: Vec<_> = match media.len() {
                0 => Vec::new(),
                several => (0..random.below(3))
                    .map(|_| media[random.below(several)])
                    .collect(),
            };
            let turn = self.turn(&text.join(" "), &media);
            let whole = match prompt.take() {
                Some(before) => join(before, &turn),
                None => turn,
            };
            let vocabulary = 300;
            let answer: Vec<u32> = (0..4 + random.below(40))
                .map(|_| 200 + random.below(vocabulary - 200) as u32)
                .collect();
            let mut next = whole.clone();
            push(&mut next.prompt, &answer);
            prompt = Some(next);
            all.push(Turn {
                prepared: whole,
                answer,
            });
        }
        all
    }

    /// A turn without cache, going on where another ended, in the calls of one with it.
    pub(crate) fn cold<'m>(
        &'m self,
        before: Option<Sequence<'m>>,
        stops: &[usize],
        turn: &Turn,
    ) -> (Sequence<'m>, Vec<f32>) {
        let prepared = &turn.prepared;
        let mut sequence = if let Some(before) = before {
            let rest = self.model.extend(before, prepared, stops, &mut go_on);
            rest.unwrap()
        } else {
            let run = self
                .model
                .prefill_with_snapshots(prepared, stops, &mut go_on);
            run.unwrap().0
        };
        let logits = answer(&mut sequence, turn);
        (sequence, logits)
    }

    /// A turn with a cache: its logits, and what it found.
    pub(crate) fn cached(&self, cache: &PrefixCache, turn: &Turn) -> (Vec<f32>, Reused) {
        let (mut sequence, mut kept) = cache
            .prefill(
                &self.model,
                &turn.prepared,
                CachePolicy::ReadWrite,
                &mut go_on,
            )
            .unwrap();
        let logits = answer(&mut sequence, turn);
        kept.keep_answer(&sequence);
        (logits, kept.reused())
    }
}

/// A prompt and what is answered to it, whatever the model says.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) prepared: PreparedPrompt,
    pub(crate) answer: Vec<u32>,
}

impl Turn {
    /// Tokens of the prompt and the answer.
    pub(crate) fn end(&self) -> usize {
        self.prepared.prompt.len() + self.answer.len()
    }
}

/// Feeds the answer; the logits after the prompt and after each of its tokens.
fn answer(sequence: &mut Sequence<'_>, turn: &Turn) -> Vec<f32> {
    let mut logits = sequence.logits().unwrap();
    for &id in &turn.answer {
        sequence.feed(id).unwrap();
        logits.extend(sequence.logits().unwrap());
    }
    logits
}

/// Adds text at the end of a prompt.
pub(crate) fn push(prompt: &mut Prompt, ids: &[u32]) {
    append(prompt, &Prompt::from_ids(ids.to_vec()), 0);
}

/// One prompt after the other.
pub(crate) fn join(mut before: PreparedPrompt, after: &PreparedPrompt) -> PreparedPrompt {
    append(&mut before.prompt, &after.prompt, before.media.len());
    before.media.extend(after.media.iter().cloned());
    before
}

fn append(prompt: &mut Prompt, after: &Prompt, media: usize) {
    let start = prompt.len();
    let is_plain = |prompt: &Prompt| matches!(prompt.positions, Positions::Plain);
    if !is_plain(prompt) || !is_plain(after) {
        let mut positions = three(prompt);
        let more = three(after);
        let next = (start as i64 + positions.delta) as i32;
        for (axis, more) in positions.ids.iter_mut().zip(&more.ids) {
            axis.extend(more.iter().map(|position| position + next));
        }
        positions.delta += more.delta;
        prompt.positions = Positions::Mrope(positions);
    }
    prompt.ids.extend(&after.ids);
    prompt.spans.extend(after.spans.iter().map(|span| {
        let mut span = *span;
        span.start += start;
        span.medium += media;
        span
    }));
    let moved = after.attention.groups().iter();
    let moved = moved.map(|group| group.start + start..group.end + start);
    let groups: Vec<_> = prompt
        .attention
        .groups()
        .iter()
        .cloned()
        .chain(moved)
        .collect();
    if !groups.is_empty() {
        prompt.attention = Attention::Groups(groups);
    }
}

/// A prompt's positions, on three axes.
fn three(prompt: &Prompt) -> Mrope {
    if let Positions::Mrope(positions) = &prompt.positions {
        return positions.clone();
    }
    let axis: Vec<i32> = (0..prompt.len() as i32).collect();
    Mrope {
        ids: [axis.clone(), axis.clone(), axis],
        delta: 0,
    }
}

/// The position of the largest.
pub(crate) fn argmax(logits: &[f32]) -> usize {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.unwrap().0
}
