//! The rule against its definition in f64, and its speed.

use super::*;

/// Deterministic numbers in -1..1.
fn noise(count: i32, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

/// Inputs whose keys have length 1, and which forget at all speeds.
fn inputs(tokens: i32, (key_heads, value_heads): (i32, i32), strongest: f32) -> DeltaInputs {
    let (key_size, value_size) = (12, 7);
    let unit = |seed| {
        let values = noise(tokens * key_heads * key_size, seed);
        let x = Array::from_slice(&values, &[tokens, key_heads, key_size]);
        let length = x.square().unwrap().sum_axis(-1, true).unwrap();
        x.divide(length.sqrt().unwrap()).unwrap()
    };
    let heads = |seed, low: f32, high: f32| {
        let values: Vec<f32> = noise(tokens * value_heads, seed)
            .iter()
            .map(|u| low + (high - low) * (u + 1.0) / 2.0)
            .collect();
        Array::from_slice(&values, &[tokens, value_heads])
    };
    DeltaInputs {
        queries: unit(1),
        keys: unit(2),
        values: Array::from_slice(
            &noise(tokens * value_heads * value_size, 3),
            &[tokens, value_heads, value_size],
        ),
        log_decay: heads(4, strongest, 0.0),
        beta: heads(5, 0.0, 1.0),
    }
}

fn largest_difference(a: &Array, b: &Array) -> f32 {
    assert_eq!(a.shape(), b.shape());
    let difference = a.subtract(b).unwrap().abs().unwrap();
    let largest = difference.max(false).unwrap();
    assert!(largest.item_exact::<f32>().is_finite());
    largest.item_exact()
}

/// The definition in f64, by loops.
fn by_definition(inputs: &DeltaInputs, memory: &Array) -> (Vec<f64>, Vec<f64>) {
    let wide = |x: &Array| -> Vec<f64> {
        let rows = x.contiguous().unwrap();
        rows.eval().unwrap();
        rows.as_slice::<f32>()
            .iter()
            .map(|&v| f64::from(v))
            .collect()
    };
    let (q, k, v) = (
        wide(&inputs.queries),
        wide(&inputs.keys),
        wide(&inputs.values),
    );
    let (g, beta) = (wide(&inputs.log_decay), wide(&inputs.beta));
    let ((kh, vh), (ks, vs)) = (inputs.heads(), inputs.sizes());
    let [kh, vh, ks, vs] = [kh, vh, ks, vs].map(|extent| extent as usize);
    let mut s = wide(memory);
    let mut y = Vec::new();
    for t in 0..inputs.tokens() as usize {
        for h in 0..vh {
            let key_head = (t * kh + h / (vh / kh)) * ks;
            let (q, k) = (&q[key_head..][..ks], &k[key_head..][..ks]);
            for row in 0..vs {
                let s = &mut s[(h * vs + row) * ks..][..ks];
                let decay = g[t * vh + h].exp();
                for s in s.iter_mut() {
                    *s *= decay;
                }
                let found: f64 = s.iter().zip(k).map(|(s, k)| s * k).sum();
                let change = beta[t * vh + h] * (v[(t * vh + h) * vs + row] - found);
                for (s, k) in s.iter_mut().zip(k) {
                    *s += change * k;
                }
                y.push(s.iter().zip(q).map(|(s, q)| s * q).sum());
            }
        }
    }
    (y, s)
}

fn assert_near(found: &Array, expected: &[f64], tolerance: f64) {
    let rows = found.contiguous().unwrap();
    rows.eval().unwrap();
    let found = rows.as_slice::<f32>();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let difference = (f64::from(*found) - expected).abs();
        assert!(difference < tolerance, "{found} for {expected}");
    }
}

/// Every length around every border of chunks, from an empty and from a used memory.
#[test]
fn chunks_equal_the_definition() {
    let lengths = (1..=18).chain([31, 32, 33, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193]);
    for tokens in lengths {
        for heads in [(2, 2), (2, 6)] {
            let inputs = inputs(tokens, heads, -2.0);
            let used = Array::from_slice(&noise(heads.1 * 7 * 12, 9), &[1, heads.1, 7, 12]);
            for memory in [inputs.empty().unwrap(), used] {
                let (y, s) = by_definition(&inputs, &memory);
                let (found, after) = gated_delta(&inputs, Some(&memory)).unwrap();
                assert_near(&found, &y, 5e-6);
                assert_near(&after, &s, 5e-6);
                let (found, after) = recurrent(&inputs, &memory).unwrap();
                assert_near(&found, &y, 5e-6);
                assert_near(&after, &s, 5e-6);
            }
        }
    }
}

#[test]
fn where_a_prompt_is_cut_does_not_matter() {
    let whole = inputs(150, (2, 4), -0.5);
    let (expected, end) = gated_delta(&whole, None).unwrap();
    for size in [1, 7, 64, 100] {
        let mut memory = None;
        let mut parts = Vec::new();
        for start in (0..150).step_by(size as usize) {
            let cut = |x: &Array| x.try_index((start..(start + size).min(150), ..)).unwrap();
            let part = DeltaInputs {
                queries: cut(&whole.queries),
                keys: cut(&whole.keys),
                values: cut(&whole.values),
                log_decay: cut(&whole.log_decay),
                beta: cut(&whole.beta),
            };
            let (y, after) = gated_delta(&part, memory.as_ref()).unwrap();
            parts.push(y);
            memory = Some(after);
        }
        let found = concatenate(&parts, 0).unwrap();
        assert!(largest_difference(&found, &expected) < 5e-6, "{size}");
        assert!(largest_difference(&memory.unwrap(), &end) < 5e-6, "{size}");
    }
}

