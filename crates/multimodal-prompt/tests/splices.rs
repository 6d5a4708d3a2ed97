//! Expanded prompts against transformers' processors, over random layouts of media
//! (`tests/reference/prompt/make_splices.py`).
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use prefill_multimodal_prompt::{
    Attention, ChatTemplate, Conversation, Error, Gemma4Medium, Gemma4Rules, Gemma4Splicer,
    MediaKind, OuterVisionTokens, Positions, Prompt, QwenMedium, QwenSplicer, TemplateOptions,
    Tokens,
};
use serde_json::Value;

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference");

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(format!("{REFERENCE}/prompt/splices.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn gemma_tokens(model: &str) -> Tokens {
    Tokens::from_folder(format!("{REFERENCE}/models/{model}").as_ref()).unwrap()
}

fn qwen_tokens() -> Tokens {
    let bytes = std::fs::read(format!("{REFERENCE}/prompt/qwen_tokenizer.json")).unwrap();
    Tokens::from_bytes(&bytes).unwrap()
}

fn integers<T: TryFrom<i64>>(value: &Value) -> Vec<T> {
    let numbers = value.as_array().unwrap().iter();
    let number = |v: &Value| T::try_from(v.as_i64().unwrap()).ok().unwrap();
    numbers.map(number).collect()
}

fn times(medium: &Value) -> Vec<f64> {
    let times = medium["timestamps"].as_array().unwrap();
    times.iter().map(|t| t.as_f64().unwrap()).collect()
}

fn gemma_media(case: &Value) -> Vec<Gemma4Medium> {
    let media = case["media"].as_array().unwrap().iter().enumerate();
    let read = |(index, medium): (usize, &Value)| {
        let soft_tokens = medium["soft_tokens"].as_u64().unwrap() as usize;
        let digest = [index as u8; 32];
        match medium["kind"].as_str().unwrap() {
            "image" => Gemma4Medium::Image {
                soft_tokens,
                digest,
            },
            "audio" => Gemma4Medium::Audio {
                soft_tokens,
                digest,
            },
            _ => Gemma4Medium::Video {
                soft_tokens_per_frame: soft_tokens,
                timestamps: times(medium),
                digest,
            },
        }
    };
    media.map(read).collect()
}

fn qwen_media(case: &Value) -> Vec<QwenMedium> {
    let media = case["media"].as_array().unwrap().iter().enumerate();
    let read = |(index, medium): (usize, &Value)| {
        let grid_thw = integers(&medium["grid"]).try_into().unwrap();
        let digest = [index as u8; 32];
        match medium["kind"].as_str().unwrap() {
            "image" => QwenMedium::Image { grid_thw, digest },
            _ => QwenMedium::Video {
                grid_thw,
                timestamps: times(medium),
                digest,
            },
        }
    };
    media.map(read).collect()
}

/// Spans are in order, hold their kind's placeholder and no other position does; the rows of
/// each medium are taken in turn and all of them.
fn check_spans(prompt: &Prompt, placeholder: impl Fn(MediaKind) -> Option<u32>, rows: &[usize]) {
    let mut taken = vec![0; rows.len()];
    let mut end = 0;
    for span in &prompt.spans {
        assert!(span.start >= end && span.length > 0);
        end = span.end();
        let ids = &prompt.ids[span.range()];
        assert!(ids.iter().all(|&id| Some(id) == placeholder(span.kind)));
        assert_eq!(span.offset, taken[span.medium]);
        assert_eq!(span.digest, [span.medium as u8; 32]);
        taken[span.medium] += span.length;
    }
    assert_eq!(taken, rows);
    let all: Vec<_> = MediaKind::ALL.into_iter().filter_map(placeholder).collect();
    let soft = prompt.ids.iter().filter(|id| all.contains(id)).count();
    assert_eq!(soft, rows.iter().sum::<usize>());
    let per_layer = prompt.per_layer_ids(0);
    assert!(per_layer.iter().all(|id| !all.contains(id)));
}

#[test]
fn gemma_prompts_are_those_of_transformers() {
    let mut seen = 0;
    for case in cases().iter().filter(|case| case["model"] != "qwen") {
        let tokens = gemma_tokens(case["model"].as_str().unwrap());
        let (text, media) = (case["text"].as_str().unwrap(), gemma_media(case));
        let splicer = Gemma4Splicer::new(&tokens, Gemma4Rules::Vision);
        let prompt = splicer.splice(&tokens, text, &media).unwrap();
        assert_eq!(prompt.ids, integers::<u32>(&case["ids"]), "{text:?}");
        let groups = prompt.attention.groups().iter();
        let groups: Vec<Vec<usize>> = groups.map(|g| vec![g.start, g.end]).collect();
        let expected = case["groups"].as_array().unwrap().iter();
        assert_eq!(groups, expected.map(integers::<usize>).collect::<Vec<_>>());
        let rows: Vec<usize> = media
            .iter()
            .map(|medium| match medium {
                Gemma4Medium::Image { soft_tokens, .. }
                | Gemma4Medium::Audio { soft_tokens, .. } => *soft_tokens,
                Gemma4Medium::Video {
                    soft_tokens_per_frame,
                    timestamps,
                    ..
                } => soft_tokens_per_frame * timestamps.len(),
            })
            .collect();
        check_spans(&prompt, |kind| splicer.placeholder(kind), &rows);
        let causal = Gemma4Splicer::new(&tokens, Gemma4Rules::Causal);
        let causal = causal.splice(&tokens, text, &media).unwrap();
        assert_eq!(
            (causal.ids, causal.attention),
            (prompt.ids, Attention::Causal)
        );
        seen += 1;
    }
    assert_eq!(seen, 100);
}

#[test]
fn qwen_prompts_and_positions_are_those_of_transformers() {
    let tokens = qwen_tokens();
    let mut seen = 0;
    for case in cases().iter().filter(|case| case["model"] == "qwen") {
        let (text, media) = (case["text"].as_str().unwrap(), qwen_media(case));
        let splicer = QwenSplicer::new(&tokens, 2);
        let prompt = splicer.splice(&tokens, text, &media).unwrap();
        assert_eq!(prompt.ids, integers::<u32>(&case["ids"]), "{text:?}");
        let rows: Vec<usize> = media
            .iter()
            .map(|medium| match medium {
                QwenMedium::Image { grid_thw, .. } | QwenMedium::Video { grid_thw, .. } => {
                    grid_thw.iter().product::<usize>() / 4
                }
            })
            .collect();
        check_spans(&prompt, |kind| splicer.placeholder(kind), &rows);

        let expected: Vec<Vec<i32>> = case["positions"]
            .as_array()
            .unwrap()
            .iter()
            .map(integers)
            .collect();
        if let Positions::Mrope(mrope) = &prompt.positions {
            assert_eq!(mrope.ids.to_vec(), expected);
        } else {
            let plain: Vec<i32> = (0..prompt.len() as i32).collect();
            assert!(media.is_empty() && expected.iter().all(|axis| *axis == plain));
        }
        assert_eq!(prompt.positions.delta(), case["delta"].as_i64().unwrap());
        for (index, &position) in expected[1].iter().enumerate() {
            assert_eq!(prompt.positions.at(index)[1], i64::from(position));
        }

        let replacing = splicer.outer_vision_tokens(OuterVisionTokens::Replace);
        let prompt = replacing.splice(&tokens, text, &media).unwrap();
        assert_eq!(
            prompt.ids,
            integers::<u32>(&case["ids_outer_replaced"]),
            "{text:?}"
        );
        seen += 1;
    }
    assert_eq!(seen, 80);
}

#[test]
fn sound_beside_pictures_is_causal_in_the_mode_named_after_mlx_bun() {
    let tokens = gemma_tokens("gemma4_unified");
    let image = Gemma4Medium::Image {
        soft_tokens: 2,
        digest: [1; 32],
    };
    let audio = Gemma4Medium::Audio {
        soft_tokens: 3,
        digest: [2; 32],
    };
    let splicer = Gemma4Splicer::new(&tokens, Gemma4Rules::MlxBun);
    let both = splicer
        .splice(
            &tokens,
            "<|image|><|audio|>",
            &[image.clone(), audio.clone()],
        )
        .unwrap();
    assert_eq!(both.attention, Attention::Causal);
    let one = splicer
        .splice(&tokens, "<|image|>", std::slice::from_ref(&image))
        .unwrap();
    assert_eq!(one.attention, Attention::Groups(vec![one.spans[0].range()]));
    let reference = Gemma4Splicer::new(&tokens, Gemma4Rules::Vision);
    let both = reference
        .splice(&tokens, "<|image|><|audio|>", &[image, audio])
        .unwrap();
    assert_eq!(both.attention, one.attention);
    assert_ne!(both.feature_scaling, one.feature_scaling);
}

#[test]
fn what_does_not_fit_is_named_with_its_numbers() {
    let tokens = gemma_tokens("gemma4_e2b");
    let splicer = Gemma4Splicer::new(&tokens, Gemma4Rules::Causal);
    let image = |soft_tokens| Gemma4Medium::Image {
        soft_tokens,
        digest: [0; 32],
    };
    let error = |text: &str, media: &[Gemma4Medium]| {
        splicer
            .splice(&tokens, text, media)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error("<|image|><|image|>", &[image(4)]),
        "the prompt holds 2 image markers for 1 image inputs"
    );
    assert_eq!(
        error("", &[image(4)]),
        "the prompt holds 0 image markers for 1 image inputs"
    );
    assert_eq!(
        error("<|audio|><|image|>", &[image(4)]),
        "the prompt holds 1 audio markers for 0 audio inputs"
    );
    let claim = error("<|image|>", &[image(usize::MAX)]);
    assert!(claim.contains("over 67108864 soft tokens"), "{claim}");
    for seconds in [-1.0, f64::NAN, f64::INFINITY] {
        let video = Gemma4Medium::Video {
            soft_tokens_per_frame: 1,
            timestamps: vec![seconds],
            digest: [0; 32],
        };
        let error = splicer.splice(&tokens, "<|video|>", &[video]).unwrap_err();
        assert!(
            matches!(error, Error::Timestamp { medium: 0, .. }),
            "{error}"
        );
    }

    // A tokenizer without the tokens serves text, and names what it lacks.
    let without = Gemma4Splicer::new(&qwen_tokens(), Gemma4Rules::Causal);
    let error = without
        .splice(&qwen_tokens(), "<|image|>", &[image(4)])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the tokenizer has no token \"<|image|>\""
    );
    assert!(without.splice(&qwen_tokens(), "text", &[]).is_ok());

    let tokens = qwen_tokens();
    let splicer = QwenSplicer::new(&tokens, 2);
    for grid_thw in [[1, 3, 4], [0, 2, 2], [1, 0, 2], [usize::MAX, 2, 2]] {
        let image = QwenMedium::Image {
            grid_thw,
            digest: [0; 32],
        };
        let error = splicer
            .splice(&tokens, "<|image_pad|>", &[image])
            .unwrap_err();
        assert!(matches!(error, Error::Grid { medium: 0, .. }), "{error}");
    }
    let video = QwenMedium::Video {
        grid_thw: [2, 2, 2],
        timestamps: vec![0.5],
        digest: [0; 32],
    };
    let error = splicer
        .splice(&tokens, "<|video_pad|>", &[video])
        .unwrap_err();
    assert_eq!(error.to_string(), "medium 0: 1 times for 2 frame groups");
}

