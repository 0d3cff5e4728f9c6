// SPDX-License-Identifier: BSD-2-Clause
// guards KIND: threads named by what they do with a lock of Rust's library, which does not say who holds it.
// Prints "ready".
//
//	mutex     "holder" has a Mutex in an Arc, "waiter" waits for it
//	rwlock    "holder" reads a static RwLock, "waiter" waits to write
//	outer     "holder" has the Mutex inside a Mutex, "outside" has the outer one and waits for it
//
// 20 threads "ex" have held the lock and left pointers to it on their stacks; "condition" sleeps in the wait of
// a Condvar, to which it has given its guard; "dropped" has dropped its guards and sleeps on.
use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread;
use std::time::Duration;

pub struct Inner {
    pub hits: u64,
    pub part: Mutex<u64>,
}

pub struct Cache {
    pub before: [u64; 4],
    pub table: Mutex<Inner>,
    pub changed: Condvar,
    pub shared: Arc<Mutex<u64>>,
}

static READY: AtomicUsize = AtomicUsize::new(0);
static CONFIG: RwLock<[u64; 3]> = RwLock::new([1, 2, 3]);

fn sleep_for_ever() {
    READY.fetch_add(1, Ordering::SeqCst);
    loop {
        thread::sleep(Duration::from_secs(1000));
    }
}

fn until_ready(count: usize) {
    while READY.load(Ordering::SeqCst) < count {
        thread::sleep(Duration::from_millis(1));
    }
}

#[inline(never)]
fn use_all(cache: &Cache, depth: u64) -> u64 {
    if depth > 0 {
        return use_all(black_box(cache), depth - 1) + depth;
    }
    let mut table = cache.table.lock().unwrap();
    table.hits += 1;
    let part = table.part.lock().unwrap();
    let config = CONFIG.read().unwrap();
    thread::sleep(Duration::from_micros(1));
    table.hits + *part + config[1]
}

#[inline(never)]
fn ex(cache: &Cache) {
    black_box(use_all(cache, 3));
    sleep_for_ever();
}

#[inline(never)]
fn wait_for_condition(cache: &Cache) {
    let mut guard = cache.table.lock().unwrap();
    READY.fetch_add(1, Ordering::SeqCst);
    while guard.hits != u64::MAX {
        guard = cache.changed.wait(guard).unwrap();
    }
}

#[inline(never)]
fn drop_it(cache: &Cache) {
    let mut table = cache.table.lock().unwrap();
    let config = CONFIG.read().unwrap();
    table.hits += config[0];
    drop(config);
    drop(table);
    sleep_for_ever();
}

#[inline(never)]
fn hold_mutex(cache: &Cache) -> u64 {
    let taken = cache.table.lock().unwrap(); // line "taken"
    sleep_for_ever();
    taken.hits
}

#[inline(never)]
fn hold_config() -> u64 {
    let config = CONFIG.read().unwrap(); // line "config"
    sleep_for_ever();
    config[0]
}

#[inline(never)]
fn hold_part(cache: &Cache) {
    let part: *const Mutex<u64> = {
        let table = cache.table.lock().unwrap();
        &table.part
    };
    let inner = unsafe { (*part).lock().unwrap() }; // line "inner"
    sleep_for_ever();
    black_box(*inner);
}

#[inline(never)]
fn want_mutex(cache: &Cache) {
    let mut guard = cache.table.lock().unwrap();
    guard.hits += 1;
}

#[inline(never)]
fn want_config() {
    let mut config = CONFIG.write().unwrap();
    config[2] = 5;
}

#[inline(never)]
fn want_part(cache: &Cache) {
    let outer = cache.table.lock().unwrap();
    let mut part = outer.part.lock().unwrap();
    *part += 1;
}

fn start(name: &str, cache: &Arc<Cache>, run: fn(&Cache)) -> thread::JoinHandle<()> {
    let cache = cache.clone();
    thread::Builder::new().name(name.to_string()).spawn(move || run(&cache)).unwrap()
}

fn main() {
    let kind = std::env::args().nth(1).unwrap_or("mutex".to_string());
    let cache = Arc::new(Cache {
        before: [0; 4],
        table: Mutex::new(Inner { hits: 0, part: Mutex::new(0) }),
        changed: Condvar::new(),
        shared: Arc::new(Mutex::new(1)),
    });

    for _ in 0..20 {
        start("ex", &cache, ex);
    }
    start("condition", &cache, wait_for_condition);
    start("dropped", &cache, drop_it);
    until_ready(22);
    match kind.as_str() {
        "mutex" => start("holder", &cache, |c| { black_box(hold_mutex(c)); }),
        "rwlock" => start("holder", &cache, |_| { black_box(hold_config()); }),
        _ => start("holder", &cache, hold_part),
    };
    until_ready(23);
    let waiter = match kind.as_str() {
        "mutex" => start("waiter", &cache, want_mutex),
        "rwlock" => start("waiter", &cache, |_| want_config()),
        _ => start("outside", &cache, want_part),
    };
    thread::sleep(Duration::from_millis(100));
    println!("ready");
    std::io::stdout().flush().unwrap();
    waiter.join().unwrap();
}
