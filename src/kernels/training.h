// Loops of the training step: products with F32 sums, causal attention and its gradient, and the element-wise parts.
// The factors of products are bfloat16 or, in the exact build, F32. Three builds of the same loops have bfloat16
// factors: portable, AVX-512 with its bfloat16 products, and AMX. Each call runs on one thread and depends only on its
// arguments; the caller splits the work. (Attention does not store a matrix of probabilities: Dao et al., 2022,
// "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness".)
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

namespace millrace {

using Bf16 = uint16_t;

// Two factors that are adjacent along the summed axis of a product.
struct ExactPair {
  float low, high;
};
template <typename Factor>
using TrainingPair = std::conditional_t<std::is_same_v<Factor, Bf16>, uint32_t, ExactPair>;

// Arguments of a product: C [rows, columns] = A [rows, 2 * pairs] times B [2 * pairs, columns], or, if `add`, C += A
// times B.
template <typename Factor>
struct TrainingProductOf {
  using Pair = TrainingPair<Factor>;
  const Pair* a = nullptr;
  int64_t a_row = 0, a_pair = 0;  // strides of A, in pairs
  const Pair* b = nullptr;        // panels of 32 columns, each [pairs][32]
  int64_t b_panel = 0;            // stride of the panels, in pairs
  float* c = nullptr;
  int64_t c_row = 0;
  int64_t rows = 0, columns = 0, pairs = 0;  // rows and columns: multiples of 32; pairs: a multiple of 16
  bool add = false;
  int64_t c_panel = 32;  // floats from 32 columns of C to the next 32
  int64_t a_tile = 0;    // if a_pair is 1: stride from 16 pairs of A to the next 16; 0: 16
};

// Arguments of attention for the heads that share one key/value head, over one document. q, k, v and their gradients
// have `stride` values from row to row; out has out_stride. Heads of the group have `dim` values from one to the next.
// Queries and keys are already rotated.
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
  const float *cosines = nullptr, *sines = nullptr;  // [tokens][dim / 2], for rotating the gradients back
  float* scratch = nullptr;
};

// Arguments of a step of AdamW. It updates the moments with the gradient times `scale`. (Kingma and Ba, 2015, "Adam".)
struct TrainingAdam {
  const float* gradient = nullptr;
  float *first = nullptr, *second = nullptr, *weights = nullptr;
  int64_t n = 0;
  float scale = 1, beta1 = 0, beta2 = 0, epsilon = 0;
  float step = 0, correction = 1;  // correction: of the second moment's bias
};

template <typename Factor>
struct TrainingKernelsOf {
  using Pair = TrainingPair<Factor>;
  const char* name;
  void (*product)(const TrainingProductOf<Factor>& p);
  void (*round)(const float* from, Factor* to, int64_t n);  // to nearest, ties to even
  // Packs `from` as B of a product that sums over the columns of `from`. `rows`: B's columns, a multiple of 32.
  // `columns`: a multiple of 32. `stride`: even.
  void (*pack_columns)(const Factor* from, int64_t stride, int64_t rows, int64_t columns, Pair* panels);
  // Packs `from` for a product that sums over the rows of `from`. `rows`: even. `columns`: a multiple of 32. The panels
  // can be used as B, and, with a_row = 1 and a_pair = 32, as 32 rows of A.
  void (*pack_rows)(const Factor* from, int64_t stride, int64_t rows, int64_t columns, Pair* panels);
  // Computes out = x / rms(x) * weight. Returns 1 / rms(x).
  float (*norm)(const float* x, const float* weight, float epsilon, int64_t n, Factor* out);
  // Adds the gradient of norm()'s input to dx, and that of its weight to d_weight.
  void (*norm_backward)(const float* x, const float* weight, float epsilon, const float* d_out, int64_t n, float* dx,
                        float* d_weight);
  // Gated activations and their gradients. n: a multiple of 32.
  void (*silu)(const float* gate, const float* up, int64_t n, Factor* out);
  void (*silu_backward)(const Factor* gate, const Factor* up, const float* d_out, int64_t n, Factor* d_gate,
                        Factor* d_up);
  void (*relu)(const float* gate, const float* up, int64_t n, Factor* out);
  void (*relu_backward)(const Factor* gate, const Factor* up, const float* d_out, int64_t n, Factor* d_gate,
                        Factor* d_up);
  // Rotates dim / 2 pairs (i, i + dim / 2) by sign * angle, in place.
  void (*rotate)(float* x, const float* cosines, const float* sines, float sign, int64_t dim);
  // Returns the loss of one row of logits. `best` receives the index of the largest logit. If d_logits is not null, it
  // receives (softmax - target) * weight.
  float (*cross_entropy)(const float* logits, int64_t n, int64_t target, float weight, int64_t* best, Factor* d_logits);
  void (*mix)(float* x, float a, const float* y, float b, int64_t n);  // x = a * x + b * y
  double (*squares)(const float* x, int64_t n);                        // returns the sum of x^2
  void (*adam)(const TrainingAdam& a);
  void (*attend)(const TrainingAttentionOf<Factor>& a);
  void (*attend_backward)(const TrainingAttentionOf<Factor>& a);
};

using TrainingProduct = TrainingProductOf<Bf16>;
using TrainingAttention = TrainingAttentionOf<Bf16>;
using TrainingKernels = TrainingKernelsOf<Bf16>;
using ExactTrainingKernels = TrainingKernelsOf<float>;

// Returns the floats of scratch that attend() and attend_backward() need for documents of up to `tokens` tokens, for
// both types of factors.
int64_t training_scratch(int64_t tokens, int64_t dim);

const TrainingKernels& portable_training_kernels();
const TrainingKernels& avx512_training_kernels();                  // x86-64 only; needs Feature::avx512_bf16
const TrainingKernels& amx_training_kernels();                     // x86-64 only; needs Feature::amx_bf16
const TrainingKernels& training_kernels();                         // the fastest for this machine
std::vector<const TrainingKernels*> available_training_kernels();  // those that this machine can run, the slowest first
const ExactTrainingKernels& exact_training_kernels();              // factors are not rounded; portable

}  // namespace millrace
