//! What messages from elsewhere may hold, and how they are read.

use serde_json::{Map, Value, json};

use crate::source::{decode, resolve};
use crate::{Conversation, Error, MediaKind, MediaSource, Result};

/// Roles that chat templates know.
const ROLES: [&str; 8] = [
    "system",
    "developer",
    "user",
    "assistant",
    "model",
    "tool",
    "function",
    "ipython",
];

/// What messages may hold.
///
/// The defaults suit messages that others have written: no files of this machine, no URLs.
///
/// ```
/// use prefill_multimodal_prompt::MessageRules;
/// use serde_json::json;
///
/// let message = json!([{"role": "user", "content": [{"type": "image", "image": "/etc/passwd"}]}]);
/// assert!(MessageRules::default().read(&message).is_err());
/// assert!(MessageRules::trusted().read(&message).is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRules {
    /// Whether a part may name a file of this machine, by its path or a `file:` URL.
    pub local_files: bool,
    /// Whether a part may name an `http:` or `https:` URL. It becomes a
    /// [`MediaSource::Url`], which the feature `fetch` can resolve.
    pub urls: bool,
    /// Bytes that a picture may have, inline or as a body.
    pub image_bytes: usize,
    /// Bytes that a clip of sound may have.
    pub audio_bytes: usize,
    /// Bytes that a video may have.
    pub video_bytes: usize,
    /// Media that one conversation may have.
    pub media: usize,
    /// Bytes that all text of a conversation may have, names and numbers included.
    pub text_bytes: usize,
    /// How deep lists and objects may lie in each other.
    pub depth: usize,
    /// Texts that no string of a message may hold. With
    /// [`Tokens::special_tokens`](crate::Tokens::special_tokens) nobody can write the tokens
    /// that open and close turns; unset, a template's text and a user's can't be told apart.
    pub forbidden_text: Vec<String>,
    /// Roles beside `system`, `developer`, `user`, `assistant`, `model`, `tool`, `function`
    /// and `ipython`.
    pub extra_roles: Vec<String>,
}

impl Default for MessageRules {
    /// No files, no URLs; 32 MiB a picture, 64 MiB a clip, 256 MiB a video; 1024 media;
    /// 64 MiB of text; a depth of 64.
    fn default() -> Self {
        Self {
            local_files: false,
            urls: false,
            image_bytes: 32 << 20,
            audio_bytes: 64 << 20,
            video_bytes: 256 << 20,
            media: 1024,
            text_bytes: 64 << 20,
            depth: 64,
            forbidden_text: Vec::new(),
            extra_roles: Vec::new(),
        }
    }
}

impl MessageRules {
    /// For messages of the program itself or of its user: files may be named.
    #[must_use]
    pub fn trusted() -> Self {
        Self {
            local_files: true,
            ..Self::default()
        }
    }

    /// The bytes that a medium of a kind may have.
    #[must_use]
    pub fn bytes(&self, kind: MediaKind) -> usize {
        match kind {
            MediaKind::Image => self.image_bytes,
            MediaKind::Audio => self.audio_bytes,
            MediaKind::Video => self.video_bytes,
        }
    }

    /// Reads the JSON text of a list of messages.
    ///
    /// # Errors
    /// [`Error::Json`] if it is no JSON (a lone surrogate, say); those of
    /// [`read`](Self::read).
    pub fn parse(&self, messages: &str) -> Result<Conversation> {
        let messages: Value = serde_json::from_str(messages).map_err(|error| Error::Json {
            line: error.line(),
            column: error.column(),
            fact: error.to_string(),
        })?;
        self.read(&messages)
    }

