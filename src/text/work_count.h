// Units of work that tokenizers have done on this thread: bytes handled, table lookups and steps of patterns. Tests and
// fuzzers use it to compare the cost of texts of different length without a clock.
#pragma once

#include <cstdint>

namespace millrace {

[[gnu::tls_model("initial-exec")]] inline thread_local int64_t text_work = 0;  // also in the shared library

}  // namespace millrace
