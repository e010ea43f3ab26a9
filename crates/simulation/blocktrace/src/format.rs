//! The formats of traces, each in its own file.

pub(crate) mod alibaba;
pub(crate) mod arc;
pub(crate) mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod csv;
pub(crate) mod disksim;
pub(crate) mod fio;
pub(crate) mod fiu;
pub(crate) mod msr;
pub(crate) mod msr_revised;
pub(crate) mod oraclegeneral;
pub(crate) mod spc;
pub(crate) mod ssdsim;
pub(crate) mod systor;
pub(crate) mod tencent;
pub(crate) mod tera;
pub(crate) mod varint;
pub(crate) mod vscsi;

use crate::error::Place;
use crate::fault::{Checked, field};
use crate::gate::Gate;
use crate::input::Input;
use crate::lines::{LineParser, Text};
use crate::options::Options;
use crate::reader::{Source, Stop};
use crate::records::Binary;
use crate::request::Kind;
use std::fmt;
use std::str::FromStr;

pub use csv::BlockColumns;

/// A format of block traces. Layouts and sources: `docs/block-traces.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// CSV of the MSR Cambridge traces.
    Msr,
    /// The same traces as published by TraceTracker's authors, in files called `.revised`.
    MsrRevised,
    /// SSDSim's and MQSim's: time in nanoseconds, device, sector, sectors, 0 for a write.
    Ssdsim,
    /// DiskSim's: time in milliseconds, device, block, blocks, flags.
    Disksim,
    /// What `blkparse` prints.
    Blkparse,
    /// The Storage Performance Council's, in which the UMass traces are.
    Spc,
    /// fio's I/O log, version 2 or 3.
    Fio,
    /// The traces of the ARC paper: block, blocks, ignored, request number. No times, no kinds.
    Arc,
    /// CloudPhysics' binary records, version 1 or 2.
    Vscsi,
    /// libCacheSim's binary records of time, object, size and next access. No kinds.
    #[serde(rename = "oraclegeneral")]
    OracleGeneral,
    /// CSV of Alibaba's cloud disks.
    Alibaba,
    /// CSV of Tencent's cloud disks.
    Tencent,
    /// CSV of the virtual desktops of Systor '17.
    Systor17,
    /// The traces of Florida International University.
    Fiu,
    /// blktrace's binary records.
    Blktrace,
    /// Any CSV with named columns.
    Csv,
    /// Terapage's own, compact, checksummed and fast.
    Tera,
}

