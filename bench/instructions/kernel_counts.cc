// Runs kernels one by one for tools/check_instructions --arm, which counts their instructions: for every set of
// features of this processor, those that differ from the sets before. Before each it prints "STEP FORMAT@FEATURES ";
// around it are two marks, calls of getppid() (qemu_counter.cc).
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/activation.h"
#include "kernels/kernel_table.h"
#include "kernels/linear.h"

namespace millrace {
namespace {

// In [-1, 1), exact in f32.
std::vector<float> values(int64_t count, uint32_t seed) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int32_t>(seed) >> 8) / 8388608.0f;
  }
  return out;
}

template <typename Body>
void count(std::string_view step, std::string_view format, const KernelTable& table, const Body& body) {
  body();  // resolves what is linked lazily
  std::printf("%.*s %.*s@%s ", static_cast<int>(step.size()), step.data(), static_cast<int>(format.size()),
              format.data(), isa_name(table.isa).c_str());
  std::fflush(stdout);
  getppid();
  body();
  getppid();
}

// 64 rows by 512 columns, 32768 multiply-adds a token.
int count_products(const KernelTable& table, const MatmulKernel& kernel) {
  constexpr int64_t kRows = 64, kCols = 512, kTokens = 16;
  const Format& format = *kernel.format;
  const std::vector<float> stored_values = values(kRows * kCols, 1), x = values(kTokens * kCols, 2);
  std::vector<uint8_t> stored(static_cast<size_t>(kRows * format.row_bytes(kCols)));
  for (int64_t row = 0; row < kRows; ++row)
    format.encode(stored_values.data() + row * kCols, stored.data() + row * format.row_bytes(kCols), kCols);
  Weight weight;
  weight.format = &format;
  weight.rows = kRows;
  weight.cols = kCols;
  weight.data = stored.data();
  ThreadPool pool(1);
  if (const auto packed = pack_weight(weight, table, pool); !packed.ok()) {
    std::fprintf(stderr, "kernel_counts: %s\n", packed.error().message.c_str());
    return 1;
  }
  const int64_t stride = activation_row_bytes(format.activation, kCols);
  auto rows = AlignedBuffer::allocate(kTokens * stride, "activations");
  if (!rows.ok()) return 1;
  encode_activations(table, pool, format.activation, x.data(), kCols, kTokens, kCols, rows->data());
  std::vector<float> y(static_cast<size_t>(kTokens * kRows));
  MatmulArgs args;
  args.weights = weight.packed.data();
  args.rows = args.row_end = args.y_stride = kRows;
  args.cols = kCols;
  args.x = rows->data();
  args.x_stride = stride;
  args.y = y.data();
  for (const int64_t tokens : {int64_t{1}, kTokens}) {
    args.tokens = tokens;
    count(tokens == 1 ? "product_1" : "product_16", format.name, table, [&] { kernel.run(args); });
  }
  return 0;
}

// 4 queries of 64 dims against 256 keys.
void count_attention(const KernelTable& table, const AttentionKernel& kernel) {
  constexpr int64_t kDim = 64, kGroup = 4, kKeys = kAttentionPartition;
  const Format& format = *kernel.kv_format;
  const std::vector<float> q = values(kGroup * kDim, 3), kv = values(2 * kKeys * kDim, 4);
  const int64_t row_bytes = format.row_bytes(kDim);
  std::vector<uint8_t> rows(static_cast<size_t>(2 * kKeys * row_bytes));
  for (int64_t row = 0; row < 2 * kKeys; ++row)
    format.encode(kv.data() + row * kDim, rows.data() + row * row_bytes, kDim);
  const uint8_t* keys = rows.data();
  const uint8_t* stored_values = rows.data() + kKeys * row_bytes;
  std::vector<float> result(static_cast<size_t>(kGroup * (kDim + 2)));
  AttentionArgs args;
  args.q = q.data();
  args.q_stride = kGroup * kDim;
  args.queries = 1;
  args.group = kGroup;
  args.head_dim = kDim;
  args.first_query = kKeys - 1;
  args.key_end = kKeys;
  args.k_blocks = &keys;
  args.v_blocks = &stored_values;
  args.block_tokens = kKeys;
  args.row_bytes = row_bytes;
  args.max = result.data();
  args.sum = result.data() + kGroup;
  args.acc = result.data() + 2 * kGroup;
  count("attention", format.name, table, [&] { kernel.run(args); });
}

// 1024 values each.
void count_rest(const KernelTable& table) {
  constexpr int64_t kCount = 1024;
  const std::vector<float> x = values(kCount, 5), w = values(kCount, 6);
  std::vector<float> y = x;
  count("norm", "f32", table, [&] { table.rms_norm(x.data(), w.data(), 0, 1e-5f, kCount, y.data()); });
  count("softmax", "f32", table, [&] { table.softmax(y.data(), kCount); });
  count("silu_mul", "f32", table, [&] { table.silu_mul(x.data(), w.data(), y.data(), kCount); });
  count("rope", "f32", table, [&] { table.rope(y.data(), x.data(), w.data(), kCount, true); });
  auto row = AlignedBuffer::allocate(activation_row_bytes(Activation::f32, kCount), "row");
  if (!row.ok()) return;
  for (const auto& [kind, name] :
       {std::pair{Activation::bf16, "bf16"}, {Activation::q8, "q8"}, {Activation::q8_shift, "q8_shift"}}) {
    count("round", name, table, [&] { table.encode_activation(kind, x.data(), kCount, row->data()); });
  }
}

int count_all() {
  std::set<void (*)(const MatmulArgs&)> products;
  std::set<void (*)(const AttentionArgs&)> attention;
  bool first = true;
  for (const Isa isa : isa_variants()) {
    if (isa == Isa::ref) continue;
    const KernelTable table = make_kernel_table(isa);
    for (const MatmulKernel& kernel : table.matmul)
      if (products.insert(kernel.run).second && count_products(table, kernel) != 0) return 1;
    for (const AttentionKernel& kernel : table.attention)
      if (attention.insert(kernel.run).second) count_attention(table, kernel);
    if (first) count_rest(table);
    first = false;
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main() { return millrace::count_all(); }
