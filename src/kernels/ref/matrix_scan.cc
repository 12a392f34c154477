// Reference of the scan whose state is a matrix: the gated delta rule (Yang, Kautz and Hatamizadeh, 2024, equation 10),
// and without the correction the scan of Mamba-2 (Dao and Gu, 2024). Sums in double; the state is rounded to float
// after every token, as it is stored.
#include "kernels/matrix_scan.h"

namespace millrace {
namespace {

void scan_matrices(const MatrixScanArgs& a) noexcept {
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* k = a.k + t * a.key_stride;
    const float* q = a.q + t * a.key_stride;
    const double decay = a.decay[t * a.rate_stride], rate = a.rate[t * a.rate_stride];
    for (int64_t c = 0; c < a.columns; ++c) {
      double held = 0, y = 0;
      for (int64_t n = 0; a.corrects && n < a.keys; ++n) held += static_cast<double>(a.state[n * a.columns + c]) * k[n];
      const double change = rate * (a.v[t * a.v_stride + c] - decay * held);
      for (int64_t n = 0; n < a.keys; ++n) {
        float& state = a.state[n * a.columns + c];
        state = static_cast<float>(decay * state + k[n] * change);
        y += static_cast<double>(state) * q[n];
      }
      a.y[t * a.y_stride + c] = static_cast<float>(y);
    }
  }
}

}  // namespace

MatrixScan matrix_scan_ref() { return scan_matrices; }

}  // namespace millrace
