//! A checkpoint's chat template, rendered as transformers renders it.
//!
//! transformers runs Jinja2 in a sandbox with `trim_blocks`, `lstrip_blocks`, loop
//! controls, its own `tojson`, `raise_exception` and the `generation` block
//! (transformers 5.24, `utils/chat_template_utils.py`). minijinja is set up to give the
//! same bytes; [`python`] holds what differs between the two languages.

mod locate;
mod python;

use std::io;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, ErrorKind};
use serde_json::{Map, Value as Json};

use crate::{Error, Result};

/// The name of the one template in its environment.
const NAME: &str = "chat_template";

/// Template instructions that one render may take. The longest template seen takes some
/// hundreds a message.
const FUEL: u64 = 50_000_000;

/// Bytes that one render may give.
const OUTPUT_LIMIT: usize = 64 << 20;

/// A compiled chat template.
///
/// ```
/// use prefill_multimodal_prompt::{ChatTemplate, TemplateOptions};
/// use serde_json::json;
///
/// let template = ChatTemplate::new("{{ bos_token }}{{ messages[0] | tojson }}")?;
/// let options = TemplateOptions { bos_token: "<bos>".into(), ..TemplateOptions::default() };
/// let text = template.render(&[json!({"role": "user", "content": "<a> & b"})], &options)?;
/// assert_eq!(text, r#"<bos>{"role": "user", "content": "<a> & b"}"#);
/// # Ok::<(), prefill_multimodal_prompt::Error>(())
/// ```
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
}

/// The variables of a render beside the messages.
#[derive(Debug, Clone, Default)]
pub struct TemplateOptions {
    /// Whether the text ends with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// The text of the beginning-of-sequence token, empty if there is none.
    pub bos_token: String,
    /// The text of the end-of-sequence token, empty if there is none.
    pub eos_token: String,
    /// The tools' JSON schemas, in OpenAI's form.
    pub tools: Option<Vec<Json>>,
    /// Any other variable that the template reads, such as `enable_thinking`. Booleans
    /// must be JSON booleans: templates test `is true`.
    pub variables: Map<String, Json>,
}

impl ChatTemplate {
    /// Compiles a template's source.
    ///
    /// # Errors
    /// [`Error::Template`] if the source is not a valid template.
    pub fn new(source: &str) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()
                .map_err(template)?,
        );
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        python::install(&mut environment);
        environment
            .add_template_owned(NAME, without_generation_blocks(source))
            .map_err(template)?;
        Ok(Self { environment })
    }

    /// Finds and compiles the template of a checkpoint's folder: `chat_template.jinja`,
    /// else `tokenizer_config.json` (a string, or a list of named ones, of which
    /// `default` is taken), else `chat_template.json` or `processor_config.json`.
    ///
    /// # Errors
    /// [`Error::NoTemplate`] if there is none, [`Error::BadFile`] if one of the files is
    /// not JSON, [`Error::Template`] if the template is not valid.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        Self::new(&locate::source(folder)?)
    }

    /// Whether the template reads a variable of that name from outside.
    #[must_use]
    pub fn reads(&self, variable: &str) -> bool {
        self.environment
            .get_template(NAME)
            .is_ok_and(|template| template.undeclared_variables(false).contains(variable))
    }

    /// Renders `messages`, each a JSON object.
    ///
    /// # Errors
    /// [`Error::Template`] if the template raises, uses what is not there, or takes too
    /// many steps; [`Error::TemplateOutput`] if the text grows over 64 MiB.
    pub fn render(&self, messages: &[Json], options: &TemplateOptions) -> Result<String> {
        let mut context = Map::new();
        context.insert("messages".into(), Json::from(messages));
        context.insert(
            "tools".into(),
            options.tools.clone().map_or(Json::Null, Json::from),
        );
        context.insert("documents".into(), Json::Null);
        context.insert(
            "add_generation_prompt".into(),
            options.add_generation_prompt.into(),
        );
        context.insert("bos_token".into(), options.bos_token.clone().into());
        context.insert("eos_token".into(), options.eos_token.clone().into());
        context.extend(options.variables.clone());

        let mut output = LimitedOutput::default();
        let rendered = self.environment.get_template(NAME).and_then(|found| {
            found
                .render_captured_to(Value::from(Serde(&context)), &mut output)
                .map(drop)
        });
        if output.full {
            return Err(Error::TemplateOutput {
                limit: OUTPUT_LIMIT,
            });
        }
        rendered.map_err(template)?;
        String::from_utf8(output.bytes).map_err(|error| Error::Template(error.to_string()))
    }
}

