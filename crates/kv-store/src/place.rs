//! Where the bytes of many tensors go in the caller's memory.

use crate::fetch::{Failure, Fetched, Source, Span, fetch};
use crate::read::Placement;
use crate::{DType, Error, Result, Runs, ViewMut};

/// Destinations whose runs are shorter than this are filled by tiles, from a packed copy.
const SHORT_RUN: usize = 512;

/// Where all the bytes go.
#[derive(Default)]
pub(crate) struct Plan<'p> {
    spans: Vec<Span>,
    /// Packed copies of tensors whose destinations lie in short runs.
    staged: Vec<(&'p Placement, usize, Vec<u8>)>,
}

impl<'p> Plan<'p> {
    pub(crate) fn add(
        &mut self,
        placement: &'p Placement,
        record: usize,
        sources: &[Source],
        buffers: &[&mut [u8]],
    ) -> Result<()> {
        let location = &sources[record].location;
        let tensors = &location.commit.manifest.layout(location.entry()).tensors;
        let Some(tensor) = tensors.get(placement.tensor) else {
            return Err(Error::Index {
                what: "tensor",
                index: placement.tensor,
                count: tensors.len(),
            });
        };
        let (buffer, layout) = (placement.buffer, &placement.layout);
        let Some(destination) = buffers.get(buffer) else {
            return Err(Error::Index {
                what: "buffer",
                index: buffer,
                count: buffers.len(),
            });
        };
        if layout.shape() != tensor.shape {
            return Err(Error::Shape {
                expected: tensor.shape.clone(),
                found: layout.shape().to_vec(),
            });
        }
        let item = tensor.dtype.size();
        layout.check(destination.len() / item)?;
        if !layout.is_injective() {
            return Err(Error::Overlap {
                buffer,
                offset: layout.offset() * item,
            });
        }
        let runs = Runs::new(layout, item);
        if runs.run_bytes() < SHORT_RUN.min(tensor.bytes) {
            let buffer = buffers.len() + self.staged.len();
            let span = Span {
                buffer,
                offset: 0,
                len: tensor.bytes,
                record,
                at: tensor.offset,
            };
            self.spans.push(span);
            self.staged.push((placement, item, vec![0; tensor.bytes]));
            return Ok(());
        }
        let mut at = tensor.offset;
        for run in runs {
            self.spans.push(Span {
                buffer,
                offset: run.start,
                len: run.len(),
                record,
                at,
            });
            at += run.len();
        }
        Ok(())
    }

    pub(crate) fn run(
        mut self,
        sources: &[Source],
        buffers: &mut [&mut [u8]],
        threads: usize,
    ) -> Result<Result<Fetched, Failure>> {
        let mut all: Vec<&mut [u8]> = buffers.iter_mut().map(|b| &mut **b).collect();
        all.extend(
            self.staged
                .iter_mut()
                .map(|(_, _, bytes)| bytes.as_mut_slice()),
        );
        let fetched = fetch(sources, self.spans, &mut all, threads)?;
        let Ok(mut fetched) = fetched else {
            return Ok(fetched);
        };
        for (placement, item, packed) in self.staged {
            let buffer = &mut *buffers[placement.buffer];
            // Elements of this size, whatever they mean.
            let dtype = match item {
                1 => DType::U8,
                2 => DType::U16,
                4 => DType::U32,
                _ => DType::U64,
            };
            ViewMut::new(buffer, dtype, placement.layout.clone())?.copy_from(&packed)?;
            fetched.copied += packed.len() as u64;
        }
        Ok(Ok(fetched))
    }
}
