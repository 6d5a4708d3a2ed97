//! Strings that end an answer.

/// Looks for stop strings in a text that comes in pieces. What may be the beginning of one is
/// held back until it is certain.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopStrings {
    strings: Vec<String>,
    held: String,
}

/// What is certain after a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certain {
    /// Text before any stop string.
    pub text: String,
    /// The stop string that was found: the one that is whole first, and of several that end
    /// there the longest.
    pub stop: Option<String>,
}

impl StopStrings {
    /// None of the strings may be empty.
    pub(crate) fn new(strings: Vec<String>) -> Self {
        Self {
            strings,
            held: String::new(),
        }
    }

    pub(crate) fn push(&mut self, piece: &str) -> Certain {
        self.held += piece;
        let first = self
            .strings
            .iter()
            .filter_map(|string| Some((self.held.find(string.as_str())?, string)))
            .min_by_key(|&(at, string)| (at + string.len(), at));
        if let Some((at, string)) = first {
            let stop = Some(string.clone());
            self.held.truncate(at);
            let text = std::mem::take(&mut self.held);
            return Certain { text, stop };
        }
        let from = self.uncertain_from();
        let rest = self.held.split_off(from);
        Certain {
            text: std::mem::replace(&mut self.held, rest),
            stop: None,
        }
    }

    /// What is held back, now that nothing follows.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Where the longest end of the text begins that a stop string may begin with.
    fn uncertain_from(&self) -> usize {
        let longest = self.strings.iter().map(String::len).max().unwrap_or(0);
        let earliest = self.held.len().saturating_sub(longest);
        (earliest..self.held.len())
            .filter(|&at| self.held.is_char_boundary(at))
            .find(|&at| {
                let end = &self.held[at..];
                self.strings.iter().any(|string| string.starts_with(end))
            })
            .unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text and the stop string, fed in pieces cut at every place of a bit pattern.
    fn run(strings: &[&str], text: &str, cuts: u64) -> (String, Option<String>) {
        let mut stops = StopStrings::new(strings.iter().map(ToString::to_string).collect());
        let mut out = String::new();
        let mut piece = String::new();
        for (index, c) in text.chars().enumerate() {
            piece.push(c);
            if cuts >> (index % 64) & 1 == 1 {
                let certain = stops.push(&piece);
                piece.clear();
                out += &certain.text;
                if certain.stop.is_some() {
                    return (out, certain.stop);
                }
            }
        }
        let certain = stops.push(&piece);
        out += &certain.text;
        if certain.stop.is_none() {
            out += &stops.finish();
        }
        (out, certain.stop)
    }

    #[test]
    fn cuts_change_nothing() {
        let cases: [(&[&str], &str, &str, Option<&str>); 6] = [
            (
                &["END"],
                "an EN, an END, and more",
                "an EN, an ",
                Some("END"),
            ),
            (&["END"], "it ENDS", "it ", Some("END")),
            (&["END"], "no EN", "no EN", None),
            (&["\n\n", "é!"], "déjà é\né! x", "déjà é\n", Some("é!")),
            (&["aab"], "aaab", "a", Some("aab")),
            (&[], "anything", "anything", None),
        ];
        for (strings, text, expected, stop) in cases {
            for cuts in (0..1 << text.chars().count().min(12)).chain([u64::MAX]) {
                let found = run(strings, text, cuts);
                assert_eq!(found.0, expected, "{text:?} cut by {cuts:b}");
                assert_eq!(found.1.as_deref(), stop, "{text:?} cut by {cuts:b}");
            }
        }
    }

    #[test]
    fn only_what_may_begin_a_stop_string_is_held_back() {
        let mut stops = StopStrings::new(vec!["</s>".to_owned()]);
        assert_eq!(stops.push("a < b").text, "a < b");
        assert_eq!(stops.push("c </").text, "c ");
        assert_eq!(stops.push("d").text, "</d");
    }

    proptest::proptest! {
        /// Equals a search of the whole text.
        #[test]
        fn equals_a_search_of_the_whole(
            strings in proptest::collection::vec("[ab]{1,4}", 0..4),
            text in "[abc]{0,40}",
            cuts: u64,
        ) {
            let strings: Vec<&str> = strings.iter().map(String::as_str).collect();
            let (found, stop) = run(&strings, &text, cuts);
            let places = strings.iter().filter_map(|s| Some((text.find(s)? + s.len(), text.find(s)?)));
            let first = places.min().map(|(_, start)| start);
            proptest::prop_assert_eq!(stop.is_some(), first.is_some());
            proptest::prop_assert_eq!(&found, &text[..first.unwrap_or(text.len())]);
        }
    }
}
