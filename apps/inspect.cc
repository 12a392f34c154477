// millrace inspect: describes a model without loading it.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/enum_table.h"
#include "base/memory.h"
#include "base/ordered_json.h"
#include "command.h"
#include "hub_model.h"
#include "input.h"
#include "inspect_unknown.h"
#include "kv/window_groups.h"
#include "models/arch.h"
#include "models/mixers/mixer.h"
#include "models/weight_parts_loader.h"
#include "run/language_model.h"
#include "table_room.h"

namespace millrace {
namespace {

constexpr const char* kInspectExamples = R"(Examples:
  millrace inspect                    the built-in model
  millrace inspect model.gguf -c 4096 show the memory needed for 4096 tokens
  millrace inspect ./Qwen3-0.6B/ --tensors
  millrace inspect model.gguf --json)";

struct InspectFlags {
  std::string model;
  int64_t context = 0;
  bool json = false, tensors = false, wide = false;
};

// The part of the model that a tensor belongs to, from GGUF and Hugging Face names.
std::string group_of(const std::string& name) {
  auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("norm") || has("ln_")) return "norms";
  if (has("per_layer") || has("inp_gate") || (name.starts_with("blk.") && has(".proj."))) return "layer_inputs";
  if (has("altup") || has("laurel")) return "streams";
  if (has("_exps") || has("experts.") || has("gate_inp") || has("shexp") || has("shared_expert")) return "experts";
  if (has("ffn") || has("mlp")) return "mlp";
  if (has("attn")) return "attention";
  if (has("token_embd") || has("embed_tokens") || has("wte") || has("wpe") || has("position_embd")) return "embedding";
  if (has("output") || has("lm_head")) return "head";
  return "other";
}

struct Group {
  int64_t tensors = 0, parameters = 0, bytes = 0;
  std::map<std::string, int64_t> formats;  // name -> tensors
};

std::map<std::string, Group> group_tensors(const ModelFiles& files) {
  std::map<std::string, Group> groups;
  for (const auto& stored : files.tensors) {
    Group& group = groups[group_of(stored.name)];
    ++group.tensors;
    const Format* format = stored.tensor.format;
    if (const Format* indices = nullptr; !is_side_part(files, stored.name)) {
      group.parameters += stored_weights(files, stored, &indices);
      if (indices) format = indices;
    }
    group.bytes += stored.tensor.bytes;
    ++group.formats[format ? std::string(format->name) : stored.type_name];
  }
  return groups;
}

// Of one stream of `context` tokens, in steps of 512.
int64_t kv_bytes(const ArchSpec& spec, const char* format, int64_t context) {
  const Format* kv = find_format(format);
  if (spec.head_dim % kv->block_values != 0) return -1;
  KvLayout layout{kv, 16, layer_states(spec)};
  split_windows(layout, context, 512);
  return held_bytes(layout, context, context);
}

std::string windows_text(const ArchSpec& spec) {
  int64_t windowed = 0, window = 0;
  for (const auto& layer : spec.layers) {
    windowed += layer.window > 0;
    window = std::max(window, layer.window);
  }
  return windowed == 0 ? "full" : fmt::format("window {} in {} of {} layers", window, windowed, spec.layer_count());
}

// Describes layers that read the keys of others, inputs of layers, and residual streams; null: the model has none.
nlohmann::ordered_json layer_parts(const ArchSpec& spec) {
  nlohmann::ordered_json out;
  const auto reads = std::ranges::count_if(spec.layers, [](const LayerSpec& layer) { return layer.kv_from >= 0; });
  if (reads > 0) out["read_earlier_keys"] = reads;
  if (spec.layer_input > 0) out["input_dims"] = spec.layer_input;
  if (spec.streams > 1) out["residual_streams"] = spec.streams;
  return out;
}

std::string layer_parts_text(const nlohmann::ordered_json& parts, int64_t layers) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  if (parts.contains("read_earlier_keys"))
    add(fmt::format("{} of {} read the keys and values of earlier ones", parts["read_earlier_keys"].get<int64_t>(),
                    layers));
  if (parts.contains("input_dims"))
    add(fmt::format("each has an input of {} dims of the token", parts["input_dims"].get<int64_t>()));
  if (parts.contains("residual_streams"))
    add(fmt::format("{} residual streams", parts["residual_streams"].get<int64_t>()));
  return out;
}

