//! Any history: the same victims as the naive models, and the rules of the bookkeeping.

mod naive;

use naive::{Naive, NaiveArc, NaiveGreedyDual, NaiveLru, NaiveS3Fifo, NaiveWTinyLfu, Rules};
use prefill_retention::{
    Adaptive, Arc, Budget, EntryId, GreedyDual, Ledger, Lru, Meta, NewEntry, Policy, Removal,
    S3Fifo, WTinyLfu,
};
use proptest::prelude::*;

const LIMIT: u64 = 40;

#[derive(Clone, Debug)]
enum Operation {
    Insert {
        key: u8,
        bytes: u64,
        cost: f64,
        parent: Option<u8>,
        pinned: bool,
    },
    Access(u8),
    Update {
        key: u8,
        bytes: u64,
        cost: f64,
    },
    Remove(u8),
    Pin(u8),
    Unpin(u8),
    EvictOne,
    EvictTo(u64),
    Limit(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = || 0u8..24;
    let bytes =
        || prop_oneof![2 => Just(0u64), 12 => 1..12u64, 1 => Just(LIMIT), 1 => Just(u64::MAX)];
    let cost = || {
        let odd = vec![
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -1.0,
            -0.0,
            f64::MAX,
        ];
        prop_oneof![6 => (0u32..9).prop_map(f64::from), 1 => prop::sample::select(odd)]
    };
    let insert = (
        key(),
        bytes(),
        cost(),
        prop::option::weighted(0.6, key()),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(key, bytes, cost, parent, pinned)| Operation::Insert {
            key,
            bytes,
            cost,
            parent,
            pinned,
        });
    let update = (key(), bytes(), cost()).prop_map(|(key, bytes, cost)| Operation::Update {
        key,
        bytes,
        cost,
    });
    prop_oneof![
        12 => insert,
        8 => key().prop_map(Operation::Access),
        2 => update,
        1 => key().prop_map(Operation::Remove),
        2 => key().prop_map(Operation::Pin),
        2 => key().prop_map(Operation::Unpin),
        1 => Just(Operation::EvictOne),
        1 => (0..LIMIT).prop_map(Operation::EvictTo),
        1 => (LIMIT / 2..LIMIT).prop_map(Operation::Limit),
    ]
}

fn history() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 0..200)
}

/// Long enough for `Adaptive` to learn and for entries to grow old.
fn long_history() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 0..1500)
}

/// The budget's own rules hold whatever the policy is.
fn play(history: Vec<Operation>, policy: impl Policy) {
    let mut budget = Budget::new(LIMIT, policy);
    for operation in history {
        match operation {
            Operation::Insert {
                key,
                bytes,
                cost,
                parent,
                pinned,
            } => {
                let mut entry = NewEntry::new(bytes, cost);
                entry.parent = parent.as_ref();
                entry.pinned = pinned;
                let before = (budget.used(), budget.len());
                match budget.insert(key, entry) {
                    Ok(_) => assert!(budget.used() <= budget.limit()),
                    Err(_) => assert_eq!((budget.used(), budget.len()), before),
                }
            }
            Operation::Access(key) => assert_eq!(budget.contains(&key), budget.access(&key)),
            Operation::Update { key, bytes, cost } => drop(budget.update(&key, bytes, cost)),
            Operation::Remove(key) => drop(budget.remove(&key)),
            Operation::Pin(key) => drop(budget.pin(&key)),
            Operation::Unpin(key) => drop(budget.unpin(&key)),
            Operation::EvictOne => drop(budget.evict_one()),
            Operation::EvictTo(bytes) => budget.evict_to(bytes).for_each(drop),
            Operation::Limit(limit) => {
                budget.set_limit(limit);
                budget.fit().for_each(drop);
            }
        }
        let metas = budget
            .ledger()
            .ids()
            .filter_map(|id| budget.ledger().meta(id));
        assert_eq!(metas.map(|meta| meta.bytes).sum::<u64>(), budget.used());
    }
}

