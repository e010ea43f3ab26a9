//! Memory has contents larger than its size, and stays within its limit.

use crate::rig::{Allowed, BLOCK, Rig, content};
use terapage_store::{Packed, Store};

const LIMIT: u64 = 4 << 20;

#[test]
fn what_was_written_is_read() {
    for seed in 0..8 {
        println!("seed {seed}");
        // As many blocks as would fit if none compressed.
        let Some(mut rig) = Rig::new(Packed::new(BLOCK, LIMIT, false).unwrap(), seed) else { return };
        rig.against_a_map(900, 2000, Allowed::default());
    }
}

#[test]
fn what_finds_no_room_or_does_not_compress_fails() {
    for choosy in [false, true] {
        for seed in 0..4 {
            println!("seed {seed}, choosy {choosy}");
            let Some(mut rig) = Rig::new(Packed::new(BLOCK, LIMIT, choosy).unwrap(), seed) else { return };
            rig.against_a_map(4000, 4000, Allowed { failures: true, flips: false });
            assert!(rig.store.used_bytes() <= LIMIT as usize);
        }
    }
}

#[test]
fn text_takes_less_and_noise_passes_by() {
    let Some(mut rig) = Rig::new(Packed::new(BLOCK, LIMIT, true).unwrap(), 1) else { return };
    rig.write(0, &content(4, 0)).unwrap();
    let text = rig.store.used_bytes();
    assert!(text < BLOCK / 4, "{text} bytes for a block of text");
    assert!(rig.write(1, &content(3, 1)).is_err(), "noise");
    assert_eq!(rig.store.used_bytes(), text);
    assert_eq!(rig.read(0).unwrap(), content(4, 0));
    assert!(rig.read(1).is_err());
    rig.store.forget(0..1);
    assert_eq!(rig.store.used_bytes(), 0);
}

#[test]
fn it_is_full_when_its_memory_is_and_then_has_room_again() {
    let Some(mut rig) = Rig::new(Packed::new(BLOCK, LIMIT, false).unwrap(), 1) else { return };
    while rig.store.slots() < 2000 {
        rig.store.grow().unwrap();
    }
    let fit = (0..2000).take_while(|&slot| rig.write(slot, &content(3, slot)).is_ok()).count() as u32;
    assert!((900..=1024).contains(&fit), "{fit} blocks of noise");
    for slot in 0..fit {
        assert_eq!(rig.read(slot).unwrap(), content(3, slot));
    }
    assert!(rig.store.wants_back(0), "its room is scarce when it is full");
    rig.store.forget(0..fit);
    assert!(!rig.store.wants_back(0), "and not when it is empty");
    let again = (0..2000).take_while(|&slot| rig.write(slot, &content(3, slot)).is_ok()).count() as u32;
    assert_eq!(again, fit);
}
