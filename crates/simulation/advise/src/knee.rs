//! The knee of a curve of costs over budgets.
//!
//! Source: Satopaa, Albrecht, Irwin, Raghavan, "Finding a 'Kneedle' in a Haystack", ICDCS Workshops
//! 2011: the point that lies furthest below the line from the first to the last, both axes scaled
//! to 1.

/// The least distance of a knee below the line, as a share of the curve's height. Chosen, not
/// measured.
const LEAST: f64 = 0.1;

/// The index of the knee of a falling curve of (budget, cost), budgets ascending. `None` if the
/// curve has none: less memory then costs about in proportion, or only all of the memory helps.
pub fn knee(curve: &[(f64, f64)]) -> Option<usize> {
    let (&(from, high), &(to, low)) = (curve.first()?, curve.last()?);
    if to <= from || high <= low {
        return None;
    }
    let below = |&(x, y): &(f64, f64)| 1.0 - (x - from) / (to - from) - (y - low) / (high - low);
    let distances: Vec<f64> = curve.iter().map(below).collect();
    let at = (0..curve.len()).max_by(|&a, &b| distances[a].total_cmp(&distances[b]))?;
    (distances[at] >= LEAST).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::knee;

    #[test]
    fn the_corner_of_an_l_is_its_knee() {
        let curve: Vec<(f64, f64)> = (1..=10)
            .map(|x| (f64::from(x), if x < 4 { 50.0 - f64::from(x) } else { 2.0 / f64::from(x) }))
            .collect();
        assert_eq!(knee(&curve), Some(3));
    }

    #[test]
    fn straight_lines_and_cliffs_have_none() {
        let line: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), 10.0 - f64::from(x))).collect();
        assert_eq!(knee(&line), None);
        // A loop under LRU: all or nothing.
        let cliff: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), if x < 9 { 7.0 } else { 0.0 })).collect();
        assert_eq!(knee(&cliff), None);
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&[(1.0, 1.0)]), None);
    }
}
