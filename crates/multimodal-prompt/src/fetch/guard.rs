//! Which addresses may be connected to.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::{FetchPolicy, Lookup};

/// How many addresses of a host are tried.
const ADDRESSES: usize = 16;

/// Resolves names for the client, and refuses what the policy forbids. The client connects to
/// nothing else.
pub(super) struct Guard {
    policy: FetchPolicy,
    lookup: Option<Arc<Lookup>>,
    system: DefaultResolver,
}

impl fmt::Debug for Guard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Guard")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Guard {
    pub(super) fn new(policy: FetchPolicy, lookup: Option<Arc<Lookup>>) -> Self {
        Self {
            policy,
            lookup,
            system: DefaultResolver::default(),
        }
    }

    fn addresses(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<Vec<SocketAddr>, ureq::Error> {
        match &self.lookup {
            Some(lookup) => {
                let host = uri.host().ok_or(ureq::Error::HostNotFound)?;
                let port = uri.port_u16().unwrap_or(match uri.scheme_str() {
                    Some("https") => 443,
                    _ => 80,
                });
                Ok(lookup(host, port)?)
            }
            None => Ok(self
                .system
                .resolve(uri, config, timeout)?
                .iter()
                .copied()
                .collect()),
        }
    }
}

impl Resolver for Guard {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let refused = |fact: String| ureq::Error::Io(io::Error::other(fact));
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(refused(
                "it leads to a scheme other than http and https".to_owned(),
            ));
        }
        let host = uri.host().unwrap_or_default();
        let addresses = self.addresses(uri, config, timeout)?;
        let trusted = self.policy.private_addresses
            || self
                .policy
                .trusted_hosts
                .iter()
                .any(|trusted| trusted.eq_ignore_ascii_case(host));
        // One bad address is enough: a name that has any is not to be followed.
        let bad = addresses
            .iter()
            .map(SocketAddr::ip)
            .find(|&address| !is_public(address));
        if let Some(bad) = bad.filter(|_| !trusted) {
            return Err(refused(format!("{bad} is no public address")));
        }
        let mut resolved = self.empty();
        for &address in addresses.iter().take(ADDRESSES) {
            resolved.push(address);
        }
        if resolved.is_empty() {
            return Err(ureq::Error::HostNotFound);
        }
        Ok(resolved)
    }
}

/// Whether hosts of the public internet have such addresses (IANA's special-purpose address
/// registries, RFC 6890 and later), metadata services of clouds excepted.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        // This network, private, loopback; multicast, reserved and broadcast.
        [0 | 10 | 127 | 224..=255, ..]
        // Shared (RFC 6598); link-local; private; benchmarking.
        | [100, 64..=127, ..]
        | [169, 254, ..]
        | [172, 16..=31, ..]
        | [198, 18 | 19, ..]
        // Protocol assignments, documentation, 6to4 relays, private.
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [192, 168, ..]
        // Documentation.
        | [198, 51, 100, _]
        | [203, 0, 113, _] => true,
        // The host's own services in Azure.
        octets => octets == [168, 63, 129, 16],
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let v4 = |high: u16, low: u16| {
        let bits = u32::from(high) << 16 | u32::from(low);
        is_public_v4(Ipv4Addr::from_bits(bits))
    };
    match address.segments() {
        // Addresses that stand for one of version 4: mapped, translated (RFC 6052), or behind
        // a 6to4 router (RFC 3056).
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => v4(high, low),
        // Protocol assignments, Teredo among them; documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Only this eighth is global unicast.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.9.9.9",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "3fff::1",
            "4000::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:4860:4860::8888",
            "2002:808:808::1",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
