#include "models/unknown/nearest_arch.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/ordered_json.h"
#include "models/model_builder.h"
#include "models/unknown/tensor_kinds.h"

namespace millrace {
namespace {

using KindMap = std::map<std::string, const StoredTensor*>;

constexpr size_t kMaxListed = 4;  // names in one list of a message

// GGUF's keys with the prefix of another family.
std::shared_ptr<const nlohmann::ordered_json> renamed_keys(const ModelFiles& files, const Arch& arch) {
  if (files.kind != ModelFiles::Kind::gguf) return files.config;
  const std::string prefix = files.architecture + ".";
  auto out = std::make_shared<nlohmann::ordered_json>(nlohmann::ordered_json::object());
  for (const auto& [key, value] : files.config->items()) {
    if (key.starts_with(prefix))
      (*out)[fmt::format("{}.{}", arch.name, key.substr(prefix.size()))] = value;
    else
      (*out)[key] = value;
  }
  return out;
}

// Kinds of the names that a family declares in addition to the common ones.
std::set<std::string> declared_kinds(const Arch& arch, bool gguf) {
  std::set<std::string> out;
  for (const TensorName& name : arch.names) out.insert(pattern_kind(gguf ? name.canonical : name.huggingface));
  if (gguf)
    for (const GgufName& name : arch.gguf_names) {
      out.erase(pattern_kind(name.canonical));
      out.insert(pattern_kind(name.stored));
    }
  return out;
}

void compare_declared(const ModelFiles& files, const KindMap& kinds, ArchComparison& out) {
  const bool gguf = files.kind == ModelFiles::Kind::gguf;
  const std::set<std::string> declared = declared_kinds(*out.arch, gguf);
  std::set<std::string> common;
  for (const TensorName& name : common_tensor_names())
    common.insert(pattern_kind(gguf ? name.canonical : name.huggingface));
  for (const std::string& kind : declared)
    if (!kinds.contains(kind)) out.missing.push_back(kind);
  for (const auto& [kind, stored] : kinds) {
    if (declared.contains(kind)) out.reads.insert(kind);
    if (!declared.contains(kind) && !common.contains(kind)) out.extra.push_back(kind);
  }
}

bool has_shape(const TensorRequest& request) {
  const Tensor& tensor = request.stored->tensor;
  if (is_weight_part(request.stored->name)) return true;
  if (request.rows == 1 || request.cols == 1) return tensor.values() == request.rows * request.cols;
  return tensor.rows() == request.rows && tensor.cols() == request.cols;
}

void compare_requests(const ModelFiles& files, const std::vector<TensorRequest>& requests, const KindMap& kinds,
                      ArchComparison& out) {
  std::set<std::string> lacking, other_shapes;
  for (const TensorRequest& request : requests) {
    if (request.stored) {
      const std::string kind = tensor_kind(request.stored->name);
      out.reads.insert(kind);
      if (!has_shape(request) && other_shapes.insert(kind).second)
        out.shapes.push_back(fmt::format("{} is {}, not [{}, {}]", request.stored->name,
                                         shape_text(request.stored->tensor), request.rows, request.cols));
      continue;
    }
    const std::string name = files.kind == ModelFiles::Kind::gguf ? gguf_tensor_name(*out.arch, request.canonical)
                                                                  : huggingface_name(*out.arch, request.canonical);
    const std::string kind = name.empty() ? request.canonical : pattern_kind(name);
    if (kinds.contains(kind))
      out.reads.insert(kind);  // in other layers
    else if (lacking.insert(kind).second)
      out.missing.push_back(kind);
  }
  for (const auto& [kind, stored] : kinds)
    if (!out.reads.contains(kind)) out.extra.push_back(kind);
}

// "a, b and 3 more"
std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMaxListed ? fmt::format("{} and {} more", out, names.size() - kMaxListed) : out;
}

std::string differences_text(const ArchComparison& found) {
  const std::string_view name = found.arch->name;
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? ": " : "; ") + text; };
  if (!found.problem.empty()) add(fmt::format("it cannot be read as that: {}", found.problem));
  if (!found.extra.empty()) add(fmt::format("it has tensors that {} does not read: {}", name, listed(found.extra)));
  if (!found.missing.empty()) add(fmt::format("it lacks {}", listed(found.missing)));
  if (!found.shapes.empty()) add(fmt::format("shapes differ: {}", listed(found.shapes)));
  if (!found.unread.empty()) add(fmt::format("it has fields that {} does not read: {}", name, listed(found.unread)));
  return out.empty() ? ", and no tensor or field differs from it" : out;
}

}  // namespace

size_t ArchComparison::differences() const {
  return unread.size() + missing.size() + extra.size() + shapes.size() + (problem.empty() ? 0 : 2);
}

std::vector<ArchComparison> compare_with_known(const ModelFiles& files) {
  const auto read = std::make_shared<ModelFiles>(files);
  const KindMap kinds = tensor_kinds(*read);
  std::vector<ArchComparison> out;
  for (const Arch* arch : archs().members()) {
    ArchComparison& one = out.emplace_back();
    one.arch = arch;
    read->config = renamed_keys(files, *arch);
    const auto spec = read_arch_spec_as(*read, *arch, one.unread);
    if (spec.ok()) {
      compare_requests(*read, ModelBuilder::list_requests(read, *arch, *spec), kinds, one);
      continue;
    }
    one.unread.clear();
    one.problem = spec.error().message;
    if (one.problem.starts_with(files.path)) one.problem.erase(0, files.path.size());
    one.problem.erase(0, one.problem.find_first_not_of(":/ "));
    compare_declared(*read, kinds, one);
  }
  std::ranges::stable_sort(out, {}, &ArchComparison::differences);
  return out;
}

Error unknown_architecture(const ModelFiles& files) { return unknown_architecture(files, compare_with_known(files)); }

Error unknown_architecture(const ModelFiles& files, const std::vector<ArchComparison>& known) {
  const ArchComparison& nearest = known.front();
  return Error::unsupported(fmt::format(
      "{}: architecture '{}' is not known; the nearest is {}{}. `millrace inspect` lists the blocks that the model "
      "needs, `millrace techniques --family arch` the known architectures",
      files.path, files.architecture, nearest.arch->name, differences_text(nearest)));
}

}  // namespace millrace
