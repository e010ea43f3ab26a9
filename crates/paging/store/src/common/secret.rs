//! A key in a separate page, which is locked, and left out of core dumps.

use crate::Error;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::ptr::NonNull;
use terapage_sys::memory;

const KEY_BYTES: usize = 32;

/// A key for AES-256-GCM that exists in no other place.
pub(crate) struct Secret(NonNull<LessSafeKey>);

// SAFETY: this is the only pointer to the page.
unsafe impl Send for Secret {}

impl Secret {
    /// A new key, for the store `name`.
    ///
    /// # Errors
    /// There is no memory, or no random number.
    pub fn new(name: &str) -> Result<Secret, Error> {
        let no = |why: &str| Error::Unfit { name: name.to_owned(), why: why.to_owned() };
        let at = memory::reserve(SIZE).map_err(|source| Error::System { name: name.to_owned(), source })?;
        let at = NonNull::new(at).ok_or_else(|| no("has no memory for its key"))?;
        let (mut bytes, key) = ([0; KEY_BYTES], at.cast());
        let filled = SystemRandom::new().fill(&mut bytes);
        let made = UnboundKey::new(&AES_256_GCM, &bytes).map(LessSafeKey::new);
        // Not by an ordinary store, which the compiler may omit. SAFETY: the pointer is to this
        // array.
        unsafe { std::ptr::write_volatile(&mut bytes, [0; KEY_BYTES]) };
        let made = filled.and(made).map_err(|_| {
            no("cannot be encrypted: no random numbers are \
                                                    available")
        })?;
        // SAFETY: the page is fresh, large enough, and on an edge.
        unsafe { key.write(made) };
        let secret = Secret(key);
        secret.lock();
        Ok(secret)
    }

    /// As far as the process may lock memory.
    fn lock(&self) {
        // SAFETY: locking changes no bytes.
        unsafe { rustix::mm::mlock(self.0.as_ptr().cast(), SIZE) }.ok();
    }

    /// In the child of a fork, which has an unlocked copy.
    pub fn inherit(&self) {
        self.lock();
    }

    fn key(&self) -> &LessSafeKey {
        // SAFETY: written in `new`, and valid until it is dropped.
        unsafe { self.0.as_ref() }
    }

    /// Encrypts `bytes` in place, for a place in a store. Each call must have a different number.
    pub fn seal(&self, number: u64, place: u64, bytes: &mut [u8]) -> [u8; 16] {
        let aad = Aad::from(place.to_le_bytes());
        let tag = self.key().seal_in_place_separate_tag(nonce(number), aad, bytes);
        let tag = tag.expect("a block is not too long");
        tag.as_ref().try_into().expect("a tag has 16 bytes")
    }

    /// Decrypts `bytes` in place; `false` if they are not the sealed bytes.
    pub fn open(&self, number: u64, place: u64, tag: &[u8; 16], bytes: &mut [u8]) -> bool {
        let aad = Aad::from(place.to_le_bytes());
        self.key().open_in_place_separate_tag(nonce(number), aad, Tag::from(*tag), bytes, 0..).is_ok()
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Bytes of the key, which has its pages to itself.
const SIZE: usize = size_of::<LessSafeKey>();

impl Drop for Secret {
    fn drop(&mut self) {
        // SAFETY: the key is no longer used, and the pages belong only to it.
        unsafe {
            self.0.drop_in_place();
            self.0.cast::<u8>().write_bytes(0, SIZE);
            memory::unmap(self.0.as_ptr().cast(), SIZE).ok();
        }
    }
}
