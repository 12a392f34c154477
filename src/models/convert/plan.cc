// Plans an output: formats, names and shapes of its tensors, and its other files. One function for each pair of
// different file kinds, and one each for same-kind conversions.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "loader/interleaved_experts.h"
#include "models/arch/writing.h"
#include "models/convert/conversion.h"
#include "models/convert/encoder_keys.h"
#include "models/convert/format_choice.h"
#include "models/convert/gguf_keys.h"
#include "models/convert/grouped_outputs.h"
#include "models/convert/matrix_factors.h"
#include "models/convert/stacks.h"
#include "models/convert/whole_tensors.h"
#include "models/draft_heads/mtp_layer.h"
#include "models/layer_matrices.h"
#include "models/model_builder.h"
#include "models/unknown/tensor_kinds.h"
#include "models/weight_parts_loader.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The Hugging Face name of a canonical one. Folders number the layers that predict further tokens from 0.
std::string folder_name(const Arch& arch, const std::string& name, int64_t layers) {
  const std::string behind = fmt::format("blk.{}.", layers);
  if (!name.starts_with(behind)) return huggingface_name(arch, name);
  if (name.find(".nextn.") != std::string::npos) return huggingface_name(kQwenMtpParts, name);
  std::string out = huggingface_name(arch, name);
  const std::string numbered = fmt::format("model.layers.{}.", layers);
  return out.starts_with(numbered) ? "mtp.layers.0." + out.substr(numbered.size()) : "";
}

// `layers`: number of the model's layers.
Result<std::vector<OutputTensor>> folder_outputs(std::vector<SourceTensor> sources, const Arch& arch, int64_t layers,
                                                 FormatChoice& formats) {
  std::vector<OutputTensor> out;
  for (SourceTensor& source : sources) {
    if (arch.stacked_experts && add_to_folder_stack(source, formats, out)) continue;
    if (append_rows(source, out)) continue;
    OutputTensor tensor;
    const std::string whole = joined_name(source.name);
    tensor.name = whole.empty() ? source.name : whole;
    const std::string name = folder_name(arch, tensor.name, layers);
    tensor.transpose = name.starts_with("^");
    tensor.dims = tensor.transpose ? std::vector{source.cols, source.rows} : std::vector{source.rows, source.cols};
    if (source.is_vector) tensor.dims = {source.rows * source.cols};
    if (!source.dims.empty()) tensor.dims = source.dims;
    tensor.format = formats.choose(source, name, tensor.dims.back(), special_matrix(name));
    tensor.parts.push_back(std::move(source));
    out.push_back(std::move(tensor));
  }
  for (OutputTensor& tensor : out) {
    std::string name = folder_name(arch, tensor.name, layers);
    if (name.empty())
      return Error::unsupported(fmt::format("tensor {}: {} has no Hugging Face name for it", tensor.name, arch.name));
    tensor.name = tensor.transpose ? name.substr(1) : std::move(name);
  }
  return out;
}

void note_left_out(const ConversionInput& input, const std::vector<SourceTensor>& used, ConvertReport& report) {
  std::set<const StoredTensor*> seen;
  for (const SourceTensor& tensor : used) seen.insert(tensor.stored);
  for (const StoredTensor& stored : input.files.tensors) {
    if (!is_derived_tensor(stored.name) && !seen.contains(&stored)) report.left_out.push_back(stored.name);
  }
}

// `wanted`: the model as the output should describe it.
Result<ArchSpec> read_back(const ConversionInput& input, const ArchSpec& wanted, ModelFiles& written,
                           const char* kind) {
  MILLRACE_TRY(ArchSpec spec, read_arch_spec(written));
  const std::string difference = spec_difference(wanted, spec);
  if (difference.empty()) return spec;
  return Error::unsupported(fmt::format("{}: {} cannot express this property of a {} model: {}", input.files.path, kind,
                                        input.arch->name, difference));
}

Result<std::vector<SourceTensor>> list_sources(const ConversionInput& input, const ArchSpec& target) {
  if (input.checkpoint) return list_tensors(*input.checkpoint, input.spec, target);
  return list_tensors(input.files, *input.arch, input.spec, target);
}

// Of config.json: the name of the GGUF file that a folder was made from.
constexpr const char* kNameKey = "general_name";

