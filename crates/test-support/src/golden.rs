use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde::Deserialize;
use serde_json::Value;

use crate::{Checkpoint, Error, Result, reference_dir};

/// A run of media tokens in a prompt, without the tokens that open and close it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Span {
    /// `image`, `audio` or `video` (one span a frame).
    pub kind: String,
    /// The index of its first token in the prompt.
    pub start: usize,
    /// Its number of tokens.
    pub length: usize,
}

/// One value of one of the checkpoint's JSON files replaced.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Patch {
    /// The file, such as `processor_config.json`.
    pub file: String,
    /// The place in it, a JSON pointer (RFC 6901), such as `/image_processor/max_soft_tokens`.
    pub pointer: String,
    /// The new value.
    pub value: Value,
}

/// An f32 matrix, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    /// The number of rows: steps of a generation, or tokens of a medium.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns: the vocabulary, or the hidden size.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All values, row by row.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Row `i`.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.columns..(i + 1) * self.columns]
    }
}

/// What a reference answered to one prompt: `tests/reference/goldens/MODEL/CASE.json` and the
/// tensors beside it.
///
/// ```
/// use prefill_test_support::Golden;
///
/// let golden = Golden::read("gemma4_e2b", "image_png")?;
/// let span = &golden.spans()[0];
/// assert_eq!(span.kind, "image");
/// assert_eq!(golden.features(0)?.rows(), span.length);
/// assert_eq!(golden.logits()?.rows(), golden.greedy_ids().len());
/// # Ok::<(), prefill_test_support::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Golden {
    model: String,
    tensors: PathBuf,
    file: GoldenFile,
    document: Value,
}

#[derive(Clone, Debug, Deserialize)]
struct GoldenFile {
    messages: Value,
    prompt: String,
    prompt_ids: Vec<u32>,
    #[serde(default)]
    spans: Vec<Span>,
    greedy_ids: Vec<u32>,
    #[serde(default)]
    tolerance: f32,
    #[serde(default)]
    patches: Vec<Patch>,
}

impl Golden {
    /// The golden of that model and case, such as `gemma4_e2b` and `image_png`.
    ///
    /// # Errors
    /// There is none, or its JSON has another form.
    pub fn read(model: &str, case: &str) -> Result<Self> {
        let folder = reference_dir().join("goldens").join(model);
        let path = folder.join(format!("{case}.json"));
        let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        let document: Value = serde_json::from_str(&text).map_err(Error::json(&path))?;
        let file = GoldenFile::deserialize(&document).map_err(Error::json(&path))?;
        let tensors = folder.join(format!("{case}.safetensors"));
        Ok(Self {
            model: model.to_owned(),
            tensors,
            file,
            document,
        })
    }

    /// The names of a model's cases, sorted.
    ///
    /// # Errors
    /// The model has no folder of goldens.
    pub fn cases(model: &str) -> Result<Vec<String>> {
        let folder = reference_dir().join("goldens").join(model);
        let mut cases = Vec::new();
        for entry in folder.read_dir().map_err(Error::io(&folder))? {
            let path = entry.map_err(Error::io(&folder))?.path();
            if path.extension().is_some_and(|e| e == "json") && !path.ends_with("weights.json") {
                cases.extend(path.file_stem().map(|s| s.to_string_lossy().into_owned()));
            }
        }
        cases.sort();
        Ok(cases)
    }

