// NpuDevice: a processor for products of int8 matrices with a fixed number of rows. A graph is prepared once for a
// matrix and a number of rows, and then runs any number of times, for any chunk of any prompt: what llm.npu calls a
// chunk-sharing graph (Xu et al., 2024, section 3.2).
//
//   threads     a thread group that computes the products; the only device that passes run on
//   npu_model   the paper's NPU as a cost model in virtual time; nothing is computed
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/int8_matrix.h"

namespace millrace {

struct NpuShape {
  int64_t rows = 0;     // rows of inputs: tokens of a chunk
  int64_t inputs = 0;   // columns of the matrix
  int64_t outputs = 0;  // rows of the matrix
};

// The inputs and outputs of one run of a graph.
struct NpuChunk {
  const int8_t* levels = nullptr;  // [rows][int8_input_bytes(inputs)]
  const int32_t* sums = nullptr;   // [rows], Int8InputSum::sum
  float* const* y = nullptr;       // [rows] rows of `outputs` floats; null: the row is padding
};

class NpuDevice {
 public:
  virtual ~NpuDevice() = default;

  virtual std::string_view name() const = 0;
  // Seconds that preparing a graph of this shape takes, and that one run of it takes.
  virtual double prepare_seconds(const NpuShape& shape) const = 0;
  virtual double run_seconds(const NpuShape& shape) const = 0;
};

// The thread group. Its products are exact, so that a row's bits do not depend on the other rows of its chunk, on
// padding, or on the number of threads.
class NpuThreads final : public NpuDevice {
 public:
  // `pool` must outlive the device; the caller holds its turn during run().
  NpuThreads(const Int8Kernels& kernels, ThreadPool& pool) : kernels_(&kernels), pool_(&pool) {}

  std::string_view name() const override { return "threads"; }
  double prepare_seconds(const NpuShape&) const override { return 0; }  // weights are packed before
  double run_seconds(const NpuShape& shape) const override;

  // Returns the number of the graph. `matrix` must outlive the device. `input_scale`: value of one level of the inputs.
  int prepare(const Int8Matrix& matrix, int64_t rows, float input_scale);
  int64_t graphs() const { return std::ssize(graphs_); }
  // Runs the graph for each of the chunks.
  void run(int graph, std::span<const NpuChunk> chunks);

 private:
  struct Graph {
    const Int8Matrix* matrix;
    int64_t rows;
    float scale;
  };
  const Int8Kernels* kernels_;
  ThreadPool* pool_;
  std::vector<Graph> graphs_;
};

}  // namespace millrace