std::string model_name(const ConversionInput& input) {
  if (!input.spec.name.empty()) return input.spec.name;
  if (!input.checkpoint && !input.is_gguf() && input.files.config)  // written by the opposite conversion
    if (const auto found = input.files.config->find(kNameKey); found != input.files.config->end() && found->is_string())
      return found->get<std::string>();
  std::error_code ignored;
  fs::path path = fs::absolute(input.files.path, ignored).lexically_normal();
  if (path.filename().empty() || !fs::is_directory(path, ignored)) path = path.parent_path();
  return path.filename();
}

SourceTensor made_here(std::string name, std::vector<float> values) {
  SourceTensor tensor;
  tensor.name = std::move(name);
  tensor.is_vector = true;
  tensor.rows = 1;
  tensor.cols = static_cast<int64_t>(values.size());
  tensor.values = std::make_shared<const std::vector<float>>(std::move(values));
  return tensor;
}

// Rotations of images' positions, which llama.cpp reads and which change nothing for text.
void add_position_sections(const ConversionInput& input, const std::string& prefix, Json& keys) {
  constexpr size_t kSections = 4;
  if (input.is_gguf() || !input.files.config) return;
  const Json fields = model_fields(input.files);
  for (const char* object : {"rope_parameters", "rope_scaling"}) {
    const auto rope = fields.find(object);
    if (rope == fields.end() || !rope->is_object() || !rope->contains("mrope_section")) continue;
    Json sections = (*rope)["mrope_section"];
    const auto counts = [](const Json& one) { return one.is_number_unsigned(); };
    if (!sections.is_array() || sections.size() > kSections || !std::ranges::all_of(sections, counts)) return;
    while (sections.size() < kSections) sections.push_back(0u);
    keys[prefix + "rope.dimension_sections"] = sections;
    return;
  }
}

// A layer that predicts further tokens counts as a block.
void count_prediction_layers(const std::vector<SourceTensor>& sources, int64_t layers, const std::string& prefix,
                             Json& keys) {
  const std::string own = fmt::format("blk.{}.nextn.", layers);
  if (std::ranges::none_of(sources, [&](const SourceTensor& one) { return one.name.starts_with(own); })) return;
  keys[prefix + "block_count"] = layers + 1;
  keys[prefix + "nextn_predict_layers"] = 1;
  if (const auto recurrent = keys.find(prefix + "attention.recurrent_layers"); recurrent != keys.end())
    recurrent->push_back(false);
}

// Factors of a folder's config.json that the output has in its matrices; `spec` loses them.
Result<std::vector<RowFactor>> take_factors(const ConversionInput& input, ArchSpec& spec) {
  if (!input.arch->take_factors || input.is_gguf() || !input.files.config) return std::vector<RowFactor>();
  const Json fields = model_fields(input.files);
  ConfigReader config(fields, input.files.path + "/config.json");
  std::vector<RowFactor> out = input.arch->take_factors(config, spec);
  MILLRACE_TRY_VOID(config.status());
  return out;
}

