//! Any history: the same victims as the naive models, and the rules of the bookkeeping.

mod naive;

use naive::{Naive, NaiveGreedyDual, NaiveLru, Rules};
use prefill_retention::{Budget, GreedyDual, Lru, NewEntry, Policy};
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
                assert!(model.used() <= bytes || model.evictable().is_empty());
            }
            Operation::Limit(limit) => {
                model.limit = limit;
                budget.set_limit(limit);
                for victim in budget.fit() {
                    assert_eq!(Some(victim.key), model.evict());
                }
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
}
