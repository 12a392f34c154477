#include "prompt/pruning_blocks.h"

namespace millrace {

std::vector<PruningBlock> pruning_blocks(const CompressionTask& task, std::span<const size_t> parts,
                                         std::span<const int64_t> keep) {
  std::vector<PruningBlock> out;
  const auto size = std::ssize(task.fixed);
  const auto is_fixed = [&](int64_t i) { return task.fixed[static_cast<size_t>(i)] != 0; };
  for (int64_t begin = 0, end = 0; begin < size; begin = end) {
    while (end < size && is_fixed(end) == is_fixed(begin)) ++end;
    if (is_fixed(begin)) {
      out.push_back({{}, end - begin});
      for (int64_t i = begin; i < end; ++i) out.back().tokens.push_back(i);
      continue;
    }
    for (size_t p = 0; p < parts.size(); ++p) {
      const TokenRange& part = task.parts[parts[p]];
      if (part.first < begin || part.first >= end) continue;
      out.push_back({{}, keep[p]});
      for (int64_t i = part.first; i < part.first + part.count; ++i) out.back().tokens.push_back(i);
    }
  }
  return out;
}

std::vector<PruningBlock> joined_blocks(const CompressionTask& task, std::vector<PruningBlock> blocks) {
  std::vector<PruningBlock> out;
  const auto is_fixed = [&](const PruningBlock& block) {
    return task.fixed[static_cast<size_t>(block.tokens.front())] != 0;
  };
  for (PruningBlock& block : blocks) {
    if (out.empty() || is_fixed(block) || is_fixed(out.back())) {
      out.push_back(std::move(block));
      continue;
    }
    out.back().tokens.insert(out.back().tokens.end(), block.tokens.begin(), block.tokens.end());
    out.back().keep += block.keep;
  }
  return out;
}

}  // namespace millrace
