#include "engine/snapshot.h"

#include <algorithm>

namespace millrace {
namespace {

void add_cells(const std::vector<const Sequence*>& shown, const KvPool& pool, const BlockLedger& ledger,
               EngineSnapshot& snapshot) {
  const int64_t ids = pool.ids();
  snapshot.blocks_per_cell = std::max<int64_t>(1, (ids + kMaxSnapshotCells - 1) / kMaxSnapshotCells);
  std::vector<int16_t> owners(static_cast<size_t>(ids), -1);
  for (size_t i = shown.size(); i-- > 0;) {
    const KvState& kv = shown[i]->kv;
    for (auto b = static_cast<size_t>(kv.dead_blocks); b < kv.blocks.size(); ++b)
      owners[static_cast<size_t>(kv.blocks[b])] = static_cast<int16_t>(i);
    if (!kv.by_layer) continue;
    for (const WindowBlocks& layer : kv.windows)
      for (const BlockId block : layer.blocks) owners[static_cast<size_t>(block)] = static_cast<int16_t>(i);
  }
  for (int64_t first = 0; first < ids; first += snapshot.blocks_per_cell) {
    CellsSnapshot cell{.count = 1};
    for (int64_t id = first; id < std::min(ids, first + snapshot.blocks_per_cell); ++id) {
      const int64_t streams = ledger.holders(static_cast<BlockId>(id));
      cell.cached |= pool.references(static_cast<BlockId>(id)) > streams;
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

}  // namespace

EngineSnapshot take_snapshot(const LoopContext& loop, const StreamLists& lists, const BlockLedger& ledger,
                             SnapshotRecorder& recorder) {
  EngineSnapshot snapshot;
  const int64_t now = loop.now();
  recorder.take(now, snapshot);
  snapshot.now = static_cast<double>(now) * 1e-9;
  snapshot.block_tokens = loop.kv().layout().block_tokens;
  std::vector<const Sequence*> shown;
  const auto show = [&](const auto& streams) {
    for (const auto& stream : streams) {
      if (static_cast<int64_t>(shown.size()) < kMaxSnapshotStreams)
        shown.push_back(&stream->sequence);
      else
        ++snapshot.streams_left_out;
    }
  };
  show(lists.running());
  show(lists.leaving());
  show(lists.waiting());
  for (const Sequence* s : shown) snapshot.streams.push_back(stream_snapshot(*s));
  add_cells(shown, loop.kv(), ledger, snapshot);
  return snapshot;
}

}  // namespace millrace
