//! Messages as transformers hands them to a template.

use serde_json::{Map, Value};

/// The names that reasoning goes by, in the order in which they are looked for.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Leaves null fields out, and gives reasoning under the names that templates read:
/// `_normalize_chat_messages` and `_alias_reasoning_fields` (transformers 5.24,
/// `utils/chat_template_utils.py`).
pub(super) fn normalized(messages: &[Value]) -> Value {
    messages.iter().map(message).collect()
}

fn message(message: &Value) -> Value {
    let Some(fields) = message.as_object() else {
        return message.clone();
    };
    let stated = || fields.iter().filter(|(_, value)| !value.is_null());
    let reasoning = REASONING
        .iter()
        .find_map(|name| fields.get(*name).filter(|value| !value.is_null()));
    let mut made = Map::new();
    if let Some(reasoning) = reasoning {
        made.insert("thinking".to_owned(), reasoning.clone());
    }
    made.extend(stated().map(|(name, value)| (name.clone(), value.clone())));
    if let Some(reasoning) = reasoning {
        made.insert("reasoning_content".to_owned(), reasoning.clone());
    }
    Value::Object(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nulls_go_and_reasoning_gets_all_its_names() {
        let messages = [
            json!({"role": "assistant", "content": null, "reasoning": "r", "tool_calls": [null]}),
            json!({"role": "assistant", "thinking": "t", "reasoning": "r", "content": "x"}),
        ];
        assert_eq!(
            normalized(&messages),
            json!([
                {"thinking": "r", "role": "assistant", "reasoning": "r", "tool_calls": [null], "reasoning_content": "r"},
                {"thinking": "t", "role": "assistant", "reasoning": "r", "content": "x", "reasoning_content": "t"},
            ])
        );
    }
}
