//! A drawing of characters: lines of braille dots, eight in each character, with signs on top.

/// Bits of the dots of a braille character, by row and column.
const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

/// A drawing. Places are from 0 to 1, to the right and upwards.
pub struct Canvas {
    columns: usize,
    rows: usize,
    dots: Vec<u8>,
    signs: Vec<Option<char>>,
}

impl Canvas {
    pub fn new(columns: usize, rows: usize) -> Canvas {
        let cells = columns * rows;
        Canvas { columns, rows, dots: vec![0; cells], signs: vec![None; cells] }
    }

    /// Draws a line, with only each `every`-th dot set.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), every: usize) {
        let (x0, y0) = self.dot(from);
        let (x1, y1) = self.dot(to);
        let steps = x0.abs_diff(x1).max(y0.abs_diff(y1)).max(1);
        for step in (0..=steps).filter(|step| step % every == 0) {
            let between = |a: usize, b: usize| {
                (a as f64 + (b as f64 - a as f64) * step as f64 / steps as f64).round() as usize
            };
            let (x, y) = (between(x0, x1), between(y0, y1));
            self.dots[y / 4 * self.columns + x / 2] |= DOTS[y % 4][x % 2];
        }
    }

    /// Puts a sign at a place.
    pub fn sign(&mut self, at: (f64, f64), sign: char) {
        let (x, y) = self.dot(at);
        self.signs[y / 4 * self.columns + x / 2] = Some(sign);
    }

    /// The column of a place.
    pub fn column(&self, x: f64) -> usize {
        self.dot((x, 0.0)).0 / 2
    }

    /// The row of a place, counted from the top.
    pub fn row(&self, y: f64) -> usize {
        self.dot((0.0, y)).1 / 4
    }

    /// The rows as text, from the top.
    pub fn lines(&self) -> Vec<String> {
        let cell = |at: usize| match (self.signs[at], self.dots[at]) {
            (Some(sign), _) => sign,
            (None, 0) => ' ',
            (None, dots) => char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' '),
        };
        (0..self.rows).map(|row| (row * self.columns..(row + 1) * self.columns).map(cell).collect()).collect()
    }

    /// The dot of a point, counted from the left and from the top.
    fn dot(&self, (x, y): (f64, f64)) -> (usize, usize) {
        let across = (x.clamp(0.0, 1.0) * (self.columns * 2 - 1) as f64).round() as usize;
        let down = ((1.0 - y.clamp(0.0, 1.0)) * (self.rows * 4 - 1) as f64).round() as usize;
        (across, down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagonal_goes_from_corner_to_corner() {
        let mut canvas = Canvas::new(4, 2);
        canvas.line((0.0, 0.0), (1.0, 1.0), 1);
        assert_eq!(canvas.lines(), ["  ⡠⠊", "⡠⠊  "]);
        canvas.sign((1.0, 1.0), 'A');
        assert_eq!(canvas.lines()[0], "  ⡠A");
    }
}
