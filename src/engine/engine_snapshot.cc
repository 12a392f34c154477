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

EngineSnapshot EngineCore::snapshot() {
  EngineSnapshot snapshot;
  const int64_t now = clock_->now_ns();
  if (!recorder_) recorder_ = std::make_unique<SnapshotRecorder>(now);
  recorder_->take(now, snapshot);
  snapshot.now = static_cast<double>(now) * 1e-9;
  snapshot.block_tokens = kv_->layout().block_tokens;
  snapshot.swap_free_tokens = tier_ ? tier_->free_tokens() : 0;
  std::vector<const Sequence*> shown;
  const auto show = [&](const auto& streams) {
    for (const auto& stream : streams) {
      if (static_cast<int64_t>(shown.size()) < kMaxSnapshotStreams)
        shown.push_back(&stream->sequence);
      else
        ++snapshot.streams_left_out;
    }
  };
  show(running_);
  show(leaving_);
  show(waiting_);
  for (const Sequence* s : shown) snapshot.streams.push_back(stream_snapshot(*s));
  add_cells(shown, snapshot);
  return snapshot;
}

void EngineCore::add_cells(const std::vector<const Sequence*>& shown, EngineSnapshot& snapshot) const {
  const int64_t ids = kv_->ids();
  snapshot.blocks_per_cell = std::max<int64_t>(1, (ids + kMaxSnapshotCells - 1) / kMaxSnapshotCells);
  std::vector<int16_t> owners(static_cast<size_t>(ids), -1);
  for (size_t i = shown.size(); i-- > 0;)
    for (const BlockId block : shown[i]->kv.blocks) owners[static_cast<size_t>(block)] = static_cast<int16_t>(i);
  for (int64_t first = 0; first < ids; first += snapshot.blocks_per_cell) {
    CellsSnapshot cell{.count = 1};
    for (int64_t id = first; id < std::min(ids, first + snapshot.blocks_per_cell); ++id) {
      const int64_t streams = holders_[static_cast<size_t>(id)];
      cell.cached |= kv_->references(static_cast<BlockId>(id)) > streams;
      if (streams <= cell.streams) continue;
      cell.streams = streams;
      cell.owner = owners[static_cast<size_t>(id)];
    }
    if (!snapshot.cells.empty() && snapshot.cells.back().same(cell))
      ++snapshot.cells.back().count;
    else
      snapshot.cells.push_back(cell);
  }
}

}  // namespace millrace
