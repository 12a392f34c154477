// sgemm_ for libtorch. Debian's libtorch calls the system's BLAS through the Fortran symbol `sgemm_`; with the
// reference BLAS (one scalar loop), training would be some twenty times slower than the machine allows. libtorch always
// includes oneDNN, whose C API has an sgemm generated for the current CPU, so this file defines `sgemm_` in the program
// (the program's symbol takes precedence over the library's) and forwards to it. Without oneDNN it falls back to the
// next `sgemm_` in the process. Thread-safety: stateless after the first call.
#include "train/fast_sgemm.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

namespace {

// oneDNN, row-major: C[M, N] = alpha * op(A)[M, K] * op(B)[K, N] + beta * C.
using DnnlSgemm = int (*)(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
using FortranSgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                              const int*, const float*, const int*, const float*, float*, const int*);

DnnlSgemm dnnl_sgemm() {
  static const auto found = reinterpret_cast<DnnlSgemm>(dlsym(RTLD_DEFAULT, "dnnl_sgemm"));
  return found;
}

}  // namespace

bool millrace::has_fast_sgemm() { return dnnl_sgemm() != nullptr; }

// A column-major Fortran product is the transposed row-major product: swap A with B and M with N.
extern "C" void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc) {
  const DnnlSgemm dnnl = dnnl_sgemm();
  static const auto next = reinterpret_cast<FortranSgemm>(dlsym(RTLD_NEXT, "sgemm_"));
  if (dnnl && dnnl(*transb, *transa, *n, *m, *k, *alpha, b, *ldb, a, *lda, *beta, c, *ldc) == 0) return;
  if (!next) std::abort();  // cannot happen: libtorch itself needs this symbol
  next(transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