std::string rope_text(const ArchSpec& spec) {
  static constexpr EnumNames<RopeSpec::Scaling> kScalings("", ", linear", ", llama3", ", yarn", ", longrope");
  if (spec.learned_positions) return "learned";
  std::string out;
  for (const auto& rope : spec.ropes) {
    out += fmt::format("{}rope of {} dims, base {:g}{}", out.empty() ? "" : "; ", rope.rotated, rope.theta,
                       kScalings[rope.scaling]);
    if (rope.scaling != RopeSpec::Scaling::none) out += fmt::format(" x{:g}", rope.factor);
  }
  return out;
}

// Bits a weight; negative: a part of a matrix that holds no weights of its own.
double bits_of(const ModelFiles& files, const StoredTensor& stored) {
  const int64_t weights = is_side_part(files, stored.name) ? 0 : stored_weights(files, stored);
  return weights > 0 ? 8 * static_cast<double>(stored.tensor.bytes) / static_cast<double>(weights) : -1;
}

nlohmann::ordered_json tensor_json(const ModelFiles& files, const StoredTensor& stored) {
  nlohmann::ordered_json shape = nlohmann::ordered_json::array();
  for (int i = 0; i < stored.tensor.rank; ++i) shape.push_back(stored.tensor.dims[static_cast<size_t>(i)]);
  const Format* indices = nullptr;
  stored_weights(files, stored, &indices);
  const Format* format = indices ? indices : stored.tensor.format;
  nlohmann::ordered_json out = {{"name", stored.name},
                                {"shape", shape},
                                {"format", format ? std::string(format->name) : stored.type_name},
                                {"bytes", stored.tensor.bytes},
                                {"offset", stored.offset}};
  if (const double bits = bits_of(files, stored); bits >= 0) out["bits_per_weight"] = bits;
  return out;
}

// How `millrace compress` made the file; null: it did not.
nlohmann::ordered_json compression_json(const ModelFiles& files) {
  nlohmann::ordered_json out;
  if (files.kind != ModelFiles::Kind::gguf || !files.config) return out;
  for (const char* key : {"passes", "keep", "calibration_tokens"})
    if (const auto found = files.config->find(fmt::format("millrace.compress.{}", key)); found != files.config->end())
      out[key] = *found;
  return out;
}

std::string compression_text(const nlohmann::ordered_json& compressed) {
  std::string out;
  for (const char* key : {"passes", "keep"}) {
    if (!compressed.contains(key) || !compressed[key].is_array()) continue;
    for (const auto& one : compressed[key])
      if (one.is_string())
        out += fmt::format("{}{}{}", out.empty() ? "" : ", ", *key == 'k' ? "kept " : "", one.get<std::string>());
  }
  return out;
}

