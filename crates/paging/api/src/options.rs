//! Options of the process's pager.

use crate::process::ADDRESS_SPACE_MIN;
use crate::{Error, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use terapage_config::{Mechanism, Memory, Partial, SETTINGS, Settings, Size, memory_bytes};

/// Options of the process's pager. An option that is `None` is taken from the `TERAPAGE_*`
/// variables, or else is the default.
///
/// ```
/// let options = terapage::Options { memory: Some(64 << 20), ..Default::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The budget, bytes; at least 1 MiB and 8 blocks. The default is half of the machine's memory.
    pub memory: Option<u64>,
    /// The store: a directory on a disk, an empty file there, or a block device. The default is
    /// `$TMPDIR`, `/var/tmp`, `/tmp` or the current directory.
    pub store: Option<PathBuf>,
    /// Bytes of a block: a power of two, a page to 2 MiB. The default is 16 KiB.
    pub block: Option<usize>,
    /// The replacement policy. The default is `auto`.
    pub policy: Option<String>,
    /// The prefetch policy. The default is `auto`.
    pub prefetch: Option<String>,
    /// Bytes of reserved address space, at least 64 MiB: the most that can be allocated and mapped
    /// at the same time. The default is 1 TiB. If the kernel refuses that, half of it is tried, and
    /// so on.
    pub address_space: Option<usize>,
}

impl Options {
    /// All settings, including those of the environment.
    pub(crate) fn settings(&self) -> Result<Settings> {
        if let Some(bytes) = self.address_space.filter(|&bytes| bytes < ADDRESS_SPACE_MIN) {
            let least = ADDRESS_SPACE_MIN >> 20;
            return Err(Error::Argument(format!(
                "address_space: {bytes} bytes are too few (at least {least} MiB)"
            )));
        }
        let mut given = Partial::default();
        let mut set = |name: &str, text: OsString| {
            given.set(name, &text).map_err(|why| Error::Argument(format!("{name}: {why}")))
        };
        let texts = [
            ("memory", self.memory.map(|bytes| bytes.to_string().into())),
            ("block", self.block.map(|bytes| bytes.to_string().into())),
            ("policy", self.policy.clone().map(OsString::from)),
            ("prefetch", self.prefetch.clone().map(OsString::from)),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                set(name, text)?;
            }
        }
        if let Some(store) = &self.store {
            if store.as_os_str().is_empty() {
                return Err(Error::Argument("store: it is empty".to_owned()));
            }
            given.stores = Some(vec![terapage_config::StoreSpec::File(store.clone())]);
        }
        let get = |name: &str| std::env::var_os(name);
        let is_ours =
            |name: &str| SETTINGS.iter().any(|setting| setting.variable == name && !setting.run_only);
        let ours = |name: &str| get(name).filter(|_| is_ours(name));
        let mut given = given.or(Partial::from_variables(ours)?);
        if matches!(given.memory, None | Some(Memory::Auto)) {
            // Only the budget of a run follows the free memory.
            given.memory = Some(Memory::Percent(50.0));
        }
        let settings = given.resolve(&terapage_far::shelf(), get)?;
        if let Some(all) = memory_bytes().map(Size).filter(|&all| settings.memory.size > all) {
            let why = format!("memory: {} is more than the available memory, {all}", settings.memory.size);
            return Err(Error::Argument(why));
        }
        Ok(settings)
    }
}

/// The pager's options for these settings.
pub(crate) fn for_pager(settings: &Settings) -> terapage_pager::Options {
    let block = settings.block_bytes();
    terapage_pager::Options {
        block,
        splits: settings.splits(),
        frames: (settings.memory.size.0 as usize / block).max(8),
        policy: settings.policy.clone(),
        prefetch: settings.prefetch.clone(),
        verify: settings.verify,
        io: terapage_store::io_engine(settings.io),
        copy: settings.mechanism == Mechanism::Copy,
        ..terapage_pager::Options::default()
    }
}
