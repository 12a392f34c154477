// The built-in compression passes, one line each, and how they are made from text.
#include "base/choose.h"
#include "compress/factories.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

}  // namespace

// clang-format off
const Registry<PassFactory>& passes() {
  static const Registry<PassFactory> registry({.loss = Loss::lossy, .test = "src/compress/compress_model_test.cc", .proof = "docs/compression.md"}, {
      {{"pass", "gptq", "rounds each matrix column by column; later columns make up for the error of earlier ones",
        "Frantar et al., 2022, GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
        {{"format", Type::text, "q4_0", 0, 0, "number format of blocks: q4_0, q4_k, q3_k, q8_0 ..."},
         {"damp", Type::number, "0.01", 0, 10, "added to the diagonal of the second moments, times its mean"},
         {"order", Type::text, "stored", 0, 0, "order of columns: stored, or activation (largest inputs first)"},
         {"permute", Type::boolean, "false", 0, 0, "store the columns in that order, and permute inputs at run time"},
         {"clip", Type::integer, "0", 0, 16, "smaller scales tried per block, in steps of 1/32 of its largest value"}}},
       make_gptq_pass},
      {{"pass", "squeezellm", "gives each row of a matrix a table of weights, by k-means that counts the sizes of inputs",
        "Kim et al., 2023, SqueezeLLM: Dense-and-Sparse Quantization",
        {{"bits", Type::integer, "4", 2, 4, "of a weight: a table has 4, 8 or 16"},
         {"sparse", Type::number, "0", 0, 0.5, "fraction of each row's weights, those that cost most, in a sparse matrix"},
         {"format", Type::text, "q8_0", 0, 0, "number format of matrices that can have no table; empty: their own"}}},
       make_squeezellm_pass},
      {{"pass", "wanda", "sets the weights with the smallest product of magnitude and input norm to zero",
        "Sun et al., 2023, A Simple and Effective Pruning Approach for Large Language Models",
        {{"sparsity", Type::number, "0.5", 0, 1, "fraction of zeros in each row"},
         {"pattern", Type::text, "", 0, 0, "N:M keeps N of every M weights of a row, such as 2:4, instead of sparsity"}}},
       make_wanda_pass},
      {{"pass", "lqer", "adds a low-rank pair beside each matrix that puts back part of what rounding took",
        "Zhang et al., 2024, LQER: Low-Rank Quantization Error Reconstruction for LLMs",
        {{"rank", Type::integer, "16", 1, 4096, "rank of the pairs"},
         {"inputs", Type::text, "norms", 0, 0, "norms: the inputs' sizes decide, as in the paper; moments: their correlations too"},
         {"format", Type::text, "", 0, 0, "number format to round to; empty: that of the pass before"}}},
       make_lqer_pass},
      {{"pass", "outliers", "moves the weights of largest magnitude into a sparse matrix beside their matrix",
        "Kim et al., 2023, SqueezeLLM: Dense-and-Sparse Quantization",
        {{"part", Type::number, "0.005", 0, 0.5, "fraction of a matrix's weights"}}},
       make_outliers_pass},
      {{"pass", "rotate", "rotates blocks of columns by a Hadamard matrix, and rounds; inputs are rotated at run time",
        "Ashkboos et al., 2024, QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs",
        {{"block", Type::integer, "64", 2, 65536, "columns of a block, a power of two; halved until it divides the columns"},
         {"format", Type::text, "q4_0", 0, 0, "number format: q4_0, q4_k, q8_0 ..."}}},
       make_rotate_pass},
  });
  return registry;
}
// clang-format on

Result<std::unique_ptr<Pass>> make_pass(std::string_view text) {
  MILLRACE_TRY(const auto chosen, choose_member("pass", passes(), text));
  auto made = chosen.member(chosen.options);
  if (!made.ok()) return Error::user(chosen.label + ": " + made.error().message);
  return made;
}

}  // namespace millrace
