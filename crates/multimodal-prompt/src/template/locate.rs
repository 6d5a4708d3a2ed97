//! The places where a checkpoint keeps its chat template.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value;

use crate::{Error, Result};

/// The name of the template to take where several are named.
const DEFAULT: &str = "default";

/// The source of the template of a checkpoint's folder.
pub(super) fn source(folder: &Path) -> Result<String> {
    if let Some(source) = read(&folder.join("chat_template.jinja"))? {
        return Ok(source);
    }
    for name in [
        "tokenizer_config.json",
        "chat_template.json",
        "processor_config.json",
    ] {
        let path = folder.join(name);
        let Some(text) = read(&path)? else { continue };
        let config: Value = serde_json::from_str(&text).map_err(|error| Error::BadFile {
            path: path.clone(),
            fact: format!("it is not JSON: {error}"),
        })?;
        match config.get("chat_template") {
            None | Some(Value::Null) => {}
            Some(Value::String(source)) => return Ok(source.clone()),
            Some(Value::Array(named)) => return default_of(named, folder),
            Some(_) => {
                let fact = "its chat_template is neither text nor a list".to_owned();
                return Err(Error::BadFile { path, fact });
            }
        }
    }
    Err(Error::NoTemplate {
        folder: folder.to_owned(),
    })
}

/// The default of a list of `{"name": ..., "template": ...}`.
fn default_of(named: &[Value], folder: &Path) -> Result<String> {
    let names: Vec<&str> = named
        .iter()
        .filter_map(|entry| entry.get("name")?.as_str())
        .collect();
    named
        .iter()
        .find(|entry| entry.get("name").is_some_and(|name| name == DEFAULT))
        .and_then(|entry| entry.get("template")?.as_str())
        .map(str::to_owned)
        .ok_or_else(|| Error::NoDefaultTemplate {
            folder: folder.to_owned(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
        })
}

/// The file's text, or nothing if there is no such file.
fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::File {
            path: path.to_owned(),
            source,
        }),
    }
}
