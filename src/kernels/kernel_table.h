// KernelTable: function pointers to kernels. make_kernel_table() fills it with the kernels of ref/, and then overwrites
// these with the kernels of each instruction set that the machine has. Kernels are noexcept and allocate nothing. The
// order of a reduction depends only on the length of the reduced axis, so a result does not depend on the number of
// tokens, threads or streams.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "formats/format.h"
#include "kernels/candidate.h"

namespace millrace {

struct BlockScales;  // tensor/weight.h
struct Codebook;     // tensor/codebook.h

// ---- matmul -------------------------------------------------------------------------------------
struct MatmulArgs {
  const uint8_t* weights = nullptr;  // packed by MatmulKernel::pack
  int64_t rows = 0;                  // number of outputs of the whole matrix
  int64_t cols = 0;                  // inputs
  int64_t row_begin = 0;  // this call's outputs are [row_begin, row_end); row_begin is a multiple of row_tile
  int64_t row_end = 0;
  const uint8_t* x = nullptr;  // [tokens] rows in the format's Activation (kernels/activation.h)
  int64_t x_stride = 0;        // bytes from one activation row to the next
  int64_t tokens = 0;
  float* y = nullptr;                  // [tokens, y_stride]; y[t][r] is written for r in [row_begin, row_end)
  int64_t y_stride = 0;                // floats
  const Codebook* codebook = nullptr;  // only for kernels of codebooks
  // Minimum number of tokens (at least 1) with which a kernel multiplies in tiles, if it can also multiply without
  // them; 0: MatmulKernel::tiles_from. The bits do not depend on it.
  int64_t tiles_from = 0;
};

// The packed layout and the kernel for one format on one instruction set. One token (GEMV) and many tokens (GEMM) give
// the same bits.
struct MatmulKernel {
  const Format* format = nullptr;
  const char* layout = "";  // name of the packed layout, for inspect and bench
  int row_tile = 1;         // number of outputs that are packed together; work is split at multiples of it
  int64_t (*packed_bytes)(int64_t rows, int64_t cols) = nullptr;
  // Packs rows [row_begin, row_end) of a stored matrix. row_begin: a multiple of row_tile. `scales`: may be null.
  void (*pack)(const uint8_t* stored, const BlockScales* scales, int64_t rows, int64_t cols, int64_t row_begin,
               int64_t row_end, uint8_t* packed) = nullptr;
  void (*run)(const MatmulArgs& args) = nullptr;
  // For matrices with a codebook, these functions replace packed_bytes and pack. takes() returns true for codebooks
  // that the kernel supports. Null: the kernel is for a format. Codebook::entries and row_scales are not read after
  // packing.
  bool (*takes)(const Codebook& book) = nullptr;
  int64_t (*codebook_bytes)(const Codebook& book, int64_t rows, int64_t cols) = nullptr;
  void (*pack_codebook)(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                        uint8_t* packed) = nullptr;
  // For kernels that can multiply with and without tiles: minimum number of tokens for tiles; 0: the kernel has only
  // one way.
  int64_t tiles_from = 0;
  // Multiplies rows in their stored form, without packing, by at most stored_tokens tokens. `weights`: the stored row
  // row_begin. The number of rows is a multiple of stored_rows. The bits are those of run(). Returns false if a scale
  // is NaN or infinite. Null: rows must be packed.
  bool (*run_stored)(const MatmulArgs& args) = nullptr;
  int64_t stored_rows = 1;
  int64_t stored_tokens = 0;
  // For kernels that compute tables from the inputs in each call with few tokens: the number of rows whose products
  // take as long as these tables. 0: no tables.
  int64_t start_rows = 0;

