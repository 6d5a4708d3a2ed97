//! What is changed in a template's source before minijinja sees it.
//!
//! - `{% generation %}` marks the assistant's tokens for training. At inference it is nothing,
//!   and minijinja does not know it.
//! - `{% set ns.x = e %}` assigns through a function of ours, since namespaces are ours too:
//!   see [`namespace`](super::namespace).

use super::namespace::SET_ATTRIBUTE;

pub(super) fn rewritten(source: &str) -> String {
    let mut output = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        output.push_str(before);
        let length = match tag.as_bytes().get(1) {
            Some(b'%') => end(tag, "%}"),
            Some(b'{') => end(tag, "}}"),
            Some(b'#') => tag.find("#}").map(|at| at + 2),
            _ => Some(1),
        };
        let Some(length) = length else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(length);
        rest = after;
        match statement(tag) {
            Some((_, "raw", _)) => {
                let raw = end_of_raw(rest);
                output.push_str(tag);
                output.push_str(&rest[..raw]);
                rest = &rest[raw..];
            }
            Some((open, statement, close)) => match replaced(statement) {
                Some(statement) => {
                    // The tag keeps its control of white space.
                    output.push_str(open);
                    output.push(' ');
                    output.push_str(&statement);
                    output.push(' ');
                    output.push_str(close);
                }
                None => output.push_str(tag),
            },
            None => output.push_str(tag),
        }
    }
    output.push_str(rest);
    output
}

/// The length of a tag, up to and with its `closing`: not the one in a string, nor, of two
/// braces, those that close a map.
fn end(tag: &str, closing: &str) -> Option<usize> {
    let bytes = tag.as_bytes();
    let (mut quote, mut depth, mut at) = (None, 0_usize, 2);
    while at < bytes.len() {
        let byte = bytes[at];
        match quote {
            Some(_) if byte == b'\\' => at += 1,
            Some(open) if byte == open => quote = None,
            Some(_) => {}
            None if bytes[at..].starts_with(closing.as_bytes())
                && (closing == "%}" || depth == 0) =>
            {
                return Some(at + 2);
            }
            None => match byte {
                b'"' | b'\'' => quote = Some(byte),
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                _ => {}
            },
        }
        at += 1;
    }
    None
}

/// Of `{%- set x = 1 -%}`: its opening, its statement, its closing.
fn statement(tag: &str) -> Option<(&str, &str, &str)> {
    let inner = tag.strip_prefix("{%")?.strip_suffix("%}")?;
    let body = inner.trim_start_matches(['-', '+']);
    let open = &tag[..2 + inner.len() - body.len()];
    let trimmed = body.trim_end_matches(['-', '+']);
    // `{% x + %}` has no more than a sign to lose: an expression never ends in one.
    let close = &tag[tag.len() - 2 - (body.len() - trimmed.len())..];
    Some((open, trimmed.trim(), close))
}

/// Where the `{% endraw %}` begins that ends a raw block, or the end of the source.
fn end_of_raw(source: &str) -> usize {
    let mut from = 0;
    while let Some(at) = source[from..].find("{%") {
        let start = from + at;
        let word = source[start + 2..]
            .trim_start_matches(['-', '+'])
            .trim_start();
        if word.starts_with("endraw") {
            return start;
        }
        from = start + 2;
    }
    source.len()
}

fn replaced(statement: &str) -> Option<String> {
    match statement {
        "generation" => return Some("if true".to_owned()),
        "endgeneration" => return Some("endif".to_owned()),
        _ => {}
    }
    let assignment = statement.strip_prefix("set")?;
    if !assignment.starts_with(char::is_whitespace) {
        return None;
    }
    let (target, value) = assignment.split_once('=')?;
    let (object, attribute) = target.trim().rsplit_once('.')?;
    let is_name = |name: &str| {
        let mut characters = name.chars();
        characters
            .next()
            .is_some_and(|c| c.is_alphabetic() || c == '_')
            && characters.all(|c| c.is_alphanumeric() || c == '_')
    };
    let is_path = object.split('.').all(|name| is_name(name.trim()));
    let attribute = attribute.trim();
    // Parentheses, since a value may be several with commas between.
    (is_path && is_name(attribute) && !value.starts_with('=')).then(|| {
        format!("set {SET_ATTRIBUTE}_done = {SET_ATTRIBUTE}({object}, \"{attribute}\", ({value}))")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_must_be_is_rewritten() {
        for source in [
            "{% set x = 1 %}{% set x.y %}{% endset %}",
            "{# {% set ns.x = 1 %} {% generation %} #}",
            "{% raw %}{% set ns.x = 1 %}{% generation %}{%- endraw %}",
            "{{ '{% set ns.x = 1 %}' }}{{ {'a': {'b': '{% generation %}'}} }}",
            "{% if a.b == 1 %}{% endif %}{% for a in b.c %}{% endfor %}",
            "{%}{%",
            "{{ 'unclosed {% set ns.x = 1 %}",
            "{",
            "{é{",
        ] {
            assert_eq!(rewritten(source), source);
        }
        assert_eq!(
            rewritten("a{%- generation -%}b{%+ endgeneration %}"),
            "a{%- if true -%}b{%+ endif %}"
        );
        let set = SET_ATTRIBUTE;
        assert_eq!(
            rewritten("{%- set ns.x = '=%}' ~ ns.x -%}"),
            format!("{{%- set {set}_done = {set}(ns, \"x\", ( '=%}}' ~ ns.x)) -%}}")
        );
        assert_eq!(
            rewritten("{%set a.b.c=1,2%}"),
            format!("{{% set {set}_done = {set}(a.b, \"c\", (1,2)) %}}")
        );
    }
}
