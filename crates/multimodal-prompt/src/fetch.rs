//! Media by URL, within limits, and never from where the caller has no business.

mod guard;

use std::fmt;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use guard::Guard;
use ureq::Agent;
use ureq::unversioned::transport::DefaultConnector;

use crate::{Conversation, Error, MediaKind, MediaSource, MessageRules, Result};

/// What may be fetched, and how.
///
/// Sizes are those of [`MessageRules`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPolicy {
    /// Whether `http:` is refused, at redirects too.
    pub https_only: bool,
    /// Whether addresses may be fetched from that no public host has: private, loopback,
    /// link-local and the like.
    pub private_addresses: bool,
    /// Hosts, by the name in the URL, that may have such addresses.
    pub trusted_hosts: Vec<String>,
    /// How long one medium may take, redirects included.
    pub timeout: Duration,
    /// How many redirects are followed.
    pub redirects: u32,
}

impl Default for FetchPolicy {
    /// `http:` and `https:`, public addresses alone, 30 seconds, 3 redirects.
    fn default() -> Self {
        Self {
            https_only: false,
            private_addresses: false,
            trusted_hosts: Vec::new(),
            timeout: Duration::from_secs(30),
            redirects: 3,
        }
    }
}

/// Looks a host up: the addresses of a name and a port.
pub(crate) type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Fetches media by `http:` and `https:` URLs.
///
/// Against server-side request forgery, every address that a host's name resolves to is
/// checked when a connection is made, and the connection goes to the checked address: at
/// first, at each redirect, and whatever the name resolves to later. No proxy is used, since
/// it would resolve names unchecked.
///
/// ```
/// use prefill_multimodal_prompt::{FetchPolicy, Fetcher, MediaKind, MessageRules};
///
/// let fetcher = Fetcher::new(FetchPolicy::default(), &MessageRules::default());
/// let error = fetcher.fetch(MediaKind::Image, "http://169.254.169.254/latest/meta-data").unwrap_err();
/// assert!(error.to_string().contains("169.254.169.254 is no public address"));
/// ```
pub struct Fetcher {
    agent: Agent,
    rules: MessageRules,
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Fetcher")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Fetcher {
    /// A fetcher that looks names up as the system does.
    #[must_use]
    pub fn new(policy: FetchPolicy, rules: &MessageRules) -> Self {
        Self::made(policy, rules, None)
    }

    /// A fetcher that looks names up by `lookup`, which is given a host and a port. What it
    /// finds is checked like any address.
    #[must_use]
    pub fn with_lookup(
        policy: FetchPolicy,
        rules: &MessageRules,
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self::made(policy, rules, Some(Arc::new(lookup)))
    }

    fn made(policy: FetchPolicy, rules: &MessageRules, lookup: Option<Arc<Lookup>>) -> Self {
        let config = Agent::config_builder()
            .https_only(policy.https_only)
            .max_redirects(policy.redirects)
            .max_redirects_will_error(true)
            .timeout_global(Some(policy.timeout))
            .proxy(None)
            // A connection is checked when it is made, so none is kept for another request.
            .max_idle_connections(0)
            .user_agent(concat!("prefill/", env!("CARGO_PKG_VERSION")))
            .build();
        let guard = Guard::new(policy, lookup);
        Self {
            agent: Agent::with_parts(config, DefaultConnector::default(), guard),
            rules: rules.clone(),
        }
    }

    /// The bytes of one medium.
    ///
    /// # Errors
    /// [`Error::Fetch`] if the URL, an address, a redirect or the content's type is refused,
    /// if the body is over the kind's size, and if the connection fails or takes too long.
    pub fn fetch(&self, kind: MediaKind, url: &str) -> Result<Vec<u8>> {
        let _span = tracing::debug_span!("fetch_medium", %kind).entered();
        self.get(kind, url).map_err(|fact| Error::Fetch {
            url: without_secrets(url),
            fact,
        })
    }

    /// Fetches every medium of a conversation that is named by a URL.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch); the media before the failing one are then fetched.
    pub fn fetch_all(&self, conversation: &mut Conversation) -> Result<()> {
        for (kind, source) in conversation.media_mut() {
            if let MediaSource::Url(url) = source {
                *source = MediaSource::Bytes(self.fetch(*kind, url)?);
            }
        }
        Ok(())
    }

    fn get(&self, kind: MediaKind, url: &str) -> Result<Vec<u8>, String> {
        let mut response = self.agent.get(url).call().map_err(|error| fact(&error))?;
        // Errors have become errors; what may remain is a redirect that is not followed.
        if !response.status().is_success() {
            return Err(format!(
                "the server answered {}",
                response.status().as_u16()
            ));
        }
        let limit = self.rules.bytes(kind);
        let over = |bytes: u64| format!("its body has {bytes} bytes or more, over {limit}");
        let body = response.body_mut();
        if let Some(mime_type) = body.mime_type()
            && !is_of_kind(kind, mime_type)
        {
            return Err(format!("its content is {mime_type}, not {kind}"));
        }
        let stated = body.content_length();
        if let Some(stated) = stated.filter(|&stated| stated > limit as u64) {
            return Err(over(stated));
        }
        // One more than the limit tells a body that is too long from one that just fits.
        let reader = body.with_config().limit(limit as u64 + 2).reader();
        let mut bytes = Vec::new();
        let read = reader.take(limit as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("its body can't be read: {error}"))?;
        if bytes.len() > limit {
            return Err(over(bytes.len() as u64));
        }
        Ok(bytes)
    }
}

/// Servers that do not know better state binary data; others state the kind.
fn is_of_kind(kind: MediaKind, mime_type: &str) -> bool {
    let (top, sub) = mime_type.split_once('/').unwrap_or((mime_type, ""));
    let is = |name: &str| top.eq_ignore_ascii_case(name);
    match sub.to_ascii_lowercase().as_str() {
        "octet-stream" | "binary" => true,
        // The containers that hold sound or moving pictures.
        "ogg" | "mp4" | "webm" => !is("image") && kind != MediaKind::Image,
        // Animated pictures are videos too.
        "gif" | "png" | "apng" | "webp" if kind == MediaKind::Video => is("image"),
        _ => is(kind.name()),
    }
}

/// What went wrong, without the library's names for it.
fn fact(error: &ureq::Error) -> String {
    match error {
        ureq::Error::StatusCode(status) => format!("the server answered {status}"),
        ureq::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// A URL may hold keys in its query, or a password.
fn without_secrets(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let url = &url[..end];
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_hold_no_secrets() {
        for (url, shown) in [
            ("https://me:pw@host:8/a/b?key=1#x", "https://host:8/a/b"),
            ("https://host?key=1", "https://host"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    #[test]
    fn content_types_belong_to_kinds() {
        use MediaKind::{Audio, Image, Video};
        for (kind, mime_type, fits) in [
            (Image, "image/png", true),
            (Image, "application/octet-stream", true),
            (Image, "text/html", false),
            (Image, "video/mp4", false),
            (Audio, "audio/wav", true),
            (Audio, "video/mp4", true),
            (Audio, "application/ogg", true),
            (Video, "VIDEO/MP4", true),
            (Video, "image/gif", true),
            (Video, "image/jpeg", false),
            (Audio, "image/png", false),
        ] {
            assert_eq!(is_of_kind(kind, mime_type), fits, "{kind} {mime_type}");
        }
    }
}
