//! Requests, and files that arrive in pieces.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use ureq::Agent;
use ureq::config::RedirectAuthHeaders;
use ureq::http::Response;
use ureq::{Body, http};

use crate::cache::ModelCache;
use crate::info::{FileInfo, Info};
use crate::verify::verify;
use crate::{Error, RepoId, Result};

/// Failures in a row without a byte of progress after which a download is given up.
const MOST_FAILURES: u32 = 5;
/// Bytes that the description of a model may have.
const INFO_LIMIT: u64 = 64 << 20;
/// How long one request for a file may take; what it brought is kept, and the next goes on.
const FILE_TIMEOUT: Duration = Duration::from_mins(15);

/// Talks to one endpoint.
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    authorization: Option<String>,
}

impl Client {
    pub(crate) fn new(endpoint: &str, token: Option<&str>) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(30)))
            .timeout_recv_response(Some(Duration::from_mins(1)))
            .timeout_recv_body(Some(FILE_TIMEOUT))
            // Large files lie with other hosts, which must not see the token.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("prefill/", env!("CARGO_PKG_VERSION")))
            .build();
        Self {
            agent: config.into(),
            endpoint: endpoint.to_owned(),
            authorization: token.map(|token| format!("Bearer {token}")),
        }
    }

    /// What the hub says of a model's main branch.
    pub(crate) fn info(&self, id: &RepoId) -> Result<Info> {
        let url = format!("{}/api/models/{id}/revision/main?blobs=true", self.endpoint);
        let mut failures = 0;
        loop {
            let text = self.get(&url, 0).and_then(|response| {
                check_status(&response, id, &url)?;
                let mut text = String::new();
                let body = response.into_body().into_reader();
                body.take(INFO_LIMIT)
                    .read_to_string(&mut text)
                    .map_err(|error| connection(&url, &error))?;
                Ok(text)
            });
            match text {
                Ok(text) => return Info::parse(&text, id, &url),
                Err(error) if !is_passing(&error) || failures + 1 >= MOST_FAILURES => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(%error, "asking again");
                    pause(failures);
                    failures += 1;
                }
            }
        }
    }

    /// Brings a file to its blob, unless it is there. `on_bytes` is told how much of it is there.
    /// Other processes that want the same file wait.
    pub(crate) fn download(
        &self,
        id: &RepoId,
        commit: &str,
        file: &FileInfo,
        cache: &ModelCache,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let (blob, lock_path) = (&cache.blob(file), &cache.lock(file));
        if is_whole(blob, file) {
            return Ok(());
        }
        for path in [blob, lock_path] {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(Error::io(folder))?;
            }
        }
        let lock = File::create(lock_path).map_err(Error::io(lock_path))?;
        lock.lock().map_err(Error::io(lock_path))?;
        if is_whole(blob, file) {
            return Ok(());
        }
        let url = format!("{}/{id}/resolve/{commit}/{}", self.endpoint, file.name);
        let part = blob.with_extension("incomplete");
        self.receive(id, &url, file, &part, on_bytes)?;
        if let Err(error) = verify(&part, file) {
            // To go on from it would not make it right.
            fs::remove_file(&part).map_err(Error::io(&part))?;
            return Err(error);
        }
        fs::rename(&part, blob).map_err(Error::io(blob))
    }

    /// Writes to `part` what is missing there, in as many requests as it takes.
    fn receive(
        &self,
        id: &RepoId,
        url: &str,
        file: &FileInfo,
        part: &Path,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut output = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(part)
            .map_err(Error::io(part))?;
        let mut failures = 0;
        loop {
            let start = output.seek(SeekFrom::End(0)).map_err(Error::io(part))?;
            if start == file.length {
                return output.sync_data().map_err(Error::io(part));
            }
            if start > file.length {
                output.set_len(0).map_err(Error::io(part))?;
                continue;
            }
            on_bytes(start);
            let outcome = self.piece(id, url, file, &mut output, start, on_bytes);
            let end = output.seek(SeekFrom::End(0)).map_err(Error::io(part))?;
            let error = match outcome {
                Ok(()) if end == file.length => continue,
                // The connection was closed in good order, before the end.
                Ok(()) => Error::Length {
                    file: file.name.clone(),
                    expected: file.length,
                    found: end,
                },
                Err(error) if !is_passing(&error) => return Err(error),
                Err(error) => error,
            };
            failures = if end > start { 1 } else { failures + 1 };
            if failures >= MOST_FAILURES {
                return Err(error);
            }
            tracing::warn!(%error, file = file.name, at = end, "going on after a broken connection");
            pause(failures - 1);
        }
    }

    /// One request for the rest of a file.
    fn piece(
        &self,
        id: &RepoId,
        url: &str,
        file: &FileInfo,
        output: &mut File,
        start: u64,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let response = self.get(url, start)?;
        check_status(&response, id, url)?;
        let mut at = start;
        if start > 0 && !continues_at(&response, start) {
            // The server sends all of it.
            output.set_len(0).map_err(|error| connection(url, &error))?;
            output.rewind().map_err(|error| connection(url, &error))?;
            at = 0;
        }
        // One byte more than there should be shows that there are too many.
        let mut body = response
            .into_body()
            .into_reader()
            .take(file.length - at + 1);
        let mut buffer = vec![0; 1 << 18];
        loop {
            let count = body
                .read(&mut buffer)
                .map_err(|error| connection(url, &error))?;
            if count == 0 {
                return Ok(());
            }
            output
                .write_all(&buffer[..count])
                .map_err(|source| Error::Io {
                    path: file.name.clone().into(),
                    source,
                })?;
            at += count as u64;
            if at > file.length {
                return Err(Error::Length {
                    file: file.name.clone(),
                    expected: file.length,
                    found: at,
                });
            }
            on_bytes(at);
        }
    }

    fn get(&self, url: &str, start: u64) -> Result<Response<Body>> {
        let mut request = self.agent.get(url);
        if let Some(authorization) = &self.authorization {
            request = request.header(http::header::AUTHORIZATION, authorization);
        }
        if start > 0 {
            request = request.header(http::header::RANGE, format!("bytes={start}-"));
        }
        // Compressed, a file would not have the length that was stated.
        request = request.header(http::header::ACCEPT_ENCODING, "identity");
        request.call().map_err(|error| Error::Connection {
            url: url.to_owned(),
            fact: error.to_string(),
        })
    }
}

