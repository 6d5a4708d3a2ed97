//! mlx-sys-ext
