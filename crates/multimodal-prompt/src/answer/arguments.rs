//! Tools' schemas, and arguments against them.

use jsonschema::Validator;
use serde_json::{Map, Value};

/// Problems of one call that are told.
const PROBLEM_LIMIT: usize = 16;

#[derive(Debug)]
pub(super) struct Tools(Vec<Tool>);

#[derive(Debug)]
struct Tool {
    name: String,
    parameters: Option<Value>,
    /// None where there is no schema, or what there is is none.
    validator: Option<Validator>,
}

impl Tools {
    /// Tools in `OpenAI`'s form, or bare functions.
    pub(super) fn new(tools: &[Value]) -> Self {
        let read = |tool: &Value| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            let parameters = function
                .get("parameters")
                .filter(|p| p.is_object())
                .cloned();
            let validator = parameters.as_ref().and_then(|schema| {
                let made = jsonschema::validator_for(schema);
                made.inspect_err(|error| tracing::warn!(%name, %error, "a tool's schema is none"))
                    .ok()
            });
            Some(Tool {
                name,
                parameters,
                validator,
            })
        };
        Self(tools.iter().filter_map(read).collect())
    }

    fn tool(&self, name: &str) -> Option<&Tool> {
        self.0.iter().find(|tool| tool.name == name)
    }

    pub(super) fn check(&self, name: &str, arguments: &Map<String, Value>) -> Vec<String> {
        let Some(tool) = self.tool(name) else {
            return vec![format!("there is no tool {name:?}")];
        };
        let Some(validator) = &tool.validator else {
            return Vec::new();
        };
        let arguments = Value::Object(arguments.clone());
        let problems = validator.iter_errors(&arguments).take(PROBLEM_LIMIT);
        problems
            .map(|error| match error.instance_path().to_string() {
                path if path.is_empty() => error.to_string(),
                path => format!("{path}: {error}"),
            })
            .collect()
    }

    /// The schema of one parameter.
    fn parameter(&self, name: &str, key: &str) -> Option<&Value> {
        let parameters = self.tool(name)?.parameters.as_ref()?;
        parameters.get("properties")?.get(key)
    }

    /// What a parameter is, of which only the text is known, by its schema.
    pub(super) fn typed(&self, name: &str, key: &str, text: &str) -> Option<Value> {
        let schema = self.parameter(name, key)?;
        let types = types(schema);
        if types.is_empty() {
            return None;
        }
        let is = |wanted: &str| types.contains(&wanted);
        let read = serde_json::from_str::<Value>(text.trim()).ok();
        let by_type = match text.trim() {
            // Templates print Python's words.
            "True" | "true" if is("boolean") => Some(Value::Bool(true)),
            "False" | "false" if is("boolean") => Some(Value::Bool(false)),
            "None" | "null" if is("null") => Some(Value::Null),
            _ => read.filter(|value| match value {
                Value::Number(number) => is("number") || (is("integer") && !number.is_f64()),
                Value::Array(_) => is("array"),
                Value::Object(_) => is("object"),
                _ => false,
            }),
        };
        // Text is what it says; anything else that can't be read is left to the check.
        by_type.or_else(|| Some(Value::String(text.to_owned())))
    }
}

/// The types that a schema allows, through `anyOf` and `oneOf` too.
fn types(schema: &Value) -> Vec<&str> {
    let mut types = Vec::new();
    match schema.get("type") {
        Some(Value::String(one)) => types.push(one.as_str()),
        Some(Value::Array(many)) => types.extend(many.iter().filter_map(Value::as_str)),
        _ => {}
    }
    for key in ["anyOf", "oneOf"] {
        for option in schema
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if let Some(one) = option.get("type").and_then(Value::as_str) {
                types.push(one);
            }
        }
    }
    types
}
