//! Learns how soon entries are used again.
//!
//! Entries are sorted into classes by how often they were used and by their cost per byte. For
//! each class the model keeps two histograms over age (logical time since the last use): ages
//! at which an entry was used again, and ages at which it was lost sight of. They give the
//! hazard of a use at each age (Kaplan and Meier 1958), whatever the cache itself kept, since
//! the model follows a sample of keys past their eviction.
//!
//! The worth of an entry is then the best rate of uses that holding it on from its present age
//! can give, over all times to give it up: `max over h of P(used within h) / E[time held]`.
//! This is the index of Gittins (1979) for such an entry; LHD (Beckmann, Chen and Cidon 2018)
//! ranks by the same quotient with the time that entries happened to stay.

mod history;

use history::History;

use crate::sketch::Sketch;

/// Bins of age: two an octave, from 16 to 2^23.
pub(crate) const AGES: usize = 40;
/// Classes by number of uses: 1, 2, 3 to 4, more.
const USES: usize = 4;
/// Classes by cost per byte, an octave each, around the mean.
const DENSITIES: usize = 8;
/// The density class of the mean.
const MEAN_DENSITY: f64 = 4.0;
pub(crate) const CLASSES: usize = USES * DENSITIES;

/// Weight of all classes' hazard, in entries, in the hazard of one.
const SHRINKAGE: f64 = 20.0;
/// What is left of the histograms' weight after each lesson: they remember some 100,000
/// observations, about as long as the history follows keys.
const DECAY: f64 = 0.98;
/// Observations from one lesson to the next; the first lessons come sooner.
const LESSON: u64 = 2048;
const FIRST_LESSON: u64 = 32;
/// Counters in a row of the sketch for each entry, and additions to each before it is halved:
/// it must tell used keys from new ones long after they were evicted.
const SKETCH_PER_ENTRY: usize = 8;
const SKETCH_PERIOD: usize = 2;

type Histogram = [f64; AGES];

#[derive(Debug)]
pub(crate) struct ReuseModel {
    history: History,
    /// Uses of keys that the history does not follow.
    sketch: Sketch,
    /// Ages at use, by class of the use before.
    used: Vec<Histogram>,
    /// Ages at which the history forgot a key.
    lost: Vec<Histogram>,
    /// Uses per logical time, by class and age, at best.
    rates: Vec<Histogram>,
    /// Running mean of log2 of the cost per byte, and the number of entries in it.
    mean_density: f64,
    densities: f64,
    until_lesson: u64,
    lesson: u64,
}

impl Default for ReuseModel {
    fn default() -> Self {
        let zero = vec![[0.0; AGES]; CLASSES];
        let mut model = Self {
            history: History::default(),
            sketch: Sketch::new(SKETCH_PERIOD),
            used: zero.clone(),
            lost: zero.clone(),
            rates: zero,
            mean_density: 0.0,
            densities: 0.0,
            until_lesson: FIRST_LESSON,
            lesson: FIRST_LESSON,
        };
        model.learn(0);
        model
    }
}

impl ReuseModel {
    /// The number of entries to tell apart.
    pub(crate) fn set_population(&mut self, entries: usize) {
        self.history.set_population(entries);
        if self.history.samples() {
            self.sketch.grow(entries.saturating_mul(SKETCH_PER_ENTRY));
        }
    }

    /// Notes an insertion or a use at time `now` of a key that was used `uses` times since its
    /// insertion and saves `density` cost per byte. Gives its class from now on.
    pub(crate) fn observe(&mut self, hash: u64, uses: u32, density: f64, now: u64) -> u16 {
        if density > 0.0 {
            self.densities = (self.densities + 1.0).min(LESSON as f64);
            self.mean_density += (density.log2() - self.mean_density) / self.densities;
        }
        let uses = self.uses(hash, uses);
        let class = self.class(uses, density);
        if self.history.samples() {
            self.sketch.add(hash);
        }
        let (before, lost) = self.history.note(hash, class, uses, now);
        if let Some((class, age)) = before {
            self.used[usize::from(class)][age_bin(age)] += 1.0;
        }
        if let Some((class, age)) = lost {
            self.lost[usize::from(class)][age_bin(age)] += 1.0;
        }
        self.until_lesson -= 1;
        if self.until_lesson == 0 {
            self.learn(now);
            self.lesson = (2 * self.lesson).min(LESSON);
            self.until_lesson = self.lesson;
        }
        class
    }

    /// The worth of an entry of `class` in age bin `age`: saved cost per byte and time, in
    /// units of the mean cost per byte.
    pub(crate) fn worth(&self, class: u16, age: usize) -> f64 {
        let density = f64::from(class % DENSITIES as u16) - MEAN_DENSITY;
        self.rates[usize::from(class)][age] * density.exp2()
    }

    /// The class that [`observe`](Self::observe) would give, without noting anything.
    pub(crate) fn predict(&self, hash: u64, uses: u32, density: f64) -> u16 {
        self.class(self.uses(hash, uses), density)
    }

    /// Uses of a key with this one, those before its last eviction too.
    fn uses(&self, hash: u64, since_insertion: u32) -> u32 {
        let uses = since_insertion.max(self.history.uses(hash).saturating_add(1));
        if self.history.samples() {
            uses.max(u32::from(self.sketch.estimate(hash)) + 1)
        } else {
            uses
        }
    }

    fn class(&self, uses: u32, density: f64) -> u16 {
        let density = if density > 0.0 {
            let octaves = (density.log2() - self.mean_density).round() + MEAN_DENSITY;
            octaves.clamp(0.0, DENSITIES as f64 - 1.0) as usize
        } else {
            0
        };
        (uses_class(uses) * DENSITIES + density) as u16
    }

