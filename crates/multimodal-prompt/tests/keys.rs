//! Keys: every change of one input changes exactly the keys that depend on it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::collections::HashSet;

use prefill_multimodal_prompt::{
    Attention, BlockKeys, Error, FeatureScaling, Key, KeySpace, MediaKind, Mrope, Positions,
    Prompt, Span,
};
use proptest::prelude::*;

const BLOCK: usize = 16;

fn space() -> KeySpace {
    let space = KeySpace::new([1; 32]).block_size(BLOCK).unwrap();
    MediaKind::ALL
        .into_iter()
        .fold(space, |space, kind| space.encoder(kind, [kind as u8; 32]))
}

fn keys(prompt: &Prompt) -> Vec<Key> {
    all(&BlockKeys::new(space(), prompt.clone()).unwrap())
}

/// Of all blocks, and of the tail.
fn all(keys: &BlockKeys) -> Vec<Key> {
    let tail = keys.tail().map(|tail| tail.key);
    keys.blocks().iter().copied().chain(tail).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Family {
    Causal,
    Grouped,
    Mrope,
}

#[derive(Debug, Clone)]
enum Part {
    Text(Vec<u32>),
    Medium(MediaKind, u8, usize, usize),
}

/// Lays out parts as the splicers do.
fn lay_out(family: Family, parts: &[Part]) -> Prompt {
    let mut prompt = Prompt::default();
    let mut groups = Vec::new();
    let mut axes = [(); 3].map(|()| Vec::new());
    let mut next = 0;
    for part in parts {
        match part {
            Part::Text(ids) => {
                prompt.ids.extend(ids);
                for axis in &mut axes {
                    axis.extend((next..).take(ids.len()));
                }
                next += ids.len() as i32;
            }
            &Part::Medium(kind, digest, rows, columns) => {
                let span = Span {
                    kind,
                    start: prompt.ids.len(),
                    length: rows * columns,
                    medium: prompt.spans.len(),
                    offset: 0,
                    digest: [digest; 32],
                    grid: (family == Family::Mrope).then_some([1, rows, columns]),
                };
                prompt.ids.extend(vec![900 + kind as u32; span.length]);
                for index in 0..span.length as i32 {
                    let columns = columns as i32;
                    axes[0].push(next);
                    axes[1].push(next + index / columns);
                    axes[2].push(next + index % columns);
                }
                next += rows.max(columns) as i32;
                if family == Family::Grouped && kind != MediaKind::Audio {
                    groups.push(span.range());
                }
                prompt.spans.push(span);
            }
        }
    }
    if !groups.is_empty() {
        prompt.attention = Attention::Groups(groups);
    }
    if family == Family::Mrope && !prompt.spans.is_empty() {
        let delta = i64::from(next) - prompt.ids.len() as i64;
        prompt.positions = Positions::Mrope(Mrope { ids: axes, delta });
    }
    prompt
}

fn family() -> impl Strategy<Value = Family> {
    prop::sample::select(vec![Family::Causal, Family::Grouped, Family::Mrope])
}

fn text() -> impl Strategy<Value = Part> {
    prop::collection::vec(0_u32..50, 1..40).prop_map(Part::Text)
}

fn medium() -> impl Strategy<Value = Part> {
    let kind = prop::sample::select(MediaKind::ALL.to_vec());
    (kind, 1_u8..4, 1_usize..7, 1_usize..7)
        .prop_map(|(kind, digest, rows, columns)| Part::Medium(kind, digest, rows, columns))
}

/// Text first, and between any two media: there are always tokens that begin and end them.
fn parts() -> impl Strategy<Value = Vec<Part>> {
    let pair = (prop::option::weighted(0.6, medium()), text());
    prop::collection::vec(pair, 0..6).prop_flat_map(|pairs| {
        let rest: Vec<Part> = pairs
            .into_iter()
            .flat_map(|(m, t)| m.into_iter().chain([t]))
            .collect();
        text().prop_map(move |first| [first].into_iter().chain(rest.clone()).collect())
    })
}

fn prompts() -> impl Strategy<Value = Prompt> {
    (family(), parts()).prop_map(|(family, parts)| lay_out(family, &parts))
}

/// The keys of blocks before `position`'s are the same, all later ones differ. All are the
/// same without a position.
fn differ_from(before: &[Key], after: &[Key], position: impl Into<Option<usize>>) {
    let block = position
        .into()
        .map_or(before.len(), |position| position / BLOCK);
    assert_eq!(before.len(), after.len());
    assert_eq!(before[..block], after[..block]);
    for (b, a) in before[block..].iter().zip(&after[block..]) {
        assert_ne!(b, a);
    }
}

proptest! {
    #[test]
    fn an_id(prompt in prompts(), at in any::<prop::sample::Index>()) {
        let at = at.index(prompt.len());
        let mut changed = prompt.clone();
        changed.ids[at] ^= 1;
        differ_from(&keys(&prompt), &keys(&changed), at);
    }

    #[test]
    fn a_medium(prompt in prompts(), at in any::<prop::sample::Index>(), what in 0..3) {
        if prompt.spans.is_empty() {
            return Ok(());
        }
        let mut changed = prompt.clone();
        let span = &mut changed.spans[at.index(prompt.spans.len())];
        match what {
            0 => span.digest[31] ^= 1,
            1 => span.offset += 1,
            _ => span.kind = if span.kind == MediaKind::Audio { MediaKind::Video } else { MediaKind::Audio },
        }
        let start = span.start;
        differ_from(&keys(&prompt), &keys(&changed), start);
    }

    #[test]
    fn an_encoder(prompt in prompts(), kind in prop::sample::select(MediaKind::ALL.to_vec())) {
        let other = BlockKeys::new(space().encoder(kind, [99; 32]), prompt.clone()).unwrap();
        let span = prompt.spans.iter().find(|span| span.kind == kind);
        differ_from(&keys(&prompt), &all(&other), span.map(|span| span.start));
    }

    #[test]
    fn the_model_and_the_tenant(prompt in prompts()) {
        let spaces = [
            space(),
            space().salt(b""),
            space().salt(b"a"),
            space().salt(b"b"),
            KeySpace::new([2; 32]).block_size(BLOCK).unwrap()
                .encoder(MediaKind::Image, [0; 32])
                .encoder(MediaKind::Audio, [1; 32])
                .encoder(MediaKind::Video, [2; 32]),
        ];
        let mut seen = HashSet::new();
        for space in &spaces {
            for key in all(&BlockKeys::new(space.clone(), prompt.clone()).unwrap()) {
                prop_assert!(seen.insert(key));
            }
        }
    }

    #[test]
    fn the_attention(parts in parts()) {
        let grouped = lay_out(Family::Grouped, &parts);
        let causal = lay_out(Family::Causal, &parts);
        let groups = grouped.attention.groups();
        differ_from(&keys(&grouped), &keys(&causal), groups.first().map(|group| group.start));
        // A group that ends elsewhere changes the blocks it overlaps, and what follows.
        if let Some(last) = groups.last().filter(|last| last.len() > 1) {
            let mut shorter = groups.to_vec();
            shorter.last_mut().unwrap().end -= 1;
            let changed = Prompt { attention: Attention::Groups(shorter), ..grouped.clone() };
            differ_from(&keys(&grouped), &keys(&changed), last.start);
        }
    }

    #[test]
    fn the_positions(parts in parts()) {
        let placed = lay_out(Family::Mrope, &parts);
        let plain = lay_out(Family::Causal, &parts);
        let Positions::Mrope(mrope) = &placed.positions else {
            prop_assert_eq!(keys(&placed), keys(&plain));
            return Ok(());
        };
        differ_from(&keys(&placed), &keys(&plain), placed.spans[0].start);
        // Any one position on any one axis.
        let index = mrope.ids[0].len() / 2;
        for axis in 0..3 {
            let mut changed = mrope.clone();
            changed.ids[axis][index] += 1;
            let changed = Prompt { positions: Positions::Mrope(changed), ..placed.clone() };
            differ_from(&keys(&placed), &keys(&changed), index);
        }
    }

    #[test]
    fn the_scaling_of_features(prompt in prompts()) {
        let changed = Prompt { feature_scaling: FeatureScaling::ThroughEmbeddingScale, ..prompt.clone() };
        differ_from(&keys(&prompt), &keys(&changed), prompt.spans.first().map(|span| span.start));
    }

    #[test]
    fn a_later_medium_changes_no_earlier_key(
        family in family(), before in parts(), medium in medium(), after in parts(),
    ) {
        let prefix = lay_out(family, &before);
        let mut parts = before;
        parts.extend([medium]);
        parts.extend(after);
        let whole = BlockKeys::new(space(), lay_out(family, &parts)).unwrap();
        let prefix = BlockKeys::new(space(), prefix.clone()).unwrap();
        prop_assert_eq!(prefix.blocks(), &whole.blocks()[..prefix.blocks().len()]);
        // Nor the tail's, while nothing follows that would join it.
        prop_assert_eq!(prefix.tail().map(|t| t.key), prefix.tail().and_then(|_| whole.at(prefix.len())));
    }

    #[test]
    fn the_order_of_two_media(family in family(), start in text(), between in text(), end in text()) {
        let image = |digest| Part::Medium(MediaKind::Image, digest, 3, 4);
        let one = lay_out(family, &[start.clone(), image(1), between.clone(), image(2), end.clone()]);
        let other = lay_out(family, &[start, image(2), between, image(1), end]);
        prop_assert_eq!(&one.ids, &other.ids);
        differ_from(&keys(&one), &keys(&other), one.spans[0].start);
    }

    #[test]
    fn growing_is_the_same_as_starting_anew(
        prompt in prompts(), generated in prop::collection::vec(0_u32..50, 0..60), cut in any::<prop::sample::Index>(),
        next in prompts(),
    ) {
        let mut grown = BlockKeys::new(space(), prompt.clone()).unwrap();
        let (first, second) = generated.split_at(cut.index(generated.len() + 1));
        grown.push(first);
        grown.push(second);
        // The same as text in the prompt.
        let mut whole = prompt.clone();
        let start = whole.len();
        whole.ids.extend(&generated);
        if let Positions::Mrope(mrope) = &mut whole.positions {
            for axis in &mut mrope.ids {
                axis.extend((start..start + generated.len()).map(|i| (i as i64 + mrope.delta) as i32));
            }
        }
        prop_assert_eq!(all(&grown), keys(&whole));
        // Over to the next turn, or to something else.
        let mut turned = grown.clone();
        let kept = turned.advance(whole).unwrap();
        prop_assert_eq!(kept, grown.blocks().len());
        let kept = turned.advance(next.clone()).unwrap();
        prop_assert_eq!(all(&turned), keys(&next));
        prop_assert!(kept <= next.len() / BLOCK);
        let shared = grown.blocks().iter().zip(turned.blocks()).take_while(|(a, b)| a == b).count();
        prop_assert_eq!(kept, shared);
    }

    #[test]
    fn every_prefix_has_its_own_key(prompt in prompts()) {
        let keys = BlockKeys::new(space(), prompt.clone()).unwrap();
        let mut seen: HashSet<Key> = HashSet::from([keys.root()]);
        for position in 1..=prompt.len() {
            match keys.at(position) {
                Some(key) => prop_assert!(seen.insert(key), "position {}", position),
                None => prop_assert!(!prompt.can_cut_at(position)),
            }
        }
        prop_assert_eq!(keys.at(0), None);
        prop_assert_eq!(keys.at(prompt.len() + 1), None);
        prop_assert_eq!(keys.at(prompt.len()), all(&keys).last().copied());
    }

    #[test]
    fn the_prefix_identity_is_the_key_that_holds_the_last_medium(prompt in prompts()) {
        let keys = BlockKeys::new(space(), prompt.clone()).unwrap();
        let expected = prompt.spans.last().map(|span| all(&keys)[(span.end() - 1) / BLOCK]);
        prop_assert_eq!(keys.prefix_identity(), expected);
    }
}

/// So that stored caches stay found: the bytes are part of the format.
#[test]
fn keys_are_those_of_the_documented_bytes() {
    use sha2::{Digest, Sha256};
    let hash = |bytes: &[u8]| -> [u8; 32] { Sha256::digest(bytes).into() };
    let parts = [
        Part::Text((0..10).collect()),
        Part::Medium(MediaKind::Video, 7, 2, 4),
        Part::Text(vec![5; 4]),
    ];
    let keys = BlockKeys::new(space().salt(b"me"), lay_out(Family::Mrope, &parts)).unwrap();

    let u32s = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let mut root = b"prefill.keys.v1\0".to_vec();
    root.extend([1; 32]);
    root.push(1);
    root.extend(2_u64.to_le_bytes());
    root.extend(b"me");
    root.extend(16_u64.to_le_bytes());
    let root = hash(&root);
    assert_eq!(keys.root().as_bytes(), &root);

    let video = 900 + MediaKind::Video as u32;
    let media = |start, length, row: u64| {
        let mut bytes = vec![1];
        bytes.extend(u32s(&[start, length]));
        bytes.push(3);
        bytes.extend([7; 32]);
        bytes.extend([MediaKind::Video as u8; 32]);
        bytes.extend(row.to_le_bytes());
        bytes.push(0);
        bytes
    };
    let placed = |start, axes: [&[u32]; 3]| {
        let mut bytes = vec![4];
        bytes.extend(u32s(&[start, axes[0].len() as u32]));
        for axis in axes {
            bytes.extend(u32s(axis));
        }
        bytes
    };
    let mut block = root.to_vec();
    block.push(1);
    block.extend(u32s(&[16]));
    block.extend(u32s(&(0..10).chain([video; 6]).collect::<Vec<_>>()));
    block.extend(media(10, 6, 0));
    block.extend(placed(
        10,
        [
            &[10; 6],
            &[10, 10, 10, 10, 11, 11],
            &[10, 11, 12, 13, 10, 11],
        ],
    ));
    let block = hash(&block);
    assert_eq!(keys.blocks()[0].as_bytes(), &block);

    let mut tail = block.to_vec();
    tail.push(2);
    tail.extend(u32s(&[6, video, video, 5, 5, 5, 5]));
    tail.extend(media(0, 2, 6));
    tail.extend(placed(0, [&[10; 2], &[11; 2], &[12, 13]]));
    // Text goes on at 14, where the index is 18.
    tail.push(3);
    tail.extend(u32s(&[2, 4]));
    tail.extend((-4_i64).to_le_bytes());
    assert_eq!(keys.tail().unwrap().key.as_bytes(), &hash(&tail));

    let mut encoder = b"prefill.encoder.v1\0".to_vec();
    encoder.extend([MediaKind::Audio as u8; 32]);
    encoder.push(0);
    encoder.extend([9; 32]);
    let found = space().encoder_key(MediaKind::Audio, &[9; 32]).unwrap();
    assert_eq!(found.as_bytes(), &hash(&encoder));
}

#[test]
fn what_does_not_fit_is_refused() {
    for size in [0, 1, 8, 24, 1 << 21] {
        assert!(matches!(
            KeySpace::new([0; 32]).block_size(size),
            Err(Error::BlockSize { .. })
        ));
    }
    let good = lay_out(
        Family::Mrope,
        &[
            Part::Text(vec![1; 8]),
            Part::Medium(MediaKind::Image, 1, 2, 3),
        ],
    );
    let bare = KeySpace::new([0; 32]);
    let error = BlockKeys::new(bare, good.clone()).unwrap_err();
    assert_eq!(error.to_string(), "no encoder fingerprint for image inputs");
    let broken = |change: fn(&mut Prompt)| {
        let mut prompt = good.clone();
        change(&mut prompt);
        let mut keys = BlockKeys::new(space(), good.clone()).unwrap();
        let before = all(&keys);
        assert!(matches!(
            keys.advance(prompt),
            Err(Error::PromptShape { .. })
        ));
        assert_eq!(all(&keys), before);
    };
    broken(|prompt| prompt.spans[0].length = usize::MAX);
    broken(|prompt| prompt.spans[0].length = 0);
    broken(|prompt| prompt.spans[0].start = 99);
    broken(|prompt| prompt.spans.push(prompt.spans[0]));
    for (start, end) in [(3, 2), (2, 99)] {
        let groups = std::iter::once(start..end).collect();
        let prompt = Prompt {
            attention: Attention::Groups(groups),
            ..good.clone()
        };
        let error = BlockKeys::new(space(), prompt.clone()).unwrap_err();
        assert!(matches!(error, Error::PromptShape { at, .. } if at == start));
    }
    broken(|prompt| prompt.ids.truncate(8));
}
