//! Fetching, against a server of this machine.
#![cfg(feature = "fetch")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use prefill_multimodal_prompt::{FetchPolicy, Fetcher, MediaKind, MediaSource, MessageRules};
use serde_json::json;

/// A server that answers by path, and counts the requests.
struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

fn serve() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || drop(answer(stream.unwrap(), address.port())));
        }
    });
    Server { address, requests }
}

fn answer(mut stream: TcpStream, port: u16) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let path = request.split(' ').nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let to = |target: String| {
        format!("HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n")
    };
    let body = |mime_type: &str, body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {mime_type}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let response = match path {
        "/image" => body("image/png", "pixels"),
        "/page" => body("text/html", "<p>"),
        "/long" => body("image/png", "0123456789+"),
        "/claims" => "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx".to_owned(),
        // No length is stated: the body ends with the connection.
        "/endless" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")?;
            while stream.write_all(&[b'x'; 4096]).is_ok() {}
            return Ok(());
        }
        "/slow" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")?;
            for _ in 0..200 {
                thread::sleep(Duration::from_millis(50));
                stream.write_all(b"x")?;
            }
            return Ok(());
        }
        "/relative" => to("/image".to_owned()),
        "/twice" => to("/relative".to_owned()),
        "/loop" => to("/loop".to_owned()),
        "/to-loopback" => to(format!("http://127.0.0.1:{port}/image")),
        "/to-name" => to(format!("http://inside.test:{port}/image")),
        "/to-metadata" => to("http://169.254.169.254/latest".to_owned()),
        "/to-file" => to("file:///etc/passwd".to_owned()),
        "/to-ftp" => to("ftp://open.test/x".to_owned()),
        _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
    };
    stream.write_all(response.as_bytes())
}

fn rules() -> MessageRules {
    MessageRules {
        urls: true,
        image_bytes: 10,
        ..MessageRules::default()
    }
}

/// `open.test` is trusted; it and every other name lead to the server.
fn fetcher(server: &Server, policy: FetchPolicy) -> Fetcher {
    let address = server.address;
    let policy = FetchPolicy {
        trusted_hosts: vec!["open.test".to_owned()],
        ..policy
    };
    Fetcher::with_lookup(policy, &rules(), move |host, port| {
        Ok(match host.parse() {
            Ok(literal) => vec![SocketAddr::new(literal, port)],
            Err(_) => vec![SocketAddr::new(address.ip(), port)],
        })
    })
}

#[test]
fn what_is_allowed_is_fetched() {
    let server = serve();
    let fetcher = fetcher(&server, FetchPolicy::default());
    let port = server.address.port();
    for path in ["image", "relative", "twice"] {
        let url = format!("http://open.test:{port}/{path}");
        assert_eq!(fetcher.fetch(MediaKind::Image, &url).unwrap(), b"pixels");
    }
    let open = FetchPolicy {
        private_addresses: true,
        ..FetchPolicy::default()
    };
    let url = format!("http://127.0.0.1:{port}/to-loopback");
    let direct = Fetcher::new(open, &rules());
    assert_eq!(direct.fetch(MediaKind::Image, &url).unwrap(), b"pixels");

    let messages = json!([{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": format!("http://open.test:{port}/image")}},
        {"type": "image", "data": "AAAA"},
    ]}]);
    let mut conversation = rules().read(&messages).unwrap();
    fetcher.fetch_all(&mut conversation).unwrap();
    assert_eq!(
        conversation.media(),
        [
            (MediaKind::Image, MediaSource::Bytes(b"pixels".to_vec())),
            (MediaKind::Image, MediaSource::Bytes(vec![0; 3])),
        ]
    );
}

