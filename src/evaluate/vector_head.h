// VectorHead: dense layers between a text's pooled vector and its embedding, as sentence-transformers folders list them
// in modules.json ("2_Dense", "3_Dense") and EmbeddingGemma's GGUF files hold them (dense_2.weight, dense_3.weight):
//
//   pooled [width] -> W x + b, perhaps tanh -> ... -> [width()] -> normalized by the caller
//
// Sums are in double and sequential: the same bits on every instruction set. Immutable.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

class VectorHead {
 public:
  // Without layers if the files have none. `width`: values of the model's hidden states. Errors: corrupt (sizes),
  // unsupported (another activation function).
  static Result<VectorHead> read(const ModelFiles& files, int64_t width);

  bool empty() const { return layers_.empty(); }
  int64_t width() const { return width_; }  // values of an embedding
  // `values`: vectors of the model's width, one after the other; replaced by their embeddings.
  void apply(std::vector<float>& values) const;

 private:
  struct Layer {
    std::vector<float> weight;  // [rows, cols]
    std::vector<float> bias;    // [rows]; empty: none
    int64_t cols = 0;
    bool tanh = false;

    int64_t rows() const { return std::ssize(weight) / cols; }
    std::vector<double> run(std::span<const double> x) const;
  };
  static Result<Layer> read_module(const std::string& folder);
  Result<void> add(Layer layer, const std::string& source);

  std::vector<Layer> layers_;
  int64_t input_ = 0, width_ = 0;
};

}  // namespace millrace
