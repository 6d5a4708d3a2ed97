//! Gemma 4's tool calls: `call:NAME{key:value,..}`.
//!
//! Keys are bare; text stands between `<|"|>`; lists and maps are as in JSON.

use serde_json::{Map, Number, Value};

use super::scan::GEMMA_QUOTE;

/// How deep lists and maps may lie in each other.
const DEPTH_LIMIT: usize = 64;

pub(super) fn call(text: &str) -> Result<(String, Map<String, Value>), String> {
    let head = text.trim_start().strip_prefix("call:");
    let head = head.ok_or("it begins with no \"call:\"")?;
    let (name, after) = head
        .split_once('{')
        .ok_or("it has no arguments in braces")?;
    let name = name.trim();
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let mut reader = Reader {
        text,
        at: text.len() - after.len() - 1,
    };
    let arguments = reader.map(0)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.fault("something follows its arguments"));
    }
    Ok((name.to_owned(), arguments))
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn takes(&mut self, token: &str) -> bool {
        let takes = self.rest().starts_with(token);
        self.at += if takes { token.len() } else { 0 };
        takes
    }

    fn fault(&self, fact: &str) -> String {
        format!("at byte {}: {fact}", self.at)
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_LIMIT {
            return Err(self.fault(&format!("it is nested deeper than {DEPTH_LIMIT}")));
        }
        self.space();
        match self.rest().as_bytes().first() {
            Some(b'{') => self.map(depth).map(Value::Object),
            Some(b'[') => self.list(depth).map(Value::Array),
            _ if self.rest().starts_with(GEMMA_QUOTE) => self.string().map(Value::String),
            _ => self.bare(),
        }
    }

    fn map(&mut self, depth: usize) -> Result<Map<String, Value>, String> {
        let mut map = Map::new();
        self.takes("{");
        loop {
            self.space();
            if self.takes("}") {
                return Ok(map);
            }
            let key = if self.rest().starts_with(GEMMA_QUOTE) {
                self.string()?
            } else {
                let end = self.rest().find([':', ',', '}']);
                let end = end.ok_or_else(|| self.fault("a key has no value"))?;
                let key = self.rest()[..end].trim().to_owned();
                self.at += end;
                key
            };
            self.space();
            if !self.takes(":") {
                return Err(self.fault("a key is followed by no colon"));
            }
            let value = self.value(depth + 1)?;
            map.insert(key, value);
            self.space();
            if !self.takes(",") && !self.rest().starts_with('}') {
                return Err(self.fault("a value is followed by neither comma nor brace"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Value>, String> {
        let mut list = Vec::new();
        self.takes("[");
        loop {
            self.space();
            if self.takes("]") {
                return Ok(list);
            }
            list.push(self.value(depth + 1)?);
            self.space();
            if !self.takes(",") && !self.rest().starts_with(']') {
                return Err(self.fault("a value is followed by neither comma nor bracket"));
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        self.takes(GEMMA_QUOTE);
        let end = self.rest().find(GEMMA_QUOTE);
        let end = end.ok_or_else(|| self.fault("a text is not closed"))?;
        let string = self.rest()[..end].to_owned();
        self.at += end + GEMMA_QUOTE.len();
        Ok(string)
    }

    /// A number, a word of JSON's or Python's; any other word is text.
    fn bare(&mut self) -> Result<Value, String> {
        let rest = self.rest();
        let end = rest.find([',', '}', ']']).unwrap_or(rest.len());
        let word = rest[..end].trim();
        if word.is_empty() {
            return Err(self.fault("a value is missing"));
        }
        self.at += end;
        let number = || {
            let exact = word.parse::<i64>().map(Number::from).ok();
            let exact = exact.or_else(|| word.parse::<u64>().map(Number::from).ok());
            let begins = word.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
            let float = || {
                word.parse()
                    .ok()
                    .filter(|_| begins)
                    .and_then(Number::from_f64)
            };
            exact.or_else(float)
        };
        Ok(match word {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" => Value::Null,
            _ => number().map_or_else(|| Value::String(word.to_owned()), Value::Number),
        })
    }
}
