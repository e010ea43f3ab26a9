//! Numbers of seven bits per byte, the lowest first; the eighth bit says that more bytes follow.

/// Appends `value`.
#[inline]
pub(crate) fn put(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number from the left; `None` if there is none, or if it is longer than 64 bits.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first()?;
    if *first < 0x80 {
        *bytes = rest;
        return Some(u64::from(*first));
    }
    take_long(bytes)
}

#[inline]
fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        let part = u64::from(byte & 0x7f);
        if index == 9 && *byte > 1 {
            return None;
        }
        value |= part << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Small numbers for numbers near 0: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The reverse.
#[inline]
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(values: Vec<u64>) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| put(*value >> (*value % 64), &mut bytes));
            let mut rest = &bytes[..];
            for value in values {
                prop_assert_eq!(take(&mut rest), Some(value >> (value % 64)));
            }
            prop_assert_eq!(take(&mut rest), None);
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while take(&mut rest).is_some() {}
        }

        #[test]
        fn signs_come_back(value: i64) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        let mut bytes = [0xff; 10];
        bytes[9] = 2;
        assert_eq!(take(&mut &bytes[..]), None);
        bytes[9] = 1;
        assert_eq!(take(&mut &bytes[..]), Some(u64::MAX));
    }
}
