//! Estimates how well data determine the parameters that were fitted to them.

use terapage_figures::student;

/// The uncertainty of a fitted parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Uncertainty {
    /// The standard error; infinite if the data do not depend on the parameter.
    pub standard_error: f64,
    /// Half of the 95 % confidence interval, if the model is right and nearly linear.
    pub half_interval: f64,
}

/// Uncertainties of parameters and their correlations, from the residuals of a least-squares fit
/// and its Jacobian: by residual, then by parameter. The variance of the data is computed from the
/// residuals, and is at least `floor` squared (the effect of rounding alone). `None` if the data
/// cannot distinguish the parameters at all.
pub fn uncertainties(
    jacobian: &[Vec<f64>],
    residuals: &[f64],
    floor: f64,
) -> Option<(Vec<Uncertainty>, Vec<Vec<f64>>)> {
    let parameters = jacobian.first()?.len();
    let freedom = residuals.len().checked_sub(parameters).filter(|&freedom| freedom > 0)?;
    let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let variance = (squares / freedom as f64).max(floor * floor);
    let (inverse, lengths) = inverse_normal(jacobian)?;
    let error = |p: usize| (variance * inverse[p][p]).sqrt() / lengths[p];
    let uncertainties = (0..parameters)
        .map(|p| Uncertainty { standard_error: error(p), half_interval: student(freedom) * error(p) });
    let correlation = |a: usize, b: usize| inverse[a][b] / (inverse[a][a] * inverse[b][b]).sqrt();
    let correlations = (0..parameters).map(|a| (0..parameters).map(|b| correlation(a, b)).collect());
    Some((uncertainties.collect(), correlations.collect()))
}

/// The change of the parameters that minimises the sum of squared residuals (model less data) if
/// the model is linear: a Gauss-Newton step. `None` if the data cannot tell the parameters apart.
pub fn least_squares_step(jacobian: &[Vec<f64>], residuals: &[f64]) -> Option<Vec<f64>> {
    let (inverse, lengths) = inverse_normal(jacobian)?;
    let downhill: Vec<f64> = (0..lengths.len())
        .map(|p| {
            -jacobian.iter().zip(residuals).map(|(row, residual)| row[p] * residual).sum::<f64>() / lengths[p]
        })
        .collect();
    let step = |p: usize| inverse[p].iter().zip(&downhill).map(|(a, b)| a * b).sum::<f64>() / lengths[p];
    Some((0..lengths.len()).map(step).collect())
}

/// The inverse of the normal matrix of a Jacobian, and the lengths of its columns. The columns are
/// scaled to length 1 first, since parameters differ in size.
fn inverse_normal(jacobian: &[Vec<f64>]) -> Option<(Vec<Vec<f64>>, Vec<f64>)> {
    let parameters = jacobian.first()?.len();
    let lengths: Vec<f64> =
        (0..parameters).map(|p| jacobian.iter().map(|row| row[p] * row[p]).sum::<f64>().sqrt()).collect();
    if lengths.contains(&0.0) {
        return None;
    }
    let product = |a: usize, b: usize| {
        jacobian.iter().map(|row| row[a] * row[b]).sum::<f64>() / (lengths[a] * lengths[b])
    };
    let normal = (0..parameters).map(|a| (0..parameters).map(|b| product(a, b)).collect()).collect();
    Some((inverse(normal)?, lengths))
}

/// The inverse of a symmetric matrix, by Gauss and Jordan; `None` if the matrix is nearly singular.
fn inverse(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let n = matrix.len();
    let mut inverse: Vec<Vec<f64>> =
        (0..n).map(|a| (0..n).map(|b| f64::from(u8::from(a == b))).collect()).collect();
    for column in 0..n {
        let pivot =
            (column..n).max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        if matrix[pivot][column].abs() < 1e-10 {
            return None;
        }
        matrix.swap(column, pivot);
        inverse.swap(column, pivot);
        let factor = 1.0 / matrix[column][column];
        matrix[column].iter_mut().chain(inverse[column].iter_mut()).for_each(|x| *x *= factor);
        for row in (0..n).filter(|&row| row != column) {
            let factor = matrix[row][column];
            for b in 0..n {
                matrix[row][b] -= factor * matrix[column][b];
                inverse[row][b] -= factor * inverse[column][b];
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_has_the_errors_of_the_textbook() {
        // y = a + b x at x = 0..4, residuals of a known sum of squares.
        let jacobian: Vec<Vec<f64>> = (0..5).map(|x| vec![1.0, f64::from(x)]).collect();
        let residuals = [0.1, -0.2, 0.1, 0.2, -0.2];
        let (found, correlations) = uncertainties(&jacobian, &residuals, 0.0).unwrap();
        let variance: f64 = residuals.iter().map(|r| r * r).sum::<f64>() / 3.0;
        // Var b = s2 / Sxx = s2 / 10; Var a = s2 (1/5 + 4/10); corr = -xbar / sqrt(mean x2) = -2 /
        // sqrt 6.
        assert!((found[1].standard_error - (variance / 10.0).sqrt()).abs() < 1e-12);
        assert!((found[0].standard_error - (variance * 0.6).sqrt()).abs() < 1e-12);
        assert!((correlations[0][1] + 2.0 / 6.0f64.sqrt()).abs() < 1e-12);
        assert!((found[0].half_interval / found[0].standard_error - 3.182).abs() < 1e-12);
    }

    #[test]
    fn one_step_solves_a_linear_problem() {
        // The line through (0, 1), (1, 3), (2, 5), (3, 7) is 1 + 2 x; the model starts at 0 + 0 x.
        let jacobian: Vec<Vec<f64>> = (0..4).map(|x| vec![1.0, 100.0 * f64::from(x)]).collect();
        let step = least_squares_step(&jacobian, &[-1.0, -3.0, -5.0, -7.0]).unwrap();
        assert!((step[0] - 1.0).abs() < 1e-9 && (step[1] - 0.02).abs() < 1e-11, "{step:?}");
    }

    #[test]
    fn parameters_that_do_the_same_are_not_determined() {
        let jacobian: Vec<Vec<f64>> = (0..5).map(|x| vec![f64::from(x), 2.0 * f64::from(x)]).collect();
        assert!(uncertainties(&jacobian, &[0.1; 5], 0.0).is_none());
        assert!(uncertainties(&[vec![0.0], vec![0.0]], &[0.1; 2], 0.0).is_none());
        assert!(uncertainties(&[vec![1.0, 0.0], vec![0.0, 1.0]], &[0.1; 2], 0.0).is_none());
    }
}