Result<ConversionPlan> plan_gguf(const ConversionInput& input, const ConversionTarget& target, ConvertReport& report) {
  const Arch* arch = arch_for_gguf(*input.arch);
  report.architecture = arch->name;
  std::vector<FactorTensor> factors;
  ArchSpec wanted = input.spec;
  MILLRACE_TRY(const std::vector<RowFactor> row_factors, take_factors(input, wanted));
  const Json keys = write_arch_gguf(*input.arch, wanted, factors);

  ModelFiles written;
  written.path = input.files.path;
  written.architecture = arch->name;
  Json config;
  for (const auto& [key, value] : keys.items()) config[std::string(arch->name) + "." + key] = value;
  add_position_sections(input, std::string(arch->name) + ".", config);
  if (input.spec.encoder) MILLRACE_TRY_VOID(add_encoder_keys(input, std::string(arch->name) + ".", config, report));
  written.config = std::make_shared<const Json>(config);
  for (const FactorTensor& factor : factors) {
    StoredTensor stored;
    stored.name = factor.name;
    stored.tensor = {find_format("f32"),
                     1,
                     {static_cast<int64_t>(factor.values.size()), 1, 1, 1},
                     reinterpret_cast<const uint8_t*>(factor.values.data()),
                     static_cast<int64_t>(factor.values.size() * 4)};
    written.tensor_index.emplace(stored.name, written.tensors.size());
    written.tensors.push_back(std::move(stored));
  }
  MILLRACE_TRY(ArchSpec spec, read_back(input, wanted, written, "GGUF"));
  std::vector<SourceTensor> sources;
  ConversionPlan plan;
  FormatChoice formats(true, false, target, report);
  if (input.arch->same_tensors) {
    const std::shared_ptr<const ModelFiles> files(std::shared_ptr<void>(), &input.files);  // not owned
    MILLRACE_TRY_VOID(ModelBuilder::check_tensors(files, *input.arch, input.spec));
    MILLRACE_TRY(plan.tensors, renamed_tensors(input, formats, report));
    stack_streams(plan.tensors);
    pad_layer_inputs(plan.tensors, input.spec.vocab);
  } else {
    MILLRACE_TRY(sources, list_sources(input, spec));
    note_left_out(input, sources, report);
    count_prediction_layers(sources, input.spec.layer_count(), std::string(arch->name) + ".", config);
    apply_factors(row_factors, sources, report.notes);
  }
  for (const FactorTensor& factor : factors) sources.push_back(made_here(factor.name, factor.values));
  for (OutputTensor& tensor : gguf_outputs(std::move(sources), formats)) plan.tensors.push_back(std::move(tensor));
  for (OutputTensor& tensor : plan.tensors) tensor.name = gguf_tensor_name(*arch, tensor.name);
  set_general_keys(plan.writer, arch->name, model_name(input), plan.tensors);
  for (const auto& [key, value] : config.items()) set_json(plan.writer, key, value);
  set_generation_keys(plan.writer, input.files);
  if (input.files.tokenizer) {
    MILLRACE_TRY_VOID(write_gguf_tokenizer(*input.files.tokenizer, input.spec.vocab, plan.writer, report.notes));
  } else {
    plan.writer.set_string("tokenizer.ggml.model", "none");
    report.notes.emplace_back("the input has no tokenizer, so the output has none");
  }
  set_template_keys(plan.writer, input.files);
  return plan;
}

// Some GGUF files store a tied head twice.
void drop_tied_head(std::vector<SourceTensor>& sources, ConvertReport& report) {
  auto named = [&](const char* name) { return std::ranges::find(sources, name, &SourceTensor::name); };
  auto head = named("output.weight"), embedding = named("token_embd.weight");
  if (head == sources.end() || !head->plain_format() || head->plain_format() != embedding->plain_format()) return;
  const Tensor &a = head->stored->tensor, &b = embedding->stored->tensor;
  if (a.bytes != b.bytes || std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes)) != 0) return;
  sources.erase(head);
  report.notes.emplace_back("output.weight equals token_embd.weight: the head is tied");
}

// The reverse of add_position_sections().
void take_position_sections(const ModelFiles& files, Json& config) {
  constexpr size_t kAxes = 3;  // GGUF has a fourth number, which is 0
  const auto rope = config.find("rope_parameters");
  if (rope == config.end() || !files.config) return;
  const auto sections = files.config->find(files.architecture + ".rope.dimension_sections");
  if (sections == files.config->end() || !sections->is_array() || sections->size() < kAxes) return;
  (*rope)["mrope_interleaved"] = true;
  (*rope)["mrope_section"] = Json(sections->begin(), sections->begin() + kAxes);
}

