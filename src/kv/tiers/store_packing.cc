#include "kv/tiers/store_packing.h"

#include <algorithm>
#include <numeric>

namespace millrace {

void pack_by_importance(std::vector<StagedBlock>& blocks) {
  // A block joins the chain of the first earlier block that is adjacent to it.
  std::vector<size_t> chain(blocks.size()), order(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    chain[i] = i;
    for (size_t j = i; j-- > 0;)
      if (blocks[j].parent == blocks[i].key || blocks[i].parent == blocks[j].key)
        chain[i] = std::min(chain[i], chain[j]);
  }
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return chain[a] != chain[b] ? chain[a] < chain[b] : blocks[a].importance > blocks[b].importance;
  });
  std::vector<StagedBlock> packed;
  packed.reserve(blocks.size());
  for (size_t i : order) packed.push_back(std::move(blocks[i]));
  blocks = std::move(packed);
}

}  // namespace millrace
