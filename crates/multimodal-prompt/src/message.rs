//! Messages that a Rust program builds.

use serde_json::{Map, Value, json};

use crate::{MediaKind, MediaSource};

/// One message of a conversation, built part by part.
///
/// ```
/// use prefill_multimodal_prompt::{Conversation, Message};
/// use serde_json::json;
///
/// let conversation: Conversation = [
///     Message::user().text("Which city is this?").image("city.png"),
///     Message::assistant().reasoning("A tower.").tool_call("1", "weather", json!({"city": "Paris"})),
///     Message::tool("1").text("18 degrees"),
/// ]
/// .into_iter()
/// .collect();
/// assert_eq!(conversation.messages()[2], json!({"role": "tool", "tool_call_id": "1", "content": "18 degrees"}));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    fields: Map<String, Value>,
    parts: Vec<Value>,
    media: Vec<(MediaKind, MediaSource)>,
}

impl Message {
    /// A message of any role.
    #[must_use]
    pub fn new(role: &str) -> Self {
        Self {
            fields: Map::from_iter([("role".to_owned(), role.into())]),
            parts: Vec::new(),
            media: Vec::new(),
        }
    }

    /// Instructions that hold for the whole conversation.
    #[must_use]
    pub fn system() -> Self {
        Self::new("system")
    }

    /// What the user says.
    #[must_use]
    pub fn user() -> Self {
        Self::new("user")
    }

    /// What the model has answered.
    #[must_use]
    pub fn assistant() -> Self {
        Self::new("assistant")
    }

    /// What a tool gave in answer to the call of this id.
    #[must_use]
    pub fn tool(call_id: &str) -> Self {
        Self::new("tool").field("tool_call_id", call_id)
    }

    /// Adds text.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.parts
            .push(json!({"type": "text", "text": text.into()}));
        self
    }

    /// Adds a picture: a path, or a file's bytes.
    #[must_use]
    pub fn image(self, source: impl Into<MediaSource>) -> Self {
        self.medium(MediaKind::Image, source.into())
    }

    /// Adds sound: a path, or a file's bytes.
    #[must_use]
    pub fn audio(self, source: impl Into<MediaSource>) -> Self {
        self.medium(MediaKind::Audio, source.into())
    }

    /// Adds a video: a path, or a file's bytes.
    #[must_use]
    pub fn video(self, source: impl Into<MediaSource>) -> Self {
        self.medium(MediaKind::Video, source.into())
    }

    /// What the assistant thought before it answered.
    #[must_use]
    pub fn reasoning(self, text: impl Into<String>) -> Self {
        self.field("reasoning_content", text.into())
    }

    /// Adds a call of a tool, whose arguments are an object.
    #[must_use]
    pub fn tool_call(mut self, id: &str, name: &str, arguments: Value) -> Self {
        let call = json!({
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        });
        let calls = self.fields.entry("tool_calls").or_insert_with(|| json!([]));
        if let Some(calls) = calls.as_array_mut() {
            calls.push(call);
        }
        self
    }

    /// Sets any other field that the template reads.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    fn medium(mut self, kind: MediaKind, source: MediaSource) -> Self {
        self.parts.push(json!({"type": kind.name()}));
        self.media.push((kind, source));
        self
    }

    /// The message as templates read it: a single text is its content, several parts are a
    /// list.
    pub(crate) fn into_parts(self) -> (Value, Vec<(MediaKind, MediaSource)>) {
        let mut fields = self.fields;
        let content = match self.parts.as_slice() {
            [] => None,
            [part] if part.get("text").is_some() => part.get("text").cloned(),
            _ => Some(Value::Array(self.parts)),
        };
        if let Some(content) = content {
            fields.insert("content".to_owned(), content);
        }
        (Value::Object(fields), self.media)
    }
}
