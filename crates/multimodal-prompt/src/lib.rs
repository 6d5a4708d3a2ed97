//! prefill-multimodal-prompt
