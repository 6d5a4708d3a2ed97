//! Qwen's tool calls.

use serde_json::{Map, Value};

use super::arguments::Tools;

type Call = Result<(String, Map<String, Value>), String>;

/// `{"name": NAME, "arguments": {..}}`.
pub(super) fn json_call(text: &str) -> Call {
    let read: Value =
        serde_json::from_str(text.trim()).map_err(|error| format!("it is not JSON: {error}"))?;
    let name = read.get("name").and_then(Value::as_str);
    let name = name
        .filter(|name| !name.is_empty())
        .ok_or("it has no name")?;
    let arguments = match read.get("arguments").or_else(|| read.get("parameters")) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments.clone(),
        // Some answers quote the object once more.
        Some(Value::String(text)) => serde_json::from_str(text)
            .map_err(|error| format!("its arguments are not an object: {error}"))?,
        Some(_) => return Err("its arguments are not an object".to_owned()),
    };
    Ok((name.to_owned(), arguments))
}

/// `<function=NAME>`, then for each argument `<parameter=KEY>`, a newline, the value, a
/// newline, `</parameter>`; then `</function>`.
///
/// Text is written as it is and all else as JSON, so only the tool's schema tells a number
/// from its digits. Without one, what reads as JSON is JSON.
pub(super) fn xml_call(text: &str, tools: Option<&Tools>) -> Call {
    let text = text.trim();
    let rest = text
        .strip_prefix("<function=")
        .ok_or("it begins with no <function=")?;
    let (name, rest) = rest.split_once('>').ok_or("its <function= is not closed")?;
    let name = name.trim();
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    // A last closing tag may be missing, where the answer was stopped.
    let mut rest = rest.trim_end().strip_suffix("</function>").unwrap_or(rest);
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok((name.to_owned(), arguments));
        }
        let after = rest.strip_prefix("<parameter=");
        let after = after.ok_or("there is something other than a <parameter=")?;
        let (key, after) = after.split_once('>').ok_or("a <parameter= is not closed")?;
        let (value, after) = after
            .split_once("</parameter>")
            .ok_or("a parameter is not closed")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        let key = key.trim();
        let typed = tools.and_then(|tools| tools.typed(name, key, value));
        let value = typed.unwrap_or_else(|| {
            serde_json::from_str(value.trim()).unwrap_or_else(|_| Value::String(value.to_owned()))
        });
        arguments.insert(key.to_owned(), value);
        rest = after;
    }
}
