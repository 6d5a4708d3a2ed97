//! Wall and processor time, and tables of them.

use std::collections::BTreeMap;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

pub fn cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Leaves no dirty pages for the next subject to pay for.
pub fn sync() {
    std::process::Command::new("sync").status().unwrap();
}

/// Gives the next subject a pool of free pages that are backed. On a guest whose host takes free
/// pages back (free page reporting), a page that has rested costs twenty times as much to write.
pub fn warm_pages(folder: &std::path::Path, bytes: usize) {
    sync();
    let junk = folder.join("junk");
    let chunk = vec![1u8; 1 << 20];
    let mut file = std::fs::File::create(&junk).unwrap();
    for _ in 0..(bytes >> 20) * 3 / 2 + 64 {
        std::io::Write::write_all(&mut file, &chunk).unwrap();
    }
    drop(file);
    std::fs::remove_file(junk).unwrap();
}

pub struct Table {
    name: String,
    bytes: usize,
    rows: Vec<(String, Vec<(f64, Option<f64>)>)>,
}

impl Table {
    pub fn new(name: &str, bytes: usize) -> Self {
        Self {
            name: name.into(),
            bytes,
            rows: Vec::new(),
        }
    }

    pub fn time(&mut self, label: &str, run: impl FnOnce()) {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        run();
        let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        self.record(label, wall, Some(cpu));
    }

    pub fn record(&mut self, label: &str, wall: f64, cpu: Option<f64>) {
        match self.rows.iter_mut().find(|(l, _)| l == label) {
            Some((_, times)) => times.push((wall, cpu)),
            None => self.rows.push((label.into(), vec![(wall, cpu)])),
        }
    }

    pub fn print(&self, against: &[&str]) {
        let gib = self.bytes as f64 / (1u64 << 30) as f64;
        println!("\n## {} ({} MiB)\n", self.name, self.bytes >> 20);
        print!("| subject | median s | GiB/s | GiB per CPU-s |");
        let against: Vec<&str> = against
            .iter()
            .copied()
            .filter(|a| self.rows.iter().any(|(l, _)| l == a))
            .collect();
        for a in &against {
            print!(" speed over {a} (range) |");
        }
        println!("\n|---|---|---|---|{}", "---|".repeat(against.len()));
        let by_name: BTreeMap<&str, &Vec<(f64, Option<f64>)>> =
            self.rows.iter().map(|(l, t)| (l.as_str(), t)).collect();
        for (label, times) in &self.rows {
            let wall = median(times.iter().map(|t| t.0));
            let cpu = times.iter().all(|t| t.1.is_some());
            let cpu = cpu.then(|| gib / median(times.iter().filter_map(|t| t.1)));
            let cpu = cpu.map_or("-".into(), |c| format!("{c:.2}"));
            print!("| {label} | {wall:.4} | {:.2} | {cpu} |", gib / wall);
            for a in &against {
                let ratios: Vec<f64> = by_name[a]
                    .iter()
                    .zip(times)
                    .map(|(p, own)| p.0 / own.0)
                    .collect();
                let low = ratios.iter().copied().fold(f64::MAX, f64::min);
                let high = ratios.iter().copied().fold(0.0, f64::max);
                print!(
                    " {:.2} ({low:.2} to {high:.2}) |",
                    median(ratios.iter().copied())
                );
            }
            println!();
        }
    }
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut v: Vec<f64> = values.collect();
    v.sort_by(f64::total_cmp);
    let mid = v.len() / 2;
    if v.len() % 2 == 1 {
        v[mid]
    } else {
        (v[mid - 1] + v[mid]) / 2.0
    }
}
