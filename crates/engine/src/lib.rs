//! prefill-engine
