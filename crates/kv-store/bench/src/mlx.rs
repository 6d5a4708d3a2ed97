//! mlx-lm in a process of its own, told what to do line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = r#"
import os, sys, time
import mlx.core as mx
from mlx_lm.models.cache import KVCache, save_prompt_cache, load_prompt_cache
caches = {}
def cache(tokens):
    if tokens not in caches:
        made = []
        for layer in range(28):
            c = KVCache()
            k, v = (mx.random.normal((1, 8, tokens, 128)).astype(mx.bfloat16) for _ in "kv")
            c.update_and_fetch(k, v)
            mx.eval(c.keys, c.values)
            made.append(c)
        caches[tokens] = made
    return caches[tokens]
for line in sys.stdin:
    action, path, tokens = line.rstrip("\n").split("\t")
    if action == "save":
        c = cache(int(tokens))
        start = time.perf_counter()
        save_prompt_cache(path, c)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    else:
        start = time.perf_counter()
        c = load_prompt_cache(path)
        mx.eval([[x.keys, x.values] for x in c])
    print(time.perf_counter() - start, flush=True)
    del c
"#;

pub struct Mlx {
    _child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Mlx {
    pub fn start(python: &str) -> Self {
        let mut child = Command::new(python)
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a Python with mlx-lm");
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            _child: child,
            stdin,
            stdout,
        }
    }

    fn ask(&mut self, action: &str, path: &Path, tokens: usize) -> f64 {
        writeln!(self.stdin, "{action}\t{}\t{tokens}", path.display()).unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().parse().expect("a time from mlx-lm")
    }

    pub fn save(&mut self, path: &Path, tokens: usize) -> f64 {
        self.ask("save", path, tokens)
    }

    pub fn load(&mut self, path: &Path) -> f64 {
        self.ask("load", path, 0)
    }
}
