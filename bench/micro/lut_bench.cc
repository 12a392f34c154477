// Products by table look-up beside those of the engine's kernels (Wei et al., 2024, "T-MAC"; Park et al., 2022,
// "LUT-GEMM"): does a look-up beat a multiplication here? docs/kernel-switches.md has the answer.
//
// Weights of b bits are b planes of bits. The bits of several columns of a plane are an index into a table of all sums
// of these columns' activations, 8-bit integers. Three versions:
//
//   exact    tables of 16-bit sums as two of bytes: the integer sums of the engine's kernels
//   rounded  tables of one byte, added with saturation: an upper bound of the speed of T-MAC's rounded tables, whose
//   error
//            is not counted here
//   wide     as exact, with tables of 64 entries for 6 columns (VPERMB); a group of 4 bits could overflow
//
// Every version has one f32 scale for 32 columns (wide: 48) and a row, as q4_0, and is checked against plain sums.
//
//   bench_lut_bench --benchmark_filter='4bit.*memory:0'
#include <benchmark/benchmark.h>

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "formats/format.h"
#include "kernels/activation.h"
#include "kernels/linear.h"

namespace millrace {
namespace {

constexpr int64_t kLutRows = 4096, kLutCols = 2304;  // a multiple of 32, 48 and 256
constexpr int64_t kLutColdBytes = 320 << 20;
constexpr int64_t kMostLutTokens = 8;

enum class Version { exact, rounded, wide };

struct Bits {
  int planes = 4;
  Version version = Version::exact;
  int64_t vector = 64;  // rows of a block: bytes of a vector

