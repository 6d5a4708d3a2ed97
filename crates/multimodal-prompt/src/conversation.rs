//! OpenAI-style messages, with their media taken out.

use serde_json::{Map, Value, json};

use crate::source::{decode, resolve};
use crate::{Error, MediaKind, MediaSource, Result};

/// Messages in the form that chat templates expect, and their media in document order.
///
/// Accepted parts, in messages whose content is a list: `{"type": "text", "text": T}`,
/// and for each kind of medium the forms that clients send:
///
/// | kind | parts |
/// |---|---|
/// | image | `{"type": "image"}`, `{"type": "image", "image": F}`, `{"type": "image_url", "image_url": F}` or `{"url": F}` |
/// | audio | `{"type": "audio"}`, `{"type": "audio", "audio": F}`, `{"type": "audio_url", "audio_url": F}` or `{"url": F}`, `{"type": "input_audio", "input_audio": {"data": BASE64}}` |
/// | video | `{"type": "video"}`, `{"type": "video", "video": F}`, `{"type": "video_url", "video_url": F}` or `{"url": F}` |
///
/// `F` is a file's path, as such or as a `file:` URL, or a `data:` URL in base64 of at most
/// 64 MiB. Other URLs are refused: this crate opens no connection. A tool call's arguments
/// may be an object or, as OpenAI's clients send them, its JSON as a string.
///
/// ```
/// use prefill_multimodal_prompt::{Conversation, MediaKind, MediaSource};
///
/// let conversation = Conversation::user("What is here?", [(MediaKind::Image, "a.png".into())]);
/// let (kind, source) = &conversation.media()[0];
/// assert_eq!(*kind, MediaKind::Image);
/// assert_eq!(*source, MediaSource::Path("a.png".into()));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    messages: Vec<Value>,
    media: Vec<(MediaKind, MediaSource)>,
}

impl Conversation {
    /// One user message: the media first, in the given order, then the text.
    pub fn user(
        text: impl Into<String>,
        media: impl IntoIterator<Item = (MediaKind, MediaSource)>,
    ) -> Self {
        let media: Vec<_> = media.into_iter().collect();
        let mut parts: Vec<Value> = media
            .iter()
            .map(|(kind, _)| json!({"type": kind.name()}))
            .collect();
        parts.push(json!({"type": "text", "text": text.into()}));
        Self {
            messages: vec![json!({"role": "user", "content": parts})],
            media,
        }
    }

    /// Reads a JSON list of messages.
    ///
    /// Fields that templates may use (`tool_calls`, `reasoning`, `name` ...) are kept as
    /// they are.
    ///
    /// # Errors
    /// [`Error::Message`] with the message's index if the list is empty, an entry is no
    /// object with a `role`, or a part is of an unknown form.
    pub fn from_json(messages: &Value) -> Result<Self> {
        let list = messages
            .as_array()
            .filter(|list| !list.is_empty())
            .ok_or(Error::Message {
                message: 0,
                fact: "the messages are not a list with at least one entry".to_owned(),
            })?;
        let mut conversation = Self::default();
        for (index, message) in list.iter().enumerate() {
            let read = conversation.read_message(message);
            let message = read.map_err(|fact| Error::Message {
                message: index,
                fact,
            })?;
            conversation.messages.push(message);
        }
        Ok(conversation)
    }

    /// The messages, media parts reduced to `{"type": KIND}`.
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// The media in document order.
    #[must_use]
    pub fn media(&self) -> &[(MediaKind, MediaSource)] {
        &self.media
    }

    /// Gives the parts that named no source theirs: the next of `sources` of their kind.
    ///
    /// # Errors
    /// [`Error::MarkerCount`] if `sources` has another number of a kind than there are
    /// parts without source.
    pub fn supply(&mut self, sources: Vec<(MediaKind, MediaSource)>) -> Result<()> {
        for kind in [MediaKind::Image, MediaKind::Audio, MediaKind::Video] {
            let given = sources.iter().filter(|(given, _)| *given == kind).count();
            let wanted = self.unnamed(kind).count();
            if given != wanted {
                return Err(Error::MarkerCount {
                    kind,
                    markers: wanted,
                    media: given,
                });
            }
        }
        for (kind, source) in sources {
            // The counts agree, so there is a place for each.
            if let Some(place) = self.unnamed(kind).next() {
                *place = source;
            }
        }
        Ok(())
    }

