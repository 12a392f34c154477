// The matrix product that libtorch calls; see fast_sgemm.cc.
#pragma once

namespace millrace {

// True when oneDNN's is used. Calling it also makes the linker keep our `sgemm_`.
bool has_fast_sgemm();

}  // namespace millrace
