//! Python's `str` and `repr`, which is how Jinja2 prints what is no text.

use std::cell::Cell;
use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

use super::OUTPUT_LIMIT;

/// Deeper nesting than this is refused, as Python's recursion limit does in effect.
pub(super) const DEPTH_LIMIT: usize = 200;

/// `str(value)`, where that is not what minijinja prints: floats, and lists and maps that may
/// hold some.
pub(super) fn text(value: &Value) -> Result<Option<String>, Error> {
    match value.kind() {
        ValueKind::Number => Ok(as_float(value).map(float_text)),
        ValueKind::Seq | ValueKind::Map => {
            let mut text = String::new();
            repr(&mut text, value, 0, &Bounds::default())?;
            Ok(Some(text))
        }
        _ => Ok(None),
    }
}

/// Values within one value that are written: a list may hold itself many times over, so that
/// its text is far larger than what made it.
const NODE_LIMIT: usize = 1 << 22;

/// Keeps the text of one value within bounds.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    nodes: Cell<usize>,
}

impl Bounds {
    /// Refuses one value more, if it lies too deep or the text has grown beyond all use.
    pub(super) fn check(&self, text: &str, depth: usize) -> Result<(), Error> {
        let nodes = self.nodes.get() + 1;
        self.nodes.set(nodes);
        let fact = if depth > DEPTH_LIMIT {
            format!("a value is nested deeper than {DEPTH_LIMIT}")
        } else if text.len() > OUTPUT_LIMIT {
            format!("a value's text is over {OUTPUT_LIMIT} bytes")
        } else if nodes > NODE_LIMIT {
            format!("a value holds more than {NODE_LIMIT} others")
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidOperation, fact))
    }
}

fn repr(text: &mut String, value: &Value, depth: usize, bounds: &Bounds) -> Result<(), Error> {
    bounds.check(text, depth)?;
    match value.kind() {
        ValueKind::Number => match as_float(value) {
            Some(number) => text.push_str(&float_text(number)),
            None => text.push_str(&value.to_string()),
        },
        ValueKind::String => string_repr(text, value.as_str().unwrap_or_default()),
        ValueKind::Undefined => text.push_str("Undefined"),
        ValueKind::Seq => {
            let (open, close) = match (value.is_tuple(), value.len()) {
                (false, _) => ("[", "]"),
                (true, Some(1)) => ("(", ",)"),
                (true, _) => ("(", ")"),
            };
            text.push_str(open);
            for (index, item) in value.try_iter()?.enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                repr(text, &item, depth + 1, bounds)?;
            }
            text.push_str(close);
        }
        ValueKind::Map => {
            text.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                repr(text, &key, depth + 1, bounds)?;
                text.push_str(": ");
                repr(text, &value.get_item(&key)?, depth + 1, bounds)?;
            }
            text.push('}');
        }
        _ => text.push_str(&value.to_string()),
    }
    Ok(())
}

/// In single quotes, unless that alone would need escapes (`CPython`'s `unicode_repr`).
fn string_repr(text: &mut String, string: &str) {
    let quote = if string.contains('\'') && !string.contains('"') {
        '"'
    } else {
        '\''
    };
    text.push(quote);
    for character in string.chars() {
        // Writing to a string can't fail.
        let _ = match character {
            '\\' => write!(text, "\\\\"),
            '\n' => write!(text, "\\n"),
            '\r' => write!(text, "\\r"),
            '\t' => write!(text, "\\t"),
            quoted if quoted == quote => write!(text, "\\{quoted}"),
            control if (control as u32) < 0x20 || (0x7f..0xa1).contains(&(control as u32)) => {
                write!(text, "\\x{:02x}", control as u32)
            }
            '\u{ad}' => write!(text, "\\xad"),
            other => write!(text, "{other}"),
        };
    }
    text.push(quote);
}

pub(super) fn as_float(value: &Value) -> Option<f64> {
    (value.kind() == ValueKind::Number && !value.is_integer())
        .then(|| f64::try_from(value.clone()).ok())
        .flatten()
}

/// Python's `repr` of a float: the shortest digits that read back as the same number,
/// in exponent form below 1e-4 and from 1e16 on (`CPython`'s `Python/pystrtod.c`).
pub(super) fn float_text(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // Rust prints the shortest digits too: `d.ddde±x`.
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let fixed = number.to_string();
        return if fixed.contains('.') {
            fixed
        } else {
            fixed + ".0"
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (number, text) in [
            (12.5, "12.5"),
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e20, "1.5e+20"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e-7, "1e-07"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(float_text(number), text);
        }
    }

    #[test]
    fn values_are_written_as_python_writes_them() {
        let value = serde_json::json!({
            "a": [1, 1e20, null, true, [], {}],
            "it's": "\"quoted\" it's \\ \n\t\u{1}\u{a0}é😀",
            "plain": "it's",
        });
        let value = Value::from(minijinja::value::Serde(&value));
        assert_eq!(
            text(&value).unwrap().unwrap(),
            "{'a': [1, 1e+20, None, True, [], {}], \"it's\": '\"quoted\" it\\'s \\\\ \\n\\t\\x01\\xa0é😀', \
             'plain': \"it's\"}"
        );
    }
}
