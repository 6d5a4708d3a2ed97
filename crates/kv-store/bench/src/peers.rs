//! General-purpose stores, given the same bytes in blocks of at most 1 MiB.

use std::path::Path;

use crate::ours::Cache;

const BLOCK: usize = 1 << 20;

fn blocks(cache: &Cache) -> impl Iterator<Item = (String, &[u8])> {
    cache
        .head_rows()
        .flat_map(|row| row.chunks(BLOCK))
        .enumerate()
        .map(|(i, b)| (i.to_string(), b))
}

fn syncfs(folder: &Path) {
    std::process::Command::new("sync")
        .arg("-f")
        .arg(folder)
        .status()
        .unwrap();
}

pub fn cacache_write(folder: &Path, cache: &Cache) {
    for (name, block) in blocks(cache) {
        cacache::write_sync(folder, name, block).unwrap();
    }
    syncfs(folder);
}

pub fn cacache_read(folder: &Path, cache: &Cache) {
    for (name, block) in blocks(cache) {
        let read = cacache::read_sync(folder, name).unwrap();
        assert_eq!(read.len(), block.len());
    }
}

mod with_foyer {
    use std::path::Path;

    use foyer::{
        BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
        HybridCachePolicy,
    };

    use super::{blocks, syncfs};
    use crate::ours::Cache;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    }

    async fn open(folder: &Path, cache: &Cache) -> HybridCache<String, Vec<u8>> {
        let capacity = (cache.bytes() * 2)
            .next_multiple_of(64 << 20)
            .max(256 << 20);
        let device = FsDeviceBuilder::new(folder)
            .with_capacity(capacity)
            .build()
            .unwrap();
        HybridCacheBuilder::new()
            .with_policy(HybridCachePolicy::WriteOnInsertion)
            .memory(4 << 20)
            .with_weighter(|_: &String, v: &Vec<u8>| v.len())
            .storage()
            .with_engine_config(BlockEngineConfig::new(device).with_buffer_pool_size(128 << 20))
            .build()
            .await
            .unwrap()
    }

    pub fn write(folder: &Path, cache: &Cache) {
        std::fs::create_dir_all(folder).unwrap();
        runtime().block_on(async {
            let store = open(folder, cache).await;
            for (name, block) in blocks(cache) {
                store.insert(name, block.to_vec());
            }
            store.close().await.unwrap();
        });
        syncfs(folder);
    }

    /// Entries that were silently dropped are read by nobody: this favours it.
    pub fn read(folder: &Path, cache: &Cache) {
        runtime().block_on(async {
            let store = open(folder, cache).await;
            for (name, _) in blocks(cache) {
                let _ = store.get(&name).await.unwrap();
            }
            store.close().await.unwrap();
        });
    }
}

pub use with_foyer::{read as foyer_read, write as foyer_write};
