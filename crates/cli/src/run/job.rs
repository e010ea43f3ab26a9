//! `terapage run`: the table in which all processes of the run lease their memory.

use crate::complain;
use anyhow::Context;
use terapage_config::{Budget, Settings, Size};
use terapage_lease::{Inherited, JOB_VARIABLE};

/// The table of the job in which this command runs, if there is one.
fn around() -> Option<Inherited> {
    std::env::var(JOB_VARIABLE).ok()?.parse().ok().filter(Inherited::is_there)
}

/// Makes the table that the program and its children inherit; inside a running job, makes an entry
/// in that job's table. `None` if each process has a separate budget.
pub fn prepare(settings: &Settings) -> anyhow::Result<Option<Inherited>> {
    if settings.per_process {
        return Ok(None);
    }
    let Budget { size: budget, is_auto } = settings.memory;
    let Some(outer) = around() else {
        let made = Inherited::make(budget.0, is_auto)
            .context("the table of the job's memory (try: --per-process)")?;
        return Ok(Some(made));
    };
    if is_auto {
        return Ok(Some(outer));
    }
    let all = Size(outer.ceiling()?);
    if budget > all {
        complain(&format!("warning: --memory {budget} is within a job of {all}: the limit is {all}"));
    }
    if budget >= all {
        return Ok(Some(outer));
    }
    let inner = outer.inside(budget.0).context("the table of the job's memory")?;
    if inner.is_none() {
        complain(&format!("warning: too many jobs are nested: the limit is that of the outer one, {all}"));
    }
    Ok(Some(inner.unwrap_or(outer)))
}