nlohmann::ordered_json describe(const ModelFiles& files, const ArchSpec& spec, int64_t context) {
  nlohmann::ordered_json out;
  int64_t bytes = 0;
  out["path"] = files.path;
  out["kind"] = files.kind == ModelFiles::Kind::gguf ? "gguf" : "huggingface";
  out["name"] = spec.name;
  out["architecture"] = spec.arch;
  out["parameters"] = count_parameters(files);
  out["layers"] = spec.layer_count();
  out["width"] = spec.width;
  out["heads"] = spec.heads;
  out["kv_heads"] = spec.kv_heads;
  out["head_dim"] = spec.head_dim;
  out["hidden"] = spec.hidden;
  if (spec.moe.experts)
    out["experts"] = {{"count", spec.moe.experts},
                      {"used", spec.moe.used},
                      {"hidden", spec.moe.hidden},
                      {"shared_hidden", spec.moe.shared_hidden}};
  out["context"] = spec.context;
  out["vocabulary"] = spec.vocab;
  out["positions"] = rope_text(spec);
  out["attention"] = windows_text(spec);
  for (const LayerSpec& layer : spec.layers) {
    for (const LayerMixer& one : layer.mixers) {
      auto& count = out["mixers"][std::string(one.mixer->name)];
      count = count.is_null() ? 1 : count.get<int64_t>() + 1;
    }
  }
  if (auto parts = layer_parts(spec); !parts.is_null()) out["layer_parts"] = std::move(parts);
  if (auto compressed = compression_json(files); !compressed.is_null()) out["compressed"] = std::move(compressed);
  for (const auto& [name, group] : group_tensors(files)) {
    out["groups"][name] = {{"tensors", group.tensors},
                           {"parameters", group.parameters},
                           {"bytes", group.bytes},
                           {"formats", group.formats}};
    bytes += group.bytes;
  }
  out["weight_bytes"] = bytes;
  if (files.tokenizer) {
    const TokenizerSpec& t = *files.tokenizer;
    out["tokenizer"] = {{"kind", t.kind},       {"pre", t.pre},         {"tokens", t.tokens.size()},
                        {"add_bos", t.add_bos}, {"add_eos", t.add_eos}, {"end_of_generation", t.eog}};
    if (t.bos) out["tokenizer"]["bos"] = *t.bos;
    if (t.eos) out["tokenizer"]["eos"] = *t.eos;
  } else {
    out["tokenizer"] = nullptr;
  }
  out["chat_template"] = files.chat_template;
  for (const auto& stored : files.tensors)  // from here on, as they are multiplied
    if (!is_side_part(files, stored.name)) bytes += multiplied_bytes(files, stored) - stored.tensor.bytes;
  nlohmann::ordered_json memory = {{"context", context}, {"weights", bytes}};
  for (const char* format : {"f16", "q8_0"})
    if (int64_t kv = kv_bytes(spec, format, context); kv >= 0) memory[fmt::format("kv_{}", format)] = kv;
  if (const int64_t state = KvLayout{find_format("f32"), 16, layer_states(spec)}.state_bytes(); state > 0)
    memory["state_per_stream"] = state;
  if (const AvailableMemory available = available_memory(); available.bytes < INT64_MAX)
    memory["available"] = available.bytes;
  out["memory"] = memory;
  return out;
}

std::string size_text(int64_t bytes) {
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
  return fmt::format("{:.1f} kB", static_cast<double>(bytes) * 1e-3);
}

std::vector<TableColumn> group_columns() {
  return {{.name = "group", .left = true},
          {.name = "tensors", .drops = 1},
          {.name = "parameters", .drops = 2},
          {.name = "bytes"},
          {.name = "formats", .left = true, .wraps = true}};
}

std::vector<TableColumn> tensor_columns() {
  return {{.name = "tensor", .left = true, .wraps = true},
          {.name = "format", .left = true},
          {.name = "bits", .drops = 2},
          {.name = "bytes", .drops = 3},
          {.name = "offset", .drops = 1},
          {.name = "shape", .left = true, .drops = 4}};
}

void print_groups(const nlohmann::ordered_json& groups, const TableRoom& room) {
  TextTable table(TableLook::plain, group_columns());
  for (const auto& [name, group] : groups.items()) {
    std::string formats;
    for (const auto& [format, count] : group["formats"].items())
      formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", count.get<int64_t>(), format);
    table.add({"  " + name, fmt::format("{}", group["tensors"].get<int64_t>()),
               fmt::format("{}", group["parameters"].get<int64_t>()), size_text(group["bytes"].get<int64_t>()),
               formats});
  }
  fmt::print("{}", table.text(room));
}