  bool operator==(const MatmulKernel&) const = default;
};

// ---- attention ----------------------------------------------------------------------------------
// Keys of a stream are split at multiples of kAttentionPartition counted from its first slot; each partition gives a
// partial result, merged in ascending order. Inside a partition keys are processed in tiles at fixed boundaries. Both
// splits are independent of batch, threads and prefill chunks.
inline constexpr int64_t kAttentionPartition = 256;
inline constexpr float kUnifiedRange[2] = {0x1p-60f, 0x1p60f};  // exclusive
inline constexpr int64_t kMaxMixedHeadDim = 1024;  // maximum head dim if keys and values have different formats
inline constexpr int64_t kMaxTilesHeadDim = 512;   // maximum head dim that attend_tiles supports

inline constexpr int kMaxCode = 63;
inline constexpr int64_t kTurnTokens = 32;  // number of tokens in KeyTurns::offsets
inline constexpr int64_t kMaxOutliers = 4;  // maximum number of outliers in a group of levels

// How keys that were stored before RoPE are rotated to their positions. A token's angle is the sum of the angle of its
// block, the angle of its place in the block, and, for kernels that work on kTurnTokens tokens at a time, the angle of
// its place among them.
struct KeyTurns {
  int64_t pairs = 0;               // number of rotated pairs, in the first 2 * pairs dims; 0: keys are not rotated
  bool half = false;               // see KernelTable::rope
  const float* blocks = nullptr;   // [block][cos, sin][pairs]
  const float* rows = nullptr;     // [token of a block][cos, sin][pairs]
  const float* offsets = nullptr;  // [pair][cos, sin][kTurnTokens]
  const int16_t* whole_offsets = nullptr;  // the offsets as integers, times 32767
};

// The layout of a block of encoded keys or values of one KV head. Values are decoded as in AffineRows, but not rounded
// to f16.
//
//   tile   levels [tokens][stride bytes] | scales, f16 | zeros, f16
//          | outliers, for each scale in the same order: [outliers] of u16 place in its group, f16, which replace the
//            values of levels; among equal places the first counts
//          | in a stream's first block, the first tokens' rows, f16 [sink_tokens][dims], as they were before encoding
struct LevelTiles {
  int bits = 4;
  // See AffineRows::codes. Codes are integers from -kMaxCode to kMaxCode, or, with `turns`, any numbers from -1 to 1.
  const float* codes = nullptr;
  const float* value_codes = nullptr;  // codes of values, if they differ from those of keys
  int64_t stride = 0;
  int64_t scales_at = 0;  // offset of the scales, in bytes from the tile's beginning
  int64_t zeros_at = 0;   // offset of the zeros, in bytes
  int64_t key_tokens =
      0;              // tokens that share the scales of the columns of keys, a multiple of 32; 0: groups, as values
  int64_t group = 0;  // number of columns of a token that share a scale
  // For keys that are stored before RoPE. Null: keys are stored after RoPE, without outliers or separate first tokens.
  const KeyTurns* turns = nullptr;
  int64_t outliers = 0, outliers_at = 0;
  int64_t sink_tokens = 0, sink_at = 0;
};

// Consecutive queries of one stream against one partition of one KV head. Query row i of `group` heads
// belongs to the stream's slot first_query + i and sees slots s with s <= first_query + i and, when
// window > 0, s > first_query + i - window.
//
// To a kernel, slots define only the order of keys. If queries do not see every slot (token trees, segments, block
// lists: Visibility in flow/batch.h), the caller numbers the keys that they see from 0 and sets k_blocks and v_blocks
// to the rows of these keys. block_tokens may then be 1; bits do not depend on it. A caller may also count slots from
// its partition's first key: key_begin is then 0 and first_query is relative to it, negative if query 0 is before it.
struct AttentionArgs {
  const float* q = nullptr;  // query i of head g is at q + i * q_stride + g * head_dim; already scaled
  int64_t q_stride = 0;      // floats
  int64_t queries = 0;
  int64_t group = 1;        // query heads that share this KV head
  int64_t head_dim = 0;     // dims of queries and keys
  int64_t value_dim = 0;    // dims of values; 0: head_dim
  int64_t first_query = 0;  // slot of query 0
  int64_t key_begin = 0;    // a multiple of kAttentionPartition
  int64_t key_end = 0;      // exclusive, at most key_begin + kAttentionPartition
  int64_t window = 0;       // number of keys in the window; 0: no window
  float softcap = 0;        // 0: none; otherwise score = softcap * tanh(score / softcap)
  // true: all weights are exp(score - unified_max), and `max` is set to unified_max. So no maximum is computed, and
  // partials are joined without scaling (Hong et al., 2023, "FlashDecoding++"). If a row's sum of weights is not within
  // kUnifiedRange, the row is computed again relative to its own maximum. If weights are rounded to bf16,
  // exp(unified_max) is first rounded up to a power of two.
  bool unify = false;
  float unified_max = 0;
  // Block b holds slots [b * block_tokens, (b + 1) * block_tokens): rows of row_bytes each, in the KV format.
  const uint8_t* const* k_blocks = nullptr;  // address of this head's rows in each block, from the block of slot 0 on
  // If v_blocks equals k_blocks, a value is the first value_dim numbers of its key (latent attention).
  const uint8_t* const* v_blocks = nullptr;
  int64_t block_tokens = 0;
  int64_t row_bytes = 0;        // bytes from one slot's row to the next
  int64_t value_row_bytes = 0;  // bytes from one row of values to the next; 0: row_bytes
  // Decoders of rows of head_dim values, for KernelTable::any_attention.
  void (*decode_key)(const uint8_t* source, float* destination, int64_t n) = nullptr;
  void (*decode_value)(const uint8_t* source, float* destination, int64_t n) = nullptr;
  // Bytes from each row to its residual in the same format, which is added to it (kv/row_residuals.h). Arithmetic is
  // then in f32. 0: no residuals. Not for tiles.
  int64_t residual_offset = 0;
  // For KernelTable::attend_tiles: blocks before slot `encoded_end` are tiles with this layout. Blocks have a multiple
  // of 32 tokens.
  const LevelTiles* tiles = nullptr;
  int64_t encoded_end = 0;
  // Places of the blocks in the stream, in the order of k_blocks, for LevelTiles::turns; null: block b is at place b.
  const int32_t* places = nullptr;
  int64_t key_ahead = 0;  // end of the slots that later calls will read; may be prefetched from the same blocks
  bool cold = false;      // true: no previous call had these keys before its key_ahead
  // Partial result for row r = i * group + g: running maximum, sum of exp, and unnormalised sum of values.
  float* max = nullptr;  // [queries * group]; -inf if the row sees no key of this partition
  float* sum = nullptr;  // [queries * group]
  float* acc = nullptr;  // [queries * group, value_dim]
  float* top = nullptr;  // [queries * group]: the largest score, which `max` may exceed; not with `unify`. May be null
  // If not null, only scores are written, and values are not read. The score of row r and key s is at scores[r *
  // score_stride + s - key_begin]. If a row sees only some of 32 keys, the scores of the others may have any value. Not
  // for tiles.
  float* scores = nullptr;
  int64_t score_stride = 0;  // a multiple of 32
};

// Returns true if a row's sum of weights with a unified maximum can be used; false also for NaN.
[[gnu::always_inline]] inline bool within_unified_range(float sum) {
  return sum > kUnifiedRange[0] && sum < kUnifiedRange[1];
}

// Always inlined, because files with instruction-set flags also use it.
[[gnu::always_inline]] inline int64_t value_dim_of(const AttentionArgs& a) {
  return a.value_dim > 0 ? a.value_dim : a.head_dim;
}

// Returns the place of the block that holds `slot`.
[[gnu::always_inline]] inline int64_t place_of_block(const AttentionArgs& a, int64_t slot) {
  const int64_t block = slot / a.block_tokens;
  return a.places ? a.places[block] : block;
}

[[gnu::always_inline]] inline const float* value_codes_of(const LevelTiles& t) {
  return t.value_codes ? t.value_codes : t.codes;
}

struct AttentionKernel {
  const Format* kv_format = nullptr;
  void (*run)(const AttentionArgs& args) = nullptr;
  // Maximum head dim for bf16 arithmetic; larger heads use f32. 0: all heads use f32. In bf16 arithmetic, weights
  // (relative to a power of two) are rounded to bf16, to nearest even. Queries, keys and values are rounded in the same
  // way, unless levels are multiplied as bytes. Sums are f32.
  int64_t bf16_head_dim = 0;
  const Format* value_format = nullptr;  // null: the format of keys