#[test]
fn forbidden_addresses_are_refused_before_a_connection_is_made() {
    let server = serve();
    let port = server.address.port();
    let guarded = fetcher(&server, FetchPolicy::default());
    let system = Fetcher::new(FetchPolicy::default(), &rules());
    let refused = |fetcher: &Fetcher, url: &str| {
        let error = fetcher
            .fetch(MediaKind::Image, url)
            .unwrap_err()
            .to_string();
        assert!(error.contains("is no public address"), "{url}: {error}");
    };
    // By a name that resolves to this machine, by address, by the system's own names.
    refused(&guarded, &format!("http://inside.test:{port}/image"));
    for host in [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "10.0.0.1",
    ] {
        refused(&system, &format!("http://{host}:{port}/image"));
    }
    assert_eq!(server.requests.load(Ordering::SeqCst), 0);
    // At a redirect: from a trusted host to others.
    for path in ["to-loopback", "to-name", "to-metadata"] {
        refused(&guarded, &format!("http://open.test:{port}/{path}"));
    }
    assert_eq!(server.requests.load(Ordering::SeqCst), 3);
    // One private address among public ones.
    let mixed = Fetcher::with_lookup(FetchPolicy::default(), &rules(), |_, port| {
        Ok(vec![
            SocketAddr::new("8.8.8.8".parse().unwrap(), port),
            SocketAddr::new("192.168.0.1".parse().unwrap(), port),
        ])
    });
    refused(&mixed, "http://mixed.test/image");
}

/// The name is asked once a connection, and what it says then is checked.
#[test]
fn a_name_that_changes_its_mind_is_checked_again() {
    let server = serve();
    let port = server.address.port();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let address = server.address;
    let policy = FetchPolicy {
        trusted_hosts: vec!["first.test".to_owned()],
        ..FetchPolicy::default()
    };
    let fetcher = Fetcher::with_lookup(policy, &rules(), move |_, port| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(vec![SocketAddr::new(address.ip(), port)])
    });
    let fetch =
        |host: &str| fetcher.fetch(MediaKind::Image, &format!("http://{host}:{port}/image"));
    assert!(fetch("first.test").is_ok());
    assert!(fetch("first.test").is_ok());
    assert!(fetch("second.test").is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}

#[test]
fn limits_hold() {
    let server = serve();
    let port = server.address.port();
    let error = |path: &str, policy: FetchPolicy| {
        let url = format!("http://open.test:{port}/{path}?key=secret");
        let started = Instant::now();
        let error = fetcher(&server, policy)
            .fetch(MediaKind::Image, &url)
            .unwrap_err()
            .to_string();
        assert!(started.elapsed() < Duration::from_secs(5), "{path}");
        assert!(
            error.starts_with(&format!("http://open.test:{port}/{path}: ")),
            "{error}"
        );
        error
    };
    let policy = FetchPolicy::default;
    for (path, fact) in [
        ("long", "its body has 11 bytes or more, over 10"),
        ("claims", "its body has 99999999999 bytes or more, over 10"),
        ("endless", "its body has 11 bytes or more, over 10"),
        ("page", "its content is text/html, not image"),
        ("nothing", "the server answered 404"),
        ("loop", "too many redirects"),
        // The client takes what has no host for a path of the same server.
        ("to-file", "the server answered 404"),
        ("to-ftp", "unknown scheme: ftp"),
    ] {
        let error = error(path, policy());
        assert!(error.contains(fact), "{error}");
    }
    let none = FetchPolicy {
        redirects: 0,
        ..policy()
    };
    assert!(
        fetcher(&server, none)
            .fetch(
                MediaKind::Image,
                &format!("http://open.test:{port}/relative")
            )
            .is_err()
    );
    let quick = FetchPolicy {
        timeout: Duration::from_millis(400),
        ..policy()
    };
    assert!(error("slow", quick).contains("timeout"));
    let https = FetchPolicy {
        https_only: true,
        ..policy()
    };
    assert!(error("image", https).contains("https"));
    // Sound has another limit.
    let url = format!("http://open.test:{port}/long");
    let sound = fetcher(&server, policy())
        .fetch(MediaKind::Audio, &url)
        .unwrap_err();
    assert!(sound.to_string().contains("not audio"), "{sound}");
}