/// The innermost cause is the one that tells: `raise_exception`'s message, say.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn template(error: minijinja::Error) -> Error {
    let cause: &minijinja::Error = {
        let mut cause = &error;
        while let Some(inner) =
            std::error::Error::source(cause).and_then(<dyn std::error::Error>::downcast_ref)
        {
            cause = inner;
        }
        cause
    };
    if cause.kind() == ErrorKind::OutOfFuel {
        return Error::Template(format!("it takes more than {FUEL} steps"));
    }
    Error::Template(cause.to_string())
}

/// `{% generation %}` marks the assistant's tokens for training; at inference it is
/// nothing, and minijinja does not know it.
fn without_generation_blocks(source: &str) -> String {
    let mut output = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let body = start + 2;
        let Some(length) = rest[body..].find("%}") else {
            break;
        };
        let (tag, end) = (&rest[body..body + length], body + length + 2);
        let word = tag.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        if word == "generation" || word == "endgeneration" {
            output.push_str(&rest[..start]);
            // A block that does nothing keeps the tag's whitespace control.
            let (open, close) = (tag.starts_with('-'), tag.ends_with('-'));
            output.push_str(if open { "{%- " } else { "{% " });
            output.push_str(if word == "generation" {
                "if true"
            } else {
                "endif"
            });
            output.push_str(if close { " -%}" } else { " %}" });
        } else {
            output.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    output.push_str(rest);
    output
}

/// Collects output up to [`OUTPUT_LIMIT`].
#[derive(Default)]
struct LimitedOutput {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for LimitedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > OUTPUT_LIMIT {
            self.full = true;
            return Err(io::Error::other("too much output"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(source: &str, variables: Json) -> Result<String> {
        let Json::Object(variables) = variables else {
            unreachable!("tests give objects")
        };
        let options = TemplateOptions {
            variables,
            ..TemplateOptions::default()
        };
        ChatTemplate::new(source)?.render(&[], &options)
    }

    #[test]
    fn blocks_are_trimmed_as_transformers_trims_them() {
        let source = "  {% if true %}\nx\n  {% endif %}\ny\n";
        assert_eq!(render(source, json!({})).unwrap(), "x\ny");
    }

    #[test]
    fn generation_blocks_are_nothing() {
        let source = "a{%- generation -%} b {% endgeneration %}c";
        assert_eq!(render(source, json!({})).unwrap(), "ab c");
    }

    #[test]
    fn broken_tags_are_errors() {
        for source in [
            "{%}",
            "{%",
            "{%%}",
            "{% generation",
            "{%-}",
            "{{%}}",
            "%}{%}{%",
        ] {
            let _ = render(source, json!({}));
        }
        assert!(ChatTemplate::new("{%}").is_err());
    }

    #[test]
    fn a_template_says_what_it_reads() {
        let template = ChatTemplate::new("{{ bos_token }}{% set x = 1 %}{{ x }}").unwrap();
        assert!(template.reads("bos_token") && !template.reads("x") && !template.reads("tools"));
    }

    #[test]
    fn absent_tools_are_none_and_unset_variables_undefined() {
        let source = "{{ tools is none }} {{ enable_thinking is defined }}";
        assert_eq!(render(source, json!({})).unwrap(), "True False");
        assert_eq!(
            render(source, json!({"enable_thinking": false})).unwrap(),
            "True True"
        );
    }

    #[test]
    fn a_raised_exception_is_the_error() {
        let error = render("{{ raise_exception('roles must alternate') }}", json!({})).unwrap_err();
        assert!(
            error.to_string().contains("roles must alternate"),
            "{error}"
        );
    }

    #[test]
    fn endless_templates_end() {
        let source =
            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
        let error = render(source, json!({})).unwrap_err();
        assert!(error.to_string().contains("steps"), "{error}");
        let recursive = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
        assert!(render(recursive, json!({})).is_err());
    }

    #[test]
    fn output_is_limited() {
        let source = "{% for a in range(100000) %}{{ text }}{% endfor %}";
        let error = render(source, json!({"text": "x".repeat(10_000)})).unwrap_err();
        assert!(matches!(error, Error::TemplateOutput { .. }), "{error}");
    }
}
