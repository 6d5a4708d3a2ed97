//! Names of models.

use std::fmt;

use crate::{Error, Result};

/// `org/name`, of the characters that the hub allows, so that it never leads out of the cache.
///
/// ```
/// use prefill_hub::RepoId;
///
/// assert!(RepoId::parse("google/gemma-4-E2B-it").is_ok());
/// assert!(RepoId::parse("../secrets").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepoId {
    org: String,
    name: String,
}

impl RepoId {
    /// Reads `org/name`.
    ///
    /// # Errors
    /// [`Error::Id`] if it is none.
    pub fn parse(id: &str) -> Result<Self> {
        let is_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-'])
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        };
        match id.split_once('/') {
            Some((org, name)) if is_part(org) && is_part(name) => Ok(Self {
                org: org.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(Error::Id { id: id.to_owned() }),
        }
    }

    /// The folder that the cache keeps it in.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}--{}", self.org, self.name)
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.org, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_inside_the_cache() {
        assert_eq!(
            RepoId::parse("google/gemma-4-E2B-it").unwrap().folder(),
            "models--google--gemma-4-E2B-it"
        );
        for id in [
            "gemma", "a/b/c", "../x", "a/..", "/x", "a/", "a/b\\c", "a/-x", "a/b c",
        ] {
            assert!(matches!(RepoId::parse(id), Err(Error::Id { .. })), "{id}");
        }
    }
}