  int64_t columns() const { return version == Version::wide ? 6 : 4; }  // of an index
  int64_t entries() const { return int64_t{1} << columns(); }
  int64_t look_ups() const { return 8; }  // of a plane in a group
  int64_t group() const { return look_ups() * columns(); }
  int64_t indices() const { return version == Version::wide ? look_ups() : look_ups() / 2; }  // vectors of a plane
  int64_t group_bytes() const { return planes * indices() * vector + vector * 4; }            // with scales
  int64_t groups() const { return kLutCols / group(); }
  int64_t block_bytes() const { return groups() * group_bytes(); }
  int64_t bytes() const { return kLutRows / vector * block_bytes(); }
};

// Levels [row][col] below 2^planes, and scales [row][group] -> blocks of rows: by group, the planes' indices, then
// scales.
std::vector<uint8_t> pack(const Bits& b, const std::vector<uint8_t>& levels, const std::vector<float>& scales) {
  std::vector<uint8_t> out(static_cast<size_t>(b.bytes()));
  uint8_t* to = out.data();
  for (int64_t first = 0; first < kLutRows; first += b.vector) {
    for (int64_t g = 0; g < b.groups(); ++g) {
      for (int plane = 0; plane < b.planes; ++plane) {
        for (int64_t i = 0; i < b.look_ups(); ++i) {
          for (int64_t r = 0; r < b.vector; ++r) {
            int index = 0;
            for (int64_t c = 0; c < b.columns(); ++c) {
              const int64_t col = g * b.group() + i * b.columns() + c;
              index |= (levels[static_cast<size_t>((first + r) * kLutCols + col)] >> plane & 1) << c;
            }
            if (b.version == Version::wide)
              to[i * b.vector + r] = static_cast<uint8_t>(index);
            else
              to[i / 2 * b.vector + r] |= static_cast<uint8_t>(index << (i % 2 * 4));
          }
        }
        to += b.indices() * b.vector;
      }
      for (int64_t r = 0; r < b.vector; ++r)
        std::memcpy(to + r * 4, &scales[static_cast<size_t>((first + r) * b.groups() + g)], 4);
      to += b.vector * 4;
    }
  }
  return out;
}

// Of one token: for each index of a row, the low bytes of all sums and then the high ones; and the sum of each group,
// times the middle level, which is subtracted.
struct Tables {
  std::vector<uint8_t> bytes;
  std::vector<int16_t> middle;
};

Tables make_tables(const Bits& b, const int8_t* x) {
  Tables out;
  const int64_t indices = kLutCols / b.columns();
  out.bytes.resize(static_cast<size_t>(indices * b.entries() * 2));
  for (int64_t i = 0; i < indices; ++i) {
    uint8_t* table = out.bytes.data() + i * b.entries() * 2;
    for (int64_t e = 0; e < b.entries(); ++e) {
      int sum = 0;
      for (int64_t c = 0; c < b.columns(); ++c) sum += e >> c & 1 ? x[i * b.columns() + c] : 0;
      if (b.version == Version::rounded) sum = static_cast<int>(std::lround(sum / 4.0));
      table[e] = static_cast<uint8_t>(sum);
      table[b.entries() + e] = static_cast<uint8_t>(sum >> 8);
    }
  }
  for (int64_t g = 0; g < b.groups(); ++g) {
    int sum = 0;
    for (int64_t c = 0; c < b.group(); ++c) sum += x[g * b.group() + c];
    out.middle.push_back(static_cast<int16_t>(sum * (1 << (b.planes - 1))));
  }
  return out;
}

#define MILLRACE_LUT_512 [[gnu::target("avx512f,avx512bw,avx512vl,avx512vbmi")]]

MILLRACE_LUT_512 inline __m512i table_at(const uint8_t* from) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// One group of one token: sums of 64 rows, bytes 0 to 7, 16 to 23 ... of the rows in `low` and the others in `high`.
template <int kPlanes, Version kVersion>
MILLRACE_LUT_512 inline void add_group_512(const uint8_t* planes, const uint8_t* table, __m512i& low, __m512i& high) {
  const __m512i nibble = _mm512_set1_epi8(15);
  for (int plane = kPlanes - 1; plane >= 0; --plane) {  // sums of higher planes double on the way
    low = _mm512_slli_epi16(low, 1);
    high = _mm512_slli_epi16(high, 1);
    const uint8_t* index = planes + plane * (kVersion == Version::wide ? 8 : 4) * 64;
    const uint8_t* entry = table;
    __m512i bytes = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      if constexpr (kVersion == Version::wide) {
        const __m512i at = _mm512_loadu_si512(index + i * 64);
        const __m512i l = _mm512_permutexvar_epi8(at, _mm512_loadu_si512(entry));
        const __m512i h = _mm512_permutexvar_epi8(at, _mm512_loadu_si512(entry + 64));
        low = _mm512_add_epi16(low, _mm512_unpacklo_epi8(l, h));
        high = _mm512_add_epi16(high, _mm512_unpackhi_epi8(l, h));
        entry += 128;
      } else {
        __m512i at = _mm512_loadu_si512(index + i / 2 * 64);
        if (i % 2 == 1) at = _mm512_srli_epi16(at, 4);
        at = _mm512_and_si512(at, nibble);
        const __m512i l = _mm512_shuffle_epi8(table_at(entry), at);
        if constexpr (kVersion == Version::rounded) {
          bytes = _mm512_adds_epi8(bytes, l);
        } else {
          const __m512i h = _mm512_shuffle_epi8(table_at(entry + 16), at);
          low = _mm512_add_epi16(low, _mm512_unpacklo_epi8(l, h));
          high = _mm512_add_epi16(high, _mm512_unpackhi_epi8(l, h));
        }
        entry += 32;
      }
    }
    if constexpr (kVersion == Version::rounded) {
      const __m512i sign = _mm512_movm_epi8(_mm512_movepi8_mask(bytes));
      low = _mm512_add_epi16(low, _mm512_unpacklo_epi8(bytes, sign));
      high = _mm512_add_epi16(high, _mm512_unpackhi_epi8(bytes, sign));
    }
  }
}

// Row `r` of a block is at this float of the sums: the order of unpacked bytes.
int64_t place_of(int64_t r) { return r / 16 * 8 + r % 8 + (r % 16 >= 8 ? 32 : 0); }

template <int kPlanes, Version kVersion>
MILLRACE_LUT_512 void multiply_512(const Bits& b, const uint8_t* packed, const std::vector<Tables>& tokens, float* y) {
  for (int64_t block = 0; block < kLutRows / 64; ++block) {
    __m512 sums[kMostLutTokens][4];
    for (auto& token : sums)
      for (__m512& sum : token) sum = _mm512_setzero_ps();
    const uint8_t* at = packed + block * b.block_bytes();
    const int64_t table_bytes = b.look_ups() * b.entries() * 2, planes_bytes = b.planes * b.indices() * 64;
    for (int64_t g = 0; g < b.groups(); ++g, at += b.group_bytes()) {
      for (int64_t line = 0; line < b.group_bytes(); line += 64) __builtin_prefetch(at + 4096 + line);
      for (size_t t = 0; t < tokens.size(); ++t) {
        __m512i low = _mm512_setzero_si512(), high = low;
        add_group_512<kPlanes, kVersion>(at, tokens[t].bytes.data() + g * table_bytes, low, high);
        const __m512i middle =
            _mm512_set1_epi16(kVersion == Version::rounded ? 0 : tokens[t].middle[static_cast<size_t>(g)]);
        low = _mm512_sub_epi16(low, middle);
        high = _mm512_sub_epi16(high, middle);
        const __m256i parts[4] = {_mm512_castsi512_si256(low), _mm512_extracti64x4_epi64(low, 1),
                                  _mm512_castsi512_si256(high), _mm512_extracti64x4_epi64(high, 1)};
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const __m512 scale = _mm512_loadu_ps(at + planes_bytes + i * 64);
          sums[t][i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(parts[i])), scale, sums[t][i]);
        }
      }
    }
    for (size_t t = 0; t < tokens.size(); ++t)
      for (int i = 0; i < 4; ++i)
        _mm512_storeu_ps(y + static_cast<int64_t>(t) * kLutRows + block * 64 + i * 16, sums[t][i]);
  }
}

