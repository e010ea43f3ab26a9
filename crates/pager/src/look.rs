//! What the bytes of a block are.

use xxhash_rust::xxh3::xxh3_128;

/// What the bytes of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub zero: bool,
    /// The hash, if they are not all zero.
    pub hash: u128,
}

impl Look {
    pub fn at(bytes: &[u8]) -> Look {
        if is_zero(bytes) {
            Look { zero: true, hash: 0 }
        } else {
            Look { zero: false, hash: xxh3_128(bytes) }
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    // SAFETY: any sixteen bytes are a u128.
    let (head, words, tail) = unsafe { bytes.align_to::<u128>() };
    head.iter().chain(tail).all(|&byte| byte == 0)
        && words.chunks(16).all(|chunk| chunk.iter().fold(0, |all, word| all | word) == 0)
}

#[cfg(test)]
mod tests {
    use super::Look;

    #[test]
    fn one_bit_is_not_zero() {
        let mut bytes = vec![0u8; 4096];
        assert!(Look::at(&bytes).zero);
        for at in [0, 1, 255, 256, 2000, 4095] {
            bytes[at] = 0x80;
            let look = Look::at(&bytes);
            assert!(!look.zero && look.hash == xxhash_rust::xxh3::xxh3_128(&bytes), "at {at}");
            bytes[at] = 0;
        }
    }
}
