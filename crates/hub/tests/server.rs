//! Downloads from a small server on this machine that speaks the hub's protocol, and misbehaves.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use prefill_hub::{Error, Hub, RepoId};
use sha2::{Digest, Sha256};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const CONFIG: &[u8] = b"{\"model_type\": \"gemma4\"}\n";
/// The Git blob of `CONFIG`, by `git hash-object`.
const CONFIG_BLOB: &str = "fe37f540cc3368183b47715c1aef7b54d0d10bd6";

fn weights() -> Vec<u8> {
    (0..400_000u32).flat_map(u32::to_le_bytes).collect()
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap();
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(digit).collect()
}

/// How the server treats requests for the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Well,
    /// Closes the connection after so many bytes, each time.
    Breaking(usize),
    /// Sends everything whatever is asked for, and breaks the first connection.
    IgnoringRanges,
    /// Sends a byte more than it states to the hub.
    TooLong,
    /// Sends other bytes.
    Wrong,
    /// Sends slowly.
    Slow,
    /// Says no.
    Status(u16),
    /// Says no once.
    BusyOnce,
    /// Sends to another host for large files.
    Elsewhere,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<(String, Option<String>, Option<String>)>,
}

struct Server {
    endpoint: String,
    seen: Arc<Mutex<Seen>>,
}

impl Server {
    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, stream) = (Arc::clone(&shared), stream.unwrap());
                thread::spawn(move || serve(stream, manner, port, &shared));
            }
        });
        Self {
            endpoint: format!("http://127.0.0.1:{port}"),
            seen,
        }
    }

    fn paths(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.requests
            .iter()
            .map(|(path, ..)| path.clone())
            .collect()
    }

    fn count(&self, end: &str) -> usize {
        self.paths()
            .iter()
            .filter(|path| path.ends_with(end))
            .count()
    }
}

/// Answers one request. (A client that goes away makes writing fail, which is its business.)
fn serve(stream: TcpStream, manner: Manner, port: u16, seen: &Mutex<Seen>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap().to_owned();
    let (mut range, mut authorization, mut host) = (None, None, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.trim().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "range" => range = Some(value.to_owned()),
            "authorization" => authorization = Some(value.to_owned()),
            "host" => value.clone_into(&mut host),
            _ => {}
        }
    }
    let request = (format!("{host}{path}"), range.clone(), authorization);
    let first = {
        let mut seen = seen.lock().unwrap();
        seen.requests.push(request);
        seen.requests
            .iter()
            .filter(|(path, ..)| path.ends_with(".safetensors"))
            .count()
            <= 1
    };
    let start: usize = range.map_or(0, |range| {
        range
            .trim_start_matches("bytes=")
            .trim_end_matches('-')
            .parse()
            .unwrap()
    });
    let mut stream = stream;
    if path.starts_with("/api/models/org/name/") {
        let sha = hex(&Sha256::digest(weights()));
        let length = weights().len();
        let body = format!(
            r#"{{"sha": "{COMMIT}", "siblings": [
                {{"rfilename": "config.json", "size": {}, "blobId": "{CONFIG_BLOB}"}},
                {{"rfilename": "../evil.json", "size": 1, "blobId": "{CONFIG_BLOB}"}},
                {{"rfilename": "model.safetensors", "size": {length},
                  "lfs": {{"sha256": "{sha}", "size": {length}}}}}]}}"#,
            CONFIG.len()
        );
        send(&mut stream, "200 OK", "", body.as_bytes());
    } else if path.ends_with("/config.json") {
        send(&mut stream, "200 OK", "", CONFIG);
    } else if path.ends_with("/model.safetensors") {
        send_weights(&mut stream, manner, port, &host, first, start);
    } else {
        send(&mut stream, "404 Not Found", "", b"");
    }
}

