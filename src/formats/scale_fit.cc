#include "formats/scale_fit.h"

namespace millrace {
namespace {

// Squared error of x under a fit when every value is rounded to its nearest q.
double affine_error(const float* x, int n, int levels, const float* weights, AffineScale fit) {
  double error = 0;
  float inverse = fit.scale > 0 ? 1.0f / fit.scale : 0.0f;
  for (int j = 0; j < n; ++j) {
    int q = round_clamped((x[j] + fit.minimum) * inverse, 0, levels);
    double difference = static_cast<double>(fit.scale) * q - fit.minimum - x[j];
    error += (weights ? weights[j] : 1.0) * difference * difference;
  }
  return error;
}

// The least-squares fit for the rounded values of `start`.
AffineScale refit(const float* x, int n, int levels, const float* weights, AffineScale start) {
  double sum = 0;  // of weights
  double sum_q = 0;
  double sum_qq = 0;
  double sum_x = 0;
  double sum_qx = 0;
  float inverse = 1.0f / start.scale;
  for (int j = 0; j < n; ++j) {
    double q = round_clamped((x[j] + start.minimum) * inverse, 0, levels);
    const double weight = weights ? weights[j] : 1.0;
    sum += weight;
    sum_q += weight * q;
    sum_qq += weight * q * q;
    sum_x += weight * x[j];
    sum_qx += weight * q * x[j];
  }
  double determinant = sum * sum_qq - sum_q * sum_q;
  if (determinant <= 0) return start;
  double scale = (sum * sum_qx - sum_q * sum_x) / determinant;
  double minimum = (sum_q * sum_qx - sum_qq * sum_x) / determinant;
  if (minimum < 0) {  // the grid cannot start above zero
    minimum = 0;
    scale = sum_qx / sum_qq;
  }
  if (!(scale > 0)) return start;
  return {static_cast<float>(scale), static_cast<float>(minimum)};
}

}  // namespace

AffineScale fit_affine(const float* x, int n, int levels, const float* weights) {
  float low = std::min(0.0f, *std::min_element(x, x + n));
  float high = *std::max_element(x, x + n);
  AffineScale best = {std::max(0.0f, high - low) / static_cast<float>(levels), -low};
  if (!(best.scale > 0) || !std::isfinite(1.0f / best.scale)) return {0.0f, -low};
  double best_error = affine_error(x, n, levels, weights, best);
  for (int t = -10; t <= 10; ++t) {
    AffineScale start = {(high - low) / (static_cast<float>(levels) + 0.1f * static_cast<float>(t)), -low};
    AffineScale fit = refit(x, n, levels, weights, start);
    if (!std::isfinite(1.0f / fit.scale)) continue;
    double error = affine_error(x, n, levels, weights, fit);
    if (error < best_error) {
      best_error = error;
      best = fit;
    }
  }
  return best;
}

}  // namespace millrace
