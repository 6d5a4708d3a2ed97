//! Where Jinja2, being Python, and minijinja give other bytes: numbers, JSON, tests.
//!
//! What is here was found by rendering the same templates and conversations in both
//! (Jinja2 3.1.6, minijinja 3.1.0).

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use super::repr::{Bounds, as_float, float_text};
use super::{methods, namespace, repr, time};

/// Makes `environment` behave as Jinja2 in transformers does.
pub(super) fn install(environment: &mut Environment<'static>) {
    // Jinja2's `cycler`, `joiner`, `truncate` and the like; ours stand above.
    minijinja_contrib::add_to_environment(environment);
    environment.add_function("cycler", |items: Rest<Value>| {
        minijinja_contrib::globals::cycler(items.0)
    });
    namespace::install(environment);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|output, state, value| match repr::text(value)? {
        Some(text) => output.write_str(&text).map_err(Error::from),
        None => minijinja::escape_formatter(output, state, value),
    });
    environment.add_filter("string", |value: &Value| -> Result<Value, Error> {
        Ok(match repr::text(value)? {
            Some(text) => Value::from(text),
            None if value.kind() == ValueKind::String => value.clone(),
            None => Value::from(value.to_string()),
        })
    });
    environment.add_filter("tojson", to_json);
    environment.add_test("iterable", |value: &Value| {
        use ValueKind::{Iterable, Map, Seq, String, Undefined};
        matches!(value.kind(), String | Seq | Map | Iterable | Undefined)
    });
    environment.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::String | ValueKind::Seq | ValueKind::Map
        )
    });
    environment.add_function("strftime_now", |format: &str| time::strftime_now(format));
    environment.add_function(
        "raise_exception",
        |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        },
    );
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=..., separators=..., sort_keys=...)`,
/// which is what transformers puts in place of Jinja2's HTML-safe `tojson`.
fn to_json(value: &Value, arguments: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    if let Some(indent) = indent.filter(|&indent| indent > JsonWriter::INDENT_LIMIT) {
        let fact = format!("tojson: an indent of {indent}");
        return Err(Error::new(ErrorKind::InvalidOperation, fact));
    }
    let separators: Option<(String, String)> = match arguments.get::<Option<Value>>("separators")? {
        Some(pair) => Some((
            pair.get_item_by_index(0)?.to_string(),
            pair.get_item_by_index(1)?.to_string(),
        )),
        None => None,
    };
    let (comma, colon) = separators.unwrap_or_else(|| {
        (
            if indent.is_some() { "," } else { ", " }.to_owned(),
            ": ".to_owned(),
        )
    });
    let writer = JsonWriter {
        ascii: arguments
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
        sort: arguments.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        comma,
        colon,
        bounds: Bounds::default(),
    };
    arguments.assert_all_used()?;
    let mut text = String::new();
    writer.value(&mut text, value, 0)?;
    Ok(Value::from(text))
}

struct JsonWriter {
    ascii: bool,
    sort: bool,
    indent: Option<usize>,
    comma: String,
    colon: String,
    bounds: Bounds,
}

impl JsonWriter {
    /// Nobody indents further; it bounds what a template can make of a short value.
    const INDENT_LIMIT: usize = 32;

    fn value(&self, text: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        self.bounds.check(text, depth)?;
        match value.kind() {
            ValueKind::None => text.push_str("null"),
            ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => text.push_str(&number_text(value)),
            ValueKind::String => self.string(text, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.items(text, ('[', ']'), depth, &items, |text, item| {
                    self.value(text, item, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort {
                    keys.sort();
                }
                self.items(text, ('{', '}'), depth, &keys, |text, key| {
                    match key.as_str() {
                        Some(key) => self.string(text, key),
                        None => self.string(text, &self.key_text(key)?),
                    }
                    text.push_str(&self.colon);
                    self.value(text, &value.get_item(key)?, depth + 1)
                })?;
            }
            other => {
                let fact = format!("tojson: {other} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, fact));
            }
        }
        Ok(())
    }

    /// Keys that are no strings are written as the string of their JSON.
    fn key_text(&self, key: &Value) -> Result<String, Error> {
        let mut text = String::new();
        self.value(&mut text, key, repr::DEPTH_LIMIT)?;
        Ok(text)
    }

    fn items(
        &self,
        text: &mut String,
        (open, close): (char, char),
        depth: usize,
        items: &[Value],
        mut write: impl FnMut(&mut String, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        text.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                text.push_str(&self.comma);
            }
            self.new_line(text, depth + 1);
            write(text, item)?;
        }
        if !items.is_empty() {
            self.new_line(text, depth);
        }
        text.push(close);
        Ok(())
    }

    fn new_line(&self, text: &mut String, depth: usize) {
        if let Some(indent) = self.indent {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&self, text: &mut String, string: &str) {
        text.push('"');
        for character in string.chars() {
            match character {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\u{8}' => text.push_str("\\b"),
                '\u{c}' => text.push_str("\\f"),
                control if control < ' ' => escape(text, control),
                other if self.ascii && !other.is_ascii() => escape(text, other),
                other => text.push(other),
            }
        }
        text.push('"');
    }
}

/// `\uXXXX`, as surrogates where one is not enough.
fn escape(text: &mut String, character: char) {
    let mut units = [0; 2];
    for unit in character.encode_utf16(&mut units) {
        // Writing to a string can't fail.
        let _ = write!(text, "\\u{unit:04x}");
    }
}

fn number_text(value: &Value) -> String {
    match as_float(value) {
        Some(number) if number.is_nan() => "NaN".to_owned(),
        Some(number) if number.is_infinite() => if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned(),
        Some(number) => float_text(number),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::context;

    fn render(source: &str, context: Value) -> String {
        let mut environment = Environment::new();
        install(&mut environment);
        environment.render_str(source, context).unwrap()
    }

    #[test]
    fn floats_have_one_text_everywhere() {
        let source = "{{ x }} {{ x | string }} {{ x | tojson }} {{ [x, 'a'] }} {{ [x] | string }}";
        assert_eq!(
            render(source, context! { x => 1e20 }),
            "1e+20 1e+20 1e+20 [1e+20, 'a'] [1e+20]"
        );
    }

    #[test]
    fn json_is_pythons() {
        let value =
            serde_json::json!({"b": "<é> & 'q' \"\n\u{1}", "a": [1, 2.0, null, true, {}, []]});
        let context = || context! { v => Value::from(minijinja::value::Serde(&value)) };
        assert_eq!(
            render("{{ v | tojson }}", context()),
            "{\"b\": \"<é> & 'q' \\\"\\n\\u0001\", \"a\": [1, 2.0, null, true, {}, []]}"
        );
        assert_eq!(
            render(
                "{{ v | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}",
                context()
            ),
            "{\"a\":[1,2.0,null,true,{},[]],\"b\":\"<\\u00e9> & 'q' \\\"\\n\\u0001\"}"
        );
        assert_eq!(
            render("{{ v.a[:2] | tojson(indent=2) }}", context()),
            "[\n  1,\n  2.0\n]"
        );
    }

    #[test]
    fn an_absurd_indent_is_refused() {
        let mut environment = Environment::new();
        install(&mut environment);
        let source = "{{ [1] | tojson(indent=100000000000) }}";
        assert!(environment.render_str(source, context! {}).is_err());
    }

    #[test]
    fn tests_follow_pythons_protocols() {
        let source = "{{ none is iterable }} {{ 'a' is iterable }} {{ 'a' is sequence }} \
                      {{ {} is sequence }} {{ 1 is iterable }} {{ [] is sequence }}";
        assert_eq!(
            render(source, context! {}),
            "False True True True False True"
        );
    }

    #[test]
    fn python_methods_work() {
        let source = "{{ ' a '.strip() }}{{ {'k': 1}.get('k', 2) }}{{ 'a,b'.split(',')[-1] }}\
                      {{ 'xyz'.startswith('x') }}";
        assert_eq!(render(source, context! {}), "a1bTrue");
    }
}