    /// Reads a JSON list of messages, as `OpenAI`'s clients and transformers' users write them.
    ///
    /// A message's content is text or a list of parts: `{"type": "text", "text": T}`, and for
    /// each kind of medium
    ///
    /// | kind | parts |
    /// |---|---|
    /// | image | `{"type": "image"}`, `{"type": "image", "image": F}`, `{"type": "image_url", "image_url": F}` or `{"url": F}` |
    /// | audio | `{"type": "audio"}`, `{"type": "audio", "audio": F}`, `{"type": "audio_url", "audio_url": F}` or `{"url": F}`, `{"type": "input_audio", "input_audio": {"data": BASE64}}` |
    /// | video | `{"type": "video"}`, `{"type": "video", "video": F}`, `{"type": "video_url", "video_url": F}` or `{"url": F}` |
    ///
    /// `F` is a `data:` URL in base64, a file's path as such or as a `file:` URL, or an
    /// `http(s):` URL. A part of the type `image`, `audio` or `video` may also give its medium
    /// as `"url": F`, `"path": F`, `"data": BASE64` or `"base64": BASE64`.
    ///
    /// A tool call's arguments may be an object or, as `OpenAI`'s clients send them, its JSON
    /// as a string. Other fields that templates may use (`reasoning`, `name` ...) are kept.
    ///
    /// # Errors
    /// [`Error::Message`] with the message's index if the list is empty, an entry is no
    /// object with a known `role`, its content is missing or of an unknown form, or it holds
    /// what the rules forbid.
    pub fn read(&self, messages: &Value) -> Result<Conversation> {
        let refused = |message, fact| Error::Message { message, fact };
        let list = messages.as_array().filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| {
            let fact = "the messages are not a list with at least one entry";
            refused(0, fact.to_owned())
        })?;
        let mut conversation = Conversation::default();
        let (mut text_bytes, mut media) = (0, 0);
        for (index, message) in list.iter().enumerate() {
            let mut reading = Reading {
                rules: self,
                media: Vec::new(),
            };
            let read = reading
                .message(message)
                .map_err(|fact| refused(index, fact))?;
            media += reading.media.len();
            if media > self.media {
                let fact = format!("it takes the media over the limit of {}", self.media);
                return Err(refused(index, fact));
            }
            if let Some(token) = self.forbidden_text.iter().find(|token| holds(&read, token)) {
                return Err(refused(index, format!("it holds the text {token:?}")));
            }
            text_bytes += size(&read);
            if text_bytes > self.text_bytes {
                let limit = self.text_bytes;
                let fact = format!("it takes the text to {text_bytes} bytes, over {limit}");
                return Err(refused(index, fact));
            }
            conversation.push_parts(read, reading.media);
        }
        Ok(conversation)
    }
}

struct Reading<'r> {
    rules: &'r MessageRules,
    media: Vec<(MediaKind, MediaSource)>,
}

