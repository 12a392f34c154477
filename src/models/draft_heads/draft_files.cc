#include "models/draft_heads/draft_files.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "loader/hf_model.h"
#include "models/weight_packer.h"

namespace millrace {

Result<std::shared_ptr<const ModelFiles>> open_draft_files(const std::string& path) {
  if (path.empty()) return Error::user("model: must name the folder of a checkpoint, model=PATH");
  MILLRACE_TRY(ModelFiles files, open_huggingface_heads(path));
  return std::make_shared<const ModelFiles>(std::move(files));
}

Result<void> DraftWeights::pack(const ModelFiles& files, std::span<Weight* const> weights, const KernelTable& table,
                                ThreadPool& pool, std::shared_ptr<MemoryAccounts> accounts) {
  const auto in_file = [&](const Error& error) { return Error{error.kind, files.path + ": " + error.message}; };
  WeightPacker packer(files, table);
  for (Weight* weight : weights)
    if (auto added = packer.add(*weight); !added.ok()) return in_file(added.error());
  packer.arrange();
  MILLRACE_TRY(memory_, MemoryHold::take(std::move(accounts), "draft model", packer.packed_bytes(),
                                         "choose another drafter, or raise the budget"));
  auto packed = packer.pack(pool, nullptr);
  if (!packed.ok()) return in_file(packed.error());
  packed_ = std::move(packed).value();
  packer.point_weights(packed_.data());
  for (const auto& file : files.files) file->release(0, file->bytes().size());
  return {};
}

std::string draft_identity(const ModelFiles& files) {
  constexpr size_t kBytesHashed = 1 << 20;
  std::string text;
  for (const auto& file : files.files) {
    const std::span<const uint8_t> bytes = file->bytes();
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), std::min(bytes.size(), kBytesHashed));
    text +=
        fmt::format("drafts from a file of {} bytes, begins {:016x}{:016x}\n", bytes.size(), hash.high64, hash.low64);
  }
  return text;
}

}  // namespace millrace