using Multiply = void (*)(const Bits&, const uint8_t*, const std::vector<Tables>&, float*);

template <Version kVersion>
Multiply multiply_of(int planes) {
  return planes == 2 ? multiply_512<2, kVersion> : planes == 3 ? multiply_512<3, kVersion> : multiply_512<4, kVersion>;
}

// Scales are stored in the order of the sums, so that a group's are read in a row.
struct Problem {
  Problem(const Bits& b, int64_t tokens) {
    std::mt19937 engine(5);
    levels.resize(static_cast<size_t>(kLutRows * kLutCols));
    for (uint8_t& level : levels) level = static_cast<uint8_t>(engine() % (1u << b.planes));
    scales.resize(static_cast<size_t>(kLutRows * b.groups()));
    for (float& scale : scales) scale = 0.5f + static_cast<float>(engine() % 64) / 64;
    for (int64_t t = 0; t < tokens; ++t) {
      auto& row = x.emplace_back(static_cast<size_t>(kLutCols));
      for (int8_t& value : row) value = static_cast<int8_t>(static_cast<int>(engine() % 255) - 127);
    }
    std::vector<float> ordered(scales.size());
    for (int64_t r = 0; r < kLutRows; ++r)
      for (int64_t g = 0; g < b.groups(); ++g)
        ordered[static_cast<size_t>((r / 64 * 64 + place_of(r % 64)) * b.groups() + g)] =
            scales[static_cast<size_t>(r * b.groups() + g)];
    packed = pack(b, levels, ordered);
  }

  double expected(const Bits& b, int64_t t, int64_t r) const {
    double out = 0;
    for (int64_t c = 0; c < kLutCols; ++c)
      out += static_cast<double>(scales[static_cast<size_t>(r * b.groups() + c / b.group())]) *
             (levels[static_cast<size_t>(r * kLutCols + c)] - (1 << (b.planes - 1))) *
             x[static_cast<size_t>(t)][static_cast<size_t>(c)];
    return out;
  }

  std::vector<uint8_t> levels, packed;
  std::vector<float> scales;
  std::vector<std::vector<int8_t>> x;
};

bool matches(const Bits& b, const Problem& problem, const float* y, int64_t tokens) {
  if (b.version == Version::rounded) return true;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t r = 0; r < kLutRows; r += 37) {
      const double want = problem.expected(b, t, r), got = y[t * kLutRows + r / 64 * 64 + place_of(r % 64)];
      if (std::abs(want - got) > 1e-4 * (std::abs(want) + 1000)) return false;
    }
  return true;
}

