//! For fuzzing: unwind information of any bytes.

use super::image::Section;
use super::{Code, Image, rows};

/// Where the bytes are taken to lie.
const ADDRESS: u64 = 0x5000;

/// Makes a table of an `.eh_frame`, of a `.debug_frame` and of an ELF file of these bytes.
///
/// # Panics
/// The rows of a table are out of order.
pub fn unwind_information(bytes: &[u8]) {
    let section = || Some(Section { address: ADDRESS, bytes });
    let bare = || Image { base: 0x1000, text: 0x1000, ..Image::default() };
    let images = [
        Ok(Image { eh_frame: section(), ..bare() }),
        Ok(Image { debug_frame: section(), ..bare() }),
        Image::read(bytes),
    ];
    for image in images.into_iter().flatten() {
        let Ok(rows) = rows(&image, bytes) else { continue };
        assert!(rows.is_sorted_by(|a, b| a.pc < b.pc), "the kernel side looks rows up by halving");
    }
    if let Ok(code) = Code::read(bytes) {
        for offset in [0, 0x1000, 0x1fff, u64::MAX] {
            code.bias(0x7000_0000, offset);
        }
    }
}
