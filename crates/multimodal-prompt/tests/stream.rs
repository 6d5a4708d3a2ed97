//! Streamed text, on the tiny models' tokenizer: byte-pair encoding with byte fallback, as
//! Gemma's is.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use prefill_multimodal_prompt::{TextStream, Tokens};
use proptest::prelude::*;

fn tokens() -> Tokens {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference/models");
    Tokens::from_folder(format!("{models}/gemma4_e2b").as_ref()).unwrap()
}

/// Byte-level byte-pair encoding, as Qwen's is.
fn qwen() -> Tokens {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/reference/prompt/qwen_tokenizer.json"
    );
    Tokens::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

fn stream(tokens: &Tokens, ids: &[u32]) -> Vec<String> {
    let mut stream = TextStream::default();
    let mut pieces: Vec<String> = ids
        .iter()
        .map(|&id| stream.push(tokens, id).unwrap())
        .collect();
    pieces.push(stream.finish(tokens).unwrap());
    pieces
}

fn byte(tokens: &Tokens, byte: u8) -> u32 {
    tokens.id(&format!("<0x{byte:02X}>")).unwrap()
}

#[test]
fn a_character_of_many_tokens_comes_whole() {
    let tokens = tokens();
    let ids: Vec<u32> = "é€😀".bytes().map(|b| byte(&tokens, b)).collect();
    let pieces = stream(&tokens, &ids);
    let given: Vec<&str> = pieces
        .iter()
        .map(String::as_str)
        .filter(|piece| !piece.is_empty())
        .collect();
    assert_eq!(given, ["é", "€", "😀"]);
}

#[test]
fn nothing_is_held_back_without_need() {
    let tokens = tokens();
    let ids = tokens.encode("What is in this image?").unwrap();
    let pieces = stream(&tokens, &ids);
    assert!(
        pieces[..ids.len()].iter().all(|piece| !piece.is_empty()),
        "{pieces:?}"
    );
    assert_eq!(pieces[ids.len()], "");
}

#[test]
fn broken_bytes_break_only_themselves() {
    let tokens = tokens();
    let x = tokens.encode("x").unwrap();
    let mut ids: Vec<u32> = "é"
        .bytes()
        .chain([0xff])
        .map(|b| byte(&tokens, b))
        .collect();
    ids.extend(&x);
    assert_eq!(stream(&tokens, &ids).concat(), "é\u{fffd}x");
    // Cut off: the held bytes come at the end.
    let cut: Vec<u32> = "ab€".bytes().take(4).map(|b| byte(&tokens, b)).collect();
    assert_eq!(stream(&tokens, &cut).concat(), "ab\u{fffd}\u{fffd}");
}

#[test]
fn a_long_run_of_bytes_is_not_cut_in_its_middle() {
    let tokens = tokens();
    let text = "€é😀".repeat(40);
    let ids: Vec<u32> = text.bytes().map(|b| byte(&tokens, b)).collect();
    assert_eq!(stream(&tokens, &ids).concat(), text);
}

proptest! {
    #[test]
    fn pieces_are_the_whole_text(text in "\\PC{0,60}") {
        let tokens = tokens();
        let ids = tokens.encode(&text).unwrap();
        let whole = tokens.decode(&ids).unwrap();
        prop_assume!(!whole.contains('\u{fffd}'));
        let pieces = stream(&tokens, &ids);
        prop_assert_eq!(pieces.concat(), whole);
        let broken = pieces.iter().any(|piece| piece.contains('\u{fffd}'));
        prop_assert!(!broken);
    }

    #[test]
    fn pieces_of_bytes_are_the_whole_text(text in "\\PC{0,60}") {
        let tokens = qwen();
        let ids = tokens.encode(&text).unwrap();
        let pieces = stream(&tokens, &ids);
        prop_assert_eq!(pieces.concat(), &text[..]);
        // Held back are the tokens of an unfinished character, and only those.
        let mut bytes = 0;
        for (piece, end) in pieces.iter().zip(1..=ids.len()) {
            bytes += piece.len();
            let decoded = tokens.decode(&ids[..end]).unwrap();
            prop_assert_eq!(&text[..bytes], decoded.trim_end_matches('\u{fffd}'));
        }
    }

    #[test]
    fn any_ids_stream_without_panic(ids in prop::collection::vec(0u32..800, 0..80)) {
        let tokens = tokens();
        let pieces = stream(&tokens, &ids);
        let whole = tokens.decode(&ids).unwrap();
        if !whole.contains('\u{fffd}') {
            prop_assert_eq!(pieces.concat(), whole);
        }
    }
}
