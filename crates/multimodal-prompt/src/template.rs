//! A checkpoint's chat template, rendered as transformers renders it.
//!
//! transformers runs Jinja2 in a sandbox with `trim_blocks`, `lstrip_blocks`, loop
//! controls, its own `tojson`, `raise_exception` and the `generation` block
//! (transformers 5.24, `utils/chat_template_utils.py`). minijinja is set up to give the
//! same bytes; [`python`], [`repr`] and [`methods`] hold what differs between the two
//! languages, [`run`] and [`namespace`] what keeps a hostile template within bounds.

mod locate;
mod messages;
mod methods;
mod namespace;
mod python;
mod repr;
mod run;
mod source;
mod time;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, ErrorKind};
use serde_json::{Map, Value as Json};

use crate::{Error, Result};

/// The name of the template to take where several are named.
const DEFAULT: &str = "default";

/// The name of the template to take where there are tools.
const TOOL_USE: &str = "tool_use";

/// What one render may cost: a step each template instruction, and one each 64 bytes of text
/// made on the way. The longest template seen takes some hundreds a message.
const FUEL: u64 = 8_000_000;

/// Bytes that one render may give.
const OUTPUT_LIMIT: usize = 64 << 20;

/// A checkpoint's compiled chat templates; most have one.
///
/// Templates are foreign: their steps, their recursion, the memory of their text, their time
/// (5 seconds) and their output (64 MiB) are bounded, and they reach nothing but the
/// variables of the render.
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
    environment: Arc<Environment<'static>>,
    names: Vec<String>,
}

/// The variables of a render beside the messages, and which template to take.
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
    /// Documents to answer from, each with a `title` and a `text`.
    pub documents: Option<Vec<Json>>,
    /// Whether the model is to think before it answers (`enable_thinking`). Unset, the
    /// template's own default holds.
    pub thinking: Option<bool>,
    /// How long the model is to think (`reasoning_effort`): `low`, `medium` or `high`, say.
    pub reasoning_effort: Option<String>,
    /// Which of several named templates to take. Unset, `tool_use` where there are tools and
    /// such a template, else `default`.
    pub template: Option<String>,
    /// What `strftime_now` takes for now, shown in the local time zone. Unset, now.
    pub now: Option<SystemTime>,
    /// Any other variable that the template reads. Booleans must be JSON booleans: templates
    /// test `is true`. These stand above the options that have a field of their own.
    pub variables: Map<String, Json>,
}

impl ChatTemplate {
    /// Compiles a template's source.
    ///
    /// # Errors
    /// [`Error::Template`] if the source is not a valid template.
    pub fn new(source: &str) -> Result<Self> {
        Self::named([(DEFAULT, source)])
    }

    /// Compiles several templates, each with its name. The one named `default` is rendered
    /// unless the options say otherwise, and `tool_use` where there are tools.
    ///
    /// # Errors
    /// [`Error::Template`] if a source is not a valid template.
    pub fn named<'s>(templates: impl IntoIterator<Item = (&'s str, &'s str)>) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()
                .map_err(|error| template(&error))?,
        );
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        python::install(&mut environment);
        let mut names = Vec::new();
        for (name, source) in templates {
            environment
                .add_template_owned(name.to_owned(), source::rewritten(source))
                .map_err(|error| template(&error))?;
            names.push(name.to_owned());
        }
        Ok(Self {
            environment: Arc::new(environment),
            names,
        })
    }

    /// Finds and compiles the templates of a checkpoint's folder: `chat_template.jinja` and,
    /// by their names, the files of `additional_chat_templates`; else `tokenizer_config.json`
    /// (a string, or a list of named ones), else `chat_template.json` or
    /// `processor_config.json`.
    ///
    /// # Errors
    /// [`Error::NoTemplate`] if there is none, [`Error::BadFile`] if one of the files is
    /// not JSON, [`Error::Template`] if a template is not valid.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let sources = locate::sources(folder)?;
        Self::named(
            sources
                .iter()
                .map(|(name, source)| (name.as_str(), source.as_str())),
        )
    }

    /// The names of the templates, `default` where there is only one.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether a template reads a variable of that name from outside.
    #[must_use]
    pub fn reads(&self, variable: &str) -> bool {
        self.names.iter().any(|name| {
            let template = self.environment.get_template(name);
            template.is_ok_and(|found| found.undeclared_variables(false).contains(variable))
        })
    }

    /// Renders `messages`, each a JSON object.
    ///
    /// As in transformers, a message's null fields are left out, and its reasoning is found
    /// under each of the names that templates read (`reasoning_content`, `thinking`,
    /// `reasoning`).
    ///
    /// # Errors
    /// [`Error::NoNamedTemplate`] if the template asked for is not there; [`Error::Template`]
    /// if it raises, uses what is not there, or takes too many steps; [`Error::TemplateTime`]
    /// if it takes too long; [`Error::TemplateOutput`] if the text grows over 64 MiB.
    pub fn render(&self, messages: &[Json], options: &TemplateOptions) -> Result<String> {
        let name = self.choose(options)?.to_owned();
        let mut context = Map::new();
        context.insert("messages".into(), messages::normalized(messages));
        let list = |items: &Option<Vec<Json>>| items.clone().map_or(Json::Null, Json::from);
        context.insert("tools".into(), list(&options.tools));
        context.insert("documents".into(), list(&options.documents));
        context.insert(
            "add_generation_prompt".into(),
            options.add_generation_prompt.into(),
        );
        context.insert("bos_token".into(), options.bos_token.clone().into());
        context.insert("eos_token".into(), options.eos_token.clone().into());
        if let Some(thinking) = options.thinking {
            context.insert("enable_thinking".into(), thinking.into());
        }
        if let Some(effort) = &options.reasoning_effort {
            context.insert("reasoning_effort".into(), effort.clone().into());
        }
        context.extend(options.variables.clone());
        let now = options.now.unwrap_or_else(SystemTime::now);
        run::render(Arc::clone(&self.environment), name, context, now)
    }

    fn choose(&self, options: &TemplateOptions) -> Result<&str> {
        let has = |name: &str| self.names.iter().any(|found| found == name);
        let name = match &options.template {
            Some(name) => name,
            None if options.tools.is_some() && has(TOOL_USE) => TOOL_USE,
            None => DEFAULT,
        };
        let found = self.names.iter().find(|found| *found == name);
        found
            .map(String::as_str)
            .ok_or_else(|| Error::NoNamedTemplate {
                name: name.to_owned(),
                names: self.names.clone(),
            })
    }
}

