//! Published results of Fukuchi, Sakaki, Matsui and Takeuchi (performance of SCM/NAND hybrid SSDs
//! with four kinds of NAND).

/// One volume of Table 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The volume.
    pub volume: &'static str,
    /// IOPS of SCM with 3D CT TLC over SCM with 2D FG MLC, less 1, in percent.
    pub percent: f64,
    /// Whether the paper calls it write-intensive; the others are read-intensive.
    pub write_intensive: bool,
}

const fn gain(volume: &'static str, percent: f64, write_intensive: bool) -> Gain {
    Gain { volume, percent, write_intensive }
}

/// Table 2, in its order.
pub const GAINS: [Gain; 7] = [
    gain("prxy_0", 6.7, true),
    gain("proj_0", 7.1, true),
    gain("hm_0", 5.3, true),
    gain("web_1", 6.4, true),
    gain("prxy_1", -0.1, false),
    gain("proj_3", 1.9, false),
    gain("src2_1", 3.6, false),
];

/// The four kinds of NAND of Figure 3. The others are compared with the first one.
pub const NANDS: [&str; 4] = ["2d-fg-mlc", "2d-fg-tlc", "3d-fg-tlc", "3d-ct-tlc"];

/// The text on Figure 5: the latency changes IOPS by at most this many percent.
pub const LATENCY_PERCENT_MAX: f64 = 6.0;

/// The text on Figure 3: 3D FG TLC falls "最大54%まで", which can be read as by 54 %, or to 54 %, at
/// most.
pub const FG_TLC_PERCENT: f64 = 54.0;

/// The source, as cited in tables.
pub const SOURCE: &str = "Fukuchi, Sakaki, Matsui, Takeuchi, Table 2";
