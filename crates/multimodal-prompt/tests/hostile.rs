//! Foreign text never panics: templates and messages.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use prefill_multimodal_prompt::{ChatTemplate, Conversation, TemplateOptions};
use proptest::prelude::*;
use serde_json::{Value, json};

/// JSON of any form, with the keys that messages have.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "(user|text|image|image_url|input_audio|data:;base64,|file://|\\PC{0,8})"
            .prop_map(Value::from),
    ];
    let key = "(role|content|type|text|image|image_url|url|tool_calls|function|arguments)";
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn templates(source in "([{}%#+-]|generation|endgeneration|for|if|[a-z .|()'\\[\\]0-9]){0,40}") {
        if let Ok(template) = ChatTemplate::new(&source) {
            let message = json!({"role": "user", "content": "x"});
            let _ = template.render(&[message], &TemplateOptions::default());
            let _ = template.reads("bos_token");
        }
    }

    #[test]
    fn messages(value in any_json()) {
        let _ = Conversation::from_json(&value);
        let _ = Conversation::from_json(&json!([value]));
    }
}
