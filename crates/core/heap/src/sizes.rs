//! The sizes of small objects.

/// The largest small object, in bytes.
pub const SMALL: usize = 1024;

/// Sizes and addresses are multiples of this, in bytes.
pub const ALIGN: usize = 16;

/// The number of sizes.
pub const SIZES: usize = 32;

/// The sizes in bytes, ascending: steps of 16 up to 256, then eight for each doubling, so at most
/// an eighth of an object is lost.
pub const BYTES: [u16; SIZES] = {
    let mut bytes = [0; SIZES];
    let (mut at, mut size) = (0, 0);
    while at < SIZES {
        size += match size {
            0..256 => 16,
            256..512 => 32,
            _ => 64,
        };
        bytes[at] = size;
        at += 1;
    }
    bytes
};

/// For each number of 16-byte units, the index in [`BYTES`].
const OF: [u8; SMALL / ALIGN + 1] = {
    let mut of = [0; SMALL / ALIGN + 1];
    let (mut units, mut at) = (0, 0);
    while units < of.len() {
        if units * ALIGN > BYTES[at] as usize {
            at += 1;
        }
        of[units] = at as u8;
        units += 1;
    }
    of
};

/// The index of the [size](BYTES) for an object of `size` bytes, at most [`SMALL`].
#[inline]
pub fn of(size: usize) -> usize {
    usize::from(OF[size.div_ceil(ALIGN)])
}

/// The index for an object that must begin at a multiple of `align`, a power of two. `None` if it
/// is not small.
pub fn of_aligned(size: usize, align: usize) -> Option<usize> {
    let size = size.max(align);
    if size > SMALL {
        return None;
    }
    (of(size)..SIZES).find(|&at| usize::from(BYTES[at]).is_multiple_of(align))
}

#[cfg(test)]
mod tests {
    use super::{ALIGN, BYTES, SIZES, SMALL, of, of_aligned};

    #[test]
    fn each_object_has_the_least_size_that_holds_it() {
        assert_eq!(usize::from(BYTES[SIZES - 1]), SMALL);
        for size in 0..=SMALL {
            let least = BYTES.iter().position(|&bytes| usize::from(bytes) >= size).unwrap();
            assert_eq!(of(size), least, "{size} bytes");
            let lost = usize::from(BYTES[least]) - size;
            assert!(lost < ALIGN || lost * 8 <= size || size == 0, "{lost} of {size} bytes lost");
        }
    }

    #[test]
    fn an_aligned_object_has_a_size_that_keeps_it_so() {
        assert_eq!(of_aligned(24, 32).map(|at| BYTES[at]), Some(32));
        assert_eq!(of_aligned(65, 64).map(|at| BYTES[at]), Some(128));
        assert_eq!(of_aligned(1, 1024).map(|at| BYTES[at]), Some(1024));
        assert_eq!(of_aligned(1, 2048), None);
        assert_eq!(of_aligned(1000, 512).map(|at| BYTES[at]), Some(1024));
    }
}
