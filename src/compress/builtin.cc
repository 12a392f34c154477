// The built-in pruners, factorizers and passes that add parts, and the registry of all passes. Those of quantizers/ are
// listed there.
#include "base/choose.h"
#include "compress/entries.h"
#include "compress/factories.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

constexpr const char* kFactorTest = "src/compress/factorizers/factorizers_test.cc";

// Returns the options that every factorizer has, followed by its own.
std::vector<OptionSpec> pair_options(std::initializer_list<OptionSpec> own = {}) {
  std::vector<OptionSpec> out = {
      {"ratio", Type::number, "0.5", 0.001, 4, "values of the pair, as a part of the matrix's"},
      {"loss", Type::number, "0", 0, 1, "in place of ratio: the smallest rank that drops at most this part; 0: unused"},
      {"format", Type::text, "q8_0", 0, 0, "number format of the pair: f16, q8_0, q4_0 ..."},
      {"rest", Type::text, "", 0, 0, "number format of all other matrices; empty: their own"}};
  out.insert(out.end(), own);
  return out;
}

// Passes that make weights of matrices zero.
PassEntries weight_pruners() {
  return {
      {{"pass",
        "wanda",
        "sets the weights with the smallest product of magnitude and input norm to zero",
        "Sun et al., 2023, A Simple and Effective Pruning Approach for Large Language Models",
        {{"sparsity", Type::number, "0.5", 0, 1, "fraction of zeros in each row"},
         {"pattern", Type::text, "", 0, 0,
          "N:M keeps N of every M weights of a row, such as 2:4, instead of sparsity"}}},
       make_wanda_pass},
      {{"pass",
        "magnitude",
        "sets the weights of smallest magnitude to zero; the baseline of all pruners",
        "Han et al., 2015, Learning both Weights and Connections for Efficient Neural Networks",
        {{"sparsity", Type::number, "0.5", 0, 1, "fraction of zeros"},
         {"scope", Type::text, "matrix", 0, 0, "what it is a fraction of: the matrix, or each row"},
         {"pattern", Type::text, "", 0, 0,
          "N:M keeps N of every M weights of a row, such as 2:4, instead of sparsity"}},
        Loss::lossy,
        "src/compress/pruners/magnitude_test.cc"},
       make_magnitude_pass},
      {{"pass",
        "sparsegpt",
        "prunes column by column; the weights of later columns make up for what went",
        "Frantar and Alistarh, 2023, SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot",
        {{"sparsity", Type::number, "0.5", 0, 1, "fraction of zeros"},
         {"pattern", Type::text, "", 0, 0, "N:M keeps N of every M weights of a row, such as 2:4, instead of sparsity"},
         {"block", Type::integer, "128", 1, 4096, "columns of which weights are chosen together"},
         {"damp", Type::number, "0.01", 0, 10, "added to the diagonal of the second moments, times its mean"}},
        Loss::lossy,
        "src/compress/pruners/sparsegpt_test.cc"},
       make_sparsegpt_pass},
      {{"pass",
        "obs",
        "prunes one weight of a row after the other, and all that are left make up for it; slow",
        "Hassibi and Stork, 1992, Second Order Derivatives for Network Pruning: Optimal Brain Surgeon",
        {{"sparsity", Type::number, "0.5", 0, 1, "fraction of zeros in each row"},
         {"pattern", Type::text, "", 0, 0, "N:M keeps N of every M weights of a row, such as 2:4, instead of sparsity"},
         {"damp", Type::number, "0.01", 0, 10, "added to the diagonal of the second moments, times its mean"},
         {"widest", Type::integer, "1024", 1, 8192, "columns of the widest matrix that is not refused"}},
        Loss::lossy,
        "src/compress/pruners/obs_test.cc"},
       make_obs_pass},
      {{"pass",
        "ria",
        "prunes weights that are small compared with those of their row and column, and of small inputs",
        "Zhang et al., 2024, Plug-and-Play: An Efficient Post-Training Pruning Method for Large Language Models",
        {{"sparsity", Type::number, "0.5", 0, 1, "fraction of zeros"},
         {"scope", Type::text, "matrix", 0, 0, "what it is a fraction of: the matrix, or each row"},
         {"pattern", Type::text, "", 0, 0, "N:M keeps N of every M weights of a row, such as 2:4, instead of sparsity"},
         {"power", Type::number, "0.5", 0, 2, "of the norm of the inputs"},
         {"permute", Type::boolean, "false", 0, 0, "with a pattern: store the columns in an order that suits it"}},
        Loss::lossy,
        "src/compress/pruners/ria_test.cc"},
       make_ria_pass},
      {{"pass",
        "owl",
        "prunes layers with many outliers less than others, each by wanda or magnitude",
        "Yin et al., 2023, Outlier Weighed Layerwise Sparsity (OWL): A Missing Secret Sauce for Pruning LLMs to High "
        "Sparsity",
        {{"sparsity", Type::number, "0.5", 0, 1, "fraction of zeros in all layers together"},
         {"m", Type::number, "5", 1, 1000, "an outlier's score is above this times the layer's mean"},
         {"lambda", Type::number, "0.08", 0, 0.5, "what the fraction of a layer differs by at most"},
         {"prune", Type::text, "wanda", 0, 0, "how the weights are chosen: wanda, or magnitude"}},
        Loss::lossy,
        "src/compress/pruners/layer_ratios_test.cc"},
       make_owl_pass},
      {{"pass",
        "dsnot",
        "swaps pruned weights for others where that makes the expected error of a row smaller",
        "Zhang et al., 2023, Dynamic Sparse No Training: Training-Free Fine-tuning for Sparse LLMs",
        {{"sparsity", Type::number, "0.5", 0, 1, "fraction of zeros in each row"},
         {"pattern", Type::text, "", 0, 0, "N:M keeps N of every M weights of a row, such as 2:4, instead of sparsity"},
         {"start", Type::text, "wanda", 0, 0, "whose mask it starts from: wanda, or magnitude"},
         {"cycles", Type::integer, "50", 0, 10000, "swaps in a row at most"},
         {"threshold", Type::number, "0.1", 0, 1e6, "expected error of a row's output that is small enough"}},
        Loss::lossy,
        "src/compress/pruners/dsnot_test.cc"},
       make_dsnot_pass},
      {{"pass",
        "pruner_zero",
        "prunes by a formula of weights and gradients, the published one or one that it searches",
        "Dong et al., 2024, Pruner-Zero: Evolving Symbolic Pruning Metric from scratch for Large Language Models",
        {{"sparsity", Type::number, "0.5", 0, 1, "fraction of zeros in each row"},
         {"pattern", Type::text, "", 0, 0, "N:M keeps N of every M weights of a row, such as 2:4, instead of sparsity"},
         {"metric", Type::text, "W*W*mms(G)", 0, 0,
          "of the magnitude W and of the gradient's size G, with + - * /, sqr, sqrt, log, exp, mms, zsn"},
         {"search", Type::integer, "0", 0, 1000, "generations of a search that begins with the metric; 0: none"},
         {"population", Type::integer, "24", 2, 1000, "formulas of a generation"},
         {"seed", Type::integer, "0", 0, 1 << 30, "of the search"}},
        Loss::lossy,
        "src/compress/pruners/pruner_zero_test.cc"},
       make_pruner_zero_pass},
      {{"pass",
        "fast_pruning",
        "prunes in steps, and after each moves what is left nearer to the best weights of the mask",
        "Boža, 2024, Fast and Effective Weight Update for Pruned Large Language Models",
        {{"sparsity", Type::number, "0.5", 0, 1,
          "fraction of zeros; 0 keeps the mask of the pass before, and only moves weights"},
         {"scope", Type::text, "matrix", 0, 0, "what it is a fraction of: the matrix, or each row"},
         {"pattern", Type::text, "", 0, 0, "N:M keeps N of every M weights of a row, such as 2:4, instead of sparsity"},
         {"steps", Type::integer, "15", 1, 1000, "over which the zeros grow; 1: all at once"},
         {"iterations", Type::integer, "20", 1, 1000, "of the update, those steps included"},
         {"damp", Type::number, "0.1", 0.001, 10, "added to the diagonal of the scaled second moments, which is one"}},
        Loss::lossy,
        "src/compress/pruners/fast_pruning_test.cc"},
       make_fast_pruning_pass},
      {{"pass",
        "isc",
        "SparseGPT with a saliency that also asks for the uncorrected loss, and fractions by sensitivity",
        "Shao et al., 2023, One-Shot Sensitivity-Aware Mixed Sparsity Pruning for Large Language Models",
        {{"sparsity", Type::number, "0.5", 0, 1, "fraction of zeros in all matrices together"},
         {"spread", Type::number, "0.05", 0, 0.5, "what the fraction of a matrix differs by at most"},
         {"block", Type::integer, "128", 1, 4096, "columns of which weights are chosen together"},
         {"damp", Type::number, "0.01", 0, 10, "added to the diagonal of the second moments, times its mean"}},
        Loss::lossy,
        "src/compress/pruners/sparsegpt_test.cc"},
       make_isc_pass},
  };
}