  bool operator==(const AttentionKernel&) const = default;
};

// Fast encoding and decoding of whole rows, for example of new keys into the cache. Bit-identical to the Format's
// codec.
struct RowCodec {
  const Format* format = nullptr;
  void (*encode)(const float* source, uint8_t* destination, int64_t n) = nullptr;
  void (*decode)(const uint8_t* source, float* destination, int64_t n) = nullptr;

  bool operator==(const RowCodec&) const = default;
};

// Rows of levels with scales and zeros: value = scale * level + zero, rounded to f16 (to nearest even). The sum is
// exact in f32 except for its last bit, so every instruction set computes the same bits. Levels are packed in units of
// affine_unit_values(bits) values. Byte j of a unit's first 8 bytes holds values j, j + 8, ... from the lowest bits on.
// With 3 bits, these are the lower two bits, and 4 bytes follow; bit i of these is the highest bit of value i.
struct AffineRows {
  int bits = 4;  // 2, 3 or 4
  // [16], numbers that f16 represents exactly and that replace levels 0, 1, 2 ...; null: levels are not replaced.
  const float* codes = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* levels = nullptr;
  int64_t stride = 0;  // bytes from one row to the next: affine_row_bytes(bits, cols)
  // Scales and zeros are f16. group > 0: one for every `group` columns of each row, [rows][cols / group, rounded up];
  // `group` is a multiple of affine_unit_values(bits). group 0: one for each column, for all rows, [cols].
  const uint8_t* scales = nullptr;
  const uint8_t* zeros = nullptr;
  int64_t group = 0;
  uint8_t* out = nullptr;  // f16, [rows][cols]
};

constexpr int64_t affine_unit_values(int64_t bits) { return bits == 4 ? 16 : 32; }
constexpr int64_t affine_unit_bytes(int64_t bits) { return bits == 3 ? 12 : 8; }
constexpr int64_t affine_row_bytes(int64_t bits, int64_t cols) {
  return (cols + affine_unit_values(bits) - 1) / affine_unit_values(bits) * affine_unit_bytes(bits);
}

// Rows of keys of one head, f16, that RoPE rotates in place. The angle of row t is the sum of two angles.
struct RotatedRows {
  uint8_t* rows = nullptr;  // [count][dim]
  int64_t count = 0, dim = 0;
  int64_t rotated = 0;                // number of rotated dims, see KernelTable::rope
  bool half = false;                  // as KernelTable::rope
  bool back = false;                  // true: rotates by the negative angles
  const float* block_turn = nullptr;  // angle of all rows, [cos, sin][rotated / 2]
  const float* row_turns = nullptr;   // angle of each row, [count][cos, sin][rotated / 2]
};

// ---- selective state spaces --------------------------------------------------------------------- Arguments for
// consecutive tokens of one stream and some of its channels. Arrays of [.., channels] have `stride` floats from one row
// to the next. The bits of a channel do not depend on other channels of the call, or on the number of calls into which
// tokens are split.

// Computes y = silu(bias + sum over k of weight[k] * x[t - taps + 1 + k]). `window` holds the inputs before the first
// token. `y` must not overlap `x` or `window`.
struct CausalConvArgs {
  int64_t tokens = 0;
  int64_t channels = 0;
  int64_t taps = 0;
  int64_t stride = 0;
  const float* weight = nullptr;  // [taps, channels]
  const float* bias = nullptr;    // [channels]; may be null
  float* window = nullptr;        // [taps - 1, channels], oldest first; updated
  const float* x = nullptr;       // [tokens, channels]
  int64_t x_stride = 0;
  float* y = nullptr;  // [tokens, channels]
  int64_t y_stride = 0;
};

// Computes state[n] = exp(s * a[n]) * state[n] + s * x * b[n], where s = softplus(step), and then y = (d * x + sum over
// n of state[n] * c[n]) * silu(z).
struct SelectiveScanArgs {
  int64_t tokens = 0;
  int64_t channels = 0;
  int64_t state_values = 0;  // values of one channel's state
  int64_t stride = 0;
  const float* a = nullptr;     // [state_values, channels], negative
  const float* d = nullptr;     // [channels]
  float* state = nullptr;       // [state_values, channels]; updated
  const float* x = nullptr;     // [tokens, channels]
  const float* step = nullptr;  // [tokens, channels], before softplus
  float* y = nullptr;           // [tokens, channels]; may be x
  int64_t x_stride = 0;         // stride of x, step and y
  const float* b = nullptr;     // [tokens, state_values], for all channels
  const float* c = nullptr;     // [tokens, state_values]
  int64_t b_stride = 0;         // stride of b and c
  const float* z = nullptr;     // [tokens, channels]
  int64_t z_stride = 0;
};

// ---- the table ----------------------------------------------------------------------------------
struct KernelTable {
  Isa isa = Isa::ref;
  std::vector<MatmulKernel> matmul;              // one for each format
  std::vector<MatmulKernel> codebooks;           // later ones are preferred
  std::vector<AttentionKernel> attention;        // one per KV format
  std::vector<AttentionKernel> mixed_attention;  // for some pairs of different formats of keys and values
  AttentionKernel any_attention;                 // for any formats, with the decoders of its arguments; f32 arithmetic
  std::vector<RowCodec> codecs;                  // one per format
  // Attention over tiles of levels followed by rows of f16. Tiles are multiplied as the kernel of f16 multiplies rows,
  // or as integers. Null: callers decode tiles to rows.
  void (*attend_tiles)(const AttentionArgs& args) = nullptr;

