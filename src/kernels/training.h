// Loops of the training step: products with F32 sums, causal attention and its gradient, and the element-wise parts.
// The factors of products are bfloat16 or, in the exact build, F32. Three builds of the same loops have bfloat16
// factors: portable, AVX-512 with its bfloat16 products, and AMX. Each call runs on one thread and is a pure function
// of its arguments; the caller cuts the work. (Attention without a stored matrix of probabilities: Dao et al., 2022,
// "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness".)
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

namespace millrace {

using Bf16 = uint16_t;

// Two factors that are neighbours along the summed axis of a product.
struct ExactPair {
  float low, high;
};
template <typename Factor>
using TrainingPair = std::conditional_t<std::is_same_v<Factor, Bf16>, uint32_t, ExactPair>;

// C [rows, columns] = or += A [rows, 2 * pairs] times B [2 * pairs, columns].
template <typename Factor>
struct TrainingProductOf {
  using Pair = TrainingPair<Factor>;
  const Pair* a = nullptr;
  int64_t a_row = 0, a_pair = 0;  // strides, in pairs
  const Pair* b = nullptr;        // panels of 32 columns, each [pairs][32]
  int64_t b_panel = 0;            // from one panel to the next, in pairs
  float* c = nullptr;
  int64_t c_row = 0;
  int64_t rows = 0, columns = 0, pairs = 0;  // rows and columns: multiples of 32; pairs: of 16
  bool add = false;
  int64_t c_panel = 32;  // from 32 columns to the next in C
  int64_t a_tile = 0;    // from 16 pairs to the next in A, with a_pair = 1; 0: 16
};

// The heads that share one key/value head, over one document. Rows of q, k, v, out and their gradients have a distance
// of `stride` values, the heads of a group a distance of `dim` values. Queries and keys are already rotated.
template <typename Factor>
struct TrainingAttentionOf {
  const Factor *q = nullptr, *k = nullptr, *v = nullptr;
  int64_t stride = 0, out_stride = 0;
  int64_t tokens = 0, heads = 0, dim = 0;  // dim: a multiple of 32
  Factor* out = nullptr;
  float* log_sums = nullptr;  // [tokens][log_stride], one for each head
  int64_t log_stride = 0;
  const Factor* d_out = nullptr;  // backward: gradient of out
  Factor *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
  const float *cosines = nullptr, *sines = nullptr;  // [tokens][dim / 2]: the gradients are rotated back
  float* scratch = nullptr;
};

// Moments of the gradient times `scale`, and a step of AdamW. (Kingma and Ba, 2015, "Adam".)
struct TrainingAdam {
  const float* gradient = nullptr;
  float *first = nullptr, *second = nullptr, *weights = nullptr;
  int64_t n = 0;
  float scale = 1, beta1 = 0, beta2 = 0, epsilon = 0;
  float step = 0, correction = 1;  // for the second moment
};

template <typename Factor>
struct TrainingKernelsOf {
  using Pair = TrainingPair<Factor>;
  const char* name;
  void (*product)(const TrainingProductOf<Factor>& p);
  void (*round)(const float* from, Factor* to, int64_t n);  // to nearest, ties to even
  // Panels for B of a product over the columns of `from` ([rows = B's columns], a multiple of 32); columns are a
  // multiple of 32 too, and the stride is even.
  void (*pack_columns)(const Factor* from, int64_t stride, int64_t rows, int64_t columns, Pair* panels);
  // Panels for a product over the rows of `from`, an even number; columns a multiple of 32. They serve as B, and as A
  // with a_row = 1, a_pair = 32 for the 32 rows of a panel.
  void (*pack_rows)(const Factor* from, int64_t stride, int64_t rows, int64_t columns, Pair* panels);
  // out = x / rms(x) * weight; returns 1 / rms.
  float (*norm)(const float* x, const float* weight, float epsilon, int64_t n, Factor* out);
  // dx += gradient through norm(); d_weight += its weight's.
  void (*norm_backward)(const float* x, const float* weight, float epsilon, const float* d_out, int64_t n, float* dx,
                        float* d_weight);
  // Gates, over a multiple of 32 values.
  void (*silu)(const float* gate, const float* up, int64_t n, Factor* out);
  void (*silu_backward)(const Factor* gate, const Factor* up, const float* d_out, int64_t n, Factor* d_gate,
                        Factor* d_up);
  void (*relu)(const float* gate, const float* up, int64_t n, Factor* out);
  void (*relu_backward)(const Factor* gate, const Factor* up, const float* d_out, int64_t n, Factor* d_gate,
                        Factor* d_up);
  // Rotates [dim / 2] pairs of halves by sign * angle, in place.
  void (*rotate)(float* x, const float* cosines, const float* sines, float sign, int64_t dim);
  // Loss of one row of logits; `best` receives the index of the largest. With d_logits: (softmax - target) * weight.
  float (*cross_entropy)(const float* logits, int64_t n, int64_t target, float weight, int64_t* best, Factor* d_logits);
  void (*mix)(float* x, float a, const float* y, float b, int64_t n);  // x = a * x + b * y
  double (*squares)(const float* x, int64_t n);                        // their sum
  void (*adam)(const TrainingAdam& a);
  void (*attend)(const TrainingAttentionOf<Factor>& a);
  void (*attend_backward)(const TrainingAttentionOf<Factor>& a);
};

using TrainingProduct = TrainingProductOf<Bf16>;
using TrainingAttention = TrainingAttentionOf<Bf16>;
using TrainingKernels = TrainingKernelsOf<Bf16>;
using ExactTrainingKernels = TrainingKernelsOf<float>;

// Floats of scratch that attend() and attend_backward() need for documents of up to `tokens`, for factors of either
// kind.
int64_t training_scratch(int64_t tokens, int64_t dim);

const TrainingKernels& portable_training_kernels();
const TrainingKernels& avx512_training_kernels();                  // x86-64 only; needs Feature::avx512_bf16
const TrainingKernels& amx_training_kernels();                     // x86-64 only; needs Feature::amx_bf16
const TrainingKernels& training_kernels();                         // the fastest
std::vector<const TrainingKernels*> available_training_kernels();  // those that this machine can run, the slowest first
const ExactTrainingKernels& exact_training_kernels();              // factors are not rounded; portable

}  // namespace millrace