impl Reading<'_> {
    fn message(&mut self, message: &Value) -> Result<Value, String> {
        let limit = self.rules.depth;
        if is_deeper(message, limit) {
            return Err(format!("it is nested deeper than {limit}"));
        }
        let fields = message.as_object().ok_or("it is not an object")?;
        let role = fields.get("role").and_then(Value::as_str);
        let role = role.ok_or("it has no role")?;
        if !ROLES.contains(&role) && !self.rules.extra_roles.iter().any(|extra| extra == role) {
            return Err(format!("its role {role:?} is unknown"));
        }
        let mut fields = fields.clone();
        let calls = parse_calls(&mut fields)?;
        if calls && is_deeper(&fields["tool_calls"], limit) {
            return Err(format!("its arguments are nested deeper than {limit}"));
        }
        let is_answer = matches!(role, "assistant" | "model");
        match fields.get_mut("content") {
            Some(Value::String(_)) => {}
            // An answer may be a call, or nothing but thoughts.
            None | Some(Value::Null) if is_answer => {}
            None | Some(Value::Null) => return Err("it has no content".to_owned()),
            Some(Value::Array(parts)) => {
                for part in parts.iter_mut() {
                    *part = self.part(part)?;
                }
            }
            Some(_) => return Err("its content is neither text nor a list of parts".to_owned()),
        }
        Ok(Value::Object(fields))
    }

    fn part(&mut self, part: &Value) -> Result<Value, String> {
        let fields = part.as_object().ok_or("a part is not an object")?;
        let stated = fields
            .get("type")
            .and_then(Value::as_str)
            .ok_or("a part has no type")?;
        let kind = match stated {
            "text" | "refusal" => {
                let text = fields.get(stated).and_then(Value::as_str);
                let text = text.ok_or_else(|| format!("a {stated} part has no text"))?;
                return Ok(json!({"type": "text", "text": text}));
            }
            "image" | "image_url" => MediaKind::Image,
            "audio" | "audio_url" | "input_audio" => MediaKind::Audio,
            "video" | "video_url" => MediaKind::Video,
            other => return Err(format!("a part has the unknown type {other:?}")),
        };
        let source = if stated == "input_audio" {
            let object = fields.get(stated).and_then(Value::as_object);
            let data = object.and_then(|object| object.get("data")?.as_str());
            let data = data.ok_or("an input_audio part has no data")?;
            self.decode(kind, data)?
        } else {
            self.source(kind, fields, stated)?
        };
        self.media.push((kind, source));
        Ok(json!({"type": kind.name()}))
    }

    fn decode(&self, kind: MediaKind, data: &str) -> Result<MediaSource, String> {
        let bytes = decode(data, self.rules.bytes(kind));
        bytes
            .map(MediaSource::Bytes)
            .map_err(|fact| format!("a part's {kind} {fact}"))
    }

    /// The source that a media part names, under the key of its own type or another.
    fn source(
        &self,
        kind: MediaKind,
        fields: &Map<String, Value>,
        key: &str,
    ) -> Result<MediaSource, String> {
        let other = |name: &str| fields.get(name).and_then(Value::as_str);
        let reference = match fields.get(key) {
            None if key.ends_with("_url") => return Err(format!("a part has no {key}")),
            None => match other("data").or_else(|| other("base64")) {
                Some(data) => return self.decode(kind, data),
                None => match other("url").or_else(|| other("path")) {
                    Some(reference) => reference,
                    None => return Ok(MediaSource::Unnamed),
                },
            },
            Some(Value::String(reference)) => reference,
            Some(Value::Object(object)) => match object.get("url") {
                Some(Value::String(reference)) => reference,
                _ => return Err(format!("the {key} of a part has no url")),
            },
            Some(_) => return Err(format!("the {key} of a part is neither text nor an object")),
        };
        let source = resolve(reference, self.rules.bytes(kind));
        let source = source.map_err(|fact| format!("a part's {key} {fact}"))?;
        match source {
            MediaSource::Path(_) if !self.rules.local_files => Err(format!(
                "a part's {key} names a file, which is not allowed here"
            )),
            MediaSource::Url(_) if !self.rules.urls => Err(format!(
                "a part's {key} names a URL, which is not allowed here"
            )),
            source => Ok(source),
        }
    }
}

/// Templates walk the arguments of a tool call as an object. Gives whether there are calls.
fn parse_calls(fields: &mut Map<String, Value>) -> Result<bool, String> {
    let calls = match fields.get_mut("tool_calls") {
        None | Some(Value::Null) => return Ok(false),
        Some(Value::Array(calls)) => calls,
        Some(_) => return Err("its tool_calls are not a list".to_owned()),
    };
    for call in calls {
        // Some clients leave the object `function` out.
        let arguments = match call.pointer_mut("/function/arguments") {
            Some(arguments) => arguments,
            None => match call.get_mut("arguments") {
                Some(arguments) => arguments,
                None => continue,
            },
        };
        if let Some(text) = arguments.as_str() {
            // No arguments at all are sent as an empty string.
            let text = if text.trim().is_empty() { "{}" } else { text };
            *arguments = serde_json::from_str(text)
                .map_err(|error| format!("a tool call's arguments are not JSON: {error}"))?;
        }
        match arguments {
            Value::Object(_) => {}
            Value::Null => *arguments = json!({}),
            _ => return Err("a tool call's arguments are not an object".to_owned()),
        }
    }
    Ok(true)
}

/// Whether lists and objects lie in each other more than `limit` deep.
fn is_deeper(value: &Value, limit: usize) -> bool {
    let below = |value: &Value| limit == 0 || is_deeper(value, limit - 1);
    match value {
        Value::Array(items) => limit == 0 || items.iter().any(below),
        Value::Object(fields) => limit == 0 || fields.values().any(below),
        _ => false,
    }
}

/// Whether any string of a value, or name of a field, holds `text`.
fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(string) => string.contains(text),
        Value::Array(items) => items.iter().any(|item| holds(item, text)),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name.contains(text) || holds(value, text)),
        _ => false,
    }
}

/// Bytes of text in a value; numbers and brackets count as eight.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => 8 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => {
            8 + fields
                .iter()
                .map(|(key, value)| key.len() + size(value))
                .sum::<usize>()
        }
        _ => 8,
    }
}
