//! Finding the least value of a function without derivatives.

/// The end of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Minimum {
    /// The point, with each coordinate within its bounds.
    pub point: Vec<f64>,
    /// The function's value there.
    pub value: f64,
    /// The number of calls of the function.
    pub calls: usize,
    /// Whether the search ended because the simplex had shrunk, and not because the calls were used
    /// up.
    pub converged: bool,
}

/// Searches for the least value of `function` within `bounds` from `start`, by the simplex method
/// of Nelder and Mead (Computer Journal 7(4), 1965); points beyond the bounds are moved to them.
/// The first simplex reaches `reach` (0..1) of each range. It ends after `calls_max` calls, or when
/// no coordinate differs by more than `tolerance` of its range.
pub fn minimum(
    bounds: &[(f64, f64)],
    start: &[f64],
    reach: f64,
    tolerance: f64,
    calls_max: usize,
    mut function: impl FnMut(&[f64]) -> f64,
) -> Minimum {
    // All work is done in the unit cube.
    let place = |unit: &[f64]| -> Vec<f64> {
        unit.iter().zip(bounds).map(|(u, (low, high))| low + u.clamp(0.0, 1.0) * (high - low)).collect()
    };
    let mut calls = 0;
    let mut value = |unit: &mut Vec<f64>| {
        unit.iter_mut().for_each(|u| *u = u.clamp(0.0, 1.0));
        calls += 1;
        (function(&place(unit)), calls)
    };
    let first: Vec<f64> = start
        .iter()
        .zip(bounds)
        .map(|(x, (low, high))| if high > low { (x - low) / (high - low) } else { 0.0 })
        .collect();
    let mut simplex: Vec<(f64, Vec<f64>)> = Vec::new();
    for corner in 0..=bounds.len() {
        let mut unit = first.clone();
        if let Some(u) = corner.checked_sub(1).map(|axis| &mut unit[axis]) {
            *u += if *u + reach <= 1.0 { reach } else { -reach };
        }
        simplex.push((value(&mut unit).0, unit));
    }
    let mut spent = simplex.len();
    let converged = loop {
        simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
        if size(&simplex) <= tolerance {
            break true;
        }
        if spent >= calls_max {
            break false;
        }
        spent = step(&mut simplex, &mut value);
    };
    let (value, unit) = simplex.swap_remove(0);
    Minimum { point: place(&unit), value, calls: spent, converged }
}

/// One step: reflects the worst corner, and stretches or shrinks; returns the calls so far.
fn step(simplex: &mut [(f64, Vec<f64>)], value: &mut impl FnMut(&mut Vec<f64>) -> (f64, usize)) -> usize {
    let worst = simplex.len() - 1;
    let along = |simplex: &[(f64, Vec<f64>)], far: f64| -> Vec<f64> {
        let others = &simplex[..worst];
        (0..worst)
            .map(|axis| {
                let middle = others.iter().map(|corner| corner.1[axis]).sum::<f64>() / worst as f64;
                middle + far * (simplex[worst].1[axis] - middle)
            })
            .collect()
    };
    let mut try_at = |simplex: &[(f64, Vec<f64>)], far: f64| {
        let mut unit = along(simplex, far);
        let (value, calls) = value(&mut unit);
        (value, unit, calls)
    };
    let (reflected, unit, mut calls) = try_at(simplex, -1.0);
    if reflected < simplex[0].0 {
        let (stretched, further, spent) = try_at(simplex, -2.0);
        simplex[worst] = if stretched < reflected { (stretched, further) } else { (reflected, unit) };
        return spent;
    }
    if reflected < simplex[worst - 1].0 {
        simplex[worst] = (reflected, unit);
        return calls;
    }
    let far = if reflected < simplex[worst].0 { -0.5 } else { 0.5 };
    let (shrunk, nearer, spent) = try_at(simplex, far);
    calls = calls.max(spent);
    if shrunk < simplex[worst].0.min(reflected) {
        simplex[worst] = (shrunk, nearer);
        return calls;
    }
    let best = simplex[0].1.clone();
    for corner in &mut simplex[1..] {
        corner.1.iter_mut().zip(&best).for_each(|(u, best)| *u = 0.5 * (*u + best));
        (corner.0, calls) = value(&mut corner.1);
    }
    calls
}

/// The largest difference in any coordinate.
fn size(simplex: &[(f64, Vec<f64>)]) -> f64 {
    let best = &simplex[0].1;
    simplex
        .iter()
        .flat_map(|corner| corner.1.iter().zip(best).map(|(a, b)| (a - b).abs()))
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_bottom_of_a_bent_valley() {
        // Rosenbrock's.
        let valley = |x: &[f64]| (1.0 - x[0]).powi(2) + 100.0 * (x[1] - x[0] * x[0]).powi(2);
        let found = minimum(&[(-2.0, 2.0), (-1.0, 3.0)], &[-1.2, 1.0], 0.1, 1e-7, 1000, valley);
        assert!(found.converged && (found.point[0] - 1.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let function = |x: &[f64]| {
            assert!((0.5..=2.0).contains(&x[0]) && (-1.0..=1.0).contains(&x[1]), "{x:?}");
            x[0] + x[1] * x[1]
        };
        let found = minimum(&[(0.5, 2.0), (-1.0, 1.0)], &[2.0, 1.0], 0.3, 1e-6, 500, function);
        assert!((found.point[0] - 0.5).abs() < 1e-4 && found.point[1].abs() < 1e-2, "{found:?}");
    }

    #[test]
    fn it_ends_when_the_calls_are_spent() {
        let found = minimum(&[(0.0, 1.0)], &[0.2], 0.1, 0.0, 20, |x| x[0].sin());
        assert!(!found.converged && found.calls <= 22);
    }
}
