#include "models/lora/adapter.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "formats/format.h"
#include "models/lora/file.h"
#include "models/lora/targets.h"

namespace millrace {
namespace {

constexpr int64_t kMaxRank = 4096;

// Converts a row of one head between the rotation orders: pairs (2i, 2i + 1) or (i, i + n/2).
int64_t turned_row(int64_t row, int64_t head_dim, RopeStyle to) {
  const int64_t head = row / head_dim * head_dim, at = row % head_dim, half = head_dim / 2;
  return head + (to == RopeStyle::interleaved ? at % 2 * half + at / 2 : at % half * 2 + at / half);
}

std::vector<float> decoded(const StoredTensor& stored) {
  std::vector<float> values(static_cast<size_t>(stored.tensor.values()));
  stored.tensor.format->decode(stored.tensor.data, values.data(), stored.tensor.values());
  return values;
}

// Returns why a layer has no matrix of keys or values that an adapter could change; "" for other matrices.
std::string keys_of_another_layer(const ArchSpec& spec, const std::string& canonical) {
  for (int64_t i = 0; i < spec.layer_count(); ++i) {
    const int64_t from = spec.layers[static_cast<size_t>(i)].kv_from;
    if (from >= 0 && (canonical.starts_with(fmt::format("blk.{}.attn_k.", i)) ||
                      canonical.starts_with(fmt::format("blk.{}.attn_v.", i))))
      return fmt::format(": layer {} reads the keys and values of layer {}", i, from);
  }
  return {};
}

std::string shape(const Tensor& tensor) { return fmt::format("[{}, {}]", tensor.rows(), tensor.cols()); }

}  // namespace

class LoraLoader {
 public:
  LoraLoader(const LoraFile& file, const Model& model, const KernelTable& table,
             std::shared_ptr<MemoryAccounts> accounts, const std::string& path)
      : file_(file), model_(model), table_(table), accounts_(std::move(accounts)), path_(path) {}

  Result<std::shared_ptr<const LoraAdapter>> load() {
    auto adapter = std::make_shared<LoraAdapter>();
    adapter->path_ = path_;
    for (const auto& [canonical, factors] : file_.factors) MILLRACE_TRY_VOID(plan(*adapter, canonical, factors));
    MILLRACE_TRY(adapter->memory_, MemoryHold::take(accounts_, "adapters", adapter->bytes_,
                                                    "unload another adapter, or raise the budget"));
    XXH3_state_t* hash = XXH3_createState();
    XXH3_128bits_reset(hash);
    Result<void> packed;
    for (const auto& [canonical, factors] : file_.factors)
      if (packed.ok()) packed = pack(*adapter, canonical, factors, hash);
    const XXH128_hash_t digest = XXH3_128bits_digest(hash);
    XXH3_freeState(hash);
    if (!packed.ok()) return packed.error();
    adapter->identity_ = fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
    return std::shared_ptr<const LoraAdapter>(std::move(adapter));
  }

 private:
  Error wrong(const StoredTensor& stored, const std::string& what) const {
    return Error::corrupt(fmt::format("{}: tensor {} {}", path_, stored.name, what));
  }

  // Checks the factors against the model, and adds up their memory.
  Result<void> plan(LoraAdapter& adapter, const std::string& canonical, const LoraFactors& factors) {
    for (const StoredTensor* stored : {factors.a, factors.b}) {
      if (!stored->tensor.format)
        return Error::unsupported(fmt::format("{}: tensor {} has type {}", path_, stored->name, stored->type_name));
      if (stored->tensor.rank != 2 || stored->tensor.cols() % stored->tensor.format->block_values != 0)
        return wrong(*stored, "is not a matrix");
      if (!stored->scales.values.empty())
        return Error::unsupported(fmt::format("{}: tensor {} has block scales", path_, stored->name));
      MILLRACE_TRY_VOID(check_tensor_finite(file_.files, *stored));
    }
    const Tensor &a = factors.a->tensor, &b = factors.b->tensor;
    const int64_t rank = a.rows();
    if (rank < 1 || rank > kMaxRank || b.cols() != rank)
      return wrong(*factors.b, fmt::format("has shape {}, its partner {}; they must share a rank of 1 to {}", shape(b),
                                           shape(a), kMaxRank));
    const auto targets = lora_targets(model_, canonical, b.rows());
    if (targets.empty())
      return Error::unsupported(fmt::format("{}: tensor {}: adapters cannot change {}{}", path_, factors.a->name,
                                            canonical, keys_of_another_layer(model_.spec(), canonical)));
    int64_t rows = 0;
    for (const LoraTarget& target : targets) {
      rows += target.weight->rows;
      if (target.weight->cols != a.cols())
        return wrong(*factors.a,
                     fmt::format("has shape {}, the model's matrix {} columns", shape(a), target.weight->cols));
      if (target.rotated_heads > 0 && file_.rope_style != model_.spec().rope_style)
        MILLRACE_TRY_VOID(check_turn(*factors.b));
      adapter.bytes_ += 4 * (rank * a.cols() + rank * target.weight->rows);
    }
    if (rows != b.rows()) return wrong(*factors.b, fmt::format("has {} rows, the model's matrix {}", b.rows(), rows));
    adapter.rank_ = std::max(adapter.rank_, rank);
    return {};
  }