/// Every operation does the same to both, and evicts the same.
fn agree<R: Rules>(history: Vec<Operation>, policy: impl Policy, rules: R) {
    let mut budget = Budget::new(LIMIT, policy);
    let mut model = Naive::new(LIMIT, rules);
    for operation in history {
        match operation {
            Operation::Insert {
                key,
                bytes,
                cost,
                parent,
                pinned,
            } => {
                let mut entry = NewEntry::new(bytes, cost);
                entry.parent = parent.as_ref();
                entry.pinned = pinned;
                let victims = budget.insert(key, entry).ok();
                let victims = victims.map(|v| v.iter().map(|e| e.key).collect::<Vec<_>>());
                assert_eq!(victims, model.insert(key, bytes, cost, parent, pinned));
            }
            Operation::Access(key) => assert_eq!(budget.access(&key), model.access(key)),
            Operation::Update { key, bytes, cost } => {
                let updated = budget.update(&key, bytes, cost).is_ok();
                assert_eq!(updated, model.update(key, bytes, cost));
            }
            Operation::Remove(key) => assert_eq!(budget.remove(&key).len(), model.remove(key)),
            Operation::Pin(key) => assert_eq!(budget.pin(&key), model.pin(key)),
            Operation::Unpin(key) => assert_eq!(budget.unpin(&key), model.unpin(key)),
            Operation::EvictOne => {
                assert_eq!(budget.evict_one().map(|victim| victim.key), model.evict());
            }
            Operation::EvictTo(bytes) => {
                for victim in budget.evict_to(bytes) {
                    assert_eq!(Some(victim.key), model.evict());
                }
                // The policy was asked once more, in vain.
                assert!(model.used() <= bytes || model.evict().is_none());
            }
            Operation::Limit(limit) => {
                model.set_limit(limit);
                budget.set_limit(limit);
                for victim in budget.fit() {
                    assert_eq!(Some(victim.key), model.evict());
                }
                assert!(model.used() <= limit || model.evict().is_none());
            }
        }
        same_books(&budget, &model);
    }
}

fn same_books<R: Rules>(budget: &Budget<u8, impl Policy>, model: &Naive<R>) {
    assert_eq!(
        (budget.len(), budget.used()),
        (model.entries.len(), model.used())
    );
    assert_eq!(budget.ledger().held_bytes(), model.held());
    let may_go = model.evictable();
    for entry in &model.entries {
        let id = budget.find(&entry.key).expect("the model has it");
        let meta = budget.ledger().meta(id).expect("it was found");
        assert_eq!((meta.bytes, meta.uses), (entry.bytes, entry.uses));
        assert_eq!(meta.last_used, entry.last_used);
        assert_eq!(budget.ledger().pins(id), entry.pins);
        let parent = budget
            .ledger()
            .parent(id)
            .and_then(|parent| budget.key(parent));
        assert_eq!(parent.copied(), entry.parent);
        let expected = may_go.iter().any(|other| other.key == entry.key);
        assert_eq!(budget.ledger().evictable(id), expected);
    }
    let counters = budget.counters();
    let left =
        counters.evicted().count + counters.removed.count + counters.removed_with_parent.count;
    assert_eq!(counters.inserted.count - left, budget.len() as u64);
}

/// Checks each victim of `Adaptive` against all other entries.
#[derive(Debug, Default)]
struct Checked(Adaptive);

impl Policy for Checked {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn admit(&mut self, newcomer: &Meta, ledger: &Ledger) -> bool {
        self.0.admit(newcomer, ledger)
    }
    fn insert(&mut self, id: EntryId, meta: &Meta) {
        self.0.insert(id, meta);
    }
    fn access(&mut self, id: EntryId, meta: &Meta) {
        self.0.access(id, meta);
    }
    fn update(&mut self, id: EntryId, meta: &Meta) {
        self.0.update(id, meta);
    }
    fn remove(&mut self, id: EntryId, meta: &Meta, why: Removal) {
        self.0.remove(id, meta, why);
    }
    fn release(&mut self, id: EntryId, meta: &Meta) {
        self.0.release(id, meta);
    }
    fn victim(&mut self, ledger: &Ledger) -> Option<EntryId> {
        let victim = self.0.victim(ledger);
        let rank = |id: &EntryId| {
            let used = ledger.meta(*id).map(|meta| meta.last_used);
            (self.0.worth(*id, ledger.clock()), used)
        };
        let may_go = ledger.ids().filter(|id| ledger.evictable(*id));
        let least = may_go.min_by(|a, b| rank(a).partial_cmp(&rank(b)).expect("no NaN"));
        assert_eq!(victim, least);
        victim
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lru_evicts_what_the_naive_model_evicts(history in history()) {
        agree(history, Lru::default(), NaiveLru);
    }

    #[test]
    fn greedy_dual_evicts_what_the_naive_model_evicts(history in history(), cap in 1u32..5) {
        agree(history.clone(), GreedyDual::size(), NaiveGreedyDual::new(1));
        agree(history.clone(), GreedyDual::size_frequency(Some(cap)), NaiveGreedyDual::new(cap));
        agree(history, GreedyDual::cost_size(), NaiveGreedyDual::new(u32::MAX));
    }

    #[test]
    fn arc_evicts_what_the_naive_model_evicts(history in history()) {
        agree(history, Arc::default(), NaiveArc::default());
    }

    #[test]
    fn s3_fifo_evicts_what_the_naive_model_evicts(history in history()) {
        agree(history, S3Fifo::default(), NaiveS3Fifo::default());
    }

    #[test]
    fn w_tiny_lfu_evicts_what_the_naive_model_evicts(history in history()) {
        agree(history, WTinyLfu::default(), NaiveWTinyLfu::default());
    }

    #[test]
    fn adaptive_evicts_what_is_worth_least(history in long_history(), ratio in 0.0..2.0) {
        play(history.clone(), Checked::default());
        play(history, Checked(Adaptive::default().refusing_below(ratio)));
    }
}
