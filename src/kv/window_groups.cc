#include "kv/window_groups.h"

#include <map>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// The window before the oldest token of a step, the step's tokens, and parts of the first and the last block.
int64_t most_held(int64_t window, int64_t step, int64_t block_tokens) { return window - 1 + step + block_tokens; }

// The layers with this window alone.
KvLayout group_of(const KvLayout& layout, int64_t window, int64_t held) {
  KvLayout group = layout;
  group.windows.clear();
  group.window = window;
  group.most_held = held;
  for (KvLayer& layer : group.layers)
    if (layer.window != window || layer.kv_heads == 0) layer = {};
  return group;
}

void split(KvLayout& layout, int64_t context, int64_t step, bool all) {
  std::map<int64_t, int64_t> held;  // by window
  bool sees_all = false;            // some layer
  for (const KvLayer& layer : layout.layers) {
    const bool windowed = layer.window > 0 && layer.window < context;
    const int64_t most = windowed ? most_held(layer.window, step, layout.block_tokens) : context;
    if (most + kAttentionPartition < context || (all && windowed))
      held[layer.window] = std::min(most, context);
    else
      sees_all = true;
  }
  if (held.empty()) return;
  if (!sees_all) {
    layout.window = held.rbegin()->first;
    layout.most_held = held.rbegin()->second;
    held.erase(layout.window);
  }
  for (const auto& [window, most] : held) layout.windows.push_back(group_of(layout, window, most));
  for (KvLayer& layer : layout.layers)
    if (held.contains(layer.window)) layer = {};
}

}  // namespace

void split_windows(KvLayout& layout, int64_t context, int64_t step) { split(layout, context, step, false); }
void split_all_windows(KvLayout& layout, int64_t context, int64_t step) { split(layout, context, step, true); }

int64_t held_bytes(const KvLayout& layout, int64_t stored, int64_t tokens) {
  const auto of_group = [](const KvLayout& group, int64_t count) {
    return group.block_bytes() * group.tables() / group.block_tokens *
           (group.window > 0 ? std::min(count, group.most_held) : count);
  };
  int64_t bytes = of_group(layout, stored);
  for (const KvLayout& group : layout.windows) bytes += of_group(group, tokens);
  return bytes;
}

}  // namespace millrace
