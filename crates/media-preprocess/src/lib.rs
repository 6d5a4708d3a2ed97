//! prefill-media-preprocess