std::string dump_json(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

void add_token_ids(const ModelFiles& files, Json& config, bool generation) {
  if (!files.tokenizer) return;
  const TokenizerSpec& spec = *files.tokenizer;
  if (spec.bos) config["bos_token_id"] = *spec.bos;
  if (generation && spec.eog.size() > 1)
    config["eos_token_id"] = spec.eog;
  else if (spec.eos)
    config["eos_token_id"] = *spec.eos;
  config["pad_token_id"] = spec.pad ? Json(*spec.pad) : Json(nullptr);
}

std::string generation_config(const ModelFiles& files) {
  Json config = Json::object();
  add_token_ids(files, config, true);
  const GenerationDefaults& defaults = files.generation;
  auto put = [&](const char* key, const auto& value) {
    if (value) config[key] = *value;
    if (value) config["do_sample"] = true;
  };
  put("temperature", defaults.temperature);
  put("top_p", defaults.top_p);
  put("min_p", defaults.min_p);
  put("top_k", defaults.top_k);
  put("repetition_penalty", defaults.repetition_penalty);
  return dump_json(config);
}

// The dtype of most values.
std::string main_dtype(const std::vector<OutputTensor>& tensors) {
  std::map<std::string_view, int64_t> bytes;
  for (const OutputTensor& tensor : tensors) bytes[tensor.format->name] += tensor.bytes() / tensor.format->block_bytes;
  std::string_view best = "f32";
  for (const auto& [name, n] : bytes)
    if (n > bytes[best]) best = name;
  return best == "bf16" ? "bfloat16" : best == "f16" ? "float16" : "float32";
}

Result<ConversionPlan> plan_folder(const ConversionInput& input, const ConversionTarget& target,
                                   ConvertReport& report) {
  const Arch* arch = arch_for_huggingface(input.spec);
  report.architecture = arch->huggingface.front();
  ModelFiles written;
  written.kind = ModelFiles::Kind::huggingface;
  written.path = input.files.path;
  written.architecture = arch->huggingface.front();
  written.config = std::make_shared<const Json>(write_arch_huggingface(*arch, input.spec, {}));
  MILLRACE_TRY(ArchSpec spec, read_back(input, input.spec, written, "config.json"));
  MILLRACE_TRY(auto sources, list_sources(input, spec));
  note_left_out(input, sources, report);
  drop_tied_head(sources, report);

  WrittenTensors exists;
  for (const SourceTensor& source : sources) {
    exists.head |= source.name == "output.weight";
    exists.attention_bias |= source.name.ends_with(".attn_q.bias");
    exists.mlp_bias |= source.name.ends_with(".ffn_up.bias");
    exists.conv_bias |= source.name.ends_with(".ssm_conv1d.bias");
    exists.ssm_norm |= source.name.ends_with(".ssm_norm.weight");
    exists.predictions |= source.name.find(".nextn.") != std::string::npos;
  }
  ConversionPlan plan;
  FormatChoice formats(false, false, target, report);
  MILLRACE_TRY(plan.tensors, folder_outputs(std::move(sources), *arch, input.spec.layer_count(), formats));
  Json config = write_arch_huggingface(*arch, input.spec, exists);
  MILLRACE_TRY(const auto grouped, grouped_rows(arch->huggingface.front(), config));
  pack_grouped_rows(grouped, plan.tensors);
  take_position_sections(input.files, config);
  add_token_ids(input.files, config, false);
  config["torch_dtype"] = main_dtype(plan.tensors);
  if (!input.spec.name.empty()) config[kNameKey] = input.spec.name;
  plan.texts.push_back({"config.json", dump_json(config)});
  plan.texts.push_back({"generation_config.json", generation_config(input.files)});
  if (!input.files.tokenizer) {
    report.notes.emplace_back("the input has no tokenizer, so the output has none");
    return plan;
  }
  MILLRACE_TRY(auto texts, write_huggingface_tokenizer(*input.files.tokenizer, input.files, input.spec.context));
  plan.texts.insert(plan.texts.end(), texts.begin(), texts.end());
  return plan;
}

Result<ConversionPlan> plan_same_gguf(const ConversionInput& input, const ConversionTarget& target,
                                      ConvertReport& report) {
  report.architecture = input.files.architecture;
  ConversionPlan plan;
  FormatChoice formats(true, true, target, report);
  MILLRACE_TRY(plan.tensors, same_tensors(input, formats, report));
  for (const auto& [key, value] : input.files.config->items()) {
    const bool layout = key.starts_with("split.") || key == "general.alignment";
    if (!layout && !set_json(plan.writer, key, value))
      report.notes.push_back(fmt::format("key {} cannot be copied", key));
  }
  set_file_type(plan.writer, plan.tensors);
  if (input.files.tokenizer) set_tokenizer_arrays(plan.writer, *input.files.tokenizer);
  return plan;
}

Result<ConversionPlan> plan_same_folder(const ConversionInput& input, const ConversionTarget& target,
                                        ConvertReport& report) {
  report.architecture = input.files.architecture;
  ConversionPlan plan;
  FormatChoice formats(false, true, target, report);
  MILLRACE_TRY(plan.tensors, same_tensors(input, formats, report));
  Json config = *input.files.config;
  MILLRACE_TRY(const auto grouped, grouped_rows(input.files.architecture, config));
  pack_grouped_rows(grouped, plan.tensors);
  config.erase("quantization");  // the output is not quantized this way
  config.erase("quantization_config");
  const std::string dtype = main_dtype(plan.tensors);
  for (const char* key : {"torch_dtype", "dtype"})
    if (config.contains(key)) config[key] = dtype;
  plan.texts.push_back({"config.json", dump_json(config)});
  std::error_code ignored;
  fs::path folder = input.files.path;
  if (!fs::is_directory(folder, ignored)) folder = fs::absolute(folder, ignored).parent_path();
  for (const char* name :
       {"generation_config.json", "tokenizer.json", "tokenizer.model", "spiece.model", "tokenizer_config.json",
        "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json", "chat_template.jinja",
        "chat_template.json", "additional_chat_templates"})
    if (fs::exists(folder / name, ignored)) plan.copies.push_back(folder / name);
  MILLRACE_TRY(const std::vector<fs::path> of_embeddings, embedding_files(folder));
  plan.copies.insert(plan.copies.end(), of_embeddings.begin(), of_embeddings.end());
  return plan;
}

// Parts of quantized checkpoints (loader/quantized/quantized.h): the order of a matrix's columns, or transforms.
bool changes_columns(std::string_view tensor) {
  return tensor.ends_with(".input_order") || tensor.ends_with(".input_hadamard") ||
         tensor.ends_with(".output_hadamard");
}

bool is_quantized_folder(const ConversionInput& input) {
  return !input.is_gguf() && input.files.config &&
         (input.files.config->contains("quantization_config") || input.files.config->contains("quantization"));  // MLX
}

Error stays_in_its_kind(const ConversionInput& input, bool to_gguf) {
  return Error::unsupported(fmt::format(
      "{}: the layers of {} have parts that cannot be written as the other kind of file; convert it to {}",
      input.files.path, input.spec.arch,
      to_gguf ? "a folder, whose matrices are plain numbers (--format bf16), or run the quantized folder as it is"
              : "a GGUF file"));
}

}  // namespace

