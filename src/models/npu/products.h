// NpuProducts: the products of prompts on an int8 device, with outliers computed in float in its shadow (Xu et al.,
// 2024, "Fast On-device LLM Inference with NPUs", llm.npu). A hook of the passes that have rows of prompts.
//
//   rows of a prompt     0 ............ 255 | 256 ............ 511 | 512 ... 530 0 0 0 0     chunks at multiples of 256
//     levels       --> device: the matrix's graph, once a chunk --> y
//     residuals    --> float:  hot columns of the matrix        --> y +=
//   rows of answers      the model's own products
//
// If the device has threads of its own (NpuOptions::threads), rounding, graphs and outliers of a product's chunks are
// subgraphs on two groups of threads (groups.h).
//
// A row's bits depend on its inputs and the calibration alone: products are exact integers, and residuals are added in
// the order of their channels, hot ones first. Not thread-safe; runs between a pass's parallel parts.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/forward_hooks.h"
#include "models/forward_sizes.h"
#include "models/npu/device.h"
#include "models/npu/groups.h"
#include "models/npu/matrices.h"

namespace millrace {

// Sums over all passes.
struct NpuCounts {
  int64_t runs = 0;      // runs of graphs
  int64_t rows = 0;      // rows of inputs in these runs
  int64_t padding = 0;   // rows that were padding
  int64_t outliers = 0;  // residuals
  int64_t cold = 0;      // residuals of other than hot channels
};

class NpuProducts final : public LinearWrapper {
 public:
  // Returns an upper limit of the bytes that create() allocates.
  static int64_t bytes(const Model& model, const ForwardLimits& limits);
  // limits.switches.npu must be set. `model`, `kernels` and `pool` must outlive the result. Errors: user (a calibration
  // of another model), unsupported (weights that are read during passes; no calibration of an encoder), resource.
  static Result<std::unique_ptr<NpuProducts>> create(const Model& model, const KernelTable& kernels,
                                                     std::shared_ptr<ThreadPool> pool, const ForwardLimits& limits);

  // Called before a pass. Returns true if the batch has rows of prompts, so that the pass needs the hook.
  bool begin(const Batch& batch);

  bool wraps(const LinearId& id) const override { return matrices_.find(id) != nullptr; }
  bool replaces(const LinearId&) const override { return true; }
  void apply(const LinearCall& call) override;
  void keep(std::span<const int32_t> rows) override;
  void part() override { parted_ = places_; }
  void rejoin(std::span<const int32_t> rows) override {
    restore();
    keep(rows);
  }
  void restore();  // to the rows at the last part()

  const NpuMatrices& matrices() const { return matrices_; }
  const NpuCounts& counts() const { return counts_; }

 private:
  // The place of a row of the batch.
  struct Place {
    int64_t chunk = -1;  // number of the prompt's chunk; -1: a row of an answer
    int32_t stream = 0;  // span of the batch
    int32_t offset = 0;  // row of the chunk
  };
  // Consecutive rows of the batch in one chunk, or consecutive rows of answers.
  struct Piece {
    int64_t begin = 0, count = 0;
  };
  struct Encoded {  // the inputs that the buffers hold
    NpuInput input;
    const float* x = nullptr;
  };

  // The chunks of one product that the buffers hold, and some of them.
  struct Work {
    const LinearCall& call;
    const NpuMatrix& matrix;
    std::span<const Piece> pieces;
    int graph;
  };

  NpuProducts(const KernelTable& kernels, std::shared_ptr<ThreadPool> pool, std::unique_ptr<NpuGroups> groups);
  Result<void> allocate(const Model& model, const ForwardLimits& limits);
  void find_pieces();
  void own_products(const LinearCall& call, std::span<const Piece> pieces);
  void place_rows(const Work& work);
  void run_together(const Work& work, bool encoded);
  void run_apart(const Work& work, bool encoded);
  // Chunks [begin, end) of the work:
  void encode(const Work& work, int64_t begin, int64_t end);
  void run_graph(const Work& work, int64_t begin, int64_t end);
  void add_shadows(const Work& work, int64_t begin, int64_t end);
  void add_terms(const Work& work, int64_t begin, int64_t end);
  void add_cold(const Work& work, int64_t begin, int64_t end);

  const KernelTable& kernels_;
  const Int8Kernels& int8_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<NpuGroups> groups_;  // null: the pass's threads run the graphs
  NpuThreads device_;
  NpuMatrices matrices_;
  std::map<LinearId, int> graphs_;
  int64_t chunk_ = 0;
  NpuOrder order_ = NpuOrder::out_of_order;
  int64_t chunks_at_once_ = 0;  // that the buffers hold

  std::vector<Place> places_, kept_, parted_;  // by row of the pass
  std::vector<Piece> prompts_, answers_;
  std::optional<Encoded> encoded_;
  AlignedBuffer levels_, own_rows_;
  // By row of the chunks, chunk after chunk:
  std::vector<int64_t> row_at_;  // row of the pass; -1: padding
  std::vector<int32_t> sums_;
  std::vector<float*> outputs_;
  std::vector<std::vector<Int8Outlier>> outliers_;
  std::vector<std::vector<Int8Term>> terms_;
  std::vector<std::vector<Int8Outlier>> found_;  // by worker
  NpuCounts counts_;
};

}  // namespace millrace
