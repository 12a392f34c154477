// Layers that take turns in the same memory, for pools whose keys and values do not fit. Blocks from number `resident`
// on have memory for kTurns layers only. Every layer has addresses for all of them, so that nothing that reads or
// writes a pool knows of this; the addresses of layers with the same turn lead to the same memory:
//
//   layer 0   [ resident blocks | other blocks ] ---.--> memory of turn 0
//   layer 1   [ resident blocks | other blocks ] -.-|--> memory of turn 1
//   layer 2   [ resident blocks | other blocks ] -|-'
//   layer 3   [ resident blocks | other blocks ] -'
//
// While a layer computes in its turn, the bytes of the next one are read into the other turn's memory
// (tiers/layer_file.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace millrace {

struct KvLayout;

inline constexpr int64_t kAllResident = INT64_MAX;

struct StagedLayers {
  static constexpr int64_t kTurns = 2;

  int64_t resident = kAllResident;
  std::vector<int8_t> turns;  // by layer; -1: the layer has memory for all blocks. Empty: all layers have it

  int64_t turn(int64_t layer) const { return turns.empty() ? -1 : turns[static_cast<size_t>(layer)]; }
};

// The turn of each layer: layers with keys and values of the model take turns, in their order.
std::vector<int8_t> layer_turns(const KvLayout& layout);
// Resident blocks and all blocks must be multiples of this number, so that memory can be mapped page by page.
int64_t staged_multiple(const KvLayout& layout, int64_t page_bytes);
// Bytes of the keys and values of `blocks` blocks, `resident` of which have memory in every layer.
int64_t staged_bytes(const KvLayout& layout, int64_t blocks, int64_t resident);

// Maps the memory of the turns to the addresses of blocks [resident, blocks) in `layers`, the buffers of the layout's
// layers. Buffers are aligned to pages; the turns' memory lives as long as a buffer has it mapped. Errors: resource,
// unsupported (a system without files in memory, more pieces than a process may map).
Result<StagedLayers> map_staged_layers(const KvLayout& layout, int64_t blocks, int64_t resident,
                                       const std::vector<uint8_t*>& layers);

}  // namespace millrace
