//! The codecs of this build.

use std::sync::LazyLock;

use symphonia::core::codecs::registry::CodecRegistry;

/// symphonia's own, and Opus where the feature is on.
pub(super) fn codecs() -> &'static CodecRegistry {
    static CODECS: LazyLock<CodecRegistry> = LazyLock::new(|| {
        let mut registry = CodecRegistry::new();
        symphonia::default::register_enabled_codecs(&mut registry);
        #[cfg(feature = "opus")]
        registry.register_audio_decoder::<symphonia_adapter_libopus::OpusDecoder>();
        registry
    });
    &CODECS
}
