//! The present contents of a block device, by the signatures that file systems and others leave on
//! it.
//!
//! A device without signatures can be a store. A former store has none, except by chance: its first
//! bytes are a program's.

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// Bytes that identify a device's contents, their offset from its beginning, and the kind of
/// contents.
const SIGNATURES: [(u64, &[u8], &str); 19] = [
    (0, b"XFSB", "an xfs file system"),
    (65600, b"_BHRfS_M", "a btrfs file system"),
    (1024, &0xf2f5_2010_u32.to_le_bytes(), "an f2fs file system"),
    (3, b"NTFS    ", "an ntfs file system"),
    (3, b"EXFAT   ", "an exfat file system"),
    (54, b"FAT12   ", "a vfat file system"),
    (54, b"FAT16   ", "a vfat file system"),
    (82, b"FAT32   ", "a vfat file system"),
    (32769, b"CD001", "an iso9660 file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (24, b"LVM2 001", "an LVM2 physical volume"),
    (SECTOR + 24, b"LVM2 001", "an LVM2 physical volume"),
    (2 * SECTOR + 24, b"LVM2 001", "an LVM2 physical volume"),
    (3 * SECTOR + 24, b"LVM2 001", "an LVM2 physical volume"),
    (0, MD, "a member of a RAID (md)"),
    (4096, MD, "a member of a RAID (md)"),
    (SECTOR, b"EFI PART", "a GPT partition table"),
];

/// How a superblock of md begins, of versions 1.0 to 1.2.
const MD: &[u8] = &0xa92b_4efc_u32.to_le_bytes();

/// The contents of a device of `size` bytes, as in "has ...". `read` reads bytes from an offset on,
/// and returns their number.
pub(crate) fn found(size: u64, read: impl Fn(&mut [u8], u64) -> usize) -> Option<&'static str> {
    let at = |offset: u64, wanted: &[u8]| {
        let mut bytes = [0; 16];
        let bytes = &mut bytes[..wanted.len()];
        read(bytes, offset) == bytes.len() && bytes == wanted
    };
    let known = SIGNATURES.iter().find(|(offset, wanted, _)| at(*offset, wanted)).map(|(.., what)| *what);
    known.or_else(|| {
        // Version 1.0 has its superblock at the end: 8 KiB before it or a little more, at a
        // multiple of 4 KiB.
        let last = (size / SECTOR).checked_sub(16).map(|sector| sector / 8 * 8 * SECTOR);
        if last.is_some_and(|offset| at(offset, MD)) {
            return Some("a member of a RAID (md)");
        }
        let mut block = [0; 1024];
        if read(&mut block, 1024) == block.len() && is_ext(&block) {
            return Some("an ext2, ext3 or ext4 file system");
        }
        let mut sector = [0; SECTOR as usize];
        (read(&mut sector, 0) == sector.len() && is_partitioned(&sector)).then_some("a partition table")
    })
}

/// Whether this is a superblock of ext2, ext3 or ext4: its two bytes of signature also occur by
/// chance.
fn is_ext(block: &[u8; 1024]) -> bool {
    let word = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    let (inodes, blocks, block_shift, revision) = (word(0), word(4), word(24), word(76));
    block[56..58] == [0x53, 0xef] && inodes > 0 && blocks > 0 && block_shift <= 6 && revision <= 1
}

/// Whether this is a sector of a PC's partition table with a partition. Other sectors end in the
/// same two bytes.
fn is_partitioned(sector: &[u8; SECTOR as usize]) -> bool {
    let mut entries = sector[446..510].chunks_exact(16);
    let is_one = |entry: &[u8]| matches!(entry[0], 0 | 0x80);
    let is_used = |entry: &[u8]| entry[4] != 0 && entry[12..16] != [0; 4];
    sector[510..] == [0x55, 0xaa] && entries.clone().all(is_one) && entries.any(is_used)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1 << 20;

    /// The result for a device with these bytes.
    fn with(parts: &[(usize, &[u8])]) -> Option<&'static str> {
        let mut device = vec![0; SIZE];
        for (offset, bytes) in parts {
            device[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        on(&device)
    }

    fn on(device: &[u8]) -> Option<&'static str> {
        found(device.len() as u64, |bytes, offset| {
            let rest = device.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(bytes.len());
            bytes[..len].copy_from_slice(&rest[..len]);
            len
        })
    }

    #[test]
    fn signatures_are_found_where_they_are_and_nowhere_else() {
        for (offset, bytes, what) in SIGNATURES {
            let offset = offset as usize;
            assert_eq!(with(&[(offset, bytes)]), Some(what));
            assert_eq!(with(&[(offset + 1, bytes)]), None, "{what}");
            assert_eq!(with(&[(offset, &bytes[..bytes.len() - 1])]), None, "{what}");
        }
        assert_eq!(with(&[(SIZE - 8192, MD)]), Some("a member of a RAID (md)"));
    }

    #[test]
    fn what_is_empty_or_a_programs_can_be_a_store() {
        assert_eq!(with(&[]), None);
        assert_eq!(on(&[]), None);
        assert_eq!(on(&[0xff; 300]), None);
        assert_eq!(on(&[0xff; SIZE]), None);
        let counting: Vec<u8> = (0..SIZE as u64 / 8).flat_map(u64::to_le_bytes).collect();
        assert_eq!(on(&counting), None);
    }

    #[test]
    fn two_bytes_alone_say_nothing() {
        let ext = [(1080, &[0x53, 0xef][..]), (1024, &[8, 0, 0, 0, 64][..])];
        assert_eq!(with(&ext), Some("an ext2, ext3 or ext4 file system"));
        assert_eq!(with(&ext[..1]), None);
        assert_eq!(with(&[ext[0], ext[1], (1048, &[7][..])]), None);
        let end = (510, &[0x55, 0xaa][..]);
        let partition = (446, &[0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8][..]);
        assert_eq!(with(&[end, partition]), Some("a partition table"));
        assert_eq!(with(&[end]), None);
        assert_eq!(with(&[partition]), None);
        assert_eq!(with(&[end, partition, (462, &[7][..])]), None);
    }
}