    fn unnamed(&mut self, kind: MediaKind) -> impl Iterator<Item = &mut MediaSource> {
        self.media
            .iter_mut()
            .filter(move |(found, source)| *found == kind && *source == MediaSource::Unnamed)
            .map(|(_, source)| source)
    }

    fn read_message(&mut self, message: &Value) -> Result<Value, String> {
        let fields = message.as_object().ok_or("it is not an object")?;
        if !fields.get("role").is_some_and(Value::is_string) {
            return Err("it has no role".to_owned());
        }
        let mut fields = fields.clone();
        parse_arguments(&mut fields)?;
        match fields.get_mut("content") {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(Value::Array(parts)) => {
                for part in parts.iter_mut() {
                    *part = self.read_part(part)?;
                }
            }
            Some(_) => return Err("its content is neither text nor a list of parts".to_owned()),
        }
        Ok(Value::Object(fields))
    }

    fn read_part(&mut self, part: &Value) -> Result<Value, String> {
        let fields = part.as_object().ok_or("a part is not an object")?;
        let stated = fields
            .get("type")
            .and_then(Value::as_str)
            .ok_or("a part has no type")?;
        if stated == "input_audio" {
            let data = fields
                .get(stated)
                .and_then(|object| object.get("data")?.as_str());
            let data = data.ok_or("an input_audio part has no data")?;
            self.media
                .push((MediaKind::Audio, MediaSource::Bytes(decode(data)?)));
            return Ok(json!({"type": MediaKind::Audio.name()}));
        }
        let kind = match stated {
            "text" => {
                let text = fields.get("text").and_then(Value::as_str);
                let text = text.ok_or("a text part has no text")?;
                return Ok(json!({"type": "text", "text": text}));
            }
            "image" | "image_url" => MediaKind::Image,
            "audio" | "audio_url" => MediaKind::Audio,
            "video" | "video_url" => MediaKind::Video,
            other => return Err(format!("a part has the unknown type {other:?}")),
        };
        self.media.push((kind, source(fields, stated)?));
        Ok(json!({"type": kind.name()}))
    }
}

/// The source that a media part names under the key of its own type.
fn source(fields: &Map<String, Value>, key: &str) -> Result<MediaSource, String> {
    let reference = match fields.get(key) {
        None if key.ends_with("_url") => return Err(format!("a part has no {key}")),
        None => return Ok(MediaSource::Unnamed),
        Some(Value::String(reference)) => reference,
        Some(Value::Object(object)) => match object.get("url") {
            Some(Value::String(reference)) => reference,
            _ => return Err(format!("the {key} of a part has no url")),
        },
        Some(_) => return Err(format!("the {key} of a part is neither text nor an object")),
    };
    resolve(reference).map_err(|fact| format!("a {key} {fact}"))
}