fn send_weights(
    stream: &mut TcpStream,
    manner: Manner,
    port: u16,
    host: &str,
    first: bool,
    start: usize,
) {
    let mut body = weights();
    let total = body.len();
    let partial = format!("Content-Range: bytes {start}-{}/{total}\r\n", total - 1);
    match manner {
        Manner::Status(status) => return send(stream, &format!("{status} No"), "", b"no"),
        Manner::BusyOnce if first => return send(stream, "503 Busy", "", b""),
        Manner::Elsewhere if host.starts_with("127.") => {
            let location =
                format!("Location: http://localhost:{port}/elsewhere/model.safetensors\r\n");
            return send(stream, "302 Found", &location, b"");
        }
        Manner::Wrong => body[1000] ^= 1,
        Manner::TooLong => body.push(0),
        _ => {}
    }
    if manner == Manner::IgnoringRanges {
        let end = if first { total / 2 } else { total };
        head(stream, "200 OK", "", total);
        let _ = stream.write_all(&body[..end]);
        return;
    }
    let rest = &body[start..];
    let (status, headers) = if start > 0 {
        ("206 Partial Content", partial.as_str())
    } else {
        ("200 OK", "")
    };
    head(stream, status, headers, rest.len());
    match manner {
        Manner::Breaking(bytes) => {
            let _ = stream.write_all(&rest[..bytes.min(rest.len())]);
        }
        Manner::Slow => {
            for piece in rest.chunks(total / 8) {
                let _ = stream.write_all(piece);
                thread::sleep(Duration::from_millis(20));
            }
        }
        _ => {
            let _ = stream.write_all(rest);
        }
    }
}

fn head(stream: &mut TcpStream, status: &str, headers: &str, length: usize) {
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
}

fn send(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    head(stream, status, headers, body.len());
    let _ = stream.write_all(body);
}

fn hub(server: &Server, cache: &Path) -> Hub {
    Hub::from_env()
        .endpoint(&server.endpoint)
        .cache(cache)
        .token(Some("secret".to_owned()))
        .offline(false)
}

fn id() -> RepoId {
    RepoId::parse("org/name").unwrap()
}

fn assert_whole(folder: &Path) {
    assert_eq!(fs::read(folder.join("config.json")).unwrap(), CONFIG);
    assert_eq!(
        fs::read(folder.join("model.safetensors")).unwrap(),
        weights()
    );
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
}

#[test]
fn a_model_comes_whole_and_only_once() {
    let (server, cache) = (Server::start(Manner::Well), tempfile::tempdir().unwrap());
    let hub = hub(&server, cache.path());
    assert_eq!(hub.local(&id()), None);
    let mut seen = Vec::new();
    let folder = hub
        .fetch(&id(), &mut |progress| seen.push(progress))
        .unwrap();
    assert_whole(&folder);
    assert!(folder.ends_with(format!("models--org--name/snapshots/{COMMIT}")));
    assert_eq!(hub.local(&id()), Some(folder.clone()));
    assert!(seen.is_sorted_by_key(|progress| progress.done));
    let last = seen.last().unwrap();
    assert_eq!(last.done, last.total);
    assert_eq!(last.total as usize, CONFIG.len() + weights().len());
    // Nothing is left beside the blobs.
    let blobs = fs::read_dir(cache.path().join("models--org--name/blobs")).unwrap();
    assert_eq!(blobs.count(), 2);

    assert_eq!(hub.fetch(&id(), &mut |_| {}).unwrap(), folder);
    assert_eq!(server.count("/model.safetensors"), 1);
    assert_eq!(hub.offline(true).local(&id()), Some(folder));
}

#[test]
fn broken_connections_are_continued() {
    let half = weights().len() / 2 - 1;
    for manner in [
        Manner::Breaking(half),
        Manner::IgnoringRanges,
        Manner::BusyOnce,
        Manner::Slow,
    ] {
        let (server, cache) = (Server::start(manner), tempfile::tempdir().unwrap());
        let folder = hub(&server, cache.path())
            .fetch(&id(), &mut |_| {})
            .unwrap();
        assert_whole(&folder);
        let requests = server.count("/model.safetensors");
        let expected = match manner {
            Manner::Breaking(_) => 3,
            Manner::Slow => 1,
            _ => 2,
        };
        assert_eq!(requests, expected, "{manner:?}");
    }
}

