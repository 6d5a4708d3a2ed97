//! What `ffmpeg` writes: packet lists and pictures.

use std::io::{self, BufRead, Read};

use crate::error::{Error, Result};
use crate::image::{Limits, RgbImage};

/// No line of a packet list is longer.
const LINE_LIMIT: u64 = 4096;
/// No PPM header is longer.
const HEADER_LIMIT: usize = 64;

fn broken(source: io::Error) -> Error {
    Error::Io {
        path: "ffmpeg's output".into(),
        source,
    }
}

fn malformed(message: String) -> Error {
    broken(io::Error::new(io::ErrorKind::InvalidData, message))
}

/// Packets of a stream, counted from the lines of ffmpeg's `framecrc` format.
#[derive(Debug, Default)]
pub(super) struct Counter {
    pub(super) packets: usize,
    /// Seconds a tick of the time stamps, as a fraction.
    time_base: Option<(f64, f64)>,
    /// First and last time stamp of presentation.
    span: Option<(i64, i64)>,
    /// Ticks of the first packet.
    duration: i64,
}

impl Counter {
    /// Reads to the end.
    pub(super) fn read(&mut self, output: &mut impl BufRead, max_packets: usize) -> Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            output
                .take(LINE_LIMIT)
                .read_line(&mut line)
                .map_err(broken)?;
            if line.is_empty() {
                return Ok(());
            }
            self.line(line.trim());
            if self.packets > max_packets {
                let (found, limit) = (self.packets as u64, max_packets as u64);
                return Err(Error::Limit {
                    what: "frames of a video",
                    found,
                    limit,
                });
            }
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(base) = line.strip_prefix("#tb 0:") {
            let (numerator, denominator) = base.split_once('/').unwrap_or(("", ""));
            self.time_base = numerator
                .trim()
                .parse()
                .ok()
                .zip(denominator.trim().parse().ok());
        }
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        // stream, dts, pts, duration, size, checksum
        let mut fields = line
            .split(',')
            .skip(2)
            .map(|field| field.trim().parse::<i64>().ok());
        let (time, duration) = (fields.next().flatten(), fields.next().flatten());
        if self.packets == 0 {
            self.duration = duration.unwrap_or(0);
        }
        self.packets += 1;
        if let Some(time) = time {
            let (first, last) = self.span.unwrap_or((time, time));
            self.span = Some((first.min(time), last.max(time)));
        }
    }

    /// The mean rate: intervals over the time from the first to the last frame.
    pub(super) fn fps(&self) -> Option<f64> {
        let (numerator, denominator) = self.time_base?;
        let (first, last) = self.span?;
        let (intervals, ticks) = match self.packets {
            1 => (1, self.duration),
            packets => (packets - 1, last.checked_sub(first)?),
        };
        let fps = intervals as f64 * denominator / (ticks as f64 * numerator);
        (fps.is_finite() && fps > 0.0).then_some(fps)
    }
}

/// Reads one binary PPM picture, or none at the end.
pub(super) fn read_ppm(output: &mut impl BufRead, limits: &Limits) -> Result<Option<RgbImage>> {
    if output.fill_buf().map_err(broken)?.is_empty() {
        return Ok(None);
    }
    let mut words = Vec::new();
    let mut word = String::new();
    for _ in 0..HEADER_LIMIT {
        let mut byte = [0];
        output.read_exact(&mut byte).map_err(broken)?;
        if !byte[0].is_ascii_whitespace() {
            word.push(byte[0].into());
        } else if !word.is_empty() {
            words.push(std::mem::take(&mut word));
            if words.len() == 4 {
                break;
            }
        }
    }
    let sizes: Vec<u32> = words
        .iter()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    match (words.first().map(String::as_str), sizes.as_slice()) {
        (Some("P6"), &[width, height, 255]) => {
            limits.check_size(width.into(), height.into(), 3)?;
            let mut data = vec![0; width as usize * height as usize * 3];
            output.read_exact(&mut data).map_err(broken)?;
            RgbImage::new(width, height, data).map(Some)
        }
        _ => Err(malformed(format!("not a PPM header: {words:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> Counter {
        let mut counter = Counter::default();
        counter.read(&mut text.as_bytes(), 10).unwrap();
        counter
    }

    #[test]
    fn counts_packets_and_their_rate() {
        let text = "#software: Lavf\n#tb 0: 1/30000\n#dimensions 0: 64x48\n\
            0, -1001, 0, 1001, 500, 0x1\n0, 0, 3003, 1001, 90, 0x2, F=0x0\n\
            0, 1001, 1001, 1001, 80, 0x3\n0, 2002, 2002, 1001, 70, 0x4\n";
        let counter = count(text);
        assert_eq!(counter.packets, 4);
        assert_eq!(
            counter.fps().map(f64::to_bits),
            Some((30_000.0_f64 / 1001.0).to_bits())
        );
        assert_eq!(count("#tb 0: 1/4\n0, 0, 0, 1, 9, 0x1\n").fps(), Some(4.0));
        assert_eq!(count("0, 0, NOPTS, 1, 9, 0x1\n").fps(), None);
        let many = "0, 0, 0, 1, 9, 0x1\n".repeat(11);
        let error = Counter::default()
            .read(&mut many.as_bytes(), 10)
            .unwrap_err();
        assert!(matches!(
            error,
            Error::Limit {
                found: 11,
                limit: 10,
                ..
            }
        ));
    }

    #[test]
    fn reads_pictures_one_after_another() {
        let mut stream: &[u8] = b"P6\n2 1\n255\nabcdefP6 1 1 255\nxyz";
        let limits = Limits::default();
        let first = read_ppm(&mut stream, &limits).unwrap().unwrap();
        assert_eq!(
            (first.width(), first.height(), first.data()),
            (2, 1, &b"abcdef"[..])
        );
        assert_eq!(
            read_ppm(&mut stream, &limits).unwrap().unwrap().data(),
            b"xyz"
        );
        assert!(read_ppm(&mut stream, &limits).unwrap().is_none());
        for bad in [
            &b"P5\n2 1\n255\nab"[..],
            b"P6\n2 1\n255\nabc",
            b"P6\n2",
            b"P6\n9999999 9999999\n255\n",
        ] {
            assert!(read_ppm(&mut &bad[..], &limits).is_err());
        }
    }
}