  // Rounds n values to an activation row of `kind`. `destination`: activation_row_bytes(kind, n) bytes.
  void (*encode_activation)(Activation kind, const float* x, int64_t n, uint8_t* destination) = nullptr;

  // Adds a partial to the total of the previous partials. An empty partial changes nothing.
  void (*attention_join)(int64_t rows, int64_t head_dim, const float* max, const float* sum, const float* acc,
                         float* total_max, float* total_sum, float* total_acc) = nullptr;

  // Joins partials in order and divides by the sum. Partial p of row r is at max[p * rows + r], and similarly in sum
  // and acc. Writes out[r * head_dim ...], zeros for a row that saw no key. If `sink` is not null, exp(sink[r % group])
  // is added to the sum.
  void (*attention_merge)(int64_t partials, int64_t rows, int64_t group, int64_t head_dim, const float* max,
                          const float* sum, const float* acc, const float* sink, float* out) = nullptr;

  // y = x / sqrt(mean(x^2) + eps) * (w + offset). y may be x. w may be null (all ones).
  void (*rms_norm)(const float* x, const float* w, float offset, float eps, int64_t n, float* y) = nullptr;
  // y = (x - mean) / sqrt(var + eps) * w + b; b may be null.
  void (*layer_norm)(const float* x, const float* w, const float* b, float eps, int64_t n, float* y) = nullptr;
  // Rotates the first `rotated` dims of one head in place; cos, sin: [rotated / 2]. half: pairs (i, i + rotated/2);
  // otherwise pairs (2i, 2i + 1).
  void (*rope)(float* head, const float* cos, const float* sin, int64_t rotated, bool half) = nullptr;
  void (*rotate_rows)(const RotatedRows& rows) = nullptr;
  void (*softmax)(float* x, int64_t n) = nullptr;  // in place
  // Returns the sum of exp(x - shift). `shift`: at least the largest finite x. NaN adds nothing; +inf counts as the
  // largest float. Terms have a relative error of at most 1e-12, and the sum may be too large by (n + 7) * exp(-700).
  double (*exp_sum)(const float* x, double shift, int64_t n) = nullptr;
  // Variant in f32, several times as fast. The sum has a relative error of at most 1e-6, and may be too large by (n +
  // 15) * exp(-86).
  double (*exp_sum_coarse)(const float* x, float shift, int64_t n) = nullptr;
  // Selects all x >= `least`, in order. Writes them to `out` with their indices in x plus `first`, and returns their
  // number. +inf becomes the largest float; NaN is not selected. May write up to n + 16 entries.
  int64_t (*select_from)(const float* x, int64_t n, float least, int32_t first, Candidate* out) = nullptr;
  void (*silu_mul)(const float* gate, const float* up, float* y, int64_t n) = nullptr;  // y = silu(gate) * up
  void (*gelu_tanh_mul)(const float* gate, const float* up, float* y, int64_t n) = nullptr;
  void (*gelu_erf_mul)(const float* gate, const float* up, float* y, int64_t n) = nullptr;
  void (*gelu_tanh)(float* x, int64_t n) = nullptr;  // in place
  void (*gelu_erf)(float* x, int64_t n) = nullptr;
  void (*relu)(float* x, int64_t n) = nullptr;
  void (*softcap)(float* x, float cap, int64_t n) = nullptr;                       // x = cap * tanh(x / cap)
  void (*add)(const float* x, float* y, int64_t n) = nullptr;                      // y += x
  void (*add_scaled)(const float* x, float scale, float* y, int64_t n) = nullptr;  // y += scale * x
  void (*scale)(float* x, float factor, int64_t n) = nullptr;
  void (*causal_conv)(const CausalConvArgs& args) = nullptr;
  void (*selective_scan)(const SelectiveScanArgs& args) = nullptr;
  void (*decode_affine)(const AffineRows& rows) = nullptr;