#[test]
fn what_an_earlier_process_left_is_continued() {
    let (server, cache) = (Server::start(Manner::Well), tempfile::tempdir().unwrap());
    let blobs = cache.path().join("models--org--name/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.incomplete", hex(&Sha256::digest(weights()))));
    fs::write(&part, &weights()[..1_000_000]).unwrap();
    let folder = hub(&server, cache.path())
        .fetch(&id(), &mut |_| {})
        .unwrap();
    assert_whole(&folder);
    let seen = server.seen.lock().unwrap();
    let weights = seen
        .requests
        .iter()
        .find(|(path, ..)| path.ends_with("/model.safetensors"));
    assert_eq!(weights.unwrap().1.as_deref(), Some("bytes=1000000-"));
}

#[test]
fn what_was_left_broken_is_found_out_and_fetched_anew() {
    let (server, cache) = (Server::start(Manner::Well), tempfile::tempdir().unwrap());
    let blobs = cache.path().join("models--org--name/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.incomplete", hex(&Sha256::digest(weights()))));
    fs::write(&part, vec![7; 1_000_000]).unwrap();
    let hub = hub(&server, cache.path());
    let error = hub.fetch(&id(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Hash { .. }), "{error}");
    assert_eq!(hub.local(&id()), None);
    assert_whole(&hub.fetch(&id(), &mut |_| {}).unwrap());
}

#[test]
fn wrong_files_are_never_part_of_the_cache() {
    for manner in [Manner::Wrong, Manner::TooLong, Manner::Breaking(0)] {
        let (server, cache) = (Server::start(manner), tempfile::tempdir().unwrap());
        let hub = hub(&server, cache.path());
        let error = hub.fetch(&id(), &mut |_| {}).unwrap_err();
        let fits = match manner {
            Manner::Wrong => matches!(error, Error::Hash { .. }),
            Manner::TooLong => matches!(error, Error::Length { .. } | Error::Hash { .. }),
            _ => matches!(error, Error::Connection { .. } | Error::Length { .. }),
        };
        assert!(fits, "{manner:?}: {error}");
        assert_eq!(hub.local(&id()), None);
        let snapshot = cache
            .path()
            .join(format!("models--org--name/snapshots/{COMMIT}"));
        assert!(!snapshot.join("model.safetensors").exists());
    }
}

#[test]
fn refusals_say_what_to_do() {
    for (status, expected) in [
        (401, "HF_TOKEN"),
        (403, "terms"),
        (404, "private"),
        (500, "500"),
    ] {
        let (server, cache) = (
            Server::start(Manner::Status(status)),
            tempfile::tempdir().unwrap(),
        );
        let error = hub(&server, cache.path())
            .fetch(&id(), &mut |_| {})
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let (server, cache) = (Server::start(Manner::Well), tempfile::tempdir().unwrap());
    let unknown = RepoId::parse("org/other").unwrap();
    let error = hub(&server, cache.path())
        .fetch(&unknown, &mut |_| {})
        .unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    let offline = hub(&server, cache.path()).offline(true);
    let error = offline.fetch(&id(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Offline { .. }), "{error}");
    let nobody = Hub::from_env()
        .endpoint("http://127.0.0.1:1")
        .cache(cache.path())
        .offline(false);
    let error = nobody.fetch(&id(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error}");
}

#[test]
fn the_token_stays_with_the_endpoint() {
    let (server, cache) = (
        Server::start(Manner::Elsewhere),
        tempfile::tempdir().unwrap(),
    );
    let folder = hub(&server, cache.path())
        .fetch(&id(), &mut |_| {})
        .unwrap();
    assert_whole(&folder);
    let seen = server.seen.lock().unwrap();
    for (path, _, authorization) in &seen.requests {
        let at_endpoint = path.starts_with("127.0.0.1");
        assert_eq!(authorization.is_some(), at_endpoint, "{path}");
    }
    assert!(
        seen.requests
            .iter()
            .any(|(path, ..)| path.starts_with("localhost"))
    );
}

#[test]
fn two_at_once_fetch_one_file_once() {
    let (server, cache) = (Server::start(Manner::Slow), tempfile::tempdir().unwrap());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let hub = hub(&server, cache.path());
                assert_whole(&hub.fetch(&id(), &mut |_| {}).unwrap());
            });
        }
    });
    assert_eq!(server.count("/model.safetensors"), 1);
}
