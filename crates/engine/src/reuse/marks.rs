//! Places of a prompt that are worth resuming at.

use prefill_multimodal_prompt::Prompt;

use super::record::Role;

/// A place where something is kept, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub position: usize,
    pub role: Role,
}

/// What else than a prompt decides its marks.
#[derive(Debug, Clone)]
pub(crate) struct Marking {
    /// Ids that begin a turn.
    pub turn_ids: Vec<u32>,
    /// Tokens between checkpoints in long prompts.
    pub interval: usize,
}

impl Marking {
    /// The end of the first turn, of the last medium, every `interval` tokens, and the last
    /// place to resume at. In order of position, each once, none where the prompt can't be
    /// cut.
    ///
    /// They depend on the prompt alone, never on what is kept already: calls of the model end
    /// at them, and must not change with the state of a cache.
    pub(crate) fn marks(&self, prompt: &Prompt) -> Vec<Mark> {
        let last = prompt.resume_at_or_before(prompt.len());
        let mut marks = Vec::new();
        let mut add = |position: usize, role| {
            if (1..=last).contains(&position) && prompt.can_cut_at(position) {
                marks.push(Mark { position, role });
            }
        };
        // In order of importance, for places that are two things.
        if let Some(position) = self.first_turn(prompt) {
            add(position, Role::FirstTurn);
        }
        if let Some(span) = prompt.spans.last() {
            add(span.end(), Role::Medium);
        }
        add(last, Role::Prompt);
        for position in (self.interval..=last).step_by(self.interval) {
            add(position, Role::Block);
        }
        marks.sort_by_key(|mark| mark.position);
        marks.dedup_by_key(|mark| mark.position);
        marks
    }

    /// Where the second turn begins.
    fn first_turn(&self, prompt: &Prompt) -> Option<usize> {
        let begins = |id: &u32| self.turn_ids.contains(id);
        let turns = prompt.ids.iter().enumerate().filter(|(_, id)| begins(id));
        turns.map(|(position, _)| position).nth(1)
    }
}

#[cfg(test)]
mod tests {
    use prefill_multimodal_prompt::{Attention, MediaKind, Span};

    use super::*;

    fn marking() -> Marking {
        Marking {
            turn_ids: vec![7],
            interval: 16,
        }
    }

    #[test]
    fn the_places_worth_resuming_at() {
        let mut prompt = Prompt::from_ids(vec![1; 40]);
        prompt.ids[0] = 7;
        prompt.ids[5] = 7;
        prompt.ids[35] = 7;
        prompt.spans = vec![Span {
            kind: MediaKind::Image,
            start: 8,
            length: 12,
            medium: 0,
            offset: 0,
            digest: [1; 32],
            grid: None,
        }];
        let found = |prompt: &Prompt| -> Vec<(usize, Role)> {
            let marks = marking().marks(prompt);
            marks
                .iter()
                .map(|mark| (mark.position, mark.role))
                .collect()
        };
        let expected = [
            (5, Role::FirstTurn),
            (16, Role::Block),
            (20, Role::Medium),
            (32, Role::Block),
            (39, Role::Prompt),
        ];
        assert_eq!(found(&prompt), expected);
        // Where a picture sees itself as a whole, nothing ends inside it.
        prompt.attention = Attention::Groups(vec![8..20, 24..26]);
        assert_eq!(
            found(&prompt),
            [expected[0], expected[2], expected[3], expected[4]]
        );
        // One place can be two things.
        prompt.ids.truncate(33);
        assert_eq!(found(&prompt).last(), Some(&(32, Role::Prompt)));
        assert_eq!(found(&Prompt::from_ids(vec![1])), []);
    }
}
