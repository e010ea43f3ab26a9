//! Work on all processors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;

/// Does `work` for each job from 0 to `jobs`, on `threads` threads (at least 1), and passes each
/// result to `done` when it is ready, with the number of its job. If `done` fails, no further job
/// begins; jobs under way are finished.
///
/// # Errors
/// The first error of `done`.
pub fn in_parallel<R: Send, E>(
    jobs: usize,
    threads: usize,
    work: impl Fn(usize) -> R + Sync,
    mut done: impl FnMut(usize, R) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.max(1)) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let job = next.fetch_add(1, Relaxed);
                    if job >= jobs || sender.send((job, work(job))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // The receiver is moved in, so that an early end drops it: then the threads take no further
        // jobs.
        let receiver = receiver;
        receiver.iter().try_for_each(|(job, result)| done(job, result))
    })
}

/// The results of `work` for each job from 0 to `jobs`, in order, computed on all processors.
pub fn map<R: Send>(jobs: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let mut results: Vec<Option<R>> = (0..jobs).map(|_| None).collect();
    let Ok(()) = in_parallel(jobs, processors(), work, |job, result| {
        results[job] = Some(result);
        Ok::<_, std::convert::Infallible>(())
    });
    results.into_iter().flatten().collect()
}

/// Like `in_parallel`, for work that may fail. After an error no further job begins.
///
/// # Errors
/// The first error of `work`, in the order of the jobs that were done.
pub fn try_map<R: Send, E: Send>(
    jobs: usize,
    work: impl Fn(usize) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let failed = AtomicBool::new(false);
    let results = map(jobs, |job| {
        (!failed.load(Relaxed)).then(|| work(job).inspect_err(|_| failed.store(true, Relaxed)))
    });
    results.into_iter().flatten().collect()
}

/// The number of threads that this machine runs at the same time.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_is_done_once() {
        let mut results = vec![0; 100];
        let end = in_parallel(
            100,
            4,
            |job| job * 2,
            |job, result| {
                results[job] += result;
                Ok::<_, ()>(())
            },
        );
        assert_eq!((end, results), (Ok(()), (0..100).map(|job| job * 2).collect()));
    }

    #[test]
    fn it_ends_when_a_result_is_refused() {
        let mut seen = 0;
        let end = in_parallel(
            1000,
            2,
            |job| job,
            |_, _| {
                seen += 1;
                if seen == 3 { Err("enough") } else { Ok(()) }
            },
        );
        assert_eq!((end, seen), (Err("enough"), 3));
    }

    #[test]
    fn results_come_in_order_and_errors_stop_the_rest() {
        assert_eq!(map(100, |job| job * 2), (0..100).map(|job| job * 2).collect::<Vec<_>>());
        assert_eq!(try_map(100, Ok::<_, ()>), Ok((0..100).collect()));
        assert_eq!(try_map(100, |job| if job == 7 { Err("seven") } else { Ok(job) }), Err("seven"));
        assert_eq!(try_map(0, Err::<(), _>), Ok(vec![]));
    }
}
