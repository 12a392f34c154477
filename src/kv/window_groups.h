// Window groups: layers that see only the newest keys of a stream have their own blocks (KvLayout::windows). A stream
// can return the blocks there that no later token sees, while the layers that see everything keep theirs. All functions
// are pure.
//
//   blocks of a stream    every layer sees all   [0][1][2][3][4][5][6][7]
//                         window                  .  .  .  . [0][1][2][3]     . given back: no block
//
// Slots are counted alike in every group, and attention cuts keys into partitions by slot, so nothing else changes.
// Kernels do not read keys behind a window (AttentionArgs), and results keep their bits. A stream that drops tokens
// (token_eviction.h) drops them only from the first group. There its slots move up; in the others a slot is still the
// position in the text:
//
//   slots of layers that see all      0 1 2 3 4 5        tokens 0 1 6 7 8 9: four were dropped
//   slots of layers with a window     0 1 2 ... 8 9      every token, blocks behind the window given back
#pragma once

#include <algorithm>

#include "kv/pool.h"

namespace millrace {

// Puts layers with a window into groups, one for each length of window, if streams of `context` tokens that run at most
// `step` tokens at once then hold fewer blocks. If every layer has such a window, the layers with the largest one are
// the first group.
void split_windows(KvLayout& layout, int64_t context, int64_t step);
// Variant that puts every layer with a window shorter than `context` into such a group, even if that saves nothing.
void split_all_windows(KvLayout& layout, int64_t context, int64_t step);

// Bytes of one stream of `tokens` tokens that stores `stored` of them, on average over layers with their own blocks.
// Layers with a window, if they are groups, store the newest tokens, even those that the stream has dropped elsewhere.
int64_t held_bytes(const KvLayout& layout, int64_t stored, int64_t tokens);

// Leading blocks that the token in `slot`, and later ones, do not see.
inline int64_t dead_blocks(int64_t slot, int64_t window, int64_t block_tokens) {
  return window > 0 ? std::max<int64_t>(0, slot + 1 - window) / block_tokens : 0;
}

}  // namespace millrace