// Passes that make a model smaller or its attention sparse: fewer layers, experts, columns or dims, shorter windows.
PassEntries structure_pruners() {
  return {
      {{"pass",
        "shortgpt",
        "leaves out the layers that change the residual stream least",
        "Men et al., 2024, ShortGPT: Layers in Large Language Models are More Redundant Than You Expect",
        {{"drop", Type::integer, "1", 0, 1024, "layers to leave out"}},
        Loss::lossy,
        "src/compress/pruners/structural_test.cc"},
       make_shortgpt_pass},
      {{"pass",
        "relufy",
        "replaces the activation of MLPs by ReLU, so that most neurons put out 0",
        "Mirzadeh et al., 2023, ReLU Strikes Back: Exploiting Activation Sparsity in Large Language Models",
        {{"shift", Type::number, "0", 0, 100, "subtracted from gates before the ReLU (shifted ReLU)"}},
        Loss::lossy,
        "src/compress/pruners/relufy_test.cc"},
       make_relufy_pass},
      {{"pass",
        "semsa",
        "finds a window for each head and stores it for the attention pattern semsa; weights stay as they are",
        "Fu et al., 2024, MoA: Mixture of Sparse Attention for Automatic Large Language Model Compression",
        {{"keys", Type::number, "0.25", 0, 1, "share of the keys that queries see, on average over heads"},
         {"block", Type::integer, "64", 16, 4096, "tokens of a block"},
         {"sinks", Type::integer, "1", 0, 65536, "first blocks, which all heads see"}},
        Loss::lossless,
        "src/compress/pruners/semsa_test.cc"},
       make_semsa_pass},
      {{"pass",
        "expert_sparsity",
        "leaves out the experts whose absence changes a layer's outputs least, by trying all choices",
        "Lu et al., 2024, Not All Experts are Equal: Efficient Expert Pruning and Skipping for Mixture-of-Experts "
        "Large Language Models",
        {{"keep", Type::integer, "6", 1, 1024, "experts of a layer that stay"},
         {"tokens", Type::integer, "1024", 1, 1000000, "of the calibration text, that the choices are tried on"}},
        Loss::lossy,
        "src/compress/pruners/structural_test.cc"},
       make_expert_sparsity_pass},
      {{"pass",
        "ziplm",
        "leaves out inner columns of MLPs, as many as a speed-up on this machine asks for",
        "Kurtic et al., 2023, ZipLM: Inference-Aware Structured Pruning of Language Models",
        {{"keep", Type::number, "0.75", 0, 1, "fraction of the columns that stay, to a multiple of 32"},
         {"speedup", Type::number, "0", 0, 100,
          "of a token's products, in place of keep; by times measured on this machine"},
         {"damp", Type::number, "0.01", 0, 10, "added to the diagonal of the second moments, times its mean"}},
        Loss::lossy,
        "src/compress/pruners/structural_test.cc"},
       make_ziplm_pass},
      {{"pass",
        "slicegpt",
        "rotates the residual stream to its principal components and deletes the least of them",
        "Ashkboos et al., 2024, SliceGPT: Compress Large Language Models by Deleting Rows and Columns",
        {{"keep", Type::number, "0.75", 0, 1, "fraction of the dims that stay, to a multiple of 32; 1: only rotates"},
         {"rotations", Type::text, "one", 0, 0,
          "one: for the model; blocks: one before each block, and a shortcut matrix past it"},
         {"shortcuts", Type::text, "", 0, 0,
          "number format of shortcut matrices; empty: the model's if it has floats, else f16"}},
        Loss::lossy,
        "src/compress/pruners/slicegpt_test.cc"},
       make_slicegpt_pass},
  };
}