    /// The checkpoint that it was made with, in f32, this case's settings applied.
    ///
    /// # Errors
    /// See [`Checkpoint::named`]: there is none for `demo`, whose checkpoint is committed
    /// (`assets/demo-model`).
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let checkpoint = Checkpoint::named(&self.model)?;
        Ok(self
            .file
            .patches
            .iter()
            .cloned()
            .fold(checkpoint, Checkpoint::patch))
    }

    /// The messages; a media part names its file relative to `tests/reference`
    /// (`{"type": "image", "image": "media/photo.png"}`).
    #[must_use]
    pub fn messages(&self) -> &Value {
        &self.file.messages
    }

    /// [`Golden::messages`] with every media file as an absolute path.
    #[must_use]
    pub fn messages_with_paths(&self) -> Value {
        let mut messages = self.file.messages.clone();
        let parts = messages.as_array_mut().into_iter().flatten();
        for part in parts.filter_map(|m| m["content"].as_array_mut()).flatten() {
            for kind in ["image", "audio", "video"] {
                if let Some(file) = part.get(kind).and_then(Value::as_str) {
                    let path = reference_dir().join(file);
                    part[kind] = Value::from(path.to_string_lossy().into_owned());
                }
            }
        }
        messages
    }

    /// The media files in document order, as absolute paths.
    #[must_use]
    pub fn media(&self) -> Vec<PathBuf> {
        let messages = self.file.messages.as_array().into_iter().flatten();
        let parts = messages.filter_map(|m| m["content"].as_array()).flatten();
        let files = parts.flat_map(|part| {
            ["image", "audio", "video"]
                .into_iter()
                .filter_map(|k| part.get(k)?.as_str())
        });
        files.map(|file| reference_dir().join(file)).collect()
    }

    /// The rendered chat template, before media placeholders are expanded.
    #[must_use]
    pub fn prompt(&self) -> &str {
        &self.file.prompt
    }

    /// The ids of the expanded prompt.
    #[must_use]
    pub fn prompt_ids(&self) -> &[u32] {
        &self.file.prompt_ids
    }

    /// The media spans in the prompt, in order; none where a golden is of ids alone.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.file.spans
    }

    /// The greedy ids; end-of-text ids do not stop them.
    #[must_use]
    pub fn greedy_ids(&self) -> &[u32] {
        &self.file.greedy_ids
    }

    /// The largest difference from [`Golden::logits`] that a right implementation in f32 shows;
    /// `tests/reference/README.md` says how it was found. 0 where there are no logits.
    #[must_use]
    pub fn tolerance(&self) -> f32 {
        self.file.tolerance
    }

    /// The whole JSON document, with versions, settings and measured noise.
    #[must_use]
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// The logits before each greedy id, `[steps, vocab]`.
    ///
    /// # Errors
    /// See [`Golden::tensor`].
    pub fn logits(&self) -> Result<Matrix> {
        self.tensor("logits")
    }

    /// The features of medium `i` as they enter the text model, `[tokens, hidden]`.
    ///
    /// # Errors
    /// See [`Golden::tensor`].
    pub fn features(&self, i: usize) -> Result<Matrix> {
        self.tensor(&format!("features.{i}"))
    }

    /// Any tensor of the golden as a matrix; a vector is one row.
    ///
    /// # Errors
    /// The golden has no such tensor, or it is not f32, or of more than two dimensions.
    pub fn tensor(&self, name: &str) -> Result<Matrix> {
        let bytes = std::fs::read(&self.tensors).map_err(Error::io(&self.tensors))?;
        read_matrix(&bytes, name, &self.tensors)
    }
}

fn read_matrix(bytes: &[u8], name: &str, path: &Path) -> Result<Matrix> {
    let problem = |problem: String| Error::Tensor {
        path: path.to_owned(),
        name: name.to_owned(),
        problem,
    };
    let file = SafeTensors::deserialize(bytes).map_err(Error::safetensors(path))?;
    let view = file.tensor(name).map_err(|e| problem(e.to_string()))?;
    let (rows, columns) = match *view.shape() {
        [columns] => (1, columns),
        [rows, columns] => (rows, columns),
        ref shape => {
            return Err(problem(format!(
                "expected at most 2 dimensions, found {shape:?}"
            )));
        }
    };
    if view.dtype() != Dtype::F32 {
        return Err(problem(format!("expected F32, found {:?}", view.dtype())));
    }
    let (chunks, _) = view.data().as_chunks::<4>();
    let values = chunks.iter().map(|&b| f32::from_le_bytes(b)).collect();
    Ok(Matrix {
        rows,
        columns,
        values,
    })
}