Result<ConversionPlan> plan_conversion(const ConversionInput& input, bool to_gguf, const ConversionTarget& target,
                                       ConvertReport& report) {
  for (const StoredTensor& stored : input.files.tensors) {
    if (input.is_gguf() && is_weight_part(stored.name))
      return Error::unsupported(
          fmt::format("{}: tensor {}: matrices with weight parts cannot be converted; start from the file that "
                      "`millrace compress` read",
                      input.files.path, stored.name));
    if (!input.is_gguf() && changes_columns(stored.name))
      return Error::unsupported(
          fmt::format("{}: tensor {}: matrices whose columns do not multiply the inputs as they are cannot be "
                      "converted; start from the folder that was quantized",
                      input.files.path, stored.name));
  }
  for (const StoredTensor& stored : input.files.tensors)
    if (input.is_gguf() && !to_gguf && is_shortcut(stored.name))
      return Error::unsupported(
          fmt::format("{}: tensor {}: a Hugging Face folder has no place for the matrices between the blocks of a "
                      "sliced model",
                      input.files.path, stored.name));
  const Arch* folder = to_gguf ? nullptr : arch_for_huggingface(input.spec);
  if (folder && has_interleaved_experts(folder->huggingface.front()))
    return Error::unsupported(
        fmt::format("{}: a folder of {} stores the rows of its experts in turns, which cannot be written; convert to "
                    "GGUF",
                    input.files.path, folder->name));
  const bool other_kind = input.checkpoint || input.is_gguf() != to_gguf;
  const bool written = to_gguf ? !(input.arch->same_tensors && is_quantized_folder(input)) : input.arch->gguf_to_folder;
  if (other_kind && !written) return stays_in_its_kind(input, to_gguf);
  MILLRACE_TRY(ConversionPlan plan,
               other_kind
                   ? (to_gguf ? plan_gguf(input, target, report) : plan_folder(input, target, report))
                   : (to_gguf ? plan_same_gguf(input, target, report) : plan_same_folder(input, target, report)));
  const auto quantized = [](const OutputTensor& tensor) { return tensor.format->block_values > 1; };
  if (target.mix) plan.writer.set_u32("general.file_type", target.mix->file_type);
  if (target.format && target.format->block_values > 1 && std::ranges::none_of(plan.tensors, quantized)) {
    const std::string why = report.fallbacks.empty()
                                ? "it has no matrix that could be"
                                : fmt::format("{}: {}", report.fallbacks[0].name, report.fallbacks[0].why);
    return Error::unsupported(
        fmt::format("--format {}: no matrix of {} can be stored in it or in its replacement; choose f16 ({})",
                    target.format->name, input.files.path, why));
  }
  return plan;
}

}  // namespace millrace