/// Whether the cache has the file: it got its name only when it was verified.
fn is_whole(blob: &Path, file: &FileInfo) -> bool {
    fs::metadata(blob).is_ok_and(|metadata| metadata.len() == file.length)
}

/// Whether an answer brings the bytes from `start` on.
fn continues_at(response: &Response<Body>, start: u64) -> bool {
    let range = response.headers().get(http::header::CONTENT_RANGE);
    let range = range.and_then(|range| range.to_str().ok());
    response.status() == http::StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.starts_with(&format!("bytes {start}-")))
}

fn check_status(response: &Response<Body>, id: &RepoId, url: &str) -> Result<()> {
    let status = response.status().as_u16();
    match status {
        200 | 206 => Ok(()),
        401 | 403 => Err(Error::Refused {
            id: id.to_string(),
            status,
        }),
        404 => Err(Error::NotFound { id: id.to_string() }),
        _ => Err(Error::Status {
            url: url.to_owned(),
            status,
        }),
    }
}

/// Whether it may go better the next time.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Connection { .. } => true,
        Error::Status { status, .. } => matches!(status, 408 | 416 | 429 | 500..),
        _ => false,
    }
}

fn connection(url: &str, error: &io::Error) -> Error {
    Error::Connection {
        url: url.to_owned(),
        fact: error.to_string(),
    }
}

/// A tenth of a second, then twice as long each time.
fn pause(failures: u32) {
    thread::sleep(Duration::from_millis(100) * 2u32.pow(failures.min(6)));
}
