//! Media by URL, from a server of this machine.
#![cfg(feature = "fetch")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use prefill_engine::{
    Conversation, Engine, Error, FetchPolicy, Fetcher, MediaKind, MediaSource, MessageRules,
    Request, Sampling,
};
use prefill_test_support::assets_dir;

/// A server that answers every request with the demo's picture.
fn serve() -> SocketAddr {
    let picture = fs::read(assets_dir().join("demo/shapes.png")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let length = picture.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&picture).unwrap();
        }
    });
    address
}

fn engine(policy: FetchPolicy, rules: &MessageRules) -> Engine {
    Engine::builder(assets_dir().join("demo-model"))
        .fetcher(Fetcher::new(policy, rules))
        .build()
        .unwrap()
}

fn request(picture: MediaSource) -> Request {
    let question = "How many shapes are there?";
    Request::new(Conversation::user(question, [(MediaKind::Image, picture)]))
        .sampling(Sampling::greedy())
        .max_tokens(24)
}

fn url(server: SocketAddr) -> MediaSource {
    MediaSource::Url(format!("http://{server}/shapes.png"))
}

#[test]
fn a_url_is_what_it_leads_to() {
    let server = serve();
    let inside = FetchPolicy {
        private_addresses: true,
        ..FetchPolicy::default()
    };
    let engine = engine(inside, &MessageRules::default());
    let answer = |source| engine.generate(request(source)).unwrap().text().unwrap();
    let file = assets_dir().join("demo/shapes.png");
    let by_url = answer(url(server));
    assert!(!by_url.is_empty());
    assert_eq!(by_url, answer(MediaSource::Path(file)));

    // As clients of a server write it.
    let rules = MessageRules {
        urls: true,
        ..MessageRules::default()
    };
    let messages = serde_json::json!([{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": format!("http://{server}/a.png")}},
        {"type": "text", "text": "How many shapes are there?"},
    ]}]);
    let request = Request::new(rules.read(&messages).unwrap())
        .sampling(Sampling::greedy())
        .max_tokens(24);
    assert_eq!(engine.generate(request).unwrap().text().unwrap(), by_url);
}

#[test]
fn what_is_refused_ends_the_request_alone() {
    let server = serve();
    let guarded = engine(FetchPolicy::default(), &MessageRules::default());
    let error = guarded.generate(request(url(server))).unwrap_err();
    assert!(
        error.to_string().contains("127.0.0.1 is no public address"),
        "{error}"
    );
    let inside = FetchPolicy {
        private_addresses: true,
        ..FetchPolicy::default()
    };
    let rules = MessageRules {
        image_bytes: 100,
        ..MessageRules::default()
    };
    let small = engine(inside, &rules);
    let error = small.generate(request(url(server))).unwrap_err();
    assert!(error.to_string().contains("over 100"), "{error}");

    let without = Engine::builder(assets_dir().join("demo-model")).build();
    let without = without.unwrap();
    let error = without.generate(request(url(server))).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NoFetcher {
                kind: MediaKind::Image,
                index: 0
            }
        ),
        "{error}"
    );
    let file = assets_dir().join("demo/shapes.png");
    for engine in [guarded, small, without] {
        let answer = engine.generate(request(MediaSource::Path(file.clone())));
        assert!(!answer.unwrap().text().unwrap().is_empty());
    }
}
