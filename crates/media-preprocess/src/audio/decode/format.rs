//! Audio formats by their first bytes.

use std::fmt;

/// A file format that can hold audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// RIFF WAVE, RF64 and BW64: PCM, float, A-law, mu-law, ADPCM.
    Wav,
    /// FLAC.
    Flac,
    /// Ogg: Vorbis, FLAC, and Opus with the feature `opus`.
    Ogg,
    /// MPEG audio, layers 1 to 3.
    Mpeg,
    /// AAC in ADTS frames.
    Adts,
    /// ISO base media (MP4, M4A, MOV), with AAC, ALAC, MP3, FLAC.
    Mp4,
    /// Matroska and `WebM`.
    Matroska,
    /// AIFF and AIFF-C.
    Aiff,
    /// Apple's Core Audio Format.
    Caf,
}

impl Format {
    /// The format whose files begin with `head`; 12 bytes are enough. After an `ID3v2` tag, which
    /// may precede several, [`Mpeg`](Self::Mpeg) is the guess.
    #[must_use]
    pub fn detect(head: &[u8]) -> Option<Self> {
        let tag = |at: usize| head.get(at..at + 4).unwrap_or_default();
        match (tag(0), tag(8)) {
            (b"RIFF" | b"RF64" | b"BW64", b"WAVE") => return Some(Self::Wav),
            (b"FORM", b"AIFF" | b"AIFC") => return Some(Self::Aiff),
            (b"fLaC", _) => return Some(Self::Flac),
            (b"OggS", _) => return Some(Self::Ogg),
            (b"caff", _) => return Some(Self::Caf),
            (b"\x1a\x45\xdf\xa3", _) => return Some(Self::Matroska),
            _ => {}
        }
        if matches!(
            tag(4),
            b"ftyp" | b"moov" | b"mdat" | b"free" | b"skip" | b"wide" | b"styp" | b"pnot"
        ) {
            return Some(Self::Mp4);
        }
        if head.starts_with(b"ID3") {
            return Some(Self::Mpeg);
        }
        // A sync word, then the layer: 0 is AAC in ADTS.
        match head {
            [0xff, second, ..] if second & 0xf6 == 0xf0 => Some(Self::Adts),
            [0xff, second, third, ..]
                if second & 0xe0 == 0xe0 && second & 0x18 != 0x08 && third & 0xf0 != 0xf0 =>
            {
                Some(Self::Mpeg)
            }
            _ => None,
        }
    }

    /// The format that a reader of symphonia names itself.
    pub(super) fn from_reader(short_name: &str) -> Option<Self> {
        Some(match short_name {
            "wave" => Self::Wav,
            "flac" => Self::Flac,
            "ogg" => Self::Ogg,
            "mp1" | "mp2" | "mp3" => Self::Mpeg,
            "aac" => Self::Adts,
            "isomp4" => Self::Mp4,
            "matroska" => Self::Matroska,
            "aiff" => Self::Aiff,
            "caf" => Self::Caf,
            _ => return None,
        })
    }

    /// Whether its files state their length in samples, not by an estimate or in whole packets.
    pub(super) fn states_length(self) -> bool {
        matches!(self, Self::Wav | Self::Flac | Self::Aiff | Self::Mp4)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wav => "WAV",
            Self::Flac => "FLAC",
            Self::Ogg => "Ogg",
            Self::Mpeg => "MPEG audio",
            Self::Adts => "ADTS",
            Self::Mp4 => "MP4",
            Self::Matroska => "Matroska",
            Self::Aiff => "AIFF",
            Self::Caf => "CAF",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell() {
        let cases: [(&[u8], Option<Format>); 9] = [
            (b"RIFF\0\0\0\0WAVEfmt ", Some(Format::Wav)),
            (b"RIFF\0\0\0\0WEBPVP8 ", None),
            (b"FORM\0\0\0\0AIFCFVER", Some(Format::Aiff)),
            (b"\0\0\0\x20ftypM4A ", Some(Format::Mp4)),
            (&[0xff, 0xfb, 0x90, 0x64], Some(Format::Mpeg)),
            (&[0xff, 0xf1, 0x50, 0x80], Some(Format::Adts)),
            (&[0xff, 0xd8, 0xff, 0xe0], None),
            (b"%PDF-1.7", None),
            (b"", None),
        ];
        for (head, expected) in cases {
            assert_eq!(Format::detect(head), expected, "{head:02x?}");
        }
    }
}
