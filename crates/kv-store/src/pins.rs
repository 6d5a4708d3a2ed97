use crate::Kind;
use crate::batch::Address;
use crate::store::Inner;

/// Keeps records and content blocks from being evicted for as long as it lives.
pub(crate) struct Pins<'a> {
    inner: &'a Inner,
    records: Vec<Address>,
    blocks: Vec<Address>,
}

impl<'a> Pins<'a> {
    pub(crate) fn new(inner: &'a Inner, addresses: &[Address]) -> Self {
        let mut pins = Self {
            inner,
            records: Vec::new(),
            blocks: Vec::new(),
        };
        let mut index = inner.index.write();
        for address in addresses {
            let kind = index.get(address).map(|l| l.entry().kind);
            if kind == Some(Kind::Content) {
                index.hold(*address);
                pins.blocks.push(*address);
            } else if index.residents.get_mut().pin(address) {
                pins.records.push(*address);
            }
        }
        pins
    }
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        let mut index = self.inner.index.write();
        for address in &self.records {
            index.residents.get_mut().unpin(address);
        }
        for address in &self.blocks {
            index.release(address);
        }
    }
}
