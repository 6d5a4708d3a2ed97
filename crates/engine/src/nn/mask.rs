//! Attention, and which keys a query sees.

use mlx_rs::Array;
use mlx_rs::fast::{ScaledDotProductAttentionMask, scaled_dot_product_attention};

use crate::Result;

/// Which keys the queries of one forward call see.
#[derive(Debug)]
pub(crate) enum Mask {
    /// All of them.
    None,
    /// Those up to their own; the last query is at the last key.
    Causal,
    /// Where this boolean `[queries, keys]` is true.
    Explicit(Array),
}

impl Mask {
    /// The mask of `queries` new tokens whose keys, the last of `keys`, follow older ones.
    /// With a `window`, a query sees that many keys, its own included.
    pub(crate) fn new(queries: i32, keys: i32, window: Option<i32>) -> Self {
        if queries == 1 {
            // The cache has cut what lies before the window.
            return Self::None;
        }
        match window {
            Some(window) if keys > window => {
                let visible: Vec<bool> = (0..queries)
                    .flat_map(|query| {
                        let own = keys - queries + query;
                        (0..keys).map(move |key| key <= own && own - key < window)
                    })
                    .collect();
                Self::Explicit(Array::from_slice(&visible, &[queries, keys]))
            }
            _ => Self::Causal,
        }
    }
}

/// `softmax(scale q k^T + mask) v`, for `[batch, heads, tokens, D]`. There may be fewer key
/// and value heads than query heads; each then serves a run of them.
pub(crate) fn attention(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    mask: &Mask,
) -> Result<Array> {
    let mask = match mask {
        Mask::None => None,
        Mask::Causal => Some(ScaledDotProductAttentionMask::Causal),
        Mask::Explicit(visible) => Some(ScaledDotProductAttentionMask::Array(visible)),
    };
    Ok(scaled_dot_product_attention(
        queries, keys, values, scale, mask, None,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_hides_what_is_too_old_and_what_is_to_come() {
        let Mask::Explicit(visible) = Mask::new(3, 5, Some(2)) else {
            panic!("five keys are more than the window");
        };
        #[rustfmt::skip]
        assert_eq!(visible.as_slice::<bool>(), [
            false, true, true, false, false,
            false, false, true, true, false,
            false, false, false, true, true,
        ]);
    }

    #[test]
    fn plain_masks_where_the_window_is_not_reached() {
        assert!(matches!(Mask::new(3, 3, Some(3)), Mask::Causal));
        assert!(matches!(Mask::new(3, 300, None), Mask::Causal));
        assert!(matches!(Mask::new(1, 300, Some(300)), Mask::None));
    }
}
