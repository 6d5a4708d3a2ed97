//! Renders and ids against transformers' over a conformance set
//! (`tests/reference/prompt/make_renders.py`).
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fs;
use std::path::{Path, PathBuf};

use prefill_multimodal_prompt::{ChatTemplate, MessageRules, TemplateOptions, Tokens};
use serde_json::{Map, Value};

const PROMPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference/prompt");
const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/reference/models");

fn read(path: impl AsRef<Path>) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn options(stated: &Value, bos_token: &str, eos_token: &str) -> TemplateOptions {
    let mut options = TemplateOptions {
        bos_token: bos_token.to_owned(),
        eos_token: eos_token.to_owned(),
        ..TemplateOptions::default()
    };
    for (name, value) in stated.as_object().unwrap() {
        match name.as_str() {
            "add_generation_prompt" => options.add_generation_prompt = value.as_bool().unwrap(),
            "enable_thinking" => options.thinking = value.as_bool(),
            "tools" => options.tools = value.as_array().cloned(),
            _ => drop(options.variables.insert(name.clone(), value.clone())),
        }
    }
    options
}

/// Compares every case; gives how many rendered and how many raised.
fn compare(
    file: &Value,
    cases: &[&Value],
    template: &ChatTemplate,
    tokens: Option<&Tokens>,
    (bos_token, eos_token): (&str, &str),
) -> (usize, usize) {
    let (mut rendered, mut raised) = (0, 0);
    let mut wrong = Vec::new();
    for case in cases {
        let name = case["conversation"].as_str().unwrap();
        let stated = &file["options"][case["options"].as_u64().unwrap() as usize];
        let options = options(stated, bos_token, eos_token);
        let messages = &file["conversations"][name];
        let conversation = MessageRules::default().read(messages).unwrap();
        let text = template.render(conversation.messages(), &options);
        let Some(expected) = case["text"].as_str() else {
            raised += 1;
            if let Ok(text) = text {
                wrong.push(format!("{name}: {} but gave {text:?}", case["error"]));
            }
            continue;
        };
        rendered += 1;
        let Ok(text) = text.as_deref() else {
            wrong.push(format!("{name}, {stated}: {}", text.unwrap_err()));
            continue;
        };
        if text != expected {
            let at = text
                .bytes()
                .zip(expected.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            let from = text.floor_char_boundary(at.saturating_sub(30));
            let end = |text: &str| text[from..].chars().take(90).collect::<String>();
            wrong.push(format!(
                "{name}, {stated}\n  {:?}\n  {:?}",
                end(text),
                end(expected)
            ));
        } else if let Some((tokens, ids)) = tokens.zip(case["ids"].as_array()) {
            let ids: Vec<u32> = ids.iter().map(|id| id.as_u64().unwrap() as u32).collect();
            assert_eq!(tokens.encode(text).unwrap(), ids, "{name}");
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
    (rendered, raised)
}

fn ours(name: &str, tokens: Option<&Tokens>) -> (usize, usize) {
    let file = read(format!("{PROMPT}/renders.json"));
    let cases = file["cases"].as_array().unwrap();
    let cases: Vec<&Value> = cases
        .iter()
        .filter(|case| case["template"] == name)
        .collect();
    let source = fs::read_to_string(format!("{PROMPT}/templates/{name}.jinja")).unwrap();
    let template = ChatTemplate::new(&source).unwrap();
    compare(&file, &cases, &template, tokens, ("<bos>", "<eos>"))
}

fn qwen() -> Tokens {
    Tokens::from_bytes(&fs::read(format!("{PROMPT}/qwen_tokenizer.json")).unwrap()).unwrap()
}

#[test]
fn gemma_renders_as_in_transformers() {
    let tokens = Tokens::from_folder(format!("{MODELS}/gemma4_e2b").as_ref()).unwrap();
    assert_eq!(ours("gemma", Some(&tokens)), (186, 0));
}

#[test]
fn qwen_vl_renders_as_in_transformers() {
    assert_eq!(ours("qwen_vl", Some(&qwen())), (186, 0));
}

#[test]
fn qwen_think_renders_and_raises_as_in_transformers() {
    assert_eq!(ours("qwen_think", Some(&qwen())), (150, 36));
}

#[test]
fn the_constructs_of_other_families_render_as_in_transformers() {
    assert_eq!(ours("constructs", None), (18, 0));
}

/// `PREFILL_REAL_TEMPLATES` names a folder of checkpoints' files, each with the `renders.json`
/// that `make_renders.py FOLDER` writes beside its tokenizer.
#[test]
fn real_templates_render_as_in_transformers() {
    let Some(folder) = std::env::var_os("PREFILL_REAL_TEMPLATES") else {
        return;
    };
    let mut folders = vec![PathBuf::from(folder)];
    let mut checked = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            }
        }
        let renders = folder.join("renders.json");
        if !renders.exists() {
            continue;
        }
        let file = read(renders);
        let config = read(folder.join("tokenizer_config.json"));
        let token = |name: &str| -> String {
            let value = config.get(name).unwrap_or(&Value::Null);
            let text = value.as_str().or_else(|| value.get("content")?.as_str());
            text.unwrap_or_default().to_owned()
        };
        let template = ChatTemplate::from_folder(&folder).unwrap();
        let tokens = Tokens::from_folder(&folder).unwrap();
        let cases: Vec<&Value> = file["cases"].as_array().unwrap().iter().collect();
        let sequence = (token("bos_token"), token("eos_token"));
        compare(
            &file,
            &cases,
            &template,
            Some(&tokens),
            (&sequence.0, &sequence.1),
        );
        checked += 1;
    }
    assert!(checked > 0, "no renders.json below the folder");
}