/// Whole runs of the processors, pictures and sound included: the template's text, and the ids
/// that the engine's goldens were made with.
#[test]
fn whole_prompts_are_those_of_the_engines_goldens() {
    let mut seen = 0;
    for model in ["gemma4_e2b", "gemma4_26b", "gemma4_unified"] {
        let tokens = gemma_tokens(model);
        let folder = format!("{REFERENCE}/models/{model}");
        let template = ChatTemplate::from_folder(folder.as_ref()).unwrap();
        let splicer = Gemma4Splicer::new(&tokens, Gemma4Rules::Causal);
        for entry in std::fs::read_dir(format!("{REFERENCE}/goldens/{model}")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let golden: Value = serde_json::from_str(&text).unwrap();
            let Some(spans) = golden["spans"].as_array() else {
                continue;
            };
            if spans.iter().any(|span| span["kind"] == "video") {
                continue;
            }
            let options = TemplateOptions {
                add_generation_prompt: true,
                bos_token: "<bos>".to_owned(),
                ..TemplateOptions::default()
            };
            let conversation = Conversation::from_json(&golden["messages"]).unwrap();
            let text = template.render(conversation.messages(), &options).unwrap();
            assert_eq!(text, golden["prompt"], "{}", path.display());
            let media = spans
                .iter()
                .zip(conversation.media())
                .map(|(span, (kind, _))| {
                    let soft_tokens = span["length"].as_u64().unwrap() as usize;
                    let digest = [0; 32];
                    match kind {
                        MediaKind::Audio => Gemma4Medium::Audio {
                            soft_tokens,
                            digest,
                        },
                        _ => Gemma4Medium::Image {
                            soft_tokens,
                            digest,
                        },
                    }
                });
            let media: Vec<_> = media.collect();
            let prompt = splicer.splice(&tokens, &text, &media).unwrap();
            assert_eq!(prompt.ids, integers::<u32>(&golden["prompt_ids"]));
            for (found, expected) in prompt.spans.iter().zip(spans) {
                assert_eq!(found.kind.name(), expected["kind"]);
                assert_eq!(found.start as u64, expected["start"].as_u64().unwrap());
            }
            seen += 1;
        }
    }
    assert!(seen >= 30, "{seen}");
}

/// Published tokenizers may know the video marker as a word, not as an added token; transformers
/// adds it.
#[test]
fn a_video_marker_need_not_be_an_added_token() {
    let path = format!("{REFERENCE}/models/gemma4_e2b/tokenizer.json");
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let added = file["added_tokens"].as_array_mut().unwrap();
    added.retain(|token| token["content"] != "<|video|>");
    let plain = Tokens::from_bytes(file.to_string().as_bytes()).unwrap();
    assert_ne!(plain.encode("<|video|>").unwrap().len(), 1);
    let video = Gemma4Medium::Video {
        soft_tokens_per_frame: 2,
        timestamps: vec![0.0, 61.0],
        digest: [0; 32],
    };
    let splice = |tokens: &Tokens| {
        let splicer = Gemma4Splicer::new(tokens, Gemma4Rules::Vision);
        splicer
            .splice(tokens, "What<|video|>is it?", std::slice::from_ref(&video))
            .unwrap()
    };
    assert_eq!(splice(&plain), splice(&gemma_tokens("gemma4_e2b")));
}
