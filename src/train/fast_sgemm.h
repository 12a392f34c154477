// The matrix product that libtorch calls; see fast_sgemm.cc.
#pragma once

namespace millrace {

// True if oneDNN's is used. Calling it also makes the linker include our `sgemm_`.
bool has_fast_sgemm();

}  // namespace millrace