void bench_lut(benchmark::State& state, const Bits& b, Multiply multiply) {
  const int64_t tokens = state.range(0);
  const Problem problem(b, tokens);
  std::vector<std::vector<uint8_t>> copies(1, problem.packed);
  while (state.range(1) != 0 && std::ssize(copies) * b.bytes() < kLutColdBytes) copies.push_back(problem.packed);
  std::vector<float> y(static_cast<size_t>(tokens * kLutRows));
  size_t next = 0;
  for (auto _ : state) {
    std::vector<Tables> tables;
    for (const auto& row : problem.x) tables.push_back(make_tables(b, row.data()));
    const auto start = std::chrono::steady_clock::now();  // making tables is not counted: it favours look-ups
    multiply(b, copies[next++ % copies.size()].data(), tables, y.data());
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  if (!matches(b, problem, y.data(), tokens)) state.SkipWithError("wrong sums");
  state.counters["bits"] = 8.0 * static_cast<double>(b.bytes()) / static_cast<double>(kLutRows * kLutCols);
}

void bench_engine(benchmark::State& state, const Format* format) {
  const int64_t tokens = state.range(0);
  ThreadPool pool(1);
  const KernelTable table = make_kernel_table(detect_isa());
  std::vector<uint8_t> stored(static_cast<size_t>(kLutRows * format->row_bytes(kLutCols)));
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  std::vector<float> row(kLutCols);
  for (int64_t r = 0; r < kLutRows; ++r) {
    for (float& v : row) v = normal(engine);
    if (r < 16)
      format->encode(row.data(), stored.data() + r * format->row_bytes(kLutCols), kLutCols);
    else
      std::copy_n(stored.data(), format->row_bytes(kLutCols), stored.data() + r * format->row_bytes(kLutCols));
  }
  std::vector<Weight> weights;
  for (int64_t total = 0; weights.empty() || (state.range(1) != 0 && total < kLutColdBytes);) {
    Weight& weight = weights.emplace_back();
    weight.name = "bench";
    weight.format = format;
    weight.rows = kLutRows;
    weight.cols = kLutCols;
    weight.data = stored.data();
    if (auto packed = pack_weight(weight, table, pool); !packed)
      return state.SkipWithError(packed.error().message.c_str());
    total += weight.packed.bytes();
  }
  std::vector<float> x(static_cast<size_t>(tokens * kLutCols)), y(static_cast<size_t>(tokens * kLutRows));
  for (float& v : x) v = normal(engine);
  auto scratch = AlignedBuffer::allocate(tokens * activation_row_bytes(format->activation, kLutCols), "scratch");
  const ActivationRows rows =
      encode_activations(table, pool, format->activation, x.data(), kLutCols, tokens, kLutCols, scratch->data());
  size_t next = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    linear(pool, weights[next++ % weights.size()], rows, y.data(), kLutRows);
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  state.counters["bits"] =
      8.0 * static_cast<double>(weights[0].packed.bytes()) / static_cast<double>(kLutRows * kLutCols);
}

void with_arguments(benchmark::internal::Benchmark* run) {
  run->UseManualTime()->Unit(benchmark::kMicrosecond)->ArgNames({"tokens", "memory"});
  for (int64_t memory : {0, 1})
    for (int64_t tokens : {1, 4, 8}) run->Args({tokens, memory});
}

const bool kLutRegistered = [] {
  for (const char* name : {"q4_0", "q3_k", "q2_k"})
    with_arguments(benchmark::RegisterBenchmark((std::string(name) + "/engine").c_str(), [=](benchmark::State& state) {
      bench_engine(state, find_format(name));
    }));
  if (!detect_isa().has(Feature::avx512_vbmi)) return true;
  for (int planes : {2, 3, 4}) {
    const auto add = [&](const char* name, Version version, Multiply multiply) {
      const Bits b{planes, version, 64};
      with_arguments(benchmark::RegisterBenchmark((std::to_string(planes) + "bit/" + name).c_str(),
                                                  [=](benchmark::State& state) { bench_lut(state, b, multiply); }));
    };
    add("exact", Version::exact, multiply_of<Version::exact>(planes));
    add("rounded", Version::rounded, multiply_of<Version::rounded>(planes));
    add("wide", Version::wide, multiply_of<Version::wide>(planes));
  }
  return true;
}();

}  // namespace
}  // namespace millrace
#endif