/// An opened trace.
pub(crate) struct Opened {
    pub source: Box<dyn Source>,
    pub gate: Gate,
    pub name: String,
    pub comment: String,
    pub synthetic: bool,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 17] = [
        Format::Msr,
        Format::MsrRevised,
        Format::Ssdsim,
        Format::Disksim,
        Format::Blkparse,
        Format::Spc,
        Format::Fio,
        Format::Arc,
        Format::Vscsi,
        Format::OracleGeneral,
        Format::Alibaba,
        Format::Tencent,
        Format::Systor17,
        Format::Fiu,
        Format::Blktrace,
        Format::Csv,
        Format::Tera,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Msr => "msr",
            Format::MsrRevised => "msr-revised",
            Format::Ssdsim => "ssdsim",
            Format::Disksim => "disksim",
            Format::Blkparse => "blkparse",
            Format::Spc => "spc",
            Format::Fio => "fio",
            Format::Arc => "arc",
            Format::Vscsi => "vscsi",
            Format::OracleGeneral => "oraclegeneral",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Systor17 => "systor17",
            Format::Fiu => "fiu",
            Format::Blktrace => "blktrace",
            Format::Csv => "csv",
            Format::Tera => "tera",
        }
    }

    /// Whether [`Writer`](crate::Writer) can write it.
    pub const fn is_written(self) -> bool {
        !matches!(
            self,
            Format::MsrRevised
                | Format::Arc
                | Format::Vscsi
                | Format::Alibaba
                | Format::Tencent
                | Format::Systor17
                | Format::Fiu
                | Format::Blktrace
                | Format::Csv
        )
    }

    /// Whether its records have times.
    pub const fn has_times(self) -> bool {
        !matches!(self, Format::Arc)
    }

    /// Whether its records distinguish reads and writes. Otherwise all of them count as reads.
    pub const fn has_kinds(self) -> bool {
        !matches!(self, Format::Arc | Format::OracleGeneral)
    }

    /// The checks for a trace of this format.
    pub(crate) fn gate(self, options: &Options) -> Gate {
        let unit_bytes = u64::from(options.unit_bytes.unwrap_or(512));
        let (tick_ns, unit_bytes) = match self {
            Format::Msr => (100, 1),
            Format::MsrRevised | Format::Ssdsim | Format::Disksim | Format::Blkparse | Format::Spc => {
                (1, 512)
            }
            Format::Fio => (1000, 1),
            Format::Arc => (1, unit_bytes),
            Format::Vscsi => (1000, 512),
            Format::OracleGeneral => (1_000_000_000, unit_bytes),
            Format::Alibaba => (1000, 1),
            Format::Tencent => (1_000_000_000, 512),
            Format::Systor17 | Format::Csv => (1, 1),
            Format::Fiu | Format::Blktrace => (1, 512),
            Format::Tera => (1, 1),
        };
        Gate::new(options, tick_ns, unit_bytes)
    }

    /// The parser of a line format, for detection.
    pub(crate) fn line_parser(self, options: &Options) -> Option<Box<dyn LineParser>> {
        Some(match self {
            Format::Msr => Box::new(msr::Parser::default()),
            Format::MsrRevised => Box::new(msr_revised::Parser),
            Format::Ssdsim => Box::new(ssdsim::Parser),
            Format::Disksim => Box::new(disksim::Parser::default()),
            Format::Blkparse => Box::new(blkparse::Parser::new(options)),
            Format::Spc => Box::new(spc::Parser),
            Format::Fio => Box::new(fio::Parser::default()),
            Format::Arc => Box::new(arc::Parser::new(options)),
            Format::Alibaba => Box::new(alibaba::Parser),
            Format::Tencent => Box::new(tencent::Parser::default()),
            Format::Systor17 => Box::new(systor::Parser::default()),
            Format::Fiu => Box::new(fiu::Parser),
            Format::Csv => Box::new(csv::Parser::new(options.columns.clone()?)),
            Format::Vscsi | Format::OracleGeneral | Format::Blktrace | Format::Tera => return None,
        })
    }

    /// Begins to read.
    pub(crate) fn open(self, input: Input, head: &[u8], options: &Options) -> Result<Opened, (Place, Stop)> {
        let gate = self.gate(options);
        // One line each, so that each parser is compiled into its own loop.
        let source: Box<dyn Source> = match self {
            Format::Msr => Box::new(Text::new(input, msr::Parser::default())),
            Format::MsrRevised => Box::new(Text::new(input, msr_revised::Parser)),
            Format::Ssdsim => Box::new(Text::new(input, ssdsim::Parser)),
            Format::Disksim => Box::new(Text::new(input, disksim::Parser::default())),
            Format::Blkparse => Box::new(Text::new(input, blkparse::Parser::new(options))),
            Format::Spc => Box::new(Text::new(input, spc::Parser)),
            Format::Fio => Box::new(Text::new(input, fio::Parser::default())),
            Format::Arc => Box::new(Text::new(input, arc::Parser::new(options))),
            Format::Vscsi => {
                let parser =
                    vscsi::Parser::new(head).map_err(|fault| (Place::Byte(0), Stop::Fault(fault)))?;
                Box::new(Binary::new(input, parser))
            }
            Format::OracleGeneral => Box::new(Binary::new(input, oraclegeneral::Parser)),
            Format::Alibaba => Box::new(Text::new(input, alibaba::Parser)),
            Format::Tencent => Box::new(Text::new(input, tencent::Parser::default())),
            Format::Systor17 => Box::new(Text::new(input, systor::Parser::default())),
            Format::Fiu => Box::new(Text::new(input, fiu::Parser)),
            Format::Csv => match &options.columns {
                Some(columns) => Box::new(Text::new(input, csv::Parser::new(columns.clone()))),
                None => {
                    let fault = field("--columns offset=..,size=.. for CSV", b"").map_err(Stop::Fault);
                    return fault.map_err(|stop| (Place::Line(1), stop));
                }
            },
            Format::Blktrace => {
                let records = blktrace::Records::new(input, options);
                Box::new(records.map_err(|fault| (Place::Byte(0), Stop::Fault(fault)))?)
            }
            Format::Tera => return tera::open(input, gate).map_err(|stop| (Place::Byte(0), stop)),
        };
        Ok(Opened { source, gate, name: String::new(), comment: String::new(), synthetic: false })
    }
}

/// The flag `0` or `1` of SSDSim and DiskSim: a set lowest bit means a read.
#[inline]
pub(crate) fn kind_of_bit(flags: u64) -> Kind {
    if flags & 1 == 1 { Kind::Read } else { Kind::Write }
}

/// Sectors of 512 bytes as bytes.
#[inline]
pub(crate) fn sectors(count: u64) -> Checked<u64> {
    match count.checked_mul(512) {
        Some(bytes) => Ok(bytes),
        None => field("a number of sectors", count.to_string().as_bytes()),
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// No format has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no trace format {name} (there are {})", Format::ALL.map(Format::name).join(", "))]
pub struct UnknownFormat {
    /// The name.
    pub name: String,
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Format, UnknownFormat> {
        let lower = name.to_ascii_lowercase();
        let known = match lower.as_str() {
            "mqsim" => "ssdsim",
            "cloudphysics" | "vscsi1" | "vscsi2" => "vscsi",
            "revised" => "msr-revised",
            "umass" => "spc",
            "systor" => "systor17",
            "iolog" => "fio",
            other => other,
        };
        let found = Format::ALL.into_iter().find(|format| format.name() == known);
        found.ok_or_else(|| UnknownFormat { name: name.to_string() })
    }
}