void print_human(const nlohmann::ordered_json& d, const TableRoom& room) {
  auto line = [&](const char* label, const std::string& value) { print_fact(label, value, room.columns); };
  line("model",
       fmt::format("{} ({})",
                   d["name"].get<std::string>().empty() ? d["path"].get<std::string>() : d["name"].get<std::string>(),
                   d["kind"].get<std::string>()));
  if (!d["mixers"].contains("attention"))
    line("architecture", fmt::format("{}, {} layers of the mixer {}, width {}", d["architecture"].get<std::string>(),
                                     d["layers"].get<int64_t>(), d["mixers"].begin().key(), d["width"].get<int64_t>()));
  else
    line("architecture",
         fmt::format("{}, {} layers, width {}, {} heads ({} KV) of {}, hidden {}", d["architecture"].get<std::string>(),
                     d["layers"].get<int64_t>(), d["width"].get<int64_t>(), d["heads"].get<int64_t>(),
                     d["kv_heads"].get<int64_t>(), d["head_dim"].get<int64_t>(), d["hidden"].get<int64_t>()));
  if (d.contains("experts"))
    line("experts", fmt::format("{}, {} used, hidden {}", d["experts"]["count"].get<int64_t>(),
                                d["experts"]["used"].get<int64_t>(), d["experts"]["hidden"].get<int64_t>()));
  line("parameters", fmt::format("{:.2f} M", static_cast<double>(d["parameters"].get<int64_t>()) * 1e-6));
  line("context", fmt::format("{} tokens; positions: {}; attention: {}", d["context"].get<int64_t>(),
                              d["positions"].get<std::string>(), d["attention"].get<std::string>()));
  if (d.contains("layer_parts")) line("layers", layer_parts_text(d["layer_parts"], d["layers"].get<int64_t>()));
  if (d["tokenizer"].is_null())
    line("tokenizer", "none");
  else
    line("tokenizer", fmt::format("{} {}, {} tokens", d["tokenizer"]["kind"].get<std::string>(),
                                  d["tokenizer"]["pre"].get<std::string>(), d["tokenizer"]["tokens"].get<int64_t>()));
  const std::string source = d["chat_template"].get<std::string>();
  line("chat template",
       source.empty()
           ? "none"
           : fmt::format(
                 "{} bytes: {}", source.size(),
                 nlohmann::json(source.substr(0, 60)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  if (d.contains("compressed")) line("compressed", compression_text(d["compressed"]));
  print_groups(d["groups"], room);
  std::string memory = fmt::format("weights {}", size_text(d["memory"]["weights"].get<int64_t>()));
  for (const char* format : {"f16", "q8_0"})
    if (auto kv = d["memory"].find(fmt::format("kv_{}", format)); kv != d["memory"].end())
      memory += fmt::format(", KV in {} {}", format, size_text(kv->get<int64_t>()));
  if (auto state = d["memory"].find("state_per_stream"); state != d["memory"].end())
    memory += fmt::format(", state of a stream {}", size_text(state->get<int64_t>()));
  if (auto available = d["memory"].find("available"); available != d["memory"].end())
    memory += fmt::format("; available {}", size_text(available->get<int64_t>()));
  line("memory", fmt::format("at {} tokens: {}", d["memory"]["context"].get<int64_t>(), memory));
}

void print_tensors(const ModelFiles& files, const TableRoom& room) {
  TextTable table(TableLook::plain, tensor_columns());
  for (const auto& stored : files.tensors) {
    auto tensor = tensor_json(files, stored);
    const double bits = bits_of(files, stored);
    table.add({stored.name, tensor["format"].get<std::string>(), bits >= 0 ? fmt::format("{:.3f}", bits) : "",
               fmt::format("{}", stored.tensor.bytes), fmt::format("{}", stored.offset), tensor["shape"].dump()});
  }
  fmt::print("\n{}", table.text(room));
}

// A file of an unknown architecture is described as far as its tensors tell, and is an error all the same.
Result<int> run(const InspectFlags& flags) {
  MILLRACE_TRY(auto files, open_local_model(flags.model));
  const bool known = find_arch(files) != nullptr;
  std::vector<ArchComparison> families;  // of a file of an unknown architecture
  nlohmann::ordered_json described;
  if (known) {
    MILLRACE_TRY(const ArchSpec spec, read_arch_spec(files));
    described = describe(files, spec, flags.context > 0 ? flags.context : spec.context);
  } else {
    families = compare_with_known(files);
    described = describe_unknown(files, families);
  }
  const TableRoom room = table_room(flags.wide, "--json");
  if (flags.json && flags.tensors)
    for (const auto& stored : files.tensors) described["tensors"].push_back(tensor_json(files, stored));
  if (flags.json)
    print_json_line(described);
  else if (known)
    print_human(described, room);
  else
    print_unknown(described);
  if (flags.tensors && !flags.json) print_tensors(files, room);
  if (!known) return unknown_architecture(files, families);
  return 0;
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = add_command(app, "inspect", "Describe a model: architecture, formats, tokenizer, memory",
                                  kInspectExamples, [=] { return run(*flags); });
  command->add_option("model,-m,--model", flags->model,
                      "GGUF file, Hugging Face folder or built-in model; default: the built-in one");
  command->add_option("-c,--context", flags->context, "Compute memory for this many tokens; 0: the model's context")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  command->add_flag("--tensors", flags->tensors, "List every tensor");
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_wide_to(command, &flags->wide,
              drop_order(group_columns()) + "; and of --tensors: " + drop_order(tensor_columns()));
}

}  // namespace millrace
