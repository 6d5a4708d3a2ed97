//! Methods of Python's strings and lists that templates call and `pycompat` lacks.

use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};

type Result<T, E = Error> = std::result::Result<T, E>;

/// Called for every method: ours first, then those of `pycompat`.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value> {
    let own = match value.kind() {
        ValueKind::String => text(value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq if method == "index" => Some(index_of(value, args)?),
        _ => None,
    };
    match own {
        Some(value) => Ok(value),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn text(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>> {
    Ok(Some(match method {
        "split" => split(text, args, false)?,
        "rsplit" => split(text, args, true)?,
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let found = match (separator, method) {
                ("", _) => return Err(invalid("empty separator")),
                (_, "partition") => text.split_once(separator),
                _ => text.rsplit_once(separator),
            };
            let parts = match found {
                Some((before, after)) => [before, separator, after],
                None if method == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            parts.into_iter().map(Value::from).collect()
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let missing = width.saturating_sub(text.chars().count());
            if missing > 1024 {
                return Err(invalid("zfill: too wide"));
            }
            let signed = text.starts_with(['+', '-']);
            let (sign, digits) = text.split_at(usize::from(signed));
            Value::from(format!("{sign}{}{digits}", "0".repeat(missing)))
        }
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let found = if method == "index" {
                text.find(part)
            } else {
                text.rfind(part)
            };
            let at = found.ok_or_else(|| invalid("substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        _ => return Ok(None),
    }))
}

/// `str.split(sep=None, maxsplit=-1)`, and from the right.
fn split(text: &str, args: &[Value], from_right: bool) -> Result<Value> {
    let (separator, most, named): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = match separator {
        Some(separator) => Some(separator),
        None => named.get("sep")?,
    };
    let most = match most {
        Some(most) => Some(most),
        None => named.get("maxsplit")?,
    };
    named.assert_all_used()?;
    // Any negative number is no limit.
    let most = most.map_or(usize::MAX, |most| {
        usize::try_from(most).unwrap_or(usize::MAX)
    });
    let pieces = most.saturating_add(1);
    let separator = separator.filter(|separator| !separator.is_none() && !separator.is_undefined());
    let mut parts: Vec<&str> = match &separator {
        Some(separator) => {
            let separator = separator
                .as_str()
                .ok_or_else(|| invalid("the separator is no text"))?;
            if separator.is_empty() {
                return Err(invalid("empty separator"));
            }
            if from_right {
                text.rsplitn(pieces, separator).collect()
            } else {
                text.splitn(pieces, separator).collect()
            }
        }
        None if from_right => words_from_right(text, most),
        None => words(text, most),
    };
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Runs of white space separate; the last piece keeps its end.
fn words(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if parts.len() == most {
            parts.push(rest);
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    parts
}

/// The same from the right, the last word first.
fn words_from_right(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if parts.len() == most {
            parts.push(rest);
            break;
        }
        let before = rest.trim_end_matches(|c| !is_space(c));
        parts.push(&rest[before.len()..]);
        rest = before.trim_end_matches(is_space);
    }
    parts
}

/// Python's `str.isspace`: Rust's white space and the four separators U+001C to U+001F.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

fn index_of(list: &Value, args: &[Value]) -> Result<Value> {
    let (item,): (Value,) = from_args(args)?;
    let at = list.try_iter()?.position(|found| found == item);
    at.map(Value::from)
        .ok_or_else(|| invalid("the item is not in the list"))
}

fn invalid(fact: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, fact)
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};

    fn eval(expression: &str) -> String {
        let mut environment = Environment::new();
        super::super::python::install(&mut environment);
        let source = format!("{{{{ ({expression}) | tojson }}}}");
        environment
            .render_str(&source, context! {})
            .unwrap_or_else(|error| format!("{:?}", error.kind()))
    }

    /// The right column is what `CPython` 3.11 gives.
    #[test]
    fn methods_are_pythons() {
        for (expression, expected) in [
            ("'a b  c '.split()", r#"["a", "b", "c"]"#),
            ("' a b  c '.split(maxsplit=1)", r#"["a", "b  c "]"#),
            ("' a b  c '.split(none, 1)", r#"["a", "b  c "]"#),
            ("' a b  c '.rsplit(maxsplit=1)", r#"[" a b", "c"]"#),
            ("'a,b,c'.split(',', 1)", r#"["a", "b,c"]"#),
            ("'a,b,c'.split(',', maxsplit=1)", r#"["a", "b,c"]"#),
            ("'a,b,c'.split(sep=',', maxsplit=-1)", r#"["a", "b", "c"]"#),
            ("'a,b,c'.split(',', 0)", r#"["a,b,c"]"#),
            ("'a,b,c'.rsplit(',', 1)", r#"["a,b", "c"]"#),
            ("''.split()", "[]"),
            ("''.split(',')", r#"[""]"#),
            ("'x'.split('')", "InvalidOperation"),
            (
                "'a</think>b</think>c'.partition('</think>')",
                r#"["a", "</think>", "b</think>c"]"#,
            ),
            ("'a-b-c'.rpartition('-')", r#"["a-b", "-", "c"]"#),
            ("'abc'.partition('-')", r#"["abc", "", ""]"#),
            ("'abc'.rpartition('-')", r#"["", "", "abc"]"#),
            ("'abc'.removeprefix('ab')", r#""c""#),
            ("'abc'.removesuffix('bc')", r#""a""#),
            ("'-7'.zfill(4)", r#""-007""#),
            ("'äb'.index('b')", "1"),
            ("'abc'.index('x')", "InvalidOperation"),
            ("['a', 'b'].index('b')", "1"),
            ("'a b'.title()", r#""A B""#),
        ] {
            assert_eq!(eval(expression), expected, "{expression}");
        }
    }
}
