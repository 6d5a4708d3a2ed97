//! Chat messages in, an exact prompt out: everything a multimodal model needs
//! except tensors.
//!
//! A conversation passes through four steps, each a module that can be used alone:
//!
//! 1. [`Conversation`] holds messages in the form that chat templates expect and their media
//!    in document order: from [`Message`]s built in Rust, or read from OpenAI-style JSON by
//!    [`MessageRules`];
//! 2. [`ChatTemplate`] renders them with the checkpoint's own template, in minijinja
//!    set up as transformers sets up Jinja2;
//! 3. [`Tokens`] turns text into token ids, without a second `<bos>`;
//! 4. [`Gemma4Splicer`] and [`QwenSplicer`] expand each medium's marker to its soft tokens:
//!    a [`Prompt`] says where they lie, which positions they have, which of them see each
//!    other, and where the prompt may be cut.
//!
//! [`BlockKeys`] names every prefix of the prompt by what it depends on: model, tenant, ids,
//! media, positions, attention. Caches find by these names what was computed before.
//!
//! On the way back, [`TextStream`] turns generated ids into text that never splits a
//! character, and [`AnswerParser`] that text into reasoning, text and tool calls.
//!
//! ```
//! use prefill_multimodal_prompt::{ChatTemplate, Conversation, TemplateOptions};
//! use serde_json::json;
//!
//! let conversation = Conversation::from_json(&json!([
//!     {"role": "user", "content": [
//!         {"type": "image_url", "image_url": {"url": "shapes.png"}},
//!         {"type": "text", "text": "What is this?"},
//!     ]},
//! ]))?;
//! assert_eq!(conversation.media().len(), 1);
//!
//! let template = ChatTemplate::new(
//!     "{% for m in messages %}{{ m.role }}: \
//!      {% for part in m.content %}{{ part.text if part.type == 'text' else '<|image|>' }}\
//!      {% endfor %}{% endfor %}",
//! )?;
//! let text = template.render(conversation.messages(), &TemplateOptions::default())?;
//! assert_eq!(text, "user: <|image|>What is this?");
//! # Ok::<(), prefill_multimodal_prompt::Error>(())
//! ```
//!
//! # What it does not do
//! It decodes no media (`prefill-media-preprocess` does) and runs no model
//! (`prefill-engine` does). It ships no template: a checkpoint brings its own.

mod answer;
mod conversation;
mod error;
#[cfg(feature = "fetch")]
mod fetch;
mod keys;
mod message;
mod prompt;
mod rules;
mod source;
mod splice;
mod stream;
mod template;
mod tokens;

pub use answer::{AnswerEvent, AnswerFormat, AnswerParser, ToolCall};
pub use conversation::Conversation;
pub use error::Error;
#[cfg(feature = "fetch")]
pub use fetch::{FetchPolicy, Fetcher};
pub use keys::{BlockKeys, Key, KeySpace, Tail};
pub use message::Message;
pub use prompt::{Attention, FeatureScaling, MediaKind, Mrope, Positions, Prompt, Span};
pub use rules::MessageRules;
pub use source::MediaSource;
pub use splice::{
    Gemma4Medium, Gemma4Rules, Gemma4Splicer, OuterVisionTokens, QwenMedium, QwenSplicer,
};
pub use stream::TextStream;
pub use template::{ChatTemplate, TemplateOptions};
pub use tokens::Tokens;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;