  const MatmulKernel* find_matmul(const Format* format) const;
  const MatmulKernel* find_codebook(const Codebook& book) const;
  const AttentionKernel* find_attention(const Format* kv_format) const;
  // Returns the fastest kernel for these formats; any_attention if there is no special one.
  const AttentionKernel* find_attention(const Format* keys, const Format* values) const;
  const RowCodec* find_codec(const Format* format) const;

  bool operator==(const KernelTable&) const = default;
};

// Controls whether kernels that later versions replace are skipped, or added first. The table is the same; a test
// compares both.
enum class Superseded { skipped, added };

// Returns the best version of each kernel for the features in `isa`.
KernelTable make_kernel_table(Isa isa, Superseded superseded = Superseded::skipped);

// The version of a kernel family that make_kernel_table() chooses.
struct KernelChoice {
  std::string family;
  std::string uses;                  // the feature that the version needs, or "ref"
  std::vector<std::string> missing;  // features that `isa` lacks for a version that may be faster
};
std::vector<KernelChoice> kernel_choices(Isa isa);

// Add a kernel to the table; called by the files of each CPU feature. A later call replaces the entry of the same
// format.
void set_matmul(KernelTable& table, const MatmulKernel& kernel);
void set_attention(KernelTable& table, const AttentionKernel& kernel);
void set_mixed_attention(KernelTable& table, const AttentionKernel& kernel);
void set_codec(KernelTable& table, const RowCodec& codec);
void set_codebook(KernelTable& table, const MatmulKernel& kernel);  // for codebooks with the same layout

}  // namespace millrace