PassEntries factorizers() {
  return {
      {{"pass", "svd", "stores a low-rank pair in place of each matrix: the nearest one to its weights",
        "Eckart and Young, 1936, The Approximation of One Matrix by Another of Lower Rank", pair_options(), Loss::lossy,
        kFactorTest},
       make_svd_pass},
      {{"pass", "asvd",
        "stores a low-rank pair in place of each matrix: the nearest one, with columns scaled by their inputs",
        "Yuan et al., 2023, ASVD: Activation-aware Singular Value Decomposition for Compressing Large Language Models",
        pair_options({{"alpha", Type::number, "0.5", 0, 4, "exponent of the inputs' mean magnitudes"}}), Loss::lossy,
        kFactorTest},
       make_asvd_pass},
      {{"pass", "svd_llm",
        "stores a low-rank pair in place of each matrix: the one whose outputs are nearest on the text",
        "Wang et al., 2024, SVD-LLM: Truncation-aware Singular Value Decomposition for Large Language Model "
        "Compression",
        pair_options(), Loss::lossy, kFactorTest},
       make_svd_llm_pass},
      {{"pass", "lord",
        "stores a low-rank pair in place of each matrix, along the largest variances of its outputs, and a bias",
        "Kaushal et al., 2023, LORD: Low Rank Decomposition Of Monolingual Code LLMs For One-Shot Compression",
        pair_options(), Loss::lossy, kFactorTest},
       make_lord_pass},
      {{"pass", "lplr", "stores a low-rank pair in place of each matrix, from a random sketch that is rounded first",
        "Saha et al., 2023, Matrix Compression via Randomized Low Rank and Low Precision Factorization",
        pair_options({{"power", Type::integer, "0", 0, 16,
                       "steps that make the sketch nearer to the largest singular vectors"}}),
        Loss::lossy, kFactorTest},
       make_lplr_pass},
      {{"pass", "losparse", "stores a low-rank pair in place of each matrix, and whole columns of what the pair leaves",
        "Li et al., 2023, LoSparse: Structured Compression of Large Language Models based on Low-Rank and Sparse "
        "Approximation",
        pair_options(
            {{"columns", Type::number, "0.05", 0, 1, "part of the columns that are kept in the sparse matrix"}}),
        Loss::lossy, kFactorTest},
       make_losparse_pass},
      {{"pass",
        "tensorgpt",
        "stores each row of the embedding table as a tensor train, whose cores a lookup multiplies",
        "Xu et al., 2023, TensorGPT: Efficient Compression of the Embedding Layer in LLMs based on the Tensor-Train "
        "Decomposition",
        {{"rank", Type::integer, "4", 1, 64, "largest rank between two modes"},
         {"modes", Type::integer, "2", 2, 8, "of the array that a row is seen as"},
         {"format", Type::text, "f16", 0, 0, "number format of the cores"}},
        Loss::lossy,
        "src/compress/factorizers/tensorgpt_test.cc"},
       make_tensorgpt_pass},
      {{"pass",
        "dsformer",
        "stores a small dense and a sparse factor in place of each matrix; columns are combinations of a few atoms",
        "Chand et al., 2023, DSFormer: Effective Compression of Text-Transformers by Dense-Sparse Weight Factorization",
        {{"atoms", Type::number, "0.5", 0.001, 4,
          "columns of the dense factor, as a part of the matrix's smaller side"},
         {"nonzeros", Type::integer, "16", 1, 256, "values of the sparse factor in each column"},
         {"iterations", Type::integer, "8", 0, 1000, "of fitting one factor to the other"},
         {"format", Type::text, "q8_0", 0, 0, "number format of the dense factor: f16, q8_0, q4_0 ..."},
         {"rest", Type::text, "", 0, 0, "number format of all other matrices; empty: their own"}},
        Loss::lossy,
        "src/compress/factorizers/dsformer_test.cc"},
       make_dsformer_pass},
  };
}

