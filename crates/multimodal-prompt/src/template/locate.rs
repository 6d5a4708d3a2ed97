//! The places where a checkpoint keeps its chat template.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value;

use super::DEFAULT;
use crate::{Error, Result};

/// The folder of named templates beside `chat_template.jinja`.
const ADDITIONAL: &str = "additional_chat_templates";

/// The templates of a checkpoint's folder, by name.
pub(super) fn sources(folder: &Path) -> Result<Vec<(String, String)>> {
    let only = |source| vec![(DEFAULT.to_owned(), source)];
    let additional = additional(&folder.join(ADDITIONAL))?;
    if let Some(source) = read(&folder.join("chat_template.jinja"))? {
        let mut sources = only(source);
        sources.extend(additional);
        return Ok(sources);
    }
    if !additional.is_empty() {
        return Ok(additional);
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
            Some(Value::String(source)) => return Ok(only(source.clone())),
            Some(Value::Array(named)) => {
                return named
                    .iter()
                    .map(|entry| name_and_source(entry, &path))
                    .collect();
            }
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

/// An entry of a list of `{"name": ..., "template": ...}`.
fn name_and_source(entry: &Value, path: &Path) -> Result<(String, String)> {
    let text = |key| Some(entry.get(key)?.as_str()?.to_owned());
    text("name")
        .zip(text("template"))
        .ok_or_else(|| Error::BadFile {
            path: path.to_owned(),
            fact: "an entry of its chat_template has no name or no template".to_owned(),
        })
}

/// The `.jinja` files of a folder, in order of name; none if there is no such folder.
fn additional(folder: &Path) -> Result<Vec<(String, String)>> {
    let failed = |source| Error::File {
        path: folder.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut sources = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let is_template = path
            .extension()
            .is_some_and(|extension| extension == "jinja");
        if let Some(name) = name.filter(|_| is_template)
            && let Some(source) = read(&path)?
        {
            sources.push((name.to_owned(), source));
        }
    }
    sources.sort();
    Ok(sources)
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
