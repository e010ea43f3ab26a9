//! Work that is done side by side, with results in order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Does `work` for each of `items`, on as many threads as there are processors. The first error in
/// the order of items is what comes back, and work that has not begun by then is left.
///
/// # Errors
/// Those of `work`.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = work(item);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_errors_stop_the_rest() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(each(&items, |&n| Ok(n * 2)).expect("good"), (0..100).map(|n| n * 2).collect::<Vec<_>>());
        assert!(each(&items, |&n| if n == 7 { anyhow::bail!("seven") } else { Ok(n) }).is_err());
        assert!(each(&[] as &[u32], |&n| Ok(n)).expect("nothing to do").is_empty());
    }
}
