// LabWorkspace: the data that all blocks of a pass share. A block works on chunks of kLabChunk rows. One thread works
// on a chunk, with its own buffers. Gradients of matrices are summed over slices of kLabSlice chunks, in order. So
// their factors are still in the cache, and the sums do not depend on the number of threads. Functions that take a
// chunk may run at the same time for different chunks and workers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/training.h"
#include "learn/lab_model.h"

namespace millrace {

constexpr int64_t kLabChunk = 64;  // rows of a chunk
constexpr int64_t kLabPanel = 32;  // columns of a packed panel
constexpr int64_t kLabSlice = 8;   // chunks of a slice

// A chunk of rows, and the thread that works on it.
struct LabChunk {
  int64_t index = 0;
  int worker = 0;
  int64_t row() const { return index * kLabChunk; }  // first row
};

// Factors of a matrix's gradient over the chunks of a slice, as panels. `left`: gradients of the outputs. `right`:
// inputs.
template <typename Factor>
struct LabFactors {
  std::vector<TrainingPair<Factor>> left, right;
};

// Buffers of one thread, each for one chunk.
template <typename Factor>
struct LabBuffers {
  std::vector<float> out;        // [kLabChunk, widest output of a block]
  std::vector<float> inner;      // [kLabChunk, widest MLP]
  std::vector<Factor> d_out;     // [kLabChunk, width]
  std::vector<Factor> d_inner;   // [kLabChunk, 2 * widest MLP]
  std::vector<float> attention;  // training_scratch()
};

template <typename Factor>
class LabWorkspace {
 public:
  // `model` and `threads` must outlive the workspace.
  LabWorkspace(LabModel& model, ThreadPool& threads, const TrainingKernelsOf<Factor>& loops)
      : pool(threads), kernels(loops), model_(model), buffers_(static_cast<size_t>(threads.threads())) {
    const ArchSpec& spec = model.spec();
    int64_t widest = spec.vocab, inner = kLabPanel, scratch = 0;
    for (const LayerSpec& layer : spec.layers) {
      widest = std::max({widest, qkv_rows(layer), spec.width});
      inner = std::max(inner, mlp_width(layer));
      scratch = std::max(scratch, training_scratch(spec.context, layer.head_dim));
    }
    for (LabBuffers<Factor>& one : buffers_) {
      one.out.resize(static_cast<size_t>(kLabChunk * widest));
      one.inner.resize(static_cast<size_t>(kLabChunk * inner));
      one.d_out.resize(static_cast<size_t>(kLabChunk * spec.width));
      one.d_inner.resize(static_cast<size_t>(kLabChunk * 2 * inner));
      one.attention.resize(static_cast<size_t>(scratch));
    }
  }

  int64_t width() const { return model_.spec().width; }
  const float* weight(const LabTensor& tensor) const { return model_.weights().data() + tensor.offset; }
  float* gradient(const LabTensor& tensor) { return model_.gradient().data() + tensor.offset; }
  LabBuffers<Factor>& buffers(int worker) { return buffers_[static_cast<size_t>(worker)]; }

  // Calls body(LabChunk) for each chunk of `rows` rows, on all threads. `rows`: a multiple of kLabChunk.
  template <typename Body>
  void in_chunks(int64_t rows, const Body& body) {
    chunks(0, rows / kLabChunk, body);
  }

  // Variant of in_chunks(). After the chunks of each slice, it calls finish(number of chunks in the slice) on one
  // thread.
  template <typename Body, typename Finish>
  void in_slices(int64_t rows, const Body& body, const Finish& finish) {
    const int64_t all = rows / kLabChunk;
    for (int64_t first = 0; first < all; first += kLabSlice) {
      const int64_t count = std::min(kLabSlice, all - first);
      chunks(first, count, body);
      finish(count);
    }
  }

  ThreadPool& pool;
  const TrainingKernelsOf<Factor>& kernels;
  std::array<LabFactors<Factor>, 3> factors;  // factors for up to three matrices at a time
  std::vector<float> norm_gradients;          // [chunks, width], gradients of one norm's weight at a time
  std::vector<Factor> d_mixed, d_qkv;         // gradients of one attention at a time
  std::vector<float> d_normed;                // [rows, width], gradients of a mixture's inputs

 private:
  template <typename Body>
  void chunks(int64_t first, int64_t count, const Body& body) {
    pool.parallel_for(count, [&](int64_t i, int worker) { body(LabChunk{first + i, worker}); });
  }

  LabModel& model_;
  std::vector<LabBuffers<Factor>> buffers_;
};

// Grows a buffer to at least `size` values.
template <typename T>
void grow(std::vector<T>& buffer, int64_t size) {
  if (std::ssize(buffer) < size) buffer.resize(static_cast<size_t>(size));
}

}  // namespace millrace