/// The innermost cause is the one that tells: `raise_exception`'s message, say.
fn template(error: &minijinja::Error) -> Error {
    let cause: &minijinja::Error = {
        let mut cause = error;
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
    fn what_a_template_builds_is_limited() {
        let grow = |step: &str, end: &str| {
            let source = format!(
                "{{% set ns = namespace(l=[], s='x') %}}{{% for i in range(9000) %}}\
                 {{% for j in range(9000) %}}{step}{{% endfor %}}{{% endfor %}}{end}"
            );
            render(&source, json!({}))
        };
        // Text that doubles; lists a million deep, which are dropped one inside the other.
        for step in [
            "{% set ns.s = ns.s ~ ns.s %}",
            "{% set ns.l = [ns.l] %}",
            "{% set ns.l = {'a': ns.l} %}",
        ] {
            let error = grow(step, "").unwrap_err().to_string();
            assert!(error.contains("steps"), "{error}");
        }
        let doubled: String = std::iter::once("{% set l = [] %}")
            .chain(std::iter::repeat_n("{% set l = [l, l] %}", 40))
            .collect();
        for end in ["{{ l }}", "{{ l | string }}", "{{ l | tojson }}"] {
            let error = render(&(doubled.clone() + end), json!({})).unwrap_err();
            assert!(error.to_string().contains("a value holds more"), "{error}");
        }
        // A namespace that holds itself.
        let cycle = "{% set a = namespace() %}{% set a.x = [a] %}{% set b = namespace() %}\
                     {% set b.x = [b] %}{{ a == b }} {{ a.x == b.x }} {{ a.x ~ a }} {{ a == a }}";
        assert_eq!(
            render(cycle, json!({})).unwrap(),
            "False False [<Namespace>]<Namespace> True"
        );
        assert!(render("{% set a = namespace(_x=1) %}", json!({})).is_err());
        assert!(render("{% set a = {} %}{% set a.x = 1 %}", json!({})).is_err());
    }

    /// Takes as long as a render may.
    #[test]
    fn time_is_limited() {
        let doubled: String = std::iter::once("{% set a = [] %}{% set b = [] %}")
            .chain(std::iter::repeat_n(
                "{% set a = [a, a] %}{% set b = [b, b] %}",
                32,
            ))
            .collect();
        let error = render(&(doubled + "{{ a == b }}"), json!({})).unwrap_err();
        assert!(matches!(error, Error::TemplateTime { .. }), "{error}");
    }

    #[test]
    fn output_is_limited() {
        let source = "{% for a in range(100000) %}{{ text }}{% endfor %}";
        let error = render(source, json!({"text": "x".repeat(10_000)})).unwrap_err();
        assert!(matches!(error, Error::TemplateOutput { .. }), "{error}");
    }
}
