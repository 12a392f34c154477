#include "models/convert/stacks.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "formats/format.h"

namespace millrace {
namespace {

struct StackPart {
  std::string_view part;   // ".ffn_gate.", before the number of the matrix
  std::string_view stack;  // ".ffn_gate_exps.weight"
};
constexpr StackPart kStackParts[] = {{".ffn_gate.", ".ffn_gate_exps.weight"},
                                     {".ffn_up.", ".ffn_up_exps.weight"},
                                     {".ffn_down.", ".ffn_down_exps.weight"},
                                     {".attn_k_b.", ".attn_k_b.weight"},
                                     {".attn_v_b.", ".attn_v_b.weight"}};

// Matrices of one stack share a format.
void agree_on_format(OutputTensor& stack, const SourceTensor& source, FormatChoice& formats) {
  if (formats.choose(source, stack.name, source.cols, nullptr) != stack.format &&
      source.cols % stack.format->block_values != 0)
    stack.format = find_format("f32");
}

// The name of the tensor that contains the numbered matrix `name`, whose number is behind `part`; empty: it has none.
std::string containing(const std::string& name, const StackPart& kind) {
  const size_t at = name.find(kind.part);
  if (at == std::string::npos) return {};
  const size_t digits = at + kind.part.size();
  if (digits >= name.size() || name[digits] < '0' || name[digits] > '9') return {};
  return name.substr(0, at) + std::string(kind.stack);
}

}  // namespace

std::string stack_name(const std::string& name) {
  for (const StackPart& kind : kStackParts)
    if (std::string stack = containing(name, kind); !stack.empty()) return stack;
  return {};
}

std::string joined_name(const std::string& name) { return containing(name, {".attn_kv_b.", ".attn_kv_b.weight"}); }

bool append_rows(SourceTensor& source, std::vector<OutputTensor>& outputs) {
  const std::string whole = joined_name(source.name);
  if (whole.empty() || outputs.empty() || outputs.back().name != whole) return false;
  outputs.back().dims.front() += source.rows;
  outputs.back().parts.push_back(std::move(source));
  return true;
}

std::vector<OutputTensor> gguf_outputs(std::vector<SourceTensor> sources, FormatChoice& formats) {
  std::vector<OutputTensor> out;
  for (SourceTensor& source : sources) {
    const std::string stack = stack_name(source.name);
    if (!stack.empty() && !out.empty() && out.back().name == stack) {
      OutputTensor& last = out.back();
      agree_on_format(last, source, formats);
      ++last.dims[0];
      last.parts.push_back(std::move(source));
      continue;
    }
    OutputTensor tensor;
    tensor.name = stack.empty() ? source.name : stack;
    tensor.format = formats.choose(source, tensor.name, source.cols, special_matrix(source.name));
    tensor.dims = {source.rows, source.cols};
    if (source.rows == 1 || (source.is_vector && source.cols == 1)) tensor.dims = {source.rows * source.cols};
    if (!source.dims.empty()) tensor.dims = source.dims;
    if (!stack.empty()) tensor.dims = {1, source.rows, source.cols};
    tensor.parts.push_back(std::move(source));
    out.push_back(std::move(tensor));
  }
  return out;
}

bool add_to_folder_stack(SourceTensor& source, FormatChoice& formats, std::vector<OutputTensor>& outputs) {
  const std::string stored = stack_name(source.name);
  if (!stored.ends_with("_exps.weight")) return false;
  const bool up = stored.ends_with(".ffn_up_exps.weight"), down = stored.ends_with(".ffn_down_exps.weight");
  const std::string name =
      down ? stored : stored.substr(0, stored.rfind('.', stored.size() - 8)) + ".ffn_gate_up_exps.weight";
  if (outputs.empty() || outputs.back().name != name) {
    OutputTensor stack;
    stack.name = name;
    stack.format = formats.choose(source, name, source.cols, nullptr);
    stack.dims = {0, source.rows * (down ? 1 : 2), source.cols};
    outputs.push_back(std::move(stack));
  }
  OutputTensor& stack = outputs.back();
  agree_on_format(stack, source, formats);
  if (!up) {
    ++stack.dims[0];
    stack.parts.push_back(std::move(source));
    return true;
  }
  // Behind the gate of the same expert: those with an up matrix already have two parts each.
  const auto placed = static_cast<ptrdiff_t>(stack.parts.size()) - stack.dims[0];
  stack.parts.insert(stack.parts.begin() + 2 * placed + 1, std::move(source));
  return true;
}

void stack_streams(std::vector<OutputTensor>& outputs) {
  for (const std::string_view prefix : {"altup_proj.", "altup_unembd_proj."}) {
    const auto belongs = [&](const OutputTensor& output) {
      return output.name.starts_with(prefix) && output.name.size() > prefix.size() + std::string_view("weight").size();
    };
    std::vector<OutputTensor> matrices;
    for (OutputTensor& output : outputs)
      if (belongs(output)) matrices.push_back(output);
    if (matrices.empty()) continue;
    std::ranges::sort(matrices, {}, &OutputTensor::name);  // at most kMaxStreams, so that numbers have one digit
    OutputTensor stack = matrices.front();
    stack.name = std::string(prefix) + "weight";
    stack.dims.insert(stack.dims.begin(), std::ssize(matrices));
    for (size_t i = 1; i < matrices.size(); ++i) stack.parts.push_back(matrices[i].parts.front());
    std::erase_if(outputs, belongs);
    outputs.push_back(std::move(stack));
  }
}

void pad_layer_inputs(std::vector<OutputTensor>& outputs, int64_t vocab) {
  const auto table = std::ranges::find(outputs, "per_layer_token_embd.weight", &OutputTensor::name);
  if (table == outputs.end() || table->dims.front() >= vocab) return;
  SourceTensor zeros;
  zeros.name = table->name;
  zeros.rows = vocab - table->dims.front();
  zeros.cols = table->dims.back();
  zeros.values = std::make_shared<const std::vector<float>>(static_cast<size_t>(zeros.rows * zeros.cols));
  table->parts.push_back(std::move(zeros));
  table->dims.front() = vocab;
}

}  // namespace millrace
