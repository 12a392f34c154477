#include "retrieve/named_indexes.h"

#include <fmt/format.h>

namespace millrace {

Result<std::shared_ptr<const NamedIndexes>> NamedIndexes::open(std::span<const std::string> named,
                                                               const ModelLoader& load, int threads) {
  auto out = std::make_shared<NamedIndexes>();
  for (const std::string& one : named) {
    const size_t equals = one.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == one.size())
      return Error::user(fmt::format("--index: must be NAME=FOLDER, not {}", one));
    const std::string name = one.substr(0, equals);
    if (out->all_.contains(name)) return Error::user(fmt::format("--index: {} is given twice", name));
    MILLRACE_TRY(auto index, DocumentIndex::open(one.substr(equals + 1), IndexAccess::read));
    MILLRACE_TRY(out->all_[name], Retriever::create(std::move(index), "", load, threads));
  }
  return std::shared_ptr<const NamedIndexes>(std::move(out));
}

const Retriever* NamedIndexes::find(const std::string& name) const {
  const auto found = all_.find(name);
  return found == all_.end() ? nullptr : found->second.get();
}

std::string NamedIndexes::names() const {
  std::string out;
  for (const auto& [name, index] : all_) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace millrace