    /// Works the rates out anew.
    fn learn(&mut self, now: u64) {
        let mut lost = self.lost.clone();
        for (class, age) in self.history.open(now) {
            lost[usize::from(class)][age_bin(age)] += 1.0;
        }
        let at_risk: Vec<Histogram> = self
            .used
            .iter()
            .zip(&lost)
            .map(|(used, lost)| at_risk(used, lost))
            .collect();
        let pooled = |of: &[Histogram], age: usize| of.iter().map(|of| of[age]).sum::<f64>();
        // Before anything is known the hazard falls with age, which is LRU.
        let prior: Histogram = std::array::from_fn(|age| {
            (pooled(&self.used, age) + 0.5 / (1.0 + age as f64)) / (pooled(&at_risk, age) + 1.0)
        });
        for (class, rates) in self.rates.iter_mut().enumerate() {
            let (used, at_risk) = (&self.used[class], &at_risk[class]);
            let hazard = std::array::from_fn(|age| {
                let shrunk = used[age] + SHRINKAGE * prior[age];
                (shrunk / (at_risk[age] + SHRINKAGE)).min(1.0)
            });
            *rates = best_rates(&hazard);
        }
        for counts in self.used.iter_mut().chain(&mut self.lost).flatten() {
            *counts *= DECAY;
        }
    }
}

/// The bin of an age.
pub(crate) fn age_bin(age: u64) -> usize {
    let Some(octave) = age.checked_ilog2().and_then(|log| log.checked_sub(4)) else {
        return 0;
    };
    let half = (age >> (octave + 3)) & 1;
    (2 * octave as usize + half as usize + 1).min(AGES - 1)
}

/// The least age of a bin.
fn bin_start(bin: usize) -> u64 {
    match bin.checked_sub(1) {
        None => 0,
        Some(half) => (2 + half as u64 % 2) << (half / 2 + 3),
    }
}

fn uses_class(uses: u32) -> usize {
    match uses {
        0 | 1 => 0,
        2 => 1,
        3 | 4 => 2,
        _ => 3,
    }
}

/// How many entries were watched through each age: those that were used or lost there or
/// later, where one that was lost in a bin was watched through half of it.
fn at_risk(used: &Histogram, lost: &Histogram) -> Histogram {
    let mut at_risk = [0.0; AGES];
    let mut sum = 0.0;
    for age in (0..AGES).rev() {
        sum += used[age] + lost[age];
        at_risk[age] = sum - lost[age] / 2.0;
    }
    at_risk
}

/// For each age the best quotient of expected uses and expected time, over all ages at which
/// to give up. The last bin has no end and is never waited for.
fn best_rates(hazard: &Histogram) -> Histogram {
    std::array::from_fn(|from| {
        let (mut left, mut uses, mut time, mut best) = (1.0, 0.0, 0.0, 0.0_f64);
        for (age, hazard) in hazard.iter().enumerate().take(AGES - 1).skip(from) {
            let width = (bin_start(age + 1) - bin_start(age)) as f64;
            let used = left * hazard;
            uses += used;
            time += (left - used / 2.0) * width;
            left -= used;
            best = best.max(uses / time);
        }
        best
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_partition_the_ages() {
        let bins = (0..2000).map(age_bin);
        assert!(bins.is_sorted());
        for bin in 0..AGES {
            assert_eq!(age_bin(bin_start(bin)), bin);
            assert!(bin == 0 || age_bin(bin_start(bin) - 1) == bin - 1);
        }
        assert_eq!(age_bin(u64::MAX), AGES - 1);
    }

    #[test]
    fn the_best_rate_waits_for_a_late_peak_but_not_for_ever() {
        let mut hazard = [0.0; AGES];
        hazard[6] = 0.5;
        let rates = best_rates(&hazard);
        // Half of the entries are used in bin 6, and the time is its width but for their half.
        let width = (bin_start(7) - bin_start(6)) as f64;
        let before = bin_start(6) as f64;
        assert!((rates[6] - 0.5 / (0.75 * width)).abs() < 1e-12);
        assert!((rates[0] - 0.5 / (before + 0.75 * width)).abs() < 1e-12);
        assert!(rates[0] < rates[3] && rates[3] < rates[6]);
        assert!(rates[7].abs() < f64::EPSILON);
    }

    #[test]
    fn an_untaught_model_prefers_the_recently_used() {
        let model = ReuseModel::default();
        for age in 1..AGES {
            assert!(
                model.worth(MEAN_DENSITY as u16, age) <= model.worth(MEAN_DENSITY as u16, age - 1)
            );
        }
    }

    #[test]
    fn it_learns_when_keys_return_and_which_do_not() {
        let mut model = ReuseModel::default();
        let (mut once, mut twice) = (0, 0);
        // Half of the keys return once, 301 ticks later.
        for now in 0..20_000_u64 {
            let key = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if now % 3 == 0 && now >= 301 {
                twice = model.observe(key(now - 301), 2, 1.0, now);
            } else {
                once = model.observe(key(now), 1, 1.0, now);
            }
        }
        // At best, half of the keys in the bin of 301, which is 128 ticks wide, or in all 384.
        let peak = age_bin(301);
        assert!(model.worth(once, peak) > 2.5 * model.worth(once, 0));
        assert!(model.worth(once, peak) > 20.0 * model.worth(once, peak + 3));
        assert!(model.worth(once, peak) > 20.0 * model.worth(twice, peak));
    }
}
