// QuIP#: outputs of 2 bits are nearer than those of rounding to the same points, of 2-bit levels with and without LDLQ,
// on inputs that the passes have seen and on others.
#include "compress/compress_test.h"
#include "compress/matrix_parts.h"
#include "compress/rounding/lattice_rounding.h"
#include "contains.h"
#include "formats/e8p_block.h"
#include "short_compression.h"

namespace millrace {
namespace {

using namespace testing;

double error_of(const PassMatrix& original, const PassMatrix& stored, const LinearStatistics& on) {
  return squared_outputs(original.values, whole_matrix(stored), on.moments);
}

PassMatrix compressed(const PassMatrix& original, const std::string& pass, const LinearStatistics& statistics,
                      ThreadPool& pool) {
  PassMatrix out = original;
  auto row = pass_of(pass)->apply(out, statistics, pool);
  EXPECT_TRUE(row.ok());
  EXPECT_EQ(row.ok() ? row->action : row.error().message, "quantized") << pass;
  return out;
}

TEST(QuipSharp, HeldOutOutputsAreNearerThanThoseOfOtherTwoBits) {
  ThreadPool pool(2);
  const int64_t rows = 24, cols = 512;
  const auto seen = statistics_of(correlated_rows(1600, cols, 5), cols, pool);
  const auto held_out = statistics_of(correlated_rows(400, cols, 6), cols, pool);
  const PassMatrix original = matrix_of(rows, cols, "e8p", 7), levels = matrix_of(rows, cols, "q2_k", 7);
  const PassMatrix ours = compressed(original, "quip_sharp", seen, pool);
  for (const auto* on : {&seen, &held_out}) {
    const double error = error_of(original, ours, *on);
    // The same points without a look at the inputs.
    EXPECT_LT(error, 0.6 * squared_outputs(original.values, rounded_matrix(original), on->moments));
    // 2-bit levels, which have 2.6 bits with their scales.
    EXPECT_LT(error, 0.6 * error_of(levels, compressed(levels, "rtn:format=q2_k", seen, pool), *on));
    EXPECT_LT(error, error_of(levels, compressed(levels, "quip:format=q2_k,greedy=0", seen, pool), *on));
  }
}

// The error is that of the definition e^T H e, which sweeps lower and better scales do, too.
TEST(QuipSharp, SweepsAndScalesLowerTheError) {
  ThreadPool pool(2);
  const int64_t rows = 16, cols = 256;
  const auto statistics = statistics_of(correlated_rows(800, cols, 8), cols, pool);
  const PassMatrix original = matrix_of(rows, cols, "e8p", 9);
  const auto error = [&](const std::string& options) {
    return error_of(original, compressed(original, "quip_sharp:" + options, statistics, pool), statistics);
  };
  const double plain = error("fit=plain,sweeps=0"), searched = error("sweeps=0"), swept = error("sweeps=10");
  EXPECT_LT(searched, plain);
  EXPECT_LT(swept, searched);
}

// Each further bit about halves the error of the outputs, and each is nearer than plain rounding to the same codes.
TEST(QuipSharp, MoreBitsAreNearer) {
  ThreadPool pool(2);
  const int64_t rows = 16, cols = 512;
  const auto seen = statistics_of(correlated_rows(1600, cols, 22), cols, pool);
  const auto held_out = statistics_of(correlated_rows(400, cols, 23), cols, pool);
  double before = 0;
  for (int bits : {2, 3, 4}) {
    const std::string format = bits == 2 ? "e8p" : "e8p_" + std::to_string(bits);
    const PassMatrix original = matrix_of(rows, cols, format.c_str(), 24);
    const std::string pass = "quip_sharp:bits=" + std::to_string(bits);
    const PassMatrix ours = compressed(original, pass, seen, pool);
    EXPECT_EQ(pass_of(pass)->format(), format);
    EXPECT_EQ(std::ssize(ours.encoded), rows * original.format->row_bytes(cols));
    const double error = error_of(original, ours, held_out);
    EXPECT_LT(error, 0.7 * squared_outputs(original.values, rounded_matrix(original), held_out.moments)) << bits;
    if (before > 0) {
      EXPECT_LT(error, 0.4 * before) << bits;
    }
    before = error;
    EXPECT_LT(error_of(original, ours, seen),
              error_of(original, compressed(original, pass + ",sweeps=0", seen, pool), seen))
        << bits;
  }
  EXPECT_FALSE(make_pass("quip_sharp:bits=5").ok());
}

// The rows' side too: the stored matrix with its parts is still the matrix, its errors no larger, its rows' sizes
// alike.
TEST(QuipSharp, TurnsTheRowsToo) {
  ThreadPool pool(2);
  const int64_t rows = 32, cols = 256;
  const auto statistics = statistics_of(correlated_rows(900, cols, 25), cols, pool);
  PassMatrix original = matrix_of(rows, cols, "e8p_4", 26);
  original.name = "blk.0.attn_q.weight";
  for (int64_t c = 0; c < cols; ++c) original.values[static_cast<size_t>(5 * cols + c)] *= 30;  // one large row
  const PassMatrix inputs = compressed(original, "quip_sharp:bits=4", statistics, pool);
  const PassMatrix both = compressed(original, "quip_sharp:bits=4,output=true", statistics, pool);
  EXPECT_TRUE(inputs.parts.output.empty());
  EXPECT_EQ(both.parts.output.hadamard, 16);  // no block in both halves of the rows
  EXPECT_EQ(std::ssize(both.parts.output.scale), rows);
  const std::vector<float> back = whole_matrix(both);
  double error = 0, all = 0, largest[2] = {0, 0};
  for (size_t i = 0; i < back.size(); ++i) {
    error += std::pow(double{back[i]} - original.values[i], 2);
    all += std::pow(double{original.values[i]}, 2);
    largest[0] = std::max(largest[0], std::fabs(double{inputs.values[i]}));
    largest[1] = std::max(largest[1], std::fabs(double{both.values[i]}));
  }
  EXPECT_LT(error, 0.05 * all);
  EXPECT_LT(largest[1], 0.5 * largest[0]);

  original.name = "blk.0.attn_qkv.weight";
  EXPECT_TRUE(compressed(original, "quip_sharp:output=true", statistics, pool).parts.output.empty());
  const std::vector<PartTensor> stored = part_tensors(both);
  for (const char* name : {"blk.0.attn_q.output_hadamard", "blk.0.attn_q.output_scale"})
    EXPECT_TRUE(std::ranges::any_of(stored, [&](const PartTensor& part) { return part.name == name; })) << name;
}

// With H = 1, LDLQ has nothing to carry: each eight weights become their nearest point.
TEST(QuipSharp, RoundsToTheNearestPointsWhereInputsAreIndependent) {
  ThreadPool pool(1);
  const int64_t cols = 256;
  SecondMoments moments(cols);
  for (int64_t i = 0; i < cols; ++i) moments.set(i, i, 1);
  std::vector<int32_t> order(cols);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  TriangleFactor factor;
  ASSERT_TRUE(factor.factor(moments, order, 0, pool));
  PassMatrix matrix = matrix_of(3, cols, "e8p", 10);
  round_to_lattice(matrix, factor, moments, {.search = true, .sweeps = 3}, pool);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    const uint8_t* block = matrix.encoded.data() + r * kE8pBlockBytes;
    uint16_t codes[kE8pPoints];
    round_e8p(matrix.values.data() + r * cols, load_f16(block), codes);
    for (int p = 0; p < kE8pPoints; ++p) EXPECT_EQ(load_u16(block + 2 + 2 * p), codes[p]) << r << " " << p;
  }
}

TEST(QuipSharp, ResultDoesNotDependOnThreads) {
  std::vector<uint8_t> first;
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto statistics = statistics_of(correlated_rows(700, 512, 11), 512, pool);
    const PassMatrix matrix = compressed(matrix_of(21, 512, "e8p", 12), "quip_sharp", statistics, pool);
    if (first.empty()) first = matrix.encoded;
    EXPECT_EQ(matrix.encoded, first);
    EXPECT_EQ(matrix.parts.input.hadamard, 512);
  }
}

