#include "models/draft_heads/medusa_heads.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/activation.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

constexpr int64_t kMaxMedusaHeads = 64, kMaxMedusaBlocks = 16;

const std::vector<TensorName> kBareNames = {{"block.{l}.{e}.weight", "{l}.{e}.linear.weight"},
                                            {"block.{l}.{e}.bias", "{l}.{e}.linear.bias"},
                                            {"out.{l}.{e}.weight", "{l}.{e}.weight"}};
const std::vector<TensorName> kPrefixedNames = {{"block.{l}.{e}.weight", "medusa_head.{l}.{e}.linear.weight"},
                                                {"block.{l}.{e}.bias", "medusa_head.{l}.{e}.linear.bias"},
                                                {"out.{l}.{e}.weight", "medusa_head.{l}.{e}.weight"}};
const Arch kBareMedusa = {.name = "medusa", .huggingface_type = "", .summary = "", .paper = "", .names = kBareNames};
const Arch kPrefixedMedusa = {
    .name = "medusa", .huggingface_type = "", .summary = "", .paper = "", .names = kPrefixedNames};

int64_t widest_medusa_row(int64_t cols) {
  int64_t bytes = 0;
  for (Activation kind : kActivations) bytes = std::max(bytes, activation_row_bytes(kind, cols));
  return bytes;
}

int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Result<std::unique_ptr<MedusaHeads>> MedusaHeads::load(const std::string& path, const ArchSpec& target,
                                                       const KernelTable& table, ThreadPool& pool,
                                                       std::shared_ptr<MemoryAccounts> accounts) {
  auto made = std::make_unique<MedusaHeads>();
  MILLRACE_TRY(made->files_, open_draft_files(path));
  const ModelFiles& files = *made->files_;
  made->table_ = &table;
  made->width_ = target.width;
  made->vocab_ = target.vocab;
  const bool prefixed = std::ranges::any_of(
      files.tensors, [](const StoredTensor& stored) { return stored.name.starts_with("medusa_head."); });
  WeightLoader loader(files, prefixed ? kPrefixedMedusa : kBareMedusa);
  ConfigReader config(*files.config, files.path + "/config.json");
  const int64_t blocks = config.count_or("medusa_num_layers", 1, 0, kMaxMedusaBlocks);
  // Published files have more heads than their configuration says, or none there.
  const int64_t least = std::max<int64_t>(1, config.count_or("medusa_num_heads", 1, 0, kMaxMedusaHeads));
  MILLRACE_TRY_VOID(config.status());
  const auto out_name = [&](int64_t head) { return fmt::format("out.{}.{}.weight", head, blocks); };
  if (const StoredTensor* out = loader.find(out_name(0));
      out && (out->tensor.cols() != target.width || out->tensor.rows() != target.vocab))
    return Error::user(
        fmt::format("{}: heads of a model of width {} and {} tokens; this one has width {} and {} tokens", path,
                    out->tensor.cols(), out->tensor.rows(), target.width, target.vocab));
  for (int64_t i = 0; i < kMaxMedusaHeads && (i < least || loader.find(out_name(i))); ++i) {
    Head& head = made->heads_.emplace_back();
    for (int64_t j = 0; j < blocks; ++j) {
      Block& block = head.blocks.emplace_back();
      MILLRACE_TRY(block.weight, loader.matrix(fmt::format("block.{}.{}.weight", i, j), target.width, target.width));
      MILLRACE_TRY(block.bias, loader.optional_vector(fmt::format("block.{}.{}.bias", i, j), target.width));
    }
    MILLRACE_TRY(head.out, loader.matrix(out_name(i), target.vocab, target.width));
  }
  std::vector<Weight*> all;
  for (Head& head : made->heads_) {
    for (Block& block : head.blocks) all.push_back(&block.weight);
    all.push_back(&head.out);
  }
  MILLRACE_TRY_VOID(made->weights_.pack(files, all, table, pool, std::move(accounts)));
  return made;
}

// Hidden states, a block's outputs, ones, and rounded rows.
int64_t MedusaHeads::scratch_bytes(int64_t rows) const {
  return 2 * whole_lines(4 * rows * width_) + whole_lines(4 * width_) + rows * widest_medusa_row(width_);
}

void MedusaHeads::logits(int64_t head, const float* hidden, int64_t rows, uint8_t* scratch, ThreadPool& pool,
                         float* logits) const {
  const int64_t matrix = whole_lines(4 * rows * width_);
  auto* h = reinterpret_cast<float*>(scratch);
  auto* out = reinterpret_cast<float*>(scratch + matrix);
  auto* ones = reinterpret_cast<float*>(scratch + 2 * matrix);
  uint8_t* rounded = scratch + 2 * matrix + whole_lines(4 * width_);
  std::copy_n(hidden, rows * width_, h);
  std::fill_n(ones, width_, 1.0f);
  const Head& own = heads_[static_cast<size_t>(head)];
  const auto multiply = [&](const Weight& weight, float* y) {
    linear(pool, weight, encode_activations(*table_, pool, weight.format->activation, h, width_, rows, width_, rounded),
           y, weight.rows);
  };
  for (const Block& block : own.blocks) {
    multiply(block.weight, out);
    for (int64_t t = 0; t < rows; ++t) {
      float* row = out + t * width_;
      if (!block.bias.empty()) table_->add(block.bias.data(), row, width_);
      table_->silu_mul(row, ones, row, width_);
      table_->add(row, h + t * width_, width_);
    }
  }
  multiply(own.out, logits);
}

}  // namespace millrace
