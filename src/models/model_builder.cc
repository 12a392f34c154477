#include "models/model_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "base/memory.h"
#include "millrace/options.h"
#include "models/background_packer.h"
#include "models/blocks/rope.h"
#include "models/layer_matrices.h"
#include "models/layer_mixers.h"
#include "models/packed_cache.h"
#include "models/tensor_train_loader.h"
#include "models/weight_parts_loader.h"

namespace millrace {

ModelBuilder::ModelBuilder(std::shared_ptr<const ModelFiles> files, const Arch& arch, ArchSpec spec,
                           std::vector<TensorRequest>* requests)
    : files_(std::move(files)), loader_(*files_, arch, requests), model_(new Model()) {
  model_->files_ = files_;
  model_->spec_ = std::move(spec);
}

Result<std::unique_ptr<Model>> ModelBuilder::build(const KernelTable& table, ThreadPool& pool,
                                                   const ModelOptions& options) {
  const ArchSpec& spec = model_->spec_;
  model_->context_ = options.context > 0 ? options.context : std::min(spec.context, kDefaultContext);
  if (spec.learned_positions && model_->context_ > spec.context) {
    return Error::user(fmt::format("context: {} has learned positions for {} tokens, {} requested", files_->path,
                                   spec.context, options.context));
  }
  const bool dynamic = std::ranges::any_of(spec.ropes, [](const RopeSpec& rope) { return rope.dynamic; });
  if (dynamic && model_->context_ > spec.context)
    return Error::unsupported(
        fmt::format("context: {} scales positions past {} tokens by the length of the text (rope scaling 'dynamic'), "
                    "which is not supported, {} requested; ask for no more than {}",
                    files_->path, spec.context, options.context, spec.context));
  for (const auto& rope : spec.ropes) {
    model_->rope_frequencies_.push_back(rope_frequencies(rope, model_->context_));
    model_->rope_scales_.push_back(rope_scale(rope));
  }
  MILLRACE_TRY_VOID(load_around_layers());
  for (int64_t i = 0; i < spec.layer_count(); ++i) MILLRACE_TRY_VOID(load_layer(i));
  std::vector<const TokenGates*> gates;
  for (const LayerWeights& layer : model_->layers_) gates.push_back(&layer.gates);
  MILLRACE_TRY(model_->spec_.gates, common_gates(files_->path, gates));
  MILLRACE_TRY_VOID(check_parts_have_matrices(*files_));
  MILLRACE_TRY_VOID(convert_cold_experts(options));
  MILLRACE_TRY_VOID(pack(table, pool, options));
  return std::move(model_);
}

Result<void> ModelBuilder::load_around_layers() {
  model_->layers_.resize(model_->spec_.layers.size());
  MILLRACE_TRY_VOID(load_embeddings());
  MILLRACE_TRY_VOID(load_layer_inputs());
  MILLRACE_TRY(model_->stream_in_, load_streams("altup_proj"));
  MILLRACE_TRY(model_->stream_out_, load_streams("altup_unembd_proj"));
  return {};
}

StoredTensor ModelBuilder::stored(std::string_view name) const {
  const StoredTensor* found = loader_.find(name);
  return found ? *found : StoredTensor{};
}

Result<void> ModelBuilder::load_embeddings() {
  const ArchSpec& spec = model_->spec_;
  MILLRACE_TRY(const TensorTrain train, read_tensor_train(*files_, spec.width));
  const int64_t cols = train.modes > 0 ? train.values() : spec.width;
  MILLRACE_TRY(Weight embedding, loader_.matrix("token_embd.weight", spec.vocab, cols));
  const StoredTensor table = stored("token_embd.weight");
  if (embedding.parts || embedding.codebook)
    return Error::unsupported(
        fmt::format("{}: token_embd.weight: an embedding table cannot have weight parts", files_->path));
  model_->embedding_ = table.tensor;
  if (!table.scales.values.empty())
    return Error::unsupported(
        fmt::format("{}: token_embd.weight: embeddings with block scales are not supported", files_->path));
  if (spec.learned_positions) {
    MILLRACE_TRY(Weight positions,
                 loader_.matrix("position_embd.weight", spec.first_position + spec.context, spec.width));
    if (is_factored(positions))
      return Error::unsupported(
          fmt::format("{}: position_embd.weight: a table of positions cannot be factored", files_->path));
    tables_.push_back(std::move(positions));
    model_->positions_ = stored("position_embd.weight").tensor;
  }
  MILLRACE_TRY_VOID(load_types());
  MILLRACE_TRY(model_->embedding_norm_, load_norm("token_embd_norm", spec.embedding_norm));
  MILLRACE_TRY(model_->output_norm_, load_norm("output_norm", !spec.sum_norm));
  if (!spec.encoder) {
    MILLRACE_TRY(model_->head_, loader_.optional_matrix("output.weight", spec.vocab, spec.width));
  }
  if (model_->head_.present() || spec.encoder)
    tables_.push_back(std::move(embedding));
  else if (train.modes > 0)
    return Error::unsupported(fmt::format(
        "{}: tensor output.weight is missing: an embedding table that is a tensor train cannot be the head, too",
        files_->path));
  else
    model_->head_ = std::move(embedding);  // tied
  MILLRACE_TRY(model_->head_bias_, loader_.optional_vector("output.bias", spec.vocab));
  return {};
}

Result<void> ModelBuilder::load_types() {
  ArchSpec& spec = model_->spec_;
  const char* const name = "token_types.weight";
  if (!spec.encoder || !loader_.find(name)) return {};
  spec.token_types = stored(name).tensor.rows();
  MILLRACE_TRY(model_->types_, loader_.table(name, spec.token_types, spec.width));
  if (const auto& tokenizer = files_->tokenizer; tokenizer && tokenizer->sep) model_->separator_ = *tokenizer->sep;
  return {};
}

Result<NormWeights> ModelBuilder::load_norm(const std::string& name, bool wanted) {
  NormWeights norm;
  if (!wanted) return norm;
  const int64_t width = model_->spec_.width;
  MILLRACE_TRY(norm.scale, loader_.vector(name + ".weight", width));
  if (model_->spec_.norm == NormKind::layer) {
    MILLRACE_TRY(norm.bias, loader_.optional_vector(name + ".bias", width));
  }
  return norm;
}

Result<void> ModelBuilder::load_layer(int64_t index) {
  const ArchSpec& spec = model_->spec_;
  const LayerSpec& sizes = spec.layers[static_cast<size_t>(index)];
  LayerWeights& layer = model_->layers_[static_cast<size_t>(index)];
  const std::string prefix = fmt::format("blk.{}.", index);
  MILLRACE_TRY(layer.attention_norm, load_norm(prefix + "attn_norm", spec.pre_norm && sizes.mixer_norm));
  MILLRACE_TRY(layer.mlp_norm, load_norm(prefix + "ffn_norm", spec.pre_norm && sizes.mlp));
  const bool after = spec.post_norm || spec.sum_norm;
  MILLRACE_TRY(layer.attention_post_norm,
               load_norm(prefix + (spec.sum_norm ? "attn_output_norm" : "post_attention_norm"), after));
  MILLRACE_TRY(layer.mlp_post_norm,
               load_norm(prefix + (spec.sum_norm ? "layer_output_norm" : "post_ffw_norm"), after && sizes.mlp));
  MILLRACE_TRY_VOID(load_mixers(loader_, prefix, spec, sizes, layer));
  MILLRACE_TRY(layer.gates, load_token_gates(loader_, prefix, spec.width));
  MILLRACE_TRY(layer.attention_shortcut, load_shortcut(index, false));
  if (!sizes.mlp) return {};
  MILLRACE_TRY(layer.mlp_shortcut, load_shortcut(index, true));
  if (sizes.moe) {
    MILLRACE_TRY(model_->spec_.layers[static_cast<size_t>(index)].experts.selection_bias,
                 loader_.optional_vector(prefix + "exp_probs_b.bias", sizes.experts.experts));
  }
  if (sizes.moe) MILLRACE_TRY_VOID(load_moe(loader_, files_->path, spec, prefix, sizes.experts, layer));
  if (sizes.has_dense_mlp()) MILLRACE_TRY_VOID(load_mlp(loader_, spec, prefix, sizes.hidden, layer));
  MILLRACE_TRY(layer.experts_norm, load_norm(prefix + "pre_ffw_norm_2", sizes.experts.beside_mlp));
  MILLRACE_TRY(layer.mlp_inner_norm, load_norm(prefix + "post_ffw_norm_1", sizes.experts.beside_mlp));
  MILLRACE_TRY(layer.experts_inner_norm, load_norm(prefix + "post_ffw_norm_2", sizes.experts.beside_mlp));
  return load_layer_end(prefix, layer);
}

// Loads the weights behind a layer's MLP: those of its own input and of further residual streams, and the factor of its
// output.
Result<void> ModelBuilder::load_layer_end(const std::string& prefix, LayerWeights& layer) {
  const ArchSpec& spec = model_->spec_;
  if (spec.layer_input > 0) {
    MILLRACE_TRY(layer.input_gate, loader_.matrix(prefix + "inp_gate.weight", spec.layer_input, spec.width));
    MILLRACE_TRY(layer.input_projection, loader_.matrix(prefix + "proj.weight", spec.width, spec.layer_input));
    MILLRACE_TRY(layer.input_post_norm, load_norm(prefix + "post_norm", true));
  }
  if (spec.streams > 1) MILLRACE_TRY_VOID(load_alt_up(prefix, layer));
  if (spec.laurel_rank > 0) {
    MILLRACE_TRY(layer.laurel_left, loader_.matrix(prefix + "laurel_l.weight", spec.laurel_rank, spec.width));
    MILLRACE_TRY(layer.laurel_right, loader_.matrix(prefix + "laurel_r.weight", spec.width, spec.laurel_rank));
    MILLRACE_TRY(layer.laurel_norm, load_norm(prefix + "laurel_post_norm", true));
    layer.attention_post_norm.residual_factor = std::sqrt(0.5f);  // of attention and LAuReL together
  }
  if (!spec.layer_scales) return {};
  MILLRACE_TRY(const auto scale, loader_.optional_vector(prefix + "layer_output_scale.weight", 1));
  if (!scale.empty())
    (spec.layer_input > 0 ? layer.input_post_norm : layer.mlp_post_norm).residual_factor = scale.front();
  return {};
}

Result<void> ModelBuilder::load_alt_up(const std::string& prefix, LayerWeights& layer) {
  const int64_t streams = model_->spec_.streams, width = model_->spec_.width;
  layer.alt_up = std::make_unique<AltUpWeights>();
  AltUpWeights& to = *layer.alt_up;
  MILLRACE_TRY(to.router, loader_.table(prefix + "altup_router.weight", streams, width));
  MILLRACE_TRY(to.router_norm, loader_.vector(prefix + "altup_router_norm.weight", width));
  MILLRACE_TRY(to.predict, loader_.table(prefix + "altup_predict_coef.weight", streams * streams, streams));
  MILLRACE_TRY(to.correct, loader_.table(prefix + "altup_correct_coef.weight", streams, streams));
  MILLRACE_TRY(to.scale, loader_.optional_vector(prefix + "altup_correct_scale.weight", width));
  return {};
}

// The matrices of all residual streams but the first, stacked or one by one.
Result<std::vector<Weight>> ModelBuilder::load_streams(const std::string& name) {
  const int64_t further = model_->spec_.streams - 1, width = model_->spec_.width;
  const std::string stacked = name + ".weight";
  std::vector<Weight> out;
  for (int64_t s = 0; s < further; ++s) {
    MILLRACE_TRY(Weight one, loader_.find(stacked)
                                 ? loader_.rows_of(stacked, further * width, s * width, width, width)
                                 : loader_.matrix(fmt::format("{}.{}.weight", name, s), width, width));
    out.push_back(std::move(one));
  }
  return out;
}

Result<void> ModelBuilder::load_layer_inputs() {
  const ArchSpec& spec = model_->spec_;
  if (spec.layer_input == 0) return {};
  LayerInputWeights& inputs = model_->layer_inputs_;
  const int64_t values = spec.layer_count() * spec.layer_input;
  const char* const name = "per_layer_token_embd.weight";
  const StoredTensor file_table = stored(name);
  const int64_t stored_rows = loader_.find(name) ? file_table.tensor.rows() : spec.vocab;
  MILLRACE_TRY(Weight table, loader_.rows_of(name, stored_rows, 0, std::min(stored_rows, spec.vocab), values));
  if (is_factored(table) || table.parts || table.codebook || !file_table.scales.values.empty())
    return Error::unsupported(fmt::format("{}: {}: a table cannot have weight parts or scales", files_->path, name));
  inputs.table = file_table.tensor;
  tables_.push_back(std::move(table));
  MILLRACE_TRY(inputs.projection, loader_.matrix("per_layer_model_proj.weight", values, spec.width));
  MILLRACE_TRY(inputs.norm, loader_.vector("per_layer_proj_norm.weight", spec.layer_input));
  return {};
}

Result<Weight> ModelBuilder::load_shortcut(int64_t layer, bool mlp) {
  if (files_->kind != ModelFiles::Kind::gguf) return Weight{};
  return loader_.optional_matrix(shortcut_tensor(layer, mlp), model_->spec_.width, model_->spec_.width);
}

std::vector<Weight*> ModelBuilder::all_weights() {
  std::vector<Weight*> all;
  if (model_->head_.present()) all.push_back(&model_->head_);
  if (model_->layer_inputs_.projection.present()) all.push_back(&model_->layer_inputs_.projection);
  for (auto* streams : {&model_->stream_in_, &model_->stream_out_})
    for (Weight& weight : *streams) all.push_back(&weight);
  for (auto& layer : model_->layers_) add_matrices(layer, all);
  for (size_t i = 0, own = all.size(); i < own; ++i)
    if (WeightParts* parts = all[i]->parts.get()) parts->each_matrix([&](Weight& one) { all.push_back(&one); });
  return all;
}

// The largest sizes of weights with parts, and, once kernels are chosen, the memory of the parts that are not packed.
int64_t ModelBuilder::measure_parts() {
  PartSizes& sizes = model_->spec_.parts;
  int64_t bytes = 0;
  for (const LayerWeights& layer : model_->layers_) bytes += layer.gates.bytes();
  for (const Weight* weight : all_weights()) {
    if (weight->codebook) bytes += std::ssize(weight->codebook->words);
    if (!weight->parts) continue;
    const WeightParts& parts = *weight->parts;
    sizes.any = true;
    bytes += parts.bytes();
    if (!parts.input.empty() || !parts.output.empty())
      sizes.inputs =
          std::max({sizes.inputs, weight->cols, parts.output.fused, parts.output.outer > 1 ? weight->rows : 0});
    sizes.rank = std::max({sizes.rank, parts.low_rank_b.cols, parts.column_weights.cols});
    if (parts.factored) sizes.factored_rank = std::max(sizes.factored_rank, parts.low_rank_b.cols);
    if (!parts.sparse.empty()) sizes.sparse_cols = std::max(sizes.sparse_cols, weight->cols);
    if (parts.low_rank_b.present()) sizes.cols = std::max(sizes.cols, weight->cols);
    if (parts.low_rank_b.present() || parts.column_weights.present()) sizes.rows = std::max(sizes.rows, weight->rows);
  }
  return bytes;
}

// Maps the packed cache, or packs the weights (and writes the cache if one is configured).
Result<void> ModelBuilder::place_packed(const WeightPacker& packer, const KernelTable& table, ThreadPool& pool,
                                        const ModelOptions& options) {
  MILLRACE_TRY(const auto source, choose_member("weights", weight_sources(), options.weights));
  if (source.member.from_file) return place_streamed(packer, table, pool, options, source);
  const auto warn = [&](const std::string& message) {
    if (options.warn) options.warn(message);
  };
  int64_t window = WeightPacker::kWidestWindow;
  MILLRACE_TRY(const MemoryHold loading, take_memory(packer, pool, options.accounts, packer.packed_bytes(), &window));
  std::optional<PackedCache> cache;
  if (!options.packed_cache.empty()) cache.emplace(options.packed_cache, *files_, table.isa, packer);
  if (cache) {
    auto opened = cache->open(pool, {.verify = options.verify_packed_cache}, options.progress);
    if (opened.ok() && opened->file) {
      model_->packed_file_ = opened->file;
      packer.point_weights(opened->packed);
      return {};
    }
    if (!opened.ok()) warn(opened.error().message + "; packing again");
  }
  MILLRACE_TRY(model_->packed_, packer.pack(pool, options.progress, window));
  if (cache) {
    if (auto written = cache->write(pool, model_->packed_.data()); !written.ok()) warn(written.error().message);
  }
  packer.point_weights(model_->packed_.data());
  return {};
}

// A budget leaves no room for both forms of the weights: the KV cache gets what is left of it.
bool ModelBuilder::packs_in_background(const ModelOptions& options) const {
  const bool budget = options.accounts && options.accounts->budget() > 0;
  return options.pack_in_background && converted_.empty() && options.packed_cache.empty() && !files_->files.empty() &&
         !budget;
}

// Packs what must be packed before it is used, and leaves the rest to the model.
Result<void> ModelBuilder::pack_in_background(WeightPacker packer, ThreadPool& pool, const ModelOptions& options) {
  int64_t slice = 0, later = 0;
  for (const auto& planned : packer.planned()) {
    if (!packs_later(planned)) continue;
    slice = std::max(slice, slice_bytes(*planned.weight));
    ++later;
  }
  int64_t window = WeightPacker::kWidestWindow;
  const int64_t resident = packer.packed_bytes() + pool.threads() * slice;
  { MILLRACE_TRY(const MemoryHold loading, take_memory(packer, pool, options.accounts, resident, &window)); }
  MILLRACE_TRY(MemoryHold stored, MemoryHold::take(options.accounts, "loading", packer.stored_bytes(), kWeightsAdvice));
  MILLRACE_TRY_VOID(check_memory(packer.packed_bytes(), "weights", kWeightsAdvice));
  MILLRACE_TRY(model_->packed_, AlignedBuffer::allocate(packer.packed_bytes(), "weights"));
  MILLRACE_TRY_VOID(
      packer.pack_job(model_->packed_.data(), pool,
                      {.takes = [](const WeightPacker::Planned& planned) { return !packs_later(planned); },
                       .progress = options.progress}));
  auto states = std::make_unique<PackingState[]>(static_cast<size_t>(later));
  packer.point_weights(model_->packed_.data(), states.get());
  model_->packing_ =
      std::make_unique<BackgroundPacker>(BackgroundPacker::Work{.packer = std::move(packer),
                                                                .packed = model_->packed_.data(),
                                                                .states = std::move(states),
                                                                .stored = std::move(stored),
                                                                .files = files_,
                                                                .threads = std::max(1, pool.threads() / 2)});
  return model_->packing_->start();
}

// Adds all matrices and tables, and gives the matrices their places.
Result<void> ModelBuilder::plan_packing(WeightPacker& packer) {
  for (Weight* weight : all_weights())
    if (!is_factored(*weight)) {
      const auto stored = converted_.find(weight);
      MILLRACE_TRY_VOID(stored == converted_.end() ? packer.add(*weight) : packer.add(*weight, stored->second));
    }
  model_->part_bytes_ = measure_parts();
  for (const Weight& stored : tables_) MILLRACE_TRY_VOID(packer.add_table(stored));
  packer.arrange();
  return {};
}

Result<void> ModelBuilder::pack(const KernelTable& table, ThreadPool& pool, const ModelOptions& options) {
  const auto in_file = [&](const Error& error) { return Error{error.kind, files_->path + ": " + error.message}; };
  WeightPacker packer(*files_, table);
  if (auto planned = plan_packing(packer); !planned.ok()) return in_file(planned.error());
  for (const auto& file : files_->files) file->release(0, file->bytes().size());  // pages of metadata
  model_->weight_bytes_ = model_->part_bytes_;
  for (const auto& planned : packer.planned()) model_->weight_bytes_ += planned.bytes;
  const auto placed = packs_in_background(options) ? pack_in_background(std::move(packer), pool, options)
                                                   : place_packed(packer, table, pool, options);
  if (!placed.ok()) return in_file(placed.error());
  if (auto locked = lock_resident(options); !locked.ok()) return in_file(locked.error());
  if (!model_->packing_)
    for (const auto& file : files_->files)
      file->release(0, file->bytes().size());  // from now on, only rows of embedding tables are read
  for (const Weight* weight : all_weights())
    if (weight->codebook) weight->codebook->entries = {}, weight->codebook->row_scales = {};
  int64_t idle = 0;
  for (size_t i = 0; i < model_->layers_.size(); ++i) {
    const LayerWeights& layer = model_->layers_[i];
    const MoeSpec& moe = model_->spec_.layers[i].experts;
    int64_t experts = 0;
    for (const auto& e : layer.experts) experts += e.gate.packed.bytes() + e.up.packed.bytes() + e.down.packed.bytes();
    if (moe.experts > 0) idle += experts / moe.experts * (moe.experts - moe.used);
  }
  model_->token_bytes_ = model_->weight_bytes_ - idle;
  return {};
}

}  // namespace millrace
