// What somebody who watches is told between two steps: who runs, who waits, and which block is whose.
//
//   pool's ids     0 1 2 3 4 5 6 7 8 ...
//   owner          - - 0 0 0 1 1 - -      the first stream that holds it
//   streams        0 0 2 2 1 1 1 0 0      that hold it
//   cached         . x x x . . . x .      the prefix index holds it too
//   as runs        1   1 2   1 2   1 1
#include <algorithm>

#include "engine/engine_core.h"

namespace millrace {

EngineLook EngineCore::look() {
  EngineLook look;
  const int64_t now = clock_->now_ns();
  if (!recorder_) recorder_ = std::make_unique<LookRecorder>(now);
  recorder_->take(now, look);
  look.now = static_cast<double>(now) * 1e-9;
  look.block_tokens = kv_->layout().block_tokens;
  look.swap_free_tokens = tier_ ? tier_->free_tokens() : 0;
  std::vector<const Sequence*> shown;
  const auto show = [&](const auto& streams) {
    for (const auto& stream : streams) {
      if (static_cast<int64_t>(shown.size()) < kMostLookStreams) shown.push_back(&stream->sequence);
      else ++look.streams_left_out;
    }
  };
  show(running_);
  show(leaving_);
  show(waiting_);
  for (const Sequence* s : shown) look.streams.push_back(looked_stream(*s));
  look_at_blocks(shown, look);
  return look;
}

void EngineCore::look_at_blocks(const std::vector<const Sequence*>& shown, EngineLook& look) const {
  const int64_t ids = kv_->ids();
  look.blocks_per_cell = std::max<int64_t>(1, (ids + kMostLookCells - 1) / kMostLookCells);
  std::vector<int16_t> owners(static_cast<size_t>(ids), -1);
  for (size_t i = shown.size(); i-- > 0;)
    for (const BlockId block : shown[i]->blocks) owners[static_cast<size_t>(block)] = static_cast<int16_t>(i);
  for (int64_t first = 0; first < ids; first += look.blocks_per_cell) {
    LookedCells cell{.count = 1};
    for (int64_t id = first; id < std::min(ids, first + look.blocks_per_cell); ++id) {
      const int64_t streams = holders_[static_cast<size_t>(id)];
      cell.cached |= kv_->references(static_cast<BlockId>(id)) > streams;
      if (streams <= cell.streams) continue;
      cell.streams = streams;
      cell.owner = owners[static_cast<size_t>(id)];
    }
    if (!look.cells.empty() && look.cells.back().same(cell)) ++look.cells.back().count;
    else look.cells.push_back(cell);
  }
}

}  // namespace millrace
