#include "models/draft_heads/draft_files.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "loader/hf_model.h"
#include "models/arch/common.h"
#include "models/blocks/rope.h"
#include "models/layer_mixers.h"
#include "models/weight_packer.h"

namespace millrace {

Result<std::shared_ptr<const ModelFiles>> open_draft_files(const std::string& path) {
  if (path.empty()) return Error::user("model: must name the folder of a checkpoint, model=PATH");
  MILLRACE_TRY(ModelFiles files, open_huggingface_heads(path));
  return std::make_shared<const ModelFiles>(std::move(files));
}

Result<void> DraftWeights::pack(const ModelFiles& files, std::span<Weight* const> weights, const KernelTable& table,
                                ThreadPool& pool, std::shared_ptr<MemoryAccounts> accounts, const char* account,
                                const char* advice) {
  const auto in_file = [&](const Error& error) { return Error{error.kind, files.path + ": " + error.message}; };
  WeightPacker packer(files, table);
  for (Weight* weight : weights)
    if (auto added = packer.add(*weight); !added.ok()) return in_file(added.error());
  packer.arrange();
  MILLRACE_TRY(memory_, MemoryHold::take(std::move(accounts), account, packer.packed_bytes(), advice));
  auto packed = packer.pack(pool, nullptr);
  if (!packed.ok()) return in_file(packed.error());
  packed_ = std::move(packed).value();
  packer.point_weights(packed_.data());
  for (const auto& file : files.files) file->release(0, file->bytes().size());
  return {};
}

Result<DraftRopes> read_draft_config(const ModelFiles& files, const ArchSpec& target, int64_t context, ArchSpec& spec,
                                     bool copied) {
  ConfigReader config(*files.config, files.path + "/config.json");
  read_common_huggingface(config, spec);
  MILLRACE_TRY_VOID(config.status());
  if (copied && spec.layer_count() > 1) spec.layers.resize(1);
  if (spec.layer_count() != 1)
    return Error::unsupported(fmt::format("{}: {} draft layers; one is supported", files.path, spec.layer_count()));
  if (spec.width != target.width || spec.vocab != target.vocab)
    return Error::user(
        fmt::format("{}: drafts for a model of width {} and {} tokens; this one has width {} and {} tokens", files.path,
                    spec.width, spec.vocab, target.width, target.vocab));
  spec.parts = target.parts;  // of the model's head
  LayerSpec& layer = spec.layers[0];
  set_own_sizes(spec, layer);
  if (const std::string problem = mixers_problem(spec, layer); !problem.empty())
    return Error::corrupt(fmt::format("{}: {}", files.path, problem));
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  DraftRopes ropes;
  for (const RopeSpec& rope : spec.ropes) {
    if (rope.scaling == RopeSpec::Scaling::longrope &&
        (std::ssize(rope.long_factors) != rope.rotated / 2 || std::ssize(rope.short_factors) != rope.rotated / 2))
      return Error::corrupt(fmt::format("{}: rope factors do not fit {} frequencies", files.path, rope.rotated / 2));
    if (!(rope.theta > 0.0)) return Error::corrupt(fmt::format("{}: rope base {}", files.path, rope.theta));
    ropes.frequencies.push_back(rope_frequencies(rope, context));
    ropes.scales.push_back(rope_scale(rope));
  }
  return ropes;
}

Result<void> check_draft_formats(const ModelFiles& files, const Weight& first,
                                 std::initializer_list<const Weight*> others) {
  for (const Weight* other : others)
    if (other->format->activation != first.format->activation)
      return Error::unsupported(fmt::format("{}: tensors {} and {} have formats that round their inputs differently",
                                            files.path, first.name, other->name));
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
