// choose_member(): finds the member of a registry that a text names, and parses its options.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/registry.h"

namespace millrace {

template <typename Member>
struct ChosenMember {
  Member member;
  OptionValues options;
  std::string label;  // "policy vtc", for messages
};

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option; the message names the family.
template <typename Member>
Result<ChosenMember<Member>> choose_member(const std::string& family, const Registry<Member>& registry,
                                           std::string_view text) {
  const auto colon = text.find(':');
  const std::string name(text.substr(0, colon));
  const auto* entry = registry.find(name);
  if (!entry) return Error::user(family + ": unknown '" + name + "'; available: " + registry.names());
  const std::string label = family + " " + name;
  auto options =
      parse_options(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1), entry->info.options);
  if (!options.ok()) return Error::user(label + ": " + options.error().message);
  return ChosenMember<Member>{entry->member, std::move(*options), label};
}

}  // namespace millrace
