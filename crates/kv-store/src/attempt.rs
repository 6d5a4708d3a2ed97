//! Finding records, opening their packs, and telling why a read failed.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::Address;
use crate::fetch::{Failure, Fetched, Source};
use crate::index::Location;
use crate::refresh::{FileKind, file_name};
use crate::stats::add;
use crate::store::Inner;
use crate::vfs::VfsFile;
use crate::{Miss, Result};

impl Inner {
    /// Finds the records, opens their packs and reads. If one is damaged, a look at the folder
    /// tells whether it was moved or removed meanwhile, or whether it is torn.
    pub(crate) fn attempt<T>(
        &self,
        addresses: &[Address],
        mut read: impl FnMut(&[Source]) -> Result<Result<(T, Fetched), Failure>>,
    ) -> Result<(T, Vec<Location>, Fetched)> {
        let mut moved = 0;
        loop {
            let locations: Vec<Location> = addresses
                .iter()
                .map(|a| self.locate(*a))
                .collect::<Result<_>>()?;
            let outcome = match self.open_all(&locations) {
                Ok(sources) => read(&sources)?,
                Err(failure) => Err(failure),
            };
            match outcome {
                Ok((value, fetched)) => {
                    self.count_hits(addresses, fetched.bytes);
                    return Ok((value, locations, fetched));
                }
                Err((record, reason)) => {
                    let address = addresses[record];
                    match self.diagnose(&address, &locations[record], reason) {
                        // Others may move it again; after a few times that is a miss.
                        None if moved < 3 => moved += 1,
                        None => return Err(self.miss(address.key, Miss::Removed)),
                        Some(reason) => return Err(self.miss(address.key, reason)),
                    }
                }
            }
        }
    }

    pub(crate) fn open_all(&self, locations: &[Location]) -> Result<Vec<Source>, (usize, Miss)> {
        let mut open: HashMap<[u8; 16], Arc<dyn VfsFile>> = HashMap::new();
        let mut sources = Vec::with_capacity(locations.len());
        for (i, location) in locations.iter().enumerate() {
            let id = location.commit.manifest.id;
            let file = match open.get(&id) {
                Some(file) => Some(file.clone()),
                None => self.open_pack(location).map_err(|reason| (i, reason))?,
            };
            open.extend(file.clone().map(|file| (id, file)));
            sources.push(Source {
                location: location.clone(),
                file,
            });
        }
        Ok(sources)
    }

    /// The pack of a record; none if all its tensors are empty.
    fn open_pack(&self, location: &Location) -> Result<Option<Arc<dyn VfsFile>>, Miss> {
        let manifest = &location.commit.manifest;
        if location.entry().len == 0 {
            return Ok(None);
        }
        let file = self
            .vfs
            .open(&file_name(&manifest.id, FileKind::Pack), false);
        let file = file.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => Miss::Truncated,
            _ => Miss::Unreadable,
        })?;
        // Keeps the pack from being punched. Whoever punches it now is done in a moment, and
        // what was punched fails its hash.
        for _ in 0..100 {
            if file.try_lock(false).map_err(|_| Miss::Unreadable)? {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let info = file.info().map_err(|_| Miss::Unreadable)?;
        if info.len < location.entry().offset + location.entry().len {
            return Err(Miss::Truncated);
        }
        Ok(Some(Arc::from(file)))
    }

    /// Why a read failed; nothing if the record lies elsewhere by now.
    pub(crate) fn diagnose(
        &self,
        address: &Address,
        location: &Location,
        reason: Miss,
    ) -> Option<Miss> {
        if reason == Miss::Unreadable {
            return Some(reason);
        }
        let id = location.commit.manifest.id;
        // What can't be looked at now is not judged.
        if !self.refresh().unwrap_or(false) {
            return Some(Miss::Unreadable);
        }
        let now = self.index.read().get(address).cloned();
        match now {
            None => Some(Miss::Removed),
            Some(now) if now.commit.manifest.id != id => None,
            Some(_) => {
                tracing::warn!(key = %address.key, %reason, "a record is damaged; it is dropped");
                if self.index.write().condemn(address, &id) {
                    add(&self.counters.torn, 1);
                }
                Some(reason)
            }
        }
    }

    fn count_hits(&self, addresses: &[Address], bytes: u64) {
        add(&self.counters.hits, addresses.len());
        add(&self.counters.bytes_read, bytes);
        let index = self.index.read();
        let mut residents = index.residents.lock();
        // Ancestors last, so that they are never older than their descendants.
        for address in addresses.iter().rev() {
            residents.access(address);
        }
    }
}
