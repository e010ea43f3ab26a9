//! Work on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Does `work` on each of `jobs`, on `threads` threads (at least 1), and passes each result to
/// `done` as it comes, with the number of its job. If `done` fails, it ends early with that error;
/// work under way is finished.
///
/// # Errors
/// The first error of `done`.
pub fn in_parallel<J: Sync, R: Send, E>(
    jobs: &[J],
    threads: usize,
    work: impl Fn(&J) -> R + Sync,
    mut done: impl FnMut(usize, R) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(number) else { return };
                    if sender.send((number, work(job))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Moved in, so that it is dropped if this ends early: then the threads take no further
        // jobs.
        let receiver = receiver;
        receiver.iter().try_for_each(|(number, result)| done(number, result))
    })
}

/// The number of threads that this machine runs at the same time.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn each_job_is_done_once() {
        let jobs: Vec<u32> = (0..100).collect();
        let mut results = vec![0; 100];
        in_parallel(
            &jobs,
            4,
            |job| job * 2,
            |number, result| {
                results[number] += result;
                Ok::<_, Infallible>(())
            },
        )
        .unwrap();
        assert_eq!(results, (0..100).map(|job| job * 2).collect::<Vec<_>>());
    }

    #[test]
    fn it_ends_when_a_result_is_refused() {
        let jobs: Vec<u32> = (0..1000).collect();
        let mut seen = 0;
        let end = in_parallel(
            &jobs,
            2,
            |job| *job,
            |_, _| {
                seen += 1;
                if seen == 3 { Err("enough") } else { Ok(()) }
            },
        );
        assert_eq!((end, seen), (Err("enough"), 3));
    }
}
