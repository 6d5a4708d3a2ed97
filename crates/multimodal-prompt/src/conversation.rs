//! Chat messages, with their media taken out.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::{Error, MediaKind, MediaSource, Message, MessageRules, Result};

/// Messages in the form that chat templates expect, and their media in document order.
///
/// Made from a program's own [`Message`]s, or read from OpenAI-style JSON:
/// [`from_json`](Self::from_json) trusts it, [`MessageRules`] says what another's may hold.
/// Deserialising follows the default rules.
///
/// ```
/// use prefill_multimodal_prompt::{Conversation, MediaKind, MediaSource, Message};
///
/// let conversation: Conversation = [
///     Message::system().text("Be brief."),
///     Message::user().image("a.png").text("What is here?"),
/// ]
/// .into_iter()
/// .collect();
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

    /// Reads a JSON list of messages that the program itself, or its user, has written: files
    /// may be named. See [`MessageRules::read`] for the accepted forms.
    ///
    /// # Errors
    /// [`Error::Message`] with the message's index if the list is empty, an entry is no
    /// object with a known `role`, or a part is of an unknown form.
    pub fn from_json(messages: &Value) -> Result<Self> {
        MessageRules::trusted().read(messages)
    }

    /// Adds a message at the end.
    pub fn push(&mut self, message: Message) {
        let (message, media) = message.into_parts();
        self.push_parts(message, media);
    }

    pub(crate) fn push_parts(&mut self, message: Value, media: Vec<(MediaKind, MediaSource)>) {
        self.messages.push(message);
        self.media.extend(media);
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

    #[cfg(feature = "fetch")]
    pub(crate) fn media_mut(&mut self) -> &mut [(MediaKind, MediaSource)] {
        &mut self.media
    }

    /// Gives the parts that named no source theirs: the next of `sources` of their kind.
    ///
    /// # Errors
    /// [`Error::MarkerCount`] if `sources` has another number of a kind than there are
    /// parts without source.
    pub fn supply(&mut self, sources: Vec<(MediaKind, MediaSource)>) -> Result<()> {
        for kind in MediaKind::ALL {
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
}

impl Extend<Message> for Conversation {
    fn extend<T: IntoIterator<Item = Message>>(&mut self, messages: T) {
        messages.into_iter().for_each(|message| self.push(message));
    }
}

impl FromIterator<Message> for Conversation {
    fn from_iter<T: IntoIterator<Item = Message>>(messages: T) -> Self {
        let mut conversation = Self::default();
        conversation.extend(messages);
        conversation
    }
}

impl<'de> Deserialize<'de> for Conversation {
    /// Reads a list of messages by the default [`MessageRules`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let messages = Value::deserialize(deserializer)?;
        let read = MessageRules::default().read(&messages);
        read.map_err(serde::de::Error::custom)
    }
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
            fact(json!([{"role": "user", "content": ""}, {"content": "x"}]))
                .starts_with("message 1: it has no role")
        );
        assert!(fact(json!([{"role": "user", "content": 3}])).contains("neither text"));
        assert!(
            fact(json!([{"role": "user", "content": [{"type": "smell"}]}])).contains("\"smell\"")
        );
        assert!(
            fact(json!([{"role": "user", "content": [{"type": "image_url", "image_url": "https://x/y.png"}]}]))
                .contains("names a URL, which is not allowed")
        );
    }
}
