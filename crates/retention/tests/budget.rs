//! The behaviour of `Budget` that users rely on.

use prefill_retention::{Adaptive, Budget, Lru, NewEntry, Policy, Refusal};

fn chain(budget: &mut Budget<u32, impl Policy>, keys: &[u32], bytes: u64) {
    for (index, key) in keys.iter().enumerate() {
        let mut entry = NewEntry::new(bytes, 1.0);
        if index > 0 {
            entry = entry.child_of(&keys[index - 1]);
        }
        budget.insert(*key, entry).expect("it fits");
    }
}

#[test]
fn refusals_name_the_numbers_and_change_nothing() {
    let mut budget = Budget::new(100, Lru::default());
    chain(&mut budget, &[1, 2, 3], 20);
    budget.pin(&3);
    let large = Refusal::TooLarge {
        bytes: 101,
        limit: 100,
    };
    assert_eq!(budget.insert(9, NewEntry::new(101, 1.0)), Err(large));
    let no_room = Refusal::NoRoom {
        bytes: 41,
        held: 60,
        limit: 100,
    };
    assert_eq!(budget.insert(9, NewEntry::new(41, 1.0)), Err(no_room));
    let orphan = NewEntry::new(1, 1.0).child_of(&8);
    assert_eq!(budget.insert(9, orphan), Err(Refusal::MissingParent));
    assert_eq!(
        budget.insert(2, NewEntry::new(1, 1.0)),
        Err(Refusal::Present)
    );
    assert_eq!(budget.update(&9, 1, 1.0), Err(Refusal::Absent));
    assert_eq!(budget.update(&1, 101, 1.0), Err(large));
    assert_eq!((budget.used(), budget.len()), (60, 3));
    let counters = budget.counters();
    assert_eq!(
        (counters.refused_too_large, counters.refused_no_room),
        (1, 1)
    );
    assert_eq!(
        (counters.refused_missing_parent, counters.refused_present),
        (1, 1)
    );
    assert_eq!(
        no_room.to_string(),
        "no room for 41 bytes: 60 of 100 bytes are pinned or above a pin"
    );
}

#[test]
fn a_child_does_not_displace_its_own_chain() {
    let mut budget = Budget::new(60, Lru::default());
    chain(&mut budget, &[1, 2], 20);
    budget.insert(7, NewEntry::new(20, 1.0)).unwrap();
    // The chain is older than 7, and its leaf is the parent of what comes.
    let evicted = budget
        .insert(3, NewEntry::new(20, 1.0).child_of(&2))
        .unwrap();
    assert_eq!(evicted.len(), 1);
    assert_eq!(evicted[0].key, 7);
    // Now the chain alone fills the budget.
    let refusal = budget
        .insert(4, NewEntry::new(20, 1.0).child_of(&3))
        .unwrap_err();
    assert_eq!(
        refusal,
        Refusal::NoRoom {
            bytes: 20,
            held: 60,
            limit: 60
        }
    );
}

#[test]
fn a_prefix_is_used_from_the_leaf_and_counted() {
    let mut budget = Budget::new(100, Lru::default());
    chain(&mut budget, &[1, 2, 3], 10);
    assert_eq!(budget.access_prefix(&[1, 2, 8, 3]), 2);
    let used = |key| budget.get(&key).unwrap().last_used;
    assert!(used(1) > used(2) && used(2) > used(3));
    let counters = budget.counters();
    assert_eq!(
        (counters.hits.count, counters.hits.bytes, counters.misses),
        (2, 20, 2)
    );
    assert!((counters.saved_cost - 2.0).abs() < f64::EPSILON);
    assert_eq!(budget.access_prefix(&[]), 0);
}

#[test]
fn removal_takes_the_descendants_first_and_pins_with_it() {
    let mut budget = Budget::new(100, Lru::default());
    chain(&mut budget, &[1, 2, 3], 10);
    budget
        .insert(4, NewEntry::new(10, 1.0).child_of(&2).pinned())
        .unwrap();
    let keys: Vec<u32> = budget
        .remove(&2)
        .iter()
        .map(|removed| removed.key)
        .collect();
    assert_eq!(keys, [4, 3, 2]);
    assert_eq!((budget.used(), budget.ledger().held_bytes()), (10, 0));
    assert!(budget.remove(&2).is_empty() && !budget.unpin(&4));
    let counters = budget.counters();
    assert_eq!(
        (counters.removed.count, counters.removed_with_parent.count),
        (1, 2)
    );
}

#[test]
fn a_completed_write_lets_the_budget_fit_again() {
    let mut budget = Budget::new(40, Lru::default());
    budget.insert(1, NewEntry::new(20, 1.0).pinned()).unwrap();
    budget.insert(2, NewEntry::new(20, 1.0).pinned()).unwrap();
    budget.set_limit(20);
    assert!(budget.fit().next().is_none());
    assert!(budget.unpin(&2));
    let evicted: Vec<u32> = budget.fit().map(|evicted| evicted.key).collect();
    assert_eq!((evicted, budget.used()), (vec![2], 20));
    assert_eq!(budget.counters().evicted_on_request.bytes, 20);
}

#[test]
fn a_dropped_iterator_evicts_no_more() {
    let mut budget = Budget::new(100, Lru::default());
    (0..10).for_each(|key| assert!(budget.insert(key, NewEntry::new(10, 1.0)).is_ok()));
    assert_eq!(budget.evict_to(0).take(3).count(), 3);
    assert_eq!(budget.len(), 7);
}

#[test]
fn limits_and_sizes_at_the_end_of_the_range() {
    for policy in [
        Box::new(Adaptive::default()) as Box<dyn Policy>,
        Box::new(Lru::default()),
    ] {
        let mut budget = Budget::new(u64::MAX, policy);
        budget.insert(1, NewEntry::new(u64::MAX, f64::MAX)).unwrap();
        let evicted = budget.insert(2, NewEntry::new(u64::MAX, f64::NAN)).unwrap();
        assert_eq!((evicted[0].key, budget.used()), (1, u64::MAX));
        budget.insert(3, NewEntry::new(0, 1.0)).unwrap();
        budget.set_limit(0);
        assert_eq!(
            budget.fit().count(),
            budget.counters().evicted_on_request.count as usize
        );
        assert_eq!(budget.used(), 0);
    }
}
