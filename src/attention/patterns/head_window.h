// HeadWindow: how far back one head sees, in blocks (attention/patterns/semsa.cc).
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

struct HeadWindow {
  int64_t alpha = 1;  // blocks, including the query's block
  int64_t beta = 0;   // additional blocks, in percent of the blocks before the query's block

  // Returns the number of blocks in the head's window: the query's block and the blocks just before it.
  int64_t blocks(int64_t query_block) const { return alpha + query_block * beta / 100; }
  std::string text() const { return std::to_string(alpha) + (beta > 0 ? "+" + std::to_string(beta) : ""); }
};

}  // namespace millrace
