// NVFP4: 64 values of 4-bit float (E2M1), each 16 with a scale that is a float of 8 bits (E4M3). NVIDIA, 2025,
// "Pretraining Large Language Models with NVFP4". value = scale * e2m1. Frozen, on disk:
//
//   byte 0    1    2    3    4                         12 .. 20 .. 28 .. 36
//        | s0 | s1 | s2 | s3 | v8|v0  v9|v1 ... v15|v7 | three more runs of 16 values |
//
//   Codes: e2m1.h. Scales: e4m3.h, without a sign, whose bit is ignored; 0x7f is NaN.
//
// Scales below 2^-6 have few bits, and weights of language models need such scales. So a matrix has one f32 scale more
// (Weight::scales), NAME.scale in GGUF files, which brings its largest magnitude to 6 * 448.
#include "formats/block.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr int kValues = 64;
constexpr int kRun = 16;  // values of a scale
constexpr int kRuns = kValues / kRun;
constexpr int kBytes = kRuns + kValues / 2;
constexpr float kLargest = kLargestE2m1 * kLargestE4m3;
constexpr int kLargestScale = 0x7e;

float scale_of(int code) { return e4m3_to_f32(static_cast<uint8_t>(code & 0x7f)); }

uint8_t* codes_of(uint8_t* block, int run) { return block + kRuns + run * kRun / 2; }

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    for (int run = 0; run < kRuns; ++run) {
      const float scale = scale_of(block[run]);
      const uint8_t* codes = block + kRuns + run * kRun / 2;
      for (int j = 0; j < kRun / 2; ++j) {
        out[run * kRun + j] = scale * e2m1_value(codes[j] & 0xf);
        out[run * kRun + kRun / 2 + j] = scale * e2m1_value(codes[j] >> 4);
      }
    }
  });
}

double squared_error(const float* x, float scale) {
  const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
  double sum = 0;
  for (int j = 0; j < kRun; ++j) {
    const double difference = x[j] - static_cast<double>(scale) * e2m1_value(nearest_e2m1(x[j] * inverse));
    sum += difference * difference;
  }
  return sum;
}

// Between the scales that bring the largest value to 6 and to 4 (from 4 to 6 codes are farthest apart), and one below:
// that of the least squared error, the first one on ties.
int choose_scale(const float* x) {
  constexpr int kBelow = 1, kAbove = 5;  // 8 codes double a scale
  const int first = f32_to_e4m3(std::fabs(largest_signed(x, kRun)) / kLargestE2m1);
  int best = first;
  double least = squared_error(x, scale_of(first));
  for (int code = std::max(0, first - kBelow); code <= std::min(kLargestScale, first + kAbove); ++code) {
    const double error = squared_error(x, scale_of(code));
    if (error >= least) continue;
    least = error;
    best = code;
  }
  return best;
}

void set_level(uint8_t* block, int value, int level) {
  const int in_run = value % kRun;
  put_bits(codes_of(block, value / kRun)[in_run % 8], in_run / 8 * 4, 4, level);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  const auto block_encode = [](const float* x, uint8_t* block) {
    for (int run = 0; run < kRuns; ++run, x += kRun) {
      const int code = choose_scale(x);
      const float scale = scale_of(code), inverse = scale != 0 ? 1.0f / scale : 0.0f;
      block[run] = static_cast<uint8_t>(code);
      for (int j = 0; j < kRun; ++j) set_level(block, run * kRun + j, nearest_e2m1(x[j] * inverse));
    }
  };
  encode_blocks<kValues, kBytes>(source, destination, n, block_encode, kLargest);
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) {
    return e4m3_is_nan(block[0]) || e4m3_is_nan(block[1]) || e4m3_is_nan(block[2]) || e4m3_is_nan(block[3]);
  });
}

}  // namespace

extern const Format kNvfp4 = {
    .name = "nvfp4",
    .summary = "4-bit float (E2M1), one 8-bit float (E4M3) as scale for 16",
    .paper = "NVIDIA, 2025, Pretraining Large Language Models with NVFP4",
    .gguf_type = 40,
    .safetensors = "",
    .block_values = kValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 16,
    .set_level = set_level,
    .matrix_limit = kLargest,
};

}  // namespace millrace
