// Registry<Factory>: the members of one family of techniques. A member is one file plus one line in that folder's
// builtin.cc; there are no static constructors. `millrace techniques` lists all of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace millrace {

// The description of a registered technique.
struct TechniqueInfo {
  std::string family;   // "sampler", "format", "arch" ...
  std::string name;     // as typed: "min_p"
  std::string summary;  // one line
  std::string paper;    // "Authors, year, title" or the specification; empty if there is none
  std::vector<OptionSpec> options;
};

template <typename Factory>
struct RegistryEntry {
  TechniqueInfo info;
  Factory make;
};

template <typename Factory>
class Registry {
 public:
  using Entry = RegistryEntry<Factory>;
  explicit Registry(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* find(std::string_view name) const {
    for (const auto& entry : entries_)
      if (entry.info.name == name) return &entry;
    return nullptr;
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace millrace