// Passes that add parts beside a matrix.
PassEntries parts() {
  return {
      {{"pass",
        "lqer",
        "adds a low-rank pair to each matrix that corrects a part of its rounding error",
        "Zhang et al., 2024, LQER: Low-Rank Quantization Error Reconstruction for LLMs",
        {{"rank", Type::integer, "16", 1, 4096, "rank of the pairs"},
         {"inputs", Type::text, "norms", 0, 0,
          "norms: the inputs' sizes decide, as in the paper; moments: their correlations too"},
         {"format", Type::text, "", 0, 0, "number format to round to; empty: that of the pass before"}}},
       make_lqer_pass},
      {{"pass",
        "outliers",
        "moves the weights of largest magnitude into a separate sparse matrix",
        "Kim et al., 2023, SqueezeLLM: Dense-and-Sparse Quantization",
        {{"part", Type::number, "0.005", 0, 0.5, "fraction of a matrix's weights"}}},
       make_outliers_pass},
      {{"pass", "rotate", "rotates blocks of columns by a Hadamard matrix, and rounds; inputs are rotated at run time",
        "Ashkboos et al., 2024, QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs",
        with_input_options({{"block", Type::integer, "64", 2, 65536,
                             "columns of a block, a power of two; halved until it divides the columns"},
                            {"format", Type::text, "q4_0", 0, 0,
                             "number format: q4_0, q4_k, q8_0 ...; empty: only rotates, and the next pass rounds"}},
                           "none", "0", "1")},
       make_rotate_pass},
  };
}

}  // namespace

const Registry<PassFactory>& passes() {
  static const Registry<PassFactory> registry(
      {.loss = Loss::lossy, .test = "src/compress/compress_model_test.cc", .proof = "docs/compression.md"}, [] {
        PassEntries all;
        for (const PassEntries& part :
             {quantizer_entries(), weight_pruners(), structure_pruners(), factorizers(), parts()})
          all.insert(all.end(), part.begin(), part.end());
        return all;
      }());
  return registry;
}

Result<std::unique_ptr<Pass>> make_pass(std::string_view text) {
  MILLRACE_TRY(const auto chosen, choose_member("pass", passes(), text));
  auto made = chosen.member(chosen.options);
  if (!made.ok()) return Error::user(chosen.label + ": " + made.error().message);
  return made;
}

}  // namespace millrace