// A matrix without parts, such as an embedding table, keeps its columns; rows that do not fit have levels.
TEST(QuipSharp, RoundsWhatCannotBeRotatedAndWhatDoesNotFit) {
  ThreadPool pool(2);
  const auto statistics = statistics_of(correlated_rows(600, 256, 13), 256, pool);
  PassMatrix table = matrix_of(8, 256, "e8p", 14);
  table.no_parts = "it is an embedding table";
  const PassMatrix rounded = compressed(table, "quip_sharp", statistics, pool);
  EXPECT_TRUE(rounded.parts.empty());
  EXPECT_LT(error_of(table, rounded, statistics),
            squared_outputs(table.values, rounded_matrix(table), statistics.moments));

  const auto narrow = statistics_of(correlated_rows(400, 96, 15), 96, pool);
  const PassMatrix levels = matrix_of(8, 96, "iq4_nl", 16);
  const PassMatrix fallback = compressed(levels, "quip_sharp", narrow, pool);
  EXPECT_EQ(fallback.parts.input.hadamard, 32);
  EXPECT_LT(error_of(levels, fallback, narrow), squared_outputs(levels.values, rounded_matrix(levels), narrow.moments));
}

TEST(QuipSharp, LeavesPrunedMatricesAndFloats) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(300, 256, 17), 256, pool);
  PassMatrix pruned = matrix_of(4, 256, "e8p", 18);
  ASSERT_TRUE(pass_of("wanda")->apply(pruned, statistics, pool).ok());
  auto row = pass_of("quip_sharp")->apply(pruned, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->why, "it is pruned, and a rotation would fill its zeros");
  PassMatrix floats = matrix_of(4, 256, "f16", 19);
  row = pass_of("quip_sharp")->apply(floats, statistics, pool);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->action, "left");
  EXPECT_FALSE(make_pass("quip_sharp:fit=best").ok());
}