/// Heads that forget everything at once, and keys that are all the same: where exponents
/// overflow and powers of `a` grow if they are formed.
#[test]
fn extremes_stay_finite_and_right() {
    let mut extreme = inputs(130, (1, 2), -300.0);
    let (y, s) = by_definition(&extreme, &extreme.empty().unwrap());
    let (found, after) = gated_delta(&extreme, None).unwrap();
    assert_near(&found, &y, 5e-6);
    assert_near(&after, &s, 5e-6);

    let one_key = extreme.keys.try_index((0..1, .., ..)).unwrap();
    let same = vec![one_key; 130];
    extreme.keys = concatenate(&same, 0).unwrap();
    extreme.log_decay = extreme.log_decay.multiply(Array::from_f32(0.0)).unwrap();
    extreme.beta = Array::from_slice(&[1.0f32; 260], &[130, 2]);
    let (y, s) = by_definition(&extreme, &extreme.empty().unwrap());
    let (found, after) = gated_delta(&extreme, None).unwrap();
    assert_near(&found, &y, 2e-5);
    assert_near(&after, &s, 2e-5);
}

/// As on a GPU, where the elementwise parts are compiled.
#[test]
#[ignore = "MLX's CPU build compiles with a C++ compiler"]
fn compiled_it_is_the_same() {
    for tokens in [1, 8, 192] {
        let inputs = inputs(tokens, (2, 6), -2.0);
        let memory = Array::from_slice(&noise(6 * 7 * 12, 9), &[1, 6, 7, 12]);
        let (y, s) = by_definition(&inputs, &memory);
        let all = inputs.with(&memory);
        for _ in 0..2 {
            let found = crate::nn::fuse_on_any_device(rule, &all).unwrap();
            assert_near(&found[0], &y, 5e-6);
            assert_near(&found[1], &s, 5e-6);
        }
    }
}

/// What docs/performance/qwen.md reports: the rule in Qwen3.5 4B's shape beside the matrix
/// products of the same layer, in alternating rounds.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "it is what it is for")]
fn speed() {
    const TOKENS: i32 = 512;
    let (key_heads, value_heads, size, hidden) = (16, 32, 128, 2560);
    let random = |shape: &[i32]| {
        let count = shape.iter().product();
        Array::from_slice(&noise(count, count as u32), shape)
    };
    let scaled = |x: Array, by: f32| x.multiply(Array::from_f32(by)).unwrap();
    let inputs = DeltaInputs {
        queries: scaled(random(&[TOKENS, key_heads, size]), 0.1),
        keys: scaled(random(&[TOKENS, key_heads, size]), 0.1),
        values: random(&[TOKENS, value_heads, size]),
        log_decay: scaled(random(&[TOKENS, value_heads]).abs().unwrap(), -0.1),
        beta: random(&[TOKENS, value_heads]).abs().unwrap(),
    };
    let memory = inputs.empty().unwrap();
    let x = random(&[TOKENS, hidden]);
    let inner = (2 * key_heads + 2 * value_heads) * size;
    let into = random(&[hidden, inner]);
    let out = random(&[value_heads * size, hidden]);
    let products = || {
        let y = x.matmul(&into).unwrap();
        let back = y.try_index((.., 0..value_heads * size)).unwrap();
        vec![y, back.matmul(&out).unwrap()]
    };
    let rule = |chunk: i32| {
        let (y, s) = chunked(&inputs, &memory, chunk).unwrap();
        vec![y, s]
    };
    let time = |work: &dyn Fn() -> Vec<Array>| {
        let started = std::time::Instant::now();
        mlx_rs::transforms::eval(&work()).unwrap();
        started.elapsed().as_secs_f64()
    };
    let sizes = [16, 32, 64, 128];
    for round in 0..4 {
        let layer = time(&products);
        let of = |chunk: &i32| format!("{chunk}: {:.2}", time(&|| rule(*chunk)) / layer);
        let rules: Vec<String> = sizes.iter().map(of).collect();
        println!("round {round}: products {layer:.3} s, rule by chunk {rules:?} of that");
    }
    let few = DeltaInputs {
        queries: inputs.queries.try_index((0..16, ..)).unwrap(),
        keys: inputs.keys.try_index((0..16, ..)).unwrap(),
        values: inputs.values.try_index((0..16, ..)).unwrap(),
        log_decay: inputs.log_decay.try_index((0..16, ..)).unwrap(),
        beta: inputs.beta.try_index((0..16, ..)).unwrap(),
    };
    let steps = || {
        let (y, s) = recurrent(&few, &memory).unwrap();
        vec![y, s]
    };
    let layer = time(&products);
    let recurrence = time(&steps) * f64::from(TOKENS) / 16.0;
    println!(
        "recurrence over {TOKENS} tokens: {:.2} of the products",
        recurrence / layer
    );
}