#[test]
fn named_templates_are_chosen_as_in_transformers() {
    let template = ChatTemplate::named([
        ("tool_use", "tools"),
        ("default", "plain"),
        ("rag", "{{ documents | length }}"),
    ])
    .unwrap();
    let render = |options: TemplateOptions| template.render(&[], &options).unwrap();
    assert_eq!(render(TemplateOptions::default()), "plain");
    let tools = || TemplateOptions {
        tools: Some(Vec::new()),
        ..TemplateOptions::default()
    };
    assert_eq!(render(tools()), "tools");
    let named = |name: &str| TemplateOptions {
        template: Some(name.to_owned()),
        ..tools()
    };
    assert_eq!(render(named("default")), "plain");
    let documents = Some(vec![Value::Null; 3]);
    assert_eq!(
        render(TemplateOptions {
            documents,
            ..named("rag")
        }),
        "3"
    );
    let error = template
        .render(&[], &named("other"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        r#"no chat template is named "other" among ["tool_use", "default", "rag"]"#
    );

    // One template serves with tools too; without a default there must be a name.
    assert_eq!(
        ChatTemplate::new("one")
            .unwrap()
            .render(&[], &tools())
            .unwrap(),
        "one"
    );
    let only = ChatTemplate::named([("tool_use", "tools")]).unwrap();
    assert!(only.render(&[], &TemplateOptions::default()).is_err());
    assert_eq!(only.render(&[], &tools()).unwrap(), "tools");
}

#[test]
fn templates_are_found_wherever_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let names = || {
        let found = ChatTemplate::from_folder(folder.path()).unwrap();
        let first = TemplateOptions {
            template: Some(found.names()[0].clone()),
            ..TemplateOptions::default()
        };
        (found.render(&[], &first).unwrap(), found.names().len())
    };
    let error = ChatTemplate::from_folder(folder.path()).unwrap_err();
    assert!(error.to_string().contains("no chat template"), "{error}");
    write("processor_config.json", r#"{"chat_template": "processor"}"#);
    assert_eq!(names(), ("processor".to_owned(), 1));
    write("chat_template.json", r#"{"chat_template": "json"}"#);
    assert_eq!(names(), ("json".to_owned(), 1));
    let list = r#"{"chat_template": [{"name": "default", "template": "listed"}, {"name": "tool_use", "template": "t"}]}"#;
    write("tokenizer_config.json", list);
    assert_eq!(names(), ("listed".to_owned(), 2));
    write("chat_template.jinja", "file");
    write("additional_chat_templates/tool_use.jinja", "tool file");
    write("additional_chat_templates/README.md", "no template");
    assert_eq!(names(), ("file".to_owned(), 2));
    let found = ChatTemplate::from_folder(folder.path()).unwrap();
    let tools = TemplateOptions {
        tools: Some(Vec::new()),
        ..TemplateOptions::default()
    };
    assert_eq!(found.render(&[], &tools).unwrap(), "tool file");
    fs::remove_dir_all(folder.path().join("additional_chat_templates")).unwrap();
    fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    write(
        "tokenizer_config.json",
        r#"{"chat_template": [{"name": "default"}]}"#,
    );
    let error = ChatTemplate::from_folder(folder.path()).unwrap_err();
    assert!(
        error.to_string().contains("no name or no template"),
        "{error}"
    );
}

#[test]
fn options_reach_the_template() {
    let template = ChatTemplate::new(
        "{{ enable_thinking }} {{ reasoning_effort }} {{ x }} {{ strftime_now('%Y') }}",
    )
    .unwrap();
    let mut options = TemplateOptions {
        thinking: Some(true),
        reasoning_effort: Some("low".to_owned()),
        variables: Map::from_iter([("x".to_owned(), 1.into())]),
        now: Some(std::time::UNIX_EPOCH + std::time::Duration::from_hours(400 * 24)),
        ..TemplateOptions::default()
    };
    assert_eq!(template.render(&[], &options).unwrap(), "True low 1 1971");
    // A variable stands above the option of the same meaning.
    options
        .variables
        .insert("enable_thinking".to_owned(), false.into());
    assert!(template.render(&[], &options).unwrap().starts_with("False"));
}