// Weights of zero and of any size: no NaN, no error.
TEST(QuipSharp, TakesExtremeWeights) {
  ThreadPool pool(1);
  const auto statistics = statistics_of(correlated_rows(600, 256, 20), 256, pool);
  for (const auto& [format, pass] : {std::pair("e8p", "quip_sharp"), std::pair("e8p_3", "quip_sharp:bits=3"),
                                     std::pair("e8p_4", "quip_sharp:bits=4")})
    for (float scale : {0.0f, 1e-30f, 1e-6f, 1e6f}) {
      PassMatrix original = matrix_of(2, 256, format, 21);
      for (float& value : original.values) value *= scale;
      const std::vector<float> back = whole_matrix(compressed(original, pass, statistics, pool));
      for (float value : back) ASSERT_TRUE(std::isfinite(value)) << scale;
      if (scale == 0) {
        EXPECT_EQ(back, original.values);
      }
    }
}

// A whole model: the file has the format where it fits, and runs.
// label(once): compares figures of whole compressions, whose code other cases run too
TEST(QuipSharp, CompressesAModel) {
  const ScratchModel out;
  auto done = compress_model(short_compression(std::string(MILLRACE_SOURCE_DIR) + "/models/millrace-stories-6m.gguf",
                                               out.path(), "quip_sharp"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  auto files = open_model_files(out.path());
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(files->find("blk.0.attn_q.weight")->tensor.format, find_format("e8p"));
  EXPECT_EQ(files->find("blk.0.ffn_down.weight")->tensor.format, find_format("iq4_nl"));
  EXPECT_NE(files->find("blk.0.attn_q.input_hadamard"), nullptr);
}

}  // namespace
}  // namespace millrace