/// Templates walk the arguments of a tool call as an object.
fn parse_arguments(fields: &mut Map<String, Value>) -> Result<(), String> {
    let calls = fields.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let Some(arguments) = call.pointer_mut("/function/arguments") else {
            continue;
        };
        if let Some(text) = arguments.as_str() {
            // No arguments at all are sent as an empty string.
            let text = if text.trim().is_empty() { "{}" } else { text };
            *arguments = serde_json::from_str(text)
                .map_err(|error| format!("a tool call's arguments are not JSON: {error}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(messages: Value) -> String {
        Conversation::from_json(&messages).unwrap_err().to_string()
    }

    #[test]
    fn takes_media_out_in_document_order() {
        let conversation = Conversation::from_json(&json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "image", "image": "a.png"},
                {"type": "text", "text": "and"},
                {"type": "audio_url", "audio_url": {"url": "file:///b.wav"}},
                {"type": "image"},
            ]},
        ]))
        .unwrap();
        assert_eq!(
            conversation.media(),
            [
                (MediaKind::Image, MediaSource::Path("a.png".into())),
                (MediaKind::Audio, MediaSource::Path("/b.wav".into())),
                (MediaKind::Image, MediaSource::Unnamed),
            ]
        );
        assert_eq!(
            conversation.messages()[1]["content"],
            json!([{"type": "image"}, {"type": "text", "text": "and"},
                   {"type": "audio"}, {"type": "image"}])
        );
    }

    #[test]
    fn supplies_bare_parts_in_order_and_counts() {
        let messages = json!([{"role": "user", "content": [
            {"type": "image"}, {"type": "image", "image": "named.png"}, {"type": "image"}]}]);
        let mut conversation = Conversation::from_json(&messages).unwrap();
        let image = |name: &str| (MediaKind::Image, MediaSource::Path(name.into()));
        let error = conversation.clone().supply(vec![image("1")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the prompt holds 2 image markers for 1 image inputs"
        );
        conversation.supply(vec![image("1"), image("2")]).unwrap();
        assert_eq!(
            conversation.media(),
            [image("1"), image("named.png"), image("2")]
        );
    }

    #[test]
    fn keeps_fields_that_templates_use() {
        let messages = json!([{"role": "assistant", "content": null,
                               "tool_calls": [{"function": {"name": "f", "arguments": {"b": 1, "a": 2}}}]}]);
        let conversation = Conversation::from_json(&messages).unwrap();
        assert_eq!(Value::from(conversation.messages()), messages);
    }

    fn image_source(reference: &str) -> Result<MediaSource, Error> {
        let part = json!({"type": "image_url", "image_url": {"url": reference}});
        let messages = json!([{"role": "user", "content": [part]}]);
        Conversation::from_json(&messages).map(|conversation| conversation.media[0].1.clone())
    }

    #[test]
    fn reads_what_openai_clients_send() {
        let bytes = |bytes: &[u8]| MediaSource::Bytes(bytes.to_vec());
        let inline = image_source("data:image/png;base64,iVBORw==").unwrap();
        assert_eq!(inline, bytes(b"\x89PNG"));
        let path = |path: &str| MediaSource::Path(path.into());
        for (reference, expected) in [
            ("file:///a%20b.png", path("/a b.png")),
            ("file://localhost/x.png", path("/x.png")),
            ("photo:1.png", path("photo:1.png")),
        ] {
            assert_eq!(image_source(reference).unwrap(), expected);
        }
        for reference in [
            "file://host/x.png",
            "data:image/png,raw",
            "data:;base64,!",
            "ftp://x",
        ] {
            assert!(image_source(reference).is_err(), "{reference}");
        }
        let clip = json!([{"role": "user", "content": [
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}]}]);
        let conversation = Conversation::from_json(&clip).unwrap();
        assert_eq!(conversation.media(), [(MediaKind::Audio, bytes(b"RIFF"))]);
    }

    #[test]
    fn arguments_as_a_string_become_an_object() {
        let call = |arguments: &str| {
            json!([{"role": "assistant", "content": null,
                    "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}])
        };
        let read = |arguments| {
            let conversation = Conversation::from_json(&call(arguments))?;
            Ok::<_, Error>(
                conversation.messages()[0]["tool_calls"][0]["function"]["arguments"].clone(),
            )
        };
        assert_eq!(
            read(r#"{"b": 1, "a": 2}"#).unwrap(),
            json!({"b": 1, "a": 2})
        );
        assert_eq!(read("").unwrap(), json!({}));
        assert!(read("{").unwrap_err().to_string().contains("not JSON"));
    }

    #[test]
    fn names_what_is_wrong() {
        assert!(fact(json!([])).contains("at least one entry"));
        assert!(
            fact(json!([{"role": "user"}, {"content": "x"}]))
                .starts_with("message 1: it has no role")
        );
        assert!(fact(json!([{"role": "user", "content": 3}])).contains("neither text"));
        assert!(
            fact(json!([{"role": "user", "content": [{"type": "smell"}]}])).contains("\"smell\"")
        );
        assert!(
            fact(json!([{"role": "user", "content": [{"type": "image_url", "image_url": "https://x/y.png"}]}]))
                .contains("scheme \"https\"")
        );
    }
}