  Result<void> check_turn(const StoredTensor& stored) const {
    const ArchSpec& spec = model_.spec();
    for (const RopeSpec& rope : spec.ropes)
      if (rope.rotated != spec.head_dim)
        return Error::unsupported(fmt::format(
            "{}: tensor {}: its file kind orders the rows of partly rotated heads differently from the model's; "
            "convert the adapter "
            "to the model's file kind",
            path_, stored.name));
    return {};
  }

  Result<void> pack(LoraAdapter& adapter, const std::string& canonical, const LoraFactors& factors,
                    XXH3_state_t* hash) {
    const std::vector<float> a = decoded(*factors.a);
    std::vector<float> b = decoded(*factors.b);
    const int64_t rank = factors.a->tensor.rows(), cols = factors.a->tensor.cols();
    const float scale = file_.scale(rank);
    for (float& value : b) value *= scale;
    XXH3_128bits_update(hash, canonical.data(), canonical.size() + 1);
    XXH3_128bits_update(hash, a.data(), a.size() * sizeof(float));
    XXH3_128bits_update(hash, b.data(), b.size() * sizeof(float));
    for (const LoraTarget& target : lora_targets(model_, canonical, factors.b->tensor.rows())) {
      const int64_t rows = target.weight->rows;
      std::vector<float> mine(b.begin() + target.row_begin * rank, b.begin() + (target.row_begin + rows) * rank);
      if (target.rotated_heads > 0 && file_.rope_style != model_.spec().rope_style) {
        const std::vector<float> from = mine;
        for (int64_t row = 0; row < rows; ++row)
          std::copy_n(from.begin() + turned_row(row, model_.spec().head_dim, model_.spec().rope_style) * rank, rank,
                      mine.begin() + row * rank);
      }
      LoraPair pair;
      MILLRACE_TRY(pair.a, packed(factors.a->name, a, rank, cols));
      MILLRACE_TRY(pair.b, packed(factors.b->name, mine, rows, rank));
      if (!adapter.pairs_.emplace(target.weight, std::move(pair)).second)
        return wrong(*factors.a, "changes a matrix that another tensor also changes");
    }
    return {};
  }

  Result<Weight> packed(const std::string& name, const std::vector<float>& values, int64_t rows, int64_t cols) {
    Weight weight;
    weight.name = name;
    weight.format = find_format("f32");
    weight.rows = rows;
    weight.cols = cols;
    weight.data = reinterpret_cast<const uint8_t*>(values.data());
    MILLRACE_TRY_VOID(pack_weight(weight, table_, pool_));
    weight.data = nullptr;
    return weight;
  }

  const LoraFile& file_;
  const Model& model_;
  const KernelTable& table_;
  std::shared_ptr<MemoryAccounts> accounts_;
  const std::string& path_;
  ThreadPool pool_{1};
};

Result<std::shared_ptr<const LoraAdapter>> LoraAdapter::load(const std::string& path, const Model& model,
                                                             const ModelFiles& files, const KernelTable& table,
                                                             std::shared_ptr<MemoryAccounts> accounts) {
  const Arch* arch = find_arch(files);
  if (!arch) return Error::internal("adapter: the model's architecture is unknown");
  MILLRACE_TRY(const LoraFile file, open_lora_file(path, *arch, model.spec().layer_count()));
  return LoraLoader(file, model, table, std::move(accounts), path).load();
}

}  // namespace millrace
