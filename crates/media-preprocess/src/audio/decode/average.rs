//! Several channels to one.

use std::ops::Range;

/// The mean of the channels, with the roundings of `numpy.mean` over interleaved f32: summed in
/// order, but from eight channels on in eight sums that are added pairwise (numpy's
/// `pairwise_sum`); then divided.
pub(super) fn average(planes: &[Vec<f32>], range: Range<usize>, mono: &mut Vec<f32>) {
    mono.clear();
    let Some((first, others)) = planes.split_first() else {
        return;
    };
    if planes.len() >= 8 {
        mono.extend(range.map(|i| pairwise_sum(planes, i)));
    } else {
        mono.extend_from_slice(&first[range.clone()]);
        for plane in others {
            for (sum, sample) in mono.iter_mut().zip(&plane[range.clone()]) {
                *sum += sample;
            }
        }
    }
    if !others.is_empty() {
        let count = planes.len() as f32;
        for sum in mono {
            *sum /= count;
        }
    }
}

/// The sum over the channels, 8 to 128, of one sample frame.
fn pairwise_sum(planes: &[Vec<f32>], frame: usize) -> f32 {
    let mut sums = [0.0; 8];
    let (eights, rest) = planes.as_chunks::<8>();
    for (i, eight) in eights.iter().enumerate() {
        for (sum, plane) in sums.iter_mut().zip(eight) {
            *sum = if i == 0 {
                plane[frame]
            } else {
                *sum + plane[frame]
            };
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    let sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
    rest.iter().fold(sum, |sum, plane| sum + plane[frame])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_range() {
        let planes = [vec![1.0, 2.0, 4.0], vec![3.0, -2.0, 8.0]];
        let mut mono = vec![9.0];
        average(&planes, 1..3, &mut mono);
        assert_eq!(mono, [0.0, 6.0]);
        average(&planes[..1], 0..3, &mut mono);
        assert_eq!(mono, planes[0]);
    }

    #[test]
    fn many_channels_are_summed_pairwise() {
        // In order, every 1 would be lost against 2^25; of four together, none is.
        let large = (1 << 25) as f32;
        let planes: Vec<Vec<f32>> = (0..9)
            .map(|channel| vec![if channel == 0 { large } else { 1.0 }])
            .collect();
        let mut mono = Vec::new();
        average(&planes, 0..1, &mut mono);
        assert_eq!(mono, [(large + 4.0) / 9.0]);
    }
}
