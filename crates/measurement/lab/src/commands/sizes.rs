//! The sizes that experiments on one array have in common.

use crate::campaign::session::{Limits, size};
use anyhow::anyhow;
use terapage_config::{Partial, Size, check_block};

const MIB: u64 = 1 << 20;

/// Options that say how much data there is, and how much memory for it.
#[derive(Debug, clap::Args)]
pub struct Sizes {
    /// Bytes of data.
    #[arg(long, value_name = "SIZE", default_value = "4G", allow_hyphen_values = true)]
    data: String,
    /// Bytes of memory for contenders with a limit.
    #[arg(long, value_name = "SIZE", default_value = "1G", allow_hyphen_values = true)]
    memory: String,
    /// Bytes of Terapage's block; with `random`, of fio's reads too.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    block: Option<String>,
}

impl Sizes {
    /// The sizes, for all contenders' runs.
    ///
    /// # Errors
    /// One that is none, or too small; one line.
    pub fn limits(&self) -> anyhow::Result<Limits> {
        let (data, memory) = (size("--data", &self.data, MIB)?, size("--memory", &self.memory, MIB)?);
        let mut settings = Partial::default();
        if let Some(text) = &self.block {
            settings.set("block", text.as_ref()).map_err(|why| anyhow!("--block: {why}"))?;
        }
        let block = settings.block.flatten();
        if let Some(block) = block {
            check_block(Size(memory), block)?;
        }
        Ok(Limits {
            data,
            memory,
            block: block.map(|Size(bytes)| bytes),
            options: Vec::new(),
            window: None,
            may_fit: false,
        })
    }
}
