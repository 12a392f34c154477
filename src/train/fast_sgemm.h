// The matrix product that libtorch calls; see fast_sgemm.cc.
#pragma once

namespace millrace {

// Returns true if oneDNN's product is used. A call also makes the linker include our `sgemm_`.
bool has_fast_sgemm();

}  // namespace millrace
